/* `millrace check`, PostgreSQL's part: the rules of pg_rules.c, and what only a person needs to
 * know. */

#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_copying.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_rules.h"
#include "postgres/server/pg_setup.h"
#include "postgres/server/pg_slot.h"

enum { SENDER_TIMEOUT_MIN_MS = 10000, STANDBYS_MAX = 1000, MB = 1024 * 1024 };
#define UNLIMITED_LEAST (INT64_C(10) * 1024 * MB)

/* The first minor of each major version that is free of the known ways in which logical decoding
 * lost changes: stale catalog after concurrent DDL (fixed in 15.13 and its siblings), restart or
 * confirmed positions going back and WAL removed too early (up to 15.14 and its siblings). */
static const struct {
    int major;
    int good_minor;
} known_bugs[] = {{14, 19}, {15, 14}, {16, 10}, {17, 6}};

static mr_status check_version(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                               struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    int major = facts->version / 10000;
    int minor = facts->version % 10000;
    for (size_t i = 0; i < MR_ARRAY_LEN(known_bugs); i++) {
        if (known_bugs[i].major == major && minor < known_bugs[i].good_minor) {
            mr_pg_remedy(to, "upgrade to %u.%u or later", major, known_bugs[i].good_minor);
            MR_FOUND_WARNING(to, "version %d.%d has known bugs that can lose changes", major,
                             minor);
            return MR_OK;
        }
    }
    MR_FOUND_OK(to, "version %d.%d, database %s, role %s, TLS %s", major, minor,
                mr_pg_database(conn), mr_pg_user(conn), mr_pg_uses_tls(conn) ? "on" : "off");
    return MR_OK;
}

/* A pooler answers the login itself, with a process number of its own (the key of a cancel
 * request). */
static mr_status check_pooler(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    if (mr_pg_result_number(facts->server, 0, MR_SERVER_PROCESS) != facts->process) {
        mr_pg_remedy(to, "if it is a pooler, connect to PostgreSQL itself, docs/postgresql.md");
        MR_FOUND_WARNING(to, "goes through a pooler or a proxy: the login named another process "
                             "than the one that answers");
    }
    return MR_OK;
}

/* Pgpool-II names the server's own process, but is another client of it, and has a statement of its
 * own (its manual, "SHOW POOL_VERSION"). PostgreSQL logs that as an error: so it is asked only
 * where the server knows this client by another port. Tried with 4.3.5: START_REPLICATION reaches
 * the server, and no answer comes back. */
static mr_status check_pgpool(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                              struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"a version of Pgpool-II", "s", 1, 1};
    const struct mr_pg_result *result;
    int64_t port;
    (void)facts;
    MR_TRY(mr_pg_ask_number(conn, "the port of its client", 'n', &port, ret_error,
                            "SELECT greatest(inet_client_port(), 0)"));
    if (port != mr_pg_local_port(conn) &&
        mr_pg_askf(conn, &shape, &result, NULL, "SHOW pool_version") == MR_OK) {
        mr_pg_remedy(to, "connect to PostgreSQL itself, docs/postgresql.md");
        MR_FOUND_ERROR(to, MR_ERR_CONFIG,
                       "goes through a pooler, Pgpool-II %s, which does not pass the stream",
                       mr_pg_result_value(result, 0, 0));
    }
    return MR_OK;
}

static mr_status check_encoding(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    const char *encoding = mr_pg_fact(facts, MR_SERVER_ENCODING);
    if (strcmp(encoding, "SQL_ASCII") == 0) {
        mr_pg_remedy(to, "keep to UTF-8 in all text of the captured tables, or choose with "
                         "invalid_utf8");
        MR_FOUND_WARNING(to, "SQL_ASCII: text that is not UTF-8 ends the stream, unless "
                             "invalid_utf8 says otherwise");
    } else {
        MR_FOUND_OK(to, "%s", encoding);
    }
    return MR_OK;
}

