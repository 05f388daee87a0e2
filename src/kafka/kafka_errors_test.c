#include "kafka/kafka_errors.h"

#include <string.h>

#include "kafka/kafka_token.h"
#include "testing/test.h"

static const struct mr_kafka_property plain[] = {{"sasl.mechanisms", "PLAIN"}};

static mr_status kafka_errors_test_classify(rd_kafka_resp_err_t err, const char *text,
                                            const struct mr_kafka_property *property,
                                            char *ret_remedy)
{
    struct mr_kafka_options options = {.properties = property, .property_count = 1};
    return mr_kafka_error_classify(err, text, &options, ret_remedy);
}

static void test_is_passing_tells_a_login_broken_off_from_one_refused(void **state)
{
    (void)state;
    static const struct {
        rd_kafka_resp_err_t err;
        const char *text;
        bool passes;
    } samples[] = {
        {RD_KAFKA_RESP_ERR__TRANSPORT, NULL, true},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         "SASL PLAIN mechanism handshake failed: Local: Broker transport failure", true},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION, "SASL authentication error", false},
        {RD_KAFKA_RESP_ERR__SSL, "unexpected eof while reading", true},
        {RD_KAFKA_RESP_ERR__SSL, "certificate verify failed", false},
        {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, NULL, false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        rd_kafka_message_t failed = {.err = samples[i].err,
                                     .payload = (void *)(uintptr_t)samples[i].text};
        assert_int_equal(mr_kafka_is_passing(&failed), samples[i].passes);
    }
}

static void test_classify_each_kind(void **state)
{
    (void)state;
    static const struct {
        rd_kafka_resp_err_t err;
        const char *text;
        mr_status status;
        const char *remedy; /* a part of it */
    } samples[] = {
        {RD_KAFKA_RESP_ERR__AUTHENTICATION, "SASL authentication error", MR_ERR_AUTH,
         "sink.kafka.sasl"},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
         "supported mechanisms: SCRAM-SHA-512",
         MR_ERR_AUTH, "mechanism"},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's "
         "supported mechanisms: (n/a) (after 1ms in state DOWN)",
         MR_ERR_TRANSIENT, ""},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         MR_KAFKA_NO_TOKEN ": sink.kafka.sasl.token_command: /t ended with exit code "
                           "1; " MR_PROGRAM_REMEDY,
         MR_ERR_TRANSIENT, ""},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         MR_KAFKA_NO_TOKEN ": sink.kafka.sasl.token_command: /t printed nothing; it must …",
         MR_ERR_AUTH, ""},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         MR_KAFKA_NO_TOKEN
         ": sink.kafka.sasl.token_command: /t can't be run: " MR_PROGRAM_HELPER_GONE,
         MR_ERR_SYSTEM, ""},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION, MR_KAFKA_NO_TOKEN ": {\"error\":\"invalid_client\"}",
         MR_ERR_AUTH, "client secret"},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         MR_KAFKA_NO_TOKEN ": SSL certificate problem: self-signed certificate", MR_ERR_AUTH,
         "https.ca.location"},
        {RD_KAFKA_RESP_ERR__AUTHENTICATION,
         MR_KAFKA_NO_TOKEN ": Failed to connect to localhost port 1", MR_ERR_TRANSIENT,
         "token endpoint"},
        {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "refused", MR_ERR_AUTH, "Write"},
        {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "refused", MR_ERR_AUTH, "IdempotentWrite"},
        {RD_KAFKA_RESP_ERR__SSL, "certificate verify failed: …", MR_ERR_AUTH, "tls_ca_location"},
        {RD_KAFKA_RESP_ERR__TRANSPORT, "SSL routines::certificate verify failed", MR_ERR_AUTH,
         "tls_ca_location"},
        {RD_KAFKA_RESP_ERR__SSL, "alert bad certificate", MR_ERR_AUTH, "tls_certificate_location"},
        {RD_KAFKA_RESP_ERR__SSL, "unexpected eof while reading", MR_ERR_TRANSIENT, "tls = true"},
        {RD_KAFKA_RESP_ERR__TRANSPORT, MR_KAFKA_HUNG_UP, MR_ERR_TRANSIENT, "tls = true"},
        {RD_KAFKA_RESP_ERR__TRANSPORT, "Connection refused", MR_ERR_TRANSIENT, ""},
        {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "1/1 brokers are down", MR_ERR_TRANSIENT, ""},
        {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, "Invalid timestamp", MR_ERR_TRANSIENT,
         "message.timestamp.before.max.ms"},
        {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, "Invalid timestamp", MR_ERR_TRANSIENT,
         "message.timestamp.after.max.ms (an hour by default)"},
        {RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, "too large", MR_ERR_TRANSIENT,
         "transaction.max.timeout.ms"},
        {RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, "", MR_ERR_TRANSIENT,
         "transaction.state.log.replication.factor"},
        {RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, "", MR_ERR_TRANSIENT,
         "kafka-transactions.sh describe"},
        {RD_KAFKA_RESP_ERR_INVALID_RECORD, "one or more are invalid", MR_ERR_POISON, "key_columns"},
        {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "too large", MR_ERR_POISON,
         "sink.kafka.message_max"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        char remedy[MR_KAFKA_REMEDY_MAX];
        mr_status status =
            kafka_errors_test_classify(samples[i].err, samples[i].text, plain, remedy);
        if (status != samples[i].status || strstr(remedy, samples[i].remedy) == NULL ||
            (samples[i].remedy[0] == '\0') != (remedy[0] == '\0')) {
            fail_msg("\"%s\": %s, \"%s\"", samples[i].text, mr_status_name(status), remedy);
        }
    }
}

