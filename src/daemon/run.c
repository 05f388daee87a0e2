/* Wiring and signals; the only file that knows every module. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"
#include "config/confinement.h"
#include "control/pages.h"
#include "control/snapshot.h"
#include "copy/pg_server.h"
#include "copy/signals.h"
#include "daemon/daemon.h"
#include "daemon/profiling.h"
#include "daemon/reload.h"
#include "flow/kept.h"
#include "ledger/ledger.h"
#include "resolved/resolved.h"
#include "sink/file.h"
#include "sink/kafka/kafka.h"
#include "stream/pg_source.h"
#include "terminal/runbook.h"
#include "terminal/terminal.h"

enum {
    MONITOR_SAMPLE_MS = 1000,
    ASK_MS = 1000, /* for the source thread to run a command */
    MEMORY_LOG_MS = 60000,
    LEAVE_MS = 5000, /* after its deadline a stop waits no longer than this */
    LEDGER_MS = 1000,
    TABLES_WITH_FIGURES = 500,
};

struct app {
    struct mr_config *config;
    int leave_fd; /* takes in how many milliseconds the process is to be gone */
    struct mr_source *source;
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_schemas *schemas; /* NULL: the format has none */
    struct mr_registry *registry;
    struct mr_encoder *encoder;
    const struct mr_copy_server *server; /* of copies */
    struct mr_copies *copies;
    struct mr_resolved *resolved; /* NULL: no markers are wanted */
    struct mr_ledger *ledger;     /* NULL: none is kept */
    struct {
        struct mr_hidden *hidden;       /* NULL: no rules for columns */
        struct mr_kin *kin;             /* NULL: neither */
        struct mr_placings *placings;   /* NULL: what comes again was never seen */
        struct mr_known_topics *topics; /* NULL: the sink is not Kafka */
        struct mr_silence *silence;
        struct mr_keeper keepers[MR_KEPT_COUNT];
    } kept;                                              /* with the position */
    struct mr_companion *companions[9];                  /* of all nine */
    struct mr_section_kind sections[MR_DAEMON_SECTIONS]; /* that the stored position may have */
    struct mr_pipeline *pipeline;
    struct mr_table_counts *table_counts;
    struct mr_pg_slot *slot;
    struct mr_pg_heartbeat *heartbeat;
    struct mr_monitor *monitor;
    struct {
        struct mr_http *http; /* NULL: not wanted */
        struct mr_pages pages;
        struct mr_snapshot_routes snapshot;
    } web;
    struct mr_reload *reload;
    struct mr_added *added;
    struct mr_secrets_watch *secrets;
};

static mr_status take_signal_row(void *context, const struct mr_change *change,
                                 struct mr_error *ret_error)
{
    const struct app *app = context;
    return mr_signals_take_row(app->copies, app->source, change, ret_error);
}

static bool has_stream(void *context)
{
    return mr_pipeline_stats(((struct app *)context)->pipeline).source.connected;
}

/* One that finds no moment is left out. */
static void send_beat(void *context)
{
    mr_status sent = mr_pipeline_beat(((struct app *)context)->pipeline, ASK_MS, NULL);
    (void)sent;
}

static bool shows_column(void *context, const struct mr_relation *relation, uint32_t column)
{
    return mr_encoder_shows(((struct app *)context)->encoder, relation, column);
}

static struct mr_pg_heartbeat *make_heartbeat(struct app *app)
{
    const struct mr_config *config = app->config;
    const char *query = config->values.heartbeat_query;
    return mr_pg_heartbeat_new(&(struct mr_pg_heartbeat_options){
        .connection = &config->source.connection,
        .interval_ms = config->heartbeat_ms,
        .query = query[0] == '\0' ? NULL : query,
        .has_stream = has_stream,
        .beat = config->encode.heartbeat_topic == NULL ? NULL : send_beat,
        .context = app});
}

static void write_more_metrics(void *context, struct mr_buffer *out)
{
    (void)context;
    mr_profiling_metrics(out);
}

static void show_more(void *context, cJSON *status)
{
    const struct app *app = context;
    mr_reload_show(app->reload, status);
}

/* The database's name is known once the source is open. */
static void source_opened(void *context)
{
    struct app *app = context;
    mr_encoder_set_database(app->encoder, mr_pg_source_database(app->source));
}

