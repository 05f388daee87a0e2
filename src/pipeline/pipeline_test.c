#include "pipeline/pipeline.h"

#include <poll.h>
#include <string.h>

#include "testing/stage.h"
#include "testing/test.h"

static bool received(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->received) >= count;
}

static bool skipped(const struct mr_stage *stage, long count)
{
    return mr_pipeline_stats(stage->pipeline).skipped >= (uint64_t)count;
}

static void test_orderly_stop_confirms_all(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), ROW("b"),   COMMIT(110),
                                           BEGIN(200), ROW("c"), COMMIT(210)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 210);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->told), 210);
}

/* Batches come home newest first; nothing may be confirmed before the oldest. */
static void test_confirmed_waits_for_the_oldest(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110),
                                           BEGIN(200), ROW("b"), COMMIT(210),
                                           BEGIN(300), ROW("c"), COMMIT(310)};
    atomic_store(&stage->release_from, 1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 3);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* One partition is stuck while the others move: batches come and go past the oldest one many times, as far as the
 * window reaches, and go on when it is home. */
static void test_one_stuck_batch_fills_the_window(void **state)
{
    struct mr_stage *stage = *state;
    enum { ROWS = 60, POOL = 4, WINDOW = 8 * POOL };
    static struct mr_step steps[ROWS + 2];
    steps[0] = (struct mr_step)BEGIN(100);
    for (int i = 1; i <= ROWS; i++) {
        steps[i] = (struct mr_step)ROW("x");
    }
    steps[ROWS + 1] = (struct mr_step)COMMIT(110);
    stage->options.batches = POOL;
    atomic_store(&stage->release_from, 1);
    mr_stage_start(stage, steps, ROWS + 2);
    mr_stage_wait(stage, received, POOL + 1);
    poll(NULL, 0, 50);
    assert_in_range(atomic_load(&stage->received), POOL + 1, WINDOW);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, ROWS);
}

static void test_keepalive_of_an_idle_server_is_confirmed(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {KEEPALIVE(500)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 500);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* A keepalive behind rows, or inside a transaction, says nothing that may be told yet. */
static void test_keepalive_waits_for_what_is_in_flight(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),     ROW("a"),    KEEPALIVE(105), ROW("b"),
                                           KEEPALIVE(106), COMMIT(110), KEEPALIVE(900)};
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 2);
    poll(NULL, 0, 250); /* two questions' worth of answers */
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 900);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* All that was sent of the transaction is delivered, but its rest is not sent yet. */
static void test_keepalive_inside_a_transaction_is_not_confirmed(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), KEEPALIVE(105), KEEPALIVE(106)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 1);
    poll(NULL, 0, 250); /* two questions' worth of answers */
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline); /* the transaction's end would never come */
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 0);
}

static void test_empty_pool_holds_the_source_back(void **state)
{
    struct mr_stage *stage = *state;
    static struct mr_step steps[43];
    steps[0] = (struct mr_step)BEGIN(100);
    for (int i = 1; i <= 40; i++) {
        static char big[40][700];
        memset(big[i - 1], 'x', sizeof(big[0]) - 1);
        steps[i] = (struct mr_step)ROW(big[i - 1]);
    }
    steps[41] = (struct mr_step)COMMIT(110);
    stage->options.batches = 2;
    stage->options.batch_bytes = 4096;
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, 42);
    mr_stage_wait(stage, received, 2);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->received), 2);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 110);
    assert_true(mr_pipeline_stats(stage->pipeline).backpressure_ns > 0);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, 40);
}

/* The source comes back and repeats a transaction from its beginning; nothing goes out twice. */
static void test_source_loss_repeats_nothing(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), ROW("b"),
                                           LOST,       ROW("c"), COMMIT(110)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->opens), 2);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped, 2);
}

/* Commits that are repeated while newer rows wait in a batch must not give that batch an older position. */
static void test_source_loss_takes_no_position_back(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"),    COMMIT(110), BEGIN(200),
                                           ROW("b"),   COMMIT(210), BEGIN(300),  ROW("c"),
                                           LOST,       ROW("d"),    COMMIT(310)};
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, skipped, 3);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c", "d"}, 4);
}

