#include "postgres/server/pg_rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MAX = 1024,
    SERVER_VERSION_MIN = 140000,
    GENERATED_VERSION_MIN = 180000, /* publications choose whether they send generated columns */
    /* From here on a logical slot raises the server's level by itself ("effective_wal_level" in the manual's chapter on
     * write-ahead log settings); `replica` is enough. */
    DYNAMIC_WAL_LEVEL_VERSION_MIN = 190000,
};

struct rules {
    struct mr_pg_reporter to;
    const struct mr_pg_facts *facts;
    const struct mr_pg_source_options *options;
    bool goes_on; /* the slot exists: a backlog may wait, and a start that refuses helps nobody */
    const struct mr_table_name *added; /* which no backlog has to do with */
    uint32_t added_count;
};

/* ---- facts ---- */

static mr_status read_all(struct mr_pg_conn *conn, struct mr_pg_facts *facts,
                          struct mr_error *ret_error)
{
    uint32_t tables = facts->options->captured.table_count;
    const struct mr_pg_shape server = {"its settings, slot and publication", MR_SERVER_SHAPE, 1, 1};
    const struct mr_pg_shape table = {"the tables", MR_TABLE_SHAPE, tables, tables};
    const struct mr_pg_shape unlisted = {"what is published", MR_UNLISTED_SHAPE, 1, 1};
    struct mr_text sql = {0};
    mr_sql_add_server_state(&sql, facts->options);
    MR_TRY(mr_pg_query(conn, &sql, &server, &facts->server, ret_error));
    mr_sql_add_table_states(&sql, facts->options, facts->version);
    MR_TRY(mr_pg_query(conn, &sql, &table, &facts->tables, ret_error));
    if (facts->options->key_count + facts->options->checked.held_count +
            facts->options->checked.named_count >
        0) {
        const struct mr_pg_shape key = {"the columns that options name", MR_KEY_SHAPE, 1,
                                        UINT32_MAX};
        mr_sql_add_key_columns(&sql, facts->options);
        MR_TRY(mr_pg_query(conn, &sql, &key, &facts->keys, ret_error));
    }
    if (facts->options->checked.rule_count > 0) {
        const struct mr_pg_shape rule = {"what rules mean", MR_RULE_SHAPE,
                                         facts->options->checked.rule_count,
                                         facts->options->checked.rule_count};
        mr_sql_add_rules(&sql, facts->options, facts->version);
        MR_TRY(mr_pg_query(conn, &sql, &rule, &facts->rules, ret_error));
    }
    mr_sql_add_unlisted(&sql, facts->options, facts->version);
    return mr_pg_query(conn, &sql, &unlisted, &facts->unlisted, ret_error);
}

mr_status mr_pg_facts_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           struct mr_pg_facts *ret_facts, struct mr_error *ret_error)
{
    struct mr_pg_facts facts = {.options = options, .version = mr_pg_server_version(conn)};
    if (facts.version < SERVER_VERSION_MIN) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "PostgreSQL %d is too old: millrace needs 14 or later; upgrade the server",
                       facts.version / 10000);
    }
    mr_status status = read_all(conn, &facts, ret_error);
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
    mr_pg_result_free(facts->server);
    mr_pg_result_free(facts->tables);
    mr_pg_result_free(facts->keys);
    mr_pg_result_free(facts->rules);
    mr_pg_result_free(facts->unlisted);
    free(facts->database);
    *facts = (struct mr_pg_facts){0};
}

/* ---- telling ---- */

void mr_pg_found(const struct mr_pg_reporter *reporter, enum mr_finding_level level,
                 mr_status status, const char *subject, const char *remedy, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    reporter->report(reporter->context, level, status, subject, text, remedy);
}

/* An error, unless a backlog may wait: what it holds is delivered then, and what is missing is said. */
static enum mr_finding_level stops_a_new_stream(const struct rules *rules)
{
    return rules->goes_on ? MR_FINDING_WARNING : MR_FINDING_ERROR;
}

/* What holds for that table. */
static struct rules rules_for(const struct rules *rules, const struct mr_table_name *table)
{
    struct rules own = *rules;
    for (uint32_t i = 0; i < rules->added_count; i++) {
        own.goes_on &= !mr_table_name_equal(&rules->added[i], table);
    }
    return own;
}

/* ---- the server ---- */

