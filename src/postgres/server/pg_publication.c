/* The publication: made, compared with what is configured of it, and altered where that is
 * allowed. */

#include "base/wake.h"
#include "postgres/server/pg_altered.h"
#include "postgres/server/pg_form.h"
#include "postgres/server/pg_holder.h"
#include "postgres/server/pg_rules.h"

enum {
    HELD_PAUSE_MS = 2000,
    HELD_LOGGED_TRIES = 4, /* about 10 s */
    SAID_MAX = 20,         /* tables of a statement that a person is told */
};

/* Without its children: what inherits from a table by INHERITS is another table, which nobody
 * listed, and where it has no replica identity the application's own UPDATE of the table would fail
 * (manual, "CREATE PUBLICATION": partitions belong to theirs in any case). */
static void pg_publication_add_table(struct mr_text *sql,
                                     const struct mr_pg_source_options *options,
                                     const struct mr_table_name *table, const cJSON *sent)
{
    const struct mr_published *published = mr_pg_published_of(options, table);
    mr_sql_format(sql, "TABLE ONLY %T", table);
    if (published == NULL) {
        bool is_stored = mr_pg_sent_options(sent) != NULL;
        const char *was = is_stored ? mr_pg_sent_of_table(sent, table) : "";
        mr_text_string(sql, was == NULL ? " …" : was);
        return;
    }
    for (uint32_t i = 0; i < published->column_count; i++) {
        mr_sql_format(sql, i == 0 ? " (%I" : ", %I", published->columns[i]);
    }
    mr_text_string(sql, published->column_count > 0 ? ")" : "");
    if (published->where != NULL) {
        mr_text_string(sql, " WHERE ");
        mr_sql_add_condition(sql, published->where);
    }
}

/* Whole schemas can be published (PostgreSQL 15 and later), and each pattern names its schema. */
static bool names_schemas(const struct mr_pg_source_options *options, int version)
{
    return MR_ALL(pattern, options->captured.patterns, options->captured.pattern_count,
                  mr_pattern_is_name(&pattern->schema)) &&
           version >= MR_PG_SHAPED_VERSION_MIN;
}

/* With patterns it is schemas, or all: tables that come later are then in it from their first row
 * on, and what no pattern fits is not passed on. */
static void add_published(struct mr_text *sql, const struct mr_pg_source_options *options,
                          int version, uint32_t named_max, const cJSON *sent)
{
    if (options->captured.pattern_count > 0 && !names_schemas(options, version)) {
        mr_text_string(sql, " FOR ALL TABLES");
        return;
    }
    const char *separator = " FOR ";
    for (uint32_t i = 0; i < options->captured.table_count; i++) {
        if (i == named_max) {
            mr_text_string(sql, ", …");
            return;
        }
        mr_text_string(sql, separator);
        pg_publication_add_table(sql, options, &options->captured.tables[i], sent);
        separator = ", ";
    }
    for (uint32_t i = 0; i < options->captured.pattern_count; i++) {
        const char *schema = options->captured.patterns[i].schema.text;
        /* A schema may be listed once. */
        if (!MR_ANY(before, options->captured.patterns, i,
                    strcmp(before->schema.text, schema) == 0)) {
            mr_sql_format(sql, "%sTABLES IN SCHEMA %I", separator, schema);
            separator = ", ";
        }
    }
}

/* A VACUUM by hand holds the lock that a publication wants of its table. */
static const char lock_timeout[] = "SET LOCAL lock_timeout = '10s'";
static const char via_root[] = "publish_via_partition_root = true";

static bool pg_publication_is_locked(mr_status status, const struct mr_error *error)
{
    return status == MR_ERR_TRANSIENT && mr_error_is(error, "55P03");
}

/* Adds to the error of a statement that waited for a lock in vain, and holds none any more, who has
 * it. */
