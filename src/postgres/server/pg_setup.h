/* What must be true before the stream starts, by the rules of pg_rules.c: a start stops at the
 * first that is broken and makes what is missing; `millrace check` lists every finding, looks at
 * more, and changes nothing. */
#pragma once

#include "base/finding.h"
#include "event/checkpoint.h"
#include "postgres/catalog/pg_options.h"
#include "postgres/server/pg_left.h"

/* What is known of the stream, by what is stored or by this process. */
struct mr_pg_stream_state {
    bool is_known;         /* where it goes on, */
    bool tables_are_known; /* and that it had these tables */
    struct mr_pg_delivered known;
    mr_lsn delivered;    /* what ends before is with the sink, and no more; 0: not known */
    const char *silence; /* what is stored of the publication, among others; NULL: nothing */
    const char *gap;     /* why it can't go on there; NULL: nothing is known against it */
    mr_lsn begins;       /* where it is to begin after a copy that is stored as begun; 0: none */
    mr_lsn gap_stored;   /* where the gap ends that is stored; 0: none */
};
struct mr_pg_stream_state mr_pg_stream_state_of(const struct mr_checkpoint *stored,
                                                const struct mr_pg_source_options *options);

/* The slot while existing rows are copied: "<slot>_snapshot_<attempt>". It gets its own name when
 * all of them are safe, so that the next start sees whether they are, and no two attempts have one
 * number. */
struct mr_pg_copy_slot {
    char name[96];
    uint32_t attempt;  /* 1, 2, 3 …; 0: nothing is to be copied */
    bool replaces;     /* a slot that is there, which mr_pg_drop_replaced drops */
    bool leaves_out;   /* changes from before are in no stream, or it can't be told */
    mr_lsn confirmed;  /* of a slot that was there; 0: there was none */
    mr_lsn lsn;        /* what commits from here on is in the stream */
    char snapshot[64]; /* of that moment, until the next command; "": the slot is older */
};

struct mr_pg_facts;

/* Whether existing rows are copied at a start that finds this; `was_begun`: the slot of a copy is
 * there that was broken off. */
bool mr_pg_copies_now(const struct mr_pg_facts *facts, const struct mr_pg_stream_state *state,
                      bool was_begun);

/* Whether a stream may begin at a slot that is there, without a stored position. */
mr_status mr_pg_may_adopt(const struct mr_pg_facts *facts, const struct mr_pg_stream_state *state,
                          struct mr_error *ret_error);

/* Makes or verifies what START_REPLICATION needs: the publication before the slot, else the slot's
 * first changes can't see it. `conn` is the replication connection on which the stream is to run;
 * `desk` is for questions about tables, which the server would keep in the stream's session and
 * read a backlog by (docs/dev/protocol.md). Where `state` does not know the stream, a slot that
 * exists is adopted, which `ret_adopted` says, or refused. The first thing that is wrong is the
 * answer.
 *
 * With `ret_copy`, for a copy: its slot is made, or an attempt that was broken off gets another
 * number. When something is to be copied, options->copies says, beside what the server has:
 *
 *   MR_COPIES_INITIALLY    no slot is there, and it is not known where a stream goes on
 *   MR_COPIES_ONLY, MR_COPIES_ALWAYS   in any case
 *   MR_COPIES_WHEN_NEEDED  as the first, and where the slot is lost, or state->gap; also where the
 *                          sink stores positions, a slot is there, and no position
 *   MR_COPIES_ACCEPT_GAP   where the slot is lost, or state->gap: a copy of no tables
 *
 * Where all before the slot of a copy is delivered, only its name was missing. MR_ERR_HISTORY:
 * copied rows would lie below what is delivered. Both answers may be NULL. */
mr_status mr_pg_setup(struct mr_pg_conn *conn, struct mr_pg_conn *desk,
                      const struct mr_pg_source_options *options,
                      const struct mr_pg_stream_state *state, struct mr_pg_copy_slot *ret_copy,
                      bool *ret_adopted, struct mr_error *ret_error);

/* Once the snapshot is somebody's, and it is stored what the new slot leaves out: drops the slot
 * that the copy's replaces. If we die before, the next start does it. */
mr_status mr_pg_drop_replaced(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_pg_copy_slot *slot, struct mr_error *ret_error);

/* Whether the copy's slot has what has changed since. MR_ERR_HISTORY: not; MR_ERR_TRANSIENT: the
 * copy begins again by itself. */
mr_status mr_pg_look_at_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             const struct mr_pg_copy_slot *slot, struct mr_error *ret_error);

/* All is copied and safe: the slot gets its name, or, with MR_COPIES_ONLY, goes. */
mr_status mr_pg_end_copy(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         const struct mr_pg_copy_slot *slot, struct mr_error *ret_error);

/* Asks, by a connection of its own, whether a stream may go on as `options` say, which have tables
 * that it does not have yet, `added`; reports what the rules find of those. MR_AGAIN: not while
 * another instance stands by. Any thread. */
mr_status mr_pg_check_change(const struct mr_pg_source_options *options,
                             const struct mr_table_name *added, uint32_t added_count, int stop_fd,
                             mr_finding_fn report, void *context, struct mr_error *ret_error);

/* What mr_pg_publication_follow says of tables that are to be `options`', by a connection of its
 * own. Any thread. */
mr_status mr_pg_change_publication(const struct mr_pg_source_options *options, bool change,
                                   int stop_fd, mr_finding_fn report, void *context,
                                   struct mr_error *ret_error);

/* Reports everything that could keep the stream from starting, from being complete, or from going
 * on at `stored` (NULL: nothing is stored); connects by itself and changes nothing. */
void mr_pg_check(const struct mr_pg_source_options *options, const struct mr_checkpoint *stored,
                 mr_finding_fn report, void *context);
