#include "cli/cli.h"
#include "terminal/runbook.h"

#include <fcntl.h>
#include <libgen.h>

#include "daemon/daemon.h"
#include "daemon/profiling.h"
#include "kafka/kafka_check.h"
#include "postgres/server/pg_setup.h"

struct report {
    FILE *to;
    mr_status worst;
    unsigned errors;
    unsigned warnings;
};

static void print_finding(void *context, enum mr_finding_level level, mr_status status,
                          const char *subject, const char *finding, const char *remedy)
{
    struct report *report = context;
    /* An error's text names its subject itself. What it says of it beyond that, such as host and
     * port, is not cut. */
    size_t said = strlen(subject);
    const char *rest = strncmp(finding, subject, said) == 0 ? finding + said : "";
    static const char connection[] = " connection: ";
    bool named = false;
    if (strncmp(rest, connection, sizeof(connection) - 1) == 0) {
        finding = rest + sizeof(connection) - 1;
    } else if (strncmp(rest, ": ", 2) == 0) {
        finding = rest + 2;
    } else {
        named = rest[0] == ' ';
    }
    static const char *const marks[] = {[MR_FINDING_OK] = "ok     ",
                                        [MR_FINDING_WARNING] = "warning",
                                        [MR_FINDING_ERROR] = "error  "};
    fprintf(report->to, "%s  %s%s%s\n", marks[level], named ? "" : subject, named ? "" : ": ",
            finding);
    if (remedy != NULL) {
        fprintf(report->to, "         remedy: %s\n", remedy);
    }
    if (level == MR_FINDING_ERROR) {
        mr_runbook_print_see(report->to, "         see: ", finding, status);
    }
    report->warnings += level == MR_FINDING_WARNING;
    report->errors += level == MR_FINDING_ERROR;
    if (level == MR_FINDING_ERROR && report->worst == MR_OK) {
        report->worst = status;
    }
}

static void check_kafka(const struct mr_config *config, struct report *report,
                        struct mr_kafka_stored *ret_stored)
{
    const struct mr_encode_options *encode = &config->encode;
    uint32_t routes = mr_config_route_count(config);
    MR_FREED char **topics = MR_NEW_ARRAY(char *, routes + 2);
    uint32_t count = 0;
    for (uint32_t i = 0; i < routes; i++) {
        const struct mr_route route = mr_config_route(config, i);
        if (mr_is_outbox(encode, route.schema, route.table)) {
            continue; /* its rows name theirs */
        }
        topics[count++] = route.topic != NULL ? MR_STRDUP(route.topic)
                                              : mr_table_topic(encode, route.schema, route.table);
    }
    if (encode->oversize == MR_OVERSIZE_DEAD_LETTER) {
        topics[count++] = MR_STRDUP(encode->dead_letter_topic);
    }
    if (config->ledger_topic != NULL) {
        topics[count++] = MR_STRDUP(config->ledger_topic);
    }
    mr_kafka_check(&config->kafka, (const char *const *)topics, count, print_finding, report,
                   ret_stored);
    for (uint32_t i = 0; i < count; i++) {
        free(topics[i]);
    }
}

static void cli_check_file(const char *path, struct report *report)
{
    MR_FREED char *copy = MR_STRDUP(path);
    bool there = access(path, F_OK) == 0;
    /* Opened as the run opens it, but never made. */
    int fd = there ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK) : -1;
    bool good = there ? fd >= 0 || errno == ENXIO : access(dirname(copy), W_OK | X_OK) == 0;
    if (good) {
        print_finding(report, MR_FINDING_OK, MR_OK, path,
                      there ? "can be written" : "does not exist; will be created", NULL);
    } else {
        print_finding(report, MR_FINDING_ERROR, MR_ERR_CONFIG, path, strerror(errno),
                      "set sink.file.path to a file that this user may write");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void check_gap(const struct mr_checkpoint *stored, struct report *report)
{
    struct mr_gap gap = mr_gap_stored(stored);
    char text[160];
    if (gap.is_open) {
        snprintf(text, sizeof(text),
                 "is open: what committed between " MR_LSN_FORMAT " and " MR_LSN_FORMAT
                 " is in no topic, and nothing was done about it",
                 MR_LSN_ARGS(gap.from), MR_LSN_ARGS(gap.to));
        print_finding(report, MR_FINDING_WARNING, MR_OK, "gap", text,
                      "stop millrace, and run millrace recover");
    }
}

static void check_position(const struct mr_kafka_options *kafka,
                           const struct mr_kafka_stored *stored, struct report *report)
{
    MR_FREED char *text =
        stored->found ? mr_formatted("\"%s\", stored up to " MR_LSN_FORMAT, kafka->state_name,
                                     MR_LSN_ARGS(stored->state.end_lsn))
                      : mr_formatted("none is stored under state_name \"%s\"", kafka->state_name);
    if (kafka->state_topic != NULL) {
        print_finding(report, MR_FINDING_OK, MR_OK, "position", text, NULL);
    }
}

/* What is asked of Kafka first, since PostgreSQL is asked about what is stored there, and printed
 * last. */
static void check_servers(const struct mr_config *whole, struct report *report)
{
    struct mr_section_kind sections[MR_DAEMON_SECTIONS];
    struct mr_config with_sections = *whole;
    const struct mr_config *config = &with_sections;
    struct mr_kafka_stored stored = {0};
    MR_FREED char *text = NULL;
    size_t len = 0;
    struct report kafka = {.to = open_memstream(&text, &len), .worst = MR_OK};
    MR_ASSERT(kafka.to != NULL);
    if (config->sink_kind == MR_SINK_KAFKA) {
        mr_daemon_know_sections(&with_sections, sections);
        check_kafka(config, &kafka, &stored);
        check_position(&config->kafka, &stored, &kafka);
        check_gap(&stored.state, &kafka);
    }
    fclose(kafka.to);
    mr_pg_check(&config->source, stored.found ? &stored.state : NULL, print_finding, report);
    if (config->file_path != NULL && strcmp(config->file_path, "-") != 0) {
        cli_check_file(config->file_path, report);
    }
    fputs(text, report->to);
    report->errors += kafka.errors;
    report->warnings += kafka.warnings;
    report->worst = report->worst == MR_OK ? kafka.worst : report->worst;
    mr_checkpoint_done(&stored.state);
}

mr_status mr_check(const struct mr_config *config, FILE *to)
{
    struct report report = {.to = to, .worst = MR_OK};
    struct mr_error error;
    if (mr_profiling_check(config, &error) != MR_OK) {
        print_finding(&report, MR_FINDING_ERROR, error.status, "profiling", error.text, NULL);
    }
    check_servers(config, &report);
    mr_registry_check(&config->registry, print_finding, &report);
    fprintf(to, "%u %s, %u %s\n", report.errors, report.errors == 1 ? "error" : "errors",
            report.warnings, report.warnings == 1 ? "warning" : "warnings");
    return report.worst;
}
