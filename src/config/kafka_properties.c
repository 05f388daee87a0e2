/* Which of librdkafka's properties a file may set: those listed here, in kinds, and no other.
 * librdkafka has properties that load code, run commands, write secrets into the log or undo what
 * an option of ours says, and every version has more of them. */
#include <strings.h>

#include "config/names.h"

/* PROBLEM of a property, whose name comes before the text. */
#define WRONG(text, ...)                                                                           \
    PROBLEM(config, property->line, "Kafka property \"%s\"" text,                                  \
            property->name __VA_OPT__(, ) __VA_ARGS__)

/* As librdkafka reads a value: white space around it and the case do not count (rdkafka_conf.c,
 * rd_kafka_anyconf_set_prop). */
static bool kafka_properties_is_word(const char *value, const char *word)
{
    static const char space[] = " \t\n\v\f\r";
    size_t len = strlen(word);
    value += strspn(value, space);
    return strncasecmp(value, word, len) == 0 && value[len + strspn(value + len, space)] == '\0';
}

/* TLS or not is said in one place, and a file that says it in two must say the same. */
static void check_protocol(struct mr_config *config, const struct mr_property *property,
                           const char *word)
{
    bool plain = kafka_properties_is_word(property->value, "plaintext") ||
                 kafka_properties_is_word(property->value, "sasl_plaintext");
    bool encrypted = kafka_properties_is_word(property->value, "ssl") ||
                     kafka_properties_is_word(property->value, "sasl_ssl");
    if (!plain && !encrypted) {
        WRONG(" must be plaintext, ssl, sasl_plaintext or sasl_ssl");
    } else if (encrypted != (config->values.tls != 0)) {
        WRONG(" says %s TLS, but sink.kafka.tls is %s; set sink.kafka.tls = %s, or take the "
              "property out",
              plain ? "no" : "", config->values.tls != 0 ? "true" : "false",
              plain ? "false" : "true");
    }
}

static void check_mechanism(struct mr_config *config, const struct mr_property *property,
                            const char *word)
{
    if (config->values.sasl_mechanism[0] != '\0') {
        WRONG(" and sink.kafka.sasl.mechanism are both set; keep one of the two");
    } else if (!kafka_properties_is_word(property->value, "GSSAPI")) {
        WRONG(" takes GSSAPI; for a password or a token set sink.kafka.sasl.mechanism");
    }
}

/* librdkafka's rdkafka_sasl_cyrus.c puts these into the command that it renews tickets with. */
static void check_command(struct mr_config *config, const struct mr_property *property,
                          const char *word)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "._/@:-";
    if (property->value[strspn(property->value, good)] != '\0' || property->value[0] == '-') {
        WRONG(" becomes part of a command: it takes letters, digits and ._/@:- only, and no - in "
              "front");
    }
}