/* The sink fails with a transaction half out: everything since the confirmed position comes again, in
 * order, and nothing of it was confirmed in between. */
static void test_sink_failure_rewinds(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200),
                                           ROW("b"),   ROW("c"), COMMIT(210)};
    atomic_store(&stage->fail_after, 3);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 210);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(atomic_load(&stage->sessions), 2);
    int count = atomic_load(&stage->value_count);
    assert_true(count >= 4);
    assert_string_equal(stage->values[count - 2], "b");
    assert_string_equal(stage->values[count - 1], "c");
    assert_int_equal(mr_pipeline_stats(stage->pipeline).rebuilds, 1);
}

static void test_second_stop_ends_at_once(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110)};
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 1);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_DEADLINE);
    assert_int_equal(atomic_load(&stage->told), 0);
}

static void test_stop_reads_a_transaction_to_its_end(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),  ROW("a"),   ROW("b"), ROW("c"),
                                           COMMIT(110), BEGIN(200), ROW("d"), COMMIT(210)};
    stage->options.stop_after_events = 1; /* stops by itself once the first row is out */
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->told), 110);
}

static void test_large_change_grows_a_batch(void **state)
{
    struct mr_stage *stage = *state;
    static char large[20000];
    memset(large, 'x', sizeof(large) - 1);
    static struct mr_step steps[] = {BEGIN(100), ROW("a"), ROW(large), ROW("b"), COMMIT(110)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 3);
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_string_equal(stage->values[2], "b");
}

static void test_too_large_change_is_poison(void **state)
{
    struct mr_stage *stage = *state;
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct mr_step steps[] = {BEGIN(100), ROW(large), COMMIT(110)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_POISON);
    assert_non_null(strstr(stage->error.text, "pipeline.change_max"));
    assert_non_null(strstr(stage->error.text, "--skip-commit-lsn 0/64"));
    assert_int_equal(atomic_load(&stage->told), 0);
    assert_int_equal(atomic_load(&stage->opens), 3); /* tried three times, no more */
    assert_true(mr_pipeline_stats(stage->pipeline).poisoned);
}

/* It goes its way without its large value, and what is behind it comes. */
static void test_too_large_change_is_replaced(void **state)
{
    struct mr_stage *stage = *state;
    stage->encode_options.oversize = MR_OVERSIZE_PLACEHOLDER;
    mr_stage_renew_encoder(stage);
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct mr_step steps[] = {BEGIN(100), ROW("a"), ROW(large), ROW("b"), COMMIT(110)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 3);
    mr_stage_wait(stage, mr_stage_told, 110);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).oversize[MR_OVERSIZE_PLACEHOLDER], 1);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "u", "b"}, 3);
}

/* Exactly the transaction that is asked for is missing, and its end is confirmed as any other. */
static void test_skipped_transaction(void **state)
{
    struct mr_stage *stage = *state;
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct mr_step steps[] = {BEGIN(100), ROW("a"),    COMMIT(110), BEGIN(200), ROW("b"),
                                     ROW(large), COMMIT(210), BEGIN(300),  ROW("c"),   COMMIT(310)};
    stage->options.skip_commit_lsn = 200;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 310);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped_transactions, 1);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "c"}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_orderly_stop_confirms_all, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_confirmed_waits_for_the_oldest, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_one_stuck_batch_fills_the_window, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_of_an_idle_server_is_confirmed,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_inside_a_transaction_is_not_confirmed,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_waits_for_what_is_in_flight, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_empty_pool_holds_the_source_back, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_repeats_nothing, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_takes_no_position_back, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_sink_failure_rewinds, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_second_stop_ends_at_once, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stop_reads_a_transaction_to_its_end, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_large_change_grows_a_batch, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_too_large_change_is_poison, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_too_large_change_is_replaced, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_skipped_transaction, mr_stage_setup,
                                        mr_stage_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