static void rule_wal_level(const struct rules *rules)
{
    const char *level = mr_pg_fact(rules->facts, MR_SERVER_WAL_LEVEL);
    bool dynamic = rules->facts->version >= DYNAMIC_WAL_LEVEL_VERSION_MIN;
    if (strcmp(level, "logical") == 0) {
        MR_FOUND_OK(&rules->to, "wal_level", "is logical");
    } else if (dynamic && strcmp(level, "replica") == 0) {
        MR_FOUND_OK(&rules->to, "wal_level",
                    "is replica, which this version raises as long as there is a logical slot");
    } else {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, "wal_level",
                       "run ALTER SYSTEM SET wal_level = 'logical' and restart PostgreSQL",
                       "is %s, but logical replication needs %s", level,
                       dynamic ? "at least replica" : "logical");
    }
}

/* PostgreSQL 16.15, 17.11, 18.6 and 19, of 15 the release 15.20 and not yet 15.18: libraries that may be output plugins,
 * pgoutput among them by default. Only superusers and pg_read_all_settings see the list. */
static void rule_plugins(const struct rules *rules)
{
    const char *plugins = mr_pg_fact(rules->facts, MR_SERVER_PLUGINS);
    if (plugins != NULL && strstr(plugins, "pgoutput") == NULL && strchr(plugins, '*') == NULL) {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, "output_plugin_libraries",
                       "add pgoutput to output_plugin_libraries in postgresql.conf and reload the "
                       "server",
                       "does not name pgoutput, so the server does not let it be used");
    }
}

/* ---- publication ---- */

static void rule_missing_publication(const struct rules *rules, const char *subject)
{
    const struct mr_pg_source_options *options = rules->options;
    const char *pid = mr_pg_fact(rules->facts, MR_SLOT_PID);
    char remedy[TEXT_MAX];
    if (pid != NULL) {
        snprintf(remedy, sizeof(remedy),
                 "choose another slot_name and publication_name, or create the publication that "
                 "the slot is read with");
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, remedy,
                       "does not exist, but slot \"%s\" does, and process %s of the server reads "
                       "from it: it is somebody else's",
                       options->slot, pid);
    } else if (rules->goes_on) {
        snprintf(
            remedy, sizeof(remedy),
            "if somebody else reads from the slot, choose another slot_name; else: 1. run SELECT "
            "pg_drop_replication_slot('%s'); 2. set snapshot.mode = \"when_needed\"; 3. start "
            "millrace: it makes both, and copies all rows as they are now",
            options->slot);
        MR_FOUND_ERROR(&rules->to, MR_ERR_HISTORY, subject, remedy,
                       "does not exist, but slot \"%s\" does: a publication made now would be "
                       "younger than the slot's position, and the stream could not be read",
                       options->slot);
    } else if (!options->create_publication) {
        snprintf(remedy, sizeof(remedy),
                 "create it with CREATE PUBLICATION \"%s\" FOR TABLE …, or set "
                 "source.postgres.create_publication = true",
                 options->publication);
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, remedy, "does not exist");
    } else {
        MR_FOUND_OK(&rules->to, subject, "will be created for the configured tables");
    }
}

static void rule_operations(const struct rules *rules, const char *subject)
{
    char remedy[TEXT_MAX];
    const struct mr_pg_result *server = rules->facts->server;
    if (mr_pg_result_true(server, 0, MR_PUBLICATION_INSERT) &&
        mr_pg_result_true(server, 0, MR_PUBLICATION_UPDATE) &&
        mr_pg_result_true(server, 0, MR_PUBLICATION_DELETE)) {
        MR_FOUND_OK(&rules->to, subject, "exists");
        return;
    }
    snprintf(remedy, sizeof(remedy),
             "ALTER PUBLICATION \"%s\" SET (publish = 'insert, update, delete, truncate')",
             rules->options->publication);
    MR_FOUND_WARNING(&rules->to, subject, remedy,
                     "does not publish all of insert, update and delete");
}

