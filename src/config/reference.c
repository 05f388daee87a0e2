/* The options for people: the reference page, and each of them for others to print. */
#include <string.h>

#include "config/config.h"
#include "config/kafka_properties.h"

static const char *kind_name(enum mr_option_kind kind)
{
    static const char *const names[] = {
        [MR_KIND_STRING] = "string",        [MR_KIND_BOOL] = "boolean",
        [MR_KIND_COUNT] = "number",         [MR_KIND_DURATION] = "duration",
        [MR_KIND_DURATION_US] = "duration", [MR_KIND_SIZE] = "size",
        [MR_KIND_STRINGS] = "list",         [MR_KIND_CHOICE] = "word",
    };
    return names[kind];
}

static void print_words(const char *choices, FILE *to)
{
    for (const char *c = choices; *c != '\0'; c++) {
        if (*c == '|') {
            fputs(", ", to);
        } else {
            fputc(*c, to);
        }
    }
}

static void print_row(const struct mr_option *option, FILE *to)
{
    fprintf(to, "| `%s` | %s | ", option->path, kind_name(option->kind));
    if (option->fallback[0] != '\0') {
        fprintf(to, "`%s`", option->fallback);
    }
    fprintf(to, " | %s", option->text);
    if (option->choices != NULL) {
        fputs(" One of: ", to);
        print_words(option->choices, to);
        fputs(".", to);
    }
    fputs(" |\n", to);
}

void mr_config_print_reference(FILE *to)
{
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
          "the configuration file.\n\n"
          "| option | kind | default | meaning |\n|---|---|---|---|\n",
          to);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        print_row(mr_option_at(i), to);
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

void mr_config_each_option(void (*take)(void *context, const struct mr_config_option *option),
                           void *context)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        const struct mr_config_option shown = {.path = option->path,
                                               .kind = kind_name(option->kind),
                                               .fallback = option->fallback,
                                               .text = option->text,
                                               .choices = option->choices};
        take(context, &shown);
    }
}
