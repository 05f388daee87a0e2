/* Which of librdkafka's properties a file may set: those listed here, in kinds, and no other. librdkafka has properties
 * that load code, run commands, write secrets into the log or undo what an option of ours says, and every version has
 * more of them. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "config/build.h"
#include "config/kafka_properties.h"
#include "config/secrets.h"

enum kind {
    PASSED, /* as it is */
    CHECK,  /* part of what makes TLS safe: passed while it says yes, else insecure_tls allows it */
    COMMAND, /* librdkafka puts it into a command of the shell */
    DEBUG,
    PROTOCOL,
    MECHANISM,
    REFUSED, /* with a reason */
};

/* In groups, as the reference prints them. */
static const struct {
    const char *name;
    enum kind kind;
    const char *reason; /* REFUSED; CHECK: the word that means yes */
} properties[] = {
    /* The connection */
    {"client.id", PASSED, NULL},
    {"client.rack", PASSED, NULL},
    {"client.dns.lookup", PASSED, NULL},
    {"broker.address.family", PASSED, NULL},
    {"broker.address.ttl", PASSED, NULL},
    {"socket.timeout.ms", PASSED, NULL},
    {"socket.send.buffer.bytes", PASSED, NULL},
    {"socket.receive.buffer.bytes", PASSED, NULL},
    {"socket.keepalive.enable", PASSED, NULL},
    {"socket.nagle.disable", PASSED, NULL},
    {"socket.max.fails", PASSED, NULL},
    {"socket.connection.setup.timeout.ms", PASSED, NULL},
    {"connections.max.idle.ms", PASSED, NULL},
    {"reconnect.backoff.ms", PASSED, NULL},
    {"reconnect.backoff.max.ms", PASSED, NULL},
    {"receive.message.max.bytes", PASSED, NULL},
    {"api.version.request.timeout.ms", PASSED, NULL},
    /* What is known of the cluster */
    {"topic.metadata.refresh.interval.ms", PASSED, NULL},
    {"topic.metadata.refresh.fast.interval.ms", PASSED, NULL},
    {"topic.metadata.refresh.sparse", PASSED, NULL},
    {"topic.metadata.propagation.max.ms", PASSED, NULL},
    {"metadata.max.age.ms", PASSED, NULL},
    {"metadata.recovery.strategy", PASSED, NULL},
    {"metadata.recovery.rebootstrap.trigger.ms", PASSED, NULL},
    /* Requests */
    {"max.in.flight.requests.per.connection", PASSED, NULL},
    {"max.in.flight", PASSED, NULL},
    {"queue.buffering.max.messages", PASSED, NULL},
    {"queue.buffering.max.kbytes", PASSED, NULL},
    {"queue.buffering.backpressure.threshold", PASSED, NULL},
    {"batch.num.messages", PASSED, NULL},
    {"message.copy.max.bytes", PASSED, NULL},
    {"message.send.max.retries", PASSED, NULL},
    {"retries", PASSED, NULL},
    {"retry.backoff.ms", PASSED, NULL},
    {"retry.backoff.max.ms", PASSED, NULL},
    {"request.timeout.ms", PASSED, NULL},
    {"compression.level", PASSED, NULL},
    /* TLS */
    {"ssl.cipher.suites", PASSED, NULL},
    {"ssl.curves.list", PASSED, NULL},
    {"ssl.sigalgs.list", PASSED, NULL},
    {"ssl.crl.location", PASSED, NULL},
    {"ssl.ca.pem", PASSED, NULL},
    {"ssl.certificate.pem", PASSED, NULL},
    {"enable.ssl.certificate.verification", CHECK, "true"},
    {"ssl.endpoint.identification.algorithm", CHECK, "https"},
    {"security.protocol", PROTOCOL, NULL},
    /* Logins other than by password */
    {"sasl.mechanism", MECHANISM, NULL},
    {"sasl.mechanisms", MECHANISM, NULL},
    {"sasl.kerberos.service.name", COMMAND, NULL},
    {"sasl.kerberos.principal", COMMAND, NULL},
    {"sasl.kerberos.keytab", COMMAND, NULL},
    {"sasl.kerberos.min.time.before.relogin", PASSED, NULL},
    {"sasl.oauthbearer.method", PASSED, NULL},
    {"sasl.oauthbearer.client.id", PASSED, NULL},
    {"sasl.oauthbearer.scope", PASSED, NULL},
    {"sasl.oauthbearer.extensions", PASSED, NULL},
    {"sasl.oauthbearer.token.endpoint.url", PASSED, NULL},
    /* Logs */
    {"debug", DEBUG, NULL},
    {"log_level", PASSED, NULL},
    {"log.thread.name", PASSED, NULL},
    {"log.connection.close", PASSED, NULL},

    {"acks", REFUSED, "every record is acknowledged by all replicas"},
    {"request.required.acks", REFUSED, "every record is acknowledged by all replicas"},
    {"enable.idempotence", REFUSED, "it keeps order and prevents duplicates"},
    {"enable.gapless.guarantee", REFUSED, "a failed batch must not leave a hole"},
    {"message.timeout.ms", REFUSED, "a record waits until it is delivered or its session ends"},
    {"delivery.timeout.ms", REFUSED, "a record waits until it is delivered or its session ends"},
    {"partitioner", REFUSED, "keys are placed as Java clients place them, by murmur2"},
    {"sticky.partitioning.linger.ms", REFUSED, "a record without a key has one fixed partition"},
    {"queuing.strategy", REFUSED, "records go out in the order of the stream"},
    {"delivery.report.only.error", REFUSED, "positions move by delivery reports"},
    {"plugin.library.paths", REFUSED, "it loads foreign code into the process"},
    {"ssl.engine.location", REFUSED, "it loads foreign code into the process"},
    {"ssl.engine.id", REFUSED, "it loads foreign code into the process"},
    {"ssl.providers", REFUSED, "it loads foreign code into the process"},
    {"sasl.kerberos.kinit.cmd", REFUSED, "it runs a command of the shell"},
    {"enable.sasl.oauthbearer.unsecure.jwt", REFUSED,
     "anybody could make the token that it logs in with"},
    {"internal.termination.signal", REFUSED, "signals are millrace's own"},
    {"log.queue", REFUSED, "log lines go one way"},
    {"allow.auto.create.topics", REFUSED, "set sink.kafka.create_topics"},
    {"bootstrap.servers", REFUSED, "set sink.kafka.brokers"},
    {"metadata.broker.list", REFUSED, "set sink.kafka.brokers"},
    {"compression.codec", REFUSED, "set sink.kafka.compression"},
    {"compression.type", REFUSED, "set sink.kafka.compression"},
    {"linger.ms", REFUSED, "set pipeline.latency"},
    {"queue.buffering.max.ms", REFUSED, "set pipeline.latency"},
    {"batch.size", REFUSED, "set sink.kafka.batch_size"},
    {"message.max.bytes", REFUSED, "set sink.kafka.message_max"},
    {"statistics.interval.ms", REFUSED, "set sink.kafka.statistics_interval"},
    {"transactional.id", REFUSED, "set sink.kafka.delivery and sink.kafka.state_name"},
    {"transaction.timeout.ms", REFUSED, "it goes together with time-outs that millrace sets"},
    {"isolation.level", REFUSED, "nothing is read by a producer but the stored position"},
    {"ssl.ca.location", REFUSED, "set sink.kafka.tls_ca_location"},
    {"ssl.certificate.location", REFUSED, "set sink.kafka.tls_certificate_location"},
    {"ssl.key.location", REFUSED, "set sink.kafka.tls_key_location"},
    {"sasl.username", REFUSED, "set sink.kafka.sasl.username"},
};