static void check_room(struct mr_pg_reporter *to, const char *setting, int64_t used, int64_t most,
                       bool needs_one)
{
    mr_pg_about(to, "%s", setting);
    if (used >= most && needs_one) {
        mr_pg_remedy(to, "ALTER SYSTEM SET %s = %u; then restart PostgreSQL", setting,
                     (unsigned)most + 5);
        MR_FOUND_ERROR(to, MR_ERR_CONFIG, "all %lld are in use", (long long)most);
    } else {
        MR_FOUND_OK(to, "%lld of %lld in use", (long long)used, (long long)most);
    }
}

/* What another slot keeps counts too: the limit is the server's. */
static void check_slot_limit(struct mr_pg_reporter *to, int64_t limit_bytes, int64_t kept_bytes)
{
    bool is_near = limit_bytes >= 0 && kept_bytes > limit_bytes / 2;
    mr_pg_about(to, "max_slot_wal_keep_size");
    if (limit_bytes < 0) {
        int64_t least = kept_bytes > UNLIMITED_LEAST / 2 ? kept_bytes : UNLIMITED_LEAST / 2;
        mr_pg_remedy(to,
                     "if the disk has twice as much free, %s or more of it: what slots keep above "
                     "the limit is lost",
                     mr_slot_raise(least, (uint64_t)least).text);
        MR_FOUND_WARNING(to,
                         "unlimited: a slot without a reader fills the disk; slots keep %lld MB",
                         (long long)kept_bytes / MB);
    } else if (is_near) {
        mr_pg_remedy(to, "if the disk has room for it, %s",
                     mr_slot_raise(limit_bytes, (uint64_t)kept_bytes).text);
        MR_FOUND_WARNING(to, "%lld MB, and a slot keeps %lld MB", (long long)limit_bytes / MB,
                         (long long)kept_bytes / MB);
    } else {
        MR_FOUND_OK(to, "%lld MB, and slots keep at most %lld MB", (long long)limit_bytes / MB,
                    (long long)kept_bytes / MB);
    }
}

static mr_status pg_check_limits(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                 struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its limits", "nnnnnnn", 1, 1};
    const struct mr_pg_result *limits;
    MR_TRY(mr_pg_askf(
        conn, &shape, &limits, ret_error,
        "SELECT (SELECT count(*) FROM pg_replication_slots),"
        " current_setting('max_replication_slots'),"
        " (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders'),"
        " pg_size_bytes(current_setting('max_slot_wal_keep_size')),"
        " (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'),"
        " (SELECT coalesce(max(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
        " ELSE pg_current_wal_lsn() END - restart_lsn), 0)::bigint FROM pg_replication_slots)"));
    check_room(to, "max_replication_slots", mr_pg_result_number(limits, 0, 0),
               mr_pg_result_number(limits, 0, 1), !mr_pg_slot_exists(facts));
    check_room(to, "max_wal_senders", mr_pg_result_number(limits, 0, 2),
               mr_pg_result_number(limits, 0, 3), mr_pg_fact(facts, MR_SLOT_PID) == NULL);
    check_slot_limit(to, mr_pg_result_number(limits, 0, 4), mr_pg_result_number(limits, 0, 6));
    int64_t timeout_ms = mr_pg_result_number(limits, 0, 5);
    if (timeout_ms > 0 && timeout_ms < SENDER_TIMEOUT_MIN_MS) {
        mr_pg_about(to, "wal_sender_timeout");
        mr_pg_remedy(to, "ALTER SYSTEM SET wal_sender_timeout = '60s'");
        MR_FOUND_WARNING(to, "%lld ms: a short pause of either side ends the stream",
                         (long long)timeout_ms);
    }
    return MR_OK;
}

/* What a start would make, or draft (pg_publication.c), is a write; a slot is none. Of a standby
 * its own rules tell. */
static void check_writes(const struct mr_pg_facts *facts, const char *name, bool is_read_only,
                         struct mr_pg_reporter *to)
{
    const struct mr_pg_captured_options *captured = &facts->options->captured;
    bool makes = !mr_pg_publication_exists(facts) && facts->options->create_publication;
    bool drafts = captured->alter_publication || captured->published_count > 0;
    if (is_read_only && !facts->is_standby && (makes || drafts)) {
        mr_pg_about(to, "default_transaction_read_only");
        mr_pg_remedy(to, "ALTER ROLE %I IN DATABASE %I SET default_transaction_read_only = off",
                     name, facts->database);
        MR_FOUND_ERROR(to, MR_ERR_CONFIG, "is on, so the publication can't be made or altered");
    }
}

