#include "postgres/server/pg_rules.h"

#include "event/checkpoint.h"
#include "postgres/server/pg_form.h"

enum {
    TEXT_MAX = 1024,
    SERVER_VERSION_MIN = 140000,
    GENERATED_VERSION_MIN = 180000, /* publications choose whether they send generated columns */
    /* From here on a logical slot raises the server's level by itself ("effective_wal_level" in the
     * manual's chapter on write-ahead log settings); `replica` is enough. */
    DYNAMIC_WAL_LEVEL_VERSION_MIN = 190000,
};

struct rules {
    struct mr_pg_reporter *to;
    const struct mr_pg_facts *facts;
    const struct mr_pg_source_options *options;
    bool goes_on; /* the slot exists: a backlog may wait, and a start that refuses helps nobody */
    const struct mr_table_name *added; /* which no backlog has to do with */
    uint32_t added_count;
};

static mr_status pg_rules_read_all(struct mr_pg_conn *conn, struct mr_pg_facts *facts,
                                   struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = facts->options;
    const struct mr_pg_checked_options *checked = &options->checked;
    uint32_t tables = options->captured.table_count;
    uint32_t rules = checked->rule_count;
    const struct mr_pg_shape server = {"its settings, slot and publication", MR_SERVER_SHAPE, 1, 1};
    const struct mr_pg_shape table = {"the tables", MR_TABLE_SHAPE, tables, tables};
    const struct mr_pg_shape key = {"the columns that options name", MR_KEY_SHAPE, 1, UINT32_MAX};
    const struct mr_pg_shape rule = {"what rules mean", MR_RULE_SHAPE, rules, rules};
    const struct mr_pg_shape meant = {"what is published", MR_MEANT_SHAPE, 1, 1};
    struct mr_text sql = {0};
    mr_sql_add_server_state(&sql, options);
    MR_TRY(mr_pg_query(conn, &sql, &server, &facts->server, ret_error));
    mr_sql_add_table_states(&sql, options, facts->version);
    MR_TRY(mr_pg_query(conn, &sql, &table, &facts->tables, ret_error));
    if (options->key_count + checked->held_count + checked->named_count > 0) {
        mr_sql_add_key_columns(&sql, options);
        MR_TRY(mr_pg_query(conn, &sql, &key, &facts->keys, ret_error));
    }
    if (rules > 0) {
        mr_sql_add_rules(&sql, options, facts->version);
        MR_TRY(mr_pg_query(conn, &sql, &rule, &facts->rules, ret_error));
    }
    if (options->captured.pattern_count > 0) {
        static const struct mr_pg_shape unlogged = {"unlogged tables", "nS", 1, 1};
        mr_sql_add_unlogged(&sql, options);
        MR_TRY(mr_pg_query(conn, &sql, &unlogged, &facts->unlogged, ret_error));
    }
    static const struct mr_pg_shape parts = {"unlogged partitions", "nS", 1, 1};
    mr_sql_add_unlogged_parts(&sql, options, facts->version);
    MR_TRY(mr_pg_query(conn, &sql, &parts, &facts->unlogged_parts, ret_error));
    mr_sql_add_meant(&sql, options, facts->version);
    return mr_pg_query(conn, &sql, &meant, &facts->meant, ret_error);
}

mr_status mr_pg_facts_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           struct mr_pg_facts *ret_facts, struct mr_error *ret_error)
{
    struct mr_pg_facts facts = {.options = options,
                                .version = mr_pg_server_version(conn),
                                .is_standby = mr_pg_is_standby(conn),
                                .process = mr_pg_process(conn)};
    if (facts.version < SERVER_VERSION_MIN) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "PostgreSQL %d is too old: millrace needs 14 or later; upgrade the server",
                       facts.version / 10000);
    }
    mr_status status = pg_rules_read_all(conn, &facts, ret_error);
    if (status != MR_OK) {
        mr_pg_facts_done(&facts);
        return status;
    }
    facts.database = MR_STRDUP(mr_pg_database(conn));
    *ret_facts = facts;
    return MR_OK;
}

void mr_pg_facts_done(struct mr_pg_facts *facts)
{
    cJSON_Delete(facts->sent);
    mr_pg_result_free(facts->server);
    mr_pg_result_free(facts->tables);
    mr_pg_result_free(facts->unlogged);
    mr_pg_result_free(facts->unlogged_parts);
    mr_pg_result_free(facts->keys);
    mr_pg_result_free(facts->rules);
    mr_pg_result_free(facts->meant);
    free(facts->database);
    *facts = (struct mr_pg_facts){0};
}

void mr_pg_about(struct mr_pg_reporter *to, const char *format, ...)
{
    MR_TEXT(subject);
    va_list args;
    va_start(args, format);
    mr_sql_vformat(&subject, format, args);
    va_end(args);
    snprintf(to->subject, sizeof(to->subject), "%s", subject.data);
}

void mr_pg_remedy(struct mr_pg_reporter *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mr_sql_vformat(&to->remedy, format, args);
    va_end(args);
}

void mr_pg_found(struct mr_pg_reporter *to, enum mr_finding_level level, mr_status status,
                 const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    to->errors += level == MR_FINDING_ERROR;
    to->report(to->context, level, status, to->subject, text, to->remedy.data);
    mr_text_done(&to->remedy);
}

/* An error, unless a backlog may wait: what it holds is delivered then, and what is missing is
 * reported. */
