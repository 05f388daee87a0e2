#include "admin/pages.h"

#include "testing/test.h"

#define SECONDS(n) ((int64_t)(n)*1000000000)

static void test_stuck_thread(void **state)
{
    (void)state;
    struct mr_pipeline_stats stats = {.source_turn_ns = SECONDS(10), .sink_turn_ns = SECONDS(20)};
    assert_null(mr_stuck_thread(&stats, SECONDS(1000))); /* nothing is connected */
    stats.source_connected = stats.sink_connected = true;
    assert_null(mr_stuck_thread(&stats, SECONDS(100)));
    assert_string_equal(mr_stuck_thread(&stats, SECONDS(101)), "source");
    stats.source_turn_ns = SECONDS(101);
    assert_string_equal(mr_stuck_thread(&stats, SECONDS(111)), "sink");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stuck_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
