#include "postgres/catalog/pg_sql.h"

static void pg_sql_add_pattern(struct mr_text *sql, const char *column,
                               const struct mr_pattern *pattern)
{
    if (pattern->text == NULL) {
        mr_text_string(sql, "true");
    } else if (pattern->regex == NULL) {
        mr_sql_format(sql, "%s::text = %L", column, pattern->text);
    } else {
        /* PostgreSQL has such a letter at the very beginning only. */
        bool in_any_case = strncmp(pattern->text, "(?i)", 4) == 0;
        MR_TEXT(whole);
        mr_text_format(&whole, "^(%s)$", pattern->text + (in_any_case ? 4 : 0));
        mr_sql_format(sql, "%s::text OPERATOR(pg_catalog.~%s)%L", column, in_any_case ? "*" : "",
                      whole.data);
    }
}

void mr_sql_add_any_pattern(struct mr_text *sql, const struct mr_table_pattern *patterns,
                            uint32_t count)
{
    mr_text_string(sql, "(false");
    for (uint32_t i = 0; i < count; i++) {
        mr_text_string(sql, " OR (");
        pg_sql_add_pattern(sql, "c.nspname", &patterns[i].schema);
        mr_text_string(sql, " AND ");
        pg_sql_add_pattern(sql, "c.relname", &patterns[i].table);
        mr_text_string(sql, ")");
    }
    mr_text_string(sql, ")");
}

/* Tables that the patterns fit: those that a publication can have. What is configured by name has
 * its number. OFFSET 0: the planner expects that few fit, and would look up the schema of each of
 * 50,000 by an index. */
static void add_patterns(struct mr_text *sql, const struct mr_pg_source_options *options)
{
    if (options->captured.pattern_count == 0) {
        return;
    }
    mr_text_string(sql, " UNION ALL SELECT oid, NULL, nspname, relname, relreplident FROM (SELECT"
                        " c.oid, nspname, relname, relreplident FROM pg_class c JOIN pg_namespace s"
                        " ON s.oid = relnamespace WHERE relkind IN ('r', 'p')"
                        " AND relpersistence = 'p' AND nspname <> 'information_schema'"
                        " AND nspname !~ '^pg_' OFFSET 0) c WHERE ");
    mr_sql_add_any_pattern(sql, options->captured.patterns, options->captured.pattern_count);
    mr_text_string(sql, " AND NOT ");
    mr_sql_add_any_pattern(sql, options->captured.excluded, options->captured.excluded_count);
    /* A table twice would be one with two keys. */
    mr_text_string(sql, " AND NOT EXISTS (SELECT FROM wanted w WHERE w.schema = c.nspname"
                        " AND w.name = c.relname)");
}

/* What pg_partition_tree would say; that waits for the owner of a lock on one of the partitions
 * (src/backend/utils/adt/ partitionfuncs.c). Down from our own tables only: every role may make
 * temporary tables, and with a thousand of them, each a partition of the one before, the ancestors
 * of all tables are half a million. OFFSET 0: the planner expects few roots, and would look up each
 * of 50,000 by an index. */
#define TREE                                                                                       \
    ", tree AS MATERIALIZED (WITH RECURSIVE below(root, oid, isleaf) AS (SELECT c.oid, c.oid,"     \
    " c.relkind <> 'p' FROM (SELECT * FROM pg_class WHERE relkind = 'p' OR relispartition AND"     \
    " relkind IN ('r', 'f') OFFSET 0) c JOIN roots USING (oid) UNION ALL SELECT b.root, c.oid,"    \
    " c.relkind <> 'p' FROM below b JOIN pg_inherits i ON i.inhparent = b.oid"                     \
    " JOIN pg_class c ON c.oid = i.inhrelid WHERE NOT b.isleaf AND NOT i.inhdetachpending"         \
    " AND c.relispartition AND c.relkind IN ('r', 'p', 'f')) SELECT * FROM below)"

/* Tables of the publication that others may be partitions of, and the caller's. Of a publication of
 * all tables only those that it may send for their partitions matter, and what it leaves out. */
static void add_roots(struct mr_text *sql, const char *more, bool has_schemas)
{
    mr_text_string(sql, ", roots AS MATERIALIZED (SELECT r.prrelid AS oid FROM meant m"
                        " JOIN pg_publication_rel r ON r.prpubid = m.oid UNION SELECT c.oid"
                        " FROM meant m JOIN pg_class c ON m.puballtables AND m.pubviaroot"
                        " WHERE c.relkind = 'p' AND NOT c.relispartition");
    if (has_schemas) {
        mr_text_string(sql, " UNION SELECT c.oid FROM meant m JOIN pg_publication_namespace n"
                            " ON n.pnpubid = m.oid JOIN pg_class c ON c.relnamespace = n.pnnspid"
                            " WHERE c.relkind = 'p' OR c.relispartition");
    }
    if (more != NULL) {
        mr_text_format(sql, " UNION SELECT oid FROM %s", more);
    }
    mr_text_string(sql, ")");
}

/* What pg_relation_is_publishable says of tables ('r', 'p'), without its look-up of each in a
 * cache, which takes two seconds for 50,000 (pg_publication.c, is_publishable_class). 16384:
 * MR_FIRST_USER_OID. */