/* Amazon RDS gives the right to replicate by membership, not by the attribute. */
static mr_status pg_check_role(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                               struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the role", "bbbb", 1, 1};
    const struct mr_pg_result *role;
    MR_TRY(mr_pg_askf(conn, &shape, &role, ret_error,
                      "SELECT rolsuper, rolreplication OR EXISTS (SELECT FROM pg_roles m WHERE"
                      " m.rolname = 'rds_replication' AND pg_has_role(m.oid, 'MEMBER')),"
                      " has_database_privilege(current_database(), 'CREATE'),"
                      " current_setting('default_transaction_read_only') = 'on'"
                      " FROM pg_roles WHERE rolname = current_user"));
    const char *name = mr_pg_user(conn);
    bool super = mr_pg_result_true(role, 0, 0);
    if (!super && !mr_pg_result_true(role, 0, 1)) {
        mr_pg_remedy(to, "ALTER ROLE %I REPLICATION (Amazon RDS: GRANT rds_replication TO %I)",
                     name, name);
        MR_FOUND_ERROR(to, MR_ERR_AUTH, "\"%s\" may not replicate", name);
    } else if (super) {
        mr_pg_remedy(to, "use a role with LOGIN REPLICATION and SELECT on the tables");
        MR_FOUND_WARNING(to, "\"%s\" is a superuser, which is more than millrace needs", name);
    } else {
        MR_FOUND_OK(to, "\"%s\" may replicate", name);
    }
    check_writes(facts, name, mr_pg_result_true(role, 0, 3), to);
    /* With a slot it is not made: the publication's own finding has the statement as it was. */
    bool makes_it =
        facts->options->create_publication && !facts->is_standby && !mr_pg_slot_exists(facts);
    if (!mr_pg_publication_exists(facts) && makes_it && !super && !mr_pg_result_true(role, 0, 2)) {
        mr_pg_remedy(to,
                     "GRANT CREATE ON DATABASE %I TO %I and make it owner of the tables, "
                     "or create the publication yourself: CREATE PUBLICATION %I",
                     facts->database, name, facts->options->publication);
        mr_pg_publication_add_rest(&to->remedy, facts->options, facts->version, NULL);
        MR_FOUND_ERROR(to, MR_ERR_AUTH, "\"%s\" may not create the publication", name);
    }
    return MR_OK;
}

/* A standby that must be ahead of us. While it is away, the server sends nothing. */
static void check_standby_slot(struct mr_pg_reporter *to, const struct mr_pg_result *slots,
                               uint32_t row)
{
    mr_pg_about(to, "standby slot %s", mr_pg_result_value(slots, row, 0));
    if (mr_pg_result_value(slots, row, 1) == NULL) {
        mr_pg_remedy(to, "make it (pg_create_physical_replication_slot), or take it out of "
                         "synchronized_standby_slots");
        MR_FOUND_WARNING(to, "does not exist: the server sends nothing until it does");
    } else if (!mr_pg_result_true(slots, row, 1)) {
        mr_pg_remedy(to, "start its standby, or take it out of synchronized_standby_slots");
        MR_FOUND_WARNING(to, "is used by no standby now: the server sends nothing until it is");
    } else if (mr_pg_result_value(slots, row, 2) == NULL) {
        mr_pg_remedy(to, "set hot_standby_feedback = on and sync_replication_slots = on at the "
                         "standby, with primary_slot_name and a dbname in primary_conninfo");
        MR_FOUND_WARNING(to, "its standby holds back no rows (hot_standby_feedback is off): it "
                             "can't keep a copy of the slot");
    } else {
        MR_FOUND_OK(to, "its standby follows");
    }
}

