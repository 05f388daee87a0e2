#include "control/reload.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/server/pg_setup.h"

enum {
    CHANGE_MS =
        45000, /* longer than reconnect_max's default: the thread may be between two tries */
    ANSWERS_KEPT = 8,
    TEXT_MAX = 1024,
};

/* The outcome of a reading. */
struct answer {
    uint64_t last; /* the last request that it is for */
    char *text;    /* a JSON object */
};

struct mr_reload {
    struct mr_reload_options options;
    int stop_fd;

    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool running; /* there is a thread */
    bool ending;
    bool applies; /* one of those that wait is more than a look */
    uint64_t asked, taken;
    struct answer answers[ANSWERS_KEPT]; /* the oldest is overwritten */
    uint32_t next_answer;
};

/* The one being worked on. */
struct work {
    struct mr_reload *reload;
    struct mr_reading reading;
};

static const char *const text_names[] = {
    [MR_READING_CHANGED] = "changed",           [MR_READING_NEEDS_RESTART] = "needs_restart",
    [MR_READING_TABLES_ADDED] = "tables_added", [MR_READING_TABLES_REMOVED] = "tables_removed",
    [MR_READING_PROBLEMS] = "problems",
};

static const char *text_of(const struct mr_reading *reading, enum mr_reading_text which)
{
    const char *data = reading->texts[which].data;
    return data == NULL ? "" : data;
}

static bool has(const struct mr_reading *reading, enum mr_reading_text which)
{
    return reading->texts[which].data != NULL;
}

static void add_item(struct mr_text *to, const char *item, const char *between)
{
    if (to->data != NULL) {
        mr_text_string(to, between);
    }
    mr_text_string(to, item);
}

void mr_reading_name(struct mr_reading *reading, enum mr_reading_text list, const char *name)
{
    add_item(&reading->texts[list], name, ", ");
}

void mr_reading_problem(struct mr_reading *reading, const char *format, ...)
{
    char line[2 * TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    add_item(&reading->texts[MR_READING_PROBLEMS], line, "\n");
}

/* ---- what differs ---- */

/* Other tables are wanted, other patterns of tables, or other rows and columns of theirs. */
static bool has_tables(const struct mr_reading *reading)
{
    return has(reading, MR_READING_TABLES_ADDED) || has(reading, MR_READING_TABLES_REMOVED) ||
           reading->patterns || reading->publication;
}

/* Lists those of `tables` that `others` lack, and copies them into `ret` (NULL: not wanted). */
static uint32_t list_beyond(struct mr_reading *reading, enum mr_reading_text list,
                            const struct mr_pg_source_options *tables,
                            const struct mr_pg_source_options *others, struct mr_table_name *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tables->captured.table_count; i++) {
        const struct mr_table_name *table = &tables->captured.tables[i];
        if (mr_pg_table_listed(others, mr_slice_of(table->schema), mr_slice_of(table->table))) {
            continue;
        }
        char name[TEXT_MAX];
        snprintf(name, sizeof(name), "%s.%s", table->schema, table->table);
        mr_reading_name(reading, list, name);
        if (ret != NULL) {
            ret[count] = *table;
        }
        count++;
    }
    return count;
}

