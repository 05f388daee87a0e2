#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"
#include "config/secrets.h"
#include "pipeline/memory.h"

enum {
    FILE_BYTES_MAX = 1024 * 1024,
    IDENTIFIER_MAX = 63,
};

/* ---- memory behind the option structs ---- */

void *mr_config_keep(struct mr_config *config, void *memory)
{
    config->memory =
        MR_REALLOC(config->memory, (config->memory_count + 1) * sizeof(*config->memory));
    config->memory[config->memory_count++] = memory;
    return memory;
}

char *mr_config_keep_secret(struct mr_config *config, char *secret)
{
    if (secret != NULL) {
        config->secrets =
            MR_REALLOC(config->secrets, (config->secret_count + 1) * sizeof(*config->secrets));
        config->secrets[config->secret_count++] = secret;
    }
    return secret;
}

static const char *or_null(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

/* ---- tables ---- */

/* Takes one part of "schema"."table", quoted or bare, up to a dot or the end; NULL when it is malformed. */
static char *take_part(struct mr_config *config, const char **at, bool fold)
{
    char *part = mr_config_keep(config, MR_ALLOC(strlen(*at) + 1));
    size_t len = 0;
    const char *from = *at;
    if (*from == '"') {
        for (from++; *from != '\0' && (*from != '"' || from[1] == '"'); from++) {
            from += *from == '"';
            part[len++] = *from;
        }
        if (*from != '"') {
            return NULL;
        }
        from++;
    } else {
        for (; *from != '\0' && *from != '.' && *from != '"'; from++) {
            bool upper = fold && *from >= 'A' && *from <= 'Z';
            part[len++] = (char)(upper ? *from + ('a' - 'A') : *from);
        }
    }
    *at = from;
    return len == 0 || len > IDENTIFIER_MAX ? NULL : part;
}

static bool parse_table(struct mr_config *config, const char *text, bool fold,
                        struct mr_table_name *ret)
{
    const char *at = text;
    const char *first = take_part(config, &at, fold);
    if (first == NULL || (*at != '\0' && *at != '.')) {
        return false;
    }
    if (*at == '\0') {
        *ret = (struct mr_table_name){.schema = "public", .table = first};
        return true;
    }
    at++;
    const char *second = take_part(config, &at, fold);
    *ret = (struct mr_table_name){.schema = first, .table = second};
    return second != NULL && *at == '\0';
}

static bool table_equal(const struct mr_table_name *a, const struct mr_table_name *b)
{
    return strcmp(a->schema, b->schema) == 0 && strcmp(a->table, b->table) == 0;
}

/* False when the table is in the list already. */
static bool add_table(struct mr_table_name *tables, uint32_t *count, struct mr_table_name table)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (table_equal(&tables[i], &table)) {
            return false;
        }
    }
    tables[(*count)++] = table;
    return true;
}

static void build_tables(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.tables;
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, names->count));
    uint32_t count = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        struct mr_table_name table;
        if (!parse_table(config, names->items[i], false, &table)) {
            PROBLEM(config, LINE(config, tables),
                    "tables: \"%s\" is no table name; write \"schema.table\", and quote parts that "
                    "hold "
                    "dots",
                    names->items[i]);
        } else if (!add_table(tables, &count, table)) {
            PROBLEM(config, LINE(config, tables), "tables: \"%s\" stands there twice",
                    names->items[i]);
        }
    }
    config->source.tables = tables;
    config->source.table_count = count;
}

/* ---- operations ---- */

static const struct {
    const char *name;
    uint32_t bits;
} operations[] = {
    {"insert", 1u << MR_OP_INSERT},   {"update", 1u << MR_OP_UPDATE},
    {"delete", 1u << MR_OP_DELETE},   {"truncate", 1u << MR_OP_TRUNCATE},
    {"message", 1u << MR_OP_MESSAGE},
};

