#include "copy/pg_copy.h"
#include "postgres/catalog/pg_sql.h"

enum column { COLUMN_TABLE, COLUMN_NAME, COLUMN_TYPE, COLUMN_MODIFIER, COLUMN_IN_IDENTITY };

/* Flagged as in the stream: logicalrep_write_attrs in src/backend/replication/logical/proto.c, RelationGetIdentityKeyBitmap in
 * src/backend/utils/cache/relcache.c. */
mr_status mr_pg_columns_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             uint32_t oid, struct mr_pg_result **ret_result,
                             struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the columns to copy", "ninnb", 0, UINT32_MAX};
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, options->publication, NULL, mr_pg_server_version(conn));
    mr_text_string(
        &sql, " SELECT s.oid::bigint, a.attname, a.atttypid::bigint, a.atttypmod,"
              " c.relreplident = 'f' OR coalesce(a.attnum = ANY"
              " ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false) FROM sent s"
              " JOIN pg_class c ON c.oid = s.oid"
              " JOIN pg_attribute a ON a.attrelid = s.oid AND a.attnum > 0 AND NOT a.attisdropped"
              " AND " MR_SQL_IS_SENT
              " LEFT JOIN pg_index i ON i.indrelid = s.oid AND i.indislive AND i.indisvalid AND"
              " CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate"
              " WHEN 'i' THEN i.indisreplident ELSE false END");
    if (oid != 0) {
        mr_sql_format(&sql, " WHERE c.oid = %u", oid);
    }
    mr_text_string(&sql, " ORDER BY 1, a.attnum");
    return mr_pg_query(conn, &sql, &shape, ret_result, ret_error);
}

void mr_pg_columns_take(const struct mr_pg_result *result, uint32_t *at, struct mr_relation *view)
{
    uint32_t rows = mr_pg_result_rows(result);
    view->column_count = 0;
    while (*at < rows && mr_pg_result_number(result, *at, COLUMN_TABLE) < view->oid) {
        ++*at; /* of a table without leaves */
    }
    for (; *at < rows && view->column_count < MR_COLUMNS_MAX &&
           mr_pg_result_number(result, *at, COLUMN_TABLE) == view->oid;
         ++*at) {
        view->columns[view->column_count++] = (struct mr_column){
            .name = mr_pg_result_value(result, *at, COLUMN_NAME),
            .type_oid = (uint32_t)mr_pg_result_number(result, *at, COLUMN_TYPE),
            .type_modifier = (int32_t)mr_pg_result_number(result, *at, COLUMN_MODIFIER),
            .in_identity = mr_pg_result_true(result, *at, COLUMN_IN_IDENTITY),
        };
    }
}

void mr_pg_columns_add_select(struct mr_text *sql, const struct mr_relation *relation,
                              const char *first, const struct mr_table_name *from, bool with_parts,
                              const char *filter)
{
    const char *joint = first == NULL ? "" : ", ";
    mr_sql_format(sql, "COPY (SELECT %s", first == NULL ? "" : first);
    for (uint32_t i = 0; i < relation->column_count; i++, joint = ", ") {
        mr_sql_format(sql, "%s%I", joint, relation->columns[i].name);
    }
    mr_sql_format(sql, with_parts ? " FROM %T" : " FROM ONLY %T", from);
    if (filter != NULL) {
        mr_sql_format(sql, " WHERE (%s)", filter);
    }
}
