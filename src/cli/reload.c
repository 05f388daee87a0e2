#include "cli/reload.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/text.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/server/pg_setup.h"

enum {
    CHANGE_MS =
        45000, /* longer than reconnect_max's default: the thread may be between two tries */
    ANSWERS_KEPT = 8,
    TEXT_MAX = 1024,
};

/* What came of a reading of the file. */
struct answer {
    uint64_t last; /* the last request that it is for */
    char *text;    /* a JSON object */
};

struct mr_reload {
    const struct mr_config *config; /* as it was started, */
    struct mr_config *reloaded;     /* and what holds of a later file; NULL: nothing */
    struct mr_pipeline *pipeline;
    struct mr_pages *pages;
    struct mr_added *added;
    bool closed; /* the server has no password, and others reach it */
    int stop_fd;

    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool running; /* there is a thread */
    bool ending;
    bool applies; /* one of those that wait is more than a look */
    uint64_t asked, taken;
    struct answer answers[ANSWERS_KEPT]; /* the oldest is overwritten */
    uint32_t next_answer;

    char *configuration, *origins; /* shown since; NULL: as at the start */
    char *reads;                   /* the file's path, as JSON */
};

/* One reading of the file. */
struct reading {
    struct mr_reload *reload;
    struct mr_config *wanted;
    struct mr_error error;                 /* why nothing was done */
    struct mr_text changed, needs_restart; /* options, "a, b" */
    struct mr_text rules;                  /* of needs_restart those about tables' rows */
    struct mr_text added, removed;         /* tables */
    struct mr_text problems;               /* a line each */
    bool patterns;                         /* of tables are different */
    bool publication;                      /* something else is to be in it */
};

static const char *text_of(const struct mr_text *text)
{
    return text->data == NULL ? "" : text->data;
}

static void add_item(struct mr_text *to, const char *item)
{
    if (to->data != NULL) {
        mr_text_string(to, ", ");
    }
    mr_text_string(to, item);
}

/* ---- what is different ---- */

/* Other tables are wanted, or other patterns of tables, or other rows and columns of theirs. */
static bool has_tables(const struct reading *reading)
{
    return reading->added.data != NULL || reading->removed.data != NULL || reading->patterns ||
           reading->publication;
}

static void take_difference(void *context, const char *path, bool live)
{
    struct reading *reading = context;
    add_item(live ? &reading->changed : &reading->needs_restart, path);
    if (!live && mr_config_is_rule(path)) {
        add_item(&reading->rules, path);
    }
    reading->patterns |= strcmp(path, "tables") == 0 || strcmp(path, "excluded_tables") == 0;
    reading->publication |= live && strncmp(path, "publication.", strlen("publication.")) == 0;
}

/* Those of `tables` that `others` lack, for people, and into `ret` if that is wanted. */
static uint32_t beyond(const struct mr_pg_source_options *tables,
                       const struct mr_pg_source_options *others, struct mr_text *names,
                       struct mr_table_name *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tables->table_count; i++) {
        const struct mr_table_name *table = &tables->tables[i];
        if (mr_pg_table_listed(others, mr_slice_of(table->schema), mr_slice_of(table->table))) {
            continue;
        }
        char name[TEXT_MAX];
        snprintf(name, sizeof(name), "%s.%s", table->schema, table->table);
        add_item(names, name);
        if (ret != NULL) {
            ret[count] = *table;
        }
        count++;
    }
    return count;
}

static void add_problem(struct reading *reading, const char *format, ...) MR_PRINTF(2, 3);