static mr_status check_standby_slots(struct mr_pg_conn *conn, const char *names,
                                     struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    mr_pg_about(to, "synchronized_standby_slots");
    if (names[0] == '\0') {
        mr_pg_remedy(to, "ALTER SYSTEM SET synchronized_standby_slots = '<physical slot of the "
                         "standby>'; SELECT pg_reload_conf()");
        MR_FOUND_WARNING(to, "empty: events may be delivered that the standby does not have yet; "
                             "if it is promoted then, millrace ends with exit code 10");
        return MR_OK;
    }
    static const struct mr_pg_shape shape = {"the slots of standbys", "sBN", 0, STANDBYS_MAX};
    const struct mr_pg_result *slots;
    MR_TRY(mr_pg_askf(conn, &shape, &slots, ret_error,
                      "SELECT w.name, s.active, s.xmin::text::bigint FROM"
                      " (SELECT btrim(name, ' \"') AS name FROM unnest(string_to_array(%L, ','))"
                      " name) w LEFT JOIN pg_replication_slots s ON s.slot_name = w.name"
                      " AND s.slot_type = 'physical'",
                      names));
    for (uint32_t row = 0; row < mr_pg_result_rows(slots); row++) {
        check_standby_slot(to, slots, row);
    }
    return MR_OK;
}

static void pg_check_copies(const struct mr_pg_facts *facts, struct mr_pg_reporter *to)
{
    struct mr_slot_copy copies[MR_SLOT_COPIES_MAX];
    uint32_t count = 0;
    mr_status status =
        mr_pg_look_at_copies(&facts->options->connection, facts->options->slot, -1, copies, &count);
    for (uint32_t i = 0; status == MR_OK && i < count; i++) {
        const char *reason = copies[i].reason;
        mr_pg_about(to, "standby at %s", copies[i].host);
        if (copies[i].state == MR_SLOT_COPY_READY) {
            MR_FOUND_OK(to, "has a copy of the slot, which lasts after a promotion");
            continue;
        }
        mr_pg_remedy(to, "docs/runbook.md, MillraceSlotCopy, says what each state means");
        MR_FOUND_WARNING(to,
                         "has no copy of the slot that lasts (%s%s%s): if it is promoted now, the "
                         "stream can't go on",
                         mr_slot_copy_state_name(copies[i].state), reason[0] == '\0' ? "" : ", ",
                         reason);
    }
}

static mr_status check_failover(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    const char *standbys = mr_pg_fact(facts, MR_SERVER_STANDBY_SLOTS);
    bool has_failover = mr_pg_result_true(facts->server, 0, MR_SLOT_FAILOVER);
    bool is_copy = mr_pg_result_true(facts->server, 0, MR_SLOT_SYNCED);
    if ((!facts->options->failover && !has_failover) || facts->is_standby) {
        return MR_OK;
    }
    if (standbys == NULL) {
        mr_pg_remedy(to, "upgrade PostgreSQL to 17 or later");
        MR_FOUND_WARNING(
            to, "standbys of this version keep no copy of the slot: after a promotion it is gone");
        return MR_OK;
    }
    MR_FOUND_OK(to, "the slot %s",
                !mr_pg_slot_exists(facts) ? "will be made with FAILOVER"
                : !has_failover           ? "lacks FAILOVER and will be given it at the start"
                : is_copy                 ? "has FAILOVER; it was copied from another server"
                                          : "has FAILOVER");
    pg_check_copies(facts, to);
    return check_standby_slots(conn, standbys, to, ret_error);
}

