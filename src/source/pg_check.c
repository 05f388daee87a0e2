/* `millrace check`, PostgreSQL's part. Each function looks at one thing and reports what it found. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/pg_setup.h"
#include "source/pg_sql.h"

enum { TEXT_MAX = 1024, SENDER_TIMEOUT_MIN_MS = 10000 };

struct pg_check {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    mr_finding_fn report;
    void *context;
};

static void found(const struct pg_check *check, enum mr_finding_level level, mr_status status,
                  const char *subject, const char *remedy, const char *format, ...) MR_PRINTF(6, 7);

static void found(const struct pg_check *check, enum mr_finding_level level, mr_status status,
                  const char *subject, const char *remedy, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    check->report(check->context, level, status, subject, text, remedy);
}

#define OK(check, subject, ...) found((check), MR_FINDING_OK, MR_OK, (subject), NULL, __VA_ARGS__)
#define WARN(check, subject, remedy, ...)                                                          \
    found((check), MR_FINDING_WARNING, MR_OK, (subject), (remedy), __VA_ARGS__)
#define BAD(check, status, subject, remedy, ...)                                                   \
    found((check), MR_FINDING_ERROR, (status), (subject), (remedy), __VA_ARGS__)

/* NULL, with a finding, when the query fails. */
static struct mr_pg_result *ask(const struct pg_check *check, const char *subject,
                                struct mr_text *sql)
{
    struct mr_pg_result *result = NULL;
    struct mr_error error;
    if (mr_pg_exec(check->conn, -1, sql->data, &result, NULL, &error) != MR_OK) {
        BAD(check, error.status, subject, NULL, "%s", error.text);
        result = NULL;
    }
    mr_text_done(sql);
    return result;
}

/* ---- server ---- */

/* The first minor of each major version that is free of the known ways in which logical decoding lost
 * changes: stale catalog after concurrent DDL (fixed in 15.13 and its siblings), restart or confirmed
 * positions going back and log removed too early (up to 15.14 and its siblings). */
static const struct {
    int major;
    int good_minor;
} known_bugs[] = {{14, 19}, {15, 14}, {16, 10}, {17, 6}};

static void check_version(const struct pg_check *check)
{
    int version = mr_pg_server_version(check->conn);
    int major = version / 10000;
    int minor = version % 10000;
    if (major < 14) {
        BAD(check, MR_ERR_CONFIG, "server", "upgrade PostgreSQL to 14 or later",
            "version %d.%d is too old", major, minor);
        return;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(known_bugs); i++) {
        if (known_bugs[i].major == major && minor < known_bugs[i].good_minor) {
            char remedy[64];
            snprintf(remedy, sizeof(remedy), "upgrade to %d.%d or later", major,
                     known_bugs[i].good_minor);
            WARN(check, "server", remedy, "version %d.%d has known bugs that can lose changes",
                 major, minor);
            return;
        }
    }
    OK(check, "server", "version %d.%d, database %s, role %s, TLS %s", major, minor,
       mr_pg_database(check->conn), mr_pg_user(check->conn),
       mr_pg_uses_tls(check->conn) ? "on" : "off");
}

static void check_wal_level(const struct pg_check *check, const struct mr_pg_result *state)
{
    const char *level = mr_pg_result_value(state, 0, MR_SERVER_WAL_LEVEL);
    if (strcmp(level, "logical") == 0) {
        OK(check, "wal_level", "logical");
    } else {
        BAD(check, MR_ERR_CONFIG, "wal_level",
            "ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL",
            "%s, but logical replication needs logical", level);
    }
}

static void check_encoding(const struct pg_check *check, const struct mr_pg_result *state)
{
    const char *encoding = mr_pg_result_value(state, 0, MR_SERVER_ENCODING);
    if (strcmp(encoding, "SQL_ASCII") == 0) {
        WARN(check, "encoding", "keep to UTF-8 in all text of the captured tables",
             "SQL_ASCII: bytes that are no UTF-8 come as U+FFFD, in keys too");
    } else {
        OK(check, "encoding", "%s", encoding);
    }
}