static void add_holder(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                       struct mr_error *error)
{
    struct mr_pg_holder holder;
    MR_TEXT(table);
    if (mr_pg_holder_of_tables(conn, options, &holder, &table, NULL) == MR_OK &&
        holder.who[0] != '\0') {
        struct mr_error reason = *error;
        mr_error_refused(error, reason.status, reason.sqlstate,
                         "%s; table %s is locked by %s, since %s: %s", reason.text, table.data,
                         holder.who, holder.since[0] == '\0' ? "an unknown time" : holder.since,
                         holder.remedy);
    }
}

/* Once for each holder, and every few tries. `logged`: the last one. */
static mr_status log_held_up(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             uint32_t tries, struct mr_pg_holder *logged,
                             struct mr_error *ret_error)
{
    struct mr_pg_holder holder;
    MR_TEXT(table);
    MR_TRY(mr_pg_holder_of_tables(conn, options, &holder, &table, ret_error));
    if (tries % HELD_LOGGED_TRIES == 0 || strcmp(holder.who, logged->who) != 0) {
        mr_log(MR_LOG_WARN, "publication_held_up",
               "the publication can't be made while one of its tables is locked; it is tried "
               "again, and nothing is locked meanwhile",
               MR_LOG_STR("publication", options->publication), MR_LOG_STR("table", table.data),
               MR_LOG_STR("holder", holder.who), MR_LOG_STR("since", holder.since),
               MR_LOG_STR("remedy", holder.remedy));
    }
    *logged = holder;
    return MR_OK;
}

/* In one transaction with its time limit (an implicit one: manual, "Multiple Statements in a Simple
 * Query"): a try that fails holds the tables before the locked one for that long. */
static mr_status create_once(struct mr_pg_conn *conn, const char *command, int64_t patience_ms,
                             struct mr_error *ret_error)
{
    return mr_pg_commandf(conn, MR_PG_CHANGE_MS, ret_error, "SET LOCAL lock_timeout = %u; %s",
                          (unsigned)patience_ms, command);
}

static mr_status create(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                        const char *command, struct mr_error *ret_error)
{
    struct mr_error error = {0};
    struct mr_pg_holder logged = {0};
    int64_t patience_ms;
    /* One who waits for an autovacuum, which may take hours, ends it once deadlock_timeout is over,
     * unless its own limit comes first (ProcSleep in storage/lmgr/proc.c). */
    MR_TRY(mr_pg_ask_number(conn, "deadlock_timeout", 'n', &patience_ms, ret_error,
                            "SELECT least(setting::bigint, 60000) + 500 FROM pg_settings"
                            " WHERE name = 'deadlock_timeout'")); /* in ms there */
    mr_status status;
    for (uint32_t tries = 0;
         pg_publication_is_locked(status = create_once(conn, command, patience_ms, &error), &error);
         tries++) {
        MR_TRY(log_held_up(conn, options, tries, &logged, ret_error));
        if (mr_wait_readable(mr_pg_stop_fd(conn), HELD_PAUSE_MS)) {
            return MR_AGAIN;
        }
    }
    if (status != MR_OK) {
        *ret_error = error;
    }
    return status;
}

static void add_what_it_has(struct mr_text *sql, const struct mr_pg_source_options *options,
                            int version, uint32_t named_max, const cJSON *sent)
{
    const char *had = mr_pg_sent_options(sent);
    bool is_by_root = options->via_root && (had == NULL || strstr(had, via_root) == NULL);
    bool has_any = had != NULL && had[0] != '\0';
    add_published(sql, options, version, named_max, sent);
    if (is_by_root || has_any) {
        mr_text_format(sql, " WITH (%s%s%s)", has_any ? had : "", has_any && is_by_root ? ", " : "",
                       is_by_root ? via_root : "");
    }
}

void mr_pg_publication_add_rest(struct mr_text *sql, const struct mr_pg_source_options *options,
                                int version, const cJSON *sent)
{
    add_what_it_has(sql, options, version, SAID_MAX, sent);
}

