#include "postgres/pg_slot.h"

#include <math.h>

#include "testing/test.h"

enum { MIB = 1024 * 1024 };
#define SECOND INT64_C(1000000000)

static void test_forecast_needs_two_samples(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    assert_true(isinf(mr_forecast_seconds(&forecast, 0)));
    mr_forecast_add(&forecast, 10 * SECOND, 100 * MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 10 * SECOND)));
}

static void test_forecast_is_the_rest_by_the_rate(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    /* 1 MiB a second; 70 MiB are left. */
    for (int i = 0; i <= 3; i++) {
        mr_forecast_add(&forecast, i * 10 * SECOND, INT64_C(100) * MIB - INT64_C(10) * i * MIB);
    }
    assert_true(fabs(mr_forecast_seconds(&forecast, 30 * SECOND) - 70) < 1e-6);
    /* Time goes on between two looks. */
    assert_true(fabs(mr_forecast_seconds(&forecast, 35 * SECOND) - 65) < 1e-6);
    assert_true(fabs(mr_forecast_seconds(&forecast, 3000 * SECOND)) < 1e-6);
}

static void test_forecast_looks_at_the_last_minute_only(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    int64_t safe = INT64_C(10000) * MIB;
    /* A fast hour, then a slow one: more samples than are kept, too. */
    for (int i = 0; i < 360; i++) {
        mr_forecast_add(&forecast, i * 10 * SECOND, safe);
        safe -= INT64_C(20) * MIB;
    }
    for (int i = 360; i < 400; i++) {
        mr_forecast_add(&forecast, i * 10 * SECOND, safe);
        safe -= INT64_C(10) * 1024;
    }
    double left = (double)(safe + INT64_C(10) * 1024) / 1024;
    assert_true(fabs(mr_forecast_seconds(&forecast, 399 * 10 * SECOND) - left) < 1);
}

static void test_forecast_is_infinite_when_safe_bytes_grow_or_stay(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    mr_forecast_add(&forecast, 0, MIB);
    mr_forecast_add(&forecast, 10 * SECOND, MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 10 * SECOND)));
    mr_forecast_add(&forecast, 20 * SECOND, 2 * MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 20 * SECOND)));
}

static void test_forecast_is_zero_when_nothing_is_left(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    mr_forecast_add(&forecast, 0, MIB);
    mr_forecast_add(&forecast, 10 * SECOND, -MIB);
    assert_true(mr_forecast_seconds(&forecast, 10 * SECOND) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forecast_needs_two_samples),
        cmocka_unit_test(test_forecast_is_the_rest_by_the_rate),
        cmocka_unit_test(test_forecast_looks_at_the_last_minute_only),
        cmocka_unit_test(test_forecast_is_infinite_when_safe_bytes_grow_or_stay),
        cmocka_unit_test(test_forecast_is_zero_when_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
