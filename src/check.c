#include "check.h"

#include "sink/kafka_check.h"
#include "source/pg_setup.h"

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

mr_status mr_check(const struct mr_config *config, FILE *to)
{
    struct report report = {.to = to, .worst = MR_OK};
    mr_pg_check(&config->source, print_finding, &report);
    if (config->sink_kind == MR_SINK_KAFKA) {
        mr_kafka_check(&config->kafka, NULL, 0, print_finding, &report);
    }
    fprintf(to, "%u errors, %u warnings\n", report.errors, report.warnings);
    return report.worst;
}