static uint32_t operation_bits(struct mr_config *config, const struct mr_strings *names,
                               uint32_t line, bool outboxx)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t found = 0;
        for (size_t k = 0; k < MR_ARRAY_LEN(operations); k++) {
            if (strcmp(names->items[i], operations[k].name) == 0) {
                found = operations[k].bits;
            }
        }
        if (found == 0 && outboxx && strcmp(names->items[i], "read") == 0) {
            WARNING(config, line,
                    "operation \"read\": rows that are in the table before the slot is made are "
                    "not copied "
                    "yet; the stream begins with the slot");
        } else if (found == 0) {
            PROBLEM(config, line,
                    "\"%s\" is no operation; known are insert, update, delete, truncate%s",
                    names->items[i], outboxx ? " and read" : " and message");
        }
        bits |= found;
    }
    return bits;
}

/* ---- events ---- */

static void build_routes_from_streams(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_route *routes =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, values->stream_count));
    struct mr_table_name *tables =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_table_name, values->stream_count));
    uint32_t count = 0;
    for (uint32_t i = 0; i < values->stream_count; i++) {
        struct mr_stream *stream = &values->streams[i];
        struct mr_table_name table;
        if (stream->resource == NULL || !parse_table(config, stream->resource, true, &table)) {
            PROBLEM(config, stream->line, "source.resource must be \"table\" or \"schema.table\"");
            continue;
        }
        uint32_t bits = operation_bits(config, &stream->operations, stream->line, true);
        if (!add_table(tables, &count, table)) {
            PROBLEM(config, stream->line, "table %s.%s has two streams; one is enough",
                    table.schema, table.table);
            continue;
        }
        routes[count - 1] = (struct mr_route){
            .schema = table.schema,
            .table = table.table,
            .topic = stream->destination,
            .key_column = stream->routing_key,
            .operations = bits,
        };
    }
    config->source.tables = tables;
    config->source.table_count = count;
    config->encode.routes = routes;
    config->encode.route_count = count;
    config->encode.routes_only = true;
}

static void build_routes_from_tables(struct mr_config *config)
{
    build_tables(config);
    uint32_t count = config->source.table_count;
    struct mr_route *routes = mr_config_keep(config, MR_NEW_ARRAY(struct mr_route, count));
    for (uint32_t i = 0; i < count; i++) {
        routes[i] = (struct mr_route){
            .schema = config->source.tables[i].schema,
            .table = config->source.tables[i].table,
            .operations = MR_OPERATIONS_ALL,
        };
    }
    config->encode.routes = routes;
    config->encode.route_count = count;
}

static void build_encode(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    bool outboxx = LINE(config, metadata_version) != 0 || values->stream_count > 0;
    bool flat = LINE(config, format) == 0 ? outboxx : values->format == MR_FORMAT_FLAT;
    config->encode.format = flat ? MR_FORMAT_FLAT : MR_FORMAT_DEBEZIUM;
    config->encode.topic_prefix = values->topic_prefix;
    config->encode.tombstones = values->tombstones != 0;
    const char *fallback = flat ? "__outboxx_unknown_value__" : "__debezium_unavailable_value";
    config->encode.unavailable_value =
        LINE(config, unavailable_value) == 0 ? fallback : values->unavailable_value;
    config->encode.skipped_operations = operation_bits(config, &values->skipped_operations,
                                                       LINE(config, skipped_operations), false);
    if (values->stream_count > 0 && values->tables.count > 0) {
        PROBLEM(config, LINE(config, tables),
                "tables and [[streams]] both say what is streamed; keep one of the two");
    }
    if (values->stream_count > 0) {
        build_routes_from_streams(config);
    } else {
        build_routes_from_tables(config);
    }
    if (config->source.table_count == 0 && config->problems.errors == 0) {
        PROBLEM(config, LINE(config, tables),
                "no tables are configured; set tables = [\"schema.table\", …]");
    }
}

/* ---- source ---- */

