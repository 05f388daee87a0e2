#include "control/ladder.h"

#include <math.h>

#include "testing/test.h"

#define S INT64_C(1000000000)

static void test_seconds_of_a_place(void **state)
{
    (void)state;
    struct mr_ladder ladder = {.count = 0};
    assert_true(mr_ladder_seconds(&ladder, 5 * S, 100) == 0);
    assert_true(isnan(mr_ladder_seconds(&ladder, 5 * S, 0)));
    mr_ladder_add(&ladder, 10 * S, 100);
    mr_ladder_add(&ladder, 11 * S, 100); /* it did not move */
    mr_ladder_add(&ladder, 20 * S, 200);
    mr_ladder_add(&ladder, 20 * S + S / 2, 250); /* a moment after it */
    mr_ladder_add(&ladder, 30 * S, 300);
    static const struct {
        mr_lsn place;
        double seconds;
    } cases[] = {{300, 0}, {400, 0}, {299, 5}, {200, 5}, {199, 15}, {100, 15}, {99, 25}, {1, 25}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_true(mr_ladder_seconds(&ladder, 35 * S, cases[i].place) == cases[i].seconds);
    }
}

/* Marks that are forgotten: as old as the first that is left. */
static void test_seconds_beyond_the_marks(void **state)
{
    (void)state;
    struct mr_ladder ladder = {.count = 0};
    for (int i = 1; i <= MR_LADDER_MARKS + 10; i++) {
        mr_ladder_add(&ladder, i * S, (mr_lsn)i * 10);
    }
    int64_t now_ns = (MR_LADDER_MARKS + 10) * S;
    assert_true(mr_ladder_seconds(&ladder, now_ns, 5) == MR_LADDER_MARKS - 1);
    assert_true(mr_ladder_seconds(&ladder, now_ns, (MR_LADDER_MARKS + 10) * 10 - 1) == 0);
    assert_true(mr_ladder_seconds(&ladder, now_ns, (MR_LADDER_MARKS + 9) * 10 - 1) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seconds_of_a_place),
        cmocka_unit_test(test_seconds_beyond_the_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