static enum mr_finding_level stops_a_new_stream(const struct rules *rules)
{
    return rules->goes_on ? MR_FINDING_WARNING : MR_FINDING_ERROR;
}

static struct rules rules_for(const struct rules *rules, const struct mr_table_name *table)
{
    struct rules own = *rules;
    for (uint32_t i = 0; i < rules->added_count; i++) {
        own.goes_on &= !mr_table_name_equal(&rules->added[i], table);
    }
    return own;
}

static const char *names_of(const char *names)
{
    return names == NULL ? "" : names;
}

/* PgBouncer: ignore_startup_parameters. Questions and rows would be read and written by other
 * settings than ours. */
static void rule_settings(const struct rules *rules)
{
    if (!mr_pg_result_true(rules->facts->server, 0, MR_SERVER_IS_SET)) {
        mr_pg_about(rules->to, "connection");
        mr_pg_remedy(rules->to, "connect to PostgreSQL itself, docs/postgresql.md");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG,
                       "goes through a pooler that leaves out its settings (such as PgBouncer with "
                       "ignore_startup_parameters = options), by which rows are written");
    }
}

static void rule_wal_level(const struct rules *rules)
{
    const char *level = mr_pg_fact(rules->facts, MR_SERVER_WAL_LEVEL);
    bool dynamic = rules->facts->version >= DYNAMIC_WAL_LEVEL_VERSION_MIN;
    mr_pg_about(rules->to, "wal_level");
    if (strcmp(level, "logical") == 0) {
        MR_FOUND_OK(rules->to, "is logical");
    } else if (dynamic && strcmp(level, "replica") == 0) {
        MR_FOUND_OK(rules->to,
                    "is replica, which this version raises as long as there is a logical slot");
    } else {
        mr_pg_remedy(rules->to,
                     "run ALTER SYSTEM SET wal_level = 'logical' and restart PostgreSQL");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "is %s, but logical replication needs %s", level,
                       dynamic ? "at least replica" : "logical");
    }
}

/* PostgreSQL 16.15, 17.11, 18.6 and 19, of 15 the release 15.20 and not yet 15.18: libraries that
 * may be output plugins, pgoutput among them by default. Only superusers and pg_read_all_settings
 * see the list. */
static void rule_plugins(const struct rules *rules)
{
    const char *plugins = mr_pg_fact(rules->facts, MR_SERVER_PLUGINS);
    if (plugins != NULL && strstr(plugins, "pgoutput") == NULL && strchr(plugins, '*') == NULL) {
        mr_pg_about(rules->to, "output_plugin_libraries");
        mr_pg_remedy(rules->to, "add pgoutput to output_plugin_libraries in postgresql.conf and "
                                "reload the server");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG,
                       "does not name pgoutput, so the server does not let it be used");
    }
}

/* A slot of another database belongs to another pipeline. The only remedy that may be named is
 * another slot_name. */
static bool slot_is_of_this_database(const struct mr_pg_facts *facts)
{
    const char *database = mr_pg_fact(facts, MR_SLOT_DATABASE);
    return database != NULL && strcmp(database, facts->database) == 0;
}

static void rule_missing_publication(const struct rules *rules)
{
    const struct mr_pg_source_options *options = rules->options;
    bool has_slot = rules->goes_on && slot_is_of_this_database(rules->facts);
    const char *pid = mr_pg_fact(rules->facts, MR_SLOT_PID);
    if (has_slot && pid != NULL) {
        mr_pg_remedy(rules->to, "if that is this pipeline's millrace, stop it, and run millrace "
                                "check again, which then prints the statement; else choose "
                                "another slot_name and publication_name, or create the "
                                "publication that the slot is read with");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG,
                       "does not exist, but slot \"%s\" does, and process %s of the server reads "
                       "from it: somebody else's, or this pipeline's, which had no row since",
                       options->slot, pid);
    } else if (has_slot) {
        const cJSON *sent = rules->facts->sent;
        mr_pg_remedy(rules->to,
                     mr_pg_sent_options(sent) != NULL
                         ? "if somebody else reads from the slot, choose another slot_name; else: "
                           "1. look through the statement, which has the row filters, lists of "
                           "columns and options that were there when it was last seen; 2. run it "
                           "as the owner of the tables: CREATE PUBLICATION %I"
                         : "if somebody else reads from the slot, choose another slot_name; else: "
                           "1. if it had a row filter or a list of columns, add them to the "
                           "statement, for they are not stored (the last start's log may have "
                           "them: setup_warning), and options, such as WITH "
                           "(publish_via_partition_root = true); 2. run it as the owner of the "
                           "tables: CREATE PUBLICATION %I",
                     options->publication);
        mr_pg_publication_add_rest(&rules->to->remedy, options, rules->facts->version, sent);
        mr_pg_remedy(rules->to,
                     "; 3. start millrace, which goes on if nothing was written meanwhile; "
                     "if it ends so again, millrace recover --config FILE makes the "
                     "slot again, and sends what differs");
        MR_FOUND_ERROR(rules->to, MR_ERR_HISTORY,
                       "does not exist, but slot \"%s\" does: a publication made now would be "
                       "younger than the slot's position, and the stream could not be read",
                       options->slot);
    } else if (rules->facts->is_standby) {
        mr_pg_remedy(rules->to, "create it on the primary with CREATE PUBLICATION %I",
                     options->publication);
        mr_pg_publication_add_rest(&rules->to->remedy, options, rules->facts->version, NULL);
        mr_pg_remedy(rules->to, ", and start once the standby has it");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "does not exist, and a standby can't make it");
    } else if (!options->create_publication) {
        mr_pg_remedy(rules->to, "create it with CREATE PUBLICATION %I", options->publication);
        mr_pg_publication_add_rest(&rules->to->remedy, options, rules->facts->version, NULL);
        mr_pg_remedy(rules->to, ", or set source.postgres.create_publication = true");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "does not exist");
    } else {
        MR_FOUND_OK(rules->to, "will be created for the configured tables");
    }
}

