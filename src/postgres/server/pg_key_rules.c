/* `millrace check`: tables whose records would have another key than Debezium's connector gives
 * them. */
#include "postgres/server/pg_rules.h"

enum column { SCHEMA, TABLE, OURS, THEIRS, IS_ORDER };

enum { TABLES_MAX = 20 };

/* Of an index' columns, those of its key. */
#define KEY_OF(index) "(" index ".indkey::int2[])[0:" index ".indnkeyatts - 1]"

#define NAMES_OF(columns)                                                                          \
    "(SELECT string_agg(CASE WHEN a.attname ~ '[.:,]' THEN format('\"%s\"', a.attname)"            \
    " ELSE a.attname END, ',' ORDER BY n) FROM unnest(" columns ") WITH ORDINALITY u(x, n)"        \
    " JOIN pg_attribute a ON a.attrelid = k.oid AND a.attnum = u.x)"

#define SORTED(columns) "(SELECT array_agg(x ORDER BY x) FROM unnest(" columns ") x)"

/* Debezium has the primary key, else the first unique index without expressions, clustered ones
 * first, with what it includes (JdbcConnection.readPrimaryKeyOrUniqueIndexNames; the driver's
 * getPrimaryKeys and getIndexInfo). */
static void pg_key_rules_add_query(struct mr_text *sql, const struct mr_pg_source_options *options,
                                   int version)
{
    mr_text_string(sql, "SELECT k.nspname, k.relname, " NAMES_OF("k.ours") ", ");
    mr_text_string(sql, NAMES_OF("k.theirs") ", coalesce(" SORTED("k.ours") " = ");
    mr_text_string(sql, SORTED("k.theirs") ", false) FROM (SELECT s.*, ");
    const char *ours = "CASE c.relreplident WHEN 'i' THEN " KEY_OF("i") " ELSE " KEY_OF("p") " END";
    if (options->key_order == MR_KEY_ORDER_INDEX) {
        mr_text_string(sql, ours);
    } else {
        mr_text_format(sql, SORTED("%s"), ours);
    }
    mr_text_string(sql, " AS ours, coalesce(" KEY_OF("p") ", u.indkey::int2[]) AS theirs FROM (");
    mr_sql_add_streamed(sql, options, version);
    mr_text_string(sql,
                   ") s JOIN pg_class c ON c.oid = s.oid"
                   " LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary"
                   " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisreplident"
                   " LEFT JOIN LATERAL (SELECT x.indkey FROM pg_index x JOIN pg_class n ON"
                   " n.oid = x.indexrelid WHERE x.indrelid = c.oid AND x.indisunique"
                   " AND x.indexprs IS NULL ORDER BY x.indisclustered DESC, n.relname LIMIT 1) u"
                   " ON true) k WHERE array_to_string(k.ours, ' ') IS DISTINCT FROM"
                   " array_to_string(k.theirs, ' ') ORDER BY 1, 2");
}

static void rule_key(struct mr_pg_reporter *to, const struct mr_pg_source_options *options,
                     const struct mr_pg_result *result, uint32_t row)
{
    const struct mr_table_name table = {mr_pg_result_value(result, row, SCHEMA),
                                        mr_pg_result_value(result, row, TABLE)};
    const char *ours = mr_pg_result_value(result, row, OURS);
    const char *theirs = mr_pg_result_value(result, row, THEIRS);
    bool is_order = mr_pg_result_true(result, row, IS_ORDER);
    mr_pg_about(to, "key of table %T", &table);
    if (mr_pg_key_of(options, mr_slice_of(table.schema), mr_slice_of(table.table)) != NULL ||
        theirs == NULL || (options->key_order != MR_KEY_ORDER_INDEX && !is_order)) {
        return;
    }
    if (options->key_order != MR_KEY_ORDER_INDEX) {
        MR_FOUND_OK(to,
                    "is (%s), in the table's order; Debezium's is (%s): with key_order = "
                    "\"index\" it is the same",
                    ours, theirs);
        return;
    }
    mr_pg_remedy(to, "to go on with Debezium's keys, set key_columns = [\"%s.%s:%s\"]%s",
                 table.schema, table.table, theirs,
                 ours == NULL ? "" : ", and REPLICA IDENTITY FULL, so that deletes have it");
    MR_FOUND_WARNING(to, "is %s%s%s; Debezium's is (%s)", ours == NULL ? "null" : "(",
                     ours == NULL ? "" : ours,
                     ours == NULL ? "" : "), the columns of its replica identity", theirs);
}

mr_status mr_pg_rules_of_keys(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the keys", "iiSSb", 0, UINT32_MAX};
    struct mr_text sql = {0};
    pg_key_rules_add_query(&sql, facts->options, facts->version);
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    uint32_t rows = mr_pg_result_rows(result);
    for (uint32_t row = 0; row < rows && row < TABLES_MAX; row++) {
        rule_key(to, facts->options, result, row);
    }
    if (rows > TABLES_MAX) {
        mr_pg_about(to, "keys");
        MR_FOUND_OK(to, "of %u more tables may differ from Debezium's, too", rows - TABLES_MAX);
    }
    return MR_OK;
}