/* mr_finding_fn: the first error is the answer. */
static void take_finding(void *context, enum mr_finding_level level, mr_status status,
                         const char *subject, const char *finding, const char *remedy)
{
    struct mr_reading *reading = context;
    if (level == MR_FINDING_OK) {
        return;
    }
    mr_reading_problem(reading, "%s%s %s%s%s", level == MR_FINDING_WARNING ? "warning: " : "",
                       subject, finding, remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    if (level == MR_FINDING_ERROR && reading->error.text[0] == '\0') {
        mr_error_set(&reading->error, status, "%s %s%s%s", subject, finding,
                     remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    }
}

/* mr_finding_fn: the same, where the look has reported the rest. */
static void take_error(void *context, enum mr_finding_level level, mr_status status,
                       const char *subject, const char *finding, const char *remedy)
{
    if (level == MR_FINDING_ERROR) {
        take_finding(context, level, status, subject, finding, remedy);
    }
}

static mr_status found(const struct mr_reading *reading, mr_status status)
{
    return status != MR_OK || reading->error.text[0] == '\0' ? status : reading->error.status;
}

/* A table that joins must be there and published, or its rows would be missing silently; and what would end the stream when it
 * is opened with these tables is reported now. */
static mr_status check_tables(struct work *work, const struct mr_table_name *added, uint32_t count)
{
    struct mr_reading *reading = &work->reading;
    const struct mr_pg_source_options *wanted = reading->wanted;
    struct mr_pg_source_options options = *reading->started;
    options.captured = wanted->captured;
    options.captured.pipeline = reading->running->captured.pipeline;
    options.checked.held = wanted->checked.held; /* of streams, which may change */
    options.checked.held_count = wanted->checked.held_count;
    options.checked.named = wanted->checked.named;
    options.checked.named_count = wanted->checked.named_count;
    return found(reading, mr_pg_check_change(&options, added, count, work->reload->stop_fd,
                                             take_finding, reading, &reading->error));
}

/* Until the restart, rows of such a table would go out as they must not: in the clear, by another key, to another topic. */
static mr_status check_rules(struct mr_reading *reading)
{
    bool joins = has(reading, MR_READING_TABLES_ADDED);
    if (reading->rules.data == NULL || (!joins && !reading->patterns)) {
        return MR_OK;
    }
    return mr_fail(&reading->error, MR_ERR_CONFIG,
                   "tables come to the stream (%s), and %s, which may say what becomes of their "
                   "rows, needs a restart: restart millrace with this file; nothing was changed",
                   joins ? text_of(reading, MR_READING_TABLES_ADDED)
                         : "patterns of tables are different",
                   reading->rules.data);
}

/* Looks, or changes it. */
static mr_status change_publication(struct work *work, bool change)
{
    struct mr_reading *reading = &work->reading;
    struct mr_pg_source_options options = *reading->wanted;
    options.connection = reading->started->connection; /* with its secrets */
    options.via_root = reading->started->via_root;     /* a reload does not change it */
    if (options.captured.published_count == 0 && !options.captured.alter_publication) {
        return MR_OK;
    }
    return found(reading, mr_pg_change_publication(&options, change, work->reload->stop_fd,
                                                   change ? take_error : take_finding, reading,
                                                   &reading->error));
}

static mr_status compare(struct work *work)
{
    struct mr_reading *reading = &work->reading;
    struct mr_table_name *added =
        MR_NEW_ARRAY(struct mr_table_name, reading->wanted->captured.table_count);
    uint32_t count =
        list_beyond(reading, MR_READING_TABLES_ADDED, reading->wanted, reading->running, added);
    list_beyond(reading, MR_READING_TABLES_REMOVED, reading->running, reading->wanted, NULL);
    mr_status status = check_rules(reading);
    if (status == MR_OK && has_tables(reading)) {
        status = check_tables(work, added, count);
    }
    free(added);
    return status == MR_OK && has_tables(reading) ? change_publication(work, false) : status;
}

/* ---- the change ---- */

static mr_status apply(struct work *work)
{
    struct mr_reading *reading = &work->reading;
    struct mr_pipeline *pipeline = work->reload->options.pipeline;
    struct mr_pipeline_stats stats = mr_pipeline_stats(pipeline);
    if (stats.source.stands_by) {
        return mr_fail(&reading->error, MR_AGAIN,
                       "another instance has the stream and this one stands by: reload that one, "
                       "then restart this one");
    }
    const struct mr_pipeline_change change = {
        .options = reading->pipeline,
        .encode = reading->encode,
        .source = has_tables(reading) ? reading->wanted : NULL,
    };
    if (has_tables(reading) && mr_copies_stats(work->reload->options.copies).state !=
                                   MR_COPY_RUNNING) { /* else it is refused */
        MR_TRY(change_publication(work, true));
    }
    MR_TRY(mr_pipeline_change(pipeline, &change, CHANGE_MS, &reading->error));
    mr_added_change(work->reload->options.added, reading->wanted, reading->copies_added);
    mr_log_set_level(reading->log_level);
    return MR_OK;
}

/* Of a reload the log has a line at any level. */
static void log_outcome(const struct mr_reading *reading, const char *outcome, mr_status status)
{
    struct mr_log_field fields[MR_READING_PROBLEMS + 1] = {
        0}; /* of the lists; the last ends them */
    if (status != MR_OK) {
        mr_log(MR_LOG_ERROR, "reload_refused", reading->error.text);
        return;
    }
    static const enum mr_reading_text order[] = {MR_READING_CHANGED, MR_READING_TABLES_ADDED,
                                                 MR_READING_TABLES_REMOVED,
                                                 MR_READING_NEEDS_RESTART};
    for (size_t i = 0; i < MR_ARRAY_LEN(order); i++) {
        fields[i] = MR_LOG_STR(text_names[order[i]], text_of(reading, order[i]));
    }
    mr_log_write(has(reading, MR_READING_NEEDS_RESTART) ? MR_LOG_WARN : MR_LOG_INFO, "reloaded",
                 strcmp(outcome, "applied") == 0
                     ? "the configuration file was read again, and what may change has changed"
                     : "the configuration file was read again; nothing was changed",
                 fields);
}

static char *make_answer(const struct mr_reading *reading, const char *outcome, mr_status status)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "done", true);
    cJSON_AddStringToObject(object, "outcome", outcome);
    /* "Not now" is an error to the client. */
    bool later = status == MR_AGAIN || status == MR_ERR_DEADLINE;
    cJSON_AddNumberToObject(object, "exit_code",
                            mr_status_exit_code(later ? MR_ERR_TRANSIENT : status));
    cJSON_AddStringToObject(object, "error", status == MR_OK ? "" : reading->error.text);
    for (size_t i = 0; i < MR_READING_TEXTS; i++) {
        cJSON_AddStringToObject(object, text_names[i], text_of(reading, (enum mr_reading_text)i));
    }
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    MR_ASSERT(text != NULL);
    return text;
}