static void rule_operations(const struct rules *rules)
{
    const struct mr_pg_result *server = rules->facts->server;
    if (mr_pg_result_true(server, 0, MR_PUBLICATION_INSERT) &&
        mr_pg_result_true(server, 0, MR_PUBLICATION_UPDATE) &&
        mr_pg_result_true(server, 0, MR_PUBLICATION_DELETE)) {
        MR_FOUND_OK(rules->to, "exists");
        return;
    }
    /* A start goes on, for a publication may be made for inserts alone. Of one that millrace would
     * have made itself, nobody said so. */
    bool is_ours = rules->options->create_publication && rules->facts->slot_is_judged;
    mr_pg_remedy(rules->to,
                 "ALTER PUBLICATION %I SET (publish = 'insert, update, delete, truncate'), or, if "
                 "it is meant, set source.postgres.create_publication = false",
                 rules->options->publication);
    mr_pg_found(rules->to, is_ours ? MR_FINDING_ERROR : MR_FINDING_WARNING, MR_ERR_CONFIG,
                "does not publish all of insert, update and delete");
}

/* What nobody asked for costs the server its decoding, and the network its bytes. */
static void rule_unlisted(const struct rules *rules)
{
    const struct mr_pg_result *unlisted = rules->facts->meant;
    int64_t count = mr_pg_result_number(unlisted, 0, MR_UNLISTED_COUNT);
    int64_t changes = mr_pg_result_number(unlisted, 0, MR_UNLISTED_CHANGES);
    int64_t all = mr_pg_result_number(unlisted, 0, MR_SENT_CHANGES);
    if (count > 0) {
        mr_pg_remedy(rules->to, "publish only what is streamed, or add the tables to \"tables\"");
        MR_FOUND_WARNING(rules->to,
                         "also sends %lld %s not in \"tables\" (%s%s): their changes are decoded, "
                         "sent and dropped here, %.0f %% of all that the server has counted",
                         (long long)count, count == 1 ? "table that is" : "tables that are",
                         names_of(mr_pg_result_value(unlisted, 0, MR_UNLISTED_NAMES)),
                         count > 5 ? ", …" : "",
                         all > 0 ? 100.0 * (double)changes / (double)all : 0.0);
    }
    int64_t unheld = mr_pg_result_number(unlisted, 0, MR_UNLISTED_UNHELD_COUNT);
    if (unheld > 0 && (mr_pg_result_true(rules->facts->server, 0, MR_PUBLICATION_UPDATE) ||
                       mr_pg_result_true(rules->facts->server, 0, MR_PUBLICATION_DELETE))) {
        mr_pg_remedy(rules->to,
                     "take them out (ALTER PUBLICATION %I DROP TABLE ONLY …), or run ALTER TABLE … "
                     "REPLICA IDENTITY FULL",
                     rules->options->publication);
        MR_FOUND_WARNING(
            rules->to,
            "also sends %lld %s without a replica identity (%s%s), where the "
            "application's own UPDATE and DELETE fail, also those of a table that they "
            "inherit from",
            (long long)unheld, unheld == 1 ? "table" : "tables",
            names_of(mr_pg_result_value(unlisted, 0, MR_UNLISTED_UNHELD_NAMES)),
            unheld > 5 ? ", …" : "");
    }
}

static void rule_publication(const struct rules *rules)
{
    mr_pg_about(rules->to, "publication \"%s\"", rules->options->publication);
    if (!mr_pg_publication_exists(rules->facts)) {
        rule_missing_publication(rules);
        return;
    }
    rule_operations(rules);
    rule_unlisted(rules);
}

/* A table that is gone: what the backlog holds of it still comes, under the names it had. One that
 * no start has found may be another one's name written wrong. */
static void rule_missing_table(const struct rules *rules)
{
    int64_t unlisted = mr_pg_result_number(rules->facts->meant, 0, MR_UNLISTED_COUNT);
    if (rules->goes_on && !rules->facts->tables_are_known && unlisted > 0) {
        mr_pg_remedy(rules->to,
                     "correct it, or take it out of \"tables\"; what the slot still holds of a "
                     "table that was dropped comes at a start with the \"tables\" of before");
        MR_FOUND_ERROR(
            rules->to, MR_ERR_CONFIG,
            "does not exist, but the publication sends what is not in \"tables\" (%s%s), "
            "which would be confirmed, and not delivered",
            names_of(mr_pg_result_value(rules->facts->meant, 0, MR_UNLISTED_NAMES)),
            unlisted > 5 ? ", …" : "");
    } else if (rules->goes_on) {
        mr_pg_remedy(rules->to, "take it out of \"tables\", or write its new name there");
        MR_FOUND_WARNING(rules->to, "does not exist any more (dropped or renamed); its changes up "
                                    "to then are delivered, and no others");
    } else {
        mr_pg_remedy(rules->to, "create it or correct \"tables\"");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "does not exist in database %s",
                       rules->facts->database);
    }
}