#define IS_PUBLISHABLE "c.relpersistence = 'p' AND c.oid >= 16384"

/* What pg_get_publication_tables would say; that opens each table from 16 on, and waits for the
 * transaction that has one of them locked (src/backend/catalog/pg_publication.c;
 * GetPublicationRelations, GetAllTablesPublicationRelations, filter_partitions). What a publication
 * of all tables names (19) is left out. */
void mr_sql_add_sent(struct mr_text *sql, const char *publication, const char *more, int version)
{
    bool has_schemas = version >= MR_PG_SHAPED_VERSION_MIN;
    mr_text_string(sql, "meant AS MATERIALIZED (SELECT *, coalesce((to_jsonb(p)->>"
                        "'pubgencols') = 's', false) AS generated FROM pg_publication p"
                        " WHERE p.pubname = ");
    mr_sql_format(sql, "%L)", publication);
    add_roots(sql, more, has_schemas);
    mr_text_string(sql, TREE
                   ", chosen AS MATERIALIZED (SELECT r.prrelid AS oid, m.pubviaroot FROM meant m"
                   " JOIN pg_publication_rel r ON r.prpubid = m.oid WHERE NOT m.puballtables");
    if (has_schemas) {
        mr_text_string(sql, " UNION SELECT c.oid, m.pubviaroot FROM meant m"
                            " JOIN pg_publication_namespace n ON n.pnpubid = m.oid"
                            " JOIN pg_class c ON c.relnamespace = n.pnnspid"
                            " WHERE c.relkind IN ('r', 'p') AND " IS_PUBLISHABLE);
    }
    mr_text_string(
        sql, " UNION ALL SELECT c.oid, m.pubviaroot FROM meant m JOIN pg_class c ON m.puballtables"
             " WHERE CASE WHEN m.pubviaroot THEN c.relkind IN ('r', 'p') AND NOT c.relispartition"
             " ELSE c.relkind = 'r' END AND " IS_PUBLISHABLE " AND NOT EXISTS"
             " (SELECT FROM pg_publication_rel r WHERE r.prpubid = m.oid AND (r.prrelid = c.oid"
             " OR r.prrelid IN (SELECT root FROM tree WHERE tree.oid = c.oid)))),"
             " sent AS MATERIALIZED (SELECT x.oid, ");
    mr_text_string(sql, has_schemas ? "r.prattrs::int2[] AS attrs, r.prqual AS qual"
                                    : "NULL::int2[] AS attrs, NULL::text AS qual");
    mr_text_string(
        sql, ", m.generated FROM (SELECT c.oid FROM chosen c WHERE CASE WHEN c.pubviaroot"
             " THEN c.oid NOT IN (SELECT t.oid FROM tree t JOIN chosen o ON o.oid = t.root"
             " WHERE t.oid <> t.root) ELSE c.oid NOT IN (SELECT oid FROM tree WHERE NOT isleaf) END"
             " UNION ALL SELECT DISTINCT t.oid FROM chosen c JOIN tree t ON t.root = c.oid"
             " WHERE t.isleaf AND NOT c.pubviaroot AND t.oid NOT IN (SELECT oid FROM chosen)) x"
             " CROSS JOIN meant m LEFT JOIN (SELECT r.* FROM pg_publication_rel r JOIN pg_class c"
             " ON c.oid = r.prrelid");
    if (has_schemas) {
        /* of a table whose schema is published, too, neither list nor condition holds */
        mr_text_string(sql, " WHERE NOT EXISTS (SELECT FROM pg_publication_namespace n"
                            " WHERE n.pnpubid = r.prpubid AND n.pnnspid = c.relnamespace)");
    }
    mr_text_string(sql, ") r ON r.prpubid = m.oid AND r.prrelid = x.oid)");
}

/* A literal of an array. As ARRAY[…] the server would have an expression for each of 50,000
 * names. */