mr_status mr_pg_publication_create(struct mr_pg_conn *conn,
                                   const struct mr_pg_source_options *options, int version,
                                   struct mr_error *ret_error)
{
    MR_TEXT(sql);
    mr_sql_format(&sql, "CREATE PUBLICATION %I", options->publication);
    add_what_it_has(&sql, options, version, UINT32_MAX, NULL);
    MR_TRY(create(conn, options, sql.data, ret_error));
    mr_log(MR_LOG_INFO, "publication_created", "the publication did not exist and was created",
           MR_LOG_STR("publication", options->publication),
           MR_LOG_INT("tables", options->captured.table_count));
    return MR_OK;
}

struct follow {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    const struct mr_pg_facts *facts;
    struct mr_pg_reporter *to;
    bool exists;
    bool goes_on;
    bool change;            /* it may be altered */
    uint32_t errors;        /* reported before */
    struct mr_text changes; /* statements, a semicolon after each */
    struct mr_text altered; /* tables, "a, b" */
    struct mr_error *ret_error;
};

static void about_publication(const struct follow *follow)
{
    mr_pg_about(follow->to, "publication \"%s\"", follow->options->publication);
}

/* Why a table can't be drafted. Where it is for the lack of a right or a lock, and a stream goes
 * on, all may be as it should; but a reload may be about a table that is locked. MR_END: it is
 * reported, and the transaction is over. */
static mr_status report_refusal(struct follow *follow, mr_status status,
                                const struct mr_error *error)
{
    if (status == MR_AGAIN ||
        (status == MR_ERR_TRANSIENT && (!follow->goes_on || follow->facts->is_reload))) {
        *follow->ret_error = *error;
        return status;
    }
    if (status == MR_ERR_CONFIG || !follow->goes_on) {
        if (status == MR_ERR_CONFIG) {
            mr_pg_remedy(follow->to,
                         "correct publication.where (of PostgreSQL's own functions immutable ones, "
                         "no subqueries, no system columns; of a partitioned table only with "
                         "publication.via_partition_root) or publication.columns (no generated "
                         "ones before 18)");
        }
        MR_FOUND_ERROR(follow->to, status, "can't be published so: %s", error->text);
    } else {
        mr_pg_remedy(follow->to,
                     "let the role own table and publication, or take publication.where and "
                     "publication.columns out: what the publication has holds all the same");
        MR_FOUND_WARNING(follow->to,
                         "can't be compared with publication.where and publication.columns: %s",
                         error->text);
    }
    return MR_END;
}

/* As it can be published at all; the rules of tables tell what is wrong with others. */
static bool is_publishable(const struct follow *follow, uint32_t table)
{
    const char *kind = mr_pg_result_value(follow->facts->tables, table, MR_TABLE_KIND);
    const char *persistence =
        mr_pg_result_value(follow->facts->tables, table, MR_TABLE_PERSISTENCE);
    return kind != NULL && (kind[0] == 'r' || kind[0] == 'p') && persistence != NULL &&
           persistence[0] == 'p';
}

/* MR_END: it is no part of the draft, and that is reported. */
static mr_status draft_table(struct follow *follow, const struct mr_table_name *table)
{
    struct mr_error error;
    MR_TEXT(added);
    pg_publication_add_table(&added, follow->options, table, NULL);
    mr_status status = mr_pg_commandf(follow->conn, MR_PG_ANSWER_MS, &error,
                                      "ALTER PUBLICATION \"millrace_draft_%s\" ADD %s",
                                      follow->options->slot, added.data);
    mr_pg_about(follow->to, "table %T", table);
    return status == MR_OK ? MR_OK : report_refusal(follow, status, &error);
}

/* Only this session sees it, so its name may be anything that is not taken. MR_END: it could not be
 * made, and that is reported. */
