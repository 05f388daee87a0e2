#include "flow/handshake.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/test.h"

/* All there are, as docs/dev/architecture.md tells them; written down a second time on purpose. */
static const struct {
    enum mr_handshake_state from;
    enum mr_handshake_event event;
    enum mr_handshake_state to;
} steps[] = {
    {MR_HANDSHAKE_NONE, MR_HANDSHAKE_CLAIM, MR_HANDSHAKE_CLAIMED},
    {MR_HANDSHAKE_NONE, MR_HANDSHAKE_LOAD, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_NONE, MR_HANDSHAKE_LOADED, MR_HANDSHAKE_DETACHED},
    {MR_HANDSHAKE_NONE, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_CLAIMED, MR_HANDSHAKE_LOAD, MR_HANDSHAKE_LOADING},
    {MR_HANDSHAKE_CLAIMED, MR_HANDSHAKE_LOADED, MR_HANDSHAKE_READY},
    {MR_HANDSHAKE_CLAIMED, MR_HANDSHAKE_LOSE, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_CLAIMED, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_LOADING, MR_HANDSHAKE_LOADED, MR_HANDSHAKE_READY},
    {MR_HANDSHAKE_LOADING, MR_HANDSHAKE_LOSE, MR_HANDSHAKE_OUTDATED},
    {MR_HANDSHAKE_LOADING, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_READY, MR_HANDSHAKE_OPENED, MR_HANDSHAKE_OPEN},
    {MR_HANDSHAKE_READY, MR_HANDSHAKE_LOSE, MR_HANDSHAKE_DETACHED},
    {MR_HANDSHAKE_READY, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_OPEN, MR_HANDSHAKE_LOSE, MR_HANDSHAKE_DETACHED},
    {MR_HANDSHAKE_OPEN, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_DETACHED, MR_HANDSHAKE_CLAIM, MR_HANDSHAKE_RECLAIMED},
    {MR_HANDSHAKE_DETACHED, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_RECLAIMED, MR_HANDSHAKE_OPENED, MR_HANDSHAKE_OPEN},
    {MR_HANDSHAKE_RECLAIMED, MR_HANDSHAKE_LOSE, MR_HANDSHAKE_DETACHED},
    {MR_HANDSHAKE_RECLAIMED, MR_HANDSHAKE_OUTDATE, MR_HANDSHAKE_OUTDATED},
    {MR_HANDSHAKE_RECLAIMED, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
    {MR_HANDSHAKE_OUTDATED, MR_HANDSHAKE_LOADED, MR_HANDSHAKE_OUTDATED},
    {MR_HANDSHAKE_OUTDATED, MR_HANDSHAKE_END, MR_HANDSHAKE_NONE},
};

static enum mr_handshake_state wanted(enum mr_handshake_state from, enum mr_handshake_event event)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(steps); i++) {
        if (steps[i].from == from && steps[i].event == event) {
            return steps[i].to;
        }
    }
    return MR_HANDSHAKE_STATES;
}

/* Takes a new handshake of session 7 there, by the shortest way. */
static struct mr_handshake reach(enum mr_handshake_state state)
{
    static const enum mr_handshake_event ways[MR_HANDSHAKE_STATES][6] = {
        [MR_HANDSHAKE_CLAIMED] = {1 + MR_HANDSHAKE_CLAIM},
        [MR_HANDSHAKE_LOADING] = {1 + MR_HANDSHAKE_CLAIM, 1 + MR_HANDSHAKE_LOAD},
        [MR_HANDSHAKE_READY] = {1 + MR_HANDSHAKE_CLAIM, 1 + MR_HANDSHAKE_LOADED},
        [MR_HANDSHAKE_OPEN] = {1 + MR_HANDSHAKE_CLAIM, 1 + MR_HANDSHAKE_LOADED,
                               1 + MR_HANDSHAKE_OPENED},
        [MR_HANDSHAKE_DETACHED] = {1 + MR_HANDSHAKE_LOADED},
        [MR_HANDSHAKE_RECLAIMED] = {1 + MR_HANDSHAKE_LOADED, 1 + MR_HANDSHAKE_CLAIM},
        [MR_HANDSHAKE_OUTDATED] = {1 + MR_HANDSHAKE_LOADED, 1 + MR_HANDSHAKE_CLAIM,
                                   1 + MR_HANDSHAKE_OUTDATE},
    };
    struct mr_handshake handshake = {0};
    uint32_t session = 0;
    while (session < 7) {
        assert_true(mr_handshake_step(&handshake, session++, MR_HANDSHAKE_END));
    }
    for (const enum mr_handshake_event *way = ways[state]; *way != 0; way++) {
        assert_true(mr_handshake_step(&handshake, session, *way - 1));
    }
    assert_int_equal(mr_handshake_look(&handshake).session, 7);
    assert_int_equal(mr_handshake_look(&handshake).state, state);
    return handshake;
}

static void assert_aborts(struct mr_handshake handshake, uint32_t session,
                          enum mr_handshake_event event)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        mr_handshake_step(&handshake, session, event);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_every_step(void **state)
{
    (void)state;
    for (int from = 0; from < MR_HANDSHAKE_STATES; from++) {
        for (int event = 0; event < MR_HANDSHAKE_EVENTS; event++) {
            struct mr_handshake handshake = reach((enum mr_handshake_state)from);
            enum mr_handshake_state to = wanted(from, event);
            assert_int_equal(mr_handshake_next(from, event), to);
            if (to == MR_HANDSHAKE_STATES) {
                assert_aborts(handshake, 7, event);
                continue;
            }
            assert_true(mr_handshake_step(&handshake, 7, event));
            struct mr_handshake_view now = mr_handshake_look(&handshake);
            assert_int_equal(now.state, to);
            assert_int_equal(now.session, event == MR_HANDSHAKE_END ? 8 : 7);
        }
    }
}

/* The source thread learns that its session is over; the sink thread must know. */
static void test_session_that_is_over(void **state)
{
    (void)state;
    for (int event = 0; event < MR_HANDSHAKE_EVENTS; event++) {
        struct mr_handshake handshake = reach(MR_HANDSHAKE_CLAIMED);
        if (event < MR_HANDSHAKE_LOAD) {
            assert_false(mr_handshake_step(&handshake, 6, event));
            assert_int_equal(mr_handshake_look(&handshake).state, MR_HANDSHAKE_CLAIMED);
        } else {
            assert_aborts(handshake, 6, event);
        }
    }
}

static void test_who_has_the_claim(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(steps); i++) {
        bool before = mr_handshake_is_claimed(steps[i].from);
        bool after = mr_handshake_is_claimed(steps[i].to);
        if (steps[i].event == MR_HANDSHAKE_CLAIM) {
            assert_true(!before && after);
        } else if (steps[i].event == MR_HANDSHAKE_LOSE || steps[i].event == MR_HANDSHAKE_OUTDATE) {
            assert_true(before && !after);
        } else if (steps[i].event != MR_HANDSHAKE_END) {
            assert_int_equal(before, after);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step),
        cmocka_unit_test(test_session_that_is_over),
        cmocka_unit_test(test_who_has_the_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
