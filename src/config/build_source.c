/* The PostgreSQL source's options. */
#include <inttypes.h>

#include "base/hash.h"
#include "config/names.h"

enum { HOST_SIZE = 65 };

/* PostgreSQL shows it where the slot is found in use, cut off at 63 bytes. */
static const char *application_name(struct mr_config *config)
{
    char host[HOST_SIZE] = "";
    gethostname(host, sizeof(host) - 1);
    return mr_config_text(config, "millrace %s:%d %s", host, (int)getpid(),
                          config->values.topic_prefix);
}

static void build_connection(struct mr_config *config, uint32_t text_option, uint32_t password,
                             struct mr_pg_options *connection)
{
    const char *text = *(char *const *)mr_value_of(&config->values, text_option);
    bool is_elsewhere = mr_text_is_reference(text);
    if (!is_elsewhere && mr_secret_in_conninfo(text)) {
        REFUSE_AT(config, text_option, " holds a password; take it out and set password");
    }
    connection->conninfo =
        is_elsewhere ? mr_config_secret(config, "connection string", text_option) : text;
    connection->password = mr_config_watched(config, "PostgreSQL password", password);
    connection->password_program = mr_config_program(config, password);
    connection->application_name = application_name(config);
    connection->insecure_tls = config->values.source_insecure_tls != 0;
}

static void build_stream_connection(struct mr_config *config)
{
    build_connection(config, MR_INDEX_connection, MR_INDEX_password, &config->source.connection);
    if (config->source.connection.insecure_tls) {
        WARNING(config, LINE(config, source_insecure_tls),
                "source.postgres.insecure_tls: the server need not prove who it is, so anybody "
                "in between can take the password and read the rows");
    }
}

static void build_copying_connection(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const char *text = values->snapshot_connection;
    if (mr_text_is_reference(text) && strcmp(text, values->connection) == 0) {
        REFUSE(config, snapshot_connection,
               " names what source.postgres.connection does; leave it out, for then "
               "copies use that connection string");
    } else if (text[0] != '\0') {
        build_connection(config, MR_INDEX_snapshot_connection, MR_INDEX_snapshot_password,
                         &config->source.copying);
    }
}

static bool slot_name_good(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len > 0 && len <= MR_NAME_MAX && name[len] == '\0';
}

/* The words of snapshot.mode, in their order in options.def. */
static const enum mr_pg_copies snapshot_modes[] = {
    MR_COPIES_NOTHING,
    MR_COPIES_INITIALLY,
    MR_COPIES_ONLY,
    MR_COPIES_NOTHING,
    MR_COPIES_NOTHING,
    [MR_MODE_ALWAYS] = MR_COPIES_ALWAYS,
    [MR_MODE_WHEN_NEEDED] = MR_COPIES_WHEN_NEEDED,
    [MR_MODE_ACCEPT_GAP] = MR_COPIES_ACCEPT_GAP,
};

void mr_config_build_source(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->source.copies = snapshot_modes[values->snapshot_mode];
    build_stream_connection(config);
    build_copying_connection(config);
    config->source.messages =
        values->outbox_messages[0] != '\0' ||
        (values->message_prefixes.count > 0 && config->encode.format != MR_FORMAT_FLAT &&
         (config->encode.skipped_operations & (1u << MR_OP_MESSAGE)) == 0);
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

static uint64_t add_list(uint64_t hash, const struct mr_strings *texts)
{
    MR_FREED char **sorted = MR_NEW_ARRAY(char *, texts->count + 1);
    memcpy(sorted, texts->items == NULL ? sorted : texts->items, texts->count * sizeof(*sorted));
    qsort(sorted, texts->count, sizeof(*sorted), compare_texts);
    for (uint32_t i = 0; i < texts->count; i++) {
        hash = add_to_hash(hash, sorted[i]);
    }
    return add_to_hash(hash, "");
}

static uint64_t build_source_add_tables(uint64_t hash,
                                        const struct mr_pg_captured_options *captured)
{
    struct mr_strings tables = {0};
    for (uint32_t i = 0; i < captured->table_count; i++) {
        const struct mr_table_name *table = &captured->tables[i];
        char name[4 * 2 * MR_NAME_MAX + 2];
        snprintf(name, sizeof(name), "%s\n%s", table->schema, table->table);
        mr_strings_add(&tables, name);
    }
    hash = add_list(hash, &tables);
    mr_strings_done(&tables);
    return hash;
}

/* Slot and publication, what is sent and how it is named, and where it goes: who differs in one of
 * them would deliver other events than the one whose place it takes. `tables_of` has the tables;
 * the result is its memory. */
static const char *pipeline_name(const struct mr_config *config, struct mr_config *tables_of)
{
    const struct mr_config_values *values = &config->values;
    const struct mr_pg_captured_options *captured = &tables_of->source.captured;
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
    hash = build_source_add_tables(hash, captured);
    if (captured->pattern_count > 0) {
        hash = add_list(hash, &tables_of->values.tables);
        hash = add_list(hash, &tables_of->values.excluded_tables);
    }
    if (captured->published_count > 0) {
        hash = add_list(hash, &tables_of->values.publication_where);
        hash = add_list(hash, &tables_of->values.publication_columns);
    }
    if (is_kafka) {
        hash = add_list(hash, &values->brokers);
    }
    return mr_config_text(tables_of, "%016" PRIx64, hash);
}

void mr_config_name_pipeline(struct mr_config *config)
{
    config->source.captured.pipeline = pipeline_name(config, config);
}

void mr_config_name_reloaded(const struct mr_config *running, struct mr_config *wanted)
{
    wanted->source.captured.pipeline = pipeline_name(running, wanted);
}