static mr_status check_owner(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                             struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    struct mr_pg_owner owner;
    MR_TRY(mr_pg_find_owner(conn, facts->options, &owner, ret_error));
    if (owner.exists && !owner.may_replicate) {
        mr_pg_remedy(to, "SELECT pg_terminate_backend(%u)", (unsigned)owner.pid);
        MR_FOUND_WARNING(to,
                         "role \"%s\" holds the advisory lock that says who streams, and may not "
                         "replicate: millrace would wait for it",
                         owner.role);
    } else if (owner.exists && owner.is_same_pipeline) {
        MR_FOUND_OK(to, "is in use by this pipeline (%s); another instance stands by", owner.who);
    } else if (owner.exists && facts->options->handover_ms > 0) {
        MR_FOUND_OK(to,
                    "is in use by an instance with another configuration (%s); this one waits "
                    "for it to end",
                    owner.who);
    } else if (owner.exists) {
        mr_pg_remedy(to, "choose another slot_name, or, for a standby, configure both alike");
        MR_FOUND_ERROR(to, MR_ERR_CONFIG,
                       "is in use by another pipeline (%s), which differs in topic_prefix, tables, "
                       "sink, state_name or publication_name",
                       owner.who);
    }
    return MR_OK;
}

/* Such a gap no copy mends: it is a wrong connection (find_gap in copy/pg_server.c). */
static bool is_of_other_cluster(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                                const struct mr_checkpoint *stored)
{
    struct mr_identity now;
    return stored != NULL && mr_pg_mends_gap(options->copies) &&
           mr_pg_identity(conn, options, &now, NULL) == MR_OK &&
           strcmp(now.system_id, stored->identity.system_id) != 0;
}

/* Copied rows would lie below what was delivered, as refuse_below in pg_setup.c finds. */
static bool ends_below(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                       const struct mr_pg_stream_state *state)
{
    struct mr_server_position there;
    return state->gap != NULL && mr_pg_where(conn, options, &there, NULL) == MR_OK &&
           there.flushed < state->delivered;
}

/* Whether the stream can go on where it was, or begin: what a start decides (mr_checkpoint_verify,
 * mr_pg_copies_now). While a process streams it has decided, and its slot is further by now than
 * what was read of the stored position. */
static void check_beginning(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                            const struct mr_checkpoint *stored, struct mr_pg_reporter *to)
{
    if (mr_pg_fact(facts, MR_SLOT_PID) != NULL) {
        return;
    }
    struct mr_server_position server;
    struct mr_error error = {0};
    mr_status status = mr_pg_identify(conn, facts->options, stored, 0, &server, &error);
    bool is_gap = status == MR_ERR_HISTORY;
    struct mr_pg_stream_state state = mr_pg_stream_state_of(stored, facts->options);
    state.gap = is_gap ? error.text : NULL;
    bool was_begun = mr_pg_fact(facts, MR_SLOT_COPIES) != NULL;
    bool fails = status != MR_OK && (!is_gap || is_of_other_cluster(conn, facts->options, stored));
    fails = fails || ends_below(conn, facts->options, &state);
    mr_pg_about(to, "slot \"%s\"", facts->options->slot);
    bool copies = !fails && mr_pg_copies_now(facts, &state, was_begun);
    bool is_good = mr_pg_slot_exists(facts) && !mr_pg_slot_is_lost(facts) && !is_gap;
    if (copies && is_good && facts->options->copies != MR_COPIES_ONLY) {
        mr_pg_remedy(to, "let it be read first, by a start without such a snapshot.mode, or "
                         "run " MR_REPAIR_COMMAND " after the copy");
        MR_FOUND_WARNING(to, "is dropped, and existing rows are copied at a new one: deletes that "
                             "wait in it never come");
    } else if (copies) {
        MR_FOUND_OK(to, "%s",
                    !mr_pg_copies_rows(facts->options->copies)
                        ? "is made again, and the rows in between are left to millrace verify "
                          "--repair"
                    : was_begun ? "the copy of existing rows that was begun goes on"
                                : "is made, and existing rows are copied");
    } else if (status != MR_OK) {
        MR_FOUND_ERROR(to, status, "%s", error.text);
    } else if (!mr_pg_slot_exists(facts) && facts->options->create_slot) {
        MR_FOUND_OK(to, "will be created, and the stream begins there");
    } else if (mr_pg_may_adopt(facts, &state, &error) != MR_OK) {
        MR_FOUND_ERROR(to, error.status, "%s", error.text);
    }
}

