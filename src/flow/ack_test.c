#include "flow/ack.h"

#include "testing/test.h"

enum { OPEN = 5 };

static mr_lsn ack_test_lsn_of(uint64_t sequence)
{
    return sequence % 3 == 0 ? 0 : sequence * 100; /* every third ends no transaction */
}

/* What the window should say: the highest LSN of the longest complete prefix. */
static mr_lsn naive(const bool *done, uint64_t first, uint64_t next, mr_lsn before)
{
    for (uint64_t s = first; s < next && done[s]; s++) {
        before = ack_test_lsn_of(s) != 0 ? ack_test_lsn_of(s) : before;
    }
    return before;
}

static void check_order(const uint64_t *order)
{
    struct mr_ack ack;
    mr_ack_init(&ack, OPEN);
    bool done[OPEN + 2] = {false};
    for (uint64_t s = 1; s <= OPEN; s++) {
        mr_ack_add(&ack, s, ack_test_lsn_of(s), &(struct mr_commit){.lsn = ack_test_lsn_of(s) - 1},
                   0);
    }
    for (int i = 0; i < OPEN; i++) {
        mr_lsn before = ack.acknowledged;
        uint64_t oldest = ack.oldest;
        done[order[i]] = true;
        bool moved = mr_ack_complete(&ack, order[i]);
        assert_int_equal(ack.acknowledged, naive(done, 1, OPEN + 1, 0));
        assert_int_equal(ack.last.lsn, ack.acknowledged == 0 ? 0 : ack.acknowledged - 1);
        assert_int_equal(moved, ack.oldest != oldest);
        assert_true(ack.acknowledged >= before);
    }
    assert_int_equal(ack.oldest, OPEN + 1);
    mr_ack_done(&ack);
}

static void permute(uint64_t *order, int from)
{
    if (from == OPEN) {
        check_order(order);
        return;
    }
    for (int i = from; i < OPEN; i++) {
        uint64_t swap = order[from];
        order[from] = order[i];
        order[i] = swap;
        permute(order, from + 1);
        order[i] = order[from];
        order[from] = swap;
    }
}

static void test_complete_in_every_order(void **state)
{
    (void)state;
    uint64_t order[OPEN] = {1, 2, 3, 4, 5};
    permute(order, 0);
}

static void test_random_runs_against_the_naive_model(void **state)
{
    (void)state;
    enum { TOTAL = 5000 };
    static bool done[TOTAL + 2];
    struct mr_ack ack;
    mr_ack_init(&ack, 16);
    uint32_t random = 99;
    uint64_t next = 1;
    uint64_t oldest = 1;
    mr_lsn confirmed = 0;
    while (oldest <= TOTAL) {
        random = random * 1664525 + 1013904223;
        if (next <= TOTAL && next - oldest < 16 && (random >> 20) % 2 == 0) {
            mr_ack_add(&ack, next, ack_test_lsn_of(next), &(struct mr_commit){0}, 0);
            next++;
            continue;
        }
        if (next == oldest) {
            continue;
        }
        uint64_t pick = oldest + (random >> 16) % (next - oldest);
        if (done[pick]) {
            continue;
        }
        done[pick] = true;
        mr_ack_complete(&ack, pick);
        while (oldest < next && done[oldest]) {
            confirmed = ack_test_lsn_of(oldest) != 0 ? ack_test_lsn_of(oldest) : confirmed;
            oldest++;
        }
        assert_int_equal(ack.acknowledged, confirmed);
        assert_int_equal(ack.oldest, oldest);
    }
    mr_ack_done(&ack);
}

static void test_reset_forgets_what_is_open(void **state)
{
    (void)state;
    struct mr_ack ack;
    mr_ack_init(&ack, 4);
    mr_ack_add(&ack, 1, 100, &(struct mr_commit){0}, 0);
    mr_ack_add(&ack, 2, 200, &(struct mr_commit){0}, 0);
    assert_true(mr_ack_complete(&ack, 1));
    mr_ack_reset(&ack, 1);
    assert_int_equal(ack.acknowledged, 100);
    mr_ack_add(&ack, 1, 150, &(struct mr_commit){0}, 0);
    assert_true(mr_ack_complete(&ack, 1));
    assert_int_equal(ack.acknowledged, 150);
    mr_ack_done(&ack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete_in_every_order),
        cmocka_unit_test(test_random_runs_against_the_naive_model),
        cmocka_unit_test(test_reset_forgets_what_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
