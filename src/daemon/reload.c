#include "daemon/reload.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"
#include "daemon/daemon.h"
#include "postgres/server/pg_setup.h"

enum {
    CHANGE_MS = 45000, /* above reconnect_max's default: the thread may be between two tries */
    ANSWERS_KEPT = 8,
};

enum list {
    CHANGED, /* options that change now */
    TABLES_ADDED,
    TABLES_REMOVED,
    SECRETS, /* read anew */
    NEEDS_RESTART,
    PROBLEMS,
    LISTS
};

static const char *const list_names[] = {"changed",         "tables_added",  "tables_removed",
                                         "secrets_changed", "needs_restart", "problems"};

struct reading {
    struct mr_reload *reload;
    struct mr_text lists[LISTS];
    struct mr_text rules;                      /* of NEEDS_RESTART those about tables' rows */
    bool patterns;                             /* the patterns of tables differ */
    bool publication;                          /* the publication is to send something else */
    struct mr_error error;                     /* why nothing was done */
    const struct mr_config *started, *running; /* the start's, and what is in effect */
    struct mr_config *wanted;
};

struct answer {
    uint64_t last; /* the last request that it is for */
    char *text;    /* a JSON object */
};

struct mr_reload {
    struct mr_reload_options options;
    int stop_fd;

    pthread_mutex_t lock;
    struct mr_config *newest; /* in effect since a reload; NULL: the start's is */
    pthread_cond_t wake;
    pthread_t thread;
    bool has_thread, ending;
    bool applies; /* one of those that wait is more than a look */
    bool watched; /* they come of looks at the file alone */
    uint64_t asked, taken;
    struct {
        struct mr_sha256_short settled;  /* the content of the file that needs no reload */
        struct mr_sha256_short seen;     /* at the last look */
        struct mr_error refused;         /* what the last reading was refused with */
    } watch;                             /* of the thread */
    struct answer answers[ANSWERS_KEPT]; /* the oldest is overwritten */
    uint32_t next_answer;
};

static const char *reload_text_of(const struct reading *reading, enum list which)
{
    const char *data = reading->lists[which].data;
    return data == NULL ? "" : data;
}

static bool reload_has(const struct reading *reading, enum list which)
{
    return reading->lists[which].data != NULL;
}

static void reload_add_name(struct mr_text *to, const char *name)
{
    mr_text_format(to, "%s%s", to->data == NULL ? "" : ", ", name);
}

/* A line of the problems; the first error (`status`, else MR_OK) is what the reading fails with. */
static void add_problem(struct reading *reading, mr_status status, const char *format, ...)
    MR_PRINTF(3, 4);
