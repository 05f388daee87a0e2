#include "check.h"

#include <stdlib.h>

#include "sink/kafka_check.h"
#include "source/pg_setup.h"

struct report {
    FILE *to;
    mr_status worst;
    unsigned errors;
    unsigned warnings;
};

/* mr_finding_fn */
static void print_finding(void *context, enum mr_finding_level level, mr_status status,
                          const char *subject, const char *finding, const char *remedy)
{
    struct report *report = context;
    static const char *const marks[] = {[MR_FINDING_OK] = "ok     ",
                                        [MR_FINDING_WARNING] = "warning",
                                        [MR_FINDING_ERROR] = "error  "};
    fprintf(report->to, "%s  %s: %s\n", marks[level], subject, finding);
    if (remedy != NULL) {
        fprintf(report->to, "         remedy: %s\n", remedy);
    }
    report->warnings += level == MR_FINDING_WARNING;
    report->errors += level == MR_FINDING_ERROR;
    if (level == MR_FINDING_ERROR && report->worst == MR_OK) {
        report->worst = status;
    }
}

static void check_kafka(const struct mr_config *config, struct report *report)
{
    const struct mr_encode_options *encode = &config->encode;
    char **topics = MR_NEW_ARRAY(char *, encode->route_count + 1);
    for (uint32_t i = 0; i < encode->route_count; i++) {
        const struct mr_route *route = &encode->routes[i];
        topics[i] = route->topic != NULL
                        ? MR_STRDUP(route->topic)
                        : mr_topic_name(encode->topic_prefix, route->schema, route->table);
    }
    uint32_t count = encode->route_count;
    if (encode->oversize == MR_OVERSIZE_DEAD_LETTER) {
        topics[count++] = MR_STRDUP(encode->dead_letter_topic);
    }
    mr_kafka_check(&config->kafka, (const char *const *)topics, count, print_finding, report);
    for (uint32_t i = 0; i < count; i++) {
        free(topics[i]);
    }
    free(topics);
}

mr_status mr_check(const struct mr_config *config, FILE *to)
{
    struct report report = {.to = to, .worst = MR_OK};
    mr_pg_check(&config->source, print_finding, &report);
    if (config->sink_kind == MR_SINK_KAFKA) {
        check_kafka(config, &report);
    }
    fprintf(to, "%u errors, %u warnings\n", report.errors, report.warnings);
    return report.worst;
}
