#include "postgres/server/pg_slot.h"

#include "base/thread.h"

#include <math.h>

#include "base/clock.h"
#include "base/ticker.h"
#include "postgres/catalog/pg_sql.h"
#include "postgres/server/pg_holder.h"

enum {
    MISSING_INTERVAL_MS = 1000,
    /* A look costs a login: 6 ms of both sides' CPU with a password (SCRAM). Where nothing moves,
     * that is most of what an idle pipeline takes, so looks get rare: up to so many intervals, and
     * so long, apart. */
    REST_INTERVALS = 6,
    REST_MS = 60000,
    HELD_UP_MS = 10000,
    /* More than this not sent, or kept although it is confirmed, is no matter of a moment. */
    FAR_BYTES = 1024 * 1024,
    OLD_TRANSACTIONS = 1000000,
    COPIES_INTERVALS = 6,
    MB = 1024 * 1024,
    RAISED_LEAST_MB = 64,
    WAITS_MAX = 30,           /* looks that come early for the guest's sake */
    COPIES_CONNECT_MS = 2000, /* a host that is silent takes as long, and other looks wait */
};
#define FORECAST_WINDOW_NS (INT64_C(60) * 1000000000)
#define FORECAST_HELD_NS   (INT64_C(45) * 1000000000)
#define FORECAST_PAUSE_NS  (INT64_C(15) * 1000000000)
/* A slot that is lost so soon is looked at each second: much may have changed since the last
 * look. */
#define FORECAST_SOON_S 60

struct mr_pg_slot {
    struct mr_pg_slot_options options;
    mr_pg_slot_guest_fn guest; /* NULL: none */
    void *guest_context;
    uint32_t waited; /* looks in a row for which it was too early */
    struct mr_ticker ticker;

    /* The thread's own. */
    struct mr_slot_view now; /* as the looks find it; `view` gets it after each */
    int64_t now_ns;          /* when that was, with success */
    uint32_t failed;         /* looks in a row */
    uint32_t still;    /* looks in a row that found all confirmed, and no more WAL than before */
    int64_t making_ns; /* since when it is being made; 0: it is not */
    bool held_up_is_logged;
    int64_t copies_ns; /* when the copies were looked at last; 0: never */
    struct {           /* of the walsender, at the look before */
        int64_t pid, time_ns;
        double seconds;
    } cpu;

    pthread_mutex_t lock; /* over all that follows */
    struct mr_slot_view view;
    struct mr_forecast forecast;
    int64_t looked_ns;    /* as now_ns */
    int64_t rests_ns;     /* since when, after a look that found it at rest; 0: it does not */
    bool is_streamed;     /* mr_pg_slot_follow's, */
    mr_lsn received;      /* and its place, */
    mr_lsn received_then; /* and that before the last look */

    struct mr_pg_seen seen; /* without it */
};

static const char *const status_names[] = {"unknown", "reserved", "extended", "unreserved", "lost"};

const char *mr_wal_status_name(enum mr_wal_status status)
{
    return status_names[status];
}

