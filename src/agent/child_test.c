#include "agent/child.h"

#include "testing/test.h"

enum { NOW = 1000000 };

static struct fleet_child_state running(int64_t now_ms)
{
    struct fleet_child_state child = mr_child_new(now_ms);
    mr_child_want(&child, true, now_ms);
    mr_child_started(&child, now_ms);
    return child;
}

static void test_started_once_it_is_wanted(void **state)
{
    (void)state;
    struct fleet_child_state child = mr_child_new(NOW);
    assert_false(mr_child_may_start(&child, NOW));
    mr_child_want(&child, true, NOW);
    assert_true(mr_child_may_start(&child, NOW));
    mr_child_started(&child, NOW + 5);
    assert_false(mr_child_may_start(&child, NOW + 5));
    assert_true(mr_child_is_being_started(&child, NOW + 5));
    mr_child_seen(&child, FLEET_STANDBY, NOW + 6);
    assert_false(mr_child_is_being_started(&child, NOW + 6));
    mr_child_seen(&child, FLEET_STREAMING, NOW + 7);
    mr_child_seen(&child, FLEET_STREAMING, NOW + 8);
    assert_int_equal(child.state, FLEET_STREAMING);
    assert_int_equal(child.since_ms, NOW + 7);
    assert_int_equal(child.starts, 1);
}

static void test_a_long_start_holds_up_nobody(void **state)
{
    (void)state;
    struct fleet_child_state child = running(NOW);
    assert_true(mr_child_is_being_started(&child, NOW + FLEET_START_MS - 1));
    assert_false(mr_child_is_being_started(&child, NOW + FLEET_START_MS));
}

/* Each end that a restart may mend, from each state of a process. */
static void test_the_pause_grows(void **state)
{
    (void)state;
    static const int32_t codes[] = {0, 3, 69, 70, 71, FLEET_SIGNALLED + 9};
    static const uint32_t pauses[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    struct fleet_child_state child = running(NOW);
    int64_t now = NOW;
    for (size_t i = 0; i < MR_ARRAY_LEN(pauses); i++) {
        enum fleet_state seen[] = {FLEET_STARTING, FLEET_STANDBY, FLEET_STREAMING};
        mr_child_seen(&child, seen[i % 3], now);
        mr_child_ended(&child, codes[i % MR_ARRAY_LEN(codes)], now);
        assert_int_equal(child.state, FLEET_BACKOFF);
        assert_false(mr_child_may_start(&child, now + pauses[i] - 1));
        now += pauses[i];
        assert_true(mr_child_may_start(&child, now));
        mr_child_started(&child, now);
    }
}

static void test_who_ran_long_begins_with_a_short_pause(void **state)
{
    (void)state;
    struct fleet_child_state child = running(NOW);
    mr_child_ended(&child, 69, NOW);
    mr_child_started(&child, NOW + 1000);
    mr_child_seen(&child, FLEET_STREAMING, NOW + 1000 + FLEET_GOOD_MS);
    mr_child_ended(&child, 69, NOW + 2000 + FLEET_GOOD_MS);
    assert_true(mr_child_may_start(&child, NOW + 3000 + FLEET_GOOD_MS));
}

static void test_what_needs_a_person_is_held(void **state)
{
    (void)state;
    static const int32_t codes[] = {10, 64, 65, 77, 78};
    for (size_t i = 0; i < MR_ARRAY_LEN(codes); i++) {
        struct fleet_child_state child = running(NOW);
        mr_child_ended(&child, codes[i], NOW);
        assert_int_equal(child.state, FLEET_HELD);
        mr_child_want(&child, true, NOW);
        assert_false(mr_child_may_start(&child, NOW + INT64_C(1) * 86400000));
        mr_child_renew(&child, NOW);
        assert_true(mr_child_may_start(&child, NOW));
    }
}

static void test_ended_and_started_again(void **state)
{
    (void)state;
    struct fleet_child_state child = running(NOW);
    assert_true(mr_child_end(&child, 100, NOW));
    assert_false(mr_child_end(&child, 100, NOW)); /* one signal: a second would leave no time */
    mr_child_seen(&child, FLEET_STREAMING, NOW);
    assert_int_equal(child.state, FLEET_ENDING);
    assert_false(mr_child_is_overdue(&child, NOW + 99));
    assert_true(mr_child_is_overdue(&child, NOW + 100));
    mr_child_ended(&child, 0, NOW + 50);
    assert_true(mr_child_may_start(&child, NOW + 50));
}

/* An end that was asked for is no fault, whatever its code. */
static void test_ended_for_good(void **state)
{
    (void)state;
    static const int32_t codes[] = {0, 3, 78, FLEET_SIGNALLED + 9};
    for (size_t i = 0; i < MR_ARRAY_LEN(codes); i++) {
        struct fleet_child_state child = running(NOW);
        mr_child_want(&child, false, NOW);
        assert_true(mr_child_end(&child, 100, NOW));
        mr_child_ended(&child, codes[i], NOW);
        assert_int_equal(child.state, FLEET_STOPPED);
        assert_false(mr_child_may_start(&child, NOW + 1000));
        mr_child_want(&child, true, NOW);
        assert_true(mr_child_may_start(&child, NOW));
    }
}

static void test_not_wanted_without_a_process(void **state)
{
    (void)state;
    struct fleet_child_state child = mr_child_new(NOW);
    mr_child_want(&child, true, NOW);
    mr_child_want(&child, false, NOW);
    assert_int_equal(child.state, FLEET_STOPPED);
    child = running(NOW);
    mr_child_ended(&child, 10, NOW);
    mr_child_want(&child, false, NOW);
    assert_int_equal(child.state, FLEET_STOPPED);
    child = running(NOW);
    mr_child_ended(&child, 69, NOW);
    mr_child_want(&child, false, NOW);
    assert_int_equal(child.state, FLEET_STOPPED);
    assert_false(mr_child_end(&child, 100, NOW));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_started_once_it_is_wanted),
        cmocka_unit_test(test_a_long_start_holds_up_nobody),
        cmocka_unit_test(test_the_pause_grows),
        cmocka_unit_test(test_who_ran_long_begins_with_a_short_pause),
        cmocka_unit_test(test_what_needs_a_person_is_held),
        cmocka_unit_test(test_ended_and_started_again),
        cmocka_unit_test(test_ended_for_good),
        cmocka_unit_test(test_not_wanted_without_a_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
