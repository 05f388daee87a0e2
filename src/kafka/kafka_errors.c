#include "kafka/kafka_errors.h"

#include "kafka/kafka_token.h"

/* Whatever says so last counts, as for librdkafka. */
static const char *property_of(const struct mr_kafka_options *options, const char *name)
{
    const char *value = "";
    for (uint32_t i = 0; i < options->property_count; i++) {
        if (strcmp(options->properties[i].name, name) == 0) {
            value = options->properties[i].value;
        }
    }
    return value;
}

static bool speaks_tls(const struct mr_kafka_options *options)
{
    return strcasestr(property_of(options, "security.protocol"), "SSL") != NULL;
}

/* A broker that restarts, or hangs, breaks logins off (rd_kafka_broker_handle_SaslHandshake). */
static bool is_broken_off(const char *text)
{
    return strstr(text, "mechanism handshake failed: Local: ") != NULL;
}

/* Not every failure of TLS is one: a broker that restarts breaks handshakes off, too. */
static bool is_tls_refusal(const char *text)
{
    return strstr(text, "certificate") != NULL;
}

bool mr_kafka_is_passing(const rd_kafka_message_t *failed)
{
    switch (failed->err) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        return true;
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
        return is_broken_off(rd_kafka_message_errstr(failed));
    case RD_KAFKA_RESP_ERR__SSL:
        return !is_tls_refusal(rd_kafka_message_errstr(failed));
    default:
        return false;
    }
}

static mr_status classify_login(const char *text, const struct mr_kafka_options *options,
                                char ret_remedy[MR_KAFKA_REMEDY_MAX])
{
    if (is_broken_off(text)) {
        return MR_ERR_TRANSIENT;
    }
    bool by_token = strcmp(property_of(options, "sasl.mechanism"), "OAUTHBEARER") == 0;
    const char *remedy = by_token
                             ? "the broker must accept the token's issuer, audience and scope, "
                               "and both clocks must be right"
                             : "check user, password and mechanism in sink.kafka.sasl";
    mr_status status = strstr(text, MR_KAFKA_NO_TOKEN) != NULL
                           ? mr_kafka_token_classify(text, &remedy)
                           : MR_ERR_AUTH;
    snprintf(ret_remedy, MR_KAFKA_REMEDY_MAX, "%s", remedy);
    return status;
}

static mr_status classify_tls(const char *text, const struct mr_kafka_options *options,
                              char ret_remedy[MR_KAFKA_REMEDY_MAX])
{
    bool is_refusal = is_tls_refusal(text);
    const char *remedy =
        strstr(text, "certificate verify failed") != NULL
            ? "check that sink.kafka.tls_ca_location holds the CA of the broker's certificate, and "
              "that this certificate names the host of sink.kafka.brokers and is still valid"
        : is_refusal ? "the broker wants another client certificate: check "
                       "sink.kafka.tls_certificate_location and tls_key_location"
        : speaks_tls(options)
            ? "check that this port of the broker speaks TLS; set sink.kafka.tls = false if it "
              "does not"
            : "this port of the broker seems to speak TLS: set sink.kafka.tls = true";
    snprintf(ret_remedy, MR_KAFKA_REMEDY_MAX, "%s", remedy);
    return is_refusal ? MR_ERR_AUTH : MR_ERR_TRANSIENT;
}

bool mr_kafka_is_hung_up(const char *facility, const char *text)
{
    return strcmp(facility, "FAIL") == 0 && strstr(text, "Disconnected: ") != NULL &&
           strstr(text, "in state APIVERSION_QUERY") != NULL;
}

mr_status mr_kafka_error_classify(rd_kafka_resp_err_t err, const char *text,
                                  const struct mr_kafka_options *options,
                                  char ret_remedy[MR_KAFKA_REMEDY_MAX])
{
    static const struct {
        rd_kafka_resp_err_t err;
        mr_status status;
        const char *remedy;
    } known[] = {
        {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, MR_ERR_AUTH,
         "grant the user Describe, Write and Create on the topic"},
        {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, MR_ERR_AUTH,
         "grant the user IdempotentWrite on the cluster"},
        {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, MR_ERR_POISON,
         "raise sink.kafka.message_max, the broker's message.max.bytes and the topic's "
         "max.message.bytes"},
        {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, MR_ERR_TRANSIENT,
         "records carry the time of their commit, the stored position that of this machine: if "
         "that "
         "is long ago, raise the topic's message.timestamp.before.max.ms; else set the clock that "
         "is "
         "wrong, or raise message.timestamp.after.max.ms (an hour by default)"},
        {RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, MR_ERR_TRANSIENT,
         "millrace's transactions may take a minute: set the brokers' transaction.max.timeout.ms "
         "to 60000 or more"},
        {RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, MR_ERR_TRANSIENT,
         "start as many brokers as their transaction.state.log.replication.factor says (3 unless "
         "set), or lower it, and see that the topic __transaction_state has leaders"},
        {RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, MR_ERR_TRANSIENT,
         "the transaction before does not end: see that all topics that kafka-transactions.sh "
         "describe names have leaders; if they have, restart the broker that coordinates it"},
        {RD_KAFKA_RESP_ERR_INVALID_RECORD, MR_ERR_POISON,
         "a compacted topic takes no record without a key: if the topic is one, set key_columns "
         "for its table, skip truncates, or set its cleanup.policy to delete"},
        {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, MR_ERR_POISON, ""},
    };
    ret_remedy[0] = '\0';
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++) {
        if (known[i].err == err) {
            snprintf(ret_remedy, MR_KAFKA_REMEDY_MAX, "%s", known[i].remedy);
            return known[i].status;
        }
    }
    switch (err) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
        return classify_login(text, options, ret_remedy);
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        snprintf(ret_remedy, MR_KAFKA_REMEDY_MAX,
                 "grant the user Describe and Write on transactional id \"%s\"",
                 options->state_name);
        return MR_ERR_AUTH;
    case RD_KAFKA_RESP_ERR__TRANSPORT: /* also a handshake that failed while it was being read */
        if (strstr(text, "SSL") == NULL &&
            (strcmp(text, MR_KAFKA_HUNG_UP) != 0 || speaks_tls(options))) {
            return MR_ERR_TRANSIENT;
        }
        return classify_tls(text, options, ret_remedy);
    case RD_KAFKA_RESP_ERR__SSL:
        return classify_tls(text, options, ret_remedy);
    default:
        return MR_ERR_TRANSIENT;
    }
}
