/* Who sleeps in clock_gettime, and who does not. */
#include "sink/kafka_spin.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "testing/test.h"

enum { TURNS = 10000, CALM_TURNS = 200, CALM_NS = 20000 };

static long sleeps(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* Readings of the clock without a pause, each behind `work_ns` of work. */
static long sleeps_while_reading(clockid_t clock, int turns, int64_t work_ns)
{
    long before = sleeps();
    for (int i = 0; i < turns; i++) {
        struct timespec now;
        /* Its own time is told by another clock, so that the work itself is none of the readings. */
        for (int64_t begin = mr_clock_ns(CLOCK_REALTIME);
             mr_clock_ns(CLOCK_REALTIME) - begin < work_ns;) {
        }
        assert_int_equal(clock_gettime(clock, &now), 0);
    }
    return sleeps() - before;
}

static void *main_of_watched(void *context)
{
    long *counts = context;
    mr_kafka_spin_watch();
    counts[0] = sleeps_while_reading(CLOCK_MONOTONIC, TURNS, 0);
    counts[1] = sleeps_while_reading(CLOCK_MONOTONIC, CALM_TURNS, CALM_NS);
    counts[2] = sleeps_while_reading(CLOCK_THREAD_CPUTIME_ID, TURNS, 0);
    return NULL;
}

static void test_only_a_watched_thread_that_spins_sleeps(void **state)
{
    (void)state;
    pthread_t thread;
    long counts[3];
    assert_int_equal(pthread_create(&thread, NULL, main_of_watched, counts), 0);
    pthread_join(thread, NULL);
    assert_true(counts[0] > TURNS / 100);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 0);
    assert_int_equal(sleeps_while_reading(CLOCK_MONOTONIC, TURNS, 0), 0);
}

static void test_time_goes_on(void **state)
{
    (void)state;
    mr_kafka_spin_watch();
    int64_t last = mr_monotonic_ns();
    for (int i = 0; i < TURNS; i++) {
        int64_t now = mr_monotonic_ns();
        assert_true(now >= last);
        last = now;
    }
    struct timespec now;
    assert_int_equal(clock_gettime((clockid_t)-1000, &now), -1);
}

static void test_versions(void **state)
{
    (void)state;
    assert_true(mr_kafka_spins(0x020002ff));
    assert_true(mr_kafka_spins(0x020300ff));
    assert_false(mr_kafka_spins(0x020400ff));
    assert_false(mr_kafka_spins(0x03000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_watched_thread_that_spins_sleeps),
        cmocka_unit_test(test_time_goes_on),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
