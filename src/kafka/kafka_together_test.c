/* Several partitions' messages in one ProduceRequest (scripts/librdkafka.patch), on librdkafka's
 * mock brokers, which answer for each partition, and by its consumer, which checks each batch. */
#include "kafka/kafka_now.h"

#ifdef MILLRACE_RDKAFKA_SEND_NOW

#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

#include "base/clock.h"
#include "testing/test.h"

enum {
    TOPICS = 4,
    PARTITIONS = 10, /* of each */
    ALL = TOPICS * PARTITIONS,
    LIMIT_S = 180,
    PRODUCE = 0,          /* ApiKey of a ProduceRequest */
    COPIED_BYTES = 65535, /* message.copy.max.bytes: larger ones are not copied */
};

/* Linger.ms that nothing outlasts: what arrives was told to. */
#define LONG "900000"

/* Of a partition, in the order of its messages. */
struct partition {
    int64_t produced, reported, failed, read;
    int64_t next_offset; /* no message has been reported with a lower one since */
};

struct together {
    rd_kafka_t *producer;
    rd_kafka_mock_cluster_t *cluster;
    rd_kafka_topic_t *topics[TOPICS];
    rd_kafka_queue_t *events;
    struct partition partitions[ALL];
    int64_t produced, reported;
    uint64_t random;
};

static void together_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char reason[256];
    assert_int_equal(rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)),
                     RD_KAFKA_CONF_OK);
}

static void topic_name(char *name, size_t size, int topic)
{
    snprintf(name, size, "t%d", topic);
}

/* Each call of the mock cluster waits for its thread, which may sleep for a second: few of them. */
static struct together *together_new(const char *brokers, const char *idempotent, const char *codec,
                                     const char *linger_ms, const char *in_flight)
{
    struct together *together = calloc(1, sizeof(*together));
    char reason[256], name[16];
    together->random = 88172645463325252U;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    together_set(conf, "test.mock.num.brokers", brokers);
    together_set(conf, "enable.idempotence", idempotent);
    together_set(conf, "compression.codec", codec);
    together_set(conf, "linger.ms", linger_ms);
    together_set(conf, "message.timeout.ms", "0");
    together_set(conf, "message.max.bytes", "4000000");
    together_set(conf, "retry.backoff.ms", "10");
    together_set(conf, "max.in.flight.requests.per.connection", in_flight);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
    together->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    assert_non_null(together->producer);
    together->cluster = rd_kafka_handle_mock_cluster(together->producer);
    for (int t = 0; t < TOPICS; t++) {
        const struct rd_kafka_metadata *metadata;
        topic_name(name, sizeof(name), t);
        assert_int_equal(rd_kafka_mock_topic_create(together->cluster, name, PARTITIONS, 1), 0);
        together->topics[t] = rd_kafka_topic_new(together->producer, name, NULL);
        assert_int_equal(rd_kafka_metadata(together->producer, 0, together->topics[t], &metadata,
                                           LIMIT_S * 1000),
                         0);
        rd_kafka_metadata_destroy(metadata);
    }
    together->events = rd_kafka_queue_get_main(together->producer);
    return together;
}