/* Without an identity the application's own UPDATE and DELETE fail once the table is published.
 * When it is published already, a start that refuses mends nothing. */
static void pg_rule_identity(const struct rules *rules, const struct mr_table_name *table,
                             bool has_key)
{
    const struct mr_pg_result *server = rules->facts->server;
    bool matters = !mr_pg_publication_exists(rules->facts) ||
                   mr_pg_result_true(server, 0, MR_PUBLICATION_UPDATE) ||
                   mr_pg_result_true(server, 0, MR_PUBLICATION_DELETE);
    mr_pg_remedy(rules->to, "add a primary key, or run ALTER TABLE %T REPLICA IDENTITY FULL",
                 table);
    mr_pg_found(rules->to, matters && !rules->goes_on ? MR_FINDING_ERROR : MR_FINDING_WARNING,
                MR_ERR_CONFIG,
                "has no replica identity%s, so the application's own UPDATE and DELETE %s",
                has_key ? " (a deferrable primary key is none, nor is an index that is gone)" : "",
                rules->goes_on ? "fail" : "would fail once it is published");
}

/* Null only where there is no table, says our query; a server may say otherwise. */
static char letter(const struct mr_pg_result *tables, uint32_t row, enum mr_table_column column)
{
    const char *value = mr_pg_result_value(tables, row, column);
    return value == NULL ? '\0' : value[0];
}

/* A partitioned table needs none where its partitions have theirs: what is done to its rows is done
 * to these (CheckCmdReplicaIdentity in executor/execReplication.c). */
static bool has_identity(const struct mr_pg_result *tables, uint32_t row)
{
    char identity = letter(tables, row, MR_TABLE_IDENTITY);
    return identity == 'f' || identity == 'i' || identity == 'd' ||
           (letter(tables, row, MR_TABLE_KIND) == 'p' &&
            mr_pg_result_number(tables, row, MR_TABLE_LESSER) == 0);
}

/* An ALTER TABLE of the root changes no partition's identity, and new ones have the default. */
static void rule_partitions(const struct rules *rules, uint32_t row)
{
    int64_t count = mr_pg_result_number(rules->facts->tables, row, MR_TABLE_LESSER);
    if (count > 0) {
        mr_pg_remedy(rules->to, "run %s%s",
                     names_of(mr_pg_result_value(rules->facts->tables, row, MR_TABLE_LESSER_CURE)),
                     count > 5 ? "; …" : "");
        MR_FOUND_WARNING(rules->to,
                         "has %lld %s without a replica identity, where the application's own "
                         "UPDATE and DELETE fail, or with one that lacks columns of the table's, "
                         "which are then not known of old rows",
                         (long long)count, count == 1 ? "partition" : "partitions");
    }
}

/* A list of ours that the publication is to have, and names what is generated: then it is sent
 * (logicalproto.c, logicalrep_should_publish_column). */
static bool will_be_listed(const struct rules *rules, uint32_t row, const char *column)
{
    const struct mr_pg_source_options *options = rules->options;
    if (rules->facts->version < GENERATED_VERSION_MIN ||
        (mr_pg_publication_exists(rules->facts) && !options->captured.alter_publication)) {
        return false;
    }
    const struct mr_published *listed = mr_pg_published_of(options, &options->captured.tables[row]);
    return listed != NULL &&
           MR_ANY(name, listed->columns, listed->column_count, strcmp(*name, column) == 0);
}

/* A generated column that the stream lacks: rows that differ in it alone would have one key, unless
 * another is chosen. From 18 on the server refuses updates of such a table (execReplication.c,
 * CheckCmdReplicaIdentity). */
static bool lacks_identity(const struct rules *rules, uint32_t row)
{
    const struct mr_table_name *table = &rules->options->captured.tables[row];
    bool is_chosen =
        mr_pg_key_of(rules->options, mr_slice_of(table->schema), mr_slice_of(table->table)) != NULL;
    const char *unsent = mr_pg_result_value(rules->facts->tables, row, MR_TABLE_UNSENT);
    return unsent != NULL && (!is_chosen || rules->facts->version >= GENERATED_VERSION_MIN) &&
           !will_be_listed(rules, row, unsent);
}

static void rule_unsent(const struct rules *rules, uint32_t row, const struct mr_table_name *table)
{
    bool refused = rules->facts->version >= GENERATED_VERSION_MIN;
    if (refused) {
        mr_pg_remedy(rules->to,
                     "let the publication send it, if it is stored (%s PUBLICATION %I … "
                     "publish_generated_columns = stored), or take another unique index as the "
                     "identity (ALTER TABLE %T REPLICA IDENTITY USING INDEX …)",
                     mr_pg_publication_exists(rules->facts) ? "ALTER" : "CREATE",
                     rules->options->publication, table);
    } else {
        mr_pg_remedy(rules->to,
                     "take another unique index as the identity (ALTER TABLE %T REPLICA IDENTITY "
                     "USING INDEX …), or run ALTER TABLE %T REPLICA IDENTITY FULL and set "
                     "key_columns",
                     table, table);
    }
    mr_pg_found(rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG,
                "has a replica identity with column \"%s\", which is generated and not in the "
                "stream, so %s",
                mr_pg_result_value(rules->facts->tables, row, MR_TABLE_UNSENT),
                refused ? "the application's own UPDATE and DELETE fail once it is published"
                        : "several rows would have one key");
}

