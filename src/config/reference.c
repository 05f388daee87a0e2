/* The pages that are made from the table. */

#include "base/markdown.h"
#include "config/build.h"

/* A heading for each, so that it has an anchor. */
static void print_option(const struct mr_option *option, FILE *to)
{
    MR_FREED char *limits = mr_option_limits(option);
    fprintf(to, "\n### `%s`\n\n%s", option->path, mr_kinds[option->kind].name);
    if (option->fallback[0] != '\0') {
        fprintf(to, ", default `%s`", option->fallback);
    }
    fprintf(to, ".%s\n\n", limits);
    mr_markdown_print(option->text, to);
    fputc('\n', to);
}

static void config_reference_print_part(enum mr_option_part part, const char *title, FILE *to)
{
    fprintf(to, "\n## %s\n", title);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (mr_option_at(i)->part == part) {
            print_option(mr_option_at(i), to);
        }
    }
}

void mr_config_print_reference(FILE *to)
{
    static const char *const titles[] = {
        [MR_PART_CAPTURE] = "What is captured",
        [MR_PART_ENCODE] = "What is sent",
        [MR_PART_SINK] = "Where it goes",
        [MR_PART_FLOW] = "The flow",
        [MR_PART_COPY] = "Copies of existing rows",
        [MR_PART_METRICS] = "Metrics",
        [MR_PART_HTTP] = "HTTP: metrics, health, status and the live page",
        [MR_PART_LOG] = "Logs",
        [MR_PART_PROCESS] = "The process",
        [MR_PART_PROFILER] = "The profiler inside",
    };
    for (enum mr_option_part part = 0; part < MR_PART_COUNT; part++) {
        config_reference_print_part(part, titles[part], to);
    }
    fputs("\n## Kafka properties\n\n"
          "Under `[sink.kafka.properties]` these properties of librdkafka can be set, for example\n"
          "`\"client.rack\" = \"a\"`:\n\n",
          to);
    mr_kafka_properties_print(to);
}

static void print_reloads(enum mr_option_reload reload, FILE *to)
{
    const char *mark = "";
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (mr_option_at(i)->reload == reload) {
            fprintf(to, "%s`%s`", mark, mr_option_at(i)->path);
            mark = ", ";
        }
    }
}

void mr_config_print_reloads(FILE *to)
{
    fputs("| option | when it holds |\n|---|---|\n| ", to);
    print_reloads(MR_RELOAD_BETWEEN, to);
    fputs(", of `[[streams]]` tables, topics and operations | from one transaction on: changes "
          "received before the reload follow the old file, all after it the new one "
          "|\n| ",
          to);
    print_reloads(MR_RELOAD_PUBLICATION, to);
    fputs(" | from the first transaction on that commits after the change of the publication, "
          "wherever the stream is |\n| ",
          to);
    print_reloads(MR_RELOAD_AT_ONCE, to);
    fputs(" | at once |\n"
          "| all others | after a restart. They stay as they are, and are named (`needs_restart`) "
          "|\n",
          to);
}
