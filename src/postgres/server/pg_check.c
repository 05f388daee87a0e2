/* `millrace check`, PostgreSQL's part: the rules of pg_rules.c, and what only a person needs to know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/server/pg_check_keys.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_publication.h"
#include "postgres/server/pg_setup.h"

enum { TEXT_MAX = 1024, SENDER_TIMEOUT_MIN_MS = 10000, STANDBYS_MAX = 1000 };

struct pg_check {
    struct mr_pg_conn *conn;
    const struct mr_pg_source_options *options;
    const struct mr_pg_facts *facts;
    struct mr_pg_reporter to;
    const struct mr_checkpoint *stored; /* NULL: nothing is */
};

#define OK(check, subject, ...) MR_FOUND_OK(&(check)->to, (subject), __VA_ARGS__)
#define WARN(check, subject, remedy, ...)                                                          \
    MR_FOUND_WARNING(&(check)->to, (subject), (remedy), __VA_ARGS__)
#define BAD(check, status, subject, remedy, ...)                                                   \
    MR_FOUND_ERROR(&(check)->to, (status), (subject), (remedy), __VA_ARGS__)

/* NULL, with a finding, when the query fails. */
static struct mr_pg_result *ask(const struct pg_check *check, const char *subject,
                                const struct mr_pg_shape *shape, struct mr_text *sql)
{
    struct mr_pg_result *result;
    struct mr_error error;
    if (mr_pg_query(check->conn, sql, shape, &result, &error) != MR_OK) {
        BAD(check, error.status, subject, NULL, "%s", error.text);
        return NULL;
    }
    return result;
}

/* ---- server ---- */

/* The first minor of each major version that is free of the known ways in which logical decoding lost
 * changes: stale catalog after concurrent DDL (fixed in 15.13 and its siblings), restart or confirmed
 * positions going back and WAL removed too early (up to 15.14 and its siblings). */
static const struct {
    int major;
    int good_minor;
} known_bugs[] = {{14, 19}, {15, 14}, {16, 10}, {17, 6}};

