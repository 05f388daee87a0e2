/* The sink's options, Kafka's above all. */
#include <sys/stat.h>

#include "config/names.h"

enum { KAFKA_BATCH_BYTES = 512 * 1024 };

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

/* By a password, or by a token: one that a program prints, or that librdkafka fetches with a
 * secret. */
static void check_sasl(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    const char *mechanism = values->sasl_mechanism;
    bool by_token = strcmp(mechanism, "OAUTHBEARER") == 0;
    bool has_program = values->sasl_token_command.count > 0;
    bool has_secret = values->sasl_client_secret.count > 0;
    bool has_password = values->sasl_username[0] != '\0' && values->sasl_password.count > 0;
    if (mechanism[0] == '\0') {
        return;
    }
    if (!by_token && !mr_is_among("PLAIN|SCRAM-SHA-256|SCRAM-SHA-512", mr_slice_of(mechanism))) {
        REFUSE(config, sasl_mechanism,
               " must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER");
    }
    if (by_token ? has_program == has_secret : has_program || has_secret || !has_password) {
        PROBLEM(config, LINE(config, sasl_mechanism), "sink.kafka.sasl needs %s",
                by_token ? "token_command or client_secret" : "username and password");
    }
    if ((strcmp(mechanism, "PLAIN") == 0 || by_token) && !values->tls) {
        WARNING(config, LINE(config, sasl_mechanism),
                "SASL %s without TLS sends the %s in the clear; set sink.kafka.tls = true",
                mechanism, by_token ? "token" : "password");
    }
}

static void build_kafka_properties(struct mr_config *config)
{
    enum { OWN_PROPERTIES = 16 };
    struct mr_config_values *values = &config->values;
    config->kafka.username = values->sasl_username;
    config->kafka.password = mr_config_watched(config, "Kafka password", MR_INDEX_sasl_password);
    config->kafka.client_secret =
        mr_config_watched(config, "client secret", MR_INDEX_sasl_client_secret);
    struct mr_kafka_property *properties =
        KEPT_ARRAY(config, struct mr_kafka_property, values->property_count + OWN_PROPERTIES);
    uint32_t count = 0;
    add_property(properties, &count, "security.protocol", security_protocol(values));
    add_property(properties, &count, "ssl.ca.location", values->tls_ca_location);
    add_property(properties, &count, "ssl.certificate.location", values->tls_certificate_location);
    add_property(properties, &count, "ssl.key.location", values->tls_key_location);
    add_property(properties, &count, "ssl.key.password",
                 mr_config_secret(config, "TLS key's password", MR_INDEX_tls_key_password));
    add_property(properties, &count, "sasl.mechanism", values->sasl_mechanism);
    add_property(properties, &count, "sasl.username", values->sasl_username);
    add_property(properties, &count, "sasl.oauthbearer.method",
                 config->kafka.client_secret == NULL ? NULL : "oidc");
    for (uint32_t i = 0; i < values->property_count; i++) {
        mr_kafka_property_check(config, &values->properties[i]);
        add_property(properties, &count, values->properties[i].name, values->properties[i].value);
    }
    config->kafka.properties = properties;
    config->kafka.property_count = count;
    config->kafka.token_program = mr_config_program(config, MR_INDEX_sasl_token_command);
    mr_kafka_kerberos_check(config);
}

/* A broker may be a list with commas itself, as librdkafka takes it. */
static void check_brokers(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    for (uint32_t i = 0; i < values->brokers.count; i++) {
        const char *at = values->brokers.items[i];
        do {
            size_t len = strcspn(at, ",");
            char broker[300];
            snprintf(broker, sizeof(broker), "%.*s", (int)len, at);
            const char *fault = mr_names_host_fault(broker);
            if (fault != NULL) {
                REFUSE(config, brokers, ": \"%s\" %s", broker, fault);
            }
            at += len + (at[len] == ',');
        } while (*at != '\0');
    }
}

/* Of a regular file: whether it has a line that begins an object of PEM. Of others: true. */
static bool may_be_pem(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) {
        return true;
    }
    FILE *file = fopen(path, "re");
    char line[256];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, "-----BEGIN ", 11) == 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* Said here with its name, for OpenSSL would only say a number, and only once a broker is
 * reached. */
static void build_sink_check_file(struct mr_config *config, uint32_t option)
{
    const char *path = *(char *const *)mr_value_of(&config->values, option);
    if (path[0] == '\0' || config->problems.elsewhere) {
        return;
    }
    if (access(path, R_OK) != 0) {
        REFUSE_AT(config, option, ": %s can't be read: %s", path, strerror(errno));
    } else if (!may_be_pem(path)) {
        REFUSE_AT(config, option, ": %s is not a file of PEM, which has a line \"-----BEGIN …\"",
                  path);
    }
}

static const char *build_sink_join(struct mr_config *config, const struct mr_strings *strings)
{
    const char *text = "";
    for (uint32_t i = 0; i < strings->count; i++) {
        text = mr_config_text(config, "%s%s%s", text, i == 0 ? "" : ",", strings->items[i]);
    }
    return text;
}

/* What tells of stored positions is compared with those of events. */
static void check_places(struct mr_config *config, uint32_t line, const char *what)
{
    if (config->kafka.state_topic == NULL) {
        PROBLEM(config, line,
                "%s say what is delivered and stored; name a topic in sink.kafka.state_topic",
                what);
    }
    if (!config->kafka.headers) {
        PROBLEM(config, line,
                "%s are compared with the headers of events; set sink.kafka.headers = true", what);
    }
}