/* Contexts that tell of requests and states; the others print the configuration or the login. */
static void check_debug(struct mr_config *config, const struct mr_property *property,
                        const char *word)
{
    static const char *const good[] = {"broker", "topic",    "metadata", "feature", "queue",
                                       "msg",    "protocol", "admin",    "eos"};
    char list[256];
    snprintf(list, sizeof(list), "%s", property->value);
    char *rest = NULL;
    for (char *one = strtok_r(list, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        if (!MR_ANY(context, good, MR_ARRAY_LEN(good), kafka_properties_is_word(one, *context)) ||
            strlen(property->value) >= sizeof(list)) {
            WRONG(" takes broker, topic, metadata, feature, queue, msg, protocol, admin and eos; "
                  "the others may print secrets");
            return;
        }
    }
}

/* Part of what makes TLS safe: passed while it says yes, else insecure_tls allows it. */
static void check_tls(struct mr_config *config, const struct mr_property *property, const char *yes)
{
    /* The same function of librdkafka's takes t and 1 for true. */
    bool is_true = kafka_properties_is_word(property->value, "t") ||
                   kafka_properties_is_word(property->value, "1");
    if (!kafka_properties_is_word(property->value, yes) && !(is_true && strcmp(yes, "true") == 0) &&
        !config->values.insecure_tls) {
        WRONG(
            " switches off a check of TLS; if that is wanted, set sink.kafka.insecure_tls = true");
    }
}

/* The client secret goes there. */
static void check_endpoint(struct mr_config *config, const struct mr_property *property,
                           const char *word)
{
    if (mr_names_in_clear(property->value)) {
        WRONG(": the client secret would go to \"%s\" in the clear; set https://", property->value);
    }
}

static void kafka_properties_refuse(struct mr_config *config, const struct mr_property *property,
                                    const char *reason)
{
    WRONG(" can't be set: %s", reason);
}

typedef void (*check_fn)(struct mr_config *config, const struct mr_property *property,
                         const char *word);

/* In groups, as the reference prints them. */
static const struct {
    const char *names;
    check_fn check;   /* NULL: any value will do */
    const char *word; /* of `check` */
} properties[] = {
    /* The connection */
    {"client.id|client.rack|client.dns.lookup|broker.address.family|broker.address.ttl|"
     "socket.timeout.ms|socket.send.buffer.bytes|socket.receive.buffer.bytes|"
     "socket.keepalive.enable|socket.nagle.disable|socket.max.fails|"
     "socket.connection.setup.timeout.ms|connections.max.idle.ms|reconnect.backoff.ms|"
     "reconnect.backoff.max.ms|receive.message.max.bytes|api.version.request.timeout.ms",
     NULL, NULL},
    /* What is known of the cluster */
    {"topic.metadata.refresh.interval.ms|topic.metadata.refresh.fast.interval.ms|"
     "topic.metadata.refresh.sparse|topic.metadata.propagation.max.ms|metadata.max.age.ms|"
     "metadata.recovery.strategy|metadata.recovery.rebootstrap.trigger.ms",
     NULL, NULL},
    /* Requests */
    {"max.in.flight.requests.per.connection|max.in.flight|queue.buffering.max.messages|"
     "queue.buffering.max.kbytes|queue.buffering.backpressure.threshold|batch.num.messages|"
     "message.copy.max.bytes|message.send.max.retries|retries|retry.backoff.ms|"
     "retry.backoff.max.ms|request.timeout.ms|compression.level",
     NULL, NULL},
    /* TLS */
    {"ssl.cipher.suites|ssl.curves.list|ssl.sigalgs.list|ssl.crl.location|ssl.ca.pem|"
     "ssl.certificate.pem",
     NULL, NULL},
    {"enable.ssl.certificate.verification", check_tls, "true"},
    {"ssl.endpoint.identification.algorithm", check_tls, "https"},
    {"security.protocol", check_protocol, NULL},
    /* Logins other than by password */
    {"sasl.mechanism|sasl.mechanisms", check_mechanism, NULL},
    {"sasl.kerberos.service.name|sasl.kerberos.principal|sasl.kerberos.keytab", check_command,
     NULL},
    {"sasl.kerberos.min.time.before.relogin|sasl.oauthbearer.method|"
     "sasl.oauthbearer.client.id|sasl.oauthbearer.scope|sasl.oauthbearer.extensions|"
     "https.ca.location|https.ca.pem",
     NULL, NULL},
    {"sasl.oauthbearer.token.endpoint.url", check_endpoint, NULL},
    /* Logs */
    {"debug", check_debug, NULL},
    {"log_level|log.thread.name|log.connection.close", NULL, NULL},
    {"acks|request.required.acks", kafka_properties_refuse,
     "every record is acknowledged by all replicas"},
    {"enable.idempotence", kafka_properties_refuse, "it keeps order and prevents duplicates"},
    {"enable.gapless.guarantee", kafka_properties_refuse, "a failed batch must not leave a hole"},
    {"message.timeout.ms|delivery.timeout.ms", kafka_properties_refuse,
     "a record waits until it is delivered or its session ends"},
    {"partitioner", kafka_properties_refuse,
     "keys are placed as Java clients place them, by murmur2"},
    {"sticky.partitioning.linger.ms", kafka_properties_refuse,
     "a record without a key has one fixed partition"},
    {"queuing.strategy", kafka_properties_refuse, "records go out in the order of the stream"},
    {"delivery.report.only.error", kafka_properties_refuse, "positions move by delivery reports"},
    {"plugin.library.paths|ssl.engine.location|ssl.engine.id|ssl.providers",
     kafka_properties_refuse, "it loads foreign code into the process"},
    {"sasl.kerberos.kinit.cmd", kafka_properties_refuse, "it runs a command of the shell"},
    {"enable.sasl.oauthbearer.unsecure.jwt", kafka_properties_refuse,
     "anybody could make the token that it logs in with"},
    {"internal.termination.signal", kafka_properties_refuse, "signals are millrace's own"},
    {"log.queue", kafka_properties_refuse, "log lines go one way"},
    {"allow.auto.create.topics", kafka_properties_refuse, "set sink.kafka.create_topics"},
    {"bootstrap.servers|metadata.broker.list", kafka_properties_refuse, "set sink.kafka.brokers"},
    {"compression.codec|compression.type", kafka_properties_refuse, "set sink.kafka.compression"},
    {"linger.ms|queue.buffering.max.ms", kafka_properties_refuse, "set pipeline.latency"},
    {"batch.size", kafka_properties_refuse,
     "requests have up to 512 KiB, and more where brokers are far away"},
    {"message.max.bytes", kafka_properties_refuse, "set sink.kafka.message_max"},
    {"statistics.interval.ms", kafka_properties_refuse, "set metrics.interval"},
    {"transactional.id", kafka_properties_refuse,
     "set sink.kafka.delivery and sink.kafka.state_name"},
    {"transaction.timeout.ms", kafka_properties_refuse,
     "it goes together with time-outs that millrace sets"},
    {"isolation.level", kafka_properties_refuse,
     "nothing is read by a producer but the stored position"},
    {"ssl.ca.location", kafka_properties_refuse, "set sink.kafka.tls_ca_location"},
    {"ssl.certificate.location", kafka_properties_refuse,
     "set sink.kafka.tls_certificate_location"},
    {"ssl.key.location", kafka_properties_refuse, "set sink.kafka.tls_key_location"},
    {"sasl.username", kafka_properties_refuse, "set sink.kafka.sasl.username"},
};

void mr_kafka_property_check(struct mr_config *config, const struct mr_property *property)
{
    if (mr_secret_property(property->name)) {
        WRONG(" is a secret; use sink.kafka.sasl.password or client_secret, "
              "or sink.kafka.tls_key_password");
        return;
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(properties); i++) {
        if (mr_is_among(properties[i].names, mr_slice_of(property->name))) {
            if (properties[i].check != NULL) {
                properties[i].check(config, property, properties[i].word);
            }
            return;
        }
    }
    WRONG(" is not accepted; docs/configuration.md lists those that may be set");
}

void mr_kafka_properties_print(FILE *to)
{
    const char *mark = "";
    mr_slice name;
    for (uint32_t i = 0, n = 0;
         i < MR_ARRAY_LEN(properties) && properties[i].check != kafka_properties_refuse; i++) {
        for (const char *names = properties[i].names; mr_next_word(&names, &name); n++) {
            fprintf(to, "%s`%.*s`", mark, MR_SLICE_ARGS(name));
            mark = (n + 1) % 4 == 0 ? ",\n" : ", ";
        }
    }
    fputs(".\n", to);
}

static const struct mr_property *kafka_properties_find(const struct mr_config *config,
                                                       const char *name)
{
    return MR_FIND(property, config->values.properties, config->values.property_count,
                   strcmp(property->name, name) == 0);
}

static const struct mr_property *find_mechanism(const struct mr_config *config)
{
    const struct mr_property *mechanism = kafka_properties_find(config, "sasl.mechanism");
    return mechanism == NULL ? kafka_properties_find(config, "sasl.mechanisms") : mechanism;
}

bool mr_config_runs_kinit(const struct mr_config *config)
{
    const struct mr_property *mechanism = find_mechanism(config);
    const struct mr_property *pause =
        kafka_properties_find(config, "sasl.kerberos.min.time.before.relogin");
    return mechanism != NULL && kafka_properties_is_word(mechanism->value, "GSSAPI") &&
           (pause == NULL || !kafka_properties_is_word(pause->value, "0"));
}

void mr_kafka_kerberos_check(struct mr_config *config)
{
    if (mr_config_runs_kinit(config) &&
        kafka_properties_find(config, "sasl.kerberos.keytab") == NULL) {
        PROBLEM(config, find_mechanism(config)->line,
                "GSSAPI needs the Kafka property \"sasl.kerberos.keytab\", for kinit; or set "
                "\"sasl.kerberos.min.time.before.relogin\" = \"0\" and name the keytab in the "
                "environment variable KRB5_CLIENT_KTNAME, which needs no kinit");
    }
}