static void rule_unproven(const struct rules *rules, const char *column,
                          const struct mr_table_name *table)
{
    mr_pg_remedy(rules->to,
                 "see that no row has null there, and run ALTER TABLE %T ALTER COLUMN %I SET NOT "
                 "NULL",
                 table, column);
    MR_FOUND_WARNING(rules->to,
                     "has a replica identity with column \"%s\", whose NOT NULL is NOT VALID: a "
                     "row from before that has null there ends the stream when it is copied, "
                     "deleted or updated",
                     column);
}

static void pg_rule_table(const struct rules *rules, uint32_t row,
                          const struct mr_table_name *table)
{
    const struct mr_pg_result *tables = rules->facts->tables;
    const char *kind = mr_pg_result_value(tables, row, MR_TABLE_KIND);
    const char *unproven = mr_pg_result_value(tables, row, MR_TABLE_UNPROVEN);
    enum mr_finding_level level = stops_a_new_stream(rules);
    if (kind == NULL) {
        rule_missing_table(rules);
    } else if (strcmp(kind, "r") != 0 && strcmp(kind, "p") != 0) {
        mr_pg_remedy(rules->to, "take it out of \"tables\"");
        mr_pg_found(rules->to, level, MR_ERR_CONFIG,
                    "is not a table (kind %s), and only tables can be published", kind);
    } else if (letter(tables, row, MR_TABLE_PERSISTENCE) != 'p') {
        mr_pg_remedy(rules->to, "take it out of \"tables\" or run ALTER TABLE %T SET LOGGED",
                     table);
        mr_pg_found(rules->to, level, MR_ERR_CONFIG,
                    "is unlogged or temporary, so its changes are not in the WAL");
    } else if (mr_pg_publication_exists(rules->facts) &&
               !rules->options->captured.alter_publication &&
               !mr_pg_result_true(tables, row, MR_TABLE_PUBLISHED)) {
        bool is_configured = mr_pg_published_of(rules->options, table) != NULL;
        const char *sent = is_configured ? NULL : mr_pg_sent_of_table(rules->facts->sent, table);
        mr_pg_remedy(rules->to, "run ALTER PUBLICATION %I ADD TABLE ONLY %T",
                     rules->options->publication, table);
        mr_text_string(&rules->to->remedy, sent == NULL ? "" : sent);
        /* By the file, which does not have them, it would be added without. */
        bool is_less = sent != NULL && sent[0] != '\0';
        mr_pg_remedy(rules->to, "%s or take it out of \"tables\"%s",
                     is_less ? "," : ", set publication.alter = true,",
                     sent != NULL ? ""
                     : rules->goes_on
                         ? "; a row filter or a list of columns that it had there must "
                           "be in the statement, or the file, or what they hid goes out"
                         : "");
        mr_pg_found(rules->to, level, MR_ERR_CONFIG, "is not in publication \"%s\"%s",
                    rules->options->publication,
                    rules->goes_on ? ": changes made since it is not are missing, and stay so"
                                   : "");
    } else if (!has_identity(tables, row)) {
        pg_rule_identity(rules, table, mr_pg_result_true(tables, row, MR_TABLE_HAS_KEY));
    } else if (lacks_identity(rules, row)) {
        rule_unsent(rules, row, table);
    } else if (unproven != NULL) {
        rule_unproven(rules, unproven, table);
    } else if (!mr_pg_result_true(tables, row, MR_TABLE_HAS_KEY)) {
        mr_pg_remedy(rules->to, "add a primary key");
        MR_FOUND_WARNING(rules->to,
                         "has no primary key; docs/keys.md says what its records' keys are");
    } else {
        MR_FOUND_OK(rules->to, "exists, with a primary key");
    }
}

static void rule_one_table(const struct rules *rules, uint32_t row)
{
    const struct mr_table_name *table = &rules->options->captured.tables[row];
    mr_pg_about(rules->to, "table %T", table);
    pg_rule_table(rules, row, table);
    rule_partitions(rules, row);
}

/* Rows of partitions have the names of these, and an option that names their table means no row; a
 * mask would do nothing, without a word. */
static void rule_divided(const struct rules *rules, const struct mr_table_name *table,
                         bool must_fit, uint32_t row)
{
    bool via_root = mr_pg_fact(rules->facts, MR_PUBLICATION_VIA_ROOT) == NULL
                        ? rules->options->via_root
                        : mr_pg_result_true(rules->facts->server, 0, MR_PUBLICATION_VIA_ROOT);
    if (via_root || !mr_pg_result_true(rules->facts->keys, row, MR_KEY_DIVIDED) ||
        !mr_pg_table_listed(rules->options, mr_slice_of(table->schema),
                            mr_slice_of(table->table))) {
        return;
    }
    mr_pg_remedy(rules->to, "set publication.via_partition_root = true, or name the partitions, or "
                            "a pattern that matches their names");
    mr_pg_found(rules->to, must_fit ? MR_FINDING_ERROR : stops_a_new_stream(rules), MR_ERR_CONFIG,
                "has no effect: the table has partitions, and their rows come under their names");
}

