#include "verify/schedule.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "testing/test.h"

#define S INT64_C(1000000000)

enum { DAY = 86400 };

static struct mr_schedule schedule_of(const char *names)
{
    struct mr_schedule schedule = {.interval_ns = DAY * S};
    char name[2] = {0};
    mr_schedule_list_begin(&schedule);
    for (; *names != '\0'; names++) {
        name[0] = *names;
        mr_schedule_list(&schedule, name, 100);
    }
    mr_schedule_list_end(&schedule);
    return schedule;
}

static void take(struct mr_schedule *schedule, const char *name, const char *cause, int64_t begun_s,
                 int64_t now_s)
{
    struct mr_scheduled proof = {.rows = 50, .lsn = 7};
    snprintf(proof.cause, sizeof(proof.cause), "%s", cause);
    mr_schedule_take(schedule, mr_schedule_find(schedule, name), &proof, begun_s * S, now_s * S);
}

/* Names of those that are due, in their order. */
static const char *due(const struct mr_schedule *schedule, int64_t now_s, uint32_t max)
{
    static char names[8];
    uint32_t numbers[8];
    uint32_t count = mr_schedule_due(schedule, now_s * S, numbers, max);
    assert_true(count <= max);
    for (uint32_t i = 0; i < count; i++) {
        names[i] = schedule->items[numbers[i]].name[0];
    }
    names[count] = '\0';
    return names;
}

static void test_due_is_what_has_waited_longest(void **state)
{
    (void)state;
    struct mr_schedule schedule = schedule_of("abc");
    assert_int_equal(strlen(due(&schedule, 1, 8)), 3);
    assert_int_equal(strlen(due(&schedule, 1, 2)), 2);
    take(&schedule, "b", "", 10, 20);
    take(&schedule, "a", "", 20, 30);
    assert_string_equal(due(&schedule, 40, 8), "c");
    take(&schedule, "c", "", 30, 40);
    assert_string_equal(due(&schedule, DAY / 2, 8), "");
    /* A tenth of the day before its end, and twice what they took. */
    assert_string_equal(due(&schedule, 10 + DAY - DAY / 10 - 20, 8), "b");
    assert_string_equal(due(&schedule, DAY, 8), "bac");
    assert_string_equal(due(&schedule, DAY, 2), "ba");
    mr_schedule_done(&schedule);
}

/* Each table comes first in some starts. */
static void test_the_first_ones_are_drawn(void **state)
{
    (void)state;
    uint32_t first[3] = {0};
    for (int i = 0; i < 200; i++) {
        struct mr_schedule schedule = schedule_of("abc");
        first[due(&schedule, 1, 1)[0] - 'a']++;
        mr_schedule_done(&schedule);
    }
    assert_true(first[0] > 20 && first[1] > 20 && first[2] > 20);
}

static void test_one_that_takes_long_has_half_of_the_time(void **state)
{
    (void)state;
    struct mr_schedule schedule = schedule_of("a");
    take(&schedule, "a", "", 0, DAY);
    assert_string_equal(due(&schedule, DAY / 2 - 1, 8), "");
    assert_string_equal(due(&schedule, DAY / 2, 8), "a");
    mr_schedule_done(&schedule);
}

static void test_what_could_not_be_proved_is_tried_again(void **state)
{
    (void)state;
    struct mr_schedule schedule = schedule_of("ab");
    take(&schedule, "a", "truncated", 100, 200);
    take(&schedule, "b", "unprovable", 100, 200);
    assert_string_equal(due(&schedule, 200 + DAY / 24 - 1, 8), "");
    assert_string_equal(due(&schedule, 200 + DAY / 24, 8), "a");
    const struct mr_scheduled *table = mr_schedule_find(&schedule, "a");
    assert_int_equal(table->proved_ns, 0);
    assert_string_equal(table->cause, "truncated");
    take(&schedule, "a", "", 300, 301);
    assert_int_equal(table->proved_ns, 300 * S);
    assert_string_equal(table->cause, "");
    /* What was proved before stays so. */
    take(&schedule, "a", "stream", 400, 401);
    assert_int_equal(table->proved_ns, 300 * S);
    assert_int_equal(table->lsn, 7);
    mr_schedule_done(&schedule);
    schedule = (struct mr_schedule){.interval_ns = 1};
    assert_int_equal(mr_schedule_retry_ns(&schedule), S);
}