static void add_problem(struct reading *reading, mr_status status, const char *format, ...)
{
    struct mr_text *to = &reading->lists[PROBLEMS];
    struct mr_error problem = {.status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(problem.text, sizeof(problem.text), format, args);
    va_end(args);
    mr_text_format(to, "%s%s", to->data == NULL ? "" : "\n", problem.text);
    if (status != MR_OK && reading->error.text[0] == '\0') {
        reading->error = problem;
    }
}

static void reload_take_difference(void *context, const struct mr_option *option)
{
    struct reading *reading = context;
    reload_add_name(&reading->lists[mr_option_is_live(option) ? CHANGED : NEEDS_RESTART],
                    option->path);
    if (option->reload == MR_RELOAD_RULE) {
        reload_add_name(&reading->rules, option->path);
    }
    reading->patterns |= option->part == MR_PART_CAPTURE && option->reload == MR_RELOAD_BETWEEN;
    reading->publication |= option->reload == MR_RELOAD_PUBLICATION;
}

static void take_problems(struct reading *reading)
{
    const struct mr_problems *problems = &reading->wanted->problems;
    for (uint32_t i = 0; i < problems->count; i++) {
        const struct mr_problem *problem = &problems->items[i];
        add_problem(reading, problem->is_error ? MR_ERR_CONFIG : MR_OK, "%s:%u: %s%s",
                    problems->name, problem->line,
                    problem->is_error ? "" : "warning: ", problem->text);
    }
}

static mr_status reload_read_file(struct reading *reading)
{
    const struct mr_config *newest = reading->reload->newest;
    mr_status status = mr_daemon_reload(reading->started, &reading->wanted);
    take_problems(reading);
    MR_TRY(status);
    const char *fault = mr_config_reload_fault(reading->started, reading->wanted);
    if (fault != NULL) {
        return mr_fail(&reading->error, MR_ERR_CONFIG, "%s; nothing was changed", fault);
    }
    mr_config_differences(reading->started, newest, reading->wanted, reload_take_difference,
                          reading);
    mr_config_name_reloaded(reading->started, reading->wanted);
    reading->patterns &= reading->running->source.captured.pattern_count +
                             reading->wanted->source.captured.pattern_count >
                         0;
    return MR_OK;
}

/* Other tables are wanted, other patterns of tables, or other rows and columns of theirs. */
static bool has_tables(const struct reading *reading)
{
    return reload_has(reading, TABLES_ADDED) || reload_has(reading, TABLES_REMOVED) ||
           reading->patterns || reading->publication;
}

static bool reload_has_context(const struct reading *reading)
{
    return !mr_strings_equal(&reading->running->values.context_headers,
                             &reading->wanted->values.context_headers);
}

/* Lists those of `tables` that `others` lack, and copies them into `ret` (NULL: not wanted). */
static uint32_t list_beyond(struct mr_text *to, const struct mr_pg_source_options *tables,
                            const struct mr_pg_source_options *others, struct mr_table_name *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tables->captured.table_count; i++) {
        const struct mr_table_name *table = &tables->captured.tables[i];
        if (mr_pg_table_listed(others, mr_slice_of(table->schema), mr_slice_of(table->table))) {
            continue;
        }
        mr_text_format(to, "%s%s.%s", to->data == NULL ? "" : ", ", table->schema, table->table);
        if (ret != NULL) {
            ret[count] = *table;
        }
        count++;
    }
    return count;
}

static void reload_take_finding(void *context, enum mr_finding_level level, mr_status status,
                                const char *subject, const char *finding, const char *remedy)
{
    if (level != MR_FINDING_OK) {
        add_problem(context, level == MR_FINDING_ERROR ? status : MR_OK, "%s%s %s%s%s",
                    level == MR_FINDING_WARNING ? "warning: " : "", subject, finding,
                    remedy == NULL ? "" : "; ", remedy == NULL ? "" : remedy);
    }
}

/* mr_finding_fn: the same, where the look has reported the rest. */
static void reload_take_error(void *context, enum mr_finding_level level, mr_status status,
                              const char *subject, const char *finding, const char *remedy)
{
    if (level == MR_FINDING_ERROR) {
        reload_take_finding(context, level, status, subject, finding, remedy);
    }
}

static mr_status found(const struct reading *reading, mr_status status)
{
    return status != MR_OK || reading->error.text[0] == '\0' ? status : reading->error.status;
}

/* A table that joins must be there and published, or its rows would be missing silently; and what
 * would end the stream when it is opened with these tables is reported now. */
static mr_status check_tables(struct reading *reading, const struct mr_table_name *added,
                              uint32_t count)
{
    const struct mr_pg_source_options *wanted = &reading->wanted->source;
    struct mr_pg_source_options options = reading->started->source;
    options.captured = wanted->captured;
    options.captured.pipeline = reading->running->source.captured.pipeline;
    options.checked.held = wanted->checked.held; /* of streams, which may change */
    options.checked.held_count = wanted->checked.held_count;
    options.checked.named = wanted->checked.named;
    options.checked.named_count = wanted->checked.named_count;
    return found(reading, mr_pg_check_change(&options, added, count, reading->reload->stop_fd,
                                             reload_take_finding, reading, &reading->error));
}

/* Until the restart, rows of such a table would go out as they must not: in the clear, by another
 * key, to another topic. */
static mr_status reload_check_rules(struct reading *reading)
{
    bool joins = reload_has(reading, TABLES_ADDED);
    if (reading->rules.data == NULL || (!joins && !reading->patterns)) {
        return MR_OK;
    }
    return mr_fail(
        &reading->error, MR_ERR_CONFIG,
        "new tables join the stream (%s), and a change of %s, which may apply to their rows, "
        "needs a restart: restart millrace with this file; nothing was changed",
        joins ? reload_text_of(reading, TABLES_ADDED) : "patterns of tables are different",
        reading->rules.data);
}

