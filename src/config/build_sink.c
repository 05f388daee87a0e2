/* The sink's options, Kafka's above all. */
#include <stdio.h>
#include <string.h>

#include "config/config_internal.h"
#include "config/secrets.h"

static const char *or_null(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

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

void mr_config_build_sink(struct mr_config *config)
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