static void build_connection(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_pg_options *connection = &config->source.connection;
    if (LINE(config, connection) != 0) {
        if (LINE(config, connection_env) != 0) {
            PROBLEM(
                config, LINE(config, connection),
                "source.postgres.connection and connection_env are both set; keep one of the two");
        }
        if (mr_secret_in_conninfo(values->connection)) {
            PROBLEM(
                config, LINE(config, connection),
                "source.postgres.connection holds a password; take it out and set password_env or "
                "password_file");
        }
        connection->conninfo = values->connection;
    } else {
        connection->conninfo = mr_config_keep_secret(
            config, mr_secret_read("connection string", values->connection_env, "",
                                   LINE(config, connection_env), &config->problems));
    }
    connection->password = mr_config_keep_secret(
        config, mr_secret_read("PostgreSQL password", values->password_env, values->password_file,
                               LINE(config, password_env), &config->problems));
    connection->application_name = "millrace";
    connection->connect_timeout_ms = (uint32_t)values->connect_timeout;
}

/* What PostgreSQL takes as a slot's name. */
static bool slot_name_good(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len > 0 && len <= IDENTIFIER_MAX && name[len] == '\0';
}

static void build_source(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    build_connection(config);
    config->source.slot = values->slot_name;
    config->source.publication = values->publication_name;
    config->source.create_slot = values->create_slot != 0;
    config->source.create_publication = values->create_publication != 0;
    config->source.failover = values->failover != 0;
    config->source.adopt_slot = values->adopt_slot != 0;
    config->slot_interval_ms = (uint32_t)values->slot_interval;
    config->metrics_tables_max = (uint32_t)values->metrics_max_tables;
    if (!slot_name_good(values->slot_name)) {
        PROBLEM(config, LINE(config, slot_name),
                "slot_name \"%s\" is not what PostgreSQL takes: up to 63 of a-z, 0-9 and _",
                values->slot_name);
    }
    size_t len = strlen(values->publication_name);
    if (len == 0 || len > IDENTIFIER_MAX) {
        PROBLEM(config, LINE(config, publication_name),
                "publication_name must have 1 to 63 characters");
    }
}

/* ---- Kafka ---- */

/* Properties that the promise stands on, or that have an option of their own. */
static const struct {
    const char *name;
    const char *reason;
} refused[] = {
    {"acks", "every record is acknowledged by all replicas"},
    {"request.required.acks", "every record is acknowledged by all replicas"},
    {"enable.idempotence", "it keeps order and prevents duplicates"},
    {"enable.gapless.guarantee", "a failed batch must not leave a hole"},
    {"message.timeout.ms", "a record waits until it is delivered or its session ends"},
    {"delivery.timeout.ms", "a record waits until it is delivered or its session ends"},
    {"partitioner", "Java clients place keys by murmur2"},
    {"plugin.library.paths", "it would load foreign code"},
    {"delivery.report.only.error", "positions move by delivery reports"},
    {"allow.auto.create.topics", "see sink.kafka.create_topics"},
    {"bootstrap.servers", "set sink.kafka.brokers"},
    {"metadata.broker.list", "set sink.kafka.brokers"},
    {"compression.codec", "set sink.kafka.compression"},
    {"compression.type", "set sink.kafka.compression"},
    {"transactional.id", "set sink.kafka.delivery and sink.kafka.state_name"},
    {"transaction.timeout.ms", "it goes together with time-outs that millrace sets"},
};

static void check_property(struct mr_config *config, const struct mr_property *property)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(refused); i++) {
        if (strcmp(property->name, refused[i].name) == 0) {
            PROBLEM(config, property->line, "Kafka property \"%s\" can't be set: %s",
                    property->name, refused[i].reason);
        }
    }
    if (mr_secret_property(property->name)) {
        PROBLEM(
            config, property->line,
            "Kafka property \"%s\" is a secret; use sink.kafka.sasl.password_env, password_file or "
            "tls_key_password_env",
            property->name);
    }
    bool off = strcmp(property->value, "false") == 0 || strcmp(property->value, "none") == 0;
    bool check = strcmp(property->name, "enable.ssl.certificate.verification") == 0 ||
                 strcmp(property->name, "ssl.endpoint.identification.algorithm") == 0;
    if (check && off && !config->values.insecure_tls) {
        PROBLEM(config, property->line,
                "Kafka property \"%s\" switches off a check of TLS; if that is wanted, set "
                "sink.kafka.insecure_tls = true",
                property->name);
    }
}

