/* The pages that are made from the table. */
#include <stdlib.h>

#include "config/config.h"
#include "config/kafka_properties.h"

static void print_row(const struct mr_option *option, FILE *to)
{
    char *text = mr_option_describe(option);
    fprintf(to, "| `%s` | %s | ", option->path, mr_option_kind_name(option));
    if (option->fallback[0] != '\0') {
        fprintf(to, "`%s`", option->fallback);
    }
    fprintf(to, " | %s |\n", text);
    free(text);
}

static void print_part(enum mr_option_part part, const char *title, FILE *to)
{
    fprintf(to, "\n## %s\n\n| option | kind | default | meaning |\n|---|---|---|---|\n", title);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (mr_option_at(i)->part == part) {
            print_row(mr_option_at(i), to);
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
    fputs("# Configuration\n\n"
          "<!-- Made by `millrace reference config`; a test compares the two. -->\n\n"
          "millrace reads one TOML file: `millrace --config config.toml`. Without a file it takes "
          "the\n"
          "connection string from `DATABASE_URL` and the tables from `MILLRACE_TABLES` and writes "
          "JSON lines\n"
          "to standard output. Unknown keys are errors, and all errors of a file are told at "
          "once.\n\n"
          "```toml\n"
          "tables = [\"public.orders\", \"public.customers\"]\n"
          "topic_prefix = \"shop\"\n\n"
          "[source.postgres]\n"
          "connection_env = \"DATABASE_URL\"   # postgresql://user:password@host/database\n\n"
          "[sink]\n"
          "type = \"kafka\"\n\n"
          "[sink.kafka]\n"
          "brokers = [\"localhost:9092\"]\n"
          "```\n\n"
          "Durations are written `\"500us\"`, `\"10ms\"`, `\"1s\"`, `\"2m\"`; sizes `\"64KiB\"`, "
          "`\"1MiB\"`, "
          "`\"10MB\"`.\n"
          "Secrets come from environment variables or from files that only their owner may read, "
          "never from\n"
          "the configuration file.\n",
          to);
    for (enum mr_option_part part = 0; part < MR_PART_COUNT; part++) {
        print_part(part, titles[part], to);
    }
    fputs("\n## Kafka properties\n\n"
          "Under `[sink.kafka.properties]` these properties of librdkafka can be set, for example\n"
          "`\"client.rack\" = \"a\"`:\n\n",
          to);
    mr_kafka_properties_print(to);
    fputs("\nEvery other is refused with the reason: what the delivery promise stands on (`acks`, "
          "`enable.idempotence`,\n"
          "`partitioner`, …), what loads code or runs commands (`plugin.library.paths`, "
          "`ssl.engine.location`,\n"
          "`sasl.kerberos.kinit.cmd`), what has an option of its own, and secrets. "
          "`security.protocol` must agree with\n"
          "`sink.kafka.tls`; what switches off a check of TLS wants `sink.kafka.insecure_tls`; "
          "`debug` takes the contexts\n"
          "that print no secrets.\n\n"
          "## Files written for Outboxx\n\n"
          "A file with `[metadata] version = \"v0\"` and `[[streams]]` runs as it is: events then "
          "have\n"
          "Outboxx's form (`format = \"flat\"`), each stream names its topic (`sink.destination`) "
          "and key\n"
          "column (`sink.routing_key`). [Several streams](events.md#several-streams-of-one-table) "
          "may have one table. Differences: the publication is made for the named tables "
          "only, and\n"
          "a first copy of a table needs `[snapshot] mode = \"initial\"` and the operation `read` "
          "([snapshots.md](snapshots.md)).\n",
          to);
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
    fputs(", of `[[streams]]` tables, topics and operations | from one transaction on: what "
          "millrace received before is as the old file says, all after it as the new one does "
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