static void check_version(const struct pg_check *check)
{
    int version = mr_pg_server_version(check->conn);
    int major = version / 10000;
    int minor = version % 10000;
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

static void check_encoding(const struct pg_check *check)
{
    const char *encoding = mr_pg_fact(check->facts, MR_SERVER_ENCODING);
    if (strcmp(encoding, "SQL_ASCII") == 0) {
        WARN(check, "encoding",
             "keep to UTF-8 in all text of the captured tables, or choose with invalid_utf8",
             "SQL_ASCII: what becomes of text that is not UTF-8 is for invalid_utf8 to say; as it "
             "stands by default, it ends the stream");
    } else {
        OK(check, "encoding", "%s", encoding);
    }
}

static void check_room(const struct pg_check *check, const char *subject, int64_t used,
                       int64_t most, bool needs_one)
{
    char remedy[128];
    snprintf(remedy, sizeof(remedy), "ALTER SYSTEM SET %s = %llu; then restart PostgreSQL", subject,
             (unsigned long long)most + 5);
    if (used >= most && needs_one) {
        BAD(check, MR_ERR_CONFIG, subject, remedy, "all %lld are in use", (long long)most);
    } else {
        OK(check, subject, "%lld of %lld in use", (long long)used, (long long)most);
    }
}

static void check_limits(const struct pg_check *check)
{
    static const struct mr_pg_shape shape = {"its limits", "nnnnnn", 1, 1};
    struct mr_text sql = {0};
    mr_text_string(
        &sql, "SELECT (SELECT count(*) FROM pg_replication_slots),"
              " current_setting('max_replication_slots'),"
              " (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders'),"
              " (SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),"
              " (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout')");
    struct mr_pg_result *limits = ask(check, "limits", &shape, &sql);
    if (limits == NULL) {
        return;
    }
    check_room(check, "max_replication_slots", mr_pg_result_number(limits, 0, 0),
               mr_pg_result_number(limits, 0, 1), !mr_pg_slot_exists(check->facts));
    check_room(check, "max_wal_senders", mr_pg_result_number(limits, 0, 2),
               mr_pg_result_number(limits, 0, 3), mr_pg_fact(check->facts, MR_SLOT_PID) == NULL);
    int64_t keep = mr_pg_result_number(limits, 0, 4);
    if (keep < 0) {
        WARN(check, "max_slot_wal_keep_size",
             "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' (what the disk can spare)",
             "unlimited: a slot that nobody reads fills the disk");
    } else {
        OK(check, "max_slot_wal_keep_size", "%lld MB", (long long)keep);
    }
    int64_t timeout_ms = mr_pg_result_number(limits, 0, 5);
    if (timeout_ms > 0 && timeout_ms < SENDER_TIMEOUT_MIN_MS) {
        WARN(check, "wal_sender_timeout", "ALTER SYSTEM SET wal_sender_timeout = '60s'",
             "%lld ms: a short pause of either side ends the stream", (long long)timeout_ms);
    }
    mr_pg_result_free(limits);
}

/* ---- role ---- */

/* Amazon RDS gives the right to replicate by membership, not by the attribute. */
static void check_role(const struct pg_check *check)
{
    static const struct mr_pg_shape shape = {"the role", "bbb", 1, 1};
    struct mr_text sql = {0};
    mr_text_string(&sql, "SELECT rolsuper, rolreplication OR EXISTS (SELECT FROM pg_roles m WHERE"
                         " m.rolname = 'rds_replication' AND pg_has_role(m.oid, 'MEMBER')),"
                         " has_database_privilege(current_database(), 'CREATE')"
                         " FROM pg_roles WHERE rolname = current_user");
    struct mr_pg_result *role = ask(check, "role", &shape, &sql);
    if (role == NULL) {
        return;
    }
    const char *name = mr_pg_user(check->conn);
    char remedy[TEXT_MAX];
    bool super = mr_pg_result_true(role, 0, 0);
    if (!super && !mr_pg_result_true(role, 0, 1)) {
        snprintf(remedy, sizeof(remedy),
                 "ALTER ROLE \"%s\" REPLICATION (Amazon RDS: GRANT rds_replication TO \"%s\")",
                 name, name);
        BAD(check, MR_ERR_AUTH, "role", remedy, "\"%s\" may not replicate", name);
    } else if (super) {
        WARN(check, "role", "use a role with LOGIN REPLICATION and SELECT on the tables",
             "\"%s\" is a superuser, which is more than millrace needs", name);
    } else {
        OK(check, "role", "\"%s\" may replicate", name);
    }
    if (!mr_pg_publication_exists(check->facts) && check->options->create_publication && !super &&
        !mr_pg_result_true(role, 0, 2)) {
        snprintf(remedy, sizeof(remedy),
                 "GRANT CREATE ON DATABASE \"%s\" TO \"%s\" and make it owner of the tables, or "
                 "create the publication yourself",
                 check->facts->database, name);
        BAD(check, MR_ERR_AUTH, "role", remedy, "\"%s\" may not create the publication", name);
    }
    mr_pg_result_free(role);
}

/* ---- failover ---- */

/* A standby that must be ahead of us. While it is away, the server sends nothing. */
static void check_standby_slot(const struct pg_check *check, const struct mr_pg_result *slots,
                               uint32_t row)
{
    const char *name = mr_pg_result_value(slots, row, 0);
    char subject[300];
    snprintf(subject, sizeof(subject), "standby slot %s", name);
    if (mr_pg_result_value(slots, row, 1) == NULL) {
        WARN(check, subject,
             "make it (pg_create_physical_replication_slot), or take it out of "
             "synchronized_standby_slots",
             "does not exist: the server sends nothing until it does");
    } else if (!mr_pg_result_true(slots, row, 1)) {
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
    static const struct mr_pg_shape shape = {"the slots of standbys", "sBN", 0, STANDBYS_MAX};
    struct mr_text sql = {0};
    mr_text_string(&sql, "SELECT w.name, s.active, s.xmin::text::bigint FROM"
                         " (SELECT btrim(name, ' \"') AS name FROM unnest(string_to_array(");
    mr_sql_add_literal(&sql, names);
    mr_text_string(&sql, ", ',')) name) w"
                         " LEFT JOIN pg_replication_slots s ON s.slot_name = w.name"
                         " AND s.slot_type = 'physical'");
    struct mr_pg_result *slots = ask(check, "synchronized_standby_slots", &shape, &sql);
    for (uint32_t row = 0; slots != NULL && row < mr_pg_result_rows(slots); row++) {
        check_standby_slot(check, slots, row);
    }
    mr_pg_result_free(slots);
}

static void check_failover(const struct pg_check *check)
{
    const struct mr_pg_result *server = check->facts->server;
    const char *standbys = mr_pg_fact(check->facts, MR_SERVER_STANDBY_SLOTS);
    bool has_failover = mr_pg_result_true(server, 0, MR_SLOT_FAILOVER);
    if (!check->options->failover && !has_failover) {
        return;
    }
    if (standbys == NULL) {
        WARN(check, "failover", "upgrade PostgreSQL to 17 or later",
             "standbys of this version keep no copy of the slot: after a promotion it is gone");
        return;
    }
    if (!mr_pg_slot_exists(check->facts)) {
        OK(check, "failover", "the slot will be made with FAILOVER");
    } else if (!has_failover) {
        OK(check, "failover", "the slot lacks FAILOVER and will be given it at the start");
    } else {
        OK(check, "failover", "the slot has FAILOVER%s",
           mr_pg_result_true(server, 0, MR_SLOT_SYNCED) ? "; it was copied from another server"
                                                        : "");
    }
    check_standby_slots(check, standbys);
}

/* ---- all of it ---- */

/* Such a gap no copy mends: it is a wrong connection (find_gap in stream/pg_source.c). */
static bool is_of_other_cluster(const struct pg_check *check, struct mr_pg_conn *conn)
{
    struct mr_identity now;
    return check->stored != NULL && check->options->copies == MR_COPIES_WHEN_NEEDED &&
           mr_pg_identity(conn, check->options, &now, NULL) == MR_OK &&
           strcmp(now.system_id, check->stored->identity.system_id) != 0;
}

/* Whether the stream can go on where it was, or begin: what a start decides (mr_checkpoint_verify, mr_pg_copies_now). */
static void check_beginning(const struct pg_check *check, struct mr_pg_conn *conn)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "slot \"%s\"", check->options->slot);
    struct mr_identity identity;
    struct mr_error error = {0};
    mr_status status = mr_pg_identify(conn, check->options, check->stored, 0, &identity, &error);
    bool is_gap = status == MR_ERR_HISTORY;
    struct mr_pg_stream_state state = mr_pg_stream_state_of(check->stored, check->options);
    state.gap = is_gap ? error.text : NULL;
    bool was_begun = mr_pg_fact(check->facts, MR_SLOT_COPIES) != NULL;
    if (status != MR_OK && (!is_gap || is_of_other_cluster(check, conn))) {
        BAD(check, status, subject, NULL, "%s", error.text);
    } else if (mr_pg_copies_now(check->facts, &state, was_begun)) {
        OK(check, subject, "%s",
           was_begun ? "the copy of existing rows that was begun goes on"
                     : "is made anew, and existing rows are copied");
    } else if (is_gap) {
        BAD(check, status, subject, NULL, "%s", error.text);
    } else if (!mr_pg_slot_exists(check->facts) && check->options->create_slot) {
        OK(check, subject, "will be created, and the stream begins there");
    }
}

