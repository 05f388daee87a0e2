#include "verify/continuous.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/ticker.h"
#include "metrics/metrics.h"
#include "verify/proof.h"
#include "verify/schedule.h"

enum { LOOK_MS = 1000 };
#define SECOND_NS   INT64_C(1000000000)
#define LIST_MAX_NS (600 * SECOND_NS) /* the list of tables is no older */

/* IDLE -> LISTS or PROVES -> IDLE; GONE for good once nobody proves any more. */
enum doing { IDLE, LISTS, PROVES, GONE };

struct mr_continuous {
    struct mr_continuous_options options;
    struct mr_ticker ticker;
    enum doing doing;
    char *table;       /* whose proof is at hand; NULL: none */
    int64_t begun_ns;  /* that one */
    int64_t listed_ns; /* the last list; 0: none yet */
    int64_t rest_ns;   /* until then nothing is asked for, after a failure */
    uint32_t left;     /* tables that were asked for and have no line yet */
    bool has_failed, pause_logged;
    char failed_with[256]; /* what was logged, until a request has not failed */

    pthread_mutex_t lock; /* over what others read */
    struct mr_schedule schedule;
    int64_t started_ns;
    uint64_t lost; /* processes that prove, which others have replaced */
    bool paused, is_gone;
};

/* ---- what a proof came to ---- */

static void log_differences(const char *name, const cJSON *said)
{
    const cJSON *one;
    mr_log(MR_LOG_ERROR, "verify_different",
           "the topic does not equal the table; millrace verify names the keys, and --repair sends "
           "what differs again",
           MR_LOG_STR("table", name), MR_LOG_STR("reason", mr_said_word(said, "reason")),
           MR_LOG_STR("lsn", mr_said_word(said, "lsn")),
           MR_LOG_INT("rows", mr_said_number(said, "rows")));
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(said, "differences"))
    {
        if (mr_said_word(one, "position")[0] != '\0') {
            mr_log(MR_LOG_ERROR, "verify_difference", "the last event of a row that differs",
                   MR_LOG_STR("table", name), MR_LOG_STR("kind", mr_said_word(one, "kind")),
                   MR_LOG_STR("position", mr_said_word(one, "position")),
                   MR_LOG_INT("partition", mr_said_number(one, "partition")),
                   MR_LOG_INT("offset", mr_said_number(one, "offset")));
        }
    }
}

/* What differs each time, else what has changed. */
static void log_proof(const struct mr_scheduled *before, const struct mr_scheduled *proof,
                      const cJSON *said)
{
    const char *name = before->name;
    if (proof->differences > 0) {
        log_differences(name, said);
    } else if (proof->cause[0] != '\0' && strcmp(proof->cause, before->cause) != 0) {
        mr_log(strcmp(proof->cause, "failed") == 0 ? MR_LOG_WARN : MR_LOG_INFO, "verify_void",
               "a table could not be proved", MR_LOG_STR("table", name),
               MR_LOG_STR("cause", proof->cause),
               MR_LOG_STR("reason", mr_said_word(said, "reason")));
    } else if (proof->cause[0] == '\0' && (before->differences > 0 || before->cause[0] != '\0')) {
        mr_log(MR_LOG_INFO, "verify_equal", "a table is proved that was not before",
               MR_LOG_STR("table", name), MR_LOG_STR("lsn", mr_said_word(said, "lsn")));
    }
}

/* With the lock. */
static void take_proof(struct mr_continuous *continuous, struct mr_scheduled *table,
                       const cJSON *said)
{
    struct mr_scheduled proof = mr_scheduled_read(said);
    log_proof(table, &proof, said);
    mr_schedule_take(&continuous->schedule, table, &proof, continuous->begun_ns, mr_monotonic_ns());
    continuous->has_failed |= strcmp(proof.cause, "failed") == 0;
    continuous->left--;
}

/* A table's proof begins, or has come to something; or it is one of the list. */
static void take_table(struct mr_continuous *continuous, const cJSON *said)
{
    struct mr_text name = {0};
    mr_text_format(&name, "%s.%s", mr_said_word(said, "schema"), mr_said_word(said, "table"));
    bool begins = continuous->doing == PROVES && !cJSON_HasObjectItem(said, "verdict");
    pthread_mutex_lock(&continuous->lock);
    struct mr_scheduled *table = mr_schedule_find(&continuous->schedule, name.data);
    if (continuous->doing == LISTS) {
        mr_schedule_list(&continuous->schedule, name.data, mr_said_number(said, "rows"));
    } else if (!begins && table != NULL) {
        take_proof(continuous, table, said);
    }
    pthread_mutex_unlock(&continuous->lock);
    free(continuous->table);
    continuous->table = begins ? name.data : NULL;
    continuous->begun_ns = mr_monotonic_ns();
    if (!begins) {
        mr_text_done(&name);
    }
}