static void together_free(struct together *together)
{
    rd_kafka_purge(together->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_queue_destroy(together->events);
    for (int t = 0; t < TOPICS; t++) {
        rd_kafka_topic_destroy(together->topics[t]);
    }
    rd_kafka_destroy(together->producer);
    free(together);
}

static uint32_t draw(struct together *together, uint32_t below)
{
    together->random ^= together->random << 13;
    together->random ^= together->random >> 7;
    together->random ^= together->random << 17;
    return (uint32_t)(together->random >> 33) % below;
}

/* Which message of which partition a value is of decides every byte of it; half of them can be
 * compressed. */
static void fill_value(char *value, size_t len, int of, int64_t number)
{
    uint64_t mixed = (uint64_t)number * 1000003 + (uint64_t)of * 7919 + 1;
    for (size_t i = 0; i < len; i++) {
        if (number % 2 == 0 || i % 64 == 0) {
            mixed = mixed * 6364136223846793005U + 1442695040888963407U;
        }
        value[i] = (char)(mixed >> 56);
    }
}

static void produce(struct together *together, int of, size_t len)
{
    char *value = malloc(len + 1);
    struct partition *partition = &together->partitions[of];
    int64_t number = partition->produced++;
    fill_value(value, len, of, number);
    assert_int_equal(rd_kafka_produce(together->topics[of / PARTITIONS], of % PARTITIONS,
                                      RD_KAFKA_MSG_F_FREE, value, len, &number, sizeof(number),
                                      (void *)(intptr_t)number),
                     0);
    together->produced++;
}

static void together_set_out(struct together *together)
{
    for (int of = 0; of < ALL; of++) {
        mr_kafka_now(together->topics[of / PARTITIONS], of % PARTITIONS);
    }
}

static void take_report(struct together *together, const rd_kafka_message_t *message)
{
    char name[16];
    int topic = 0;
    for (topic_name(name, sizeof(name), topic);
         strcmp(name, rd_kafka_topic_name(message->rkt)) != 0;) {
        topic_name(name, sizeof(name), ++topic);
    }
    struct partition *partition = &together->partitions[topic * PARTITIONS + message->partition];
    assert_int_equal((intptr_t)message->_private, partition->reported);
    partition->reported++;
    together->reported++;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        assert_int_equal(message->err, RD_KAFKA_RESP_ERR_INVALID_RECORD);
        partition->failed++;
        return;
    }
    assert_true(message->offset >= partition->next_offset);
    partition->next_offset = message->offset + 1;
}

static void await_all(struct together *together)
{
    int64_t deadline_ns = mr_monotonic_ns() + LIMIT_S * INT64_C(1000000000);
    while (together->reported < together->produced) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        rd_kafka_event_t *event = rd_kafka_queue_poll(together->events, 20);
        const rd_kafka_message_t *message;
        while (event != NULL && (message = rd_kafka_event_message_next(event)) != NULL) {
            take_report(together, message);
        }
        if (event != NULL) {
            rd_kafka_event_destroy(event);
        }
    }
}

static int count_requests(struct together *together)
{
    size_t count;
    int of_kind = 0;
    rd_kafka_mock_request_t **requests = rd_kafka_mock_get_requests(together->cluster, &count);
    for (size_t i = 0; i < count; i++) {
        of_kind += rd_kafka_mock_request_api_key(requests[i]) == PRODUCE;
    }
    rd_kafka_mock_request_destroy_array(requests, count);
    return of_kind;
}

/* Some leave with the first word already, and the others wait for the answer; alone each partition
 * would have one. */
static void test_small_requests_are_one(void **state)
{
    (void)state;
    struct together *together = together_new("1", "true", "none", LONG, "1");
    rd_kafka_mock_broker_set_rtt(together->cluster, 1, 500);
    rd_kafka_mock_start_request_tracking(together->cluster);
    for (int of = 0; of < ALL; of++) {
        produce(together, of, 100);
    }
    together_set_out(together);
    await_all(together);
    assert_in_range(count_requests(together), 1, ALL / 4);
    together_free(together);
}

