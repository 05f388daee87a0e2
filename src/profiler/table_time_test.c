#include "profiler/table_time.h"

#include <stdio.h>

#include "testing/test.h"

static void test_what_is_beyond_the_room_goes_to_other(void **state)
{
    (void)state;
    struct mr_table_times times = {0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            char name[32];
            snprintf(name, sizeof(name), "public.t_%d", i);
            mr_table_times_add(&times, name, 10);
        }
    }
    assert_int_equal(times.count, MR_TABLE_TIMES_MAX);
    assert_string_equal(times.tables[0].name, "public.t_0");
    assert_int_equal(times.tables[0].cpu_ns, 30);
    assert_string_equal(times.tables[MR_TABLE_TIMES_MAX - 1].name, "other");
    assert_int_equal(times.tables[MR_TABLE_TIMES_MAX - 1].cpu_ns, 30 * (100 - 63));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_beyond_the_room_goes_to_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