static void test_tables_come_and_go(void **state)
{
    (void)state;
    struct mr_schedule schedule = schedule_of("abcd");
    take(&schedule, "c", "", 10, 20);
    mr_schedule_list_begin(&schedule);
    mr_schedule_list(&schedule, "e", 5);
    mr_schedule_list(&schedule, "c", 999);
    mr_schedule_list(&schedule, "b", 6);
    mr_schedule_list_end(&schedule);
    assert_int_equal(schedule.count, 3);
    assert_null(mr_schedule_find(&schedule, "a"));
    assert_null(mr_schedule_find(&schedule, "d"));
    assert_int_equal(mr_schedule_find(&schedule, "c")->proved_ns, 10 * S);
    assert_int_equal(mr_schedule_find(&schedule, "c")->rows, 50);
    assert_int_equal(mr_schedule_find(&schedule, "b")->rows, 6);
    assert_int_equal(mr_schedule_find(&schedule, "e")->rows, 5);
    mr_schedule_done(&schedule);
}

static void test_sum_and_percent(void **state)
{
    (void)state;
    struct mr_schedule schedule = schedule_of("");
    struct mr_schedule_sum sum = mr_schedule_sum(&schedule, S);
    assert_true(sum.tables == 0 && sum.oldest_ns == 0 && mr_schedule_percent(&sum) == 0);
    mr_schedule_done(&schedule);
    schedule = schedule_of("ab");
    take(&schedule, "a", "", 10, 20);
    mr_schedule_find(&schedule, "a")->unproved = 5;
    mr_schedule_find(&schedule, "a")->differences = 3;
    mr_schedule_find(&schedule, "b")->rows = 450;
    sum = mr_schedule_sum(&schedule, 20 * S);
    assert_true(sum.tables == 2 && sum.proved == 1 && sum.different == 1 && sum.differences == 3);
    assert_true(sum.rows == 500 && sum.rows_proved == 45 && sum.oldest_ns == 0);
    assert_true(mr_schedule_percent(&sum) == 9);
    take(&schedule, "b", "", 5, 6);
    sum = mr_schedule_sum(&schedule, 20 * S);
    assert_true(sum.oldest_ns == 5 * S && sum.void_now == 0);
    sum = mr_schedule_sum(&schedule, (DAY + 30) * S); /* too long ago */
    assert_true(sum.proved == 0 && mr_schedule_percent(&sum) == 0);
    /* Tables without rows count themselves. */
    mr_schedule_find(&schedule, "a")->rows = mr_schedule_find(&schedule, "b")->rows = 0;
    sum = mr_schedule_sum(&schedule, 20 * S);
    assert_true(mr_schedule_percent(&sum) == 100);
    mr_schedule_done(&schedule);
}

static void test_read(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        uint64_t differences, unproved;
        const char *cause;
    } cases[] = {
        {"{\"verdict\":\"equal\",\"cause\":\"\",\"rows\":9,\"lsn\":\"0/10\"}", 0, 0, ""},
        {"{\"verdict\":\"equal in part\",\"rows\":9,\"lsn\":\"0/10\",\"unknown\":2}", 0, 2, ""},
        {"{\"verdict\":\"equal in part\",\"rows\":9,\"lsn\":\"0/10\",\"missing\":2}", 0, 2, ""},
        {"{\"verdict\":\"different\",\"rows\":9,\"lsn\":\"0/10\",\"missing\":1,\"phantom\":2,"
         "\"stale\":3,\"altered\":4,\"unknown\":5}",
         10, 15, ""},
        {"{\"verdict\":\"different\",\"rows\":9,\"lsn\":\"0/10\",\"cause\":\"topic\"}", 1, 0, ""},
        {"{\"verdict\":\"no verdict\",\"rows\":9,\"lsn\":\"0/10\",\"cause\":\"truncated\"}", 0, 0,
         "truncated"},
        {"{\"verdict\":\"no verdict\",\"rows\":9,\"lsn\":\"0/10\",\"cause\":"
         "\"more_than_that_is_cut\"}",
         0, 0, "more_than_that_"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        cJSON *said = cJSON_Parse(cases[i].said);
        assert_non_null(said);
        struct mr_scheduled proof = mr_scheduled_read(said);
        assert_int_equal(proof.rows, 9);
        assert_int_equal(proof.lsn, 16);
        assert_int_equal(proof.differences, cases[i].differences);
        assert_int_equal(proof.unproved, cases[i].unproved);
        assert_string_equal(proof.cause, cases[i].cause);
        cJSON_Delete(said);
    }
    cJSON *wrong = cJSON_Parse("{\"rows\":-1,\"lsn\":5,\"verdict\":[]}");
    struct mr_scheduled proof = mr_scheduled_read(wrong);
    assert_true(proof.rows == 0 && proof.lsn == 0 && proof.differences == 0);
    cJSON_Delete(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_due_is_what_has_waited_longest),
        cmocka_unit_test(test_the_first_ones_are_drawn),
        cmocka_unit_test(test_one_that_takes_long_has_half_of_the_time),
        cmocka_unit_test(test_what_could_not_be_proved_is_tried_again),
        cmocka_unit_test(test_tables_come_and_go),
        cmocka_unit_test(test_sum_and_percent),
        cmocka_unit_test(test_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
