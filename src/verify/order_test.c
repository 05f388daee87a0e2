#include "verify/order.h"

#include <string.h>

#include "testing/test.h"

/* Positions of records, each a digit or a letter; a capital has another content than its small
 * letter. '|' is the next partition. */
static struct mr_order_counts order_of(const char *records)
{
    struct mr_order *order = mr_order_new(2);
    struct mr_fold_record record = {0};
    for (; *records != '\0'; records++) {
        if (*records == '|') {
            record.partition++;
            continue;
        }
        record.offset++;
        record.place.commit_lsn = 8 * (uint64_t)((uint8_t)*records | 0x20);
        mr_order_take(order, &record, (struct mr_digest){.low = (uint8_t)*records});
    }
    struct mr_order_counts counts = mr_order_end(order, 8 * 'z');
    mr_order_free(order);
    return counts;
}

static void test_take(void **state)
{
    (void)state;
    static const struct {
        const char *records;
        struct mr_order_counts want;
    } cases[] = {
        {"", {0}},
        {"abc|abc", {0}},
        {"abcbcd", {.repeats = 2}},
        {"abcabcabcd", {.repeats = 6}},
        {"abcababcd", {.repeats = 5}},
        {"abcc", {.repeats = 1}},
        {"abcBcd", {.repeats = 2, .unlike = 1}},
        {"acbcd", {.repeats = 2, .backwards = 1}},
        {"abcbd", {.repeats = 1, .broken = 1}},
        {"abcb", {.repeats = 1, .broken = 1}},
        {"abcdabde", {.repeats = 3, .broken = 1}},    /* the run leaves out c … */
        {"abcdeade", {.repeats = 3, .broken = 1}},    /* … or b and c */
        {"abcdabdbcde", {.repeats = 6, .broken = 1}}, /* a later run mends nothing */
        {"abcdabacd", {.repeats = 5, .broken = 1}},   /* the second run leaves out b */
        {"abcdacdae", {.repeats = 4, .broken = 2}},
        {"acegaegi", {.repeats = 3, .broken = 1}},
        {"abcdefbdf|ceg", {.repeats = 3, .elsewhere = 2}}, /* partitions were added */
        {"abc|bcab", {.repeats = 2, .elsewhere = 2}},
        {"abc|bcAbc", {.repeats = 3, .elsewhere = 1, .unlike = 1}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_order_counts got = order_of(cases[i].records);
        assert_memory_equal(&got, &cases[i].want, sizeof(got));
    }
}

/* The first fault is named. A copied row is not due. */
static void test_first_fault(void **state)
{
    (void)state;
    static const uint64_t places[] = {8, 16, 17, 24, 8, 16, 24, 16, 8, 24};
    struct mr_order *order = mr_order_new(3);
    struct mr_fold_record record = {.partition = 2};
    for (size_t i = 0; i < 7; i++) {
        record.place.commit_lsn = places[i];
        record.offset = (int64_t)i;
        mr_order_take(order, &record, (struct mr_digest){.low = 1});
    }
    assert_int_equal(mr_order_end(order, 24).broken, 0);
    assert_null(mr_order_first_fault(order).what);
    assert_int_equal(mr_order_first_repeat(order).offset, 4);
    for (size_t i = 7; i < MR_ARRAY_LEN(places); i++) {
        record.place.commit_lsn = places[i];
        record.offset = (int64_t)i;
        mr_order_take(order, &record, (struct mr_digest){.low = 1});
    }
    assert_int_equal(mr_order_end(order, 24).broken, 1);
    assert_int_equal(mr_order_first_fault(order).record.partition, 2);
    assert_int_equal(mr_order_first_fault(order).record.offset, 9);
    mr_order_free(order);
}

/* What was forgotten is not compared; what is remembered is. */
static void test_take_many(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    struct mr_order *order = mr_order_new(1);
    struct mr_fold_record record = {0};
    for (uint64_t i = 1; i <= MANY; i++) {
        record.place.order = 2 * i;
        mr_order_take(order, &record, (struct mr_digest){.low = i});
    }
    for (uint64_t i = 1; i <= MANY; i++) {
        record.place.order = 2 * i;
        mr_order_take(order, &record, (struct mr_digest){.low = i});
    }
    struct mr_order_counts counts = mr_order_end(order, 0);
    assert_int_equal(counts.repeats, MANY);
    assert_int_equal(counts.forgotten, MANY - 8192);
    assert_int_equal(counts.unlike + counts.backwards + counts.broken, 0);
    record.place.order = 2 * MANY - 1;
    mr_order_take(order, &record, (struct mr_digest){.low = 1});
    assert_int_equal(mr_order_end(order, 0).backwards, 1);
    record.place.commit_lsn = 7;
    record.offset++;
    mr_order_take(order, &record, (struct mr_digest){.low = 1});
    record.place.commit_lsn = 0;
    record.offset++;
    mr_order_take(order, &record, (struct mr_digest){.low = 1});
    assert_int_equal(mr_order_end(order, 6).broken, 1); /* the second may go on */
    assert_int_equal(mr_order_end(order, 7).broken, 2);
    assert_true(mr_order_has_begun(order, 0));
    mr_order_free(order);
    mr_order_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_first_fault),
        cmocka_unit_test(test_take_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