static struct mr_sink *make_sink(const struct mr_config *config)
{
    switch (config->sink_kind) {
    case MR_SINK_KAFKA:
        return mr_kafka_sink_new(&config->kafka);
    case MR_SINK_DISCARD:
        return mr_discard_sink_new();
    case MR_SINK_STDOUT:
    case MR_SINK_FILE:
        break;
    }
    return mr_file_sink_new(config->file_path);
}

/* No table and no value may name a topic that millrace reads itself. */
static void reserve_topics(struct app *app)
{
    const char *const own[] = {app->config->kafka.state_topic, app->config->ledger_topic};
    const char *other;
    for (size_t i = 0; i < MR_ARRAY_LEN(own); i++) {
        if (own[i] != NULL) {
            mr_topics_claim(&app->topics, own[i], "millrace itself", &other);
        }
    }
}

void mr_daemon_know_sections(struct mr_config *config, struct mr_section_kind *kinds)
{
    uint32_t count = 0;
    for (; mr_copy_section_kinds[count].name != NULL; count++) {
        kinds[count] = mr_copy_section_kinds[count];
    }
    if (config->ledger_topic != NULL) {
        kinds[count++] = mr_ledger_section_kind;
    }
    if (config->encode.column_rules.count > 0) {
        kinds[count++] = mr_kept_kinds[MR_KEPT_COLUMNS];
        kinds[count++] = mr_kept_kinds[MR_KEPT_KIN];
    }
    if (!config->kafka.exactly_once) {
        kinds[count++] = mr_kept_kinds[MR_KEPT_PLACINGS];
    }
    kinds[count++] = mr_kept_kinds[MR_KEPT_TOPICS];
    kinds[count++] = mr_kept_kinds[MR_KEPT_SILENCE];
    MR_ASSERT(count < MR_DAEMON_SECTIONS);
    kinds[count] = (struct mr_section_kind){0};
    config->kafka.sections = kinds;
}

static void copies_wire(struct app *app)
{
    struct mr_copies_options *options = &app->config->daemon->copies;
    struct mr_pipeline_options *pipeline = &app->config->daemon->pipeline;
    app->server = mr_pg_server_new(app->source);
    options->server = app->server;
    options->topics = app->kept.topics;
    options->stores_beginning = app->kept.hidden != NULL;
    options->change_bytes_max = pipeline->change_bytes_max;
    if (app->config->source.signal_table != NULL) {
        options->on_signal = take_signal_row;
        options->on_signal_context = app;
    }
    app->copies = mr_copies_new(options);
}

static void companions_wire(struct app *app)
{
    struct mr_pipeline_options *pipeline = &app->config->daemon->pipeline;
    copies_wire(app);
    uint32_t count;
    struct mr_companion *const *copies = mr_copies_companions(app->copies, &count);
    MR_ASSERT(count < MR_ARRAY_LEN(app->companions));
    memcpy(app->companions, copies, count * sizeof(*copies));
    if (app->config->resolved_ms != 0 && app->config->sink_kind == MR_SINK_KAFKA) {
        app->resolved = mr_resolved_new(&app->topics, app->config->resolved_ms);
        app->companions[count++] = mr_resolved_companion(app->resolved);
    }
    if (app->config->ledger_topic != NULL) {
        app->ledger = mr_ledger_new(&(struct mr_ledger_options){
            .topics = &app->topics,
            .topic = mr_topics_intern(&app->topics, app->config->ledger_topic),
            .pipeline = app->config->kafka.state_name,
            .interval_ms = LEDGER_MS});
        app->companions[count++] = mr_ledger_companion(app->ledger);
    }
    app->kept.silence = mr_silence_new();
    const union mr_kept_object kept[MR_KEPT_COUNT] = {
        [MR_KEPT_KIN] = {.kin = app->kept.kin},
        [MR_KEPT_COLUMNS] = {.hidden = app->kept.hidden},
        [MR_KEPT_PLACINGS] = {.placings = app->kept.placings},
        [MR_KEPT_TOPICS] = {.topics = app->kept.topics},
        [MR_KEPT_SILENCE] = {.silence = app->kept.silence},
    };
    for (uint32_t i = 0; i < MR_KEPT_COUNT; i++) {
        if (kept[i].any != NULL) {
            mr_keeper_init(&app->kept.keepers[i], i, kept[i]);
            app->companions[count++] = &app->kept.keepers[i].base;
        }
    }
    pipeline->companions = app->companions;
    pipeline->companion_count = count;
}

