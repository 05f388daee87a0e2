#include "source/pg_history.h"

#include <string.h>

#include "testing/test.h"

static const char two_promotions[] = "1\t0/3000000\tno recovery target specified\n"
                                     "\n"
                                     "2\t16/B374D848\tbefore 2026-11-21 10:00:00+00\n";

static void test_timeline_end_of_an_ancestor(void **state)
{
    (void)state;
    assert_int_equal(mr_pg_timeline_end(two_promotions, 1), 0x3000000);
    assert_int_equal(mr_pg_timeline_end(two_promotions, 2), 0x16B374D848);
}

static void test_timeline_end_of_a_stranger(void **state)
{
    (void)state;
    assert_int_equal(mr_pg_timeline_end(two_promotions, 3), 0);
    assert_int_equal(mr_pg_timeline_end("", 1), 0);
    assert_int_equal(mr_pg_timeline_end("no number here\n", 1), 0);
    assert_int_equal(mr_pg_timeline_end(NULL, 1), 0);
}

static void test_missing_slot_is_a_gap_once_it_was_there(void **state)
{
    (void)state;
    struct mr_pg_history history = {0};
    struct mr_error error;
    assert_int_equal(mr_pg_history_check_missing(&history, "s", &error), MR_OK);
    mr_pg_history_confirmed(&history, 5);
    mr_pg_history_confirmed(&history, 3);
    assert_int_equal(history.confirmed, 5);
    assert_int_equal(mr_pg_history_check_missing(&history, "s", &error), MR_ERR_HISTORY);
    assert_non_null(strstr(error.text, "slot \"s\" is gone"));
}

static void test_slot_held_by_another_process_is_a_takeover(void **state)
{
    (void)state;
    struct mr_pg_history history = {.confirmed = 5, .backend = 7};
    mr_pg_history_slot_held(&history, 7);
    assert_int_equal(history.confirmed, 5);
    mr_pg_history_slot_held(&history, 8);
    assert_int_equal(history.confirmed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline_end_of_an_ancestor),
        cmocka_unit_test(test_timeline_end_of_a_stranger),
        cmocka_unit_test(test_missing_slot_is_a_gap_once_it_was_there),
        cmocka_unit_test(test_slot_held_by_another_process_is_a_takeover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
