/* All partitions of a table that is copied, by their names now. What rules for columns hide of one
 * they hide of its rows when they come as the table's, too. The stream describes each before its
 * first row, also after an ATTACH (maybe_send_schema, pgoutput.c). */
#pragma once

#include "postgres/catalog/pg_captured.h"

/* All zero is none. */
struct mr_pg_parts {
    struct mr_table_part *items;
    uint32_t *roots; /* of each the table above it, in the order of these */
    uint32_t count, room, roots_room;
};

/* Those of the table of that OID, or of all tables (NULL). Takes no locks. */
mr_status mr_pg_parts_read(struct mr_pg_parts *parts, struct mr_pg_conn *conn, const uint32_t *oid,
                           struct mr_error *ret_error);

/* Sets the view's, which are the parts' own. */
void mr_pg_parts_find(const struct mr_pg_parts *parts, struct mr_relation *view);

void mr_pg_parts_done(struct mr_pg_parts *parts);