static mr_status change_publication(struct reading *reading, bool change)
{
    struct mr_pg_source_options options = reading->wanted->source;
    options.connection = reading->started->source.connection; /* with its secrets */
    options.via_root = reading->started->source.via_root;     /* a reload does not change it */
    if (options.captured.published_count == 0 && !options.captured.alter_publication) {
        return MR_OK;
    }
    return found(reading, mr_pg_change_publication(&options, change, reading->reload->stop_fd,
                                                   change ? reload_take_error : reload_take_finding,
                                                   reading, &reading->error));
}

static mr_status reload_compare(struct reading *reading)
{
    const struct mr_pg_source_options *running = &reading->running->source;
    const struct mr_pg_source_options *wanted = &reading->wanted->source;
    MR_FREED struct mr_table_name *added =
        MR_NEW_ARRAY(struct mr_table_name, wanted->captured.table_count);
    uint32_t count = list_beyond(&reading->lists[TABLES_ADDED], wanted, running, added);
    list_beyond(&reading->lists[TABLES_REMOVED], running, wanted, NULL);
    MR_TRY(reload_check_rules(reading));
    if (!has_tables(reading)) {
        return MR_OK;
    }
    MR_TRY(check_tables(reading, added, count));
    return change_publication(reading, false);
}

/* Each connection reads its own again; a reload says what it finds. */
static void look_at_secrets(struct reading *reading)
{
    const struct mr_secret_files *files = &reading->started->secrets;
    for (uint32_t i = 0; i < files->count; i++) {
        if (mr_secret_look(files->items[i].secret)) {
            reload_add_name(&reading->lists[SECRETS], files->items[i].what);
        }
    }
}

static mr_status apply(struct reading *reading)
{
    const struct mr_reload_options *options = &reading->reload->options;
    const struct mr_config *wanted = reading->wanted;
    if (mr_pipeline_stats(options->pipeline).source.stands_by) {
        return mr_fail(&reading->error, MR_AGAIN,
                       "another instance has the stream and this one stands by: reload that one, "
                       "then restart this one");
    }
    const struct mr_pipeline_change change = {
        .options = &wanted->daemon->pipeline,
        .encode = &wanted->encode,
        .source = has_tables(reading) || reload_has_context(reading) ? &wanted->source : NULL,
    };
    if (has_tables(reading) &&
        mr_copies_stats(options->copies).state != MR_COPY_RUNNING) { /* else it is refused */
        MR_TRY(change_publication(reading, true));
    }
    MR_TRY(mr_pipeline_change(options->pipeline, &change, CHANGE_MS, &reading->error));
    mr_added_change(options->added, &wanted->source, wanted->values.snapshot_added != 0);
    mr_log_set_level(wanted->log_level);
    return MR_OK;
}

/* Of a reload the log has a line at any level. */
static void log_outcome(const struct reading *reading, const char *outcome, mr_status status)
{
    struct mr_log_field fields[PROBLEMS + 1] = {0}; /* of the lists; the last ends them */
    if (status != MR_OK) {
        const char *all = reload_text_of(reading, PROBLEMS);
        if (strchr(all, '\n') != NULL) { /* the message has the first alone */
            fields[0] = MR_LOG_STR(list_names[PROBLEMS], all);
        }
        mr_log_write(MR_LOG_ERROR, "reload_refused", reading->error.text, fields);
        return;
    }
    for (unsigned i = 0; i < PROBLEMS; i++) {
        fields[i] = MR_LOG_STR(list_names[i], reload_text_of(reading, (enum list)i));
    }
    bool is_look = strcmp(outcome, "checked") == 0;
    mr_log_write(reload_has(reading, NEEDS_RESTART) ? MR_LOG_WARN : MR_LOG_INFO,
                 is_look ? "reload_checked" : "reloaded",
                 strcmp(outcome, "applied") == 0
                     ? "the configuration file was read again, and what may change has changed"
                     : "the configuration file was read again; nothing was changed",
                 fields);
}

/* The same file may be good at another moment. */
static bool may_work_later(mr_status status)
{
    return status == MR_AGAIN || status == MR_ERR_DEADLINE || status == MR_ERR_TRANSIENT;
}