/* What nobody asked for costs the server its decoding, and the network its bytes. */
static void rule_unlisted(const struct rules *rules, const char *subject)
{
    const struct mr_pg_result *unlisted = rules->facts->unlisted;
    int64_t count = mr_pg_result_number(unlisted, 0, MR_UNLISTED_COUNT);
    const char *names = mr_pg_result_value(unlisted, 0, MR_UNLISTED_NAMES);
    int64_t changes = mr_pg_result_number(unlisted, 0, MR_UNLISTED_CHANGES);
    int64_t all = mr_pg_result_number(unlisted, 0, MR_SENT_CHANGES);
    if (count > 0) {
        MR_FOUND_WARNING(&rules->to, subject,
                         "publish only what is streamed, or add the tables to \"tables\"",
                         "also sends %lld %s not in \"tables\" (%s%s): their changes are decoded, "
                         "sent and dropped here, %.0f %% of all that the server has counted",
                         (long long)count, count == 1 ? "table that is" : "tables that are",
                         names == NULL ? "" : names, count > 5 ? ", …" : "",
                         all > 0 ? 100.0 * (double)changes / (double)all : 0.0);
    }
}

static void rule_publication(const struct rules *rules)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "publication \"%s\"", rules->options->publication);
    if (!mr_pg_publication_exists(rules->facts)) {
        rule_missing_publication(rules, subject);
        return;
    }
    rule_operations(rules, subject);
    rule_unlisted(rules, subject);
}

/* ---- tables ---- */

/* A table that is gone: what the backlog holds of it still comes, under the names it had. One that no start has found may be
 * another one's name written wrong. */
static void rule_missing_table(const struct rules *rules, const char *subject)
{
    int64_t unlisted = mr_pg_result_number(rules->facts->unlisted, 0, MR_UNLISTED_COUNT);
    const char *names = mr_pg_result_value(rules->facts->unlisted, 0, MR_UNLISTED_NAMES);
    if (rules->goes_on && !rules->facts->tables_are_known && unlisted > 0) {
        MR_FOUND_ERROR(
            &rules->to, MR_ERR_CONFIG, subject,
            "correct it, or take it out of \"tables\"; what the slot still holds of a table "
            "that was dropped comes at a start with the \"tables\" of before",
            "does not exist, but the publication sends what is not in \"tables\" (%s%s), "
            "which would be confirmed, and nobody would get it",
            names == NULL ? "" : names, unlisted > 5 ? ", …" : "");
    } else if (rules->goes_on) {
        MR_FOUND_WARNING(&rules->to, subject,
                         "take it out of \"tables\", or write its new name there",
                         "does not exist any more (dropped or renamed); its changes up to then are "
                         "delivered, and no others");
    } else {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, "create it or correct \"tables\"",
                       "does not exist in database %s", rules->facts->database);
    }
}

/* Without an identity the application's own UPDATE and DELETE fail once the table is published. When it is published
 * already, a start that refuses mends nothing. */
