/* Configuration: a TOML file (or the environment alone) to the option structs of the modules.
 *
 * Everything is declared once, in options.def. All problems of a file are found at once. Secrets come from
 * environment variables and files, never from the file itself. Before the first thread.
 */
#pragma once

#include "base/program.h"
#include "base/sha256.h"
#include "config/values.h"
#include "control/http.h"
#include "copy/copies.h"
#include "encode/encode.h"
#include "flow/pipeline.h"
#include "kafka/options.h"
#include "registry/registry.h"
#include "sink/file.h"
#include "stream/pg_source.h"

enum mr_sink_kind { MR_SINK_STDOUT, MR_SINK_FILE, MR_SINK_KAFKA, MR_SINK_DISCARD };

/* Files that hold secrets which may become others while millrace runs: each is read again whenever
 * its secret is asked for. */
struct mr_secret_files {
    struct mr_secret_file {
        struct mr_secret *secret;
        const char *path;
        const char *what;        /* "Kafka password" */
        _Atomic bool *is_faulty; /* it could not be read at the last look, which was said */
    } items[6];                  /* an option each */
    uint32_t count;
};

/* What is freed with the configuration. */
struct mr_kept {
    struct mr_kept_item {
        void *item;
        void (*free)(void *item);
    } * items;
    uint32_t count, room;
    struct mr_secret_files files;
};

/* The modules' options, ready for use, and the memory behind them. */
struct mr_config {
    struct mr_counted counted; /* all of it; the first member */
    struct mr_pg_source_options source;
    struct mr_encode_options encode;
    enum mr_sink_kind sink_kind;
    struct mr_kafka_options kafka;
    struct mr_file_options file;
    struct mr_registry_options registry; /* no URL: there is none */
    struct mr_pipeline_options pipeline;
    struct mr_copies_options copies; /* without their server, and who hears signals */
    uint32_t heartbeat_ms;           /* 0: there are no heartbeats */
    uint32_t resolved_ms;            /* 0: there are no markers */
    const char *ledger_topic;        /* NULL: there is no ledger */
    uint32_t slot_interval_ms;       /* 0: the slot is never looked at */
    uint32_t metrics_tables_max;
    bool profiles; /* may be taken: some option of [profiling] asks for it */
    struct mr_http_options http;
    enum mr_log_level log_level;
    enum mr_log_format log_format;

    const char *path;              /* the file's, of the caller; NULL: there is none */
    struct mr_sha256_short digest; /* of what it held; "": it was not read */
    struct mr_config_values values;
    struct mr_problems problems;    /* warnings of a good file, errors of a bad one */
    struct mr_kept kept;            /* for the structs above */
    struct mr_programs programs;    /* that modules have run, once they are started */
    struct mr_index tables_by_name; /* source.captured.by_name */
    struct mr_outbox_options outbox;
    struct mr_routing routing;
};

/* What is streamed by name: the streams, or the tables that are passed on. */
uint32_t mr_config_route_count(const struct mr_config *config);
struct mr_route mr_config_route(const struct mr_config *config, uint32_t number);

/* Reads a file; NULL path: the environment alone (DATABASE_URL, MILLRACE_TABLES). MR_ERR_CONFIG when there
 * are errors; `*ret_config` is made in any case, for its problems, and freed by the caller. */
mr_status mr_config_load(const char *path, struct mr_config **ret_config);

/* The same, where the stream can't go on to copy the tables (snapshot.mode = "when_needed") or to leave a gap ("accept_gap"). */
mr_status mr_config_load_mending(const char *path, bool copies, struct mr_config **ret_config);

/* The same from a text; `name` stands in messages. */
mr_status mr_config_load_text(const char *name, const char *text, size_t len,
                              struct mr_config **ret_config);

/* The same of a text that another machine will read: no secret is, and no file or program that it names need be here. */
mr_status mr_config_load_elsewhere(const char *name, const char *text, size_t len,
                                   struct mr_config **ret_config);

/* Reads a file for the sake of `http` alone (NULL path: the defaults), so that no other part's secret needs to be there. */
mr_status mr_config_load_http(const char *path, struct mr_config **ret_config);

/* What tells a file's content from another's, in hexadecimal; "" where it can't be read. */
struct mr_sha256_short mr_config_digest(const char *path);

/* Takes NULL. Who holds it as `captured.memory` or `encode.memory` keeps it until that is released. */
void mr_config_free(struct mr_config *config);

/* Whether librdkafka will start kinit: with GSSAPI, unless sasl.kerberos.min.time.before.relogin is 0
 * (rdkafka_sasl_cyrus.c, rd_kafka_sasl_cyrus_init). */
bool mr_config_runs_kinit(const struct mr_config *config);

/* One "file:line: sentence" a problem. */
void mr_config_print_problems(const struct mr_config *config, FILE *to);

/* Adds to an object: "configuration", the options in effect, {"topic_prefix":"shop",…}, without secrets; "configuration_origins",
 * where each that is not at its default was set, {"topic_prefix":"line 2 of config.toml"}; "configuration_units" of durations and
 * sizes: "ms", "us", "bytes". `reloaded`: the file as a reload read it last, or NULL. */
void mr_config_show(const struct mr_config *config, const struct mr_config *reloaded,
                    struct cJSON *to);

/* Reads `running`'s file again, but none of its secrets, which are those of the start. As mr_config_load otherwise. Any
 * thread. */
mr_status mr_config_reload(const struct mr_config *running, struct mr_config **ret_config);

/* What a file holds, the caller's, for mr_secret_forget. NULL: why not. `is_secret`: others must not be able to read it. Any thread. */
char *mr_secret_file_read(const char *path, const char *what, bool is_secret,
                          struct mr_error *ret_error);

/* Looks at the files with secrets every secrets.watch too, on a thread of its own, until it is
 * stopped; the configuration outlives it. `*ret`: NULL where nothing is to be watched, which stop
 * takes. */
struct mr_secrets_watch;
mr_status mr_secrets_watch_start(const struct mr_config *config, struct mr_secrets_watch **ret,
                                 struct mr_error *ret_error);
void mr_secrets_watch_stop(struct mr_secrets_watch *watch);

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

/* The sections of docs/configuration.md, and the table of docs/reload.md that says what a reload takes up. */
void mr_config_print_reference(FILE *to);
void mr_config_print_reloads(FILE *to);
