#include "postgres/server/pg_identity.h"

#include "base/wake.h"
#include "event/lsn.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/conn/pg_errors.h"

/* A question of a tenth of a millisecond to the server. Waiting inside the server for the lock
 * would hold back its vacuum for as long. */
enum {
    CLAIM_RETRY_MS = 100,
    STRANGER_TRIES = 20, /* between two looks at who it is */
    INTRUDER_LOOKS = 30, /* and between two lines about it: a minute */
};

struct lock_name {
    char text[256];
};

/* Of the lock that the one who streams has, or of the one that all instances of a pipeline
 * share. */
static struct lock_name lock_name(const struct mr_pg_source_options *options, bool of_pipeline)
{
    struct lock_name name;
    snprintf(name.text, sizeof(name.text), "millrace/%s%s%s", options->slot, of_pipeline ? "/" : "",
             of_pipeline ? options->captured.pipeline : "");
    return name;
}

static mr_status try_lock(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                          bool of_pipeline, int64_t *ret_ours, struct mr_error *ret_error)
{
    return mr_pg_ask_number(conn, "the lock", 'b', ret_ours, ret_error,
                            "SELECT pg_try_advisory_lock%s(hashtextextended(%L, 0))",
                            of_pipeline ? "_shared" : "", lock_name(options, of_pipeline).text);
}

/* Whether the session `s` of pg_stat_activity may stream: by the attribute of its role, or at
 * Amazon RDS by membership. The role is shown to everybody (pgstatfuncs.c, pg_stat_get_activity);
 * of a session that has just ended nothing is known. */
#define MAY_REPLICATE                                                                              \
    "coalesce((SELECT r.rolsuper OR r.rolreplication OR EXISTS (SELECT FROM pg_roles m"            \
    " WHERE m.rolname = 'rds_replication' AND pg_has_role(r.oid, m.oid, 'MEMBER'))"                \
    " FROM pg_roles r WHERE r.oid = s.usesysid), true)"

/* A lock of one 64-bit key is shown as its two halves and objsubid 1 (the manual's page of
 * pg_locks). */
#define IS_LOCK(row)                                                                               \
    row ".locktype = 'advisory' AND " row ".granted AND " row ".objsubid = 1 AND ((" row           \
        ".classid::bigint << 32) | " row ".objid::bigint) = hashtextextended(%L, 0)"

#define LOCKS                                                                                      \
    " FROM pg_locks a LEFT JOIN pg_stat_activity s ON s.pid = a.pid WHERE a.database ="            \
    " (SELECT oid FROM pg_database WHERE datname = current_database()) AND " IS_LOCK("a")

mr_status mr_pg_has_standby(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                            bool *ret_standby, struct mr_error *ret_error)
{
    int64_t standby;
    MR_TRY(mr_pg_ask_number(conn, "the lock's holders", 'b', &standby, ret_error,
                            "SELECT count(*) > 1" LOCKS " AND " MAY_REPLICATE,
                            lock_name(options, true).text));
    *ret_standby = standby;
    return MR_OK;
}

mr_status mr_pg_find_owner(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           struct mr_pg_owner *ret_owner, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the lock's owner", "nsSbbs", 0, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT a.pid, coalesce(s.application_name, ''), host(s.client_addr),"
                      " EXISTS (SELECT FROM pg_locks b WHERE b.pid = a.pid AND " IS_LOCK(
                          "b") "), " MAY_REPLICATE ", coalesce(s.usename::text, '')" LOCKS
                               " LIMIT 1", /* a shared one keeps us out, too */
                      lock_name(options, true).text, lock_name(options, false).text));
    struct mr_pg_owner owner = {0};
    if (mr_pg_result_rows(result) == 1) {
        const char *address = mr_pg_result_value(result, 0, 2);
        owner.exists = true;
        owner.may_replicate = mr_pg_result_true(result, 0, 4);
        owner.is_same_pipeline = owner.may_replicate && mr_pg_result_true(result, 0, 3);
        owner.pid = (uint32_t)mr_pg_result_number(result, 0, 0);
        snprintf(owner.role, sizeof(owner.role), "%s", mr_pg_result_value(result, 0, 5));
        snprintf(owner.who, sizeof(owner.who), "%s%s%s, process %u of the server",
                 mr_pg_result_value(result, 0, 1), address == NULL ? "" : " at ",
                 address == NULL ? "" : address, (unsigned)owner.pid);
    }
    *ret_owner = owner;
    return MR_OK;
}

