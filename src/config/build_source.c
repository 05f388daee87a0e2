/* The PostgreSQL source's options. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "config/names.h"
#include "config/secrets.h"

enum { HOST_SIZE = 65 };

/* PostgreSQL shows it to whoever finds the slot in use, cut off at 63 bytes. */
static const char *application_name(struct mr_config *config)
{
    char host[HOST_SIZE] = "";
    gethostname(host, sizeof(host) - 1);
    size_t size = HOST_SIZE + strlen(config->values.topic_prefix) + 64;
    char *name = mr_config_keep(config, MR_ALLOC(size));
    snprintf(name, size, "millrace %s:%d %s", host, (int)getpid(), config->values.topic_prefix);
    return name;
}

/* What the options of one section say of a connection; the lines are where. */
struct described {
    const char *section;
    const char *connection, *connection_env, *password_env, *password_file;
    uint32_t line, env_line, password_line;
};

static void build_connection(struct mr_config *config, const struct described *described,
                             struct mr_pg_options *connection)
{
    if (described->line != 0) {
        if (described->env_line != 0) {
            PROBLEM(config, described->line,
                    "%s.connection and connection_env are both set; keep one of the two",
                    described->section);
        }
        if (mr_secret_in_conninfo(described->connection)) {
            PROBLEM(config, described->line,
                    "%s.connection holds a password; take it out and set password_env or "
                    "password_file",
                    described->section);
        }
        connection->conninfo = described->connection;
    } else {
        connection->conninfo = mr_config_keep_secret(
            config, mr_secret_read("connection string", described->connection_env, "",
                                   described->env_line, &config->problems));
    }
    connection->password =
        mr_config_keep_secret(config, mr_secret_read("PostgreSQL password", described->password_env,
                                                     described->password_file,
                                                     described->password_line, &config->problems));
    connection->application_name = application_name(config);
    connection->connect_timeout_ms = (uint32_t)config->values.connect_timeout;
    connection->insecure_tls = config->values.source_insecure_tls != 0;
}

static void build_stream_connection(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const struct described described = {
        .section = "source.postgres",
        .connection = values->connection,
        .connection_env = values->connection_env,
        .password_env = values->password_env,
        .password_file = values->password_file,
        .line = LINE(config, connection),
        .env_line = LINE(config, connection_env),
        .password_line = LINE_OF(config, password_env, password_file),
    };
    build_connection(config, &described, &config->source.connection);
    if (config->source.connection.insecure_tls) {
        WARNING(config, LINE(config, source_insecure_tls),
                "source.postgres.insecure_tls: the server need not prove who it is, so whoever is "
                "in between can take the password and read the rows");
    }
}

/* The one that copies have for themselves, if any. A password without a connection of its own would go with nobody. */
static void build_copying_connection(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const struct described described = {
        .section = "snapshot",
        .connection = values->snapshot_connection,
        .connection_env = values->snapshot_connection_env,
        .password_env = values->snapshot_password_env,
        .password_file = values->snapshot_password_file,
        .line = values->snapshot_connection[0] == '\0' ? 0 : LINE(config, snapshot_connection),
        .env_line =
            values->snapshot_connection_env[0] == '\0' ? 0 : LINE(config, snapshot_connection_env),
        .password_line = LINE_OF(config, snapshot_password_env, snapshot_password_file),
    };
    if (described.line == 0 && described.env_line == 0) {
        if (described.password_env[0] != '\0' || described.password_file[0] != '\0') {
            PROBLEM(config, described.password_line,
                    "snapshot.password_env and password_file belong to snapshot.connection or "
                    "connection_env; set one of these, or none of all four");
        }
        return;
    }
    if (described.env_line != 0 && LINE(config, connection) == 0 &&
        strcmp(described.connection_env, values->connection_env) == 0) {
        PROBLEM(config, described.env_line,
                "snapshot.connection_env names the variable that source.postgres.connection_env "
                "does; leave it out, for then copies use that connection string");
        return;
    }
    build_connection(config, &described, &config->source.copying);
}

/* What PostgreSQL takes as a slot's name. */
static bool slot_name_good(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len > 0 && len <= MR_NAME_MAX && name[len] == '\0';
}

