/* Arguments, wiring, signals and exit status; the only file that knows every module. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "admin/monitor.h"
#include "admin/pages.h"
#include "ask.h"
#include "ask_profile.h"
#include "check.h"
#include "config/config.h"
#include "metrics/metrics.h"
#include "profiling.h"
#include "versions.h"

enum { MONITOR_SAMPLE_MS = 1000 };

struct arguments {
    const char *command; /* run, check, status, … */
    const char *config_path;
    const char *address; /* of the millrace to ask */
    bool ready;
    uint64_t stop_after;
    mr_lsn skip_commit_lsn;
    struct mr_ask_profile profile;
    bool diff;
    const char *files[2]; /* what is compared */
};

static void print_help(FILE *to)
{
    fputs(
        "millrace " MR_VERSION ": streams row changes from PostgreSQL to Kafka\n"
        "\n"
        "usage: millrace [run] --config FILE    stream until SIGTERM\n"
        "       millrace check --config FILE    look at everything that could stand in the way; "
        "changes "
        "nothing\n"
        "       millrace status                 what a running millrace does; --config or "
        "--address "
        "say which\n"
        "       millrace top                    the same, drawn again each second\n"
        "       millrace health [--ready]       ask whether it is alive, or ready; exit code 0 or "
        "1\n"
        "       millrace profile                take a profile of a running millrace, as pprof and "
        "flame graph;\n"
        "                                       or compare two: profile --diff BEFORE AFTER\n"
        "       millrace config-reference       print docs/configuration.md\n"
        "       millrace metrics-reference      print docs/metrics.md\n"
        "\n"
        "  -c, --config FILE      TOML file; without one: DATABASE_URL, MILLRACE_TABLES, JSON "
        "lines to "
        "stdout\n"
        "  -a, --address ADDR     status, top, health, profile: where it listens (http.address)\n"
        "      --ready            health: ask /readyz in place of /healthz\n"
        "      --seconds N        profile: how long (10; heap: what is there now)\n"
        "      --frequency N      profile: samples a second of CPU time, of each thread (200)\n"
        "      --heap, --offcpu   profile: allocations, or what threads wait for, in place of CPU\n"
        "      --diff             profile: compare two files, each pprof or folded text\n"
        "  -o, --out FILE         profile: FILE.pb.gz and FILE.svg (a name with the time)\n"
        "      --stop-after N     stop in order after N records (for benchmarks)\n"
        "      --skip-commit-lsn LSN\n"
        "                         run: pass over the transaction that commits there (16/B374D848), "
        "once\n"
        "  -h, --help             this text\n"
        "      --version          version, and those of the libraries\n"
        "\n"
        "exit codes: 0 stopped in order; 3 stopped before all was acknowledged (nothing lost, "
        "repeats\n"
        "possible); 10 rows may be missing behind the slot's position; 64 usage; 65 a record that "
        "can't\n"
        "be passed on; 70 protocol broken; 71 operating system; 77 refused (password, grants); 78\n"
        "configuration\n"
        "\n"
        "options of the file, with their defaults:\n",
        to);
    mr_config_print_options(to);
}

/* The option's argument, a whole number above 0; what is too large is the server's to say. */
static mr_status parse_number(const char *option, uint32_t *ret)
{
    char *end;
    long value = strtol(optarg, &end, 10);
    if (end == optarg || *end != '\0' || value < 1 || value > 1000000) {
        fprintf(stderr, "millrace: --%s wants a whole number above 0, not \"%s\"\n", option,
                optarg);
        return MR_ERR_USAGE;
    }
    *ret = (uint32_t)value;
    return MR_OK;
}

static mr_status parse_lsn(const char *option, mr_lsn *ret)
{
    unsigned high, low;
    int end = 0;
    if (sscanf(optarg, "%8X/%8X%n", &high, &low, &end) != 2 || optarg[end] != '\0') {
        fprintf(stderr, "millrace: --%s wants a position such as 16/B374D848, not \"%s\"\n", option,
                optarg);
        return MR_ERR_USAGE;
    }
    *ret = (mr_lsn)high << 32 | low;
    return MR_OK;
}

