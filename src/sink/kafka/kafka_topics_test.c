#include "sink/kafka/kafka_topics.h"

#include "testing/test.h"

static const struct mr_kafka_request_size full = {.bytes = 1000, .records = 100};

static void test_a_request_goes_ahead_behind_one_that_holds_it_back(void **state)
{
    (void)state;
    static const struct {
        uint32_t in_flight, behind, waiting;
        size_t waiting_bytes;
        bool is_apart, goes;
    } cases[] = {
        {100, 0, 10, 1000, true, true},
        {MR_KAFKA_HELD_BACK, 0, 1, 1000, true, true},
        {100, 0, 100, 10, true, true},
        {100, 0, 10, 999, true, false},                     /* it is not full */
        {100, 0, 99, 999, true, false},                     /* the same */
        {100, 1, 10, 1000, true, false},                    /* one is there */
        {MR_KAFKA_HELD_BACK - 1, 0, 10, 1000, true, false}, /* both would be on their way */
        {0, 0, 10, 1000, true, false},                      /* it is the first */
        {100, 0, 10, 1000, false, false},                   /* both would be one request */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_kafka_queue queue = {.flight = {.records = cases[i].in_flight},
                                       .next_flight = {.records = cases[i].behind},
                                       .waiting = cases[i].waiting,
                                       .waiting_bytes = cases[i].waiting_bytes};
        assert_int_equal(mr_kafka_queue_may_go_ahead(&queue, full, cases[i].is_apart),
                         cases[i].goes);
    }
}

static void test_ready_queues_keep_their_order(void **state)
{
    (void)state;
    struct mr_kafka_queue queues[3] = {0};
    struct mr_kafka_ready ready;
    mr_kafka_ready_init(&ready);
    for (int i = 0; i < 3; i++) {
        mr_kafka_ready_add(&ready, &queues[i]);
    }
    queues[2].flight.records = 10;
    mr_kafka_ready_take(&ready, &queues[1].next);
    mr_kafka_ready_add(&ready, &queues[2]); /* behind what it has on its way */
    assert_ptr_equal(ready.first, &queues[0]);
    assert_ptr_equal(queues[1].next, &queues[2]);
    assert_null(queues[2].next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_goes_ahead_behind_one_that_holds_it_back),
        cmocka_unit_test(test_ready_queues_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