/* The broker's word about a token is another one than about a password. */
static void test_classify_refused_token(void **state)
{
    (void)state;
    static const struct mr_kafka_property token[] = {{"sasl.mechanism", "OAUTHBEARER"}};
    char remedy[MR_KAFKA_REMEDY_MAX];
    assert_int_equal(
        kafka_errors_test_classify(RD_KAFKA_RESP_ERR__AUTHENTICATION,
                                   "SASL authentication error: {\"status\":\"invalid_token\"}",
                                   token, remedy),
        MR_ERR_AUTH);
    assert_non_null(strstr(remedy, "issuer, audience and scope"));
}

/* A client that speaks TLS already is told to look at the other end. */
static void test_classify_tls_on_both_sides(void **state)
{
    (void)state;
    static const struct mr_kafka_property encrypted[] = {{"security.protocol", "sasl_ssl"}};
    char remedy[MR_KAFKA_REMEDY_MAX];
    kafka_errors_test_classify(RD_KAFKA_RESP_ERR__SSL, "unexpected eof while reading", encrypted,
                               remedy);
    assert_non_null(strstr(remedy, "speaks TLS; set sink.kafka.tls = false if it does not"));
    kafka_errors_test_classify(RD_KAFKA_RESP_ERR__TRANSPORT, MR_KAFKA_HUNG_UP, encrypted, remedy);
    assert_string_equal(remedy, "");
}

/* Lines of librdkafka 2.15.1. */
static void test_is_hung_up(void **state)
{
    (void)state;
    assert_true(mr_kafka_is_hung_up(
        "FAIL", "[thrd:localhost:9093/bootstrap]: localhost:9093/bootstrap: Disconnected: "
                "connection closed by peer: receive 0 after POLLIN (after 3ms in state "
                "APIVERSION_QUERY, 1 identical error(s) suppressed)"));
    assert_false(mr_kafka_is_hung_up(
        "FAIL", "[thrd:localhost:9093/1]: localhost:9093/1: Disconnected: connection closed by "
                "peer: receive 0 after POLLIN (after 3ms in state UP)"));
    assert_false(mr_kafka_is_hung_up("STATE", "Disconnected: in state APIVERSION_QUERY"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_passing_tells_a_login_broken_off_from_one_refused),
        cmocka_unit_test(test_classify_each_kind),
        cmocka_unit_test(test_classify_refused_token),
        cmocka_unit_test(test_classify_tls_on_both_sides),
        cmocka_unit_test(test_is_hung_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