/* MR_END: answered already. */
static mr_status parse_arguments(int argc, char **argv, struct arguments *ret)
{
    enum {
        OPTION_VERSION = 256,
        OPTION_STOP_AFTER,
        OPTION_SKIP_COMMIT_LSN,
        OPTION_READY,
        OPTION_SECONDS,
        OPTION_FREQUENCY,
        OPTION_HEAP,
        OPTION_OFFCPU,
        OPTION_DIFF
    };
    static const struct option long_options[] = {
        {"config", required_argument, NULL, 'c'},
        {"address", required_argument, NULL, 'a'},
        {"ready", no_argument, NULL, OPTION_READY},
        {"seconds", required_argument, NULL, OPTION_SECONDS},
        {"frequency", required_argument, NULL, OPTION_FREQUENCY},
        {"heap", no_argument, NULL, OPTION_HEAP},
        {"offcpu", no_argument, NULL, OPTION_OFFCPU},
        {"diff", no_argument, NULL, OPTION_DIFF},
        {"out", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, OPTION_VERSION},
        {"stop-after", required_argument, NULL, OPTION_STOP_AFTER},
        {"skip-commit-lsn", required_argument, NULL, OPTION_SKIP_COMMIT_LSN},
        {0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "a:c:ho:", long_options, NULL)) != -1) {
        switch (option) {
        case 'c':
            ret->config_path = optarg;
            break;
        case 'a':
            ret->address = optarg;
            break;
        case OPTION_READY:
            ret->ready = true;
            break;
        case OPTION_SECONDS:
            MR_TRY(parse_number("seconds", &ret->profile.seconds));
            break;
        case OPTION_FREQUENCY:
            MR_TRY(parse_number("frequency", &ret->profile.frequency));
            break;
        case OPTION_HEAP:
            ret->profile.kind = MR_ASK_PROFILE_HEAP;
            break;
        case OPTION_OFFCPU:
            ret->profile.kind = MR_ASK_PROFILE_OFFCPU;
            break;
        case OPTION_DIFF:
            ret->diff = true;
            break;
        case 'o':
            ret->profile.out = optarg;
            break;
        case 'h':
            print_help(stdout);
            return MR_END;
        case OPTION_VERSION:
            mr_versions_print(stdout);
            return MR_END;
        case OPTION_STOP_AFTER:
            ret->stop_after = strtoull(optarg, NULL, 10);
            break;
        case OPTION_SKIP_COMMIT_LSN:
            MR_TRY(parse_lsn("skip-commit-lsn", &ret->skip_commit_lsn));
            break;
        default:
            fputs("millrace: try millrace --help\n", stderr);
            return MR_ERR_USAGE;
        }
    }
    ret->command = optind < argc ? argv[optind++] : "run";
    for (int i = 0; i < 2 && ret->diff; i++) {
        if (optind == argc) {
            fputs("millrace: --diff wants two files: millrace profile --diff BEFORE AFTER\n",
                  stderr);
            return MR_ERR_USAGE;
        }
        ret->files[i] = argv[optind++];
    }
    if (optind < argc) {
        fprintf(stderr, "millrace: unexpected argument \"%s\"; try millrace --help\n",
                argv[optind]);
        return MR_ERR_USAGE;
    }
    return MR_OK;
}

/* ---- wiring ---- */

struct app {
    struct mr_config *config;
    struct mr_source *source;
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_encoder *encoder;
    struct mr_pipeline *pipeline;
    struct mr_table_counts *table_counts;
    struct mr_pg_slot *slot;
    struct mr_monitor *monitor;
    struct mr_http *http; /* NULL: not wanted */
    struct mr_pages pages;
    char *configuration; /* behind `pages` */
};

static struct mr_key_columns key_columns(void *context, const struct mr_relation *relation)
{
    struct app *app = context;
    return mr_pg_source_key_columns(app->source, relation);
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
    return mr_file_sink_new(&config->file);
}

static void app_wire(struct app *app)
{
    app->source = mr_pg_source_new(&app->config->source);
    app->sink = make_sink(app->config);
    app->table_counts = mr_table_counts_new(app->config->metrics_tables_max);
    app->config->encode.counts = app->table_counts;
    app->encoder = mr_encoder_new(&app->config->encode, &app->topics, key_columns, app);
    app->pipeline = mr_pipeline_new(&app->config->pipeline, app->source, app->sink, app->encoder,
                                    source_opened, app);
    app->slot = mr_pg_slot_new(
        &(struct mr_pg_slot_options){.connection = &app->config->source.connection,
                                     .slot = app->config->source.slot,
                                     .interval_ms = app->config->slot_interval_ms,
                                     .server_stops_ns = &app->source->server_stops_ns});
    app->monitor =
        mr_monitor_new(&(struct mr_monitor_options){.sample_ms = MONITOR_SAMPLE_MS,
                                                    .pipeline = app->pipeline,
                                                    .sink = app->sink,
                                                    .tables = app->table_counts,
                                                    .slot = app->slot,
                                                    .more_metrics = mr_profiling_metrics});
}

