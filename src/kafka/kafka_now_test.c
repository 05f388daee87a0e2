#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kafka/kafka_now.h"
#include "testing/test.h"

/* On librdkafka's mock broker, with a linger.ms that nothing outlasts: what arrives was told to. */

enum { PARTITIONS = 40, RECORDS = 5, LIMIT_S = 60 };

struct fixture {
    rd_kafka_t *producer;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *events;
    int reported;
};

static void kafka_now_test_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char reason[256];
    assert_int_equal(rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)),
                     RD_KAFKA_CONF_OK);
}

static int now_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    char reason[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    kafka_now_test_set(conf, "test.mock.num.brokers", "1");
    kafka_now_test_set(conf, "enable.idempotence", "true");
    kafka_now_test_set(conf, "linger.ms", "900000");
    kafka_now_test_set(conf, "message.timeout.ms", "0");
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
    fixture->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    assert_non_null(fixture->producer);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_handle_mock_cluster(fixture->producer);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "t", PARTITIONS, 1), 0);
    fixture->topic = rd_kafka_topic_new(fixture->producer, "t", NULL);
    const struct rd_kafka_metadata *metadata;
    assert_int_equal(
        rd_kafka_metadata(fixture->producer, 0, fixture->topic, &metadata, LIMIT_S * 1000), 0);
    rd_kafka_metadata_destroy(metadata);
    fixture->events = rd_kafka_queue_get_main(fixture->producer);
    *state = fixture;
    return 0;
}

static int now_teardown(void **state)
{
    struct fixture *fixture = *state;
    rd_kafka_purge(fixture->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_queue_destroy(fixture->events);
    rd_kafka_topic_destroy(fixture->topic);
    rd_kafka_destroy(fixture->producer);
    free(fixture);
    return 0;
}

static void produce_some(struct fixture *fixture, int32_t partition)
{
    char value[] = "value";
    for (int i = 0; i < RECORDS; i++) {
        assert_int_equal(rd_kafka_produce(fixture->topic, partition, RD_KAFKA_MSG_F_COPY, value,
                                          sizeof(value), NULL, 0, NULL),
                         0);
    }
}

/* Of a distribution's library, flush is the word: it is said again while something is missing. */
static void await_reports(struct fixture *fixture, int count)
{
    int64_t deadline_ns = mr_monotonic_ns() + LIMIT_S * INT64_C(1000000000);
    while (fixture->reported < count) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        mr_kafka_now_all(fixture->producer);
        rd_kafka_event_t *event = rd_kafka_queue_poll(fixture->events, 20);
        const rd_kafka_message_t *message;
        while (event != NULL && (message = rd_kafka_event_message_next(event)) != NULL) {
            assert_int_equal(message->err, RD_KAFKA_RESP_ERR_NO_ERROR);
            fixture->reported++;
        }
        if (event != NULL) {
            rd_kafka_event_destroy(event);
        }
    }
    assert_int_equal(fixture->reported, count);
}

static void test_mr_kafka_now_sends_what_lingers(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 1; round <= 3; round++) {
        produce_some(fixture, 0);
        mr_kafka_now(fixture->topic, 0);
        await_reports(fixture, round * RECORDS);
    }
}

/* More partitions than the broker's thread has room for at once, before it is connected: none of
 * the words is lost. */
static void test_mr_kafka_now_of_many_partitions(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 1; round <= 5; round++) {
        for (int32_t partition = 0; partition < PARTITIONS; partition++) {
            produce_some(fixture, partition);
            mr_kafka_now(fixture->topic, partition);
        }
        await_reports(fixture, round * PARTITIONS * RECORDS);
    }
}

#ifdef MILLRACE_RDKAFKA_SEND_NOW
static void test_mr_kafka_now_leaves_what_comes_later(void **state)
{
    struct fixture *fixture = *state;
    produce_some(fixture, 0);
    mr_kafka_now(fixture->topic, 0);
    await_reports(fixture, RECORDS);
    produce_some(fixture, 0);
    produce_some(fixture, 1);
    mr_kafka_now(fixture->topic, 1);
    await_reports(fixture, 2 * RECORDS);
    assert_int_equal(rd_kafka_outq_len(fixture->producer), RECORDS);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mr_kafka_now_sends_what_lingers, now_setup,
                                        now_teardown),
        cmocka_unit_test_setup_teardown(test_mr_kafka_now_of_many_partitions, now_setup,
                                        now_teardown),
#ifdef MILLRACE_RDKAFKA_SEND_NOW
        cmocka_unit_test_setup_teardown(test_mr_kafka_now_leaves_what_comes_later, now_setup,
                                        now_teardown),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