/* The lock can't be had while another has it; but it must not end us either, nor hold us up without
 * a word. */
static void log_intruder(const struct mr_pg_source_options *options,
                         const struct mr_pg_owner *owner)
{
    char remedy[96];
    snprintf(remedy, sizeof(remedy), "SELECT pg_terminate_backend(%u), and ask whose it is",
             (unsigned)owner->pid);
    mr_log(MR_LOG_WARN, "claim_held_up",
           "the advisory lock that says who streams from the slot is held by a role that may not "
           "replicate, so not by an instance that streams; waiting for it",
           MR_LOG_STR("slot", options->slot), MR_LOG_STR("role", owner->role),
           MR_LOG_INT("pid", owner->pid), MR_LOG_STR("remedy", remedy));
}

/* A session of our own that just ended under another configuration may be there for a moment. */
static mr_status refuse_stranger(struct mr_pg_conn *conn,
                                 const struct mr_pg_source_options *options, uint32_t tries,
                                 _Atomic bool *stands_by, struct mr_error *ret_error)
{
    if (tries % STRANGER_TRIES != STRANGER_TRIES - 1) {
        return MR_OK;
    }
    struct mr_pg_owner owner;
    MR_TRY(mr_pg_find_owner(conn, options, &owner, ret_error));
    bool is_intruder = owner.exists && !owner.may_replicate;
    atomic_store_explicit(stands_by, !is_intruder, memory_order_relaxed);
    if (is_intruder) {
        if (tries / STRANGER_TRIES % INTRUDER_LOOKS == 0) {
            log_intruder(options, &owner);
        }
        return MR_OK;
    }
    bool is_awaited = (uint64_t)tries * CLAIM_RETRY_MS < options->handover_ms;
    if (!owner.exists || owner.is_same_pipeline || is_awaited) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_CONFIG,
        "slot \"%s\" is in use by another pipeline (%s), which differs in topic_prefix, "
        "tables, sink, state_name or publication_name; choose another slot_name, or, for "
        "a standby, configure both alike; to take over once that one ends, set "
        "source.postgres.handover",
        options->slot, owner.who);
}

static void log_standby(const struct mr_pg_source_options *options, _Atomic bool *stands_by)
{
    mr_log(MR_LOG_INFO, "standby",
           "another instance streams from this slot; standing by to take over",
           MR_LOG_STR("slot", options->slot));
    atomic_store_explicit(stands_by, true, memory_order_relaxed);
}

mr_status mr_pg_claim(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      _Atomic bool *stands_by, struct mr_error *ret_error)
{
    int64_t ours;
    /* First what we are, then the stream: nobody sees an owner that has not said it. */
    MR_TRY(try_lock(conn, options, true, &ours, ret_error));
    for (uint32_t tries = 0;; tries++) {
        MR_TRY(try_lock(conn, options, false, &ours, ret_error));
        if (ours && tries > 0) {
            mr_log(MR_LOG_INFO, "takeover", "the stream is free; taking it over",
                   MR_LOG_STR("slot", options->slot));
        }
        if (ours) {
            return MR_OK;
        }
        if (tries == 0) {
            log_standby(options, stands_by);
        }
        MR_TRY(refuse_stranger(conn, options, tries, stands_by, ret_error));
        if (mr_wait_readable(mr_pg_stop_fd(conn), CLAIM_RETRY_MS)) {
            return MR_AGAIN;
        }
    }
}

/* The LSN at which a timeline ended, from a timeline history file ("tli<tab>LSN<tab>reason", a line
 * each); 0 when it is not in there. PostgreSQL documentation, "Streaming Replication Protocol",
 * TIMELINE_HISTORY. */