static void columns_learn(void *context, const struct mr_relation *view)
{
    mr_hidden_learn(context, view);
}

static void app_wire(struct app *app)
{
    mr_daemon_know_sections(app->config, app->sections);
    if (app->config->encode.column_rules.count > 0) {
        struct mr_encode_options *encode = &app->config->encode;
        app->kept.kin = mr_kin_new();
        app->kept.hidden = mr_hidden_new((enum mr_unmatched)encode->unmatched,
                                         &encode->column_rules, app->kept.kin);
        encode->hidden = app->kept.hidden;
        app->config->source.kin = app->kept.kin;
        app->config->source.columns_at_start =
            (struct mr_columns_listener){.take = columns_learn, .context = app->kept.hidden};
    }
    if (app->config->sink_kind == MR_SINK_KAFKA && !app->config->kafka.exactly_once) {
        app->kept.placings = mr_placings_new(app->config->kafka.state_topic != NULL);
        app->config->kafka.placings = app->kept.placings;
    }
    if (app->config->sink_kind == MR_SINK_KAFKA) {
        app->kept.topics = mr_known_topics_new();
        app->config->kafka.known = app->kept.topics;
    }
    app->source = mr_pg_source_new(&app->config->source);
    if (app->config->source.reselect.column_count > 0) {
        mr_pg_source_reselect(app->source, shows_column, app);
    }
    app->sink = make_sink(app->config);
    app->table_counts = mr_table_counts_new(TABLES_WITH_FIGURES);
    if (app->config->http.enabled && app->config->values.http_last_events != 0) {
        mr_table_counts_keep_last(app->table_counts);
    }
    app->config->encode.counts = app->table_counts;
    if (app->config->encode.format == MR_FORMAT_AVRO) {
        app->schemas = mr_schemas_new();
        app->config->encode.schemas = app->schemas;
        app->registry = mr_registry_new(&app->config->registry, app->schemas);
    }
    if (app->config->sink_kind == MR_SINK_KAFKA) {
        app->config->encode.is_more = mr_kafka_is_more;
        app->config->encode.sink = &app->config->kafka;
    }
    reserve_topics(app);
    app->encoder = mr_encoder_new(&app->config->encode, &app->topics);
    companions_wire(app);
    app->pipeline = mr_pipeline_new(&app->config->daemon->pipeline, app->source, app->sink,
                                    app->encoder, source_opened, app);
    app->slot =
        mr_pg_slot_new(&(struct mr_pg_slot_options){.connection = &app->config->source.connection,
                                                    .slot = app->config->source.slot,
                                                    .publication = app->config->source.publication,
                                                    .interval_ms = app->config->slot_interval_ms});
    mr_pg_source_heed(app->source, mr_pg_slot_seen(app->slot));
    app->heartbeat = make_heartbeat(app);
    app->monitor = mr_monitor_new(&(struct mr_monitor_options){.sample_ms = MONITOR_SAMPLE_MS,
                                                               .log_ms = MEMORY_LOG_MS,
                                                               .pipeline = app->pipeline,
                                                               .copies = app->copies,
                                                               .sink = app->sink,
                                                               .topics = app->kept.topics,
                                                               .tables = app->table_counts,
                                                               .slot = app->slot,
                                                               .heartbeat = app->heartbeat,
                                                               .more_metrics = write_more_metrics,
                                                               .context = app});
}