static void rule_key_column(const struct rules *all, const char *loss,
                            const struct mr_table_key *key, const char *column, uint32_t row)
{
    const struct mr_pg_result *keys = all->facts->keys;
    const struct rules rules = rules_for(all, &key->table);
    mr_pg_about(rules.to, "%s of table %T", key->option, &key->table);
    rule_divided(&rules, &key->table, false, row);
    if (!mr_pg_result_true(keys, row, MR_KEY_EXISTS)) {
        mr_pg_remedy(rules.to, "correct %s", key->option);
        mr_pg_found(rules.to, stops_a_new_stream(&rules), MR_ERR_CONFIG,
                    "names column \"%s\", which the table does not have%s", column,
                    rules.goes_on ? " (any more): where the stream comes to a row of now, it ends"
                                  : "");
    } else if (!mr_pg_result_true(keys, row, MR_KEY_HELD)) {
        mr_pg_remedy(rules.to, "run ALTER TABLE %T REPLICA IDENTITY FULL", &key->table);
        mr_pg_found(rules.to, stops_a_new_stream(&rules), MR_ERR_CONFIG,
                    "names column \"%s\", which the replica identity does not hold, so %s", column,
                    loss);
    }
}

/* What is read again hides nothing. */
static bool hides_columns(const char *option)
{
    return strncmp(option, "columns.", 8) == 0 && strcmp(option, "columns.reselect") != 0;
}

/* Values of a column whose name is mistyped would go out unmasked. Of a table that a pattern means
 * or will mean one day, nobody knows whether it is mistyped. */
static void rule_named_column(const struct rules *all, const struct mr_named_column *named,
                              uint32_t row)
{
    const struct rules rules = rules_for(all, &named->table);
    mr_pg_about(rules.to, "%s of table %T", named->option, &named->table);
    rule_divided(&rules, &named->table, named->must_fit, row);
    if (named->column[0] == '\0' || mr_pg_result_true(rules.facts->keys, row, MR_KEY_EXISTS)) {
        return;
    }
    bool is_named = mr_pg_table_named(&rules.options->captured, mr_slice_of(named->table.schema),
                                      mr_slice_of(named->table.table)) != UINT32_MAX;
    if (rules.goes_on && hides_columns(named->option)) {
        mr_pg_remedy(
            rules.to,
            "if it was renamed, name it as it was and as it is: \"(%s|new_name)\" (millrace "
            "help E-columns-unmatched); if it is gone, take it out",
            named->column);
        MR_FOUND_WARNING(rules.to,
                         "names column \"%s\", which the table does not have: if it was hidden and "
                         "has another name now, the stream ends at the table's next row, with exit "
                         "code 65",
                         named->column);
        return;
    }
    mr_pg_remedy(rules.to, "correct %s", named->option);
    mr_pg_found(rules.to, is_named ? stops_a_new_stream(&rules) : MR_FINDING_WARNING, MR_ERR_CONFIG,
                "names column \"%s\", which the table does not have", named->column);
}

static void rule_keys(const struct rules *rules)
{
    const struct mr_pg_source_options *options = rules->options;
    const struct mr_pg_checked_options *checked = &options->checked;
    uint32_t rows = rules->facts->keys == NULL ? 0 : mr_pg_result_rows(rules->facts->keys);
    uint32_t row = 0;
    for (uint32_t i = 0; i < options->key_count; i++) {
        const struct mr_table_key *key = &options->keys[i];
        for (uint32_t k = 0; k < key->column_count && row < rows; k++) {
            rule_key_column(rules, "deletes would have no key", key, key->columns[k], row++);
        }
    }
    for (uint32_t i = 0; i < checked->held_count && row < rows; i++) {
        rule_key_column(rules, "an update or a delete would not tell which key the row had",
                        &checked->held[i], checked->held[i].columns[0], row++);
    }
    for (uint32_t i = 0; i < checked->named_count && row < rows; i++) {
        rule_named_column(rules, &checked->named[i], row++);
    }
}

/* Tables that it is about may be yet to come, so it is no error; but a mask that means nothing
 * hides nothing. */
static void rule_patterns(const struct rules *rules)
{
    for (uint32_t i = 0; i < rules->options->checked.rule_count; i++) {
        const struct mr_pattern_rule *rule = &rules->options->checked.rules[i];
        bool has_table = mr_pg_result_true(rules->facts->rules, i, MR_RULE_HAS_TABLE);
        /* A rule about tables alone has no column, whatever a lying server says of it. */
        if (has_table && (rule->column == NULL ||
                          mr_pg_result_true(rules->facts->rules, i, MR_RULE_HAS_COLUMN))) {
            continue;
        }
        mr_pg_about(rules->to, "%s \"%s\"", rule->option, rule->text);
        if (has_table) {
            mr_pg_remedy(rules->to, "correct it, unless such a column is yet to come");
            MR_FOUND_WARNING(rules->to,
                             "names column \"%s\", which none of the tables has that it matches",
                             rule->column->text == NULL ? "*" : rule->column->text);
        } else {
            mr_pg_remedy(rules->to, "correct it, unless such tables are yet to be made");
            MR_FOUND_WARNING(rules->to, "%s",
                             rule->takes_away ? "matches no table that is there now"
                                              : "matches none of the tables that are streamed now");
        }
    }
}

static void rule_unlogged(const struct rules *rules)
{
    const struct mr_pg_result *unlogged = rules->facts->unlogged;
    int64_t count = mr_pg_result_number(unlogged, 0, 0);
    if (count > 0) {
        mr_pg_remedy(rules->to, "run ALTER TABLE … SET LOGGED, or name them in excluded_tables");
        MR_FOUND_WARNING(rules->to,
                         "match %lld unlogged %s (%s%s), whose changes are not in the WAL: nothing "
                         "comes of %s",
                         (long long)count, count == 1 ? "table" : "tables",
                         names_of(mr_pg_result_value(unlogged, 0, 1)), count > 5 ? ", …" : "",
                         count == 1 ? "it" : "them");
    }
}