static void check_room(const struct pg_check *check, const char *subject, const char *used,
                       const char *most, bool needs_one)
{
    bool full = atoi(used) >= atoi(most);
    char remedy[128];
    snprintf(remedy, sizeof(remedy), "ALTER SYSTEM SET %s = %d; then restart PostgreSQL", subject,
             atoi(most) + 5);
    if (full && needs_one) {
        BAD(check, MR_ERR_CONFIG, subject, remedy, "all %s are in use", most);
    } else {
        OK(check, subject, "%s of %s in use", used, most);
    }
}

static void check_limits(const struct pg_check *check, bool slot_exists, bool slot_active)
{
    struct mr_text sql = {0};
    mr_text_format(
        &sql, "SELECT (SELECT count(*) FROM pg_replication_slots),"
              " current_setting('max_replication_slots'),"
              " (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders'),"
              " (SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),"
              " (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'),"
              " (SELECT setting FROM pg_settings WHERE name = 'output_plugin_libraries')");
    struct mr_pg_result *limits = ask(check, "limits", &sql);
    if (limits == NULL) {
        return;
    }
    check_room(check, "max_replication_slots", mr_pg_result_value(limits, 0, 0),
               mr_pg_result_value(limits, 0, 1), !slot_exists);
    check_room(check, "max_wal_senders", mr_pg_result_value(limits, 0, 2),
               mr_pg_result_value(limits, 0, 3), !slot_active);
    const char *keep = mr_pg_result_value(limits, 0, 4);
    if (strcmp(keep, "-1") == 0) {
        WARN(check, "max_slot_wal_keep_size",
             "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' (what the disk can spare)",
             "unlimited: a slot that nobody reads fills the disk");
    } else {
        OK(check, "max_slot_wal_keep_size", "%s MB", keep);
    }
    int timeout_ms = atoi(mr_pg_result_value(limits, 0, 5));
    if (timeout_ms > 0 && timeout_ms < SENDER_TIMEOUT_MIN_MS) {
        WARN(check, "wal_sender_timeout", "ALTER SYSTEM SET wal_sender_timeout = '60s'",
             "%d ms: a short pause of either side ends the stream", timeout_ms);
    }
    const char *plugins = mr_pg_result_value(limits, 0, 6);
    if (plugins != NULL && strstr(plugins, "pgoutput") == NULL && strchr(plugins, '*') == NULL) {
        BAD(check, MR_ERR_CONFIG, "output_plugin_libraries",
            "add pgoutput to output_plugin_libraries", "the server does not allow pgoutput");
    }
    mr_pg_result_free(limits);
}

/* ---- role ---- */

static void check_role(const struct pg_check *check, bool publication_exists)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT rolsuper, rolreplication,"
                         " has_database_privilege(current_database(), 'CREATE')"
                         " FROM pg_roles WHERE rolname = current_user");
    struct mr_pg_result *role = ask(check, "role", &sql);
    if (role == NULL) {
        return;
    }
    const char *name = mr_pg_user(check->conn);
    char remedy[TEXT_MAX];
    bool super = mr_sql_true(mr_pg_result_value(role, 0, 0));
    if (!super && !mr_sql_true(mr_pg_result_value(role, 0, 1))) {
        snprintf(remedy, sizeof(remedy), "ALTER ROLE \"%s\" REPLICATION", name);
        BAD(check, MR_ERR_AUTH, "role", remedy, "\"%s\" may not replicate", name);
    } else if (super) {
        WARN(check, "role", "use a role with LOGIN REPLICATION and SELECT on the tables",
             "\"%s\" is a superuser, which is more than millrace needs", name);
    } else {
        OK(check, "role", "\"%s\" may replicate", name);
    }
    if (!publication_exists && check->options->create_publication && !super &&
        !mr_sql_true(mr_pg_result_value(role, 0, 2))) {
        snprintf(remedy, sizeof(remedy),
                 "GRANT CREATE ON DATABASE \"%s\" TO \"%s\" and make it owner of the tables, or "
                 "create the "
                 "publication yourself",
                 mr_pg_database(check->conn), name);
        BAD(check, MR_ERR_AUTH, "role", remedy, "\"%s\" may not create the publication", name);
    }
    mr_pg_result_free(role);
}

/* ---- tables ---- */