static void rule_identity(const struct rules *rules, const char *name, const char *subject,
                          bool has_key)
{
    char remedy[TEXT_MAX];
    const struct mr_pg_result *server = rules->facts->server;
    bool matters = !mr_pg_publication_exists(rules->facts) ||
                   mr_pg_result_true(server, 0, MR_PUBLICATION_UPDATE) ||
                   mr_pg_result_true(server, 0, MR_PUBLICATION_DELETE);
    snprintf(remedy, sizeof(remedy),
             "add a primary key, or run ALTER TABLE %s REPLICA IDENTITY FULL", name);
    mr_pg_found(&rules->to, matters && !rules->goes_on ? MR_FINDING_ERROR : MR_FINDING_WARNING,
                MR_ERR_CONFIG, subject, remedy,
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

static bool has_identity(const struct mr_pg_result *tables, uint32_t row)
{
    char identity = letter(tables, row, MR_TABLE_IDENTITY);
    return identity == 'f' || identity == 'i' || identity == 'd';
}

/* An ALTER TABLE of the root changes no partition's identity, and new ones have the default. */
static void rule_partitions(const struct rules *rules, uint32_t row, const char *subject)
{
    int64_t count = mr_pg_result_number(rules->facts->tables, row, MR_TABLE_LESSER);
    const char *cure = mr_pg_result_value(rules->facts->tables, row, MR_TABLE_LESSER_CURE);
    char remedy[TEXT_MAX];
    if (count <= 0) {
        return;
    }
    snprintf(remedy, sizeof(remedy), "run %s%s", cure == NULL ? "" : cure, count > 5 ? "; …" : "");
    MR_FOUND_WARNING(&rules->to, subject, remedy,
                     "has %lld %s without a replica identity, where the application's own UPDATE "
                     "and DELETE fail, or with one that lacks columns of the table's, which are "
                     "then not known of old rows",
                     (long long)count, count == 1 ? "partition" : "partitions");
}

/* A list of ours that the publication is to have, and names what is generated: then it is sent (logicalproto.c, logicalrep_should_publish_column). */
static bool will_be_listed(const struct rules *rules, uint32_t row, const char *column)
{
    const struct mr_pg_source_options *options = rules->options;
    if (rules->facts->version < GENERATED_VERSION_MIN ||
        (mr_pg_publication_exists(rules->facts) && !options->captured.alter_publication)) {
        return false;
    }
    for (uint32_t i = 0; i < options->captured.published_count; i++) {
        const struct mr_published *one = &options->captured.published[i];
        for (uint32_t k = 0; k < one->column_count; k++) {
            if (mr_table_name_equal(&one->table, &options->captured.tables[row]) &&
                strcmp(one->columns[k], column) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* A generated column that the stream lacks: rows that differ in it alone would have one key, unless another is chosen. From 18 on
 * the server refuses updates of such a table (execReplication.c, CheckCmdReplicaIdentity). */
static bool lacks_identity(const struct rules *rules, uint32_t row)
{
    const struct mr_pg_source_options *options = rules->options;
    bool is_chosen = false;
    for (uint32_t i = 0; i < options->key_count; i++) {
        is_chosen |= mr_table_name_equal(&options->keys[i].table, &options->captured.tables[row]);
    }
    const char *unsent = mr_pg_result_value(rules->facts->tables, row, MR_TABLE_UNSENT);
    return unsent != NULL && (!is_chosen || rules->facts->version >= GENERATED_VERSION_MIN) &&
           !will_be_listed(rules, row, unsent);
}

static void rule_unsent(const struct rules *rules, uint32_t row, const char *name,
                        const char *subject)
{
    char remedy[TEXT_MAX];
    bool refused = rules->facts->version >= GENERATED_VERSION_MIN;
    if (refused) {
        snprintf(remedy, sizeof(remedy),
                 "let the publication send it, if it is stored (%s PUBLICATION \"%s\" … "
                 "publish_generated_columns = stored), or take another unique index as the "
                 "identity (ALTER TABLE %s REPLICA IDENTITY USING INDEX …)",
                 mr_pg_publication_exists(rules->facts) ? "ALTER" : "CREATE",
                 rules->options->publication, name);
    } else {
        snprintf(remedy, sizeof(remedy),
                 "take another unique index as the identity (ALTER TABLE %s REPLICA IDENTITY USING "
                 "INDEX …), or run ALTER TABLE %s REPLICA IDENTITY FULL and set key_columns",
                 name, name);
    }
    mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject, remedy,
                "has a replica identity with column \"%s\", which is generated and not in the "
                "stream, so %s",
                mr_pg_result_value(rules->facts->tables, row, MR_TABLE_UNSENT),
                refused ? "the application's own UPDATE and DELETE fail once it is published"
                        : "several rows would have one key");
}

static void rule_unproven(const struct rules *rules, uint32_t row, const char *name,
                          const char *subject)
{
    const char *column = mr_pg_result_value(rules->facts->tables, row, MR_TABLE_UNPROVEN);
    struct mr_text remedy = {0};
    mr_text_format(&remedy, "see that no row has null there, and run ALTER TABLE %s ALTER COLUMN ",
                   name);
    mr_sql_add_identifier(&remedy, column);
    mr_text_string(&remedy, " SET NOT NULL");
    MR_FOUND_WARNING(
        &rules->to, subject, remedy.data,
        "has a replica identity with column \"%s\", whose NOT NULL is NOT VALID: a row "
        "from before that has null there ends the stream when it is copied, deleted "
        "or updated",
        column);
    mr_text_done(&remedy);
}

static void rule_table(const struct rules *rules, uint32_t row, const char *name,
                       const char *subject)
{
    const struct mr_pg_result *tables = rules->facts->tables;
    const char *kind = mr_pg_result_value(tables, row, MR_TABLE_KIND);
    char remedy[TEXT_MAX];
    if (kind == NULL) {
        rule_missing_table(rules, subject);
    } else if (strcmp(kind, "r") != 0 && strcmp(kind, "p") != 0) {
        mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject,
                    "take it out of \"tables\"",
                    "is not a table (kind %s), and only tables can be published", kind);
    } else if (letter(tables, row, MR_TABLE_PERSISTENCE) != 'p') {
        snprintf(remedy, sizeof(remedy),
                 "take it out of \"tables\" or run ALTER TABLE %s SET LOGGED", name);
        mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject, remedy,
                    "is unlogged or temporary, so its changes are not in the WAL");
    } else if (mr_pg_publication_exists(rules->facts) &&
               !rules->options->captured.alter_publication &&
               !mr_pg_result_true(tables, row, MR_TABLE_PUBLISHED)) {
        snprintf(remedy, sizeof(remedy),
                 "run ALTER PUBLICATION \"%s\" ADD TABLE %s, set publication.alter = true, or take "
                 "it out of \"tables\"",
                 rules->options->publication, name);
        mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject, remedy,
                    "is not in publication \"%s\"%s", rules->options->publication,
                    rules->goes_on ? ": changes made since it is not are missing, and stay so"
                                   : "");
    } else if (!has_identity(tables, row)) {
        rule_identity(rules, name, subject, mr_pg_result_true(tables, row, MR_TABLE_HAS_KEY));
    } else if (lacks_identity(rules, row)) {
        rule_unsent(rules, row, name, subject);
    } else if (mr_pg_result_value(tables, row, MR_TABLE_UNPROVEN) != NULL) {
        rule_unproven(rules, row, name, subject);
    } else if (!mr_pg_result_true(tables, row, MR_TABLE_HAS_KEY)) {
        MR_FOUND_WARNING(&rules->to, subject, "add a primary key",
                         "has no primary key; docs/events.md says what its records' keys are");
    } else {
        MR_FOUND_OK(&rules->to, subject, "exists, with a primary key");
    }
}

/* "OPTION of table "schema"."table"": what a finding about a table that an option names is about. */
struct subject {
    char text[600];
};

static struct subject subject_of(const char *option, const struct mr_table_name *table)
{
    struct subject subject;
    struct mr_text name = {0};
    mr_sql_add_table(&name, table);
    snprintf(subject.text, sizeof(subject.text), "%s of table %s", option, name.data);
    mr_text_done(&name);
    return subject;
}

/* Rows of partitions have the names of these, and an option that names their table means no row; a mask would do nothing, without
 * a word. */
static void rule_divided(const struct rules *rules, const char *option,
                         const struct mr_table_name *table, bool must_fit, uint32_t row)
{
    bool via_root = mr_pg_fact(rules->facts, MR_PUBLICATION_VIA_ROOT) == NULL
                        ? rules->options->via_root
                        : mr_pg_result_true(rules->facts->server, 0, MR_PUBLICATION_VIA_ROOT);
    if (via_root || !mr_pg_result_true(rules->facts->keys, row, MR_KEY_DIVIDED) ||
        !mr_pg_table_listed(rules->options, mr_slice_of(table->schema),
                            mr_slice_of(table->table))) {
        return;
    }
    mr_pg_found(
        &rules->to, must_fit ? MR_FINDING_ERROR : stops_a_new_stream(rules), MR_ERR_CONFIG,
        subject_of(option, table).text,
        "set publication.via_partition_root = true, or name the partitions, or a pattern that "
        "matches their names",
        "has no effect: the table has partitions, and their rows come under their names");
}

static void rule_key_column(const struct rules *rules, const char *loss,
                            const struct mr_table_key *key, const char *column, uint32_t row)
{
    const struct mr_pg_result *keys = rules->facts->keys;
    rule_divided(rules, key->option, &key->table, false, row);
    const struct subject subject = subject_of(key->option, &key->table);
    struct mr_text name = {0};
    mr_sql_add_table(&name, &key->table);
    char remedy[TEXT_MAX];
    snprintf(remedy, sizeof(remedy), "run ALTER TABLE %s REPLICA IDENTITY FULL", name.data);
    mr_text_done(&name);
    if (!mr_pg_result_true(keys, row, MR_KEY_EXISTS)) {
        snprintf(remedy, sizeof(remedy), "correct %s", key->option);
        mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject.text, remedy,
                    "names column \"%s\", which the table does not have%s", column,
                    rules->goes_on ? " (any more): where the stream comes to a row of now, it ends"
                                   : "");
    } else if (!mr_pg_result_true(keys, row, MR_KEY_HELD)) {
        mr_pg_found(&rules->to, stops_a_new_stream(rules), MR_ERR_CONFIG, subject.text, remedy,
                    "names column \"%s\", which the replica identity does not hold, so %s", column,
                    loss);
    }
}

/* Values of a column whose name is mistyped would go out unmasked. Of a table that a pattern means or will mean one day, nobody
 * knows whether it is mistyped. */
static void rule_named_column(const struct rules *rules, const struct mr_named_column *named,
                              uint32_t row)
{
    rule_divided(rules, named->option, &named->table, named->must_fit, row);
    if (named->column[0] == '\0' || mr_pg_result_true(rules->facts->keys, row, MR_KEY_EXISTS)) {
        return;
    }
    enum mr_finding_level level = MR_FINDING_WARNING;
    for (uint32_t i = 0; i < rules->options->captured.table_count; i++) {
        if (mr_table_name_equal(&rules->options->captured.tables[i], &named->table)) {
            level = stops_a_new_stream(rules);
        }
    }
    char remedy[64];
    snprintf(remedy, sizeof(remedy), "correct %s", named->option);
    mr_pg_found(&rules->to, level, MR_ERR_CONFIG, subject_of(named->option, &named->table).text,
                remedy, "names column \"%s\", which the table does not have", named->column);
}

static void rule_keys(const struct rules *rules)
{
    const struct mr_pg_source_options *options = rules->options;
    uint32_t row = 0;
    for (uint32_t i = 0; i < options->key_count; i++) {
        const struct mr_table_key *key = &options->keys[i];
        const struct rules own = rules_for(rules, &key->table);
        for (uint32_t k = 0; k < key->column_count && row < mr_pg_result_rows(rules->facts->keys);
             k++) {
            rule_key_column(&own, "deletes would have no key", key, key->columns[k], row++);
        }
    }
    for (uint32_t i = 0;
         i < options->checked.held_count && row < mr_pg_result_rows(rules->facts->keys); i++) {
        const struct mr_table_key *held = &options->checked.held[i];
        const struct rules own = rules_for(rules, &held->table);
        rule_key_column(&own, "an update or a delete would not tell which key the row had", held,
                        held->columns[0], row++);
    }
    for (uint32_t i = 0;
         i < options->checked.named_count && row < mr_pg_result_rows(rules->facts->keys); i++) {
        const struct rules own = rules_for(rules, &options->checked.named[i].table);
        rule_named_column(&own, &options->checked.named[i], row++);
    }
}

/* Tables that it is about may be yet to come, so it is no error; but a mask that means nothing hides nothing. */
static void rule_patterns(const struct rules *rules)
{
    for (uint32_t i = 0; i < rules->options->checked.rule_count; i++) {
        const struct mr_pattern_rule *rule = &rules->options->checked.rules[i];
        bool has_table = mr_pg_result_true(rules->facts->rules, i, MR_RULE_HAS_TABLE);
        if (has_table && mr_pg_result_true(rules->facts->rules, i, MR_RULE_HAS_COLUMN)) {
            continue;
        }
        char subject[600];
        snprintf(subject, sizeof(subject), "%s \"%s\"", rule->option, rule->text);
        if (has_table) {
            MR_FOUND_WARNING(&rules->to, subject, "correct it, unless such a column is yet to come",
                             "names column \"%s\", which none of the tables has that it matches",
                             rule->column->text == NULL ? "*" : rule->column->text);
        } else {
            MR_FOUND_WARNING(&rules->to, subject,
                             "correct it, unless such tables are yet to be made",
                             rule->takes_away ? "matches no table that is there now"
                                              : "matches none of the tables that are streamed now");
        }
    }
}

static void rule_one_table(const struct rules *rules, uint32_t row)
{
    struct mr_text name = {0};
    mr_sql_add_table(&name, &rules->options->captured.tables[row]);
    char subject[600];
    snprintf(subject, sizeof(subject), "table %s", name.data);
    rule_table(rules, row, name.data, subject);
    rule_partitions(rules, row, subject);
    mr_text_done(&name);
}

static void rule_tables(const struct rules *rules)
{
    for (uint32_t i = 0; i < rules->options->captured.table_count; i++) {
        rule_one_table(rules, i);
    }
}

/* ---- tables by pattern ---- */

/* What patterns mean can't be wrong; whoever wrote them wants to see it. */
mr_status mr_pg_rules_of_patterns(struct mr_pg_conn *conn,
                                  const struct mr_pg_source_options *options, mr_finding_fn report,
                                  void *context, struct mr_error *ret_error)
{
    const struct mr_pg_reporter to = {.report = report, .context = context};
    static const struct mr_pg_shape shape = {"what patterns mean", MR_MEANT_SHAPE, 1, 1};
    static const char subject[] = "patterns in \"tables\"";
    if (options->captured.pattern_count == 0) {
        return MR_OK;
    }
    struct mr_text sql = {0};
    mr_sql_add_pattern_tables(&sql, options, mr_pg_server_version(conn));
    struct mr_pg_result *meant;
    MR_TRY(mr_pg_query(conn, &sql, &shape, &meant, ret_error));
    int64_t count = mr_pg_result_number(meant, 0, MR_MEANT_COUNT);
    int64_t unheld = mr_pg_result_number(meant, 0, MR_MEANT_UNHELD_COUNT);
    const char *names = mr_pg_result_value(meant, 0, MR_MEANT_NAMES);
    const char *unheld_names = mr_pg_result_value(meant, 0, MR_MEANT_UNHELD_NAMES);
    if (count == 0) {
        MR_FOUND_WARNING(&to, subject, "correct them, unless such tables are yet to be made",
                         "match no table that is there now");
    } else {
        MR_FOUND_OK(&to, subject, "match %lld %s now (%s%s)", (long long)count,
                    count == 1 ? "table" : "tables", names == NULL ? "" : names,
                    count > 5 ? ", …" : "");
    }
    if (unheld > 0) {
        MR_FOUND_WARNING(
            &to, subject,
            "add primary keys, run ALTER TABLE … REPLICA IDENTITY FULL, or name them in "
            "excluded_tables",
            "match %lld %s without a replica identity (%s%s), where the application's own UPDATE "
            "and DELETE fail once it is published",
            (long long)unheld, unheld == 1 ? "table" : "tables",
            unheld_names == NULL ? "" : unheld_names, unheld > 5 ? ", …" : "");
    }
    mr_pg_result_free(meant);
    return MR_OK;
}

/* ---- slot ---- */

static void rule_missing_slot(const struct rules *rules, const char *subject)
{
    char remedy[TEXT_MAX];
    if (rules->options->create_slot && rules->facts->slot_is_judged) {
        return;
    }
    if (rules->options->create_slot) {
        MR_FOUND_OK(&rules->to, subject, "will be created, and the stream begins there");
        return;
    }
    snprintf(remedy, sizeof(remedy),
             "create it with SELECT pg_create_logical_replication_slot('%s', 'pgoutput'), or set "
             "source.postgres.create_slot = true",
             rules->options->slot);
    MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, remedy, "does not exist");
}

