#include "sink/kafka/kafka_spread.h"

#include "testing/test.h"

#define MS INT64_C(1000000)

static void test_spread_is_the_most_of_late(void **state)
{
    (void)state;
    struct mr_spread spread = {0};
    int64_t now_ns = 5000 * MS;
    assert_int_equal(mr_spread_partitions(&spread), 0);
    mr_spread_note(&spread, now_ns, 60);
    mr_spread_note(&spread, now_ns, 40);
    assert_int_equal(mr_spread_partitions(&spread), 100);
    for (int i = 0; i < 99; i++) {
        mr_spread_answered(&spread);
    }
    assert_int_equal(spread.in_flight, 1);
    assert_int_equal(mr_spread_partitions(&spread), 100); /* a moment counts for a while, */
    mr_spread_answered(&spread);
    now_ns += (MR_SPREAD_WINDOW_MS + 1) * MS;
    mr_spread_note(&spread, now_ns, 2);
    assert_int_equal(mr_spread_partitions(&spread), 100);
    now_ns += (MR_SPREAD_WINDOW_MS + 1) * MS;
    mr_spread_note(&spread, now_ns, 0);
    assert_int_equal(mr_spread_partitions(&spread), 2); /* and no longer */
}

static void test_spread_of_long_ago_does_not_count(void **state)
{
    (void)state;
    struct mr_spread spread = {0};
    mr_spread_note(&spread, 5000 * MS, 100);
    for (int i = 0; i < 100; i++) {
        mr_spread_answered(&spread);
    }
    mr_spread_note(&spread, 60000 * MS, 1);
    assert_int_equal(mr_spread_partitions(&spread), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread_is_the_most_of_late),
        cmocka_unit_test(test_spread_of_long_ago_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