static char *run_once(struct mr_reload *reload, bool applies)
{
    struct work work = {.reload = reload};
    struct mr_reading *reading = &work.reading;
    const struct mr_reload_options *options = &reload->options;
    const char *outcome = "unchanged";
    mr_status status = options->ops->read(options->context, reading);
    status = status == MR_OK ? compare(&work) : status;
    bool in_effect = false;
    if (status == MR_OK && has(reading, MR_READING_CHANGED)) {
        outcome = applies ? "applied" : "checked";
        status = applies ? apply(&work) : MR_OK;
        in_effect = applies && status == MR_OK;
    }
    options->ops->settle(options->context, in_effect);
    outcome = status == MR_OK ? outcome : "refused";
    log_outcome(reading, outcome, status);
    char *answer = make_answer(reading, outcome, status);
    for (size_t i = 0; i < MR_READING_TEXTS; i++) {
        mr_text_done(&reading->texts[i]);
    }
    mr_text_done(&reading->rules);
    return answer;
}

/* ---- its thread, while there is something to do ---- */

static void *reload_main(void *context)
{
    struct mr_reload *reload = context;
    pthread_mutex_lock(&reload->lock);
    while (reload->taken < reload->asked && !reload->ending) {
        uint64_t last = reload->asked;
        bool applies = reload->applies;
        reload->taken = last;
        reload->applies = false;
        pthread_mutex_unlock(&reload->lock);
        char *text = run_once(reload, applies);
        pthread_mutex_lock(&reload->lock);
        struct answer *answer = &reload->answers[reload->next_answer++ % ANSWERS_KEPT];
        free(answer->text);
        *answer = (struct answer){.last = last, .text = text};
    }
    reload->running = false;
    pthread_cond_broadcast(&reload->idle);
    pthread_mutex_unlock(&reload->lock);
    return NULL;
}

/* The number of the request; 0: it can't be taken. */
static uint64_t ask(struct mr_reload *reload, bool applies)
{
    pthread_mutex_lock(&reload->lock);
    uint64_t number = reload->ending ? 0 : ++reload->asked;
    reload->applies |= applies;
    pthread_t thread;
    if (number != 0 && !reload->running) {
        reload->running = pthread_create(&thread, NULL, reload_main, reload) == 0;
        number = reload->running ? number : 0;
        if (reload->running) {
            pthread_detach(thread);
        }
    }
    pthread_mutex_unlock(&reload->lock);
    return number;
}