static void check_replication_connection(const struct mr_pg_facts *facts,
                                         const struct mr_checkpoint *stored,
                                         struct mr_pg_reporter *to)
{
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    struct mr_error error;
    mr_pg_about(to, "replication connection");
    if (mr_pg_connect(&facts->options->connection, true, -1, &conn, &error) != MR_OK) {
        MR_FOUND_ERROR(to, error.status, "%s", error.text);
    } else {
        MR_FOUND_OK(to, "accepted");
        check_beginning(conn, facts, stored, to);
    }
}

static mr_status pg_check_rules(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    mr_pg_rules(facts, to);
    return MR_OK;
}

static mr_status check_publication(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                   struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    if (mr_pg_publication_exists(facts) && !facts->options->via_root &&
        mr_pg_result_true(facts->server, 0, MR_PUBLICATION_VIA_ROOT)) {
        MR_FOUND_OK(to, "sends partitions by their root; what partitions.moved says counts with "
                        "publication.via_partition_root = true");
    }
    MR_TRY(mr_pg_publication_describe(conn, facts, to, ret_error));
    return mr_pg_publication_follow(conn, facts, false, to, ret_error);
}

/* Tables with values stored out of line, which an update that does not touch them does not send;
 * where they are to be read again, by a role that may. */
static mr_status check_large_values(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                                    struct mr_pg_reporter *to, struct mr_error *ret_error)
{
    enum { NAMED_MAX = 5 };
    static const struct mr_pg_shape shape = {"tables with large values", "sb", 0, UINT32_MAX};
    bool is_wanted = facts->options->reselect.column_count > 0;
    MR_PG_CLOSED struct mr_pg_conn *reader = NULL;
    struct mr_pg_place place = {0};
    if (is_wanted && mr_pg_copies_apart(facts->options)) {
        MR_TRY(mr_pg_place_read(conn, &place, ret_error));
        MR_TRY(mr_pg_copying_connect(facts->options, &place, -1, &reader, ret_error));
    }
    struct mr_text sql = {0};
    mr_text_string(&sql, "WITH ");
    mr_sql_add_sent(&sql, facts->options->publication, NULL, facts->version);
    mr_text_string(&sql, " SELECT format('%I.%I', n.nspname, c.relname), has_table_privilege(c.oid,"
                         " 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') FROM sent s"
                         " JOIN pg_class c ON c.oid = s.oid JOIN pg_namespace n"
                         " ON n.oid = c.relnamespace WHERE c.relreplident <> 'f' AND EXISTS"
                         " (SELECT FROM pg_class r WHERE r.reltoastrelid <> 0"
                         " AND pg_relation_size(r.reltoastrelid) > 0 AND (r.oid = c.oid OR r.oid IN"
                         " (SELECT t.oid FROM tree t WHERE t.root = c.oid))) ORDER BY 1");
    const struct mr_pg_result *tables;
    MR_TRY(mr_pg_ask(reader != NULL ? reader : conn, &sql, &shape, &tables, ret_error));
    uint32_t count = mr_pg_result_rows(tables);
    MR_TEXT(names);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = mr_pg_result_value(tables, i, 0);
        if (is_wanted && !mr_pg_result_true(tables, i, 1)) {
            const char *user = mr_pg_user(reader != NULL ? reader : conn);
            mr_pg_remedy(to, "GRANT SELECT ON %s TO %I, and USAGE of its schema", name, user);
            MR_FOUND_WARNING(to, "\"%s\" may not read %s again (columns.reselect)", user, name);
        }
        if (i < NAMED_MAX) {
            mr_text_format(&names, "%s%s", i == 0 ? "" : ", ", name);
        }
    }
    if (count > 0) {
        MR_FOUND_OK(to,
                    "%u published %s values stored out of line, which an update that does not "
                    "touch them does not send (%s%s); columns.reselect %s",
                    count, count == 1 ? "table has" : "tables have", names.data,
                    count > NAMED_MAX ? ", …" : "", is_wanted ? "is set" : "reads them again");
    }
    return MR_OK;
}