static void add_problem(struct reading *reading, const char *format, ...)
{
    char line[2 * TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (reading->problems.data != NULL) {
        mr_text_string(&reading->problems, "\n");
    }
    mr_text_string(&reading->problems, line);
}

static mr_status read_file(struct reading *reading)
{
    mr_status status = mr_config_reload(reading->reload->config, &reading->wanted);
    const struct mr_problems *problems = &reading->wanted->problems;
    for (uint32_t i = 0; i < problems->count; i++) {
        const struct mr_problem *problem = &problems->items[i];
        add_problem(reading, "%s:%u: %s%s", problems->name, problem->line,
                    problem->is_error ? "" : "warning: ", problem->text);
        if (problem->is_error && reading->error.text[0] == '\0') {
            mr_error_set(&reading->error, MR_ERR_CONFIG, "%s:%u: %s", problems->name, problem->line,
                         problem->text);
        }
    }
    return status;
}

/* mr_finding_fn: the first error is the answer. */
static void take_finding(void *context, enum mr_finding_level level, mr_status status,
                         const char *subject, const char *finding, const char *remedy)
{
    struct reading *reading = context;
    if (level == MR_FINDING_OK) {
        return;
    }
    add_problem(reading, "%s%s %s%s%s", level == MR_FINDING_WARNING ? "warning: " : "", subject,
                finding, remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    if (level == MR_FINDING_ERROR && reading->error.text[0] == '\0') {
        mr_error_set(&reading->error, status, "%s %s%s%s", subject, finding,
                     remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    }
}

/* mr_finding_fn: the same, where the rest has been told. */
static void take_error(void *context, enum mr_finding_level level, mr_status status,
                       const char *subject, const char *finding, const char *remedy)
{
    if (level == MR_FINDING_ERROR) {
        take_finding(context, level, status, subject, finding, remedy);
    }
}

/* Tables that are new must be there and published: their rows would be missing without a word. And whatever would end the stream when
 * it is opened with them must be told now. */
static mr_status check_tables(struct reading *reading, const struct mr_config *newest,
                              const struct mr_table_name *added, uint32_t count)
{
    const struct mr_pg_source_options *wanted = &reading->wanted->source;
    struct mr_pg_source_options options = reading->reload->config->source;
    options.tables = wanted->tables;
    options.table_count = wanted->table_count;
    options.patterns = wanted->patterns;
    options.pattern_count = wanted->pattern_count;
    options.excluded = wanted->excluded;
    options.excluded_count = wanted->excluded_count;
    options.held = wanted->held; /* of streams, which may change */
    options.held_count = wanted->held_count;
    options.named = wanted->named;
    options.named_count = wanted->named_count;
    options.alter_publication = wanted->alter_publication;
    options.pipeline = newest->source.pipeline;
    MR_TRY(mr_pg_check_change(&options, added, count, reading->reload->stop_fd, take_finding,
                              reading, &reading->error));
    return reading->error.text[0] == '\0' ? MR_OK : reading->error.status;
}

/* Until the restart rows of such a table would go out as nobody wants them: in the clear, by another key, to another topic. */
static mr_status check_rules(struct reading *reading)
{
    if (reading->rules.data == NULL || (reading->added.data == NULL && !reading->patterns)) {
        return MR_OK;
    }
    return mr_fail(&reading->error, MR_ERR_CONFIG,
                   "tables come to the stream (%s), and %s, which may say what becomes of their "
                   "rows, needs a restart: restart millrace with this file; nothing was changed",
                   reading->added.data == NULL ? "patterns of tables are different"
                                               : reading->added.data,
                   reading->rules.data);
}

/* Looks, or does what it takes. */
static mr_status change_publication(struct reading *reading, bool change)
{
    struct mr_pg_source_options options = reading->wanted->source;
    const struct mr_pg_source_options *running = &reading->reload->config->source;
    options.connection = running->connection; /* with its secrets */
    options.via_root = running->via_root;     /* no reload's matter */
    if (options.published_count == 0 && !options.alter_publication) {
        return MR_OK;
    }
    MR_TRY(mr_pg_change_publication(&options, change, reading->reload->stop_fd,
                                    change ? take_error : take_finding, reading, &reading->error));
    return reading->error.text[0] == '\0' ? MR_OK : reading->error.status;
}

static mr_status compare(struct reading *reading)
{
    const struct mr_reload *reload = reading->reload;
    const struct mr_config *newest = reload->reloaded == NULL ? reload->config : reload->reloaded;
    struct mr_config *wanted = reading->wanted;
    const char *fault = mr_config_reload_fault(reload->config, wanted);
    if (fault != NULL) {
        return mr_fail(&reading->error, MR_ERR_CONFIG, "%s; nothing was changed", fault);
    }
    mr_config_differences(reload->config, reload->reloaded, wanted, take_difference, reading);
    reading->patterns &= newest->source.pattern_count + wanted->source.pattern_count > 0;
    mr_config_name_reloaded(reload->config, wanted);
    struct mr_table_name *added = MR_NEW_ARRAY(struct mr_table_name, wanted->source.table_count);
    uint32_t count = beyond(&wanted->source, &newest->source, &reading->added, added);
    beyond(&newest->source, &wanted->source, &reading->removed, NULL);
    mr_status status = check_rules(reading);
    if (status == MR_OK && has_tables(reading)) {
        status = check_tables(reading, newest, added, count);
    }
    free(added);
    return status == MR_OK && has_tables(reading) ? change_publication(reading, false) : status;
}

/* ---- the change ---- */

static void show_configuration(struct mr_reload *reload)
{
    if (reload->pages == NULL) {
        return;
    }
    char *configuration = mr_config_json(reload->config, reload->reloaded);
    char *origins = mr_config_origins_json(reload->config, reload->reloaded);
    pthread_mutex_lock(reload->pages->lock);
    reload->pages->configuration = configuration;
    reload->pages->origins = origins;
    pthread_mutex_unlock(reload->pages->lock);
    free(reload->configuration);
    free(reload->origins);
    reload->configuration = configuration;
    reload->origins = origins;
}

static mr_status apply(struct reading *reading)
{
    struct mr_reload *reload = reading->reload;
    struct mr_config *wanted = reading->wanted;
    struct mr_pipeline_stats stats = mr_pipeline_stats(reload->pipeline);
    if (stats.source_stands_by) {
        return mr_fail(&reading->error, MR_AGAIN,
                       "another instance has the stream and this one stands by: reload that one, "
                       "then restart this one");
    }
    const struct mr_pipeline_change change = {
        .options = &wanted->pipeline,
        .encode = &wanted->encode,
        .source = has_tables(reading) ? &wanted->source : NULL,
    };
    if (has_tables(reading) && stats.copy.state != MR_COPY_RUNNING) { /* else it is refused */
        MR_TRY(change_publication(reading, true));
    }
    MR_TRY(mr_pipeline_change(reload->pipeline, &change, CHANGE_MS, &reading->error));
    mr_added_change(reload->added, wanted);
    mr_log_set_level(wanted->log_level);
    mr_config_free(reload->reloaded);
    reload->reloaded = wanted;
    reading->wanted = NULL;
    show_configuration(reload);
    return MR_OK;
}

/* Records of a reload show whatever the level was or becomes. */
static void log_outcome(const struct reading *reading, const char *outcome, mr_status status)
{
    struct mr_log_field fields[] = {
        MR_LOG_STR("changed", text_of(&reading->changed)),
        MR_LOG_STR("tables_added", text_of(&reading->added)),
        MR_LOG_STR("tables_removed", text_of(&reading->removed)),
        MR_LOG_STR("needs_restart", text_of(&reading->needs_restart)),
        {0},
    };
    if (status != MR_OK) {
        mr_log(MR_LOG_ERROR, "reload_refused", reading->error.text);
        return;
    }
    enum mr_log_level level = reading->needs_restart.data != NULL ? MR_LOG_WARN : MR_LOG_INFO;
    mr_log_write(level, "reloaded",
                 strcmp(outcome, "applied") == 0
                     ? "the configuration file was read again, and what may change has changed"
                     : "the configuration file was read again; nothing was changed",
                 fields);
}

static char *make_answer(const struct reading *reading, const char *outcome, mr_status status)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "done", true);
    cJSON_AddStringToObject(object, "outcome", outcome);
    /* "Not now" is an error for who asked. */
    bool later = status == MR_AGAIN || status == MR_ERR_DEADLINE;
    cJSON_AddNumberToObject(object, "exit_code",
                            mr_status_exit_code(later ? MR_ERR_TRANSIENT : status));
    cJSON_AddStringToObject(object, "error", status == MR_OK ? "" : reading->error.text);
    cJSON_AddStringToObject(object, "changed", text_of(&reading->changed));
    cJSON_AddStringToObject(object, "needs_restart", text_of(&reading->needs_restart));
    cJSON_AddStringToObject(object, "tables_added", text_of(&reading->added));
    cJSON_AddStringToObject(object, "tables_removed", text_of(&reading->removed));
    cJSON_AddStringToObject(object, "problems", text_of(&reading->problems));
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    MR_ASSERT(text != NULL);
    return text;
}

static char *run_once(struct mr_reload *reload, bool applies)
{
    struct reading reading = {.reload = reload};
    const char *outcome = "unchanged";
    mr_status status = read_file(&reading);
    status = status == MR_OK ? compare(&reading) : status;
    bool differs = reading.changed.data != NULL;
    if (status == MR_OK && differs) {
        outcome = applies ? "applied" : "checked";
        status = applies ? apply(&reading) : MR_OK;
    }
    outcome = status == MR_OK ? outcome : "refused";
    log_outcome(&reading, outcome, status);
    char *answer = make_answer(&reading, outcome, status);
    mr_config_free(reading.wanted);
    mr_text_done(&reading.changed);
    mr_text_done(&reading.needs_restart);
    mr_text_done(&reading.rules);
    mr_text_done(&reading.added);
    mr_text_done(&reading.removed);
    mr_text_done(&reading.problems);
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
    if (reload->closed) {
        mr_http_fail(request, 403,
                     "other machines reach http.address without a password; set http.username and "
                     "a password, or send SIGHUP");
    }
    return !reload->closed;
}

/* Who asks has a file whose content is `digest` (NULL, "": none): what would be told is of another one. */
static bool means_other_file(const struct mr_reload *reload, const char *digest)
{
    if (digest == NULL || digest[0] == '\0' || reload->config->path == NULL) {
        return false;
    }
    struct mr_sha256_short own = mr_config_digest(reload->config->path);
    return own.text[0] != '\0' && strcmp(own.text, digest) != 0;
}

static void post_reload(void *context, struct mr_http_request *request)
{
    struct mr_reload *reload = context;
    int64_t dry_run;
    if (!may_ask(reload, request) || !mr_http_number(request, "dry_run", 0, 0, 1, &dry_run)) {
        return;
    }
    if (means_other_file(reload, mr_http_parameter(request, "content"))) {
        fprintf(mr_http_body(request, "application/json"), "{\"reads\":%s}\n", reload->reads);
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

/* Of several readings behind the request the first is its own. */
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

bool mr_reload_is_closed(const struct mr_config *config)
{
    return config->http.username == NULL && !mr_address_is_local(&config->http.address);
}

struct mr_reload *mr_reload_new(const struct mr_config *config, struct mr_pipeline *pipeline,
                                struct mr_http *http, struct mr_pages *pages,
                                struct mr_added *added)
{
    struct mr_reload *reload = MR_NEW(struct mr_reload);
    reload->config = config;
    reload->pipeline = pipeline;
    reload->pages = pages;
    reload->added = added;
    reload->closed = mr_reload_is_closed(config);
    cJSON *path = cJSON_CreateString(config->path == NULL ? "" : config->path);
    reload->reads = cJSON_PrintUnformatted(path);
    cJSON_Delete(path);
    reload->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(reload->stop_fd >= 0);
    pthread_mutex_init(&reload->lock, NULL);
    pthread_cond_init(&reload->idle, NULL);
    if (http != NULL) {
        mr_http_add(http, &(struct mr_http_route){.path = "/api/reload",
                                                  .handler = post_reload,
                                                  .context = reload,
                                                  .post = true});
        mr_http_add(http, &(struct mr_http_route){.path = "/api/reload/outcome",
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
    mr_config_free(reload->reloaded);
    free(reload->reads);
    free(reload->configuration);
    free(reload->origins);
    close(reload->stop_fd);
    pthread_mutex_destroy(&reload->lock);
    pthread_cond_destroy(&reload->idle);
    free(reload);
}