/* The server, and what changes the running pipeline: reloads and copies. */
static void http_wire(struct app *app)
{
    const struct mr_config *config = app->config;
    app->web.http = config->http.enabled ? mr_http_new(&config->http) : NULL;
    app->added = mr_added_new(
        app->pipeline, app->copies, &config->source, config->values.snapshot_added != 0,
        (enum mr_moved_policy)config->values.partitions_moved,
        (struct mr_added_listener){.take = app->resolved == NULL ? NULL : mr_resolved_take_tables,
                                   .context = app->resolved},
        mr_pg_source_form(app->source), app->kept.silence);
    mr_pg_slot_invite(app->slot, mr_added_compare, app->added);
    app->reload = mr_reload_new(&(struct mr_reload_options){.started = config,
                                                            .pipeline = app->pipeline,
                                                            .copies = app->copies,
                                                            .added = app->added,
                                                            .http = app->web.http});
    if (app->web.http == NULL) {
        return;
    }
    app->web.pages = (struct mr_pages){
        .monitor = app->monitor,
        .http = app->web.http,
        .slot = config->source.slot,
        .publication = config->source.publication,
        .sink = app->sink->ops->name,
        .show_more = show_more,
        .context = app,
        .last_events = config->values.http_last_events != 0 ? app->table_counts : NULL,
        .profiler_seconds = config->daemon->profiles ? mr_profiling_seconds : NULL};
    mr_pages_add(app->web.http, &app->web.pages);
    app->web.snapshot =
        (struct mr_snapshot_routes){.pipeline = app->pipeline, .copies = app->copies};
    mr_snapshot_routes_add(app->web.http, &app->web.snapshot);
}

/* What only looks. Started before the pipeline and stopped after it, so that it sees the whole
 * run. */
static mr_status watchers_start(struct app *app, struct mr_error *ret_error)
{
    MR_TRY(mr_secrets_watch_start(&app->config->secrets, (uint32_t)app->config->values.reload_watch,
                                  &app->secrets, ret_error));
    MR_TRY(mr_pg_slot_start(app->slot, ret_error));
    MR_TRY(mr_monitor_start(app->monitor, ret_error));
    return app->web.http == NULL ? MR_OK : mr_http_start(app->web.http, ret_error);
}

static void watchers_stop(struct app *app)
{
    mr_pg_heartbeat_stop(app->heartbeat);
    mr_http_free(app->web.http);
    mr_monitor_stop(app->monitor);
    mr_pg_slot_stop(app->slot);
    mr_secrets_watch_stop(app->secrets);
}

static void app_free(struct app *app)
{
    mr_reload_free(app->reload);
    mr_added_free(app->added);
    mr_monitor_free(app->monitor);
    mr_pg_slot_free(app->slot);
    mr_pg_heartbeat_free(app->heartbeat);
    mr_pipeline_free(app->pipeline);
    mr_resolved_free(app->resolved);
    mr_ledger_free(app->ledger);
    mr_hidden_free(app->kept.hidden);
    mr_placings_free(app->kept.placings);
    mr_copies_free(app->copies);
    mr_pg_server_free(app->server);
    mr_encoder_free(app->encoder);
    mr_table_counts_free(app->table_counts);
    app->sink->ops->free(app->sink);
    mr_pg_source_free(app->source);
    mr_known_topics_free(app->kept.topics);
    mr_kin_free(app->kept.kin);
    mr_silence_free(app->kept.silence);
    mr_topics_done(&app->topics);
    mr_schemas_free(app->schemas);
}

/* A thread can be out of reach: libpq counts as many iterations of SCRAM as the server names, and a
 * resolver may be silent. All that is not confirmed comes again, so the process may leave at any
 * time. The thread is there from the start: when it is needed there may be no memory for one. */
static void *leave_main(void *context)
{
    struct pollfd asked = {.fd = (int)(intptr_t)context, .events = POLLIN};
    for (int wait_ms = -1; poll(&asked, 1, wait_ms) != 0;) {
        eventfd_t within_ms;
        wait_ms = eventfd_read(asked.fd, &within_ms) == 0 ? (int)within_ms : wait_ms;
    }
    int code = mr_status_exit_code(MR_ERR_DEADLINE);
    mr_log(MR_LOG_ERROR, "stopped",
           "a thread did not end within pipeline.shutdown_deadline, and is left behind; nothing is "
           "lost, but some rows will come twice after the next start",
           MR_LOG_INT("exit_code", code));
    mr_log_stop();
    _exit(code);
}

static mr_status leave_start(int leave_fd, struct mr_error *ret_error)
{
    pthread_t thread;
    MR_TRY(mr_thread_create(&thread, leave_main, (void *)(intptr_t)leave_fd, ret_error));
    pthread_detach(thread);
    return MR_OK;
}

static uint32_t next_signal(int signal_fd)
{
    struct signalfd_siginfo info;
    return read(signal_fd, &info, sizeof(info)) == sizeof(info) ? info.ssi_signo : 0;
}

