#include "flow/backlog.h"

#include "testing/test.h"

#define S INT64_C(1000000)

static void test_backlog_is_what_is_older_than_a_second(void **state)
{
    (void)state;
    static const struct {
        int64_t committed_us, sent_us;
        bool is_there;
    } cases[] = {
        {1700000000 * S, 1700000000 * S + 1000, false},
        {1700000000 * S, 1700000001 * S, false},
        {1700000000 * S, 1700000001 * S + 1, true},
        /* invented: long ago, in the future, at the ends of what there is */
        {-200000 * S, 1700000000 * S, true},
        {1800000000 * S, 1700000000 * S, false},
        {INT64_C(1) << 60, 1700000000 * S, false},
        {-(INT64_C(1) << 60), 1700000000 * S, true},
        {-1, INT64_MAX, false},
        {1, INT64_MIN, false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_backlog backlog = {0};
        mr_backlog_end(&backlog);
        mr_backlog_begin(&backlog, cases[i].committed_us);
        backlog.sent_us = cases[i].sent_us;
        mr_backlog_judge(&backlog);
        assert_int_equal(mr_backlog_is_there(&backlog), cases[i].is_there);
    }
}

/* The rest of a long transaction gets older, the next one is young, and silence ends it. */
static void test_backlog_comes_and_goes(void **state)
{
    (void)state;
    struct mr_backlog backlog = {0};
    mr_backlog_end(&backlog);
    backlog.sent_us = 1700000000 * S;
    mr_backlog_judge(&backlog);
    assert_false(mr_backlog_is_there(&backlog)); /* no transaction came yet */
    mr_backlog_begin(&backlog, 1700000000 * S);
    mr_backlog_judge(&backlog);
    assert_false(mr_backlog_is_there(&backlog));
    backlog.sent_us += 2 * S;
    mr_backlog_judge(&backlog);
    assert_true(mr_backlog_is_there(&backlog));
    mr_backlog_begin(&backlog, backlog.sent_us - 1000);
    mr_backlog_judge(&backlog);
    assert_false(mr_backlog_is_there(&backlog));
    backlog.sent_us += 2 * S;
    mr_backlog_judge(&backlog);
    assert_true(mr_backlog_is_there(&backlog));
    mr_backlog_end(&backlog);
    assert_false(mr_backlog_is_there(&backlog));
    mr_backlog_judge(&backlog); /* a keepalive tells nothing of age */
    assert_false(mr_backlog_is_there(&backlog));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backlog_is_what_is_older_than_a_second),
        cmocka_unit_test(test_backlog_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