static void http_wire(struct app *app)
{
    if (!app->config->http.enabled) {
        return;
    }
    app->configuration = mr_config_json(app->config);
    app->http = mr_http_new(&app->config->http);
    app->pages = (struct mr_pages){.monitor = app->monitor,
                                   .http = app->http,
                                   .slot = app->config->source.slot,
                                   .publication = app->config->source.publication,
                                   .sink = app->sink->ops->name,
                                   .configuration = app->configuration};
    mr_pages_add(app->http, &app->pages);
}

/* What only looks. Started before the pipeline and stopped behind it, so that it sees the whole run. */
static mr_status watchers_start(struct app *app, struct mr_error *ret_error)
{
    MR_TRY(mr_pg_slot_start(app->slot, ret_error));
    MR_TRY(mr_monitor_start(app->monitor, ret_error));
    return app->http == NULL ? MR_OK : mr_http_start(app->http, ret_error);
}

static void watchers_stop(struct app *app)
{
    mr_http_free(app->http);
    mr_monitor_stop(app->monitor);
    mr_pg_slot_stop(app->slot);
}

static void app_free(struct app *app)
{
    free(app->configuration);
    mr_monitor_free(app->monitor);
    mr_pg_slot_free(app->slot);
    mr_pipeline_free(app->pipeline);
    mr_encoder_free(app->encoder);
    mr_table_counts_free(app->table_counts);
    app->sink->ops->free(app->sink);
    mr_pg_source_free(app->source);
    mr_topics_done(&app->topics);
}

/* ---- running ---- */

