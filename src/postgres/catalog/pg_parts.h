/* Partitions that rules for columns are about which are not about the table that sends their rows,
 * by their names now. The stream does not tell whose rows those are; but before a partition's first
 * row, also after an ATTACH, it describes the table (maybe_send_schema, pgoutput.c), and they are
 * asked for then. */
#pragma once

#include "postgres/catalog/pg_captured.h"

/* All zero is none. */
struct mr_pg_parts {
    struct mr_table_ref *items;
    uint32_t *roots; /* of each the table above it, in the order of these */
    uint32_t count, room, roots_room;
};

/* Those of one table, or of all tables (NULL) that a copy may read. Takes no locks. */
mr_status mr_pg_parts_read(struct mr_pg_parts *parts, struct mr_pg_conn *conn,
                           const struct mr_pg_source_options *options,
                           const struct mr_pg_described *table, struct mr_error *ret_error);

/* Sets the view's, which are the parts' own. */
void mr_pg_parts_find(const struct mr_pg_parts *parts, struct mr_relation *view);

void mr_pg_parts_done(struct mr_pg_parts *parts);