/* In this order. An error of the asking is one more finding. */
static const struct {
    const char *subject; /* %s: the publication's name, or the slot's */
    mr_status (*run)(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                     struct mr_pg_reporter *to, struct mr_error *ret_error);
    bool is_of_slot;
} checks[] = {
    {"server", check_version, false},
    {"connection", check_pooler, false},
    {"connection", check_pgpool, false},
    {"server", mr_pg_rules_of_standby, false},
    {"encoding", check_encoding, false},
    {"server", pg_check_rules, false},
    {"keys", mr_pg_rules_of_keys, false},
    {"limits", pg_check_limits, false},
    {"role", pg_check_role, false},
    {"slot \"%s\"", check_owner, true},
    {"slot \"%s\"", mr_pg_rules_of_load, true},
    {"publication \"%s\"", check_publication, false},
    {"existing rows", mr_pg_rules_of_copy, false},
    {"large values", check_large_values, false},
    {"failover", check_failover, false},
};

static void pg_check_all(struct mr_pg_conn *conn, const struct mr_pg_facts *facts,
                         const struct mr_checkpoint *stored, struct mr_pg_reporter *to)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(checks); i++) {
        const struct mr_pg_source_options *options = facts->options;
        const char *name = checks[i].is_of_slot ? options->slot : options->publication;
        struct mr_error error;
        mr_pg_about(to, checks[i].subject, name);
        mr_status status = checks[i].run(conn, facts, to, &error);
        if (status != MR_OK) {
            mr_pg_about(to, checks[i].subject, name);
            MR_FOUND_ERROR(to, status, "%s", error.text);
        }
    }
    check_replication_connection(facts, stored, to);
}

void mr_pg_check(const struct mr_pg_source_options *options, const struct mr_checkpoint *stored,
                 mr_finding_fn report, void *context)
{
    struct mr_pg_reporter to = {.report = report, .context = context, .subject = "PostgreSQL"};
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    struct mr_pg_facts facts = {0};
    struct mr_error error;
    mr_status status = mr_pg_connect(&options->connection, false, -1, &conn, &error);
    if (status == MR_OK) {
        mr_pg_about(&to, "server");
        status = mr_pg_facts_read(conn, options, &facts, &error);
    }
    if (status == MR_OK) {
        facts.slot_is_replaced = mr_pg_replaces_slot(options->copies);
        facts.slot_is_judged = true;
        struct mr_pg_stream_state state = mr_pg_stream_state_of(stored, options);
        facts.tables_are_known = state.tables_are_known;
        facts.sent = cJSON_Parse(state.silence == NULL ? "" : state.silence);
        pg_check_all(conn, &facts, stored, &to);
    } else {
        MR_FOUND_ERROR(&to, status, "%s", error.text);
    }
    mr_pg_facts_done(&facts);
}

mr_status mr_pg_check_change(const struct mr_pg_source_options *options,
                             const struct mr_table_name *added, uint32_t added_count, int stop_fd,
                             mr_finding_fn report, void *context, struct mr_error *ret_error)
{
    struct mr_pg_reporter to = {.report = report, .context = context};
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &conn, ret_error));
    bool standby;
    MR_TRY(mr_pg_has_standby(conn, options, &standby, ret_error));
    if (standby) {
        return mr_fail(ret_error, MR_AGAIN,
                       "another instance stands by, and could take the stream over with the old "
                       "tables: stop that one, reload, and start it again");
    }
    struct mr_pg_facts facts;
    MR_TRY(mr_pg_facts_read(conn, options, &facts, ret_error));
    mr_pg_rules_of_change(&facts, added, added_count, &to);
    mr_pg_facts_done(&facts);
    return MR_OK;
}

mr_status mr_pg_change_publication(const struct mr_pg_source_options *options, bool change,
                                   int stop_fd, mr_finding_fn report, void *context,
                                   struct mr_error *ret_error)
{
    struct mr_pg_reporter to = {.report = report, .context = context};
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &conn, ret_error));
    struct mr_pg_facts facts;
    MR_TRY(mr_pg_facts_read(conn, options, &facts, ret_error));
    facts.is_reload = true;
    mr_status status = mr_pg_publication_follow(conn, &facts, change, &to, ret_error);
    mr_pg_facts_done(&facts);
    return status;
}
