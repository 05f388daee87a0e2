#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "sink/kafka/kafka.h"
#include "testing/test.h"

/* The sink on librdkafka's own mock brokers: no network, real delivery reports. */

enum { BATCHES = 20, RECORDS = 50, LIMIT_S = 30 };

struct fixture {
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_pool pool;
    struct mr_sink_view view;
    uint64_t sent, sent_bytes; /* records that are with the sink or were */
    uint64_t done, done_bytes; /* of batches that came home */
    int wake_fd;
};

static void kafka_test_batch_done(void *context, struct mr_batch *batch)
{
    struct fixture *fixture = context;
    fixture->done += batch->record_count;
    fixture->done_bytes += mr_batch_bytes(batch);
    mr_pool_release(&fixture->pool, batch);
}

static int kafka_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    static const struct mr_kafka_property properties[] = {
        {"test.mock.num.brokers", "2"},
        {"allow.auto.create.topics", "true"},
    };
    struct mr_kafka_options options = {
        .brokers = "mock",
        .properties = properties,
        .property_count = MR_ARRAY_LEN(properties),
        .compression = "none",
        .batch_bytes = 4096,
        .message_bytes_max = 1000000,
        .partitions = 4,
        .replication = 1,
        .headers = true,
        .statistics_interval_ms = 100,
    };
    fixture->sink = mr_kafka_sink_new(&options);
    mr_pool_init(&fixture->pool, BATCHES, BATCHES, 65536, 65536);
    fixture->wake_fd = eventfd(0, EFD_NONBLOCK);
    struct mr_error error = {0};
    fixture->sink->owner = (struct mr_sink_owner){.done = kafka_test_batch_done,
                                                  .context = fixture,
                                                  .wake_fd = fixture->wake_fd,
                                                  .stop_fd = -1};
    assert_int_equal(fixture->sink->ops->open(fixture->sink, &error), MR_OK);
    *state = fixture;
    return 0;
}

static int kafka_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture->sink->ops->free(fixture->sink);
    mr_pool_done(&fixture->pool);
    mr_topics_done(&fixture->topics);
    close(fixture->wake_fd);
    free(fixture);
    return 0;
}

static struct mr_batch *kafka_test_fill(struct fixture *fixture, int number)
{
    struct mr_batch *batch = mr_pool_acquire(&fixture->pool);
    assert_non_null(batch);
    for (int i = 0; i < RECORDS; i++) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        char key[32], value[64];
        int key_len = snprintf(key, sizeof(key), "k%d", number * RECORDS + i);
        int value_len = snprintf(value, sizeof(value), "value %d of batch %d", i, number);
        struct mr_record record = {
            .topic = mr_topics_intern(&fixture->topics, i % 2 == 0 ? "even" : "odd"),
            .key = i % 10 == 0 ? NULL : buffer.at,
            .key_len = i % 10 == 0 ? 0 : (uint32_t)key_len,
            .commit_time_us = 1700000000000000,
        };
        mr_buffer_append(&buffer, key, record.key_len);
        record.value = buffer.at;
        record.value_len = (uint32_t)value_len;
        mr_buffer_append(&buffer, value, (size_t)value_len);
        assert_true(mr_batch_commit(batch, buffer.at, &record, 1));
    }
    batch->state = MR_BATCH_SEALED;
    return batch;
}

/* What is in flight and what is acknowledged is all that was sent, at every moment; and the
 * partitions add up. */
static void assert_exact(struct fixture *fixture)
{
    fixture->sink->ops->view(fixture->sink, &fixture->view);
    const struct mr_sink_view *view = &fixture->view;
    assert_int_equal(view->records_in_flight + view->records_acked, fixture->sent);
    assert_int_equal(view->bytes_in_flight + view->bytes_acked, fixture->sent_bytes);
    assert_true(view->records_acked >= fixture->done);
    int64_t records = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < view->partition_count; i++) {
        assert_true(view->partitions[i].records >= 0);
        records += view->partitions[i].records;
        bytes += view->partitions[i].bytes;
    }
    assert_int_equal(records, view->records_in_flight);
    assert_int_equal(bytes, view->bytes_in_flight);
}

static void kafka_test_serve(struct fixture *fixture)
{
    struct mr_error error = {0};
    assert_int_equal(fixture->sink->ops->poll(fixture->sink, &error), MR_OK);
    struct pollfd wake = {.fd = fixture->wake_fd, .events = POLLIN};
    poll(&wake, 1, 10);
}

/* Sends all of a batch, or fails after a while: topics are looked for first. */
static void kafka_test_send_batch(struct fixture *fixture, struct mr_batch *batch)
{
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    size_t bytes = mr_batch_bytes(batch); /* it may be home before `send` has returned */
    struct mr_error error = {0};
    mr_status status;
    while ((status = fixture->sink->ops->send(fixture->sink, batch, &error)) == MR_FULL) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        kafka_test_serve(fixture);
    }
    if (status != MR_OK) {
        print_error("%s\n", error.text);
    }
    assert_int_equal(status, MR_OK);
    fixture->sent += RECORDS;
    fixture->sent_bytes += bytes;
}

static void test_in_flight_is_exact_at_every_moment(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < BATCHES; i++) {
        kafka_test_send_batch(fixture, kafka_test_fill(fixture, i));
        assert_exact(fixture);
    }
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    while (fixture->done < fixture->sent) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        kafka_test_serve(fixture);
        assert_exact(fixture);
    }
    assert_int_equal(fixture->view.records_in_flight, 0);
    assert_int_equal(fixture->view.bytes_in_flight, 0);
    assert_int_equal(fixture->view.records_acked, BATCHES * RECORDS);
    assert_int_equal(fixture->view.bytes_acked, fixture->done_bytes);
    assert_true(fixture->view.connected);
}

static void test_a_session_that_ends_leaves_nothing_in_flight(void **state)
{
    struct fixture *fixture = *state;
    kafka_test_send_batch(fixture, kafka_test_fill(fixture, 0));
    fixture->sink->ops->close(fixture->sink);
    fixture->sink->ops->view(fixture->sink, &fixture->view);
    assert_int_equal(fixture->view.records_in_flight, 0);
    assert_int_equal(fixture->view.bytes_in_flight, 0);
    assert_false(fixture->view.connected);
}

static void test_statistics_arrive(void **state)
{
    struct fixture *fixture = *state;
    kafka_test_send_batch(fixture, kafka_test_fill(fixture, 0));
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    while (fixture->view.client.sent_messages < RECORDS) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        kafka_test_serve(fixture);
        fixture->sink->ops->view(fixture->sink, &fixture->view);
    }
    assert_true(fixture->view.client.known);
    assert_int_equal(fixture->view.client.broker_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_flight_is_exact_at_every_moment, kafka_test_setup,
                                        kafka_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_session_that_ends_leaves_nothing_in_flight,
                                        kafka_test_setup, kafka_test_teardown),
        cmocka_unit_test_setup_teardown(test_statistics_arrive, kafka_test_setup,
                                        kafka_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