static mr_lsn timeline_end(const char *history, uint32_t timeline)
{
    for (const char *line = history; *line != '\0';) {
        unsigned number;
        char lsn[24];
        mr_lsn end;
        if (sscanf(line, "%u\t%23s", &number, lsn) == 2 && number == timeline &&
            mr_lsn_parse(lsn, &end, NULL)) {
            return mr_lsn_of_server(end);
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

/* Where the server left `timeline`; 0 when it never was on it. */
static mr_status read_switch(struct mr_pg_conn *conn, uint32_t current, uint32_t timeline,
                             mr_lsn *ret_lsn, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its timeline history", "ss", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error, "TIMELINE_HISTORY %u", current));
    *ret_lsn = timeline_end(mr_pg_result_value(result, 0, 1), timeline);
    return MR_OK;
}

static mr_status read_identity(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                               struct mr_server_position *server, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"its identity", "snlS", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error, "IDENTIFY_SYSTEM"));
    struct mr_identity *identity = &server->identity;
    snprintf(identity->system_id, sizeof(identity->system_id), "%s",
             mr_pg_result_value(result, 0, 0));
    identity->timeline = (uint32_t)mr_pg_result_number(result, 0, 1);
    identity->is_standby = mr_pg_is_standby(conn);
    snprintf(identity->slot, sizeof(identity->slot), "%s", options->slot);
    snprintf(identity->publication, sizeof(identity->publication), "%s", options->publication);
    identity->tables = mr_pg_tables_mark(options);
    identity->moved.shift = atomic_load_explicit(&mr_lsn_shift, memory_order_relaxed);
    server->flushed = mr_pg_result_lsn(result, 0, 2);
    return MR_OK;
}

static mr_status read_slots(struct mr_pg_conn *conn, const char *slot,
                            struct mr_server_position *server, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the slot", "SLS", 1, 1};
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT slot_name, confirmed_flush_lsn, (SELECT max(slot_name)"
                      " FROM pg_replication_slots WHERE " MR_SQL_IS_COPY_SLOT ")"
                      " FROM (VALUES (1)) one LEFT JOIN pg_replication_slots ON slot_name = %L"
                      " AND database = current_database()",
                      slot, slot));
    const char *copy = mr_pg_result_value(result, 0, 2);
    server->slot_exists = mr_pg_result_value(result, 0, 0) != NULL;
    server->slot_confirmed = mr_pg_result_lsn(result, 0, 1);
    snprintf(server->copy_slot, sizeof(server->copy_slot), "%s", copy == NULL ? "" : copy);
    return MR_OK;
}

mr_status mr_pg_identity(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         struct mr_identity *ret_identity, struct mr_error *ret_error)
{
    struct mr_server_position server = {0};
    MR_TRY(read_identity(conn, options, &server, ret_error));
    *ret_identity = server.identity;
    return MR_OK;
}

mr_status mr_pg_where(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      struct mr_server_position *ret_server, struct mr_error *ret_error)
{
    struct mr_server_position server = {0};
    MR_TRY(read_identity(conn, options, &server, ret_error));
    MR_TRY(read_slots(conn, options->slot, &server, ret_error));
    *ret_server = server;
    return MR_OK;
}

mr_status mr_pg_left_at(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                        const struct mr_checkpoint *stored, mr_lsn *ret_lsn,
                        struct mr_error *ret_error)
{
    struct mr_identity now;
    MR_TRY(mr_pg_identity(conn, options, &now, ret_error));
    if (strcmp(now.system_id, stored->identity.system_id) != 0 ||
        stored->identity.timeline >= now.timeline) {
        *ret_lsn = 0;
        return MR_OK;
    }
    return read_switch(conn, now.timeline, stored->identity.timeline, ret_lsn, ret_error);
}

/* Past what was delivered and is not confirmed, and what a session that ended had not sent yet:
 * at 100,000 changes/s a second. Not all, because the server keeps what it reads, beyond work_mem
 * on its disk, until the end (logicalfuncs.c, pg_logical_slot_get_changes_guts). It ends between
 * transactions (PostgreSQL manual, Replication Management Functions). */
enum { PEEKED_CHANGES = 100000 };

