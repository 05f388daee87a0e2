#include "postgres/catalog/pg_attached.h"

#include "postgres/catalog/pg_sql.h"

enum { NAMES_MAX = 10 };

static void add_candidates(struct mr_text *sql, const struct mr_attached_wish *wish)
{
    mr_text_string(sql, ", candidates AS (SELECT DISTINCT t.oid FROM tree t");
    if (wish->schema != NULL) {
        mr_text_string(sql, " JOIN named ON named.oid = t.root");
    }
    mr_text_string(sql, " WHERE t.isleaf AND (t.oid IN (SELECT oid FROM sent)"
                        " OR t.root IN (SELECT oid FROM sent)) AND t.oid <> ALL (ARRAY[");
    for (uint32_t i = 0; i < wish->known_count; i++) {
        mr_text_format(sql, i == 0 ? "%u" : ",%u", wish->known[i]);
    }
    mr_text_string(sql, "]::oid[]))");
}

/* A partition is attached where a link above it is younger than itself: one that is made as a
 * partition is of its link's transaction (DefineRelation in commands/tablecmds.c), and nothing
 * writes a table's row of a system column (-6, tableoid) again. */
static void pg_attached_add_query(struct mr_text *sql, const struct mr_pg_source_options *options,
                                  const struct mr_attached_wish *wish, int version)
{
    mr_text_string(sql, "WITH RECURSIVE ");
    if (wish->schema != NULL) {
        mr_sql_format(sql,
                      "named AS MATERIALIZED (SELECT c.oid FROM pg_class c JOIN pg_namespace n"
                      " ON n.oid = c.relnamespace WHERE n.nspname = %L AND c.relname = %L), ",
                      wish->schema, wish->table);
    }
    mr_sql_add_sent(sql, options->publication, wish->schema == NULL ? NULL : "named", version);
    add_candidates(sql, wish);
    mr_text_string(
        sql,
        ", up(leaf, oid, youngest) AS (SELECT oid, oid, 2147483647 FROM candidates"
        " UNION ALL SELECT u.leaf, i.inhparent, least(u.youngest, CASE WHEN age(i.xmin) < 0"
        " THEN 2147483647 ELSE age(i.xmin) END) FROM up u JOIN pg_inherits i"
        " ON i.inhrelid = u.oid)"
        " SELECT n.nspname, c.relname, rn.nspname, r.relname, coalesce(bn.nspname, n.nspname),"
        " coalesce(b.relname, c.relname) FROM (SELECT leaf, min(youngest) AS youngest FROM up"
        " GROUP BY 1) x JOIN pg_class c ON c.oid = x.leaf JOIN pg_namespace n"
        " ON n.oid = c.relnamespace JOIN pg_class r ON r.oid = (SELECT u.oid FROM up u"
        " WHERE u.leaf = x.leaf AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = u.oid)"
        " LIMIT 1) JOIN pg_namespace rn ON rn.oid = r.relnamespace"
        " LEFT JOIN pg_class b ON x.leaf NOT IN (SELECT oid FROM sent) AND b.oid = (SELECT u.oid"
        " FROM up u JOIN sent s ON s.oid = u.oid WHERE u.leaf = x.leaf LIMIT 1)"
        " LEFT JOIN pg_namespace bn ON bn.oid = b.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = x.leaf AND a.attnum = -6"
        " WHERE x.youngest < age(a.xmin)");
    if (wish->since != 0) {
        mr_text_format(sql, " AND x.youngest <= age('%u'::xid)", wish->since);
    }
    mr_text_string(sql, " ORDER BY 1, 2");
}

static void pg_attached_add_name(struct mr_text *names, const char *schema, const char *table)
{
    mr_text_format(names, "%s%s.%s", names->len == 0 ? "" : ", ", schema, table);
}

mr_status mr_pg_attached_find(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_attached_wish *wish, struct mr_text *ret_names,
                              struct mr_text *ret_roots, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"partitions", "ssssss", 0, UINT32_MAX};
    struct mr_text sql = {0};
    const struct mr_pg_result *result;
    pg_attached_add_query(&sql, options, wish, mr_pg_server_version(conn));
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    uint32_t count = 0;
    for (uint32_t i = 0; i < mr_pg_result_rows(result) && count < NAMES_MAX; i++) {
        const char *names[6];
        for (uint32_t c = 0; c < MR_ARRAY_LEN(names); c++) {
            names[c] = mr_pg_result_value(result, i, c);
        }
        bool is_ours = mr_pg_table_listed(options, mr_slice_of(names[0]), mr_slice_of(names[1])) ||
                       mr_pg_table_listed(options, mr_slice_of(names[2]), mr_slice_of(names[3]));
        if (is_ours) {
            pg_attached_add_name(ret_names, names[0], names[1]);
            pg_attached_add_name(ret_roots, names[4], names[5]);
            count++;
        }
    }
    return MR_OK;
}

mr_status mr_pg_attached_log(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             const struct mr_attached_wish *wish, char **logged,
                             struct mr_error *ret_error)
{
    MR_TEXT(names);
    MR_TEXT(remedy);
    MR_TEXT(roots);
    mr_status status = mr_pg_attached_find(conn, options, wish, &names, &roots, ret_error);
    if (status == MR_OK && names.len > 0 && (*logged == NULL || strcmp(*logged, names.data) != 0)) {
        mr_text_format(&remedy, "have the rows copied: millrace snapshot %s", roots.data);
        mr_log(MR_LOG_WARN, "partition_attached",
               "partitions were attached while the existing rows of their table were copied: the "
               "rows that they had before are neither copied nor in the stream",
               MR_LOG_STR("partitions", names.data), MR_LOG_STR("remedy", remedy.data));
        free(*logged);
        *logged = MR_STRDUP(names.data);
    }
    return status;
}