/* ---- requests ---- */

static void fail(struct mr_continuous *continuous, const char *reason)
{
    int64_t retry_ns = mr_schedule_retry_ns(&continuous->schedule);
    if (continuous->has_failed) { /* a table has said so, and the others may do */
        return;
    }
    if (strncmp(continuous->failed_with, reason, sizeof(continuous->failed_with) - 1) != 0) {
        mr_log(MR_LOG_WARN, "verify_failed", "tables can't be proved for now; tried again later",
               MR_LOG_STR("reason", reason));
        snprintf(continuous->failed_with, sizeof(continuous->failed_with), "%s", reason);
    }
    continuous->has_failed = true;
    continuous->rest_ns =
        mr_monotonic_ns() + (retry_ns < 60 * SECOND_NS ? retry_ns : 60 * SECOND_NS);
}

/* `status`: as of waitpid. */
static void end_request(struct mr_continuous *continuous, int status)
{
    int64_t now_ns = mr_monotonic_ns();
    if (status != 0) {
        char text[64];
        snprintf(text, sizeof(text), "the process was ended by %s %d",
                 WIFSIGNALED(status) ? "signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        fail(continuous, text);
    }
    if (!continuous->has_failed) {
        continuous->failed_with[0] = '\0';
    }
    pthread_mutex_lock(&continuous->lock);
    if (continuous->doing == LISTS && !continuous->has_failed) {
        mr_schedule_list_end(&continuous->schedule);
        continuous->listed_ns = now_ns;
    } else if (continuous->left > 0 && !continuous->has_failed) {
        continuous->listed_ns = 0; /* a table is gone */
    }
    struct mr_scheduled *table = continuous->table == NULL
                                     ? NULL
                                     : mr_schedule_find(&continuous->schedule, continuous->table);
    if (table != NULL) { /* the others need not wait for the one that the process has ended with */
        table->due_ns = now_ns + mr_schedule_retry_ns(&continuous->schedule);
    }
    pthread_mutex_unlock(&continuous->lock);
    free(continuous->table);
    continuous->table = NULL;
    continuous->doing = IDLE;
}

/* Whatever it was at; what its child has said meanwhile is of no request. */
static void take_loss(struct mr_continuous *continuous, int status)
{
    continuous->has_failed = continuous->has_failed && continuous->doing != IDLE;
    continuous->failed_with[0] = '\0';
    end_request(continuous, status);
    MR_HOLD(&continuous->lock);
    continuous->lost++;
}

static void take(struct mr_continuous *continuous, const cJSON *said)
{
    const cJSON *ended = cJSON_GetObjectItemCaseSensitive(said, "ended");
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(said, "lost");
    if (cJSON_IsNumber(lost)) {
        take_loss(continuous, lost->valueint);
    } else if (continuous->doing == IDLE) {
        return;
    } else if (cJSON_IsNumber(ended)) {
        end_request(continuous, ended->valueint);
    } else if (cJSON_HasObjectItem(said, "error")) {
        fail(continuous, mr_said_word(said, "error"));
    } else {
        take_table(continuous, said);
    }
}

static void be_gone(struct mr_continuous *continuous)
{
    mr_log(MR_LOG_WARN, "verify_failed",
           "the processes that prove tables are gone; start millrace again for others");
    continuous->doing = GONE;
    MR_HOLD(&continuous->lock);
    continuous->is_gone = true;
}

/* Asks for the list, if that is old, or for the tables that are due. */
static void ask(struct mr_continuous *continuous)
{
    struct mr_schedule *schedule = &continuous->schedule;
    int64_t now_ns = mr_monotonic_ns();
    int64_t old_ns = mr_schedule_retry_ns(schedule);
    old_ns = old_ns < LIST_MAX_NS ? old_ns : LIST_MAX_NS;
    uint32_t numbers[MR_PROVER_TABLES_MAX];
    bool lists = continuous->listed_ns == 0 || now_ns - continuous->listed_ns > old_ns;
    uint32_t count = lists ? 0 : mr_schedule_due(schedule, now_ns, numbers, MR_PROVER_TABLES_MAX);
    if (!lists && count == 0) {
        return;
    }
    const char *tables[MR_PROVER_TABLES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        tables[i] = schedule->items[numbers[i]].name;
    }
    if (lists) {
        pthread_mutex_lock(&continuous->lock);
        mr_schedule_list_begin(schedule);
        pthread_mutex_unlock(&continuous->lock);
    }
    struct mr_sha256_short digest = continuous->options.digest(continuous->options.context);
    continuous->left = count;
    continuous->has_failed = false;
    continuous->doing = lists ? LISTS : PROVES;
    if (!mr_prover_ask(continuous->options.prover, digest.text, tables, count)) {
        be_gone(continuous);
    }
}

/* Pauses above the limit, and goes on below half of it. */
static void look_at_lag(struct mr_continuous *continuous)
{
    double lag = continuous->options.lag(continuous->options.context);
    double most = (double)continuous->options.lag_max_ms / 1e3;
    bool paused = lag > (continuous->paused ? most / 2 : most);
    if (paused == continuous->paused) {
        return;
    }
    pthread_mutex_lock(&continuous->lock);
    continuous->paused = paused;
    pthread_mutex_unlock(&continuous->lock);
    mr_prover_pause(continuous->options.prover, paused);
    if (paused && continuous->doing != IDLE) {
        mr_log(MR_LOG_INFO, "verify_paused",
               isfinite(lag) ? "the stream lags, and the proof of tables waits for it"
                             : "the stream does not run, and the proof of tables waits for it",
               MR_LOG_INT("lag_ms", isfinite(lag) ? lag * 1e3 : -1));
        continuous->pause_logged = true;
    } else if (!paused && continuous->pause_logged) {
        mr_log(MR_LOG_INFO, "verify_resumed",
               "the stream has come up, and tables are proved again");
        continuous->pause_logged = false;
    }
}

static int tick(void *context)
{
    struct mr_continuous *continuous = context;
    if (continuous->doing == GONE) {
        return LOOK_MS;
    }
    look_at_lag(continuous);
    if (continuous->doing == IDLE && !continuous->paused &&
        mr_monotonic_ns() >= continuous->rest_ns) {
        ask(continuous);
    }
    if (continuous->doing == IDLE) {
        return LOOK_MS;
    }
    int64_t end_ns = mr_monotonic_ns() + LOOK_MS * INT64_C(1000000);
    while (continuous->doing == LISTS || continuous->doing == PROVES) {
        cJSON *said;
        mr_status status = mr_prover_next(continuous->options.prover, continuous->ticker.stop_fd,
                                          mr_timeout_ms(end_ns - mr_monotonic_ns()), &said);
        if (status == MR_END) {
            be_gone(continuous);
        } else if (status == MR_OK) {
            take(continuous, said);
            cJSON_Delete(said);
        } else {
            break;
        }
    }
    return 0;
}

struct mr_continuous *mr_continuous_new(const struct mr_continuous_options *options)
{
    struct mr_continuous *continuous = MR_NEW(struct mr_continuous);
    *continuous =
        (struct mr_continuous){.options = *options,
                               .schedule = {.interval_ns = options->interval_ms * 1000000},
                               .started_ns = mr_monotonic_ns()};
    mr_ticker_init(&continuous->ticker, "mr-verify", tick, continuous);
    pthread_mutex_init(&continuous->lock, NULL);
    return continuous;
}

mr_status mr_continuous_start(struct mr_continuous *continuous, struct mr_error *ret_error)
{
    return continuous == NULL ? MR_OK : mr_ticker_start(&continuous->ticker, LOOK_MS, ret_error);
}

void mr_continuous_stop(struct mr_continuous *continuous)
{
    if (continuous != NULL) {
        mr_ticker_stop(&continuous->ticker);
    }
}

void mr_continuous_free(struct mr_continuous *continuous)
{
    if (continuous == NULL) {
        return;
    }
    mr_ticker_done(&continuous->ticker);
    mr_prover_free(continuous->options.prover);
    mr_schedule_done(&continuous->schedule);
    free(continuous->table);
    pthread_mutex_destroy(&continuous->lock);
    free(continuous);
}

/* ---- what others see ---- */

/* One that was not proved since the start is as old as that, at least. */
static double age_of(const struct mr_continuous *continuous, int64_t proved_ns, int64_t now_ns)
{
    return (double)(now_ns - (proved_ns == 0 ? continuous->started_ns : proved_ns)) / 1e9;
}

/* The line of a table, or, as "other", of all that have none: the oldest, and what differs in all. */
struct line {
    const char *name;
    double age;
    mr_lsn lsn;
    uint64_t differences;
};

static struct line line_of(const struct mr_continuous *continuous, uint32_t first, uint32_t end,
                           int64_t now_ns)
{
    struct line line = {.name = "other", .lsn = UINT64_MAX};
    for (uint32_t i = first; i < end; i++) {
        const struct mr_scheduled *table = &continuous->schedule.items[i];
        double age = age_of(continuous, table->proved_ns, now_ns);
        line.age = age > line.age ? age : line.age;
        line.lsn = table->lsn < line.lsn ? table->lsn : line.lsn;
        line.differences += table->differences;
        line.name = end - first == 1 ? table->name : line.name;
    }
    return line;
}

static void expose_tables(struct mr_continuous *continuous, struct mr_exposition *to,
                          enum mr_metric_id id, int64_t now_ns)
{
    const struct mr_schedule *schedule = &continuous->schedule;
    uint32_t most = continuous->options.tables_max;
    uint32_t own = schedule->count < most ? schedule->count : most;
    mr_expose_begin(to, id);
    for (uint32_t i = 0; i < own + (schedule->count > own); i++) {
        struct line line = line_of(continuous, i, i < own ? i + 1 : schedule->count, now_ns);
        if (id == MR_METRIC_VERIFY_AGE) {
            mr_expose_f64(to, &line.name, line.age);
        } else {
            mr_expose_u64(to, &line.name,
                          id == MR_METRIC_VERIFY_DIFFERENCES ? line.differences : line.lsn);
        }
    }
}

static void expose_void(const struct mr_schedule *schedule, uint32_t most, struct mr_exposition *to)
{
    uint32_t shown = 0;
    mr_expose_begin(to, MR_METRIC_VERIFY_VOID);
    for (uint32_t i = 0; i < schedule->count && shown < most; i++) {
        if (schedule->items[i].cause[0] != '\0') {
            mr_expose_u64(to, (const char *[]){schedule->items[i].name, schedule->items[i].cause},
                          1);
            shown++;
        }
    }
}

void mr_continuous_metrics(struct mr_continuous *continuous, struct mr_buffer *out)
{
    if (continuous == NULL) {
        return;
    }
    struct mr_exposition to = {.out = out};
    int64_t now_ns = mr_monotonic_ns();
    MR_HOLD(&continuous->lock);
    struct mr_schedule_sum sum = mr_schedule_sum(&continuous->schedule, now_ns);
    mr_expose_one_ns(&to, MR_METRIC_VERIFY_INTERVAL, (uint64_t)continuous->schedule.interval_ns);
    mr_expose_one_u64(&to, MR_METRIC_VERIFY_PAUSED, continuous->paused);
    mr_expose_one_u64(&to, MR_METRIC_VERIFY_UP, !continuous->is_gone);
    mr_expose_one_u64(&to, MR_METRIC_VERIFY_LOST, continuous->lost);
    mr_expose_begin(&to, MR_METRIC_VERIFY_RATIO);
    mr_expose_f64(&to, NULL, mr_schedule_percent(&sum) / 100);
    for (enum mr_metric_id id = MR_METRIC_VERIFY_LSN; id <= MR_METRIC_VERIFY_DIFFERENCES; id++) {
        expose_tables(continuous, &to, id, now_ns);
    }
    expose_void(&continuous->schedule, continuous->options.tables_max, &to);
}

void mr_continuous_show(struct mr_continuous *continuous, cJSON *status)
{
    if (continuous == NULL) {
        return;
    }
    int64_t now_ns = mr_monotonic_ns();
    cJSON *to = cJSON_AddObjectToObject(status, "verify");
    pthread_mutex_lock(&continuous->lock);
    struct mr_schedule_sum sum = mr_schedule_sum(&continuous->schedule, now_ns);
    double age = age_of(continuous, sum.oldest_ns, now_ns);
    cJSON_AddNumberToObject(to, "interval", (double)continuous->schedule.interval_ns / 1e9);
    cJSON_AddBoolToObject(to, "paused", continuous->paused);
    cJSON_AddBoolToObject(to, "gone", continuous->is_gone);
    pthread_mutex_unlock(&continuous->lock);
    cJSON_AddNumberToObject(to, "percent", mr_schedule_percent(&sum));
    cJSON_AddNumberToObject(to, "tables", sum.tables);
    cJSON_AddNumberToObject(to, "proved", sum.proved);
    cJSON_AddNumberToObject(to, "different", sum.different);
    cJSON_AddNumberToObject(to, "void", sum.void_now);
    cJSON_AddNumberToObject(to, "differences", (double)sum.differences);
    cJSON_AddNumberToObject(to, "oldest_age", age);
}
