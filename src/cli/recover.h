/* What the files of `millrace recover` share: recover_look.c finds out and says what is known,
 * recover.c asks what to do and does it. Inside cli/ only. Main thread. */
#pragma once

#include "cli/cli.h"
#include "copy/copies.h"
#include "postgres/conn/pg_conn.h"

enum mr_way {
    MR_WAY_DIFFERING,  /* go on at a new slot, and send what differs */
    MR_WAY_EVERYTHING, /* copy the tables */
    MR_WAY_GAP,        /* go on at a new slot, and leave the gap */
    MR_WAYS,
};
extern const char *const mr_ways[MR_WAYS]; /* as they are chosen, and called in docs/runbook.md */

/* A table that is configured, as millrace-verify lists it. */
struct mr_recover_table {
    char *schema, *table;
    bool is_published;
    char *unprovable; /* why it can't be proved; NULL: it can */
    char *uncertain;  /* why what differs can't be found, or not sent; NULL: it can */
};

struct mr_recover_tables {
    struct mr_recover_table *items;
    uint32_t count, room;
};

struct mr_recover {
    const struct mr_config *config;
    struct mr_pg_conn *conn;
    bool is_found; /* a position is stored: */
    struct mr_checkpoint stored;
    struct mr_gap gap; /* open: nothing was done about it yet */
    mr_lsn server_end;
    struct mr_recover_tables tables;
    mr_lsn left_at; /* where the server left the timeline of what is delivered; 0: nowhere */
    char loss[MR_ERROR_TEXT_MAX]; /* why the stream can't go on; "": nothing is known against it */
    /* The only thing that can be done, as numbered steps: the server's WAL ends below what was
     * delivered, and so would all that is sent to these topics. "": there are the ways. */
    char steps[MR_ERROR_TEXT_MAX];
    char refusals[MR_WAYS][MR_ERROR_TEXT_MAX]; /* why there is no such way; "": there is */
};

/* Changes nothing. MR_ERR_CONFIG: a millrace streams, or there is no stored position to go by. */
mr_status mr_recover_look(const struct mr_config *config, char *const *environment, int stop_fd,
                          struct mr_recover *ret, struct mr_error *ret_error);
void mr_recover_done(struct mr_recover *recover);

/* Whether something is to be done. */
static inline bool mr_recover_has_gap(const struct mr_recover *recover)
{
    return recover->loss[0] != '\0' || recover->gap.is_open;
}

void mr_recover_print(const struct mr_recover *recover, FILE *to);
