#include "postgres/catalog/pg_parts.h"

#include "postgres/catalog/pg_sql.h"

enum part_column { PART_ROOT, PART_OID, PART_SCHEMA, PART_TABLE };

void mr_pg_parts_done(struct mr_pg_parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        free((char *)parts->items[i].schema);
        free((char *)parts->items[i].table);
    }
    free(parts->items);
    free(parts->roots);
    *parts = (struct mr_pg_parts){0};
}

static mr_status take_part(void *context, const struct mr_pg_result *row,
                           struct mr_error *ret_error)
{
    struct mr_pg_parts *parts = context;
    (void)ret_error;
    MR_GROW(parts->items, parts->room, parts->count + 1);
    MR_GROW(parts->roots, parts->roots_room, parts->count + 1);
    parts->roots[parts->count] = (uint32_t)mr_pg_result_number(row, 0, PART_ROOT);
    parts->items[parts->count++] =
        (struct mr_table_part){.oid = (uint32_t)mr_pg_result_number(row, 0, PART_OID),
                               .schema = MR_STRDUP(mr_pg_result_value(row, 0, PART_SCHEMA)),
                               .table = MR_STRDUP(mr_pg_result_value(row, 0, PART_TABLE))};
    return MR_OK;
}

mr_status mr_pg_parts_read(struct mr_pg_parts *parts, struct mr_pg_conn *conn, const uint32_t *oid,
                           struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the partitions of a table", "nnss", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_pg_parts_done(parts);
    mr_text_string(&sql, "WITH RECURSIVE below(root, oid) AS (SELECT oid, oid FROM pg_class"
                         " WHERE relkind = 'p'");
    if (oid != NULL) {
        mr_text_format(&sql, " AND oid = %u", *oid);
    }
    mr_text_string(&sql, " UNION ALL SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i"
                         " ON i.inhparent = b.oid WHERE NOT i.inhdetachpending)"
                         " SELECT b.root::bigint, c.oid::bigint, n.nspname, c.relname"
                         " FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n"
                         " ON n.oid = c.relnamespace WHERE b.oid <> b.root ORDER BY 1, 3, 4");
    return mr_pg_ask_rows(conn, &sql, &shape, take_part, parts, ret_error);
}

void mr_pg_parts_find(const struct mr_pg_parts *parts, struct mr_relation *view)
{
    uint32_t first = 0, end;
    while (first < parts->count && parts->roots[first] != view->oid) {
        first++;
    }
    for (end = first; end < parts->count && parts->roots[end] == view->oid; end++) {
    }
    view->parts = first == end ? NULL : &parts->items[first];
    view->part_count = end - first;
}
