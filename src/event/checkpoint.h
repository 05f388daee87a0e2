/* Where a pipeline stands, as a sink stores it with the events, and what that says of a server and
 * a slot that are about to be read on from there. Values only. Any thread. */
#pragma once

#include "event/event.h"

/* That a stream has moved from another cluster, or is about to (docs/upgrading-postgresql.md). A
 * stored position keeps it. */
struct mr_cluster_move {
    char from[24];  /* system identifier */
    mr_lsn left;    /* all before it was delivered there, nothing after it; 0: it has not moved */
    mr_lsn entered; /* where it went on, in the new cluster's terms here; 0: it has not yet */
    mr_lsn shift;   /* that the cluster's LSNs are called here by (lsn.h) */
    uint64_t xid;   /* the next one there */
    int64_t at_ms;  /* since 1970: when it left, or went on */
};

/* Whose stream it is. */
struct mr_identity {
    char system_id[24]; /* of the cluster, decimal */
    uint32_t timeline;
    bool is_standby; /* when the stream was begun */
    char slot[64];
    char publication[256]; /* 63 characters in the database's encoding */
    uint64_t tables;       /* tells the configured names apart from others; 0: not known */
    struct mr_cluster_move moved;
};

/* What decides which transactions come with which rows: the publication. Its tables are those of
 * the time (the server reads the catalog as it was), and names of tables in the configuration only
 * choose from what comes. */
uint64_t mr_identity_asked(const struct mr_identity *identity);

/* In a stored position, instead of a transaction: none with rows was delivered since the stream
 * began at its slot. */
struct mr_commit mr_identity_no_commit(const struct mr_identity *identity);

/* Of two records at one position the one with the higher rank is further. */
struct mr_section_rank {
    mr_lsn begins;  /* the stream is to begin there, and is not stored as begun; 0: not said */
    bool no_stream; /* none is to begin */
    uint64_t major, minor;
    uint32_t version; /* of the record: a build that only knows lower ones must not go on from it */
};

/* A member of the stored record that belongs to a companion (ports/companion.h): only the companion
 * reads it. */
struct mr_section {
    const char *name; /* static */
    char *json;       /* as it is in the record */
    struct mr_section_rank rank;
};

/* Sections that a record may have; a table of them ends with a name that is NULL. */
struct mr_section_kind {
    const char *name;
    uint32_t version; /* a record of this version must have it; 0: none must */
    /* False: it can't be read, so nothing may go on from the record. */
    bool (*rank)(const char *json, struct mr_section_rank *ret_rank);
};

enum { MR_SECTIONS_MAX = 10 };

struct mr_checkpoint {
    struct mr_identity identity;
    /* Every transaction that ends at or before this is with the sink as a whole, and this is the
     * last of them that has rows. */
    mr_lsn end_lsn;
    struct mr_commit last;
    /* The last change that is with the sink; {0} when only whole transactions are told of. */
    struct mr_position position;
    struct mr_section sections[MR_SECTIONS_MAX]; /* in the record's order */
    uint32_t section_count;
};

/* Frees what it has, and not itself. */
void mr_checkpoint_done(struct mr_checkpoint *state);

/* `json` is the checkpoint's from now on. */
void mr_checkpoint_add(struct mr_checkpoint *state, const char *name, char *json,
                       const struct mr_section_rank *rank);

/* NULL: there is none of that name. */
const struct mr_section *mr_checkpoint_section(const struct mr_checkpoint *state, const char *name);

/* Where a stream is to begin that is not stored as begun; 0: nothing says so. end_lsn and position
 * are then the stream's before. */
mr_lsn mr_checkpoint_begins(const struct mr_checkpoint *state);

/* Whether it says how far a stream was delivered. */
bool mr_checkpoint_has_stream(const struct mr_checkpoint *state);

/* Whether `next`, which was stored after `known`, says less. Each says of a stream what is with the
 * sink, and that stays true; so of all that is stored the furthest counts, and not what was stored
 * last: an instance that was frozen, and has lost the stream meanwhile, may store once more when it
 * wakes up. */
bool mr_checkpoint_is_behind(const struct mr_checkpoint *next, const struct mr_checkpoint *known);

/* What the server says before the stream begins. */
struct mr_server_position {
    struct mr_identity identity;
    bool slot_exists;
    mr_lsn slot_confirmed; /* confirmed_flush_lsn; 0: not known */
    mr_lsn flushed;        /* end of the server's log */
    mr_lsn switched_at;    /* where the server left `stored.identity.timeline`; 0: it is on it */
    char copy_slot[96];    /* of a copy of existing rows that was broken off; "": there is none */
};

/* May the stream go on at `stored` (NULL: nothing is stored), or begin where no slot is? MR_OK, or
 * MR_ERR_HISTORY, with what happened and what to do, when rows may be missing or may have been told
 * of that the server does not have.
 *
 * The one rule (docs/reliability.md, "May a new slot begin here?"): a new slot begins without a
 * copy of existing rows only where nothing was begun before: no stream, no copy that a stream is to
 * follow, and nothing of another program's, which had delivered what is before `handed_over` (0:
 * there is none). */
mr_status mr_checkpoint_verify(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, mr_lsn handed_over,
                               struct mr_error *ret_error);

/* What the server sends up to `stored` is not what was delivered: it lacks stored->last, or has
 * rows that were not. */
mr_status mr_checkpoint_refuse(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, struct mr_error *ret_error);

/* What to do where the tables can be copied, as numbered steps, and the better way before them; and
 * what stands before either, and before other such steps, where a copy mends what the error
 * says. */
#define MR_RECIPE_BY_HAND                                                                          \
    "1. set snapshot.mode = \"when_needed\"; 2. start millrace: it makes the slot, and copies "    \
    "all rows as they are now, but sends no deletes of the gap"
#define MR_RECIPE_OF_COPY                                                                          \
    "millrace recover --config FILE says what is missing, and sends what differs; or by "          \
    "hand: " MR_RECIPE_BY_HAND
#define MR_REPAIR_COMMAND "millrace verify --repair --yes --config FILE"
#define MR_RECIPE_LEAD    "; what to do: "
