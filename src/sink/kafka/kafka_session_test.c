/* Ends of the sink's sessions that librdkafka gets wrong, against a broker of the test's own. */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "sink/kafka/kafka_internal.h"
#include "testing/test.h"

enum {
    LIMIT_S = 30,
    SESSIONS = 50,
    PRODUCE = 0, /* Kafka's numbers of requests */
    ADD_PARTITIONS_TO_TXN = 24,
    END_TXN = 26,
    REFUSALS = 20,
    RETRY_US = 20000, /* librdkafka's own, without scripts/librdkafka.patch */
    SLOW_MS = 900,    /* an answer that is longer on its way than what follows from it */
};

struct fixture {
    rd_kafka_t *client;
    rd_kafka_mock_cluster_t *brokers;
    struct mr_kafka_property property;
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_pool pool;
    int wake_fd;
    unsigned done;
};

static void kafka_session_test_batch_done(void *context, struct mr_batch *batch)
{
    struct fixture *fixture = context;
    fixture->done++;
    mr_pool_release(&fixture->pool, batch);
}

static struct mr_batch *kafka_session_test_make_batch(struct fixture *fixture, int count)
{
    struct mr_batch *batch = mr_pool_acquire(&fixture->pool);
    for (int i = 0; i < count; i++) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        struct mr_record record = {.topic = mr_topics_intern(&fixture->topics, "t"),
                                   .value = buffer.at,
                                   .value_len = 1,
                                   .commit_time_us = 1700000000000000};
        mr_buffer_append(&buffer, "x", 1);
        assert_true(mr_batch_commit(batch, buffer.at, &record, 1));
    }
    batch->state = MR_BATCH_SEALED;
    return batch;
}

static mr_status kafka_session_test_serve(struct fixture *fixture)
{
    struct mr_error error = {0};
    struct pollfd wake = {.fd = fixture->wake_fd, .events = POLLIN};
    poll(&wake, 1, 10);
    return fixture->sink->ops->poll(fixture->sink, &error);
}

static void kafka_session_test_send(struct fixture *fixture, struct mr_batch *batch)
{
    struct mr_error error = {0};
    mr_status status;
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    while ((status = fixture->sink->ops->send(fixture->sink, batch, &error)) == MR_FULL) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        assert_int_equal(kafka_session_test_serve(fixture), MR_OK);
    }
    assert_int_equal(status, MR_OK);
}

static struct mr_batch *kafka_session_test_send_batch(struct fixture *fixture, int count)
{
    struct mr_batch *batch = kafka_session_test_make_batch(fixture, count);
    kafka_session_test_send(fixture, batch);
    return batch;
}

/* Until so many are done or the session has failed. */
static mr_status serve_until(struct fixture *fixture, unsigned done)
{
    mr_status status = MR_OK;
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    while (status == MR_OK && fixture->done < done) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        status = kafka_session_test_serve(fixture);
    }
    return status;
}

/* Since they are tracked. */
static bool has_got(const struct fixture *fixture, int request)
{
    bool found = false;
    size_t count;
    rd_kafka_mock_request_t **requests = rd_kafka_mock_get_requests(fixture->brokers, &count);
    for (size_t i = 0; i < count; i++) {
        found = found || rd_kafka_mock_request_api_key(requests[i]) == request;
    }
    rd_kafka_mock_request_destroy_array(requests, count);
    return found;
}

static void open_session(struct fixture *fixture)
{
    struct mr_error error = {0};
    fixture->sink->owner = (struct mr_sink_owner){.done = kafka_session_test_batch_done,
                                                  .context = fixture,
                                                  .wake_fd = fixture->wake_fd,
                                                  .stop_fd = -1};
    assert_int_equal(fixture->sink->ops->open(fixture->sink, &error), MR_OK);
}

static int setup_with(void **state, bool exactly_once, const char *request_records)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->wake_fd = eventfd(0, EFD_NONBLOCK);
    fixture->client = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), NULL, 0);
    fixture->brokers = rd_kafka_mock_cluster_new(fixture->client, 1);
    rd_kafka_mock_topic_create(fixture->brokers, "t", 1, 1);
    fixture->property =
        (struct mr_kafka_property){.name = "batch.num.messages", .value = request_records};
    struct mr_kafka_options options = {
        .properties = &fixture->property,
        .property_count = 1,
        .brokers = rd_kafka_mock_cluster_bootstraps(fixture->brokers),
        .compression = "none",
        .batch_bytes = 4096,
        .message_bytes_max = 1000000,
        .partitions = 1,
        .replication = 1,
        .exactly_once = exactly_once,
        .state_name = "p",
    };
    fixture->sink = mr_kafka_sink_new(&options);
    mr_pool_init(&fixture->pool, 4, 4, 65536, 65536);
    open_session(fixture);
    *state = fixture;
    return 0;
}

