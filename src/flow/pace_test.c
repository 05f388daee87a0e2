#include "flow/pace.h"

#include "testing/test.h"

#define MS INT64_C(1000000)

static void test_pace_open_of_bytes_and_ends(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        int64_t ending_ms;
        int64_t open_ms;
    } cases[] = {
        /* A quiet stream, however long commits take. */
        {0, 0, 0},
        {MR_PACE_AT_ONCE_BYTES, 0, 0},
        {MR_PACE_AT_ONCE_BYTES, 60000, 0},
        /* By what it holds, … */
        {MR_PACE_AT_ONCE_BYTES + 20000, 0, 1},
        {MR_PACE_AT_ONCE_BYTES + 2000000, 0, 100},
        {MR_PACE_AT_ONCE_BYTES + 2000000, 60000, 100},
        /* … up to a bound where commits are quick, another where they are slow, and a last one. */
        {MR_PACE_AT_ONCE_BYTES + 6000000, 0, 300},
        {UINT64_MAX, 0, 300},
        {UINT64_MAX, 15, 300},
        {UINT64_MAX, 30, 600},
        {MR_PACE_AT_ONCE_BYTES + 10000000, 30, 500},
        {UINT64_MAX, 50, 1000},
        {UINT64_MAX, 60000, 1000},
        {UINT64_MAX, INT64_MAX / MS, 1000},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        int64_t open_ns =
            mr_pace_open_ns(cases[i].bytes, cases[i].ending_ms * MS, INT64_MAX / 2, true);
        if (open_ns != cases[i].open_ms * MS) {
            fail_msg("case %zu: %lld ns", i, (long long)open_ns);
        }
    }
}

/* Its rows are read soon, and after few transactions it has the long ones. */
static void test_a_burst_begins_with_short_ones(void **state)
{
    (void)state;
    static const int64_t lasts_ms[] = {20, 40, 80, 160, 300, 300};
    int64_t before_ns = 2 * MS;
    for (size_t i = 0; i < MR_ARRAY_LEN(lasts_ms); i++) {
        before_ns = mr_pace_open_ns(UINT64_MAX, 0, before_ns, true);
        assert_int_equal(before_ns, lasts_ms[i] * MS);
    }
    assert_int_equal(mr_pace_before_ns(before_ns, 300 * MS), 300 * MS);
    assert_int_equal(mr_pace_before_ns(before_ns, 301 * MS), 0);
}

/* It commits as often as it costs nothing. */
static void test_pace_of_rows_that_are_not_old(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        int64_t ending_ms, open_ms;
    } cases[] = {
        {0, 5, 0},
        {MR_PACE_AT_ONCE_BYTES + 60000, 5, 3},
        {UINT64_MAX, 0, 0},
        {UINT64_MAX, 1, 2},
        {UINT64_MAX, 5, 10},
        {UINT64_MAX, 10, 20},
        {UINT64_MAX, 11, 20},
        {UINT64_MAX, 60000, 20},
        {UINT64_MAX, INT64_MAX / MS, 20},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        int64_t open_ns =
            mr_pace_open_ns(cases[i].bytes, cases[i].ending_ms * MS, INT64_MAX / 2, false);
        assert_int_equal(open_ns, cases[i].open_ms * MS);
    }
}

static void test_pace_ending_follows_slowly(void **state)
{
    (void)state;
    assert_int_equal(mr_pace_ending_ns(0, 40 * MS), 10 * MS);
    assert_int_equal(mr_pace_ending_ns(40 * MS, 40 * MS), 40 * MS);
    assert_int_equal(mr_pace_ending_ns(40 * MS, 0), 30 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pace_open_of_bytes_and_ends),
        cmocka_unit_test(test_a_burst_begins_with_short_ones),
        cmocka_unit_test(test_pace_of_rows_that_are_not_old),
        cmocka_unit_test(test_pace_ending_follows_slowly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