static void check_replication_connection(const struct pg_check *check)
{
    struct mr_pg_conn *conn = NULL;
    struct mr_error error;
    if (mr_pg_connect(&check->options->connection, true, -1, &conn, &error) != MR_OK) {
        BAD(check, error.status, "replication connection", NULL, "%s", error.text);
    } else {
        OK(check, "replication connection", "accepted");
        check_beginning(check, conn);
    }
    mr_pg_close(conn);
}

static void check_copy(const struct pg_check *check)
{
    struct mr_error error;
    if (mr_pg_rules_of_copy(check->conn, check->options, check->to.report, check->to.context,
                            &error) != MR_OK) {
        BAD(check, error.status, "existing rows", NULL, "%s", error.text);
    }
}

static void check_keys(const struct pg_check *check)
{
    struct mr_error error;
    if (mr_pg_check_keys(check->conn, check->options, check->to.report, check->to.context,
                         &error) != MR_OK) {
        BAD(check, error.status, "keys", NULL, "%s", error.text);
    }
}

static void check_publication(const struct pg_check *check)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "publication \"%s\"", check->options->publication);
    struct mr_error error;
    if (mr_pg_publication_describe(check->conn, check->facts, check->to.report, check->to.context,
                                   &error) != MR_OK ||
        mr_pg_publication_follow(check->conn, check->facts, false, check->to.report,
                                 check->to.context, &error) != MR_OK) {
        BAD(check, error.status, subject, NULL, "%s", error.text);
    }
}

