#include "postgres/catalog/pg_parts.h"

#include "postgres/catalog/pg_sql.h"

enum part_column { PART_ROOT, PART_ROOT_SCHEMA, PART_ROOT_TABLE, PART_SCHEMA, PART_TABLE };

struct parts_reading {
    struct mr_pg_parts *parts;
    const struct mr_pg_source_options *options;
};

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

static bool hiding_fits(const struct mr_table_pattern *hiding, const char *schema,
                        const char *table)
{
    return mr_table_pattern_matches(hiding, mr_slice_of(schema), mr_slice_of(table));
}

static mr_status take_part(void *context, const struct mr_pg_result *row,
                           struct mr_error *ret_error)
{
    const struct parts_reading *reading = context;
    struct mr_pg_parts *parts = reading->parts;
    const char *schema = mr_pg_result_value(row, 0, PART_SCHEMA);
    const char *table = mr_pg_result_value(row, 0, PART_TABLE);
    bool matters = false;
    (void)ret_error;
    for (uint32_t i = 0; i < reading->options->hiding_count && !matters; i++) {
        const struct mr_table_pattern *hiding = &reading->options->hiding[i];
        matters = hiding_fits(hiding, schema, table) &&
                  !hiding_fits(hiding, mr_pg_result_value(row, 0, PART_ROOT_SCHEMA),
                               mr_pg_result_value(row, 0, PART_ROOT_TABLE));
    }
    if (matters) {
        MR_GROW(parts->items, parts->room, parts->count + 1);
        MR_GROW(parts->roots, parts->roots_room, parts->count + 1);
        parts->roots[parts->count] = (uint32_t)mr_pg_result_number(row, 0, PART_ROOT);
        parts->items[parts->count++] =
            (struct mr_table_ref){.schema = MR_STRDUP(schema), .table = MR_STRDUP(table)};
    }
    return MR_OK;
}

/* Whether a rule may be about a partition and not about the table. */
static bool parts_may_matter(const struct mr_pg_source_options *options,
                             const struct mr_pg_described *table)
{
    for (uint32_t i = 0; i < options->hiding_count; i++) {
        if (table == NULL || !hiding_fits(&options->hiding[i], table->schema, table->table)) {
            return true;
        }
    }
    return false;
}

mr_status mr_pg_parts_read(struct mr_pg_parts *parts, struct mr_pg_conn *conn,
                           const struct mr_pg_source_options *options,
                           const struct mr_pg_described *table, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the partitions of a table", "nssss", 0, UINT32_MAX};
    struct parts_reading reading = {.parts = parts, .options = options};
    struct mr_text sql = {0};
    mr_pg_parts_done(parts);
    if (!parts_may_matter(options, table)) {
        return MR_OK;
    }
    mr_text_string(&sql, "WITH RECURSIVE below(root, oid) AS (SELECT oid, oid FROM pg_class"
                         " WHERE relkind = 'p'");
    if (table != NULL) {
        mr_text_format(&sql, " AND oid = %u", table->oid);
    }
    mr_text_string(&sql, " UNION ALL SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i"
                         " ON i.inhparent = b.oid WHERE NOT i.inhdetachpending)"
                         " SELECT b.root::bigint, rn.nspname, r.relname, c.nspname, c.relname"
                         " FROM below b JOIN pg_class r ON r.oid = b.root JOIN pg_namespace rn"
                         " ON rn.oid = r.relnamespace JOIN (SELECT k.oid, n.nspname, k.relname"
                         " FROM pg_class k JOIN pg_namespace n ON n.oid = k.relnamespace) c"
                         " ON c.oid = b.oid WHERE b.oid <> b.root AND ");
    mr_sql_add_any_pattern(&sql, options->hiding, options->hiding_count);
    mr_text_string(&sql, " ORDER BY 1, 4, 5");
    return mr_pg_ask_rows(conn, &sql, &shape, take_part, &reading, ret_error);
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
