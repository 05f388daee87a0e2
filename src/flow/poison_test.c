#include "flow/poison.h"

#include "testing/test.h"

static void test_counts_at_one_place_only(void **state)
{
    (void)state;
    struct mr_poison poison = {0};
    struct mr_position here = {.commit_lsn = 10, .ordinal = 1};
    struct mr_position there = {.commit_lsn = 10, .ordinal = 2};
    mr_poison_count(&poison, here, MR_ERR_POISON);
    mr_poison_count(&poison, here, MR_ERR_POISON);
    assert_int_equal(poison.failures, 2);
    mr_poison_count(&poison, there, MR_ERR_POISON);
    assert_int_equal(poison.failures, 1);
    mr_poison_count(&poison, there, MR_ERR_PROTOCOL);
    assert_int_equal(poison.failures, 1);
    mr_poison_count(&poison, there, MR_ERR_PROTOCOL);
    mr_poison_count(&poison, there, MR_ERR_PROTOCOL);
    assert_int_equal(poison.failures, MR_POISON_FAILURES_MAX);
}

static void test_pauses_grow_up_to_the_limit(void **state)
{
    (void)state;
    struct mr_poison poison = {0};
    mr_poison_count(&poison, (struct mr_position){0}, MR_ERR_POISON);
    assert_int_equal(mr_poison_pause_ms(&poison, 30000), 1000);
    assert_int_equal(mr_poison_pause_ms(&poison, 10), 10);
    mr_poison_count(&poison, (struct mr_position){0}, MR_ERR_POISON);
    assert_int_equal(mr_poison_pause_ms(&poison, 30000), 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_at_one_place_only),
        cmocka_unit_test(test_pauses_grow_up_to_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