static mr_status draft(struct follow *follow)
{
    const struct mr_pg_source_options *options = follow->options;
    struct mr_error error;
    bool by_root =
        options->via_root || mr_pg_result_true(follow->facts->server, 0, MR_PUBLICATION_VIA_ROOT);
    MR_TRY(mr_pg_command(follow->conn, lock_timeout, MR_PG_ANSWER_MS, follow->ret_error));
    mr_status status = mr_pg_commandf(follow->conn, MR_PG_ANSWER_MS, &error,
                                      by_root ? "CREATE PUBLICATION \"millrace_draft_%s\" WITH (%s)"
                                              : "CREATE PUBLICATION \"millrace_draft_%s\"",
                                      options->slot, via_root);
    if (status != MR_OK) {
        about_publication(follow);
        return report_refusal(follow, status, &error);
    }
    for (uint32_t i = 0; status == MR_OK && i < options->captured.table_count; i++) {
        const struct mr_table_name *table = &options->captured.tables[i];
        if (is_publishable(follow, i) &&
            (options->captured.alter_publication || mr_pg_published_of(options, table) != NULL)) {
            status = draft_table(follow, table);
        }
    }
    return status;
}

enum draft_column {
    DRAFT_SCHEMA,
    DRAFT_TABLE,
    DRAFT_FILTER,
    DRAFT_COLUMNS,
    DRAFT_IDENTITY,
    DRAFT_LACKS,  /* columns of the identity that the list does not have */
    DRAFT_BEYOND, /* columns of the filter that the identity does not have */
    DRAFT_NAMED,  /* the publication has the table by its name, */
    DRAFT_SENT,   /* or at all; */
    DRAFT_SAME,   /* and with these: */
    DRAFT_OLD_FILTER,
    DRAFT_OLD_COLUMNS,
    DRAFT_MEMBER, /* the number that this has in the catalog */
};
static const struct mr_pg_shape draft_shape = {"its draft", "ssSSsSSbbbSSN", 0, UINT32_MAX};