/* As librdkafka reads a value: white space around it and the case do not count (rdkafka_conf.c,
 * rd_kafka_anyconf_set_prop). */
static bool is_word(const char *value, const char *word)
{
    while (isspace((unsigned char)*value)) {
        value++;
    }
    size_t len = strlen(value);
    while (len > 0 && isspace((unsigned char)value[len - 1])) {
        len--;
    }
    return len == strlen(word) && strncasecmp(value, word, len) == 0;
}

/* The same function takes t and 1 for true. */
static bool is_yes(const char *value, const char *yes)
{
    return is_word(value, yes) ||
           (strcmp(yes, "true") == 0 && (is_word(value, "t") || is_word(value, "1")));
}

/* TLS or not is said in one place, and a file that says it in two must say the same. */
static void check_protocol(struct mr_config *config, const struct mr_property *property)
{
    bool plain =
        is_word(property->value, "plaintext") || is_word(property->value, "sasl_plaintext");
    bool encrypted = is_word(property->value, "ssl") || is_word(property->value, "sasl_ssl");
    if (!plain && !encrypted) {
        PROBLEM(config, property->line,
                "Kafka property \"security.protocol\" must be plaintext, ssl, "
                "sasl_plaintext or sasl_ssl");
    } else if (encrypted != (config->values.tls != 0)) {
        PROBLEM(config, property->line,
                "Kafka property \"security.protocol\" says %s TLS, but sink.kafka.tls is %s; set "
                "sink.kafka.tls = %s, or take the property out",
                plain ? "no" : "", config->values.tls != 0 ? "true" : "false",
                plain ? "false" : "true");
    }
}

static void check_mechanism(struct mr_config *config, const struct mr_property *property)
{
    if (config->values.sasl_mechanism[0] != '\0') {
        PROBLEM(config, property->line,
                "Kafka property \"%s\" and sink.kafka.sasl.mechanism are both set; keep "
                "one of the two",
                property->name);
    } else if (!is_word(property->value, "GSSAPI") && !is_word(property->value, "OAUTHBEARER")) {
        PROBLEM(config, property->line,
                "Kafka property \"%s\" takes GSSAPI or OAUTHBEARER; for a password set "
                "sink.kafka.sasl.mechanism",
                property->name);
    }
}