static void pg_sql_add_names(struct mr_text *sql, const struct mr_pg_captured_options *captured,
                             bool of_schemas)
{
    MR_TEXT(array);
    mr_text_string(&array, "{");
    for (uint32_t i = 0; i < captured->table_count; i++) {
        const struct mr_table_name *table = &captured->tables[i];
        mr_text_string(&array, i == 0 ? "\"" : ",\"");
        for (const char *c = of_schemas ? table->schema : table->table; *c != '\0'; c++) {
            mr_text_format(&array, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
        mr_text_string(&array, "\"");
    }
    mr_text_string(&array, "}");
    mr_sql_format(sql, "%L::text[]", array.data);
}

/* `wanted(schema, name, n)`: the configured tables; `listed(oid, n, nspname, relname,
 * relreplident)`: those that exist; and those of mr_sql_add_sent. Names are compared as names:
 * to_regclass would need rights on the schema. */
static void pg_sql_add_tables(struct mr_text *sql, const struct mr_pg_source_options *options,
                              int version)
{
    const struct mr_pg_captured_options *captured = &options->captured;
    mr_text_string(sql, "WITH wanted AS (SELECT * FROM unnest(");
    pg_sql_add_names(sql, captured, true);
    mr_text_string(sql, ", ");
    pg_sql_add_names(sql, captured, false);
    mr_text_string(sql,
                   ") WITH ORDINALITY w(schema, name, n)), listed AS MATERIALIZED (SELECT c.oid,"
                   " w.n, s.nspname, c.relname, c.relreplident FROM wanted w"
                   " JOIN pg_namespace s ON s.nspname = w.schema"
                   " JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = w.name");
    add_patterns(sql, options);
    mr_text_string(sql, "), ");
    mr_sql_add_sent(sql, options->publication, "listed", version);
}

void mr_sql_add_table_states(struct mr_text *sql, const struct mr_pg_source_options *options,
                             int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(
        sql,
        /* Which index is the identity: RelationGetIndexList, relcache.c. */
        ", held AS MATERIALIZED (SELECT i.indrelid AS oid, (i.indkey::int2[])[0:i.indnkeyatts - 1]"
        " AS columns FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE i.indisvalid"
        " AND i.indimmediate AND CASE c.relreplident WHEN 'd' THEN i.indisprimary"
        " WHEN 'i' THEN i.indisreplident ELSE false END),"
        " leaf AS MATERIALIZED (SELECT c.oid AS root, t.oid, c.oid IN (SELECT oid FROM"
        " sent) OR ");
    mr_sql_format(sql,
                  options->via_root ? "NOT EXISTS (SELECT FROM pg_publication WHERE pubname = %L)"
                                    : "false",
                  options->publication);
    /* By the root, a leaf's identity must hold what the root's does; by itself, one is enough. */
    mr_text_string(
        sql,
        " AS by_root FROM listed JOIN pg_class c ON c.oid = listed.oid AND c.relkind = 'p'"
        " JOIN tree t ON t.root = c.oid WHERE t.isleaf"
        " AND listed.n IS NOT NULL),"
        " part AS MATERIALIZED (SELECT h.oid, a.attname FROM held h JOIN pg_attribute a"
        " ON a.attrelid = h.oid AND a.attnum = ANY (h.columns) WHERE h.oid IN"
        " (SELECT root FROM leaf UNION SELECT oid FROM leaf)),"
        " lesser AS MATERIALIZED (SELECT x.root, count(*) AS count,"
        " array_to_string((array_agg(format('ALTER TABLE %I.%I REPLICA IDENTITY FULL',"
        " s.nspname, c.relname) ORDER BY s.nspname, c.relname))[1:5], '; ') AS cure"
        " FROM leaf x JOIN pg_class r ON r.oid = x.root JOIN pg_class c ON c.oid = x.oid"
        " JOIN pg_namespace s ON s.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND c.relreplident <> 'f'"
        " AND (x.oid NOT IN (SELECT oid FROM held) OR x.by_root AND (r.relreplident = 'f'"
        " OR EXISTS (SELECT attname FROM part WHERE oid = x.root"
        " EXCEPT SELECT attname FROM part WHERE oid = x.oid))) GROUP BY x.root),"
        /* From 18 on a publication may send generated columns, and FULL must have all of them
         * (publicationcmds.c, pub_contains_invalid_column). */
        " unsent AS MATERIALIZED (SELECT c.oid, min(a.attname::text) AS name FROM listed"
        " JOIN pg_class c ON c.oid = listed.oid"
        " JOIN (SELECT * FROM pg_attribute WHERE attgenerated <> '' AND NOT attisdropped OFFSET 0) "
        "a"
        " ON a.attrelid = c.oid"
        " LEFT JOIN held h ON h.oid = c.oid CROSS JOIN (SELECT"
        " current_setting('server_version_num')::int >= 180000 AS chooses) v"
        " WHERE (a.attnum = ANY (h.columns) OR v.chooses AND c.relreplident = 'f')"
        " AND NOT EXISTS (SELECT FROM sent s WHERE s.oid = c.oid AND " MR_SQL_IS_SENT
        ") GROUP BY c.oid),"
        /* From 18 on NOT NULL … NOT VALID sets attnotnull, too, and such a column may be in an
         * identity (tablecmds.c, ATExecReplicaIdentity). */
        " unproven AS MATERIALIZED (SELECT h.oid, min(a.attname::text) AS name FROM listed"
        " JOIN held h ON h.oid = listed.oid JOIN pg_constraint k ON k.conrelid = h.oid"
        " AND k.contype = 'n' AND NOT k.convalidated AND k.conkey[1] = ANY (h.columns)"
        " JOIN pg_attribute a ON a.attrelid = h.oid AND a.attnum = k.conkey[1] GROUP BY h.oid),"
        " published AS MATERIALIZED (SELECT oid FROM sent UNION"
        " SELECT t.root FROM sent JOIN tree t ON t.oid = sent.oid),"
        " keyed AS MATERIALIZED (SELECT DISTINCT indrelid AS oid FROM pg_index"
        " WHERE indisprimary)"
        " SELECT c.relkind, c.relpersistence, CASE WHEN c.relreplident IN ('d', 'i')"
        " AND c.oid NOT IN (SELECT oid FROM held) THEN 'n' ELSE c.relreplident END,"
        " k.oid IS NOT NULL, p.oid IS NOT NULL, coalesce(lesser.count, 0), lesser.cure,"
        " u.name, o.name"
        " FROM wanted w LEFT JOIN listed l ON l.n = w.n LEFT JOIN lesser ON lesser.root = l.oid"
        " LEFT JOIN pg_class c ON c.oid = l.oid LEFT JOIN keyed k ON k.oid = c.oid"
        " LEFT JOIN published p ON p.oid = c.oid LEFT JOIN unsent u ON u.oid = c.oid"
        " LEFT JOIN unproven o ON o.oid = c.oid ORDER BY w.n");
}

static void add_key_column(struct mr_text *sql, uint32_t n, const struct mr_table_name *table,
                           const char *column)
{
    mr_sql_format(sql, "%s(%u, %L, %L, %L)", n == 0 ? "" : ", ", n, table->schema, table->table,
                  column);
}

void mr_sql_add_key_columns(struct mr_text *sql, const struct mr_pg_source_options *options)
{
    uint32_t n = 0;
    mr_text_string(sql, "SELECT a.attnum IS NOT NULL,"
                        " i.indexrelid IS NULL OR coalesce(a.attnum = ANY"
                        " ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false),"
                        " c.relkind IS NOT DISTINCT FROM 'p' FROM (VALUES ");
    for (uint32_t i = 0; i < options->key_count + options->checked.held_count; i++) {
        const struct mr_table_key *key = i < options->key_count
                                             ? &options->keys[i]
                                             : &options->checked.held[i - options->key_count];
        for (uint32_t k = 0; k < key->column_count; k++) {
            add_key_column(sql, n++, &key->table, key->columns[k]);
        }
    }
    for (uint32_t i = 0; i < options->checked.named_count; i++) {
        add_key_column(sql, n++, &options->checked.named[i].table,
                       options->checked.named[i].column);
    }
    mr_text_string(sql,
                   ") w(n, schema, name, part) LEFT JOIN pg_namespace s ON s.nspname = w.schema"
                   " LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = w.name"
                   " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.part"
                   " AND a.attnum > 0 AND NOT a.attisdropped"
                   " LEFT JOIN pg_index i ON i.indrelid = c.oid AND CASE c.relreplident"
                   " WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END"
                   " ORDER BY w.n");
}

#define CAPTURED                                                                                   \
    ", captured AS MATERIALIZED (SELECT oid FROM listed UNION"                                     \
    " SELECT t.oid FROM listed JOIN tree t ON t.root = listed.oid)"

static void add_fit(struct mr_text *sql, const struct mr_pattern_rule *rule, bool column)
{
    if (column && rule->column == NULL) {
        mr_text_string(sql, "true");
        return;
    }
    mr_text_format(sql, "EXISTS (SELECT FROM %s f WHERE ", rule->takes_away ? "every" : "shown");
    pg_sql_add_pattern(sql, "f.schema", &rule->table.schema);
    mr_text_string(sql, " AND ");
    pg_sql_add_pattern(sql, "f.name", &rule->table.table);
    if (column) {
        mr_text_string(sql, " AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = f.oid"
                            " AND a.attnum > 0 AND NOT a.attisdropped AND ");
        pg_sql_add_pattern(sql, "a.attname", rule->column);
        mr_text_string(sql, ")");
    }
    mr_text_string(sql, ")");
}

void mr_sql_add_rules(struct mr_text *sql, const struct mr_pg_source_options *options, int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(sql, CAPTURED ", every AS MATERIALIZED (SELECT c.oid, s.nspname AS schema,"
                                 " c.relname AS name, c.relkind FROM pg_class c JOIN pg_namespace s"
                                 " ON s.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')),"
                                 " shown AS MATERIALIZED (SELECT e.* FROM every e JOIN captured"
                                 " USING (oid) WHERE e.oid IN (SELECT oid FROM sent)");
    mr_text_string(sql, options->via_root ? " OR e.oid IN (SELECT oid FROM listed)"
                                          : " OR e.relkind = 'r'");
    if (!options->captured.alter_publication) {
        mr_sql_format(sql, " AND NOT EXISTS (SELECT FROM pg_publication WHERE pubname = %L)",
                      options->publication);
    }
    mr_text_string(sql, ")");
    for (uint32_t i = 0; i < options->checked.rule_count; i++) {
        mr_text_format(sql, "%s SELECT %u AS n, ", i == 0 ? " SELECT a, b FROM (" : " UNION ALL",
                       i);
        add_fit(sql, &options->checked.rules[i], false);
        mr_text_string(sql, " AS a, ");
        add_fit(sql, &options->checked.rules[i], true);
        mr_text_string(sql, " AS b");
    }
    mr_text_string(sql, ") r ORDER BY n");
}

/* In one moment of the catalog the columns of a partition have the names of its table's. */
#define NUMBERS                                                                                    \
    "CASE WHEN r.root <> a.oid THEN (SELECT CASE WHEN bool_and(x.attnum = y.attnum) AND"           \
    " (SELECT relnatts FROM pg_class WHERE oid = a.oid) = rc.relnatts THEN ''"                     \
    " ELSE string_agg(x.attnum || ':' || y.attnum, ',' ORDER BY x.attnum) END"                     \
    " FROM pg_attribute x JOIN pg_attribute y ON y.attrelid = a.oid AND y.attname = x.attname"     \
    " AND y.attnum > 0 WHERE x.attrelid = r.root AND x.attnum > 0 AND NOT x.attisdropped) END"

void mr_sql_add_captured(struct mr_text *sql, const struct mr_pg_source_options *options,
                         int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_format(
        sql,
        CAPTURED
        " SELECT a.oid::bigint,"
        " CASE WHEN l.oid IS NOT NULL THEN 2 WHEN c.oid IS NOT NULL THEN 1 ELSE 0 END,"
        " a.oid IN (SELECT oid FROM chosen), coalesce(r.root, 0)::bigint, n.nspname,"
        " rc.relname, %s FROM (SELECT oid FROM sent UNION SELECT oid FROM captured) a"
        " LEFT JOIN captured c ON c.oid = a.oid LEFT JOIN listed l ON l.oid = a.oid"
        /* A row for each that it is in, the topmost last, which has the largest tree; that of a
         * partitioned table has itself. */
        " LEFT JOIN (SELECT t.oid, t.root, count(*) OVER (PARTITION BY t.root) AS size"
        " FROM listed JOIN tree t ON t.root = listed.oid) r ON r.oid = a.oid"
        " LEFT JOIN pg_class rc ON rc.oid = r.root"
        " LEFT JOIN pg_namespace n ON n.oid = rc.relnamespace ORDER BY 1, r.size",
        options->hides_columns ? NUMBERS : "NULL::text");
}

#define IS_BEFORE_SLOT(xmin) MR_SQL_IS_BEFORE_SLOT(xmin)

/* A column's row is as it was made with the table, whose row of tableoid (-6) is never written
 * again. */
#define IS_AS_MADE "a.xmin = o.xmin AND a.cmin = o.cmin"

/* So is the table's own row, or as it was written when it got its TOAST table with that
 * (create_toast_table in catalog/toasting.c): ATTACH and DETACH write it, an index does not
 * (index_update_stats, catalog/index.c). */
#define IS_TABLE_AS_MADE                                                                           \
    "(c.xmin = o.xmin AND (c.cmin = o.cmin OR EXISTS (SELECT FROM pg_depend d"                     \
    " WHERE d.classid = 'pg_class'::regclass AND d.objid = c.reltoastrelid AND d.objsubid = 0"     \
    " AND d.refobjid = c.oid AND d.deptype = 'i' AND d.xmin = c.xmin AND d.cmin = c.cmin)))"

/* The table, what it is a partition of, and so on. */
#define UP                                                                                         \
    "up(oid) AS (SELECT %u::oid UNION ALL SELECT i.inhparent FROM up JOIN pg_class c"              \
    " ON c.oid = up.oid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = c.oid)"

/* ATTACH and DETACH write all columns of the table that they are about, an other name only its row
 * in pg_class. */
void mr_sql_add_look(struct mr_text *sql, const struct mr_pg_source_options *options, uint32_t oid)
{
    mr_sql_format(
        sql,
        "WITH RECURSIVE " UP " SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
        " ELSE pg_current_wal_insert_lsn() END, count(x.oid) > 0, coalesce(bool_or(x.is_partition)"
        " FILTER (WHERE x.oid = %u), false), coalesce(bool_and(x.is_settled), false),"
        " coalesce(bool_or(NOT x.is_old) FILTER (WHERE x.oid <> %u), false),"
        " sum(x.written)::bigint, coalesce(bool_or(x.is_as_made) FILTER (WHERE x.oid = %u), false)"
        " FROM (SELECT c.oid, c.relispartition AS is_partition,"
        " bool_or(" IS_AS_MADE " OR " IS_TABLE_AS_MADE " OR " IS_BEFORE_SLOT(
            "a.xmin") ") AS is_settled,"
                      " bool_or(" IS_AS_MADE " OR " IS_TABLE_AS_MADE ") AS is_as_made,"
                      " bool_or(" IS_BEFORE_SLOT(
                          "c.xmin") ") AS is_old,"
                                    " (array_agg(a.xmin::text::bigint ORDER BY a.attnum))[1] AS "
                                    "written"
                                    " FROM up JOIN pg_class c ON c.oid = up.oid JOIN pg_attribute "
                                    "o ON o.attrelid = c.oid"
                                    " AND o.attnum = -6 LEFT JOIN pg_attribute a ON a.attrelid = "
                                    "c.oid AND a.attnum > 0"
                                    " AND NOT a.attisdropped GROUP BY c.oid, c.relispartition) x",
        oid, oid, oid, oid, options->slot, options->slot);
}

void mr_sql_add_kin(struct mr_text *sql, const struct mr_pg_source_options *options,
                    const char *schema, uint32_t oid, const char *columns, bool was_attached,
                    int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_format(
        sql,
        CAPTURED ", ancestors AS MATERIALIZED (WITH RECURSIVE " UP
                 " SELECT oid FROM up), at_that_time(name, type, modifier) AS MATERIALIZED (%s%s),",
        oid, columns[0] == '\0' ? "SELECT NULL::text, NULL::oid, NULL::int WHERE false" : "VALUES ",
        columns);
    mr_sql_format(
        sql,
        " part AS MATERIALIZED (SELECT r.oid, a.attisdropped OR a.attgenerated <> ''"
        " AS is_absent, " IS_AS_MADE " OR " IS_BEFORE_SLOT(
            "a.xmin") " AS is_old,"
                      " t.name IS NOT NULL AS is_found FROM listed l"
                      " JOIN pg_class r ON r.oid = l.oid AND r.relkind = 'p' AND r.oid <> %u"
                      " JOIN pg_attribute o ON o.attrelid = r.oid AND o.attnum = -6"
                      " JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0"
                      " LEFT JOIN at_that_time t ON NOT a.attisdropped AND t.name = a.attname"
                      " AND t.type = a.atttypid AND t.modifier = a.atttypmod),"
                      " kin AS (SELECT oid FROM part GROUP BY oid HAVING %s AND"
                      " bool_or(is_found) AND NOT bool_or(is_old AND NOT is_absent"
                      " AND NOT is_found) AND (SELECT count(*) FROM at_that_time)"
                      " - count(*) FILTER (WHERE is_found)"
                      " <= count(*) FILTER (WHERE NOT is_found AND NOT is_old)),"
                      " renamed AS (SELECT FROM ancestors a JOIN pg_class c USING (oid)"
                      " JOIN pg_publication_rel r ON r.prrelid = a.oid JOIN meant m"
                      " ON m.oid = r.prpubid WHERE a.oid NOT IN (SELECT oid FROM captured)"
                      " AND NOT " IS_BEFORE_SLOT("c.xmin") "),",
        options->slot, oid, was_attached ? "true" : "false", options->slot);
    mr_sql_format(sql,
                  " gone AS (SELECT w.schema, w.name FROM wanted w LEFT JOIN"
                  " (SELECT l.n FROM listed l JOIN pg_attribute o ON o.attrelid = l.oid"
                  " AND o.attnum = -6 WHERE " IS_BEFORE_SLOT("o.xmin") ") l USING (n)"
                                                                       " WHERE l.n IS NULL)",
                  options->slot);
    mr_text_format(sql,
                   " SELECT (SELECT min(n.nspname || '.' || c.relname) FROM kin JOIN pg_class c"
                   " USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace),"
                   " (EXISTS (SELECT FROM renamed) OR"
                   " NOT EXISTS (SELECT oid FROM sent EXCEPT SELECT oid FROM captured))"
                   " AND NOT EXISTS (SELECT FROM meant WHERE puballtables OR pubviaroot)"
                   " AND %u NOT IN (SELECT oid FROM chosen)",
                   oid);
    if (version >= MR_PG_SHAPED_VERSION_MIN) {
        mr_sql_format(sql,
                      " AND NOT EXISTS (SELECT FROM meant m JOIN pg_publication_namespace p"
                      " ON p.pnpubid = m.oid JOIN pg_namespace n ON n.oid = p.pnnspid"
                      " WHERE n.nspname = %L)",
                      schema);
    }
    mr_text_string(sql,
                   ", (SELECT min(schema || '.' || name) FROM gone), coalesce(k.oid, 0)::bigint,"
                   " k.schema, k.name FROM (SELECT) one LEFT JOIN (SELECT kin.oid,"
                   " n.nspname::text AS schema, c.relname::text AS name FROM kin JOIN pg_class c"
                   " USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace UNION ALL SELECT 0,"
                   " schema, name FROM gone WHERE NOT EXISTS (SELECT FROM kin)) k ON true"
                   " ORDER BY 4");
}

void mr_sql_add_unsettled(struct mr_text *sql, const struct mr_pg_source_options *options,
                          uint32_t oid, int version)
{
    if (oid == 0) {
        pg_sql_add_tables(sql, options, version);
        mr_text_string(sql, ", looked(oid) AS (SELECT oid FROM listed)");
    } else {
        mr_text_format(sql, "WITH looked(oid) AS (SELECT %u::oid)", oid);
    }
    mr_text_string(sql,
                   " SELECT c.oid::bigint, n.nspname, c.relname, string_agg(format('(%L, %s::oid,"
                   " %s)', a.attname, a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)"
                   " FILTER (WHERE a.attgenerated = '') FROM looked JOIN pg_class c USING (oid)"
                   " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute o"
                   " ON o.attrelid = c.oid AND o.attnum = -6 JOIN pg_attribute a"
                   " ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
                   " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition"
                   " GROUP BY c.oid, n.nspname, c.relname HAVING NOT bool_or(" IS_AS_MADE
                   " OR " IS_TABLE_AS_MADE ") AND bool_or(a.attgenerated = '') ORDER BY 1");
}

void mr_sql_add_streamed(struct mr_text *sql, const struct mr_pg_source_options *options,
                         int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(sql, CAPTURED " SELECT c.oid::bigint, n.nspname, c.relname FROM captured"
                                 " JOIN sent USING (oid) JOIN pg_class c USING (oid)"
                                 " JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1");
}

/* RelationGetIndexExpressions and RelationGetIndexPredicate in utils/cache/relcache.c,
 * get_relation_statistics in optimizer/util/plancat.c. What a superuser owns, or we, nobody else
 * can replace. */
void mr_sql_add_called(struct mr_text *sql, const char *tables)
{
    mr_text_format(
        sql,
        "(SELECT left(string_agg(DISTINCT format('%%I.%%I of role %%I', fn.nspname, f.proname,"
        " fr.rolname), ', '), 300) FROM (SELECT 'pg_class'::regclass AS class, i.indexrelid AS oid"
        " FROM pg_index i WHERE i.indrelid IN (%s) AND (i.indexprs IS NOT NULL OR i.indpred IS NOT"
        " NULL) UNION ALL SELECT 'pg_statistic_ext'::regclass, e.oid FROM pg_statistic_ext e"
        " WHERE e.stxrelid IN (%s)) h JOIN pg_depend d ON d.classid = h.class AND d.objid = h.oid"
        " LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid"
        " JOIN pg_proc f ON f.oid = CASE WHEN d.refclassid = 'pg_proc'::regclass THEN d.refobjid"
        " ELSE o.oprcode END JOIN pg_namespace fn ON fn.oid = f.pronamespace"
        " JOIN pg_roles fr ON fr.oid = f.proowner"
        " WHERE NOT fr.rolsuper AND fr.rolname <> current_user)",
        tables, tables);
}

void mr_sql_add_copied(struct mr_text *sql, const struct mr_pg_source_options *options, int version)
{
    pg_sql_add_tables(sql, options, version);
    /* A publication that is missing will be made for what is configured. */
    mr_text_string(sql,
                   CAPTURED " SELECT ts.nspname, t.relname, n.nspname, l.relname,"
                            " has_table_privilege(l.oid, 'SELECT'),"
                            " has_schema_privilege(n.oid, 'USAGE'), row_security_active(l.oid), ");
    mr_sql_add_called(sql, "l.oid");
    mr_text_string(sql, ", " MR_SQL_MAY_MORE " FROM captured a JOIN pg_class t ON t.oid = a.oid"
                        " JOIN pg_namespace ts ON ts.oid = t.relnamespace"
                        " CROSS JOIN LATERAL (SELECT t.oid WHERE t.relkind <> 'p' UNION ALL"
                        "  SELECT p.oid FROM tree p WHERE p.root = t.oid AND t.relkind = 'p'"
                        "  AND p.isleaf) x(oid) JOIN pg_class l ON l.oid = x.oid"
                        " AND l.relkind = 'r' JOIN pg_namespace n ON n.oid = l.relnamespace"
                        " WHERE a.oid IN (SELECT oid FROM sent) OR a.oid IN (SELECT oid FROM"
                        " listed) AND NOT EXISTS (SELECT FROM pg_publication WHERE pubname = ");
    mr_sql_format(sql, "%L) ORDER BY 3, 4", options->publication);
}

#define FEW(of)                                                                                    \
    " (SELECT string_agg(name, ', ') FROM (SELECT name FROM " of " ORDER BY 1 LIMIT 5) few)"

/* Tables that are listed, and that nothing of comes: neither they nor their partitions nor what
 * they are partitions of are published. */
#define UNPUBLISHED                                                                                \
    ", unpublished AS MATERIALIZED (SELECT l.n, l.nspname || '.' || l.relname AS name,"            \
    " l.nspname, l.relname FROM listed"                                                            \
    " l JOIN pg_class c USING (oid) WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'"      \
    " AND EXISTS (SELECT FROM meant) AND l.oid NOT IN (SELECT oid FROM sent UNION ALL SELECT oid"  \
    " FROM chosen UNION ALL SELECT t.root FROM tree t JOIN sent USING (oid) UNION ALL SELECT"      \
    " t.oid FROM tree t JOIN chosen o ON o.oid = t.root))"

void mr_sql_add_unpublished(struct mr_text *sql, const struct mr_pg_source_options *options,
                            int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(sql,
                   UNPUBLISHED " SELECT (SELECT count(*) FROM unpublished), nspname, relname FROM"
                               " unpublished ORDER BY name LIMIT 5");
}

#define IS_HELD(of)                                                                                \
    of "relreplident IN ('f', 'i') OR " of "relreplident = 'd' AND " of "oid IN (SELECT indrelid"  \
       " FROM pg_index WHERE indisprimary)"

static void add_unlogged(struct mr_text *sql, const struct mr_pg_source_options *options)
{
    mr_text_string(sql, "SELECT oid, nspname, relname FROM"
                        " (SELECT c.oid, nspname, relname FROM pg_class c JOIN pg_namespace s"
                        " ON s.oid = relnamespace WHERE relkind = 'r' AND relpersistence = 'u'"
                        " OFFSET 0) c WHERE ");
    mr_sql_add_any_pattern(sql, options->captured.patterns, options->captured.pattern_count);
    mr_text_string(sql, " AND NOT ");
    mr_sql_add_any_pattern(sql, options->captured.excluded, options->captured.excluded_count);
}

void mr_sql_add_unlogged(struct mr_text *sql, const struct mr_pg_source_options *options)
{
    mr_text_string(sql, "WITH fits AS (SELECT format('%I.%I', nspname, relname) AS name FROM (");
    add_unlogged(sql, options);
    mr_text_string(sql, ") u) SELECT (SELECT count(*) FROM fits)," FEW("fits"));
}

void mr_sql_add_unlogged_parts(struct mr_text *sql, const struct mr_pg_source_options *options,
                               int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(sql,
                   ", fits AS (SELECT DISTINCT format('%I.%I', n.nspname, c.relname) AS name"
                   " FROM listed l JOIN tree t ON t.root = l.oid JOIN pg_class c ON c.oid = t.oid"
                   " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid <> l.oid"
                   " AND c.relkind = 'r' AND c.relpersistence = 'u')"
                   " SELECT (SELECT count(*) FROM fits)," FEW("fits"));
}

void mr_sql_add_logging(struct mr_text *sql, const struct mr_pg_source_options *options,
                        uint32_t since, const char *oids, int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(sql, ", meant_tables AS (SELECT oid, n IS NOT NULL AS is_named FROM listed"
                        " UNION ALL SELECT t.oid, true FROM listed l JOIN tree t"
                        " ON t.root = l.oid UNION ALL SELECT oid, false FROM (");
    add_unlogged(sql, options);
    mr_text_format(sql,
                   ") u) SELECT c.oid::bigint, n.nspname || '.' || c.relname,"
                   " c.relpersistence = 'u', bool_or(m.is_named) FROM meant_tables m"
                   " JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace"
                   " WHERE c.relkind = 'r' AND c.relpersistence IN ('p', 'u') AND"
                   " (c.relpersistence = 'u' OR c.oid > %u OR c.oid IN (0%s)) GROUP BY 1, 2, 3",
                   since, oids);
}

void mr_sql_add_meant(struct mr_text *sql, const struct mr_pg_source_options *options, int version)
{
    pg_sql_add_tables(sql, options, version);
    mr_text_string(
        sql, CAPTURED
        ","
        " unlisted AS MATERIALIZED (SELECT c.oid, format('%I.%I', s.nspname, c.relname) AS name,"
        " c.relkind = 'p' OR " IS_HELD(
            "c.") " AS held"
                  " FROM (SELECT oid FROM sent EXCEPT SELECT oid FROM captured) u JOIN pg_class c "
                  "USING (oid)"
                  " JOIN pg_namespace s ON s.oid = c.relnamespace),"
                  " counted AS MATERIALIZED (SELECT sent.oid,"
                  " coalesce(pg_stat_get_tuples_inserted(sent.oid), 0)"
                  " + coalesce(pg_stat_get_tuples_updated(sent.oid), 0)"
                  " + coalesce(pg_stat_get_tuples_deleted(sent.oid), 0) AS changes FROM sent"
                  " WHERE EXISTS (SELECT FROM unlisted)),"
                  " fitting AS MATERIALIZED (SELECT nspname || '.' || relname AS name,"
                  " " IS_HELD("") " AS held FROM listed WHERE n IS NULL)" UNPUBLISHED
                                  " SELECT (SELECT count(*) FROM unlisted)," FEW(
                                      "unlisted") ","
                                                  " (SELECT coalesce(sum(changes), 0)::bigint FROM "
                                                  "counted JOIN unlisted "
                                                  "USING (oid)),"
                                                  " (SELECT coalesce(sum(changes), 0)::bigint FROM "
                                                  "counted),"
                                                  " (SELECT count(*) FROM fitting)," FEW(
                                                      "fitting") ","
                                                                 " (SELECT count(*) FROM fitting "
                                                                 "WHERE NOT held)," FEW(
                                                                     "fitting WHERE NOT held") ",");
    mr_text_string(sql,
                   " (SELECT count(*) FROM unpublished WHERE n IS NULL)," FEW(
                       "unpublished WHERE n IS NULL") ","
                                                      " (SELECT count(*) FROM unlisted WHERE "
                                                      "NOT held)," FEW("unlisted WHERE NOT held"));
}

void mr_sql_add_server_state(struct mr_text *sql, const struct mr_pg_source_options *options)
{
    mr_sql_format(
        sql,
        "SELECT current_setting('wal_level'), current_setting('server_encoding'),"
        /* A role that may not see a setting is refused by current_setting(); this view has no row
         * of it (guc.c, GetConfigOptionByNum and show_all_settings). */
        " (SELECT setting FROM pg_settings WHERE name = 'output_plugin_libraries'),"
        " current_setting('synchronized_standby_slots', true), pg_backend_pid(),"
        /* Neither is the server's default, and no pooler tracks them. */
        " current_setting('geqo') = 'off' AND current_setting('constraint_exclusion') = 'off',"
        " s.slot_type, s.plugin, s.database,"
        " s.active_pid, s.wal_status, pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()"
        " THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)::bigint,"
        " s.two_phase, s.confirmed_flush_lsn,"
        /* Columns that only PostgreSQL 17 and later have. */
        " (to_jsonb(s)->>'failover')::boolean, (to_jsonb(s)->>'synced')::boolean,"
        " (SELECT string_agg(slot_name, ', ') FROM pg_replication_slots"
        " WHERE " MR_SQL_IS_COPY_SLOT MR_SQL_SLOT_IS_USABLE
        "), coalesce(to_jsonb(s)->>'invalidation_reason', CASE WHEN pg_is_in_recovery()"
        " AND (to_jsonb(s)->>'conflicting')::boolean THEN 'conflict with recovery' END), "
        "p.pubupdate, p.pubdelete, p.pubinsert,"
        " p.pubviaroot FROM (VALUES (1)) one LEFT JOIN pg_replication_slots s"
        " ON s.slot_name = %L LEFT JOIN pg_publication p ON p.pubname = %L",
        options->slot, options->slot, options->publication);
}
