
#include "verify/pg_side.h"

enum listed {
    LISTED_OID,
    LISTED_SCHEMA,
    LISTED_TABLE,
    LISTED_KIND,
    LISTED_IS_FULL,
    LISTED_ROWS,
    LISTED_IS_PUBLISHED,
    LISTED_LACKS,
    LISTED_FILTER,
    /* its own name or that of a table that it is a partition of, a row for each */
    LISTED_AS_SCHEMA,
    LISTED_AS_TABLE,
};

/* All tables that may be streamed. One that has partitions is none itself unless it is
 * published. */
static mr_status pg_list_ask_tables(struct mr_pg_conn *conn, const char *publication,
                                    const struct mr_pg_result **ret_result,
                                    struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the published tables", "niisbnbbSii", 0, UINT32_MAX};
    return mr_pg_askf(
        conn, &shape, ret_result, ret_error,
        "WITH sent AS MATERIALIZED (SELECT c.oid, %s AS filter FROM pg_publication_tables t"
        "  JOIN pg_namespace n ON n.nspname = t.schemaname"
        "  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"
        "  WHERE t.pubname = %L)"
        " SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, c.relreplident = 'f',"
        " greatest(c.reltuples, 0)::bigint, s.oid IS NOT NULL,"
        " EXISTS (SELECT FROM pg_publication p WHERE p.pubname = %L"
        "  AND NOT (p.pubinsert AND p.pubupdate AND p.pubdelete)), s.filter, m.nspname, r.relname"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN sent s ON s.oid = c.oid"
        " CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid)) a"
        " JOIN pg_class r ON r.oid = a.oid JOIN pg_namespace m ON m.oid = r.relnamespace"
        " WHERE s.oid IS NOT NULL OR (c.relkind = 'r' AND c.relpersistence = 'p' AND"
        "  c.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_partition_ancestors(c.oid) u"
        "  WHERE u.relid IN (SELECT oid FROM sent))) ORDER BY 2, 3",
        mr_pg_server_version(conn) >= MR_SHAPED_VERSION_MIN ? "t.rowfilter" : "NULL::text",
        publication, publication);
}

static mr_slice pg_list_text_at(const struct mr_pg_result *result, uint32_t row, enum listed column)
{
    return mr_slice_of(mr_pg_result_value(result, row, column));
}

mr_status mr_verify_list(struct mr_pg_conn *conn, const struct mr_config *config,
                         struct mr_verify_list *ret_list, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *source = &config->source;
    const struct mr_pg_result *result;
    MR_TRY(pg_list_ask_tables(conn, source->publication, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    struct mr_verify_list list = {.tables = MR_NEW_ARRAY(struct mr_verify_listed, rows + 1)};
    for (uint32_t i = 0; i < rows; i++) {
        mr_slice schema = pg_list_text_at(result, i, LISTED_SCHEMA);
        mr_slice table = pg_list_text_at(result, i, LISTED_TABLE);
        uint32_t oid = (uint32_t)mr_pg_result_number(result, i, LISTED_OID);
        bool is_known = list.count > 0 && list.tables[list.count - 1].oid == oid;
        if (is_known || mr_pg_table_is_signal(source, schema, table) ||
            !mr_pg_table_listed(source, pg_list_text_at(result, i, LISTED_AS_SCHEMA),
                                pg_list_text_at(result, i, LISTED_AS_TABLE))) {
            continue;
        }
        const char *filter = mr_pg_result_value(result, i, LISTED_FILTER);
        list.tables[list.count++] = (struct mr_verify_listed){
            .schema = MR_STRNDUP((const char *)schema.data, schema.len),
            .table = MR_STRNDUP((const char *)table.data, table.len),
            .filter = filter == NULL ? NULL : MR_STRDUP(filter),
            .oid = oid,
            .rows = (uint64_t)mr_pg_result_number(result, i, LISTED_ROWS),
            .kind = mr_pg_result_value(result, i, LISTED_KIND)[0],
            .is_full = mr_pg_result_true(result, i, LISTED_IS_FULL),
            .is_published = mr_pg_result_true(result, i, LISTED_IS_PUBLISHED),
            .lacks_operations = mr_pg_result_true(result, i, LISTED_LACKS)};
    }
    *ret_list = list;
    return MR_OK;
}

void mr_verify_list_free(struct mr_verify_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->tables[i].schema);
        free(list->tables[i].table);
        free(list->tables[i].filter);
    }
    free(list->tables);
    *list = (struct mr_verify_list){0};
}
