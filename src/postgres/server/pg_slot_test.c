#include "postgres/server/pg_slot.h"

#include <math.h>

#include "testing/test.h"

enum { MIB = 1024 * 1024 };
#define SECOND INT64_C(1000000000)

/* A look at a slot that is not confirmed and does not move. */
static void pg_slot_test_add(struct mr_forecast *forecast, int64_t time_ns, int64_t safe_bytes)
{
    int64_t written = INT64_C(100000) * MIB - safe_bytes;
    mr_forecast_add(forecast, &(struct mr_forecast_sample){.time_ns = time_ns,
                                                           .safe_bytes = safe_bytes,
                                                           .retained_bytes = written,
                                                           .server_lsn = (mr_lsn)written + 1,
                                                           .confirmed_lsn = 1});
}

/* A look at a slot with `limit` bytes that may be kept. */
static void pg_slot_test_look(struct mr_forecast *forecast, int64_t time_s, int64_t server,
                              int64_t confirmed, int64_t restart)
{
    int64_t limit = INT64_C(64) * MIB;
    mr_forecast_add(forecast, &(struct mr_forecast_sample){.time_ns = time_s * SECOND,
                                                           .safe_bytes = limit - (server - restart),
                                                           .retained_bytes = server - restart,
                                                           .server_lsn = (mr_lsn)server,
                                                           .confirmed_lsn = (mr_lsn)confirmed});
}

/* What was written is delivered; the slot moves later, or only when something is written again. */
static void test_forecast_of_a_delivered_burst(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    int64_t burst = INT64_C(60) * MIB;
    pg_slot_test_look(&forecast, 0, MIB, MIB, MIB);
    pg_slot_test_look(&forecast, 10, MIB, MIB, MIB);
    for (int i = 2; i < 30; i++) {
        pg_slot_test_look(&forecast, i * INT64_C(10), MIB + burst, MIB + burst, MIB);
        assert_true(isinf(mr_forecast_seconds(&forecast, i * 10 * SECOND)));
        assert_true(isinf(mr_forecast_seconds(&forecast, (i * 10 + 9) * SECOND)));
    }
}

/* All is delivered, and the slot moves each 15 seconds or so: safe bytes are a saw. */
static void test_forecast_of_a_steady_stream(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    for (int i = 0; i < 60; i++) {
        int64_t server = (i + 1) * INT64_C(10) * MIB;
        pg_slot_test_look(&forecast, i * INT64_C(10), server, server - MIB / 2,
                          server / (20 * MIB) * 20 * MIB);
        assert_true(isinf(mr_forecast_seconds(&forecast, i * 10 * SECOND)));
    }
}

/* All is delivered, but an old transaction holds the slot while others write. */
static void test_forecast_of_a_slot_that_is_held(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    for (int i = 0; i <= 6; i++) {
        int64_t server = (i + 1) * INT64_C(2) * MIB;
        pg_slot_test_look(&forecast, i * INT64_C(10), server, server, MIB);
    }
    /* 13 MiB are kept of 64; 12 MiB a minute. */
    assert_true(fabs(mr_forecast_seconds(&forecast, 60 * SECOND) - 51.0 / 12 * 60) < 1e-6);
}

/* A writer that pauses for longer than a look: near the end looks are a second apart. */
static void test_forecast_of_a_writer_that_pauses(void **state)
{
    (void)state;
    struct mr_forecast lagging = {0}, held = {0};
    for (int64_t s = 0; s <= 150; s++) {
        int64_t server = (1 + s / 12) * 4 * MIB;
        pg_slot_test_look(&lagging, s, server, MIB, MIB);
        pg_slot_test_look(&held, s, server, server, MIB);
        double left = mr_forecast_seconds(&lagging, s * SECOND);
        assert_true(s < 12 || isfinite(left));
        assert_true(s < 60 || isfinite(mr_forecast_seconds(&held, s * SECOND)));
        assert_true(s < 60 || fabs(left / (double)(67 * MIB - server) * (4 * MIB) - 12) < 4);
    }
}