/* Where the publication was made or altered after what the slot holds began, the stream can be read
 * only if it was there when the rows were written (pgoutput.c, LoadPublications). The server tells
 * without moving the slot, as the stream does. */
static mr_status peek(struct mr_pg_conn *desk, const struct mr_pg_source_options *options,
                      struct mr_error *ret_error)
{
    int64_t is_young;
    int64_t changes;
    MR_TRY(mr_pg_ask_number(desk, "the age of the publication", 'b', &is_young, ret_error,
                            "SELECT EXISTS (SELECT FROM pg_publication p WHERE p.pubname = %L"
                            " AND NOT " MR_SQL_IS_BEFORE_SLOT("p.xmin") ")",
                            options->publication, options->slot));
    if (!is_young) {
        return MR_OK;
    }
    MR_TEXT(name);
    mr_sql_add_identifier(&name, options->publication);
    MR_TRY(mr_pg_ask_number(desk, "what the slot holds", 'n', &changes, ret_error,
                            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%L, NULL, %u,"
                            " 'proto_version', '1', 'publication_names', %L)",
                            options->slot, (uint32_t)PEEKED_CHANGES, name.data));
    return mr_pg_sees_publication(desk, ret_error);
}

/* By a connection of its own: what a sender looked up before, it takes for what was so in a backlog
 * (docs/dev/protocol.md). What else goes wrong is the stream's to find. */
static mr_status look_at_publication(struct mr_pg_conn *conn,
                                     const struct mr_pg_source_options *options,
                                     struct mr_error *ret_error)
{
    MR_PG_CLOSED struct mr_pg_conn *desk = NULL;
    struct mr_error error = {0};
    mr_status status =
        mr_pg_connect(&options->connection, false, mr_pg_stop_fd(conn), &desk, &error);
    status = MR_THEN(status, peek(desk, options, &error));
    const char *remedy;
    mr_pg_error_classify("42704", "publication", &remedy);
    if (status == MR_ERR_HISTORY && strstr(error.text, remedy) != NULL) {
        return mr_fail(ret_error, status,
                       "publication \"%s\" was not there when rows that slot \"%s\" holds were "
                       "written: the publication is younger than the slot's position, so the "
                       "stream can't be read" MR_RECIPE_LEAD MR_RECIPE_OF_COPY,
                       options->publication, options->slot);
    }
    return status == MR_ERR_HISTORY || status == MR_AGAIN
               ? mr_fail(ret_error, status, "%s", error.text)
               : MR_OK;
}

mr_status mr_pg_identify(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         const struct mr_checkpoint *stored, mr_lsn start,
                         struct mr_server_position *ret_server, struct mr_error *ret_error)
{
    struct mr_server_position server;
    if (stored != NULL) {
        mr_lsn_shift = stored->identity.moved.shift;
    }
    MR_TRY(mr_pg_where(conn, options, &server, ret_error));
    if (stored != NULL && stored->identity.moved.entered != 0) {
        server.identity.moved = stored->identity.moved; /* else it was to leave, and goes on here */
    }
    uint32_t timeline = server.identity.timeline;
    if (stored != NULL && stored->identity.timeline < timeline) {
        MR_TRY(
            read_switch(conn, timeline, stored->identity.timeline, &server.switched_at, ret_error));
    }
    /* Where nothing is stored, the slot itself says how far we are, after the offset or not. */
    bool goes_by_slot = !options->position_is_stored && server.slot_exists;
    MR_TRY(mr_checkpoint_verify(stored, &server, goes_by_slot ? 0 : start, ret_error));
    /* walsender.c, StartLogicalReplication, takes any place, and the slot would leave out all
     * before it. */
    if (start > server.flushed) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "the stream is to begin at " MR_LSN_FORMAT
                       ", but the server's WAL ends at " MR_LSN_FORMAT
                       ": it is another server, or was restored to an earlier point",
                       MR_LSN_ARGS(start), MR_LSN_ARGS(server.flushed));
    }
    if (server.slot_exists) {
        MR_TRY(look_at_publication(conn, options, ret_error));
    }
    *ret_server = server;
    return MR_OK;
}
