#include "metrics/histogram.h"

#include <math.h>

#include "testing/test.h"

static void test_record_counts_in_the_bucket_whose_bound_is_not_below(void **state)
{
    (void)state;
    struct mr_histogram histogram;
    mr_histogram_init(&histogram, MR_HISTOGRAM_COUNTS);
    const uint64_t values[] = {0, 1, 2, 3, 4, 5, 1 << 24, (1 << 24) + 1, UINT64_MAX};
    for (size_t i = 0; i < MR_ARRAY_LEN(values); i++) {
        mr_histogram_record(&histogram, values[i]);
    }
    struct mr_histogram_view view;
    mr_histogram_read(&histogram, &view);
    assert_int_equal(view.count, MR_ARRAY_LEN(values));
    assert_int_equal(view.counts[0], 2); /* 0, 1 */
    assert_int_equal(view.counts[1], 1); /* 2 */
    assert_int_equal(view.counts[2], 2); /* 3, 4 */
    assert_int_equal(view.counts[3], 1); /* 5 */
    uint32_t bounds = mr_histogram_bound_count(MR_HISTOGRAM_COUNTS);
    assert_int_equal(view.counts[bounds - 1], 1);
    assert_int_equal(view.counts[bounds], 2);
}

static void test_bounds_rise_and_begin_and_end_where_the_header_says(void **state)
{
    (void)state;
    for (unsigned layout = MR_HISTOGRAM_SECONDS; layout <= MR_HISTOGRAM_RATIO; layout++) {
        for (uint32_t i = 1; i < mr_histogram_bound_count(layout); i++) {
            assert_true(mr_histogram_bound(layout, i) > mr_histogram_bound(layout, i - 1));
        }
    }
    uint32_t count = mr_histogram_bound_count(MR_HISTOGRAM_SECONDS);
    assert_true(fabs(mr_histogram_bound(MR_HISTOGRAM_SECONDS, 0) - 1e-6) < 1e-12);
    assert_true(fabs(mr_histogram_bound(MR_HISTOGRAM_SECONDS, 1) - 1.5e-6) < 1e-12);
    assert_true(fabs(mr_histogram_bound(MR_HISTOGRAM_SECONDS, count - 1) - 100) < 1e-9);
    assert_true(fabs(mr_histogram_bound(MR_HISTOGRAM_RATIO, 9) - 1) < 1e-9);
}

static void test_quantile_interpolates_within_the_bucket(void **state)
{
    (void)state;
    struct mr_histogram histogram;
    struct mr_histogram_view view;
    mr_histogram_init(&histogram, MR_HISTOGRAM_SECONDS);
    mr_histogram_read(&histogram, &view);
    assert_true(isnan(mr_histogram_quantile(&view, 0.5)));
    for (int i = 0; i < 100; i++) {
        mr_histogram_record(&histogram, 2500000); /* 2.5 ms: bucket 2 to 3 ms */
    }
    mr_histogram_read(&histogram, &view);
    assert_true(fabs(mr_histogram_quantile(&view, 0.5) - 0.0025) < 1e-9);
    assert_true(fabs(mr_histogram_quantile(&view, 1) - 0.003) < 1e-9);
    mr_histogram_record(&histogram, UINT64_C(500000000000)); /* above all bounds */
    mr_histogram_read(&histogram, &view);
    assert_true(fabs(mr_histogram_quantile(&view, 1) - 100) < 1e-9);
}

static void test_since_leaves_what_came_in_between(void **state)
{
    (void)state;
    struct mr_histogram histogram;
    struct mr_histogram_view before, now;
    mr_histogram_init(&histogram, MR_HISTOGRAM_BYTES);
    mr_histogram_record(&histogram, 100);
    mr_histogram_read(&histogram, &before);
    mr_histogram_record(&histogram, 5000);
    mr_histogram_record(&histogram, 70);
    mr_histogram_read(&histogram, &now);
    mr_histogram_since(&now, &before, &before);
    assert_int_equal(before.count, 2);
    assert_int_equal(before.sum, 5070);
    assert_int_equal(before.counts[1], 1);
    assert_int_equal(before.counts[4], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_counts_in_the_bucket_whose_bound_is_not_below),
        cmocka_unit_test(test_bounds_rise_and_begin_and_end_where_the_header_says),
        cmocka_unit_test(test_quantile_interpolates_within_the_bucket),
        cmocka_unit_test(test_since_leaves_what_came_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