/* librdkafka's rdkafka_sasl_cyrus.c puts these into the command that it renews tickets with. */
static void check_command(struct mr_config *config, const struct mr_property *property)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "._/@:-";
    if (property->value[strspn(property->value, good)] != '\0' || property->value[0] == '-') {
        PROBLEM(config, property->line,
                "Kafka property \"%s\" becomes part of a command: it takes letters, digits and "
                "._/@:- only, and no - in front",
                property->name);
    }
}

/* Contexts that tell of requests and states; the others print the configuration or the login. */
static void check_debug(struct mr_config *config, const struct mr_property *property)
{
    static const char *const good[] = {"broker", "topic",    "metadata", "feature", "queue",
                                       "msg",    "protocol", "admin",    "eos"};
    char list[256];
    snprintf(list, sizeof(list), "%s", property->value);
    char *rest = NULL;
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        bool found = false;
        for (size_t i = 0; i < MR_ARRAY_LEN(good); i++) {
            found = found || is_word(word, good[i]);
        }
        if (!found || strlen(property->value) >= sizeof(list)) {
            PROBLEM(config, property->line,
                    "Kafka property \"debug\" takes broker, topic, metadata, feature, "
                    "queue, msg, protocol, admin and eos; the others may print secrets");
            return;
        }
    }
}

static void check_known(struct mr_config *config, const struct mr_property *property, size_t i)
{
    switch (properties[i].kind) {
    case REFUSED:
        PROBLEM(config, property->line, "Kafka property \"%s\" can't be set: %s", property->name,
                properties[i].reason);
        break;
    case CHECK:
        if (!is_yes(property->value, properties[i].reason) && !config->values.insecure_tls) {
            PROBLEM(config, property->line,
                    "Kafka property \"%s\" switches off a check of TLS; if that is wanted, set "
                    "sink.kafka.insecure_tls = true",
                    property->name);
        }
        break;
    case COMMAND:
        check_command(config, property);
        break;
    case DEBUG:
        check_debug(config, property);
        break;
    case PROTOCOL:
        check_protocol(config, property);
        break;
    case MECHANISM:
        check_mechanism(config, property);
        break;
    case PASSED:
        break;
    }
}

void mr_kafka_property_check(struct mr_config *config, const struct mr_property *property)
{
    if (mr_secret_property(property->name)) {
        PROBLEM(
            config, property->line,
            "Kafka property \"%s\" is a secret; use sink.kafka.sasl.password_env, password_file "
            "or tls_key_password_env",
            property->name);
        return;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(properties); i++) {
        if (strcmp(property->name, properties[i].name) == 0) {
            check_known(config, property, i);
            return;
        }
    }
    PROBLEM(config, property->line,
            "Kafka property \"%s\" is not accepted; docs/configuration.md lists those that may be "
            "set",
            property->name);
}

void mr_kafka_properties_print(FILE *to)
{
    const char *mark = "";
    for (size_t i = 0; i < MR_ARRAY_LEN(properties) && properties[i].kind != REFUSED; i++) {
        fprintf(to, "%s`%s`", mark, properties[i].name);
        mark = (i + 1) % 4 == 0 ? ",\n" : ", ";
    }
    fputs(".\n", to);
}

static const struct mr_property *find(const struct mr_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->values.property_count; i++) {
        if (strcmp(config->values.properties[i].name, name) == 0) {
            return &config->values.properties[i];
        }
    }
    return NULL;
}

static const struct mr_property *find_mechanism(const struct mr_config *config)
{
    const struct mr_property *mechanism = find(config, "sasl.mechanism");
    return mechanism == NULL ? find(config, "sasl.mechanisms") : mechanism;
}

bool mr_config_runs_kinit(const struct mr_config *config)
{
    const struct mr_property *mechanism = find_mechanism(config);
    const struct mr_property *pause = find(config, "sasl.kerberos.min.time.before.relogin");
    return mechanism != NULL && is_word(mechanism->value, "GSSAPI") &&
           (pause == NULL || !is_word(pause->value, "0"));
}

void mr_kafka_kerberos_check(struct mr_config *config)
{
    if (mr_config_runs_kinit(config) && find(config, "sasl.kerberos.keytab") == NULL) {
        PROBLEM(config, find_mechanism(config)->line,
                "GSSAPI needs the Kafka property \"sasl.kerberos.keytab\", for kinit; or set "
                "\"sasl.kerberos.min.time.before.relogin\" = \"0\" and name the keytab in the "
                "environment variable KRB5_CLIENT_KTNAME, which needs no kinit");
    }
}