static bool check_kind(const struct pg_check *check, const struct mr_pg_result *tables, int row,
                       const char *subject)
{
    const char *kind = mr_pg_result_value(tables, row, MR_TABLE_KIND);
    if (kind == NULL) {
        BAD(check, MR_ERR_CONFIG, subject, "create it or correct \"tables\"", "does not exist");
        return false;
    }
    if (strcmp(kind, "r") != 0 && strcmp(kind, "p") != 0) {
        BAD(check, MR_ERR_CONFIG, subject, "take it out of \"tables\"",
            "is no table (kind %s) and can't be published", kind);
        return false;
    }
    if (strcmp(mr_pg_result_value(tables, row, MR_TABLE_PERSISTENCE), "p") != 0) {
        BAD(check, MR_ERR_CONFIG, subject, "ALTER TABLE … SET LOGGED, or take it out of \"tables\"",
            "is unlogged or temporary: its changes are in no log");
        return false;
    }
    return true;
}

static void check_table(const struct pg_check *check, const struct mr_pg_result *tables, int row,
                        bool publication_exists)
{
    const char *name = mr_pg_result_value(tables, row, MR_TABLE_NAME);
    char subject[300], remedy[TEXT_MAX];
    snprintf(subject, sizeof(subject), "table %s", name);
    if (!check_kind(check, tables, row, subject)) {
        return;
    }
    const char *identity = mr_pg_result_value(tables, row, MR_TABLE_IDENTITY);
    bool has_key = mr_sql_true(mr_pg_result_value(tables, row, MR_TABLE_HAS_KEY));
    if (identity[0] == 'n' || (identity[0] == 'd' && !has_key)) {
        snprintf(remedy, sizeof(remedy),
                 "ALTER TABLE %s REPLICA IDENTITY FULL, or add a primary key", name);
        BAD(check, MR_ERR_CONFIG, subject, remedy,
            "has no replica identity: once published, its own UPDATE and DELETE would fail");
        return;
    }
    if (publication_exists && !mr_sql_true(mr_pg_result_value(tables, row, MR_TABLE_PUBLISHED))) {
        snprintf(remedy, sizeof(remedy), "ALTER PUBLICATION \"%s\" ADD TABLE %s",
                 check->options->publication, name);
        BAD(check, MR_ERR_CONFIG, subject, remedy, "is not in the publication");
        return;
    }
    if (!has_key) {
        WARN(check, subject, "add a primary key",
             "has no primary key: its records have a null key and share one partition");
        return;
    }
    OK(check, subject, "replica identity %s",
       identity[0] == 'f'   ? "full"
       : identity[0] == 'i' ? "index"
                            : "primary key");
}

static void check_tables(const struct pg_check *check, bool publication_exists)
{
    struct mr_text sql = {0};
    mr_sql_add_table_states(&sql, check->conn, check->options);
    struct mr_pg_result *tables = ask(check, "tables", &sql);
    for (int row = 0; tables != NULL && row < mr_pg_result_rows(tables); row++) {
        check_table(check, tables, row, publication_exists);
    }
    mr_pg_result_free(tables);
}

/* ---- publication and slot ---- */

static void check_missing_publication(const struct pg_check *check, bool slot_exists,
                                      const char *subject)
{
    char remedy[TEXT_MAX];
    if (slot_exists) {
        snprintf(remedy, sizeof(remedy),
                 "SELECT pg_drop_replication_slot('%s'); then let millrace make both",
                 check->options->slot);
        BAD(check, MR_ERR_HISTORY, subject, remedy,
            "does not exist, but the slot does: one made now could not serve the slot's position");
    } else if (check->options->create_publication) {
        OK(check, subject, "does not exist; will be created for the configured tables");
    } else {
        snprintf(remedy, sizeof(remedy), "CREATE PUBLICATION \"%s\" FOR TABLE …",
                 check->options->publication);
        BAD(check, MR_ERR_CONFIG, subject, remedy,
            "does not exist, and create_publication is false");
    }
}

static void check_publication(const struct pg_check *check, const struct mr_pg_result *state)
{
    char subject[300], remedy[TEXT_MAX];
    snprintf(subject, sizeof(subject), "publication %s", check->options->publication);
    bool slot_exists = mr_pg_result_value(state, 0, MR_SLOT_TYPE) != NULL;
    if (mr_pg_result_value(state, 0, MR_PUBLICATION_OWNER) == NULL) {
        check_missing_publication(check, slot_exists, subject);
        return;
    }
    if (mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_ALL_TABLES))) {
        WARN(check, subject, "publish only the tables that are streamed",
             "is FOR ALL TABLES: the server decodes and sends changes that nobody wants");
    }
    bool all = mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_INSERT)) &&
               mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_UPDATE)) &&
               mr_sql_true(mr_pg_result_value(state, 0, MR_PUBLICATION_DELETE));
    if (!all) {
        snprintf(remedy, sizeof(remedy),
                 "ALTER PUBLICATION \"%s\" SET (publish = 'insert, update, delete, truncate')",
                 check->options->publication);
        WARN(check, subject, remedy, "does not publish all of insert, update and delete");
    } else {
        OK(check, subject, "exists");
    }
}