static int kafka_session_test_setup(void **state)
{
    return setup_with(state, false, "10000");
}

static int setup_single_records(void **state)
{
    return setup_with(state, false, "1");
}

static int setup_exactly_once(void **state)
{
    return setup_with(state, true, "10000");
}

static int kafka_session_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture->sink->ops->free(fixture->sink);
    rd_kafka_mock_cluster_destroy(fixture->brokers);
    rd_kafka_destroy(fixture->client);
    mr_pool_done(&fixture->pool);
    mr_topics_done(&fixture->topics);
    close(fixture->wake_fd);
    free(fixture);
    return 0;
}

/* The next request to the partition will be refused, and its answer takes a second. */
static void refuse_next(struct fixture *fixture)
{
    rd_kafka_mock_broker_set_rtt(fixture->brokers, 1, 1000);
    rd_kafka_mock_push_request_errors(fixture->brokers, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION);
}

/* A broker that is only just making a partition refuses the first request to it and takes the next
 * one. So the next one waits for the answer. */
static void test_a_request_waits_for_the_one_before(void **state)
{
    struct fixture *fixture = *state;
    kafka_session_test_send_batch(fixture, 1); /* connected, and with a producer's number */
    assert_int_equal(serve_until(fixture, 1), MR_OK);
    refuse_next(fixture);
    for (int i = 0; i < 3; i++) {
        kafka_session_test_send_batch(fixture, 1);
        assert_int_equal(kafka_session_test_serve(fixture), MR_OK);
    }
    assert_int_equal(serve_until(fixture, 4), MR_OK);
}

/* Where two are on their way all the same, librdkafka takes the first for delivered; the sink must
 * not. */
static void test_a_delivery_nobody_answered_for_is_none(void **state)
{
    struct fixture *fixture = *state;
    kafka_session_test_send_batch(fixture, 1);
    assert_int_equal(serve_until(fixture, 1), MR_OK);
    refuse_next(fixture);
    kafka_session_test_send_batch(fixture, 2);
    assert_int_equal(serve_until(fixture, 2), MR_ERR_TRANSIENT);
    assert_int_equal(fixture->done, 1);
}

/* librdkafka is then about to add a partition to it, and aborted the process. */
static void test_a_session_may_end_as_its_transaction_begins(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < SESSIONS; i++) {
        struct mr_batch *batch = kafka_session_test_send_batch(fixture, 1);
        kafka_session_test_serve(fixture); /* hands it over */
        fixture->sink->ops->close(fixture->sink);
        mr_pool_release(&fixture->pool, batch);
        open_session(fixture);
    }
    assert_int_equal(fixture->done, 0);
}

/* Readers of committed records wait for one that is left open. On a busy machine it may be: it is
 * given no time. */
static void test_a_session_that_ends_gives_its_transaction_up(void **state)
{
    struct fixture *fixture = *state;
    rd_kafka_mock_start_request_tracking(fixture->brokers);
    for (unsigned i = 1; i <= SESSIONS && !has_got(fixture, END_TXN); i++) {
        kafka_session_test_send_batch(fixture, 1);
        assert_int_equal(serve_until(fixture, i), MR_OK);
        fixture->sink->ops->close(fixture->sink);
        open_session(fixture);
    }
    assert_true(has_got(fixture, END_TXN));
}

#ifdef MILLRACE_RDKAFKA_SEND_NOW
/* The shortest time between two requests of a kind that followed each other, in microseconds. */
static int64_t shortest_us(const struct fixture *fixture, int request)
{
    int64_t shortest = INT64_MAX, last = INT64_MIN / 2;
    size_t count;
    rd_kafka_mock_request_t **requests = rd_kafka_mock_get_requests(fixture->brokers, &count);
    for (size_t i = 0; i < count; i++) {
        if (rd_kafka_mock_request_api_key(requests[i]) == request) {
            int64_t at = rd_kafka_mock_request_timestamp(requests[i]);
            shortest = at - last < shortest ? at - last : shortest;
            last = at;
        }
    }
    rd_kafka_mock_request_destroy_array(requests, count);
    return shortest;
}

/* While the broker still writes the end of the one before. */
static void test_a_transaction_that_is_refused_for_now_begins_soon(void **state)
{
    struct fixture *fixture = *state;
    rd_kafka_mock_start_request_tracking(fixture->brokers);
    for (int i = 0; i < REFUSALS; i++) {
        rd_kafka_mock_push_request_errors(fixture->brokers, ADD_PARTITIONS_TO_TXN, 1,
                                          RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS);
    }
    kafka_session_test_send_batch(fixture, 1);
    assert_int_equal(serve_until(fixture, 1), MR_OK);
    assert_true(shortest_us(fixture, ADD_PARTITIONS_TO_TXN) < RETRY_US);
}