void mr_config_build_source(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    build_stream_connection(config);
    build_copying_connection(config);
    config->source.slot = values->slot_name;
    config->source.publication = values->publication_name;
    config->source.create_slot = values->create_slot != 0;
    config->source.create_publication = values->create_publication != 0;
    config->source.messages =
        values->outbox_messages[0] != '\0' ||
        (values->message_prefixes.count > 0 && config->encode.format != MR_FORMAT_FLAT &&
         (config->encode.skipped_operations & (1u << MR_OP_MESSAGE)) == 0);
    config->source.failover = values->failover != 0;
    config->source.adopt_slot = values->adopt_slot != 0;
    config->slot_interval_ms = (uint32_t)values->slot_interval;
    config->metrics_tables_max = (uint32_t)values->metrics_max_tables;
    if (!slot_name_good(values->slot_name)) {
        PROBLEM(config, LINE(config, slot_name),
                "slot_name \"%s\" is not what PostgreSQL takes: up to 63 of a-z, 0-9 and _",
                values->slot_name);
    }
    size_t len = mr_names_characters(values->publication_name);
    if (len == 0 || len > MR_NAME_MAX) {
        PROBLEM(config, LINE(config, publication_name),
                "publication_name must have 1 to 63 characters");
    }
}

/* The NUL belongs to it, so that "a", "b" is not "ab". */
static uint64_t add_to_hash(uint64_t hash, const char *text)
{
    return mr_hash_add(hash, text, strlen(text) + 1);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In whatever order they are written. */
static uint64_t add_list(uint64_t hash, const char *const *texts, uint32_t count)
{
    const char **sorted = MR_NEW_ARRAY(const char *, count);
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = texts[i];
    }
    qsort(sorted, count, sizeof(*sorted), compare_texts);
    for (uint32_t i = 0; i < count; i++) {
        hash = add_to_hash(hash, sorted[i]);
    }
    free(sorted);
    return add_to_hash(hash, "");
}

/* Slot and publication, what is sent and how it is named, and where it goes: who differs in one of them would deliver other
 * events than the one whose place it takes. */
static char *pipeline_name(const struct mr_config *config, const struct mr_config *tables_of)
{
    const struct mr_config_values *values = &config->values;
    const struct mr_pg_source_options *source = &tables_of->source;
    uint32_t count = source->captured.table_count;
    char **tables = MR_NEW_ARRAY(char *, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_table_name *table = &source->captured.tables[i];
        size_t size = strlen(table->schema) + strlen(table->table) + 2;
        tables[i] = MR_ALLOC(size);
        snprintf(tables[i], size, "%s\n%s", table->schema, table->table);
    }
    bool is_kafka = config->sink_kind == MR_SINK_KAFKA;
    static const char *const formats[] = {"debezium", "avro", "flat", "cloudevents", "row"};
    const char *const names[] = {
        values->slot_name,
        values->publication_name,
        values->topic_prefix,
        formats[config->encode.format],
        is_kafka ? "kafka" : values->file_path,
        is_kafka ? values->state_topic : "",
        is_kafka ? config->kafka.state_name : "",
    };
    uint64_t hash = MR_HASH_BEGIN;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        hash = add_to_hash(hash, names[i]);
    }
    hash = add_list(hash, (const char *const *)tables, count);
    if (source->captured.pattern_count > 0) {
        const struct mr_strings *names_of = &tables_of->values.tables;
        const struct mr_strings *excluded = &tables_of->values.excluded_tables;
        hash = add_list(hash, (const char *const *)names_of->items, names_of->count);
        hash = add_list(hash, (const char *const *)excluded->items, excluded->count);
    }
    if (source->captured.published_count > 0) {
        const struct mr_strings *wheres = &tables_of->values.publication_where;
        const struct mr_strings *columns = &tables_of->values.publication_columns;
        hash = add_list(hash, (const char *const *)wheres->items, wheres->count);
        hash = add_list(hash, (const char *const *)columns->items, columns->count);
    }
    if (is_kafka) {
        hash = add_list(hash, (const char *const *)values->brokers.items, values->brokers.count);
    }
    for (uint32_t i = 0; i < count; i++) {
        free(tables[i]);
    }
    free(tables);
    enum { HEX_SIZE = 17 };
    char *name = MR_ALLOC(HEX_SIZE);
    snprintf(name, HEX_SIZE, "%016" PRIx64, hash);
    return name;
}

void mr_config_name_pipeline(struct mr_config *config)
{
    config->source.captured.pipeline = mr_config_keep(config, pipeline_name(config, config));
}

void mr_config_name_reloaded(const struct mr_config *running, struct mr_config *wanted)
{
    wanted->source.captured.pipeline = mr_config_keep(wanted, pipeline_name(running, wanted));
}
