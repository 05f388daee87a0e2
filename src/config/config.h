/* What a file of options (or the environment alone) says of a pipeline: of its server, tables,
 * events and topics. Each program that knows the pipeline reads it so; what the daemon needs
 * besides is made in daemon/.
 *
 * Options are declared once, in options/options.def. All problems of a file are found at once.
 * Secrets come from environment variables and files, never from the file itself. Before the first
 * thread. */
#pragma once

#include "ask/http_options.h"
#include "base/program.h"
#include "base/sha256.h"
#include "encode/encode.h"
#include "kafka/options.h"
#include "options/secrets.h"
#include "postgres/catalog/pg_options.h"
#include "registry/registry.h"

struct cJSON;

enum mr_sink_kind { MR_SINK_STDOUT, MR_SINK_FILE, MR_SINK_KAFKA, MR_SINK_DISCARD };

/* Words of snapshot.mode by their numbers in options.def. */
enum { MR_MODE_ALWAYS = 5, MR_MODE_WHEN_NEEDED = 6, MR_MODE_ACCEPT_GAP = 7 };

/* What is freed with the configuration. */
struct mr_kept {
    struct mr_kept_item {
        void *item;
        void (*free)(void *item);
    } * items;
    uint32_t count, room;
};

struct mr_daemon_options;

/* The modules' options, ready for use, and the memory behind them. */
struct mr_config {
    struct mr_counted counted; /* all of it; the first member */
    struct mr_pg_source_options source;
    struct mr_encode_options encode;
    enum mr_sink_kind sink_kind;
    struct mr_kafka_options kafka;
    const char *file_path;               /* NULL: standard output, or another sink */
    struct mr_registry_options registry; /* no URL: there is none */
    uint32_t heartbeat_ms;               /* 0: there are no heartbeats */
    uint32_t resolved_ms;                /* 0: there are no markers */
    const char *ledger_topic;            /* NULL: there is no ledger */
    uint32_t slot_interval_ms;           /* 0: the slot is never looked at */
    struct mr_http_options http;
    enum mr_log_level log_level;
    enum mr_log_format log_format;
    /* what the daemon alone makes of it; NULL in other programs */
    struct mr_daemon_options *daemon;

    const char *path;              /* the file's, of the caller; NULL: there is none */
    struct mr_sha256_short digest; /* of what it held; "": it was not read */
    struct mr_config_values values;
    struct mr_problems problems;    /* warnings of a good file, errors of a bad one */
    struct mr_kept kept;            /* for the structs above */
    struct mr_secret_files secrets; /* likewise */
    struct mr_programs programs;    /* that modules have run, once they are started */
    struct mr_index tables_by_name; /* source.captured.by_name */
    struct mr_outbox_options outbox;
    struct mr_routing routing;
};

/* What is streamed by name: the streams, or the tables that are passed on. */
uint32_t mr_config_route_count(const struct mr_config *config);
struct mr_route mr_config_route(const struct mr_config *config, uint32_t number);

/* What is read, and how. */
struct mr_config_reading {
    /* of the file; NULL: `text`; without either, DATABASE_URL and MILLRACE_TABLES */
    const char *path;
    const char *name; /* of the text, in messages */
    const char *text;
    size_t len;
    bool is_reload; /* no secret is read: those of the start are in use */
    /* another machine will read it: no file or program that it names need be here, nor secrets */
    bool elsewhere;
    int64_t snapshot_mode; /* MR_MODE_… in place of the file's; 0: the file's own */
    void (*build)(
        /* makes more of it, before the pipeline gets its name; NULL: there is no more */
        struct mr_config *config);
};

/* MR_ERR_CONFIG when there are errors; `*ret_config` is made in any case, for its problems, and
 * freed by the caller. */
mr_status mr_config_read(const struct mr_config_reading *reading, struct mr_config **ret_config);

/* A file, or the environment, without more. */
mr_status mr_config_load(const char *path, struct mr_config **ret_config);

/* Reads a file for the sake of `http` alone (NULL path: the defaults), so that no other part's
 * secret needs to be there. */
mr_status mr_config_load_http(const char *path, struct mr_config **ret_config);

/* Takes NULL. Who holds it as `captured.memory` or `encode.memory` keeps it until that is
 * released. */
void mr_config_free(struct mr_config *config);

/* Whether librdkafka will start kinit: with GSSAPI, unless sasl.kerberos.min.time.before.relogin is
 * 0 (rdkafka_sasl_cyrus.c, rd_kafka_sasl_cyrus_init). */
bool mr_config_runs_kinit(const struct mr_config *config);

/* One "file:line: sentence" a problem. */
void mr_config_print_problems(const struct mr_config *config, FILE *to);

/* Adds to an object: "configuration", the options in effect, {"topic_prefix":"shop",…}, without
 * secrets; "configuration_origins", where each that is not at its default was set,
 * {"topic_prefix":"line 2 of config.toml"}; "configuration_units" of durations and sizes: "ms",
 * "us", "bytes". `reloaded`: the file as a reload read it last, or NULL. */
void mr_config_show(const struct mr_config *config, const struct mr_config *reloaded,
                    struct cJSON *to);

/* One option that differs. [[streams]] and [sink.kafka.properties] are one each. */
typedef void (*mr_config_difference_fn)(void *context, const struct mr_option *option);

/* What in `wanted` can't be left for a restart while the rest changes now: a sentence, or NULL. */
const char *mr_config_reload_fault(const struct mr_config *running, const struct mr_config *wanted);

/* `wanted` is the pipeline of `running` with other tables: its source's name for it says so. */
void mr_config_name_reloaded(const struct mr_config *running, struct mr_config *wanted);

/* Tells what is different in `wanted` from what is in effect. */
void mr_config_differences(const struct mr_config *running, const struct mr_config *reloaded,
                           const struct mr_config *wanted, mr_config_difference_fn take,
                           void *context);

/* The sections of docs/configuration.md, and the table of docs/upgrading.md that says what a reload
 * takes up. */
void mr_config_print_reference(FILE *to);
void mr_config_print_reloads(FILE *to);