static char *make_answer(const struct reading *reading, const char *outcome, mr_status status)
{
    MR_OBJECT cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "done", true);
    cJSON_AddStringToObject(object, "outcome", outcome);
    cJSON_AddNumberToObject(
        object, "exit_code",
        mr_status_exit_code(may_work_later(status) ? MR_ERR_TRANSIENT : status));
    cJSON_AddStringToObject(object, "error", status == MR_OK ? "" : reading->error.text);
    for (size_t i = 0; i < LISTS; i++) {
        cJSON_AddStringToObject(object, list_names[i], reload_text_of(reading, (enum list)i));
    }
    return mr_object_text(object);
}

/* What was read is in effect now, in place of what was before, or it is forgotten. */
static void reload_settle(struct reading *reading, bool in_effect)
{
    struct mr_reload *reload = reading->reload;
    struct mr_config *over = reading->wanted;
    if (in_effect) {
        pthread_mutex_lock(&reload->lock);
        over = reload->newest;
        reload->newest = reading->wanted;
        pthread_mutex_unlock(&reload->lock);
    }
    mr_config_free(over);
}

/* The log has an outcome once, however often the watch tries the same again. */
static void conclude(const struct reading *reading, const char *outcome, mr_status status,
                     bool applies, bool watched)
{
    struct mr_reload *reload = reading->reload;
    if (!watched || status == MR_OK ||
        strcmp(reading->error.text, reload->watch.refused.text) != 0) {
        log_outcome(reading, outcome, status);
    }
    reload->watch.refused = reading->error;
    if (applies && !may_work_later(status)) {
        reload->watch.settled = reading->wanted->digest;
    }
}

static char *run_once(struct mr_reload *reload, bool applies, bool watched)
{
    const struct mr_config *started = reload->options.started;
    struct reading reading = {.reload = reload,
                              .started = started,
                              .running = reload->newest == NULL ? started : reload->newest};
    const char *outcome = "unchanged";
    mr_status status = reload_read_file(&reading);
    status = MR_THEN(status, reload_compare(&reading));
    bool in_effect = false;
    if (status == MR_OK && reload_has(&reading, CHANGED)) {
        outcome = applies ? "applied" : "checked";
        status = applies ? apply(&reading) : MR_OK;
        in_effect = applies && status == MR_OK;
    }
    if (status == MR_OK && applies) {
        look_at_secrets(&reading);
        outcome = reload_has(&reading, SECRETS) ? "applied" : outcome;
    }
    outcome = status == MR_OK ? outcome : "refused";
    conclude(&reading, outcome, status, applies, watched);
    reload_settle(&reading, in_effect);
    char *answer = make_answer(&reading, outcome, status);
    for (size_t i = 0; i < LISTS; i++) {
        mr_text_done(&reading.lists[i]);
    }
    mr_text_done(&reading.rules);
    return answer;
}

/* Whether the file holds something else than what is settled. It counts once two looks have found
 * the same: before, it may be half written. */
static bool file_has_changed(struct mr_reload *reload)
{
    struct mr_sha256_short now = mr_file_digest(reload->options.started->path);
    bool stays = strcmp(now.text, reload->watch.seen.text) == 0;
    reload->watch.seen = now;
    return stays && strcmp(now.text, reload->watch.settled.text) != 0;
}

/* With the lock, which is not held meanwhile. */
static void wait_for_work(struct mr_reload *reload)
{
    int64_t watch_ms = reload->options.started->values.reload_watch;
    if (watch_ms == 0) {
        pthread_cond_wait(&reload->wake, &reload->lock);
        return;
    }
    int64_t end_ns = mr_monotonic_ns() + watch_ms * 1000000;
    if (!mr_cond_wait_until(&reload->wake, &reload->lock, end_ns)) {
        pthread_mutex_unlock(&reload->lock);
        bool changed = file_has_changed(reload);
        pthread_mutex_lock(&reload->lock);
        reload->watched = changed && reload->asked == reload->taken;
        reload->asked += changed;
        reload->applies |= changed;
    }
}

static void *reload_main(void *context)
{
    struct mr_reload *reload = context;
    pthread_mutex_lock(&reload->lock);
    while (!reload->ending) {
        if (reload->taken == reload->asked) {
            wait_for_work(reload);
            continue;
        }
        uint64_t last = reload->taken = reload->asked;
        bool applies = reload->applies, watched = reload->watched;
        reload->applies = reload->watched = false;
        pthread_mutex_unlock(&reload->lock);
        char *text = run_once(reload, applies, watched);
        pthread_mutex_lock(&reload->lock);
        struct answer *answer = &reload->answers[reload->next_answer++ % ANSWERS_KEPT];
        free(answer->text);
        *answer = (struct answer){.last = last, .text = text};
    }
    pthread_mutex_unlock(&reload->lock);
    return NULL;
}

