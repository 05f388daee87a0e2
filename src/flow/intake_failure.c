/* What becomes of a failure: the connection is tried again, a place of the stream a few times only,
 * and the transaction that --skip-commit-lsn names is passed over. */
#include <poll.h>

#include "flow/intake_internal.h"

/* "public.orders 5, public.items 1". `changes` -1: nothing has come of it. */
static void add_skipped(struct mr_text *to, const struct mr_skipped *skipped, int64_t changes)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(skipped->tables) && skipped->tables[i].changes > 0; i++) {
        mr_text_format(to, "%s%s %llu", i == 0 ? "" : ", ", skipped->tables[i].name,
                       (unsigned long long)skipped->tables[i].changes);
    }
    if (skipped->others > 0) {
        mr_text_format(to, ", others %llu", (unsigned long long)skipped->others);
    }
    mr_text_string(to, changes < 0 ? "not known: the server can't send it" : "");
}

static void log_skipped(struct mr_intake *intake, mr_lsn commit_lsn, int64_t changes)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    MR_TEXT(tables);
    add_skipped(&tables, &intake->exceptions.skipped, changes);
    mr_log(MR_LOG_WARN, "transaction_skipped",
           "a transaction was skipped, because --skip-commit-lsn asks for it; its changes are in "
           "no topic, and millrace verify --repair sends its rows as they are now",
           MR_LOG_LSN("commit_lsn", commit_lsn), MR_LOG_INT("changes", changes),
           MR_LOG_STR("tables", tables.data));
    atomic_fetch_add_explicit(&pipeline->by_source.skipped_transactions, 1, memory_order_relaxed);
    intake->exceptions.skip_settled = true;
}

void mr_intake_check_skip(struct mr_intake *intake, mr_lsn lsn)
{
    mr_lsn skip = intake->pipeline->options.skip_commit_lsn;
    if (skip != 0 && lsn > skip && !intake->exceptions.skip_settled) {
        intake->exceptions.skip_settled = true;
        mr_log(MR_LOG_WARN, "skip_ignored",
               "--skip-commit-lsn is before what is delivered already, or no transaction commits "
               "there; nothing was skipped",
               MR_LOG_LSN("commit_lsn", skip), MR_LOG_LSN("at", lsn));
    }
}

void mr_intake_skip_begin(struct mr_intake *intake, mr_lsn commit_lsn)
{
    struct mr_position end = {.commit_lsn = commit_lsn, .ordinal = UINT64_MAX};
    mr_intake_check_skip(intake, commit_lsn);
    if (commit_lsn != intake->pipeline->options.skip_commit_lsn) {
        return;
    }
    MR_ASSERT(intake->running.state == MR_RUNNING_BEGUN);
    intake->running.state = MR_RUNNING_SKIPPED; /* all of it counts as a repetition */
    intake->exceptions.skipped = (struct mr_skipped){0};
    if (mr_position_compare(intake->carry.appended, end) < 0) {
        intake->carry.appended = end;
    }
}

void mr_intake_skip_change(struct mr_intake *intake, const struct mr_relation *table)
{
    struct mr_skipped *skipped = &intake->exceptions.skipped;
    char name[sizeof(skipped->tables[0].name)];
    snprintf(name, sizeof(name), "%s.%s", table->schema, table->table);
    for (size_t i = 0; i < MR_ARRAY_LEN(skipped->tables); i++) {
        if (skipped->tables[i].changes == 0) {
            memcpy(skipped->tables[i].name, name, sizeof(name));
        }
        if (strcmp(skipped->tables[i].name, name) == 0) {
            skipped->tables[i].changes++;
            return;
        }
    }
    skipped->others++;
}

void mr_intake_skip_end(struct mr_intake *intake, mr_lsn commit_lsn)
{
    if (!intake->exceptions.skip_settled) {
        log_skipped(intake, commit_lsn,
                    (int64_t)(intake->counts->changes - intake->running.changes_at_begin));
    }
}

void mr_intake_forget_poison(struct mr_intake *intake, mr_lsn commit_lsn)
{
    if (commit_lsn >= intake->failure.poison.position.commit_lsn) {
        intake->failure.poison = (struct mr_poison){0};
        mr_standstill_end(&intake->pipeline->standstill, MR_CAUSE_POISON);
    }
}

/* Failures of one place in the stream, which may come again there. */
static bool is_of_a_place(mr_status status)
{
    return status == MR_ERR_POISON || status == MR_ERR_PROTOCOL;
}

static bool intake_failure_is_fatal(const struct mr_intake *intake, mr_status status)
{
    switch (status) {
    case MR_ERR_AUTH:
        return !atomic_load(&intake->pipeline->by_source
                                 .was_connected); /* later: credentials may be being rotated */
    case MR_ERR_POISON:
    case MR_ERR_PROTOCOL:
        return intake->failure.poison.failures >= MR_POISON_FAILURES_MAX;
    case MR_ERR_TRANSIENT:
    case MR_END:
        return false;
    default:
        return true;
    }
}

/* Waits before the next try; ends early on a stop. */
static void intake_failure_back_off(struct mr_intake *intake, mr_status status)
{
    struct pollfd stop = {.fd = intake->pipeline->wakes.stop, .events = POLLIN};
    uint32_t most_ms = intake->pipeline->options.backoff_max_ms;
    poll(&stop, 1,
         (int)(is_of_a_place(status) ? mr_poison_pause_ms(&intake->failure.poison, most_ms)
                                     : mr_backoff_ms(intake->failure.attempt, most_ms)));
    intake->failure.attempt++;
}