/* Signals come as reads, so that nothing of ours runs inside a handler. */
static int open_signals(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Passes stop signals on until the pipeline has ended. */
static void wait_for_end(struct mr_pipeline *pipeline, int signal_fd, int done_fd)
{
    struct pollfd fds[2] = {
        {.fd = done_fd, .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
    };
    while (fds[0].revents == 0) {
        if (poll(fds, 2, -1) < 0) {
            continue;
        }
        struct signalfd_siginfo info;
        while (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
            mr_log(MR_LOG_INFO, "stopping", "asked to stop: delivering what was read",
                   MR_LOG_INT("signal", info.ssi_signo));
            mr_pipeline_stop(pipeline);
        }
    }
}

static void log_end(const struct mr_pipeline *pipeline, mr_status status,
                    const struct mr_error *error)
{
    struct mr_pipeline_stats stats = mr_pipeline_stats(pipeline);
    mr_log(status == MR_OK ? MR_LOG_INFO : MR_LOG_ERROR, "stopped",
           status == MR_OK ? "everything read is delivered and confirmed" : error->text,
           MR_LOG_INT("exit_code", mr_status_exit_code(status)),
           MR_LOG_INT("changes", stats.changes), MR_LOG_INT("records", stats.records),
           MR_LOG_INT("acknowledged", stats.records_acked), MR_LOG_INT("skipped", stats.skipped),
           MR_LOG_INT("transactions", stats.transactions),
           MR_LOG_INT("reconnects", stats.reconnects), MR_LOG_INT("rebuilds", stats.rebuilds),
           MR_LOG_INT("allocations", mr_alloc_count()),
           MR_LOG_INT("backpressure_ms", stats.backpressure_ns / 1000000),
           MR_LOG_LSN("confirmed", stats.confirmed_lsn));
}

static mr_status run(struct app *app, struct mr_error *ret_error)
{
    int signal_fd = open_signals();
    int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signal_fd < 0 || done_fd < 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no descriptors left: %s", strerror(errno));
    }
    mr_log_start();
    app_wire(app);
    http_wire(app);
    struct mr_versions versions = mr_versions();
    mr_log(MR_LOG_INFO, "started", "millrace " MR_VERSION,
           MR_LOG_STR("slot", app->config->source.slot),
           MR_LOG_STR("publication", app->config->source.publication),
           MR_LOG_STR("sink", app->sink->ops->name), MR_LOG_STR("libpq", versions.libpq),
           MR_LOG_STR("librdkafka", versions.librdkafka),
           MR_LOG_STR("allocator", versions.allocator));
    mr_status status = mr_profiling_begin(app->config, app->http, app->monitor, ret_error);
    if (status == MR_OK) {
        status = watchers_start(app, ret_error);
    }
    if (status == MR_OK) {
        status = mr_pipeline_start(app->pipeline, done_fd, ret_error);
    }
    if (status == MR_OK) {
        wait_for_end(app->pipeline, signal_fd, done_fd);
        status = mr_pipeline_join(app->pipeline, ret_error);
    }
    watchers_stop(app);
    mr_profiling_end();
    log_end(app->pipeline, status, ret_error);
    app_free(app);
    close(done_fd);
    close(signal_fd);
    mr_log_stop();
    return status;
}

static int run_command(const struct arguments *arguments)
{
    struct app app = {0};
    mr_status status = mr_config_load(arguments->config_path, &app.config);
    mr_config_print_problems(app.config, stderr);
    if (status == MR_OK) {
        mr_log_configure(app.config->log_level, app.config->log_format);
        app.config->pipeline.stop_after_events = arguments->stop_after;
        app.config->pipeline.skip_commit_lsn = arguments->skip_commit_lsn;
        struct mr_error error = {0};
        status = strcmp(arguments->command, "check") == 0 ? mr_check(app.config, stdout)
                                                          : run(&app, &error);
    }
    mr_config_free(app.config);
    return mr_status_exit_code(status);
}

/* ---- asking a running one ---- */

/* False: it is no command that asks. */
static bool is_ask(const char *command)
{
    return strcmp(command, "status") == 0 || strcmp(command, "top") == 0 ||
           strcmp(command, "health") == 0 || strcmp(command, "profile") == 0;
}

static int ask(const struct arguments *arguments, const struct mr_http_options *server)
{
    struct mr_error error = {0};
    if (strcmp(arguments->command, "health") == 0) {
        return mr_ask_health(server, arguments->ready, stdout) ? 0 : 1;
    }
    if (strcmp(arguments->command, "top") == 0) {
        mr_ask_top(server, stdout);
        return 0;
    }
    mr_status status = strcmp(arguments->command, "profile") == 0
                           ? mr_ask_profile(server, &arguments->profile, stdout, &error)
                           : mr_ask_status(server, stdout, &error);
    if (status != MR_OK) {
        fprintf(stderr, "millrace: %s\n", error.text);
    }
    return mr_status_exit_code(status);
}

/* Asks nobody. */
static int diff_command(const struct arguments *arguments)
{
    struct mr_error error = {0};
    mr_status status = mr_ask_profile_diff(arguments->files[0], arguments->files[1],
                                           arguments->profile.out, stdout, &error);
    if (status != MR_OK) {
        fprintf(stderr, "millrace: %s\n", error.text);
    }
    return mr_status_exit_code(status);
}

static int ask_command(const struct arguments *arguments)
{
    struct mr_config *config = NULL;
    struct mr_error error = {0};
    mr_status status = mr_config_load_http(arguments->config_path, &config);
    mr_config_print_problems(config, stderr);
    if (status == MR_OK && arguments->address != NULL) {
        status = mr_address_parse(arguments->address, &config->http.address, &error);
        if (status != MR_OK) {
            fprintf(stderr, "millrace: --address: %s\n", error.text);
        }
    }
    int exit_code = status == MR_OK ? ask(arguments, &config->http) : mr_status_exit_code(status);
    mr_config_free(config);
    return exit_code;
}

int main(int argc, char **argv)
{
#if defined(__GLIBC__) && !defined(MILLRACE_HAS_JEMALLOC)
    /* An arena for each thread of librdkafka would be a megabyte and more for nothing: hardly any of them allocates. */
    mallopt(M_ARENA_MAX, 2);
    /* What a large row took is given back at once; left alone, glibc moves the limit up to 32 MiB behind the first one.
     * What is smaller stays: asking for the pages of librdkafka's requests again and again costs half of all CPU. */
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
    /* A core file would hold rows. */
    prctl(PR_SET_DUMPABLE, getenv("MILLRACE_DUMPABLE") != NULL);
    struct arguments arguments = {0};
    mr_status status = parse_arguments(argc, argv, &arguments);
    if (status != MR_OK) {
        return mr_status_exit_code(status);
    }
    if (strcmp(arguments.command, "config-reference") == 0) {
        mr_config_print_reference(stdout);
        return 0;
    }
    if (strcmp(arguments.command, "metrics-reference") == 0) {
        mr_metrics_print_reference(stdout);
        return 0;
    }
    if (arguments.diff && strcmp(arguments.command, "profile") == 0) {
        return diff_command(&arguments);
    }
    if (is_ask(arguments.command)) {
        return ask_command(&arguments);
    }
    if (strcmp(arguments.command, "run") != 0 && strcmp(arguments.command, "check") != 0) {
        fprintf(stderr, "millrace: unknown command \"%s\"; try millrace --help\n",
                arguments.command);
        return mr_status_exit_code(MR_ERR_USAGE);
    }
    return run_command(&arguments);
}