static void rule_unlogged_parts(const struct rules *rules)
{
    const struct mr_pg_result *parts = rules->facts->unlogged_parts;
    int64_t count = mr_pg_result_number(parts, 0, 0);
    if (count > 0) {
        mr_pg_about(rules->to, "partitions of \"tables\"");
        mr_pg_remedy(rules->to, "run ALTER TABLE … SET LOGGED, then millrace snapshot");
        MR_FOUND_WARNING(
            rules->to, "%lld %s unlogged (%s%s), so nothing comes of what is written to %s",
            (long long)count, count == 1 ? "is" : "are", names_of(mr_pg_result_value(parts, 0, 1)),
            count > 5 ? ", …" : "", count == 1 ? "it" : "them");
    }
}

/* What patterns mean can't be wrong; their writer wants to see it. */
static void rule_meant(const struct rules *rules)
{
    struct mr_pg_reporter *to = rules->to;
    const struct mr_pg_result *meant = rules->facts->meant;
    rule_unlogged_parts(rules);
    if (rules->options->captured.pattern_count == 0) {
        return;
    }
    int64_t count = mr_pg_result_number(meant, 0, MR_MEANT_COUNT);
    int64_t unheld = mr_pg_result_number(meant, 0, MR_MEANT_UNHELD_COUNT);
    mr_pg_about(to, "patterns in \"tables\"");
    if (count == 0) {
        mr_pg_remedy(to, "correct them, unless such tables are yet to be made");
        MR_FOUND_WARNING(to, "match no table that is there now");
    } else {
        MR_FOUND_OK(to, "match %lld %s now (%s%s)", (long long)count,
                    count == 1 ? "table" : "tables",
                    names_of(mr_pg_result_value(meant, 0, MR_MEANT_NAMES)), count > 5 ? ", …" : "");
    }
    int64_t unpublished = mr_pg_result_number(meant, 0, MR_UNPUBLISHED_COUNT);
    if (unpublished > 0) {
        mr_pg_remedy(to,
                     "run ALTER PUBLICATION %I ADD TABLE ONLY …, or name them in excluded_tables",
                     rules->options->publication);
        MR_FOUND_WARNING(to, "match %lld %s not in publication \"%s\" (%s%s): nothing comes of %s",
                         (long long)unpublished,
                         unpublished == 1 ? "table that is" : "tables that are",
                         rules->options->publication,
                         names_of(mr_pg_result_value(meant, 0, MR_UNPUBLISHED_NAMES)),
                         unpublished > 5 ? ", …" : "", unpublished == 1 ? "it" : "them");
    }
    if (unheld > 0) {
        mr_pg_remedy(to, "add primary keys, run ALTER TABLE … REPLICA IDENTITY FULL, or name them "
                         "in excluded_tables");
        MR_FOUND_WARNING(to,
                         "match %lld %s without a replica identity (%s%s), where the application's "
                         "own UPDATE and DELETE fail once it is published",
                         (long long)unheld, unheld == 1 ? "table" : "tables",
                         names_of(mr_pg_result_value(meant, 0, MR_MEANT_UNHELD_NAMES)),
                         unheld > 5 ? ", …" : "");
    }
    rule_unlogged(rules);
}

static void rule_missing_slot(const struct rules *rules)
{
    if (!rules->options->create_slot) {
        mr_pg_remedy(rules->to,
                     "create it with SELECT pg_create_logical_replication_slot('%s', 'pgoutput'), "
                     "or set source.postgres.create_slot = true",
                     rules->options->slot);
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "does not exist");
    } else if (!rules->facts->slot_is_judged) {
        MR_FOUND_OK(rules->to, "will be created, and the stream begins there");
    }
}

/* What keeps it from happening again, by pg_replication_slots.invalidation_reason, and
 * `conflicting` of 16. */