/* Where the stream stands: the item that was at hand, else after what has come of the running
 * transaction, else at the first change of one that has not begun. */
static struct mr_position failing_place(const struct mr_intake *intake)
{
    if (intake->failure.at.commit_lsn != 0) {
        return intake->failure.at;
    }
    if (mr_intake_in_transaction(intake)) {
        return (struct mr_position){.commit_lsn = intake->running.commit_lsn,
                                    .ordinal = intake->counts->changes -
                                               intake->running.changes_at_begin + 1};
    }
    mr_lsn unsent = intake->pipeline->source->failed.commit_lsn;
    return (struct mr_position){.commit_lsn = unsent, .ordinal = unsent != 0};
}

/* Adds to the error where that was, and how to get past it. */
static void name_place(const struct mr_intake *intake, struct mr_position place,
                       struct mr_error *error)
{
    if (place.commit_lsn == 0) {
        return;
    }
    const struct mr_failed_place *failed = &intake->pipeline->source->failed;
    const struct mr_relation *table = intake->failure.at.commit_lsn == 0 ? failed->table : NULL;
    MR_TEXT(text);
    mr_text_format(&text, "%s; change %llu of the transaction that commits at " MR_LSN_FORMAT,
                   error->text, (unsigned long long)place.ordinal, MR_LSN_ARGS(place.commit_lsn));
    if (table != NULL) {
        mr_text_format(&text, ", %s %s.%s", failed->is_behind ? "after one of" : "of table",
                       table->schema, table->table);
    }
    mr_error_set(error, error->status,
                 "%s (--skip-commit-lsn " MR_LSN_FORMAT " skips that transaction)", text.data,
                 MR_LSN_ARGS(place.commit_lsn));
}

/* A failure of one place: counted, logged, and shown as a state. True: the server can't send the
 * transaction that is to be skipped anyway, and the stream goes on after it. */
static bool place_failed(struct mr_intake *intake, mr_status status, struct mr_error *error)
{
    struct mr_position place = failing_place(intake);
    name_place(intake, place, error);
    intake->failure.at = (struct mr_position){0};
    mr_lsn skip = intake->pipeline->options.skip_commit_lsn;
    if (skip != 0 && place.commit_lsn == skip && intake->exceptions.start_after == 0) {
        intake->exceptions.start_after = skip + 1;
        if (!intake->exceptions.skip_settled) {
            log_skipped(intake, skip, -1);
        }
        return true;
    }
    mr_poison_count(&intake->failure.poison, place, status);
    char text[MR_CAUSE_TEXT_MAX];
    snprintf(text, sizeof(text),
             "a change can't be passed on; it is tried three times, then exit code %d: %s",
             mr_status_exit_code(status), error->text);
    mr_standstill_begin(&intake->pipeline->standstill, MR_CAUSE_POISON, text);
    return false;
}

/* The log hears it once for each reason: that the server is back, but another process holds the
 * slot, is news. */
static void intake_failure_log_lost(struct mr_intake *intake, mr_status status,
                                    const struct mr_error *error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_error whole;
    mr_error_set(
        &whole, error->status, "%s%s; it is tried again until it answers",
        atomic_load(&pipeline->by_source.was_connected) ? "" : "not connected yet: ", error->text);
    if (!is_of_a_place(status) && !intake->wait.resting) {
        mr_standstill_begin(&pipeline->standstill, MR_CAUSE_POSTGRESQL_AWAY, whole.text);
    }
    if (intake->failure.attempt == 0 || strcmp(error->text, intake->failure.logged.text) != 0) {
        intake->failure.logged = *error;
        mr_log(MR_LOG_WARN, "source_lost", whole.text,
               MR_LOG_LSN("confirmed", atomic_load(&pipeline->by_source.confirmed)));
    }
}

mr_status mr_intake_failed(struct mr_intake *intake, mr_status status, struct mr_error *error)
{
    bool skips = is_of_a_place(status) && place_failed(intake, status, error);
    if (mr_handshake_is_claimed(intake->state)) {
        mr_intake_disconnect(intake, 0);
    }
    if (skips) {
        /* All before it is handed over or at hand. Stored soon: the next one may fail, too, and
         * then this one would come again. No start may ask for what lies before it. */
        intake->carry.last = (struct mr_commit){0};
        intake->carry.ends_rows = true;
        mr_intake_mark(intake, intake->exceptions.start_after);
        return MR_OK;
    }
    if (status == MR_AGAIN) {
        return MR_OK; /* a stop cut it short */
    }
    intake->feedback.was_lost = true;
    if (status == MR_END) {
        mr_error_set(error, MR_ERR_TRANSIENT, "PostgreSQL ended the stream");
    }
    mr_counter_add(&intake->pipeline->meter.source_errors[error->status], 1);
    if (intake_failure_is_fatal(intake, status)) {
        return status;
    }
    intake_failure_log_lost(intake, status, error);
    atomic_fetch_add_explicit(&intake->pipeline->by_source.reconnects, 1, memory_order_relaxed);
    if (mr_lane_has_records(intake->lane)) {
        mr_lane_hand_over(
            intake->lane); /* what has come is delivered, whatever becomes of the rest */
    }
    intake_failure_back_off(intake, status);
    return MR_OK;
}