/* Of a request's partitions some are refused for a while, and one for good. */
static void test_each_partition_has_its_answer(void **state)
{
    (void)state;
    struct together *together = together_new("1", "false", "lz4", LONG, "5");
    const rd_kafka_resp_err_t refused = RD_KAFKA_RESP_ERR_INVALID_RECORD;
    rd_kafka_mock_partition_push_request_errors(together->cluster, "t1", 3, PRODUCE, 1, refused);
    for (int p = 5; p < 8; p++) {
        rd_kafka_mock_partition_push_request_errors(together->cluster, "t2", p, PRODUCE, 2,
                                                    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                                    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
    }
    for (int of = 0; of < ALL; of++) {
        produce(together, of, 100);
        produce(together, of, 200);
    }
    together_set_out(together);
    await_all(together);
    for (int of = 0; of < ALL; of++) {
        assert_int_equal(together->partitions[of].failed, of == PARTITIONS + 3 ? 2 : 0);
    }
    together_free(together);
}

/* Leaders change while requests with all partitions are on their way; nothing is lost, nor comes
 * before what was produced before it. One request of a partition at a time, as the sink has it: the
 * mock brokers don't compare sequence numbers, which keep the order of several. */
static void test_leaders_change(void **state)
{
    (void)state;
    struct together *together = together_new("2", "true", "lz4", "20", "5");
    char name[16];
    for (int round = 0; round < 20; round++) {
        for (int of = 0; of < ALL; of++) {
            produce(together, of, draw(together, 3000));
        }
        together_set_out(together);
        for (int i = 0; i < 3; i++) {
            topic_name(name, sizeof(name), (int)draw(together, TOPICS));
            rd_kafka_mock_partition_set_leader(together->cluster, name,
                                               (int32_t)draw(together, PARTITIONS),
                                               1 + (int32_t)draw(together, 2));
        }
        await_all(together);
    }
    together_free(together);
}

static void check_read(struct together *together, const rd_kafka_message_t *message)
{
    int topic = rd_kafka_topic_name(message->rkt)[1] - '0';
    int of = topic * PARTITIONS + message->partition;
    int64_t number;
    assert_int_equal(message->err, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(message->key_len, sizeof(number));
    memcpy(&number, message->key, sizeof(number));
    assert_int_equal(number, together->partitions[of].read++);
    char *value = malloc(message->len + 1);
    fill_value(value, message->len, of, number);
    assert_memory_equal(value, message->payload, message->len);
    free(value);
}

static void read_all(struct together *together)
{
    char reason[256], name[16];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    together_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(together->cluster));
    together_set(conf, "group.id", "reads");
    together_set(conf, "check.crcs", "true");
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
    assert_non_null(consumer);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(ALL);
    for (int of = 0; of < ALL; of++) {
        topic_name(name, sizeof(name), of / PARTITIONS);
        rd_kafka_topic_partition_list_add(list, name, of % PARTITIONS)->offset =
            RD_KAFKA_OFFSET_BEGINNING;
    }
    assert_int_equal(rd_kafka_assign(consumer, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    int64_t deadline_ns = mr_monotonic_ns() + LIMIT_S * INT64_C(1000000000);
    for (int64_t read = 0; read < together->produced;) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 100);
        if (message != NULL) {
            check_read(together, message);
            rd_kafka_message_destroy(message);
            read++;
        }
    }
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
}

/* Values of all sizes, with those that are not copied, compressed or not, in any mixture. */
static void test_what_is_sent_together_is_read(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "lz4", "zstd", "gzip"};
    static const uint32_t sizes[] = {1, 20, 300, 5000, COPIED_BYTES + 20000};
    for (size_t c = 0; c < MR_ARRAY_LEN(codecs); c++) {
        struct together *together = together_new("1", "true", codecs[c], LONG, "5");
        for (int round = 0; round < 15; round++) {
            uint32_t size = sizes[draw(together, MR_ARRAY_LEN(sizes))];
            for (int of = 0; of < ALL; of++) {
                for (uint32_t i = draw(together, 4); i > 0; i--) {
                    produce(together, of, draw(together, size));
                }
            }
            together_set_out(together);
        }
        await_all(together);
        read_all(together);
        together_free(together);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_requests_are_one),
        cmocka_unit_test(test_each_partition_has_its_answer),
        cmocka_unit_test(test_leaders_change),
        cmocka_unit_test(test_what_is_sent_together_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else /* a distribution's library has one partition in each */

int main(void)
{
    return 0;
}

#endif
