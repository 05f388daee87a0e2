/* Tables that are streamed and became unlogged (SET UNLOGGED, or made again so): nothing of what is
 * written to them is in the WAL, and nothing in the stream tells. One that a pattern fits, and that
 * was unlogged all along, is what a start warns of. One thread, or under the caller's lock. */
#pragma once

#include "postgres/catalog/pg_options.h"

struct mr_unlogged_table {
    uint32_t oid;
    char *name; /* schema.table */
};

/* All zero is one that has not looked yet. */
struct mr_unlogged {
    uint64_t *logged; /* hashes of the names that were logged at some look, in order */
    uint32_t logged_count, logged_room;
    uint32_t last; /* the largest OID that was seen */
    struct mr_unlogged_table *tables;
    uint32_t count, room;
};

/* Looks which tables are unlogged now, and logs those that are logged again. Adds what is to be
 * said of those that are unlogged to `ret_text`; nothing where there are none. */
mr_status mr_unlogged_look(struct mr_unlogged *unlogged, struct mr_pg_conn *conn,
                           const struct mr_pg_source_options *options, struct mr_text *ret_text,
                           struct mr_error *ret_error);

/* Stored once: one that is unlogged, by its name. */
void mr_unlogged_add(struct mr_unlogged *unlogged, const char *name);

/* Other tables are configured: the next look sees them all. */
void mr_unlogged_change(struct mr_unlogged *unlogged);

void mr_unlogged_done(struct mr_unlogged *unlogged);