/* Passes signals on until the pipeline has ended. The second stop leaves no time for anything. */
static void run_wait_for_end(const struct app *app, int signal_fd, int done_fd)
{
    bool stopped = false;
    struct pollfd fds[2] = {
        {.fd = done_fd, .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
    };
    while (fds[0].revents == 0) {
        if (poll(fds, 2, -1) < 0) {
            continue;
        }
        for (uint32_t number; (number = next_signal(signal_fd)) != 0;) {
            if (number == SIGHUP) {
                mr_reload_ask(app->reload);
                continue;
            }
            mr_log(MR_LOG_INFO, "stopping", "asked to stop: delivering what was read",
                   MR_LOG_INT("signal", number));
            mr_pipeline_stop(app->pipeline);
            eventfd_write(app->leave_fd,
                          (stopped ? 0 : mr_pipeline_shutdown_ms(app->pipeline)) + LEAVE_MS);
            stopped = true;
        }
    }
}

/* Ends that a restart does not mend (docs/running.md). */
static bool needs_person(mr_status status)
{
    return status == MR_ERR_HISTORY || status == MR_ERR_POISON || status == MR_ERR_AUTH ||
           status == MR_ERR_CONFIG;
}

/* The pipeline has ended; what looks at it goes on until somebody stops the process. */
static void stay_up(const struct app *app, int signal_fd, mr_status status,
                    const struct mr_error *error)
{
    int code = mr_status_exit_code(status);
    char text[MR_CAUSE_TEXT_MAX];
    snprintf(text, sizeof(text), "ended with exit code %d, which comes with a stop: %s", code,
             error->text);
    mr_standstill_begin(mr_pipeline_standstill(app->pipeline), MR_CAUSE_ENDED, text);
    mr_log(MR_LOG_ERROR, "stays_up", error->text, MR_LOG_INT("exit_code", code));
    mr_pg_heartbeat_stop(app->heartbeat);
    for (uint32_t number = 0; number == 0 || number == SIGHUP; number = next_signal(signal_fd)) {
        mr_wait_readable(signal_fd,
                         -1); /* SIGHUP: there is nothing left that a file could change */
    }
}

static void log_totals(const struct mr_pipeline_stats *stats, mr_status status)
{
    bool good = status == MR_OK;
    mr_log(
        MR_LOG_INFO, good ? "stopped" : "totals",
        good ? "everything read is delivered and confirmed" : "what this run has done",
        MR_LOG_INT("exit_code", mr_status_exit_code(status)), MR_LOG_INT("changes", stats->changes),
        MR_LOG_INT("records", stats->records), MR_LOG_INT("acknowledged", stats->records_acked),
        MR_LOG_INT("skipped", stats->skipped), MR_LOG_INT("transactions", stats->transactions),
        MR_LOG_INT("reconnects", stats->source.reconnects),
        MR_LOG_INT("rebuilds", stats->sink.rebuilds), MR_LOG_INT("allocations", mr_alloc_count()),
        MR_LOG_INT("backpressure_ms", stats->backpressure_ns / 1000000),
        MR_LOG_LSN("confirmed", stats->confirmed_lsn));
}

/* The last line says how it ended; of a failure, why and nothing else, so that a person sees it. A
 * start that failed has no totals. */
static void log_end(const struct mr_pipeline *pipeline, mr_status status,
                    const struct mr_error *error)
{
    struct mr_pipeline_stats stats = mr_pipeline_stats(pipeline);
    bool good = status == MR_OK;
    bool began = stats.changes > 0 || stats.records > 0 || stats.received_lsn > 0;
    if (good || began) {
        log_totals(&stats, status);
    }
    if (!good) {
        mr_log(MR_LOG_ERROR, "stopped", error->text,
               MR_LOG_INT("exit_code", mr_status_exit_code(status)));
    }
}

static void log_begin(const struct app *app, const struct mr_confinement *confinement)
{
    struct mr_versions versions = mr_versions();
    mr_log(MR_LOG_INFO, "started", "millrace " MR_VERSION,
           MR_LOG_STR("slot", app->config->source.slot),
           MR_LOG_STR("publication", app->config->source.publication),
           MR_LOG_STR("sink", app->sink->ops->name), MR_LOG_STR("libpq", versions.libpq),
           MR_LOG_STR("librdkafka", versions.librdkafka),
           MR_LOG_STR("allocator", versions.allocator),
           MR_LOG_STR("confined_syscalls", confinement->syscalls),
           MR_LOG_STR("confined_files", confinement->files));
}

static mr_status app_start(struct app *app, int done_fd, struct mr_error *ret_error)
{
    MR_TRY(leave_start(app->leave_fd, ret_error));
    MR_TRY(mr_profiling_begin(app->config, app->web.http, ret_error));
    MR_TRY(watchers_start(app, ret_error));
    if (app->registry != NULL) {
        MR_TRY(mr_registry_start(app->registry, mr_pipeline_standstill(app->pipeline), ret_error));
    }
    MR_TRY(mr_pg_heartbeat_start(app->heartbeat, ret_error));
    return mr_pipeline_start(app->pipeline, done_fd, ret_error);
}

static mr_status app_run(struct app *app, int signal_fd, int done_fd, struct mr_error *ret_error)
{
    MR_TRY(app_start(app, done_fd, ret_error));
    run_wait_for_end(app, signal_fd, done_fd);
    mr_status status = mr_pipeline_join(app->pipeline, ret_error);
    bool is_part =
        app->config->daemon->copies.only && mr_copies_stats(app->copies).state != MR_COPY_DONE;
    if (status == MR_OK && is_part) { /* the code says that the rows are copied */
        status = mr_fail(ret_error, MR_ERR_DEADLINE,
                         "stopped before the existing rows were copied (snapshot.mode = "
                         "\"initial_only\"); the next start copies the rest");
    }
    if (app->config->values.stay_up != 0 && needs_person(status)) {
        stay_up(app, signal_fd, status, ret_error);
    }
    return status;
}

static uint64_t limit_of(int resource)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    getrlimit((__rlimit_resource_t)resource, &limit);
    return limit.rlim_cur;
}

