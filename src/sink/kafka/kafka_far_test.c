#include "sink/kafka/kafka_far.h"

#include "testing/test.h"

enum { KIB = 1024 };
static const int64_t ms = 1000000;

static struct mr_far far_of(size_t near, size_t most)
{
    struct mr_far far;
    mr_far_init(&far, near * KIB, most * KIB, 1000 * KIB);
    far.settled = true;
    return far;
}

/* So many full requests in a row, each answered after `took_ms` and compressed to a part. */
static void kafka_far_test_answer(struct mr_far *far, int count, int64_t took_ms, size_t part)
{
    for (int i = 0; i < count; i++) {
        int64_t now_ns = far->since_ns + (i == 0 ? MR_FAR_WINDOW_MS + 1 : 0) * ms;
        mr_far_note(far, now_ns, took_ms * ms, mr_far_bytes(far) / part, true);
    }
}

static void test_the_first_answers_tell_no_distance(void **state)
{
    struct mr_far far;
    mr_far_init(&far, 512 * KIB, 8192 * KIB, 1000 * KIB);
    int64_t first_ns = (MR_FAR_WINDOW_MS + 1) * ms;
    mr_far_note(&far, first_ns, 100 * ms, KIB, true);
    mr_far_note(&far, first_ns + MR_FAR_SETTLED_MS * ms, 100 * ms, KIB, true);
    assert_int_equal(mr_far_times(&far), 1);
    mr_far_note(&far, first_ns + (MR_FAR_SETTLED_MS + 1) * ms, 100 * ms, KIB, true);
    assert_int_equal(mr_far_times(&far), 16);
}

static void test_times_follow_the_fastest_answer(void **state)
{
    static const struct {
        int64_t took_ms;
        uint32_t times;
    } cases[] = {{1, 1}, {7, 1}, {8, 2}, {20, 5}, {63, 15}, {100, 16}, {9000, 16}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_far far = far_of(512, 8192);
        assert_int_equal(mr_far_times(&far), 1); /* nothing is known */
        kafka_far_test_answer(&far, 1, cases[i].took_ms, 8);
        mr_far_note(&far, far.since_ns, 9000 * ms, 0, false);
        assert_int_equal(mr_far_times(&far), cases[i].times);
    }
}

static void test_a_distance_is_forgotten_after_two_windows(void **state)
{
    struct mr_far far = far_of(512, 8192);
    kafka_far_test_answer(&far, 1, 2, 8);
    kafka_far_test_answer(&far, 1, 100, 8);
    assert_int_equal(mr_far_times(&far), 1);
    kafka_far_test_answer(&far, 1, 100, 8);
    assert_int_equal(mr_far_times(&far), 16);
    kafka_far_test_answer(&far, 1, 2, 8);
    assert_int_equal(mr_far_times(&far), 1); /* near again: at once */
}

static void test_bytes_grow_with_the_distance(void **state)
{
    struct mr_far far = far_of(512, 8192);
    kafka_far_test_answer(&far, 20, 2, 100);
    assert_int_equal(mr_far_bytes(&far), 512 * KIB);
    far = far_of(512, 8192);
    kafka_far_test_answer(&far, 20, 20, 100);
    assert_int_equal(mr_far_bytes(&far), 5 * 512 * KIB);
    kafka_far_test_answer(&far, 20, 100, 100);
    kafka_far_test_answer(&far, 20, 100, 100);
    assert_int_equal(mr_far_bytes(&far), 8192 * KIB);
    kafka_far_test_answer(&far, 1, 2, 100);
    assert_int_equal(mr_far_bytes(&far), 512 * KIB);
    far = far_of(512, 0); /* no more than near ones */
    kafka_far_test_answer(&far, 20, 100, 100);
    assert_int_equal(mr_far_bytes(&far), 512 * KIB);
}

static void test_bytes_are_doubled_only_within_what_is_taken(void **state)
{
    struct mr_far far = far_of(512, 8192);
    kafka_far_test_answer(&far, 20, 100, 1); /* what does not compress */
    assert_int_equal(mr_far_bytes(&far), 512 * KIB);
    far = far_of(512, 8192);
    kafka_far_test_answer(&far, 20, 100, 3);
    assert_int_equal(mr_far_bytes(&far), 2048 * KIB);
    kafka_far_test_answer(
        &far, 1, 100,
        1); /* it compresses worse than it did, and may have been taken all the same */
    assert_int_equal(mr_far_bytes(&far), 1024 * KIB);
}

static void test_bytes_grow_by_full_requests_alone(void **state)
{
    struct mr_far far = far_of(512, 8192);
    for (int i = 0; i < 20; i++) {
        mr_far_note(&far, 1, 100 * ms, KIB, false);
    }
    assert_int_equal(mr_far_bytes(&far), 512 * KIB);
    mr_far_note(&far, 1, 100 * ms, KIB, true);
    assert_int_equal(mr_far_bytes(&far), 1024 * KIB);
}

/* A topic's limit is below sink.kafka.message_max. */
static void test_a_refused_size_is_not_tried_again(void **state)
{
    struct mr_far far = far_of(512, 8192);
    kafka_far_test_answer(&far, 20, 100, 9);
    assert_int_equal(mr_far_bytes(&far), 8192 * KIB);
    mr_far_refused(&far);
    kafka_far_test_answer(&far, 20, 100, 9);
    assert_int_equal(mr_far_bytes(&far), 512 * KIB); /* what was sent before counts for a while */
    kafka_far_test_answer(&far, 20, 100, 9);
    assert_int_equal(mr_far_bytes(&far), 4096 * KIB);
    mr_far_refused(&far);
    mr_far_refused(&far); /* at the size of near by */
    kafka_far_test_answer(&far, 20, 100, 9);
    kafka_far_test_answer(&far, 20, 100, 9);
    assert_int_equal(mr_far_bytes(&far), 256 * KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_answers_tell_no_distance),
        cmocka_unit_test(test_times_follow_the_fastest_answer),
        cmocka_unit_test(test_a_distance_is_forgotten_after_two_windows),
        cmocka_unit_test(test_bytes_grow_with_the_distance),
        cmocka_unit_test(test_bytes_are_doubled_only_within_what_is_taken),
        cmocka_unit_test(test_bytes_grow_by_full_requests_alone),
        cmocka_unit_test(test_a_refused_size_is_not_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