static void rule_lost_slot(const struct rules *rules, const char *subject)
{
    const char *reason = mr_pg_fact(rules->facts, MR_SLOT_INVALIDATION);
    bool removed = reason == NULL || strcmp(reason, "wal_removed") == 0;
    bool replaced = rules->facts->slot_is_replaced;
    char remedy[TEXT_MAX];
    if (replaced) {
        snprintf(remedy, sizeof(remedy), "%s",
                 removed ? "raise max_slot_wal_keep_size to avoid it" : "see that it is not again");
    } else {
        snprintf(
            remedy, sizeof(remedy),
            "1. run SELECT pg_drop_replication_slot('%s'); 2. set snapshot.mode = "
            "\"when_needed\"; 3. start millrace: it makes the slot, and copies all rows as they "
            "are now%s",
            rules->options->slot, removed ? "; raise max_slot_wal_keep_size to avoid it" : "");
    }
    mr_pg_found(&rules->to, replaced ? MR_FINDING_WARNING : MR_FINDING_ERROR, MR_ERR_HISTORY,
                subject, remedy, "is lost: the server has %s%s%s, so %s",
                removed ? "removed WAL that it needed" : "invalidated it (", removed ? "" : reason,
                removed ? "" : ")",
                replaced ? "it is made anew, and existing rows are copied (snapshot.mode)"
                         : "rows since then are missing");
}