static void add_rel(struct mr_text *sql, int version)
{
    mr_text_format(
        sql,
        "rel AS MATERIALIZED (SELECT p.pubname, r.prrelid AS oid, r.oid AS member, %s, (SELECT"
        " string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a"
        " WHERE a.attrelid = r.prrelid AND a.attnum = ANY (%s)) AS columns"
        " FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " WHERE p.pubname IN (",
        version >= MR_PG_SHAPED_VERSION_MIN ? "pg_get_expr(r.prqual, r.prrelid) AS filter,"
                                              " r.prqual::text AS tree, r.prattrs::int2[] AS attrs"
                                            : "NULL::text AS filter, NULL::text AS tree,"
                                              " NULL::int2[] AS attrs",
        version >= MR_PG_SHAPED_VERSION_MIN ? "r.prattrs::int2[]" : "NULL::int2[]");
}

/* What UPDATE and DELETE of a published table need: pub_rf_contains_invalid_column and
 * pub_collist_contains_invalid_column in src/backend/commands/publicationcmds.c. Of a partitioned
 * table it is the identity of its leaves, whose columns have other numbers. A filter's columns are
 * the Vars of its tree (src/backend/nodes/outfuncs.c); it has one table. */
static void add_comparison(struct mr_text *sql, const struct follow *follow)
{
    const char *slot = follow->options->slot;
    mr_text_string(sql, "WITH ");
    add_rel(sql, follow->facts->version);
    mr_sql_format(sql,
                  "'millrace_draft_%s', %L)), draft AS (SELECT * FROM rel WHERE pubname ="
                  " 'millrace_draft_%s'), ",
                  slot, follow->options->publication, slot);
    mr_sql_add_sent(sql, follow->options->publication, "draft", follow->facts->version);
    mr_text_string(
        sql,
        ", published AS MATERIALIZED (SELECT oid FROM sent UNION"
        " SELECT t.root FROM sent JOIN tree t ON t.oid = sent.oid),"
        " listed AS (SELECT d.oid, a.attname FROM draft d JOIN pg_attribute a"
        " ON a.attrelid = d.oid AND a.attnum = ANY (d.attrs)),"
        " used AS (SELECT d.oid, a.attname FROM draft d CROSS JOIN LATERAL"
        " regexp_matches(d.tree, ':varattno (\\d+)', 'g') v(number) JOIN pg_attribute a"
        " ON a.attrelid = d.oid AND a.attnum = v.number[1]::int2),"
        " leaf AS MATERIALIZED (SELECT d.oid AS root, a.attname, c.relreplident = 'f' OR"
        " coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false) AS identifies"
        " FROM draft d JOIN pg_class r ON r.oid = d.oid CROSS JOIN LATERAL"
        " (SELECT d.oid WHERE r.relkind <> 'p' UNION ALL SELECT t.oid"
        "  FROM tree t WHERE t.root = d.oid AND r.relkind = 'p' AND t.isleaf) l(oid)"
        " JOIN pg_class c ON c.oid = l.oid JOIN pg_attribute a ON a.attrelid = l.oid"
        " AND a.attnum > 0 AND NOT a.attisdropped"
        " LEFT JOIN pg_index i ON i.indrelid = l.oid AND CASE c.relreplident"
        " WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident"
        " ELSE false END WHERE d.filter IS NOT NULL OR d.attrs IS NOT NULL)"
        " SELECT n.nspname, c.relname, d.filter, d.columns,"
        /* Of any leaf: of FULL any list is too short. */
        " CASE WHEN EXISTS (SELECT FROM tree t JOIN pg_class x"
        "  ON x.oid = t.oid WHERE t.root = d.oid AND t.isleaf AND x.relreplident = 'f') THEN 'f'"
        " ELSE c.relreplident END,"
        " (SELECT string_agg(DISTINCT quote_ident(l.attname), ', ') FROM leaf l"
        "  WHERE l.root = d.oid AND l.identifies AND d.attrs IS NOT NULL AND l.attname NOT IN"
        "  (SELECT attname FROM listed WHERE listed.oid = d.oid)),"
        " (SELECT string_agg(DISTINCT quote_ident(l.attname), ', ') FROM leaf l"
        "  WHERE l.root = d.oid AND NOT l.identifies AND l.attname IN"
        "  (SELECT attname FROM used WHERE used.oid = d.oid)),"
        " e.oid IS NOT NULL, p.oid IS NOT NULL, e.oid IS NOT NULL AND (d.filter, d.columns)"
        " IS NOT DISTINCT FROM (e.filter, e.columns), e.filter, e.columns, e.member::bigint"
        " FROM draft d JOIN pg_class c ON c.oid = d.oid JOIN pg_namespace n"
        " ON n.oid = c.relnamespace LEFT JOIN published p ON p.oid = d.oid"
        " LEFT JOIN rel e ON e.oid = d.oid AND e.pubname = ");
    mr_sql_format(sql, "%L ORDER BY 1, 2", follow->options->publication);
}

/* The application's own UPDATE and DELETE fail. Where they do already, a start that refuses mends
 * nothing. */
static void pg_publication_rule_identity(struct follow *follow, const struct mr_pg_result *rows,
                                         uint32_t row, const struct mr_table_name *table)
{
    const struct mr_pg_result *server = follow->facts->server;
    const char *lacks = mr_pg_result_value(rows, row, DRAFT_LACKS);
    const char *beyond = mr_pg_result_value(rows, row, DRAFT_BEYOND);
    bool full_list = mr_pg_result_value(rows, row, DRAFT_IDENTITY)[0] == 'f' &&
                     mr_pg_result_value(rows, row, DRAFT_COLUMNS) != NULL;
    if ((lacks == NULL && beyond == NULL && !full_list) ||
        (follow->exists && !mr_pg_result_true(server, 0, MR_PUBLICATION_UPDATE) &&
         !mr_pg_result_true(server, 0, MR_PUBLICATION_DELETE))) {
        return;
    }
    bool is_so = mr_pg_result_true(rows, row, DRAFT_SAME) && follow->goes_on;
    const char *fails = is_so ? "fail" : "would fail";
    enum mr_finding_level level = is_so ? MR_FINDING_WARNING : MR_FINDING_ERROR;
    if (full_list) {
        mr_pg_remedy(follow->to,
                     "take its list out of publication.columns (columns.include and "
                     "columns.exclude work with FULL), or give it a key as its identity");
        mr_pg_found(follow->to, level, MR_ERR_CONFIG,
                    "has REPLICA IDENTITY FULL and a list in publication.columns, so the "
                    "application's own UPDATE and DELETE %s",
                    fails);
    } else if (lacks != NULL) {
        mr_pg_remedy(follow->to, "add these to publication.columns");
        mr_pg_found(follow->to, level, MR_ERR_CONFIG,
                    "has a list in publication.columns without columns of its replica identity "
                    "(%s), so the application's own UPDATE and DELETE %s",
                    lacks, fails);
    } else {
        mr_pg_remedy(
            follow->to,
            "run ALTER TABLE %T REPLICA IDENTITY FULL, or filter by columns of the identity",
            table);
        mr_pg_found(follow->to, level, MR_ERR_CONFIG,
                    "has a condition in publication.where on columns that are not in its replica "
                    "identity (%s), so the application's own UPDATE and DELETE %s",
                    beyond, fails);
    }
}

static void add_form(struct mr_text *text, const char *filter, const char *columns)
{
    mr_text_string(text, filter == NULL ? "all rows" : "only rows with ");
    mr_text_string(text, filter == NULL ? "" : filter);
    mr_text_format(text, columns == NULL ? " and all columns" : " and only the columns %s",
                   columns);
}

void mr_pg_publication_add_change(struct mr_text *sql, const struct mr_pg_source_options *options,
                                  const struct mr_table_name *table, bool is_named)
{
    if (is_named) {
        mr_sql_format(sql, "ALTER PUBLICATION %I DROP TABLE ONLY %T; ", options->publication,
                      table);
    }
    mr_sql_format(sql, "ALTER PUBLICATION %I ADD ", options->publication);
    pg_publication_add_table(sql, options, table, NULL);
    mr_text_string(sql, "; ");
}

static void rule_difference(struct follow *follow, const struct mr_pg_result *rows, uint32_t row,
                            const struct mr_table_name *table)
{
    bool is_named = mr_pg_result_true(rows, row, DRAFT_NAMED);
    bool sent = mr_pg_result_true(rows, row, DRAFT_SENT);
    const char *filter = mr_pg_result_value(rows, row, DRAFT_FILTER);
    const char *columns = mr_pg_result_value(rows, row, DRAFT_COLUMNS);
    /* Sent with a schema or all tables, as all of it is wanted. */
    bool whole = sent && !is_named && filter == NULL && columns == NULL;
    if (mr_pg_result_true(rows, row, DRAFT_SAME) || whole) {
        return;
    }
    MR_TEXT(wanted);
    MR_TEXT(is);
    add_form(&wanted, filter, columns);
    add_form(&is, mr_pg_result_value(rows, row, DRAFT_OLD_FILTER),
             mr_pg_result_value(rows, row, DRAFT_OLD_COLUMNS));
    if (follow->options->captured.alter_publication) {
        mr_text_format(&follow->altered, "%s%s.%s", follow->altered.len == 0 ? "" : ", ",
                       table->schema, table->table);
        if (is_named && follow->change) {
            mr_pg_altered_note(table->schema, table->table,
                               (uint32_t)mr_pg_result_number(rows, row, DRAFT_MEMBER));
        }
        mr_pg_publication_add_change(&follow->changes, follow->options, table, is_named);
        MR_FOUND_OK(follow->to, "will be published with %s%s%s%s", wanted.data,
                    sent ? " (now: " : "", sent ? is.data : "", sent ? ")" : "");
    } else {
        mr_pg_publication_add_change(&follow->to->remedy, follow->options, table, is_named);
        mr_pg_remedy(follow->to, "in one transaction, or set publication.alter = true");
        MR_FOUND_ERROR(follow->to, MR_ERR_CONFIG,
                       "is to be published with %s, but publication \"%s\" sends %s of it",
                       wanted.data, follow->options->publication, sent ? is.data : "nothing");
    }
}

static void pg_publication_compare_tables(struct follow *follow, const struct mr_pg_result *rows)
{
    for (uint32_t row = 0; row < mr_pg_result_rows(rows); row++) {
        const struct mr_table_name table = {.schema = mr_pg_result_value(rows, row, DRAFT_SCHEMA),
                                            .table = mr_pg_result_value(rows, row, DRAFT_TABLE)};
        mr_pg_about(follow->to, "table %T", &table);
        pg_publication_rule_identity(follow, rows, row, &table);
        if (follow->exists) {
            rule_difference(follow, rows, row, &table);
        }
    }
}

static void compare_root(struct follow *follow)
{
    bool alters = follow->options->captured.alter_publication;
    if (!follow->exists || !follow->options->via_root ||
        mr_pg_result_true(follow->facts->server, 0, MR_PUBLICATION_VIA_ROOT)) {
        return;
    }
    mr_sql_format(alters ? &follow->changes : &follow->to->remedy,
                  "ALTER PUBLICATION %I SET (%s); ", follow->options->publication, via_root);
    about_publication(follow);
    if (alters) {
        MR_FOUND_OK(follow->to, "will send partitions by their root");
    } else {
        mr_pg_remedy(follow->to, "or set publication.alter = true");
        MR_FOUND_ERROR(follow->to, MR_ERR_CONFIG,
                       "sends partitions by their own names, but publication.via_partition_root is "
                       "set");
    }
}

static mr_status pg_publication_compare(struct follow *follow)
{
    MR_TRY(draft(follow));
    struct mr_text sql = {0};
    const struct mr_pg_result *rows;
    add_comparison(&sql, follow);
    MR_TRY(mr_pg_ask(follow->conn, &sql, &draft_shape, &rows, follow->ret_error));
    pg_publication_compare_tables(follow, rows);
    return MR_OK;
}

static mr_status in_draft(struct follow *follow)
{
    MR_TRY(mr_pg_command(follow->conn, "BEGIN", MR_PG_ANSWER_MS, follow->ret_error));
    mr_status status = pg_publication_compare(follow);
    bool good = status == MR_OK || status == MR_END;
    mr_status ended =
        mr_pg_command(follow->conn, "ROLLBACK", MR_PG_ANSWER_MS, good ? follow->ret_error : NULL);
    if (ended == MR_OK && !good && pg_publication_is_locked(status, follow->ret_error)) {
        add_holder(follow->conn, follow->options, follow->ret_error);
    }
    return good ? ended : status;
}

/* Of the stream's transactions those that commit later are sent as it is then: pgoutput reads the
 * catalog of each place in the WAL. */
static mr_status alter(struct follow *follow)
{
    mr_status status = mr_pg_commandf(follow->conn, MR_PG_CHANGE_MS, follow->ret_error,
                                      "BEGIN; %s; %sCOMMIT", lock_timeout, follow->changes.data);
    bool locked = status != MR_OK && pg_publication_is_locked(status, follow->ret_error);
    if (status == MR_OK) {
        mr_log(MR_LOG_INFO, "publication_altered", "the publication was altered as configured",
               MR_LOG_STR("publication", follow->options->publication),
               MR_LOG_STR("tables", follow->altered.data == NULL ? "" : follow->altered.data));
    } else if (locked || (status != MR_AGAIN && status != MR_ERR_TRANSIENT)) {
        (void)mr_pg_command(follow->conn, "ROLLBACK", MR_PG_ANSWER_MS, NULL);
    }
    if (locked) {
        add_holder(follow->conn, follow->options, follow->ret_error);
    }
    return status;
}

mr_status mr_pg_publication_follow(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                   bool change, struct mr_pg_reporter *to,
                                   struct mr_error *ret_error)
{
    const struct mr_pg_captured_options *captured = &facts->options->captured;
    if (facts->is_standby) {
        return MR_OK; /* a draft is a write; pg_standby.c says so */
    }
    struct follow follow = {.conn = conn,
                            .options = facts->options,
                            .facts = facts,
                            .to = to,
                            .exists = mr_pg_publication_exists(facts),
                            .goes_on = mr_pg_slot_exists(facts),
                            .change = change,
                            .errors = to->errors,
                            .ret_error = ret_error};
    if (captured->published_count > 0 && facts->version < MR_PG_SHAPED_VERSION_MIN) {
        about_publication(&follow);
        mr_pg_remedy(to,
                     "upgrade the server, or take publication.where and publication.columns out");
        MR_FOUND_ERROR(to, MR_ERR_CONFIG,
                       "can't have row filters and column lists before PostgreSQL 15");
        return MR_OK;
    }
    compare_root(&follow);
    mr_status status = MR_OK;
    if (captured->published_count > 0 || (captured->alter_publication && follow.exists)) {
        status = in_draft(&follow);
    }
    bool alters =
        status == MR_OK && change && to->errors == follow.errors && follow.changes.len > 0;
    status = alters ? alter(&follow) : status;
    if (change && follow.changes.len > 0 && (!alters || status != MR_OK)) {
        mr_pg_altered_forget();
    }
    mr_text_done(&follow.changes);
    mr_text_done(&follow.altered);
    return status;
}

mr_status mr_pg_publication_describe(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                     struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"filters of the publication", "ssSS", 0, UINT32_MAX};
    if (facts->version < MR_PG_SHAPED_VERSION_MIN) {
        return MR_OK;
    }
    struct mr_text sql = {0};
    const struct mr_pg_result *rows;
    mr_text_string(&sql, "WITH ");
    add_rel(&sql, facts->version);
    mr_sql_format(&sql,
                  "%L)) SELECT n.nspname, c.relname, rel.filter, rel.columns FROM rel"
                  " JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace"
                  " WHERE rel.filter IS NOT NULL OR rel.attrs IS NOT NULL ORDER BY 1, 2",
                  facts->options->publication);
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &rows, ret_error));
    for (uint32_t row = 0; row < mr_pg_result_rows(rows); row++) {
        MR_TEXT(form);
        const struct mr_table_name table = {.schema = mr_pg_result_value(rows, row, 0),
                                            .table = mr_pg_result_value(rows, row, 1)};
        bool is_configured = mr_pg_published_of(facts->options, &table) != NULL;
        mr_pg_about(to, "table \"%s\".\"%s\"", table.schema, table.table);
        add_form(&form, mr_pg_result_value(rows, row, 2), mr_pg_result_value(rows, row, 3));
        if (is_configured) {
            MR_FOUND_OK(to, "is published with %s", form.data);
        } else {
            mr_pg_remedy(to, "if it is meant, name it in publication.where and "
                             "publication.columns, too; else, in one transaction: BEGIN; ");
            mr_pg_publication_add_change(&to->remedy, facts->options, &table, true);
            mr_pg_remedy(to, "COMMIT;");
            MR_FOUND_WARNING(to,
                             "is published with %s: a row filter or a column list that is not of "
                             "this configuration",
                             form.data);
        }
    }
    return MR_OK;
}
