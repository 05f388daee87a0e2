/* Transactions are told once, and places in them are the same, whatever comes in between. */
#include <string.h>

#include "testing/stage.h"
#include "testing/test.h"

/* Two transactions, and what comes of them. */
static const struct mr_step both[] = {BEGIN(100),  ROW("a"),   ROW("b"), ROW("c"),
                                      COMMIT(110), BEGIN(200), ROW("d"), COMMIT(210)};
static const char *const whole[] = {"BEGIN", "1a", "2b", "3c", "3END", "BEGIN", "1d", "1END"};

static void transaction_test_start(struct mr_stage *stage, const struct mr_step *steps, int count)
{
    stage->encode_options.transaction_topic = "p.transaction";
    mr_stage_renew_encoder(stage);
    mr_stage_start(stage, steps, count);
}

static void finish(struct mr_stage *stage, mr_lsn lsn)
{
    mr_stage_wait(stage, mr_stage_told, (long)lsn);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

static void test_all_is_told(void **state)
{
    struct mr_stage *stage = *state;
    transaction_test_start(stage, both, MR_ARRAY_LEN(both));
    finish(stage, 210);
    mr_stage_assert_values(stage, whole, MR_ARRAY_LEN(whole));
}

/* Even one without a row, and one that skips what it has. */
static void test_no_event(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), COMMIT(110), BEGIN(200), ROW("a"),
                                           COMMIT(210)};
    stage->encode_options.skipped_operations = 1u << MR_OP_INSERT;
    transaction_test_start(stage, steps, MR_ARRAY_LEN(steps));
    finish(stage, 210);
    static const char *const want[] = {"BEGIN", "0END", "BEGIN", "0END"};
    mr_stage_assert_values(stage, want, MR_ARRAY_LEN(want));
}

static void test_source_loss(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),  ROW("a"),   ROW("b"), LOST,       ROW("c"),
                                           COMMIT(110), BEGIN(200), ROW("d"), COMMIT(210)};
    transaction_test_start(stage, steps, MR_ARRAY_LEN(steps));
    finish(stage, 210);
    mr_stage_assert_values(stage, whole, MR_ARRAY_LEN(whole));
    assert_int_equal(atomic_load(&stage->opens), 2);
}

/* Lost before its first row. */
static void test_source_loss_behind_begin(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),  LOST,       ROW("a"), ROW("b"),   ROW("c"),
                                           COMMIT(110), BEGIN(200), ROW("d"), COMMIT(210)};
    transaction_test_start(stage, steps, MR_ARRAY_LEN(steps));
    finish(stage, 210);
    mr_stage_assert_values(stage, whole, MR_ARRAY_LEN(whole));
}

/* The sink loses all that it has: BEGIN comes again with what comes again, from the same places
 * on. */
static void test_sink_failure(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->fail_after, 2);
    transaction_test_start(stage, both, MR_ARRAY_LEN(both));
    finish(stage, 210);
    assert_int_equal(atomic_load(&stage->sessions), 2);
    int count = atomic_load(&stage->value_count);
    int all = MR_ARRAY_LEN(whole);
    assert_true(count > all);
    for (int i = 0; i < all; i++) {
        assert_string_equal(stage->values[count - all + i], whole[i]);
    }
}

static void begin_behind(struct mr_stage *stage, uint64_t row)
{
    stage->sink.storage = MR_STORES_WITH;
    stage->stored_found = true;
    stage->stored =
        (struct mr_checkpoint){.end_lsn = 60, .position = {.commit_lsn = 100, .ordinal = row}};
    transaction_test_start(stage, both, MR_ARRAY_LEN(both));
    finish(stage, 210);
}

/* In exactly-once another process begins after a row. */
static void test_begins_inside(void **state)
{
    struct mr_stage *stage = *state;
    begin_behind(stage, 2);
    mr_stage_assert_values(stage, whole + 3, MR_ARRAY_LEN(whole) - 3);
}

/* All of its rows were stored, and its end was not. */
static void test_begins_behind_the_rows(void **state)
{
    struct mr_stage *stage = *state;
    begin_behind(stage, 3);
    mr_stage_assert_values(stage, whole + 4, MR_ARRAY_LEN(whole) - 4);
}

static void test_transaction_skipped_transaction(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(50),  ROW("x"), COMMIT(60), BEGIN(100),
                                           ROW("a"),   ROW("b"), ROW("c"),   COMMIT(110),
                                           BEGIN(200), ROW("d"), COMMIT(210)};
    stage->options.skip_commit_lsn = 50;
    transaction_test_start(stage, steps, MR_ARRAY_LEN(steps));
    finish(stage, 210);
    mr_stage_assert_values(stage, whole, MR_ARRAY_LEN(whole));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, mr_stage_setup, mr_stage_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_all_is_told),
        TEST(test_no_event),
        TEST(test_source_loss),
        TEST(test_source_loss_behind_begin),
        TEST(test_sink_failure),
        TEST(test_begins_inside),
        TEST(test_begins_behind_the_rows),
        TEST(test_transaction_skipped_transaction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