bool mr_pg_slot_is_lost(const struct mr_pg_facts *facts)
{
    const char *status = mr_pg_fact(facts, MR_SLOT_WAL_STATUS);
    return mr_pg_fact(facts, MR_SLOT_INVALIDATION) != NULL ||
           (status != NULL && strcmp(status, "lost") == 0);
}

static void rule_slot(const struct rules *rules)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "slot \"%s\"", rules->options->slot);
    if (!rules->goes_on) {
        rule_missing_slot(rules, subject);
        return;
    }
    const char *plugin = mr_pg_fact(rules->facts, MR_SLOT_PLUGIN);
    const char *database = mr_pg_fact(rules->facts, MR_SLOT_DATABASE);
    const char *status = mr_pg_fact(rules->facts, MR_SLOT_WAL_STATUS);
    if (plugin == NULL || strcmp(plugin, "pgoutput") != 0) {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, "choose another slot_name",
                       "uses %s%s, but millrace reads pgoutput",
                       plugin == NULL ? "no plugin" : "plugin ", plugin == NULL ? "" : plugin);
    } else if (database == NULL || strcmp(database, rules->facts->database) != 0) {
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject, "choose another slot_name",
                       "belongs to database %s, not to %s", database == NULL ? "none" : database,
                       rules->facts->database);
    } else if (mr_pg_result_true(rules->facts->server, 0, MR_SLOT_TWO_PHASE) &&
               rules->options->copies != MR_COPIES_ALWAYS) {
        /* Whatever options the stream is begun with (logical.c, CreateDecodingContext). */
        MR_FOUND_ERROR(&rules->to, MR_ERR_CONFIG, subject,
                       "choose another slot_name, or drop this one, so that millrace makes its "
                       "own, and copy the rows that wait in it (snapshot.mode)",
                       "was made with two_phase, so it sends transactions when they are prepared; "
                       "millrace reads what is committed");
    } else if (mr_pg_slot_is_lost(rules->facts)) {
        rule_lost_slot(rules, subject);
    } else if (status != NULL && strcmp(status, "unreserved") == 0) {
        MR_FOUND_WARNING(&rules->to, subject, "start millrace now, or raise max_slot_wal_keep_size",
                         "will be lost at the next checkpoint");
    } else {
        const char *pid = mr_pg_fact(rules->facts, MR_SLOT_PID);
        MR_FOUND_OK(&rules->to, subject, "exists, holds back %lld bytes of WAL%s%s",
                    (long long)mr_pg_result_number(rules->facts->server, 0, MR_SLOT_RETAINED_BYTES),
                    pid == NULL ? "" : ", in use by process ", pid == NULL ? "" : pid);
    }
}

