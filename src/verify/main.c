/* millrace-verify: what the command line asks for, and the exit status. */
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/thread.h"
#include "config/confinement.h"
#include "event/lsn.h"
#include "kafka/kafka_check.h"
#include "terminal/arguments.h"
#include "terminal/runbook.h"
#include "terminal/terminal.h"
#include "verify/every.h"
#include "verify/spill.h"

#define PROGRAM "millrace-verify"

/* Says what is wrong, and answers so. */
#define REFUSE(...) (fprintf(stderr, PROGRAM ": " __VA_ARGS__), MR_ERR_USAGE)

struct wish {
    const char *config_path, *address, *sample, *every, *figures;
    uint32_t rate;
    bool json, repairs, yes, lists, gap, help, version;
    struct mr_verify_options options;
    int64_t every_ms;
};

#define TO(kind, member) MR_ARGUMENT_##kind, offsetof(struct wish, member)
#define FLAG(member)     TO(FLAG, member)
#define TEXT(member)     TO(TEXT, member)
#define SMALL(member)    TO(SMALL, member)

static const struct known {
    struct mr_argument argument;
    const char *text;
} known[] = {
    {{"config", 'c', "FILE", TEXT(config_path)}, "configuration file (TOML) of the pipeline"},
    {{"address", 'a', "ADDRESS", TEXT(address)},
     "where the running millrace listens, as http.address has it; the credentials are those of "
     "--config"},
    {{"json", 0, NULL, FLAG(json)}, "for programs: an object for each table"},
    {{"yes", 0, NULL, FLAG(yes)}, "with --repair: have it done, and prove the table again"},
#define MR_VERIFY_OPTION(id, name, argument, target, text) {{name, 0, argument, target}, text},
#include "terminal/verify.def"
    {{"help", 'h', NULL, FLAG(help)}, "this text"},
    {{"version", 0, NULL, FLAG(version)}, "version, and those of the libraries"},
};

static void print_help(void)
{
    puts("usage: " PROGRAM " [TABLE...] [OPTION]…\n");
    mr_terminal_wrap(stdout, MR_VERIFY_TEXT, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++) {
        const struct mr_argument *one = &known[i].argument;
        mr_terminal_option(stdout, one->name, one->letter, one->argument, known[i].text);
    }
}

static bool take_interval(const char *text, int64_t *ret_ms)
{
    static const struct mr_option interval = {.kind = MR_KIND_DURATION};
    return mr_option_parse(&interval, text, ret_ms) && *ret_ms >= 1000 &&
           *ret_ms <= INT64_C(31) * 86400000;
}

/* Above 0 and up to 100. */
static bool take_percent(const char *text, double *ret)
{
    char *end;
    *ret = strtod(text, &end);
    return end != text && strcmp(end + (*end == '%'), "") == 0 && *ret > 0 && *ret <= 100;
}

static bool has_ending(const char *text, const char *end)
{
    return strlen(text) > strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static mr_status check_wish(struct wish *wish)
{
    struct mr_verify_options *options = &wish->options;
    if (wish->yes && !wish->repairs) {
        return REFUSE("--yes wants --repair\n");
    }
    if (wish->every != NULL && !take_interval(wish->every, &wish->every_ms)) {
        return REFUSE("--every wants a time from 1s to 31d, such as 24h, not \"%s\"\n",
                      wish->every);
    }
    if (wish->repairs && wish->every != NULL) {
        return REFUSE("--every repairs nothing; run it without --repair\n");
    }
    if (wish->figures != NULL && wish->every == NULL) {
        return REFUSE("--figures wants --every\n");
    }
    if (wish->figures != NULL && !has_ending(wish->figures, ".prom")) {
        return REFUSE("--figures wants a file whose name ends with .prom, or node_exporter does "
                      "not read it, not \"%s\"\n",
                      wish->figures);
    }
    if (wish->sample != NULL && !take_percent(wish->sample, &options->sample)) {
        return REFUSE("--sample wants percent above 0 and up to 100, not \"%s\"\n", wish->sample);
    }
    options->json = wish->json;
    options->rate = wish->rate;
    options->repairs = wish->repairs;
    options->yes = wish->yes;
    options->gap = wish->gap;
    return MR_OK;
}

/* MR_END: --help or --version, answered already. */
static mr_status take_arguments(int argc, char **argv, struct wish *wish)
{
    struct mr_argument arguments[MR_ARRAY_LEN(known)];
    uint64_t given;
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++) {
        arguments[i] = known[i].argument;
    }
    MR_TRY(mr_arguments_take(PROGRAM, arguments, MR_ARRAY_LEN(known), argc, argv, wish, &given));
    if (wish->version) {
        mr_versions_print(PROGRAM, stdout);
        return MR_END;
    }
    if (wish->help) {
        print_help();
        return MR_END;
    }
    wish->options.tables = (const char *const *)&argv[optind];
    wish->options.table_count = (uint32_t)(argc - optind);
    return check_wish(wish);
}