/* With the lock. */
static void begin_thread(struct mr_reload *reload)
{
    reload->has_thread =
        reload->has_thread || mr_thread_create(&reload->thread, reload_main, reload, NULL) == MR_OK;
}

/* The number of the request; 0: it can't be taken. */
static uint64_t reload_ask(struct mr_reload *reload, bool applies)
{
    MR_HOLD(&reload->lock);
    begin_thread(reload);
    uint64_t number = reload->has_thread && !reload->ending ? ++reload->asked : 0;
    reload->applies |= applies;
    reload->watched = false;
    pthread_cond_signal(&reload->wake);
    return number;
}

void mr_reload_ask(struct mr_reload *reload)
{
    reload_ask(reload, true);
}

/* The client has a file whose content is `digest` (NULL, "": none): it asks about another one. */
static bool means_other_file(const char *path, const char *digest)
{
    if (digest == NULL || digest[0] == '\0' || path == NULL) {
        return false;
    }
    struct mr_sha256_short own = mr_file_digest(path);
    return own.text[0] != '\0' && strcmp(own.text, digest) != 0;
}

static void post_reload(void *context, struct mr_http_request *request)
{
    struct mr_reload *reload = context;
    const char *path = reload->options.started->path;
    int64_t dry_run;
    if (!mr_http_number(request, "dry_run", 0, 0, 1, &dry_run)) {
        return;
    }
    if (means_other_file(path, mr_http_parameter(request, "content"))) {
        FILE *to = mr_http_body(request, "application/json");
        fputs("{\"reads\":", to);
        mr_http_print_string(to, path, strlen(path));
        fputs("}\n", to);
        return;
    }
    uint64_t number = reload_ask(reload, dry_run == 0);
    if (number == 0) {
        mr_http_fail(request, 503, "millrace is ending");
        return;
    }
    fprintf(mr_http_body(request, "application/json"), "{\"request\":%llu}\n",
            (unsigned long long)number);
}

/* Of several readings after the request the first is its own. */
static void reload_get_outcome(void *context, struct mr_http_request *request)
{
    struct mr_reload *reload = context;
    int64_t number;
    if (!mr_http_number(request, "request", 0, 0, INT64_MAX, &number)) {
        return;
    }
    MR_HOLD(&reload->lock);
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
}

void mr_reload_show(void *context, cJSON *status)
{
    struct mr_reload *reload = context;
    MR_HOLD(&reload->lock);
    mr_config_show(reload->options.started, reload->newest, status);
}

struct mr_reload *mr_reload_new(const struct mr_reload_options *options)
{
    struct mr_reload *reload = MR_NEW(struct mr_reload);
    reload->options = *options;
    reload->stop_fd = mr_wake_new();
    pthread_mutex_init(&reload->lock, NULL);
    mr_cond_init(&reload->wake);
    static const struct mr_http_route routes[] = {
        {.path = "/api/reload", .handler = post_reload, .post = true, .commands = true},
        {.path = "/api/reload/outcome", .handler = reload_get_outcome, .commands = true},
    };
    if (options->http != NULL) {
        mr_http_add_all(options->http, routes, MR_ARRAY_LEN(routes), reload);
    }
    reload->watch.settled = options->started->digest;
    if (options->started->path != NULL && options->started->values.reload_watch > 0) {
        pthread_mutex_lock(&reload->lock);
        begin_thread(reload);
        pthread_mutex_unlock(&reload->lock);
    }
    return reload;
}

void mr_reload_free(struct mr_reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    reload->ending = true;
    mr_wake(reload->stop_fd);
    pthread_cond_signal(&reload->wake);
    pthread_mutex_unlock(&reload->lock);
    if (reload->has_thread) {
        pthread_join(reload->thread, NULL);
    }
    for (uint32_t i = 0; i < ANSWERS_KEPT; i++) {
        free(reload->answers[i].text);
    }
    mr_config_free(reload->newest);
    close(reload->stop_fd);
    pthread_mutex_destroy(&reload->lock);
    pthread_cond_destroy(&reload->wake);
    free(reload);
}