/* Where the position is kept. Clusters differ by their topics' prefix, pipelines of one by their
 * slot. */
static void build_state(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->kafka.exactly_once = values->delivery == 1;
    config->kafka.state_topic = mr_config_or_null(values->state_topic);
    config->source.position_is_stored = config->kafka.state_topic != NULL;
    if (config->kafka.exactly_once && config->kafka.state_topic == NULL) {
        PROBLEM(config, LINE(config, state_topic),
                "exactly-once keeps its position in sink.kafka.state_topic; name one");
    }
    if (config->resolved_ms != 0) {
        check_places(config, LINE(config, resolved_interval), "markers");
    }
    config->ledger_topic = mr_config_or_null(values->ledger_topic);
    if (config->ledger_topic != NULL) {
        check_places(config, LINE(config, ledger_topic), "ranges of the ledger");
        if (strcmp(values->ledger_topic, values->state_topic) == 0) {
            REFUSE(config, ledger_topic, " must not be sink.kafka.state_topic, which is compacted");
        }
    }
    config->kafka.state_name =
        values->state_name[0] != '\0'
            ? values->state_name
            : mr_config_text(config, "%s/%s", values->topic_prefix, values->slot_name);
}

static void build_oversize(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.oversize = (enum mr_oversize)values->oversize;
    config->encode.record_bytes_max = (size_t)values->message_max;
    config->encode.tells_keys = values->log_keys != 0;
    const char *topic = values->dead_letter_topic;
    if (topic[0] == '\0') {
        topic =
            mr_config_keep(config, mr_topic_name(values->topic_prefix, NULL, "", "dead-letter"));
    }
    config->encode.dead_letter_topic = topic;
}

/* librdkafka has two histograms for each topic as long as it reports figures, 25 KiB
 * (rd_kafka_topic_new0), of which nothing is read here. */
static void build_statistics(struct mr_config *config)
{
    enum { TOPICS_MAX = 500 };
    const struct mr_routing *routing = config->encode.routing;
    bool shares = routing != NULL && routing->sharing != MR_SHARING_REFUSED;
    bool is_many = !shares && mr_config_route_count(config) > TOPICS_MAX;
    config->kafka.statistics_interval_ms =
        LINE(config, metrics_interval) == 0 && is_many ? 0 : config->slot_interval_ms;
}

static void build_kafka(struct mr_config *config)
{
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    struct mr_config_values *values = &config->values;
    if (values->brokers.count == 0) {
        uint32_t line = LINE(config, sink_type);
        PROBLEM(config, line == 0 ? values->kafka_section_line : line,
                "sink.kafka.brokers is missing; set brokers = [\"host:9092\"]");
    }
    mr_config_pair(config, MR_INDEX_tls_certificate_location, MR_INDEX_tls_key_location);
    check_brokers(config);
    build_sink_check_file(config, MR_INDEX_tls_ca_location);
    build_sink_check_file(config, MR_INDEX_tls_certificate_location);
    build_sink_check_file(config, MR_INDEX_tls_key_location);
    check_sasl(config);
    build_kafka_properties(config);
    config->kafka.brokers = build_sink_join(config, &values->brokers);
    config->kafka.compression = codecs[values->compression];
    config->kafka.batch_bytes = KAFKA_BATCH_BYTES;
    build_statistics(config);
    build_state(config);
    build_oversize(config);
}

/* What the file means: its sink.type, else the section that is there. A section that would be left
 * unused is a mistake, and so is one that does not say where to: rows must not go where nobody
 * asked for them. */
static enum mr_sink_kind wanted_sink(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    uint32_t kafka_line = values->kafka_section_line;
    uint32_t file_line = values->file_section_line;
    enum mr_sink_kind kind = (enum mr_sink_kind)values->sink_type;
    if (LINE(config, sink_type) == 0) {
        kind = kafka_line != 0 ? MR_SINK_KAFKA : file_line != 0 ? MR_SINK_FILE : MR_SINK_STDOUT;
    }
    if (kafka_line != 0 && kind != MR_SINK_KAFKA) {
        PROBLEM(config, kafka_line,
                "[sink.kafka] is there, but sink.type is another; set type = \"kafka\", or take "
                "[sink.kafka] out");
    }
    if (file_line != 0 && kind != MR_SINK_FILE) {
        PROBLEM(config, file_line,
                "[sink.file] is there, but the sink is another; set sink.type = \"file\", or take "
                "[sink.file] out");
    }
    if (LINE(config, sink_type) == 0 && kind == MR_SINK_STDOUT) {
        WARNING(config, 0,
                "no sink is configured: rows go to standard output, and count as delivered; set "
                "[sink] type = \"stdout\" if that is wanted, or [sink.kafka] brokers");
    }
    return kind;
}

void mr_config_build_sink(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->sink_kind = wanted_sink(config);
    if (config->sink_kind == MR_SINK_KAFKA) {
        build_kafka(config);
    }
    if (config->sink_kind == MR_SINK_FILE && values->file_path[0] == '\0') {
        uint32_t line = LINE(config, sink_type);
        PROBLEM(config, line == 0 ? values->file_section_line : line,
                "sink.file.path is missing; set path = \"…\"");
    }
    if (config->sink_kind != MR_SINK_KAFKA && config->encode.cloud_mode == MR_CLOUD_BINARY) {
        REFUSE(config, cloud_mode,
               " = \"binary\" needs headers, which only Kafka's records have; take "
               "\"structured\", or [sink.kafka]");
    }
    config->file_path =
        config->sink_kind == MR_SINK_FILE ? mr_config_or_null(values->file_path) : NULL;
}