/* Places of the server are compared with positions of records: what the latter are raised by since
 * the stream moved from another cluster. MR_ERR_AUTH: what is stored may not be read, so that is
 * not known. */
static mr_status take_shift(const struct mr_config *config, struct wish *wish, int stop_fd,
                            struct mr_error *ret_error)
{
    struct mr_kafka_stored stored;
    if (config->sink_kind != MR_SINK_KAFKA || config->kafka.state_topic == NULL) {
        return MR_OK;
    }
    MR_TRY(mr_kafka_look_at_stored(&config->kafka, stop_fd, &stored, ret_error));
    mr_lsn_shift = stored.state.identity.moved.shift;
    wish->options.entered = stored.state.identity.moved.entered;
    mr_checkpoint_done(&stored.state);
    return MR_OK;
}

/* It listens nowhere, and writes temporary files and its figures. */
static void confine(struct mr_config *config, const char *figures)
{
    MR_FREED char *copy = MR_STRDUP(figures == NULL ? "/" : figures);
    const char *folder = dirname(copy);
    const char *const written[] = {mr_spill_folder(), strcmp(folder, "/") == 0 ? NULL : folder,
                                   NULL};
    config->http.enabled = false;
    (void)mr_confine_process(config, written);
}

/* It was to end: that is no failure. */
static mr_status verify_every(struct mr_config *config, struct wish *wish, int stop_fd,
                              struct mr_error *ret_error)
{
    const struct mr_every_options every = {.interval_ms = wish->every_ms, .figures = wish->figures};
    confine(config, wish->figures);
    MR_TRY(take_shift(config, wish, stop_fd, ret_error));
    mr_status status = mr_verify_every(config, &wish->options, &every, stop_fd, stdout, ret_error);
    return status == MR_AGAIN ? MR_OK : status;
}

/* The verdict is the exit code where there is one. */
static int verify_once(const struct mr_config *config, struct wish *wish, int stop_fd)
{
    struct mr_error error = {0};
    enum mr_verify_verdict verdict = MR_VERIFY_EQUAL;
    mr_status status = take_shift(config, wish, stop_fd, &error);
    status = MR_THEN(status, mr_verify(config, &wish->options, stop_fd, stdout, &verdict, &error));
    int code = mr_verify_exit_code(verdict);
    if (status == MR_AGAIN) {
        fputs(PROGRAM ": interrupted; the tables that have no line are not proved\n", stderr);
        code = mr_verify_exit_code(MR_VERIFY_NONE);
    } else if (status != MR_OK) {
        code = mr_terminal_end(PROGRAM, status, &error);
    }
    /* What differs does so, whatever came after it. */
    return verdict == MR_VERIFY_DIFFERENT ? mr_verify_exit_code(verdict) : code;
}

static int verify_main_run(struct mr_config *config, struct wish *wish)
{
    struct mr_error error = {0};
    int stop_fd = mr_thread_signals();
    /* Else the next millrace recover would have two of us. */
    if (wish->gap && (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() == 1)) {
        return mr_verify_exit_code(MR_VERIFY_NONE);
    }
    if (!wish->lists && wish->every == NULL) {
        return verify_once(config, wish, stop_fd);
    }
    mr_status status = wish->lists
                           ? mr_verify_print_list(config, &wish->options, stop_fd, stdout, &error)
                           : verify_every(config, wish, stop_fd, &error);
    return mr_terminal_end(PROGRAM, status, &error);
}

static mr_status configure(const struct wish *wish, struct mr_config **ret_config,
                           struct mr_error *ret_error)
{
    mr_status status = mr_config_load(wish->config_path, ret_config);
    struct mr_config *config = *ret_config;
    mr_config_print_problems(config, stderr);
    if (status != MR_OK) {
        const struct mr_problems *problems = &config->problems;
        const char *last = problems->count == 0 ? "" : problems->items[problems->count - 1].text;
        mr_runbook_print_see(stderr, "see ", last, status);
        return status;
    }
    mr_log_configure(config->log_level, config->log_format);
    if (wish->address != NULL) {
        struct mr_error error;
        status = mr_address_parse(wish->address, &config->http.address, &error);
        if (status != MR_OK) {
            return mr_fail(ret_error, status, "--address: %s", error.text);
        }
        config->http.enabled = true;
    }
    return mr_programs_start(&config->programs, ret_error);
}

int main(int argc, char **argv)
{
    struct wish wish = {0};
    struct mr_config *config = NULL;
    struct mr_error error = {0};
    mr_terminal_begin(PROGRAM);
    mr_status status = take_arguments(argc, argv, &wish);
    if (status != MR_OK) {
        return mr_status_exit_code(status);
    }
    status = configure(&wish, &config, &error);
    int code =
        status == MR_OK ? verify_main_run(config, &wish) : mr_terminal_end(PROGRAM, status, &error);
    mr_config_free(config);
    return code;
}