/* What runs into a limit later ends in the middle, some of it inside a library: so much is there
 * from the start. Some thirty descriptors are open then, and each broker is one more; code and
 * stacks of ten threads are 118 MiB of addresses beside the memory that is allowed. */
static mr_status run_check_limits(const struct mr_config *config, struct mr_error *ret_error)
{
    enum { DESCRIPTORS_MIN = 64 };
    uint64_t address_min = config->daemon->pipeline.memory_bytes + (UINT64_C(128) << 20);
    uint64_t descriptors = limit_of(RLIMIT_NOFILE);
    uint64_t addresses = limit_of(RLIMIT_AS);
    if (descriptors < DESCRIPTORS_MIN) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "the process may open %llu files and sockets (ulimit -n), and needs %d or "
                       "more: raise that limit",
                       (unsigned long long)descriptors, DESCRIPTORS_MIN);
    }
    if (addresses < address_min) {
        return mr_fail(ret_error, MR_ERR_SYSTEM,
                       "the process may have %llu MiB of addresses (ulimit -v), and needs %llu: "
                       "pipeline.memory and 128 MiB; raise that limit, or lower pipeline.memory",
                       (unsigned long long)addresses >> 20, (unsigned long long)address_min >> 20);
    }
    return MR_OK;
}

mr_status mr_daemon_run(struct mr_config *config, struct mr_error *ret_error)
{
    struct app app = {.config = config, .leave_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    int signal_fd = mr_thread_signals();
    int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mr_status status = run_check_limits(config, ret_error);
    if (status == MR_OK && (signal_fd < 0 || done_fd < 0 || app.leave_fd < 0)) {
        status = mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    if (status != MR_OK) {
        mr_log(MR_LOG_ERROR, "stopped", ret_error->text,
               MR_LOG_INT("exit_code", mr_status_exit_code(status)));
        return status;
    }
    struct mr_confinement confinement = mr_confine_process(config, (const char *const[]){NULL});
    mr_log_see = mr_runbook_see;
    mr_log_start();
    app_wire(&app);
    http_wire(&app);
    log_begin(&app, &confinement);
    status = app_run(&app, signal_fd, done_fd, ret_error);
    mr_registry_free(app.registry);
    watchers_stop(&app);
    mr_profiling_end();
    log_end(app.pipeline, status, ret_error);
    app_free(&app);
    close(done_fd);
    close(signal_fd);
    mr_log_stop();
    return status;
}