static void check_owner(const struct pg_check *check)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "slot \"%s\"", check->options->slot);
    struct mr_pg_owner owner;
    struct mr_error error;
    if (mr_pg_find_owner(check->conn, check->options, &owner, &error) != MR_OK) {
        BAD(check, error.status, subject, NULL, "%s", error.text);
    } else if (owner.exists && !owner.may_replicate) {
        char remedy[64];
        snprintf(remedy, sizeof(remedy), "SELECT pg_terminate_backend(%u)", (unsigned)owner.pid);
        WARN(check, subject, remedy,
             "role \"%s\" holds the advisory lock that says who streams, and may not replicate: "
             "millrace would wait for it",
             owner.role);
    } else if (owner.exists && owner.is_same_pipeline) {
        OK(check, subject, "is in use by this pipeline (%s); another instance stands by",
           owner.who);
    } else if (owner.exists) {
        BAD(check, MR_ERR_CONFIG, subject,
            "choose another slot_name, or, for a standby, configure both alike",
            "is in use by another pipeline (%s), which differs in topic_prefix, tables, sink, "
            "state_name or publication_name",
            owner.who);
    }
}

static void check_all(struct pg_check *check)
{
    struct mr_pg_facts facts;
    struct mr_error error;
    if (mr_pg_facts_read(check->conn, check->options, &facts, &error) != MR_OK) {
        BAD(check, error.status, "server", NULL, "%s", error.text);
        return;
    }
    check->facts = &facts;
    facts.slot_is_replaced = mr_pg_replaces_slot(check->options->copies);
    facts.slot_is_judged = true;
    facts.tables_are_known = mr_pg_stream_state_of(check->stored, check->options).tables_are_known;
    check_version(check);
    check_encoding(check);
    mr_pg_rules(&facts, check->to.report, check->to.context);
    check_keys(check);
    if (mr_pg_rules_of_patterns(check->conn, check->options, check->to.report, check->to.context,
                                &error) != MR_OK) {
        BAD(check, error.status, "patterns in \"tables\"", NULL, "%s", error.text);
    }
    check_limits(check);
    check_role(check);
    check_owner(check);
    check_publication(check);
    check_copy(check);
    check_failover(check);
    check_replication_connection(check);
    mr_pg_facts_done(&facts);
}

void mr_pg_check(const struct mr_pg_source_options *options, const struct mr_checkpoint *stored,
                 mr_finding_fn report, void *context)
{
    struct pg_check check = {
        .options = options, .stored = stored, .to = {.report = report, .context = context}};
    struct mr_error error;
    if (mr_pg_connect(&options->connection, false, -1, &check.conn, &error) != MR_OK) {
        BAD(&check, error.status, "PostgreSQL", NULL, "%s", error.text);
        return;
    }
    check_all(&check);
    mr_pg_close(check.conn);
}

static mr_status check_change(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_table_name *added, uint32_t added_count,
                              mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    bool standby;
    MR_TRY(mr_pg_has_standby(conn, options, &standby, ret_error));
    if (standby) {
        return mr_fail(ret_error, MR_AGAIN,
                       "another instance stands by, and could take the stream over with the old "
                       "tables: stop that one, reload, and start it again");
    }
    struct mr_pg_facts facts;
    MR_TRY(mr_pg_facts_read(conn, options, &facts, ret_error));
    mr_pg_rules_of_change(&facts, added, added_count, report, context);
    mr_pg_facts_done(&facts);
    return MR_OK;
}

static mr_status change_publication(struct mr_pg_conn *conn,
                                    const struct mr_pg_source_options *options, bool change,
                                    mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    struct mr_pg_facts facts;
    MR_TRY(mr_pg_facts_read(conn, options, &facts, ret_error));
    facts.is_reload = true;
    mr_status status = mr_pg_publication_follow(conn, &facts, change, report, context, ret_error);
    mr_pg_facts_done(&facts);
    return status;
}

mr_status mr_pg_change_publication(const struct mr_pg_source_options *options, bool change,
                                   int stop_fd, mr_finding_fn report, void *context,
                                   struct mr_error *ret_error)
{
    struct mr_pg_conn *conn;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &conn, ret_error));
    mr_status status = change_publication(conn, options, change, report, context, ret_error);
    mr_pg_close(conn);
    return status;
}

mr_status mr_pg_check_change(const struct mr_pg_source_options *options,
                             const struct mr_table_name *added, uint32_t added_count, int stop_fd,
                             mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    struct mr_pg_conn *conn;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &conn, ret_error));
    mr_status status = check_change(conn, options, added, added_count, report, context, ret_error);
    mr_pg_close(conn);
    return status;
}