void mr_reload_ask(struct mr_reload *reload)
{
    ask(reload, true);
}

/* ---- HTTP ---- */

static bool may_ask(const struct mr_reload *reload, struct mr_http_request *request)
{
    if (reload->options.closed) {
        mr_http_fail(request, 403,
                     "other machines reach http.address without a password; set http.username and "
                     "a password, or send SIGHUP");
    }
    return !reload->options.closed;
}

/* The client has a file whose content is `digest` (NULL, "": none): it asks about another one. */
static bool means_other_file(const struct mr_reload_options *options, const char *digest)
{
    if (digest == NULL || digest[0] == '\0' || options->path[0] == '\0') {
        return false;
    }
    struct mr_sha256_short own = options->ops->digest(options->context);
    return own.text[0] != '\0' && strcmp(own.text, digest) != 0;
}

static void post_reload(void *context, struct mr_http_request *request)
{
    struct mr_reload *reload = context;
    int64_t dry_run;
    if (!may_ask(reload, request) || !mr_http_number(request, "dry_run", 0, 0, 1, &dry_run)) {
        return;
    }
    if (means_other_file(&reload->options, mr_http_parameter(request, "content"))) {
        FILE *to = mr_http_body(request, "application/json");
        fputs("{\"reads\":", to);
        mr_http_print_string(to, reload->options.path, strlen(reload->options.path));
        fputs("}\n", to);
        return;
    }
    uint64_t number = ask(reload, dry_run == 0);
    if (number == 0) {
        mr_http_fail(request, 503, "millrace is ending");
        return;
    }
    fprintf(mr_http_body(request, "application/json"), "{\"request\":%llu}\n",
            (unsigned long long)number);
}

/* Of several readings after the request the first is its own. */
static void get_outcome(void *context, struct mr_http_request *request)
{
    struct mr_reload *reload = context;
    int64_t number;
    if (!may_ask(reload, request) ||
        !mr_http_number(request, "request", 0, 0, INT64_MAX, &number)) {
        return;
    }
    pthread_mutex_lock(&reload->lock);
    const struct answer *found = NULL;
    for (uint32_t i = 0; i < ANSWERS_KEPT; i++) {
        const struct answer *one = &reload->answers[i];
        if (one->text != NULL && one->last >= (uint64_t)number &&
            (found == NULL || one->last < found->last)) {
            found = one;
        }
    }
    fprintf(mr_http_body(request, "application/json"), "%s\n",
            found == NULL ? "{\"done\":false}" : found->text);
    pthread_mutex_unlock(&reload->lock);
}

/* ---- */

struct mr_reload *mr_reload_new(const struct mr_reload_options *options)
{
    struct mr_reload *reload = MR_NEW(struct mr_reload);
    reload->options = *options;
    reload->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(reload->stop_fd >= 0);
    pthread_mutex_init(&reload->lock, NULL);
    pthread_cond_init(&reload->idle, NULL);
    if (options->http != NULL) {
        mr_http_add(options->http, &(struct mr_http_route){.path = "/api/reload",
                                                           .handler = post_reload,
                                                           .context = reload,
                                                           .post = true});
        mr_http_add(options->http, &(struct mr_http_route){.path = "/api/reload/outcome",
                                                           .handler = get_outcome,
                                                           .context = reload});
    }
    return reload;
}

void mr_reload_free(struct mr_reload *reload)
{
    if (reload == NULL) {
        return;
    }
    pthread_mutex_lock(&reload->lock);
    reload->ending = true;
    eventfd_write(reload->stop_fd, 1);
    while (reload->running) {
        pthread_cond_wait(&reload->idle, &reload->lock);
    }
    pthread_mutex_unlock(&reload->lock);
    for (uint32_t i = 0; i < ANSWERS_KEPT; i++) {
        free(reload->answers[i].text);
    }
    close(reload->stop_fd);
    pthread_mutex_destroy(&reload->lock);
    pthread_cond_destroy(&reload->idle);
    free(reload);
}