/* Of the same WAL, whatever the limit has become meanwhile. */
static void test_forecast_after_another_limit(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    for (int64_t s = 0; s <= 60; s += 10) {
        int64_t server = (s + 1) * MIB;
        int64_t limit = (s < 60 ? 1000 : 400) * INT64_C(1048576);
        mr_forecast_add(&forecast, &(struct mr_forecast_sample){.time_ns = s * SECOND,
                                                                .safe_bytes = limit - server + MIB,
                                                                .retained_bytes = server - MIB,
                                                                .server_lsn = (mr_lsn)server,
                                                                .confirmed_lsn = (mr_lsn)server});
    }
    assert_true(fabs(mr_forecast_seconds(&forecast, 60 * SECOND) - 340) < 1e-6);
}

/* What waits is delivered faster than it grows: nothing is lost, though safe bytes were used in
 * this minute. */
static void test_forecast_of_a_backlog_that_shrinks(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    pg_slot_test_look(&forecast, 0, MIB, MIB, MIB);
    pg_slot_test_look(&forecast, 10, INT64_C(41) * MIB, MIB, MIB);
    assert_true(isfinite(mr_forecast_seconds(&forecast, 10 * SECOND)));
    pg_slot_test_look(&forecast, 20, INT64_C(42) * MIB, INT64_C(20) * MIB, MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 20 * SECOND)));
}

static void test_forecast_needs_two_samples(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    assert_true(isinf(mr_forecast_seconds(&forecast, 0)));
    pg_slot_test_add(&forecast, 10 * SECOND, 100 * MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 10 * SECOND)));
}

static void test_forecast_is_the_rest_by_the_rate(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    /* 1 MiB a second; 70 MiB are left. */
    for (int i = 0; i <= 3; i++) {
        pg_slot_test_add(&forecast, i * 10 * SECOND, INT64_C(100) * MIB - INT64_C(10) * i * MIB);
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
        pg_slot_test_add(&forecast, i * 10 * SECOND, safe);
        safe -= INT64_C(20) * MIB;
    }
    for (int i = 360; i < 400; i++) {
        pg_slot_test_add(&forecast, i * 10 * SECOND, safe);
        safe -= INT64_C(10) * 1024;
    }
    double left = (double)(safe + INT64_C(10) * 1024) / 1024;
    assert_true(fabs(mr_forecast_seconds(&forecast, 399 * 10 * SECOND) - left) < 1);
}

static void test_forecast_is_infinite_when_safe_bytes_grow_or_stay(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    pg_slot_test_add(&forecast, 0, MIB);
    pg_slot_test_add(&forecast, 10 * SECOND, MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 10 * SECOND)));
    pg_slot_test_add(&forecast, 20 * SECOND, 2 * MIB);
    assert_true(isinf(mr_forecast_seconds(&forecast, 20 * SECOND)));
}

static void test_forecast_is_zero_when_nothing_is_left(void **state)
{
    (void)state;
    struct mr_forecast forecast = {0};
    pg_slot_test_add(&forecast, 0, MIB);
    pg_slot_test_add(&forecast, 10 * SECOND, -MIB);
    assert_true(mr_forecast_seconds(&forecast, 10 * SECOND) == 0);
}

/* An idle slot is looked at less and less often, by a minute at most, or as rarely as was
 * wished. */
static void test_pause_of_a_slot_that_rests(void **state)
{
    (void)state;
    static const uint32_t table[][3] = {
        {10000, 0, 10000}, {10000, 1, 20000},          {10000, 5, 60000},
        {10000, 6, 60000}, {10000, UINT32_MAX, 60000}, {200, 100, 1200},
        {45000, 1, 60000}, {300000, 9, 300000},        {3600000, 0, 3600000}};
    for (size_t i = 0; i < MR_ARRAY_LEN(table); i++) {
        assert_int_equal(mr_slot_pause_ms(table[i][0], table[i][1]), table[i][2]);
    }
}