static const char *prevention_of(const char *reason)
{
    static const char *const by_reason[][2] = {
        {"wal_removed", "raise max_slot_wal_keep_size to avoid it"},
        {"rows_removed", "set hot_standby_feedback = on and primary_slot_name at the standby"},
        {"wal_level_insufficient", "set wal_level = logical on the primary"},
        {"conflict with recovery", "set hot_standby_feedback = on and primary_slot_name at the "
                                   "standby, and wal_level = logical on the primary"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(by_reason); i++) {
        if (strcmp(by_reason[i][0], reason) == 0) {
            return by_reason[i][1];
        }
    }
    return "see that it is not again";
}

static void rule_lost_slot(const struct rules *rules)
{
    const char *reason = mr_pg_fact(rules->facts, MR_SLOT_INVALIDATION);
    reason = reason == NULL ? "wal_removed" : reason;
    bool removed = strcmp(reason, "wal_removed") == 0;
    bool replaced = rules->facts->slot_is_replaced;
    if (replaced) {
        mr_pg_remedy(rules->to, "%s", prevention_of(reason));
    } else {
        mr_pg_remedy(rules->to, MR_RECIPE_OF_COPY "; %s", prevention_of(reason));
    }
    mr_pg_found(rules->to, replaced ? MR_FINDING_WARNING : MR_FINDING_ERROR, MR_ERR_HISTORY,
                "is lost: the server has %s%s%s, so %s",
                removed ? "removed WAL that it needed" : "invalidated it (", removed ? "" : reason,
                removed ? "" : ")",
                !replaced ? "rows since then are missing"
                : mr_pg_copies_rows(rules->options->copies)
                    ? "it is made again, and existing rows are copied (snapshot.mode)"
                    : "it is made again, and what has changed since then is left to millrace "
                      "verify --repair");
}

bool mr_pg_slot_is_lost(const struct mr_pg_facts *facts)
{
    const char *status = mr_pg_fact(facts, MR_SLOT_WAL_STATUS);
    return mr_pg_fact(facts, MR_SLOT_INVALIDATION) != NULL ||
           (status != NULL && strcmp(status, "lost") == 0);
}

static void rule_slot(const struct rules *rules)
{
    mr_pg_about(rules->to, "slot \"%s\"", rules->options->slot);
    if (!rules->goes_on) {
        rule_missing_slot(rules);
        return;
    }
    const char *plugin = mr_pg_fact(rules->facts, MR_SLOT_PLUGIN);
    const char *database = mr_pg_fact(rules->facts, MR_SLOT_DATABASE);
    const char *status = mr_pg_fact(rules->facts, MR_SLOT_WAL_STATUS);
    if (plugin == NULL || strcmp(plugin, "pgoutput") != 0) {
        mr_pg_remedy(rules->to, "choose another slot_name");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG,
                       "uses %s%s, but millrace reads pgoutput; choose another slot_name, or drop "
                       "it, if no other program reads it",
                       plugin == NULL ? "no plugin" : "plugin ", plugin == NULL ? "" : plugin);
    } else if (!slot_is_of_this_database(rules->facts)) {
        mr_pg_remedy(rules->to, "choose another slot_name");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG, "belongs to database %s, not to %s",
                       database == NULL ? "none" : database, rules->facts->database);
    } else if (mr_pg_result_true(rules->facts->server, 0, MR_SLOT_TWO_PHASE) &&
               rules->options->copies != MR_COPIES_ALWAYS) {
        /* Whatever options the stream is begun with (logical.c, CreateDecodingContext). */
        mr_pg_remedy(rules->to,
                     "choose another slot_name, or drop this one, so that millrace makes its own, "
                     "and copy the rows that wait in it (snapshot.mode)");
        MR_FOUND_ERROR(rules->to, MR_ERR_CONFIG,
                       "was made with two_phase, so it sends transactions when they are prepared; "
                       "millrace reads what is committed");
    } else if (mr_pg_slot_is_lost(rules->facts)) {
        rule_lost_slot(rules);
    } else if (status != NULL && strcmp(status, "unreserved") == 0) {
        mr_pg_remedy(rules->to,
                     "start millrace now, or raise the limit: see max_slot_wal_keep_size");
        MR_FOUND_WARNING(rules->to, "will be lost at the next checkpoint");
    } else {
        const char *pid = mr_pg_fact(rules->facts, MR_SLOT_PID);
        MR_FOUND_OK(rules->to, "exists, holds back %lld bytes of WAL%s%s",
                    (long long)mr_pg_result_number(rules->facts->server, 0, MR_SLOT_RETAINED_BYTES),
                    pid == NULL ? "" : ", in use by process ", pid == NULL ? "" : pid);
    }
}

/* A copy was broken off, and is not wanted any more: what it left keeps the WAL from then on. */
static void rule_left_copy(const struct rules *rules)
{
    const char *slots = mr_pg_fact(rules->facts, MR_SLOT_COPIES);
    if (slots != NULL && rules->goes_on && rules->options->copies == MR_COPIES_NOTHING) {
        mr_pg_about(rules->to, "snapshot");
        mr_pg_remedy(rules->to,
                     "set snapshot.mode = \"initial\" again and let it end, or give the copy up: "
                     "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE "
                     "slot_name = that name");
        MR_FOUND_WARNING(rules->to,
                         "of existing rows was interrupted and is not continued, but its slot "
                         "(%s) exists and retains WAL",
                         slots);
    }
}

void mr_pg_rules(const struct mr_pg_facts *facts, struct mr_pg_reporter *to)
{
    const struct rules rules = {
        .to = to, .facts = facts, .options = facts->options, .goes_on = mr_pg_slot_exists(facts)};
    rule_settings(&rules);
    rule_wal_level(&rules);
    rule_plugins(&rules);
    rule_publication(&rules);
    for (uint32_t i = 0; i < facts->options->captured.table_count; i++) {
        rule_one_table(&rules, i);
    }
    rule_keys(&rules);
    rule_patterns(&rules);
    rule_meant(&rules);
    rule_slot(&rules);
    rule_left_copy(&rules);
}

void mr_pg_rules_of_change(const struct mr_pg_facts *facts, const struct mr_table_name *added,
                           uint32_t added_count, struct mr_pg_reporter *to)
{
    const struct rules rules = {.to = to,
                                .facts = facts,
                                .options = facts->options,
                                .goes_on = true,
                                .added = added,
                                .added_count = added_count};
    for (uint32_t i = 0; i < facts->options->captured.table_count; i++) {
        const struct rules own = rules_for(&rules, &facts->options->captured.tables[i]);
        if (!own.goes_on) {
            rule_one_table(&own, i);
        }
    }
    rule_keys(&rules);
    rule_patterns(&rules);
}