/* Of hundreds of topics, the error has to say which lacks a right. */
static void test_a_topic_that_fails_a_transaction_is_named(void **state)
{
    struct fixture *fixture = *state;
    rd_kafka_mock_push_request_errors(fixture->brokers, ADD_PARTITIONS_TO_TXN, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    kafka_session_test_send_batch(fixture, 1);
    assert_int_equal(serve_until(fixture, 1), MR_ERR_AUTH);
    const struct mr_kafka_sink *kafka = (struct mr_kafka_sink *)fixture->sink;
    assert_non_null(strstr(kafka->failure.text, "partition \"t\" [0]"));
}
#endif

/* The code is that of any fault of a record among several; this broker tells nothing of its topics.
 * Taken for a compacted one's, it had every message without a key dropped. */
static void test_a_refused_record_says_nothing_of_its_topic(void **state)
{
    struct fixture *fixture = *state;
    struct mr_batch *batch = kafka_session_test_make_batch(fixture, 1);
    struct mr_record *record = mr_batch_own_record(batch, 0);
    record->yields = true;
    record->position.commit_lsn = 7;
    rd_kafka_mock_push_request_errors(fixture->brokers, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_INVALID_RECORD);
    kafka_session_test_send(fixture, batch);
    assert_int_equal(serve_until(fixture, 1), MR_ERR_POISON);
    assert_int_equal(fixture->sink->refusal.position.commit_lsn, 7);
    assert_false(fixture->sink->refusal.is_known);
    assert_false(mr_topic_refuses_keyless(record->topic, 7, mr_wall_ns()));
}

/* What the topic takes is not known either: the record alone is. */
static void test_a_record_too_large_for_a_topic_of_which_nothing_is_known(void **state)
{
    struct fixture *fixture = *state;
    struct mr_batch *batch = kafka_session_test_make_batch(fixture, 1);
    mr_batch_own_record(batch, 0)->yields = true;
    rd_kafka_mock_push_request_errors(fixture->brokers, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    kafka_session_test_send(fixture, batch);
    assert_int_equal(serve_until(fixture, 1), MR_ERR_POISON);
    assert_true(fixture->sink->refusal.too_large && !fixture->sink->refusal.is_known);
}

/* librdkafka's threads may report what a refused record's fatal error purges before the record
 * itself; a session that ended with that sent it again in the next one. */
static void test_a_refused_record_that_is_reported_last(void **state)
{
    struct fixture *fixture = *state;
    struct mr_kafka_sink *kafka = (struct mr_kafka_sink *)fixture->sink;
    kafka_session_test_send_batch(fixture, 1);
    assert_int_equal(serve_until(fixture, 1), MR_OK);

    struct mr_batch *refused = kafka_session_test_make_batch(fixture, 1);
    mr_batch_own_record(refused, 0)->position.commit_lsn = 7;
    rd_kafka_mock_push_request_errors(fixture->brokers, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_INVALID_RECORD);
    rd_kafka_mock_broker_set_rtt(fixture->brokers, 1, SLOW_MS);
    rd_kafka_mock_start_request_tracking(fixture->brokers);
    kafka_session_test_send(fixture, refused);
    while (!has_got(fixture, PRODUCE)) {
        assert_int_equal(kafka_session_test_serve(fixture), MR_OK);
    }
    kafka_session_test_send_batch(fixture, 1);
    rd_kafka_test_fatal_error(kafka->producer, RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, "of 7");
    mr_kafka_session_fail(kafka, RD_KAFKA_RESP_ERR__PURGE_QUEUE, "t", "purged");

    assert_int_equal(serve_until(fixture, 3), MR_ERR_POISON);
    assert_int_equal(fixture->sink->refusal.position.commit_lsn, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_refused_record_says_nothing_of_its_topic,
                                        kafka_session_test_setup, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(
            test_a_record_too_large_for_a_topic_of_which_nothing_is_known, kafka_session_test_setup,
            kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_record_that_is_reported_last,
                                        kafka_session_test_setup, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_request_waits_for_the_one_before,
                                        kafka_session_test_setup, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_delivery_nobody_answered_for_is_none,
                                        setup_single_records, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_session_may_end_as_its_transaction_begins,
                                        setup_exactly_once, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_session_that_ends_gives_its_transaction_up,
                                        setup_exactly_once, kafka_session_test_teardown),
#ifdef MILLRACE_RDKAFKA_SEND_NOW
        cmocka_unit_test_setup_teardown(test_a_transaction_that_is_refused_for_now_begins_soon,
                                        setup_exactly_once, kafka_session_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_topic_that_fails_a_transaction_is_named,
                                        setup_exactly_once, kafka_session_test_teardown),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