static void check_existing_slot(const struct pg_check *check, const struct mr_pg_result *state,
                                const char *subject)
{
    const char *plugin = mr_pg_result_value(state, 0, MR_SLOT_PLUGIN);
    const char *database = mr_pg_result_value(state, 0, MR_SLOT_DATABASE);
    const char *status = mr_pg_result_value(state, 0, MR_SLOT_WAL_STATUS);
    const char *retained = mr_pg_result_value(state, 0, MR_SLOT_RETAINED_BYTES);
    char remedy[TEXT_MAX];
    if (strcmp(plugin, "pgoutput") != 0 || database == NULL ||
        strcmp(database, mr_pg_database(check->conn)) != 0) {
        BAD(check, MR_ERR_CONFIG, subject, "choose another slot_name",
            "is of plugin %s and database %s", plugin, database == NULL ? "none" : database);
    } else if (status != NULL && strcmp(status, "lost") == 0) {
        const char *reason = mr_pg_result_value(state, 0, MR_SLOT_INVALIDATION);
        snprintf(remedy, sizeof(remedy),
                 "SELECT pg_drop_replication_slot('%s'); start again and copy the tables",
                 check->options->slot);
        BAD(check, MR_ERR_HISTORY, subject, remedy,
            "is lost%s%s%s: rows since its position are gone", reason == NULL ? "" : " (",
            reason == NULL ? "" : reason, reason == NULL ? "" : ")");
    } else if (status != NULL && strcmp(status, "unreserved") == 0) {
        WARN(check, subject, "start millrace now, or raise max_slot_wal_keep_size",
             "will be lost at the next checkpoint");
    } else {
        const char *pid = mr_pg_result_value(state, 0, MR_SLOT_PID);
        OK(check, subject, "exists, holds back %s bytes of log%s%s",
           retained == NULL ? "0" : retained, pid == NULL ? "" : ", in use by process ",
           pid == NULL ? "" : pid);
    }
    if (mr_sql_true(mr_pg_result_value(state, 0, MR_SLOT_TWO_PHASE))) {
        WARN(check, subject, "make the slot without two_phase",
             "was made with two_phase, which millrace does not read");
    }
}

static void check_slot(const struct pg_check *check, const struct mr_pg_result *state)
{
    char subject[300], remedy[TEXT_MAX];
    snprintf(subject, sizeof(subject), "slot %s", check->options->slot);
    if (mr_pg_result_value(state, 0, MR_SLOT_TYPE) != NULL) {
        check_existing_slot(check, state, subject);
    } else if (check->options->create_slot) {
        OK(check, subject, "does not exist; will be created, and the stream begins there");
    } else {
        snprintf(remedy, sizeof(remedy),
                 "SELECT pg_create_logical_replication_slot('%s', 'pgoutput')",
                 check->options->slot);
        BAD(check, MR_ERR_CONFIG, subject, remedy, "does not exist, and create_slot is false");
    }
}

/* ---- failover ---- */

/* A standby that must be ahead of us. While it is away, the server sends nothing. */
static void check_standby_slot(const struct pg_check *check, const struct mr_pg_result *slots,
                               int row)
{
    const char *name = mr_pg_result_value(slots, row, 0);
    char subject[300];
    snprintf(subject, sizeof(subject), "standby slot %s", name);
    const char *active = mr_pg_result_value(slots, row, 1);
    if (active == NULL) {
        WARN(check, subject,
             "make it (pg_create_physical_replication_slot), or take it out of "
             "synchronized_standby_slots",
             "does not exist: the server sends nothing until it does");
    } else if (!mr_sql_true(active)) {
        WARN(check, subject, "start its standby, or take it out of synchronized_standby_slots",
             "is used by no standby now: the server sends nothing until it is");
    } else if (mr_pg_result_value(slots, row, 2) == NULL) {
        WARN(check, subject,
             "set hot_standby_feedback = on and sync_replication_slots = on at the "
             "standby, with primary_slot_name and a dbname in primary_conninfo",
             "its standby holds back no rows (hot_standby_feedback is off): it can't keep a copy "
             "of the slot");
    } else {
        OK(check, subject, "its standby follows");
    }
}

