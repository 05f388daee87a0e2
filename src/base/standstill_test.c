#include "base/standstill.h"

#include <string.h>

#include "base/clock.h"
#include "testing/test.h"

static enum mr_cause cause_of(struct mr_standstill *standstill)
{
    struct mr_standstill_view view;
    mr_standstill_look(standstill, &view);
    return view.cause;
}

/* So that the next one begins later. */
static void let_time_pass(void)
{
    int64_t before_ns = mr_monotonic_ns();
    while (mr_monotonic_ns() == before_ns) {
    }
}

static void test_the_first_cause_counts_until_it_is_gone(void **state)
{
    (void)state;
    struct mr_standstill standstill = {0};
    mr_standstill_init(&standstill);
    assert_int_equal(cause_of(&standstill), MR_CAUSE_NONE);
    mr_standstill_begin(&standstill, MR_CAUSE_TOPIC_MISSING, "one");
    struct mr_standstill_view first, view;
    mr_standstill_look(&standstill, &first);
    let_time_pass();
    mr_standstill_begin(&standstill, MR_CAUSE_POSTGRESQL_AWAY, "two");
    /* Tried again in vain: the words are newer, the beginning is not. */
    mr_standstill_begin(&standstill, MR_CAUSE_TOPIC_MISSING, "one, again");
    mr_standstill_look(&standstill, &view);
    assert_int_equal(view.cause, MR_CAUSE_TOPIC_MISSING);
    assert_string_equal(view.text, "one, again");
    assert_true(view.since_ns == first.since_ns && view.postgresql_away);
    mr_standstill_end(&standstill, MR_CAUSE_TOPIC_MISSING);
    assert_int_equal(cause_of(&standstill), MR_CAUSE_POSTGRESQL_AWAY);
    mr_standstill_end(&standstill, MR_CAUSE_POSTGRESQL_AWAY);
    mr_standstill_end(&standstill, MR_CAUSE_POSTGRESQL_AWAY);
    mr_standstill_look(&standstill, &view);
    assert_true(view.cause == MR_CAUSE_NONE && view.text[0] == '\0' && !view.postgresql_away);
    mr_standstill_done(&standstill);
}

static void test_who_says_more_counts_before_silence(void **state)
{
    (void)state;
    struct mr_standstill standstill = {0};
    mr_standstill_init(&standstill);
    mr_standstill_begin(&standstill, MR_CAUSE_SINK_SILENT, "");
    let_time_pass();
    mr_standstill_begin(&standstill, MR_CAUSE_POSTGRESQL_AWAY, "");
    assert_int_equal(cause_of(&standstill), MR_CAUSE_SINK_SILENT);
    mr_standstill_end(&standstill, MR_CAUSE_POSTGRESQL_AWAY);
    let_time_pass();
    mr_standstill_begin(&standstill, MR_CAUSE_KAFKA_AWAY, "");
    assert_int_equal(cause_of(&standstill), MR_CAUSE_KAFKA_AWAY);
    mr_standstill_done(&standstill);
}

static void test_what_ends_millrace_counts_first(void **state)
{
    (void)state;
    struct mr_standstill standstill = {0};
    mr_standstill_init(&standstill);
    mr_standstill_begin(&standstill, MR_CAUSE_KAFKA_AWAY, "");
    let_time_pass();
    mr_standstill_begin(&standstill, MR_CAUSE_POISON, "");
    assert_int_equal(cause_of(&standstill), MR_CAUSE_POISON);
    mr_standstill_begin(&standstill, MR_CAUSE_ENDED, "");
    assert_int_equal(cause_of(&standstill), MR_CAUSE_ENDED);
    mr_standstill_done(&standstill);
}

static void test_nobody_wants_to_know(void **state)
{
    (void)state;
    mr_standstill_begin(NULL, MR_CAUSE_KAFKA_AWAY, "");
    mr_standstill_end(NULL, MR_CAUSE_KAFKA_AWAY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_cause_counts_until_it_is_gone),
        cmocka_unit_test(test_who_says_more_counts_before_silence),
        cmocka_unit_test(test_what_ends_millrace_counts_first),
        cmocka_unit_test(test_nobody_wants_to_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