static void add_property(struct mr_kafka_property *properties, uint32_t *count, const char *name,
                         const char *value)
{
    if (value != NULL && value[0] != '\0') {
        properties[(*count)++] = (struct mr_kafka_property){.name = name, .value = value};
    }
}

static const char *security_protocol(const struct mr_config_values *values)
{
    bool sasl = values->sasl_mechanism[0] != '\0';
    if (values->tls) {
        return sasl ? "SASL_SSL" : "SSL";
    }
    return sasl ? "SASL_PLAINTEXT" : "PLAINTEXT";
}

static void check_sasl(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    const char *mechanism = values->sasl_mechanism;
    if (mechanism[0] == '\0') {
        return;
    }
    if (strcmp(mechanism, "PLAIN") != 0 && strcmp(mechanism, "SCRAM-SHA-256") != 0 &&
        strcmp(mechanism, "SCRAM-SHA-512") != 0) {
        PROBLEM(config, LINE(config, sasl_mechanism),
                "sink.kafka.sasl.mechanism must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
    }
    if (values->sasl_username[0] == '\0' ||
        (values->sasl_password_env[0] == '\0' && values->sasl_password_file[0] == '\0')) {
        PROBLEM(config, LINE(config, sasl_mechanism),
                "sink.kafka.sasl needs username and password_env or password_file");
    }
    if (strcmp(mechanism, "PLAIN") == 0 && !values->tls) {
        WARNING(
            config, LINE(config, sasl_mechanism),
            "SASL PLAIN without TLS sends the password in the clear; set sink.kafka.tls = true");
    }
}

static void build_kafka_properties(struct mr_config *config)
{
    enum { OWN_PROPERTIES = 16 };
    struct mr_config_values *values = &config->values;
    struct mr_kafka_property *properties = mr_config_keep(
        config, MR_NEW_ARRAY(struct mr_kafka_property, values->property_count + OWN_PROPERTIES));
    uint32_t count = 0;
    add_property(properties, &count, "security.protocol", security_protocol(values));
    add_property(properties, &count, "ssl.ca.location", values->tls_ca_location);
    add_property(properties, &count, "ssl.certificate.location", values->tls_certificate_location);
    add_property(properties, &count, "ssl.key.location", values->tls_key_location);
    add_property(properties, &count, "ssl.key.password",
                 mr_config_keep_secret(config, mr_secret_read("TLS key's password",
                                                              values->tls_key_password_env, "",
                                                              LINE(config, tls_key_password_env),
                                                              &config->problems)));
    add_property(properties, &count, "sasl.mechanism", values->sasl_mechanism);
    add_property(properties, &count, "sasl.username", values->sasl_username);
    add_property(properties, &count, "sasl.password",
                 mr_config_keep_secret(
                     config, mr_secret_read("Kafka password", values->sasl_password_env,
                                            values->sasl_password_file,
                                            LINE(config, sasl_password_env), &config->problems)));
    for (uint32_t i = 0; i < values->property_count; i++) {
        check_property(config, &values->properties[i]);
        add_property(properties, &count, values->properties[i].name, values->properties[i].value);
    }
    config->kafka.properties = properties;
    config->kafka.property_count = count;
}

static const char *join(struct mr_config *config, const struct mr_strings *strings)
{
    size_t size = 1;
    for (uint32_t i = 0; i < strings->count; i++) {
        size += strlen(strings->items[i]) + 1;
    }
    char *text = mr_config_keep(config, MR_ALLOC(size));
    for (uint32_t i = 0; i < strings->count; i++) {
        strcat(text, i == 0 ? "" : ",");
        strcat(text, strings->items[i]);
    }
    return text;
}

/* Where the position is kept. Clusters differ by their topics' prefix, pipelines of one by their slot. */
static void build_state(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->kafka.exactly_once = values->delivery == 1;
    config->kafka.state_topic = or_null(values->state_topic);
    config->source.position_is_stored = config->kafka.state_topic != NULL;
    if (config->kafka.exactly_once && config->kafka.state_topic == NULL) {
        PROBLEM(config, LINE(config, state_topic),
                "exactly-once keeps its position in sink.kafka.state_topic; name one");
    }
    if (values->state_name[0] != '\0') {
        config->kafka.state_name = values->state_name;
        return;
    }
    size_t size = strlen(values->topic_prefix) + strlen(values->slot_name) + 2;
    char *name = mr_config_keep(config, MR_ALLOC(size));
    snprintf(name, size, "%s/%s", values->topic_prefix, values->slot_name);
    config->kafka.state_name = name;
}

static void build_oversize(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.oversize = (enum mr_oversize)values->oversize;
    config->encode.record_bytes_max = (size_t)values->message_max;
    const char *topic = values->dead_letter_topic;
    if (topic[0] == '\0') {
        topic = mr_config_keep(config, mr_topic_name(values->topic_prefix, "", "dead-letter"));
    }
    config->encode.dead_letter_topic = topic;
}

static void build_kafka(struct mr_config *config)
{
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    struct mr_config_values *values = &config->values;
    if (values->brokers.count == 0) {
        PROBLEM(config, LINE(config, sink_type),
                "sink.kafka.brokers is missing; set brokers = [\"host:9092\"]");
    }
    /* As Outboxx has it: a file that says nothing must not come to send a password in the clear. */
    if (LINE(config, metadata_version) != 0 && LINE(config, tls) == 0) {
        values->tls = 1;
    }
    if (values->tls == 0 &&
        (values->tls_ca_location[0] != '\0' || values->tls_certificate_location[0] != '\0')) {
        PROBLEM(config, LINE(config, tls_ca_location),
                "TLS certificates are configured but sink.kafka.tls is not true");
    }
    check_sasl(config);
    build_kafka_properties(config);
    config->kafka.brokers = join(config, &values->brokers);
    config->kafka.compression = codecs[values->compression];
    config->kafka.linger_ms = (uint32_t)values->linger;
    config->kafka.statistics_interval_ms = (uint32_t)values->statistics_interval;
    config->kafka.batch_bytes = (size_t)values->kafka_batch_size;
    config->kafka.message_bytes_max = (size_t)values->message_max;
    config->kafka.create_topics = values->create_topics != 0;
    config->kafka.partitions = (int32_t)values->partitions;
    config->kafka.replication = (int32_t)values->replication_factor;
    config->kafka.headers = values->headers != 0;
    build_state(config);
    build_oversize(config);
}

static void build_sink(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->sink_kind = (enum mr_sink_kind)values->sink_type;
    if (LINE(config, sink_type) == 0 && values->brokers.count > 0) {
        config->sink_kind = MR_SINK_KAFKA;
    }
    if (config->sink_kind == MR_SINK_KAFKA) {
        build_kafka(config);
    }
    if (config->sink_kind == MR_SINK_FILE && values->file_path[0] == '\0') {
        PROBLEM(config, LINE(config, sink_type), "sink.file.path is missing");
    }
    config->file.path = config->sink_kind == MR_SINK_FILE ? or_null(values->file_path) : NULL;
    config->file.sync = values->file_sync != 0;
}

/* ---- the rest ---- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* The sums, with all that a person may turn. */
static void refuse_memory(struct mr_config *config, const struct mr_memory *memory,
                          uint64_t change_max)
{
    const struct mr_config_values *values = &config->values;
    uint32_t line = LINE(config, memory);
    line = line == 0 ? LINE(config, change_max) : line;
    line = line == 0 ? LINE(config, batches) : line;
    PROBLEM(
        config, line == 0 ? LINE(config, batch_size) : line,
        "pipeline.memory is %.1f MiB, but %.1f MiB are needed: %.1f for millrace itself and %u "
        "tables, %.1f for "
        "%lld batches of %.2f MiB with what the Kafka client keeps for them, %.1f for receiving "
        "a change of %.1f MiB (pipeline.change_max) and %.1f for its records; raise "
        "pipeline.memory, or lower change_max, batches or batch_size",
        mib((uint64_t)values->memory), mib(mr_memory_sum(memory)), mib(memory->own),
        config->source.table_count, mib(memory->pool), (long long)values->batches,
        mib((uint64_t)values->batch_size), mib(memory->input), mib(change_max), mib(memory->large));
}

/* What is set must fit into the budget; what is not is made of it. */
static void build_memory(struct mr_config *config)
{
    enum { CHANGE_MAX_LEAST = 65536 };
    struct mr_config_values *values = &config->values;
    if (values->change_max != 0 && values->change_max < CHANGE_MAX_LEAST) {
        PROBLEM(config, LINE(config, change_max),
                "pipeline.change_max is out of range: it goes from %d bytes; 0 is what "
                "pipeline.memory allows",
                CHANGE_MAX_LEAST);
        return;
    }
    uint64_t limit = (uint64_t)values->memory;
    struct mr_memory_needs needs = {.tables = config->source.table_count,
                                    .batches = (uint64_t)values->batches,
                                    .batch_bytes = (uint64_t)values->batch_size};
    uint64_t change_max = (uint64_t)values->change_max;
    if (change_max == 0) {
        change_max = mr_memory_change_max(&needs, limit);
    }
    struct mr_memory memory = mr_memory_of(&needs, change_max);
    if (mr_memory_sum(&memory) > limit) {
        refuse_memory(config, &memory, change_max);
        return;
    }
    config->pipeline.memory_bytes = limit;
    config->pipeline.change_bytes_max = change_max;
    config->pipeline.large_bytes_max = limit - (mr_memory_sum(&memory) - memory.large);
    values->change_max = (int64_t)change_max; /* as it is shown */
}

static void build_pipeline(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    config->pipeline = (struct mr_pipeline_options){
        .batches = (uint32_t)values->batches,
        .batch_bytes = (size_t)values->batch_size,
        .coalesce_us = (uint32_t)values->coalesce,
        .status_interval_ms = (uint32_t)values->status_interval,
        .shutdown_deadline_ms = (uint32_t)values->shutdown_deadline,
        .backoff_max_ms = (uint32_t)values->reconnect_max,
    };
    build_memory(config);
    config->log_level = (enum mr_log_level)values->log_level;
    config->log_format = (enum mr_log_format)values->log_format;
}

static mr_status build(struct mr_config *config)
{
    /* A value of the wrong kind has been told; what follows from it would only be noise. */
    if (config->problems.errors == 0) {
        build_encode(config);
        build_source(config);
        build_sink(config);
        build_pipeline(config);
        mr_config_build_http(config);
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

static struct mr_config *config_new(const char *name)
{
    struct mr_config *config = MR_NEW(struct mr_config);
    config->problems.name = MR_STRDUP(name);
    return config;
}

typedef mr_status (*build_fn)(struct mr_config *config);

static mr_status load_text(const char *name, const char *text, size_t len, build_fn finish,
                           struct mr_config **ret_config)
{
    struct mr_config *config = config_new(name);
    *ret_config = config;
    uint32_t line = 0;
    char reason[512];
    struct mr_toml_node *root = mr_toml_parse(text, len, &line, reason, sizeof(reason));
    if (root == NULL) {
        mr_values_read(&config->values, NULL, &config->problems);
        PROBLEM(config, line, "no valid TOML: %s", reason);
        return MR_ERR_CONFIG;
    }
    mr_values_read(&config->values, root, &config->problems);
    mr_toml_free(root);
    return finish(config);
}

mr_status mr_config_load_text(const char *name, const char *text, size_t len,
                              struct mr_config **ret_config)
{
    return load_text(name, text, len, build, ret_config);
}

/* Tables from MILLRACE_TABLES="public.a,public.b", everything else by default. */
static mr_status load_environment(struct mr_config **ret_config)
{
    struct mr_config *config = config_new("environment");
    *ret_config = config;
    mr_values_read(&config->values, NULL, &config->problems);
    const char *names = getenv("MILLRACE_TABLES");
    char *list = MR_STRDUP(names == NULL ? "" : names);
    char *rest = NULL;
    struct mr_strings *tables = &config->values.tables;
    for (char *name = strtok_r(list, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        tables->items = MR_REALLOC(tables->items, (tables->count + 1) * sizeof(*tables->items));
        tables->items[tables->count++] = MR_STRDUP(name);
    }
    free(list);
    if (tables->count == 0) {
        PROBLEM(config, 0,
                "no configuration file is given and MILLRACE_TABLES is not set; run millrace "
                "--config FILE, "
                "or set MILLRACE_TABLES=public.orders and DATABASE_URL");
    }
    return build(config);
}

static mr_status load_file(const char *path, build_fn finish, struct mr_config **ret_config)
{
    FILE *file = fopen(path, "re");
    int failed = errno;
    char *text = NULL;
    size_t len = 0;
    if (file != NULL) {
        text = MR_ALLOC(FILE_BYTES_MAX + 1);
        len = fread(text, 1, FILE_BYTES_MAX + 1, file);
    }
    mr_status status = MR_ERR_CONFIG;
    if (file == NULL || ferror(file) || len > FILE_BYTES_MAX) {
        *ret_config = config_new(path);
        mr_values_read(&(*ret_config)->values, NULL, &(*ret_config)->problems);
        PROBLEM(*ret_config, 0, "the file can't be read: %s",
                len > FILE_BYTES_MAX ? "it is larger than 1 MiB" : strerror(failed));
    } else {
        status = load_text(path, text, len, finish, ret_config);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(text);
    return status;
}

mr_status mr_config_load(const char *path, struct mr_config **ret_config)
{
    return path == NULL ? load_environment(ret_config) : load_file(path, build, ret_config);
}

static mr_status build_http_alone(struct mr_config *config)
{
    if (config->problems.errors == 0) {
        mr_config_build_http(config);
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

mr_status mr_config_load_http(const char *path, struct mr_config **ret_config)
{
    if (path != NULL) {
        return load_file(path, build_http_alone, ret_config);
    }
    *ret_config = config_new("defaults");
    mr_values_read(&(*ret_config)->values, NULL, &(*ret_config)->problems);
    return build_http_alone(*ret_config);
}

void mr_config_free(struct mr_config *config)
{
    if (config == NULL) {
        return;
    }
    for (uint32_t i = 0; i < config->secret_count; i++) {
        explicit_bzero(config->secrets[i], strlen(config->secrets[i]));
        free(config->secrets[i]);
    }
    free(config->secrets);
    for (uint32_t i = 0; i < config->memory_count; i++) {
        free(config->memory[i]);
    }
    free(config->memory);
    mr_values_done(&config->values);
    mr_problems_done(&config->problems);
    free(config);
}

void mr_config_print_problems(const struct mr_config *config, FILE *to)
{
    for (uint32_t i = 0; i < config->problems.count; i++) {
        const struct mr_problem *problem = &config->problems.items[i];
        fprintf(to, "%s:", config->problems.name);
        if (problem->line != 0) {
            fprintf(to, "%u:", problem->line);
        }
        fprintf(to, " %s%s\n", problem->is_error ? "" : "warning: ", problem->text);
    }
}