/* A copy was broken off, and is not wanted any more: what it left keeps the WAL from then on. */
static void rule_left_copy(const struct rules *rules)
{
    const char *slots = mr_pg_fact(rules->facts, MR_SLOT_COPIES);
    if (slots != NULL && rules->goes_on && rules->options->copies == MR_COPIES_NOTHING) {
        MR_FOUND_WARNING(
            &rules->to, "snapshot",
            "set snapshot.mode = \"initial\" again and let it end, or give the copy up: SELECT "
            "pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = that "
            "name",
            "of existing rows was broken off and is not gone on with, but its slot (%s) is there "
            "and retains WAL",
            slots);
    }
}

/* ---- all of it ---- */

void mr_pg_rules(const struct mr_pg_facts *facts, mr_finding_fn report, void *context)
{
    const struct rules rules = {
        .to = {.report = report, .context = context},
        .facts = facts,
        .options = facts->options,
        .goes_on = mr_pg_slot_exists(facts),
    };
    rule_wal_level(&rules);
    rule_plugins(&rules);
    rule_publication(&rules);
    rule_tables(&rules);
    rule_keys(&rules);
    rule_patterns(&rules);
    rule_slot(&rules);
    rule_left_copy(&rules);
}

void mr_pg_rules_of_change(const struct mr_pg_facts *facts, const struct mr_table_name *added,
                           uint32_t added_count, mr_finding_fn report, void *context)
{
    const struct rules rules = {
        .to = {.report = report, .context = context},
        .facts = facts,
        .options = facts->options,
        .goes_on = true,
        .added = added,
        .added_count = added_count,
    };
    for (uint32_t i = 0; i < facts->options->captured.table_count; i++) {
        const struct rules own = rules_for(&rules, &facts->options->captured.tables[i]);
        if (!own.goes_on) {
            rule_one_table(&own, i);
        }
    }
    rule_keys(&rules);
    rule_patterns(&rules);
}