/* Which of the names it is; NULL: the first. */
static uint32_t place_of(const char *name, const char *const *names, uint32_t count, uint32_t none)
{
    for (uint32_t i = 0; i < count; i++) {
        if (name == NULL || strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return none;
}

static const char *const invalidation_names[] = {
    "none", "wal_removed", "rows_removed", "wal_level_insufficient", "idle_timeout", "other"};

const char *mr_invalidation_name(enum mr_invalidation invalidation)
{
    return invalidation_names[invalidation];
}

void mr_forecast_add(struct mr_forecast *forecast, const struct mr_forecast_sample *sample)
{
    forecast->samples[forecast->count++ % MR_FORECAST_SAMPLES] = *sample;
}

/* `back` looks before the newest one; NULL: not in the window. */
static const struct mr_forecast_sample *sample_at(const struct mr_forecast *forecast, uint32_t back)
{
    uint32_t kept = forecast->count < MR_FORECAST_SAMPLES ? forecast->count : MR_FORECAST_SAMPLES;
    if (back >= kept) {
        return NULL;
    }
    const struct mr_forecast_sample *newest =
        &forecast->samples[(forecast->count - 1) % MR_FORECAST_SAMPLES];
    const struct mr_forecast_sample *found =
        &forecast->samples[(forecast->count - 1 - back) % MR_FORECAST_SAMPLES];
    return newest->time_ns - found->time_ns > FORECAST_WINDOW_NS ? NULL : found;
}

static int64_t unconfirmed(const struct mr_forecast_sample *sample)
{
    return (int64_t)(sample->server_lsn - sample->confirmed_lsn);
}

static int64_t restart_of(const struct mr_forecast_sample *sample)
{
    return (int64_t)sample->server_lsn - sample->retained_bytes;
}

/* Bytes that were used up between two looks by what keeps the slot back; 0: nothing does. Of WAL
 * alone: the limit may be set anew in between. Near the end looks are a second apart, and writers
 * pause for longer, so no single look decides. */
static int64_t used_bytes(const struct mr_forecast *forecast,
                          const struct mr_forecast_sample *newest,
                          const struct mr_forecast_sample *oldest)
{
    bool moved = false;
    int64_t most = unconfirmed(newest);
    mr_lsn before =
        newest->server_lsn; /* what the server had written a pause ago, or at the look before */
    const struct mr_forecast_sample *sample;
    for (uint32_t back = 1; (sample = sample_at(forecast, back)) != NULL; back++) {
        bool is_before = newest->time_ns - sample->time_ns <= FORECAST_PAUSE_NS || back == 1;
        moved = moved || restart_of(sample) != restart_of(newest);
        most = unconfirmed(sample) > most ? unconfirmed(sample) : most;
        before = is_before ? sample->server_lsn : before;
    }
    bool shrinks = unconfirmed(newest) < most - most / 8;
    int64_t lag_bytes = shrinks ? 0 : unconfirmed(newest) - unconfirmed(oldest);
    /* A burst that is over uses up nothing more. */
    bool is_held = !moved && before < newest->server_lsn &&
                   newest->time_ns - oldest->time_ns >= FORECAST_HELD_NS;
    int64_t held_bytes = is_held ? newest->retained_bytes - oldest->retained_bytes : 0;
    return lag_bytes > held_bytes ? lag_bytes : held_bytes;
}

double mr_forecast_seconds(const struct mr_forecast *forecast, int64_t now_ns)
{
    if (forecast->count == 0) {
        return INFINITY;
    }
    const struct mr_forecast_sample *newest = sample_at(forecast, 0);
    if (newest->safe_bytes <= 0) {
        return 0;
    }
    const struct mr_forecast_sample *oldest = newest;
    const struct mr_forecast_sample *sample;
    for (uint32_t back = 1; (sample = sample_at(forecast, back)) != NULL; back++) {
        oldest = sample;
    }
    int64_t span_ns = newest->time_ns - oldest->time_ns;
    int64_t used = span_ns <= 0 ? 0 : used_bytes(forecast, newest, oldest);
    if (used <= 0) {
        return INFINITY;
    }
    double seconds = (double)newest->safe_bytes * ((double)span_ns / 1e9) / (double)used;
    double since = (double)(now_ns - newest->time_ns) / 1e9;
    return seconds > since ? seconds - since : 0;
}

static uint64_t distance(mr_lsn from, mr_lsn to)
{
    return from != 0 && to > from ? to - from : 0;
}

/* By what is kept already, so that what is near its end has twice as much, and who raises again
 * each time he is told so does not double it each time. Never lower than either, which would drop
 * WAL at the next checkpoint (InvalidateObsoleteReplicationSlots in replication/slot.c). How much
 * the disk has, SQL does not tell. */
struct mr_slot_raise mr_slot_raise(int64_t limit_bytes, uint64_t retained_bytes)
{
    struct mr_slot_raise ret = {""};
    uint64_t kept_mb = (retained_bytes + MB - 1) / MB;
    uint64_t to_mb =
        (uint64_t)limit_bytes / MB + (kept_mb < RAISED_LEAST_MB ? RAISED_LEAST_MB : kept_mb);
    if (limit_bytes >= 0) {
        snprintf(ret.text, sizeof(ret.text),
                 "ALTER SYSTEM SET max_slot_wal_keep_size = '%lluMB'; SELECT pg_reload_conf();",
                 (unsigned long long)(to_mb > INT32_MAX ? INT32_MAX : to_mb));
    }
    return ret;
}

bool mr_slot_is_near(const struct mr_slot_view *view)
{
    return view->has_limit && view->confirmed_lsn != 0 &&
           distance(view->confirmed_lsn, view->server_lsn) > (uint64_t)view->limit_bytes / 4 * 3;
}

enum column {
    LSN,
    WAL_STATUS,
    SAFE_BYTES,
    RETAINED_BYTES,
    CONFIRMED,
    ACTIVE,
    NAME,
    FAILOVER,
    SYNCED,
    INVALIDATION,
    PID, /* of the walsender */
    CATALOG_XMIN,
    CATALOG_AGE,
    SENT,
    DECODED,
    SPILLED,
    SPILLED_TRANSACTIONS,
    BEGAN, /* the walsender, in seconds since 1970 */
    LIMIT_BYTES,
};

/* A standby has no position to write at; it replays. */
static mr_status pg_slot_query(const struct mr_pg_slot *slot, struct mr_pg_conn *conn,
                               const struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the slot", "LSNNLBSBBSNNNLNNNNn", 1, 1};
    return mr_pg_askf(conn, &shape, ret_result, ret_error,
                      "SELECT lsn, s.wal_status, s.safe_wal_size, "
                      "pg_catalog.pg_wal_lsn_diff(lsn, s.restart_lsn)::bigint, "
                      "s.confirmed_flush_lsn, s.active, s.slot_name, "
                      /* Columns that only PostgreSQL 17 and later have. */
                      "(pg_catalog.to_jsonb(s)->>'failover')::boolean, "
                      "(pg_catalog.to_jsonb(s)->>'synced')::boolean, "
                      "pg_catalog.to_jsonb(s)->>'invalidation_reason', "
                      "s.active_pid::bigint, s.catalog_xmin::text::bigint, "
                      "pg_catalog.age(s.catalog_xmin)::bigint, r.sent_lsn, "
                      "t.total_bytes, t.spill_bytes, t.spill_txns, "
                      "extract(epoch FROM r.backend_start)::bigint, "
                      "pg_catalog.pg_size_bytes("
                      "pg_catalog.current_setting('max_slot_wal_keep_size')) "
                      "FROM (SELECT CASE WHEN pg_catalog.pg_is_in_recovery() "
                      "THEN pg_catalog.pg_last_wal_replay_lsn() "
                      "ELSE pg_catalog.pg_current_wal_lsn() END AS lsn) AS now "
                      "LEFT JOIN pg_catalog.pg_replication_slots AS s ON s.slot_name = "
                      "(SELECT slot_name FROM pg_catalog.pg_replication_slots "
                      "WHERE " MR_SQL_IS_SLOT " ORDER BY length(slot_name), slot_name LIMIT 1) "
                      "LEFT JOIN pg_catalog.pg_stat_replication AS r ON r.pid = s.active_pid "
                      "LEFT JOIN pg_catalog.pg_stat_replication_slots AS t "
                      "ON t.slot_name = s.slot_name",
                      slot->options.slot);
}

static uint64_t pg_slot_count_of(const struct mr_pg_result *result, enum column column)
{
    int64_t number = mr_pg_result_number(result, 0, column);
    return number > 0 ? (uint64_t)number : 0;
}

/* All but the holder and the wait, which are asked for after it. */
static void take_cost(struct mr_slot_view *view, const struct mr_pg_result *result)
{
    struct mr_slot_cost *cost = &view->cost;
    uint64_t unconfirmed_bytes = distance(view->confirmed_lsn, view->server_lsn);
    cost->sent_lsn = mr_pg_result_lsn(result, 0, SENT);
    cost->catalog_xmin_age = pg_slot_count_of(result, CATALOG_AGE);
    cost->decoded_bytes = pg_slot_count_of(result, DECODED);
    cost->spilled_bytes = pg_slot_count_of(result, SPILLED);
    cost->spilled_transactions = pg_slot_count_of(result, SPILLED_TRANSACTIONS);
    cost->held_bytes =
        view->retained_bytes > unconfirmed_bytes ? view->retained_bytes - unconfirmed_bytes : 0;
}

static void pg_slot_take_result(struct mr_pg_slot *slot, const struct mr_pg_result *result,
                                bool is_standby)
{
    struct mr_slot_view *now = &slot->now;
    int64_t retained = mr_pg_result_number(result, 0, RETAINED_BYTES);
    int64_t now_ns = mr_monotonic_ns();
    mr_lsn written_before = now->server_lsn;
    slot->now_ns = now_ns;
    now->known = true;
    now->exists = mr_pg_result_value(result, 0, NAME) != NULL;
    now->active = mr_pg_result_true(result, 0, ACTIVE);
    now->wal_status = place_of(mr_pg_result_value(result, 0, WAL_STATUS), status_names,
                               MR_WAL_STATUS_COUNT, MR_WAL_UNKNOWN);
    now->failover = mr_pg_result_true(result, 0, FAILOVER);
    now->synced = mr_pg_result_true(result, 0, SYNCED);
    now->invalidation = place_of(mr_pg_result_value(result, 0, INVALIDATION), invalidation_names,
                                 MR_INVALIDATION_OTHER, MR_INVALIDATION_OTHER);
    now->is_standby = is_standby;
    now->server_lsn = mr_pg_result_lsn(result, 0, LSN);
    now->confirmed_lsn = mr_pg_result_lsn(result, 0, CONFIRMED);
    now->retained_bytes = retained > 0 ? (uint64_t)retained : 0;
    now->has_limit = mr_pg_result_value(result, 0, SAFE_BYTES) != NULL;
    now->safe_bytes = mr_pg_result_number(result, 0, SAFE_BYTES);
    now->limit_bytes = mr_pg_result_number(result, 0, LIMIT_BYTES);
    take_cost(now, result);
    MR_HOLD(&slot->lock);
    bool is_still = slot->is_streamed && now->server_lsn == written_before &&
                    now->confirmed_lsn >= now->server_lsn;
    slot->still = is_still ? slot->still + 1 : 0;
    if (now->has_limit) {
        mr_forecast_add(&slot->forecast,
                        &(struct mr_forecast_sample){.time_ns = now_ns,
                                                     .safe_bytes = now->safe_bytes,
                                                     .retained_bytes = retained,
                                                     .server_lsn = now->server_lsn,
                                                     .confirmed_lsn = now->confirmed_lsn});
    } else {
        slot->forecast = (struct mr_forecast){0};
    }
}

/* The connection that makes the slot waits for one transaction after the other. */
static mr_status ask_holder(struct mr_pg_slot *slot, struct mr_pg_conn *conn,
                            struct mr_error *ret_error)
{
    struct mr_pg_holder holder;
    MR_TRY(mr_pg_holder_of_slot(conn, slot->options.slot, &holder, ret_error));
    if (holder.who[0] == '\0' && mr_pg_is_standby(conn)) {
        snprintf(holder.who, sizeof(holder.who), "%s", MR_STANDBY_SLOT_WAITS);
        snprintf(holder.remedy, sizeof(holder.remedy), "%s", MR_STANDBY_SLOT_REMEDY);
    }
    snprintf(slot->now.held_by, sizeof(slot->now.held_by), "%s", holder.who);
    if (holder.who[0] != '\0' && !slot->held_up_is_logged) {
        slot->held_up_is_logged = true;
        mr_log(MR_LOG_WARN, "slot_held_up",
               "the slot is being made, which PostgreSQL can end only after every transaction that "
               "was open then; waiting for it",
               MR_LOG_STR("slot", slot->options.slot), MR_LOG_STR("holder", holder.who),
               MR_LOG_STR("remedy", holder.remedy));
    }
    return MR_OK;
}

/* Until it can be read from, a slot has confirmed nothing (DecodingContextFindStartpoint in
 * replication/logical/logical.c). */
static bool is_being_made(const struct mr_pg_slot *slot)
{
    return slot->now.exists && slot->now.active && slot->now.confirmed_lsn == 0;
}

static mr_status look_for_holder(struct mr_pg_slot *slot, struct mr_pg_conn *conn,
                                 struct mr_error *ret_error)
{
    if (!is_being_made(slot)) {
        slot->making_ns = 0;
        slot->held_up_is_logged = false;
        slot->now.held_by[0] = '\0';
        return MR_OK;
    }
    int64_t now_ns = mr_monotonic_ns();
    slot->making_ns = slot->making_ns == 0 ? now_ns : slot->making_ns;
    bool is_long = now_ns - slot->making_ns >= (int64_t)HELD_UP_MS * 1000000;
    return is_long ? ask_holder(slot, conn, ret_error) : MR_OK;
}

/* restart_lsn stays before the oldest transaction that is decoded, and catalog_xmin at the oldest
 * that runs, whatever is confirmed (SnapBuildProcessRunningXacts in
 * replication/logical/snapbuild.c). */
static mr_status look_who_keeps(struct mr_pg_slot *slot, struct mr_pg_conn *conn, int64_t xid,
                                struct mr_error *ret_error)
{
    struct mr_pg_holder holder = {0};
    struct mr_slot_cost *cost = &slot->now.cost;
    if (cost->held_bytes > FAR_BYTES && xid > 0) {
        char *snapshot;
        MR_TRY(mr_pg_holder_of_number(conn, (uint32_t)xid, &holder, &snapshot, ret_error));
        free(snapshot);
    }
    bool has_time = holder.since[0] != '\0';
    snprintf(cost->holder, sizeof(cost->holder), "%s%s%s", holder.who, has_time ? ", since " : "",
             has_time ? holder.since : "");
    return MR_OK;
}

static bool is_far_behind(const struct mr_pg_slot *slot)
{
    return distance(slot->now.cost.sent_lsn, slot->now.server_lsn) > FAR_BYTES;
}

/* One that is close behind waits for WAL. One that is far behind is looked at a few times. */
static mr_status look_at_walsender(struct mr_pg_slot *slot, struct mr_pg_conn *conn, int64_t pid,
                                   struct mr_error *ret_error)
{
    struct mr_slot_cost *cost = &slot->now.cost;
    cost->wait[0] = '\0';
    cost->wait_percent = 100;
    return is_far_behind(slot) ? mr_pg_look_at_waits(conn, pid, slot->ticker.stop_fd, cost->wait,
                                                     &cost->wait_percent, ret_error)
                               : MR_OK;
}

static mr_status pg_slot_look_at_tables(struct mr_pg_slot *slot, struct mr_pg_conn *conn,
                                        struct mr_error *ret_error)
{
    struct mr_slot_cost *cost = &slot->now.cost;
    cost->others[0] = cost->dead_catalogs[0] = '\0';
    return is_far_behind(slot) || cost->catalog_xmin_age > OLD_TRANSACTIONS
               ? mr_pg_costly_tables(conn, slot->options.publication, cost, ret_error)
               : MR_OK;
}

static void look_at_cpu(struct mr_pg_slot *slot, const struct mr_pg_conn *conn, int64_t pid,
                        int64_t began)
{
    double seconds = pid <= 0 ? NAN : mr_pg_cpu_seconds(conn, (pid_t)pid, (double)began);
    int64_t now_ns = mr_monotonic_ns();
    bool again = pid == slot->cpu.pid && now_ns > slot->cpu.time_ns;
    double passed = again ? (double)(now_ns - slot->cpu.time_ns) / 1e9 : NAN;
    struct mr_slot_cost *cost = &slot->now.cost;
    cost->has_cpu = !isnan(seconds);
    cost->cpu_seconds = seconds;
    cost->cpu_cores = (seconds - slot->cpu.seconds) / passed;
    slot->cpu.pid = pid;
    slot->cpu.time_ns = now_ns;
    slot->cpu.seconds = seconds;
}

static void pg_slot_publish(struct mr_pg_slot *slot)
{
    MR_HOLD(&slot->lock);
    slot->view = slot->now;
    slot->looked_ns = slot->now_ns;
}

/* A host that is silent costs the time-out, so it is not asked each time. While the primary is
 * away, copies are what counts. */
static void look_at_copies(struct mr_pg_slot *slot)
{
    struct mr_pg_options hasty = *slot->options.connection;
    int64_t now_ns = mr_monotonic_ns();
    int64_t every_ns = (int64_t)COPIES_INTERVALS * slot->options.interval_ms * 1000000;
    bool is_due = slot->copies_ns == 0 || now_ns - slot->copies_ns >= every_ns;
    if (!slot->now.failover || slot->now.is_standby || !is_due) {
        return;
    }
    slot->copies_ns = now_ns;
    hasty.connect_max_ms = COPIES_CONNECT_MS;
    if (mr_pg_look_at_copies(&hasty, slot->options.slot, slot->ticker.stop_fd, slot->now.copies,
                             &slot->now.copy_count) == MR_OK) {
        pg_slot_publish(slot);
    }
}

/* A connection for each look: one that is kept open would hold up a "smart" shutdown of the
 * server. */
static mr_status pg_slot_look(struct mr_pg_slot *slot, int64_t now_ns, struct mr_error *ret_error)
{
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_connect(slot->options.connection, false, slot->ticker.stop_fd, &conn, ret_error));
    MR_TRY(pg_slot_query(slot, conn, &result, ret_error));
    int64_t pid = mr_pg_result_number(result, 0, PID);
    int64_t xid = mr_pg_result_number(result, 0, CATALOG_XMIN);
    look_at_cpu(slot, conn, pid, mr_pg_result_number(result, 0, BEGAN));
    pg_slot_take_result(slot, result, mr_pg_is_standby(conn));
    if (slot->now.active && !slot->now.is_standby) {
        atomic_store(&slot->seen.primary_ns, now_ns);
    }
    MR_TRY(look_for_holder(slot, conn, ret_error));
    MR_TRY(look_who_keeps(slot, conn, xid, ret_error));
    MR_TRY(look_at_walsender(slot, conn, pid, ret_error));
    MR_TRY(pg_slot_look_at_tables(slot, conn, ret_error));
    if (slot->guest != NULL) {
        slot->waited = slot->guest(slot->guest_context, conn) ? 0 : slot->waited + 1;
    }
    return MR_OK;
}

static void look_failed(struct mr_pg_slot *slot, int64_t now_ns, const struct mr_error *error)
{
    /* 57P03, cannot_connect_now: it starts, or it shuts down (ProcessStartupPacket and
     * BackendInitialize in src/backend/tcop). While a stream runs it can only be the latter. */
    if (mr_error_is(error, "57P03")) {
        atomic_store(&slot->seen.stops_ns, now_ns);
    }
    slot->now.errors++;
    /* One look that fails is no news of its own: the opening of the stream says why at the same
     * time. */
    if (++slot->failed == 2) {
        mr_log(MR_LOG_WARN, "slot_unseen", error->text, MR_LOG_STR("slot", slot->options.slot));
    }
}

uint32_t mr_slot_pause_ms(uint32_t interval_ms, uint32_t still)
{
    uint32_t most_ms = interval_ms > REST_MS ? interval_ms : REST_MS;
    uint64_t rest_ms =
        (uint64_t)interval_ms * (still < REST_INTERVALS ? still + 1 : REST_INTERVALS);
    return rest_ms < most_ms ? (uint32_t)rest_ms : most_ms;
}

/* At the start the source may be about to make the slot. */
static int pause_ms(const struct mr_pg_slot *slot)
{
    bool waits = slot->waited > 0 && slot->waited < WAITS_MAX;
    bool changes = waits || !slot->now.exists || is_being_made(slot) ||
                   mr_forecast_seconds(&slot->forecast, mr_monotonic_ns()) < FORECAST_SOON_S;
    return changes && slot->options.interval_ms > MISSING_INTERVAL_MS
               ? MISSING_INTERVAL_MS
               : (int)mr_slot_pause_ms(slot->options.interval_ms, slot->still);
}

static void set_rest(struct mr_pg_slot *slot, int64_t since_ns)
{
    MR_HOLD(&slot->lock);
    slot->rests_ns = since_ns;
    slot->received_then = since_ns == 0 ? slot->received : slot->received_then;
}

static int pg_slot_tick(void *context)
{
    struct mr_pg_slot *slot = context;
    struct mr_error error = {0};
    int64_t now_ns = mr_monotonic_ns();
    set_rest(slot, 0);
    mr_status status = pg_slot_look(slot, now_ns, &error);
    if (status == MR_OK) {
        slot->failed = 0;
    } else if (status != MR_AGAIN) {
        slot->still = 0;
        look_failed(slot, now_ns, &error);
    }
    pg_slot_publish(slot);
    if (status != MR_AGAIN) {
        look_at_copies(slot); /* the primary may be away alone */
    }
    set_rest(slot, slot->still > 0 ? mr_monotonic_ns() : 0);
    return pause_ms(slot);
}

bool mr_slot_is_due(int64_t rested_ns, uint32_t interval_ms, bool has_moved, bool is_streamed)
{
    return rested_ns >= (int64_t)interval_ms * 1000000 && (has_moved || !is_streamed);
}

void mr_pg_slot_follow(struct mr_pg_slot *slot, mr_lsn received, bool is_streamed)
{
    pthread_mutex_lock(&slot->lock);
    slot->received = received;
    slot->is_streamed = is_streamed;
    int64_t rested_ns = slot->rests_ns == 0 ? -1 : mr_monotonic_ns() - slot->rests_ns;
    bool is_due = mr_slot_is_due(rested_ns, slot->options.interval_ms,
                                 received > slot->received_then, is_streamed);
    pthread_mutex_unlock(&slot->lock);
    if (is_due) {
        mr_ticker_hurry(&slot->ticker);
    }
}

const struct mr_pg_seen *mr_pg_slot_seen(const struct mr_pg_slot *slot)
{
    return &slot->seen;
}

struct mr_pg_slot *mr_pg_slot_new(const struct mr_pg_slot_options *options)
{
    struct mr_pg_slot *slot = MR_NEW(struct mr_pg_slot);
    slot->options = *options;
    mr_ticker_init(&slot->ticker, "mr-slot", pg_slot_tick, slot);
    pthread_mutex_init(&slot->lock, NULL);
    return slot;
}

void mr_pg_slot_invite(struct mr_pg_slot *slot, mr_pg_slot_guest_fn guest, void *context)
{
    slot->guest = guest;
    slot->guest_context = context;
}

void mr_pg_slot_free(struct mr_pg_slot *slot)
{
    if (slot != NULL) {
        mr_ticker_done(&slot->ticker);
        pthread_mutex_destroy(&slot->lock);
        free(slot);
    }
}

mr_status mr_pg_slot_start(struct mr_pg_slot *slot, struct mr_error *ret_error)
{
    return slot->options.interval_ms == 0 ? MR_OK : mr_ticker_start(&slot->ticker, 0, ret_error);
}

void mr_pg_slot_stop(struct mr_pg_slot *slot)
{
    mr_ticker_stop(&slot->ticker);
}

void mr_pg_slot_view(struct mr_pg_slot *slot, struct mr_slot_view *ret_view)
{
    int64_t now_ns = mr_monotonic_ns();
    MR_HOLD(&slot->lock);
    *ret_view = slot->view;
    ret_view->forecast_seconds =
        slot->view.wal_status == MR_WAL_LOST ? 0 : mr_forecast_seconds(&slot->forecast, now_ns);
    ret_view->age_seconds = slot->view.known ? (double)(now_ns - slot->looked_ns) / 1e9 : NAN;
}