/* It ends when the stream moves or breaks; it does not begin before the interval is over, nor while
 * nothing happens. */
static void test_rest_that_ends(void **state)
{
    (void)state;
    static const struct {
        int64_t rested_s;
        bool has_moved, is_streamed, wanted;
    } table[] = {{10, true, true, true},   {10, false, false, true}, {9, true, true, false},
                 {9, false, false, false}, {59, false, true, false}, {-1, true, false, false}};
    for (size_t i = 0; i < MR_ARRAY_LEN(table); i++) {
        assert_int_equal(mr_slot_is_due(table[i].rested_s * SECOND, 10000, table[i].has_moved,
                                        table[i].is_streamed),
                         table[i].wanted);
    }
}

/* Never lower than what is allowed or kept, which the next checkpoint would take; nothing to raise
 * where there is no limit. */
static void test_raise_never_lowers(void **state)
{
    (void)state;
    assert_string_equal(
        mr_slot_raise(INT64_C(400) * MIB, (uint64_t)137 * MIB).text,
        "ALTER SYSTEM SET max_slot_wal_keep_size = '537MB'; SELECT pg_reload_conf();");
    assert_non_null(strstr(mr_slot_raise(0, (uint64_t)70 * MIB + 1).text, "'71MB'"));
    assert_non_null(strstr(mr_slot_raise(INT64_C(50000) * MIB, 1).text, "'50064MB'"));
    assert_non_null(
        strstr(mr_slot_raise(INT64_C(50000) * MIB, (uint64_t)60000 * MIB).text, "'110000MB'"));
    assert_non_null(strstr(mr_slot_raise(INT64_C(2147483647) * MIB, 1).text, "'2147483647MB'"));
    assert_string_equal(mr_slot_raise(-1, (uint64_t)1 << 40).text, "");
}

/* Not for what is delivered, nor where there is no limit. */
static void test_slot_near_its_limit(void **state)
{
    (void)state;
    struct mr_slot_view view = {.has_limit = true,
                                .limit_bytes = INT64_C(100) * MIB,
                                .confirmed_lsn = MIB,
                                .server_lsn = (mr_lsn)77 * MIB};
    assert_true(mr_slot_is_near(&view));
    view.server_lsn = (mr_lsn)76 * MIB;
    assert_false(mr_slot_is_near(&view));
    view.server_lsn = (mr_lsn)99 * MIB;
    view.confirmed_lsn = (mr_lsn)90 * MIB;
    assert_false(mr_slot_is_near(&view));
    view.confirmed_lsn = MIB;
    view.has_limit = false;
    assert_false(mr_slot_is_near(&view));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raise_never_lowers),
        cmocka_unit_test(test_slot_near_its_limit),
        cmocka_unit_test(test_forecast_of_a_delivered_burst),
        cmocka_unit_test(test_forecast_of_a_steady_stream),
        cmocka_unit_test(test_pause_of_a_slot_that_rests),
        cmocka_unit_test(test_rest_that_ends),
        cmocka_unit_test(test_forecast_of_a_slot_that_is_held),
        cmocka_unit_test(test_forecast_of_a_backlog_that_shrinks),
        cmocka_unit_test(test_forecast_of_a_writer_that_pauses),
        cmocka_unit_test(test_forecast_after_another_limit),
        cmocka_unit_test(test_forecast_needs_two_samples),
        cmocka_unit_test(test_forecast_is_the_rest_by_the_rate),
        cmocka_unit_test(test_forecast_looks_at_the_last_minute_only),
        cmocka_unit_test(test_forecast_is_infinite_when_safe_bytes_grow_or_stay),
        cmocka_unit_test(test_forecast_is_zero_when_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