static void check_standby_slots(const struct pg_check *check, const char *names)
{
    if (names[0] == '\0') {
        WARN(check, "synchronized_standby_slots",
             "ALTER SYSTEM SET synchronized_standby_slots = '<physical slot of the standby>'; "
             "SELECT pg_reload_conf()",
             "empty: events may be delivered that the standby does not have yet; if it is promoted "
             "then, millrace ends with exit code 10");
        return;
    }
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT w.name, s.active, s.xmin FROM"
                         " (SELECT btrim(name, ' \"') AS name FROM unnest(string_to_array(");
    mr_sql_add_literal(&sql, check->conn, names);
    mr_text_format(&sql, ", ',')) name) w"
                         " LEFT JOIN pg_replication_slots s ON s.slot_name = w.name"
                         " AND s.slot_type = 'physical'");
    struct mr_pg_result *slots = ask(check, "synchronized_standby_slots", &sql);
    for (int row = 0; slots != NULL && row < mr_pg_result_rows(slots); row++) {
        check_standby_slot(check, slots, row);
    }
    mr_pg_result_free(slots);
}

static void check_failover(const struct pg_check *check, const struct mr_pg_result *state)
{
    const char *failover = mr_pg_result_value(state, 0, MR_SLOT_FAILOVER);
    const char *standbys = mr_pg_result_value(state, 0, MR_SERVER_STANDBY_SLOTS);
    if (!check->options->failover && !mr_sql_true(failover)) {
        return;
    }
    if (standbys == NULL) {
        WARN(check, "failover", "upgrade PostgreSQL to 17 or later",
             "standbys of this version keep no copy of the slot: after a promotion it is gone");
        return;
    }
    if (failover == NULL) {
        OK(check, "failover", "the slot will be made with FAILOVER");
    } else if (!mr_sql_true(failover)) {
        OK(check, "failover", "the slot lacks FAILOVER and will be given it at the start");
    } else {
        OK(check, "failover", "the slot has FAILOVER%s",
           mr_sql_true(mr_pg_result_value(state, 0, MR_SLOT_SYNCED))
               ? "; it was copied from another server"
               : "");
    }
    check_standby_slots(check, standbys);
}

/* ---- all of it ---- */

static void check_replication_connection(const struct pg_check *check)
{
    struct mr_pg_conn *conn = NULL;
    struct mr_error error;
    if (mr_pg_connect(&check->options->connection, true, -1, &conn, &error) != MR_OK) {
        BAD(check, error.status, "replication connection", NULL, "%s", error.text);
    } else {
        OK(check, "replication connection", "accepted");
    }
    mr_pg_close(conn);
}

static void check_all(const struct pg_check *check)
{
    check_version(check);
    struct mr_text sql = {0};
    mr_sql_add_server_state(&sql, check->conn, check->options);
    struct mr_pg_result *state = ask(check, "server", &sql);
    if (state == NULL) {
        return;
    }
    bool publication_exists = mr_pg_result_value(state, 0, MR_PUBLICATION_OWNER) != NULL;
    check_wal_level(check, state);
    check_encoding(check, state);
    check_limits(check, mr_pg_result_value(state, 0, MR_SLOT_TYPE) != NULL,
                 mr_pg_result_value(state, 0, MR_SLOT_PID) != NULL);
    check_role(check, publication_exists);
    check_publication(check, state);
    check_tables(check, publication_exists);
    check_slot(check, state);
    check_failover(check, state);
    check_replication_connection(check);
    mr_pg_result_free(state);
}

void mr_pg_check(const struct mr_pg_source_options *options, mr_finding_fn report, void *context)
{
    struct pg_check check = {.options = options, .report = report, .context = context};
    struct mr_error error;
    if (mr_pg_connect(&options->connection, false, -1, &check.conn, &error) != MR_OK) {
        BAD(&check, error.status, "PostgreSQL", NULL, "%s", error.text);
        return;
    }
    check_all(&check);
    mr_pg_close(check.conn);
}
