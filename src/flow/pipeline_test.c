#include "flow/pipeline.h"

#include <poll.h>
#include <string.h>

#include "testing/stage.h"
#include "testing/test.h"

static bool received(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->received) >= count;
}

static bool pipeline_test_acknowledged(const struct mr_stage *stage, long count)
{
    return mr_pipeline_stats(stage->pipeline).records_acked >= (uint64_t)count;
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
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* One partition is stuck while the others move: batches come and go past the oldest one many times,
 * as far as the window reaches, and go on when it is home. */
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
    stage->options.idle_ms = 10000;
    atomic_store(&stage->release_from, 1);
    mr_stage_start(stage, steps, ROWS + 2);
    mr_stage_wait(stage, received, POOL + 1);
    mr_stage_wait_polls(stage, 20);
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

/* A keepalive after rows, or inside a transaction, says nothing that may be confirmed yet. */
static void test_keepalive_waits_for_what_is_in_flight(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),     ROW("a"),    KEEPALIVE(105), ROW("b"),
                                           KEEPALIVE(106), COMMIT(110), KEEPALIVE(900)};
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 2);
    mr_stage_wait_confirms(stage, 3);
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
    mr_stage_wait_confirms(stage, 3);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline); /* the transaction's end would never come */
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 0);
}

/* What came last before the server went away is delivered while it is away. */
static void test_rows_go_out_while_the_source_is_away(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), LOST};
    stage->claim_gate = 1;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    assert_int_equal(atomic_load(&stage->claims), 1);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a"}, 1);
}

/* A server that catches up says positions that are behind (docs/dev/protocol.md). */
static void test_what_is_received_does_not_go_back(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {PASSED(200), PASSED(150), BEGIN(300),
                                           ROW("a"),    GATE(1),     COMMIT(310)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).received_lsn, 200);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 310);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).received_lsn, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* Kafka is away, and what it has not acknowledged is a position: alone, it is not worth waiting
 * for; as the end of a transaction whose row is out, it is. */
static void stop_with_a_position_in_flight(struct mr_stage *stage, const struct mr_step *steps,
                                           int count, mr_status want)
{
    stage->options.shutdown_deadline_ms = 4000;
    mr_stage_start(stage, steps, count);
    mr_stage_wait(stage, mr_stage_delivered, 1);
    mr_stage_wait(stage, pipeline_test_acknowledged, 1);
    atomic_store(&stage->release_from, -1);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, received, 2);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), want);
}

static void test_stop_does_not_wait_for_a_position_alone(void **state)
{
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), GATE(1), PASSED(500)};
    stop_with_a_position_in_flight(*state, steps, MR_ARRAY_LEN(steps), MR_OK);
}

static void test_stop_waits_for_the_position_that_ends_rows(void **state)
{
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), GATE(1), COMMIT(110)};
    stop_with_a_position_in_flight(*state, steps, MR_ARRAY_LEN(steps), MR_ERR_DEADLINE);
}

/* Another instance has the stream, and this one's sink refuses for good: it does not wait for the
 * other one's end. */
static void test_refused_sink_ends_a_standby(void **state)
{
    struct mr_stage *stage = *state;
    stage->stands_by = true;
    stage->sink_is_refused = true;
    atomic_store(&stage->open_at_claims, 1);
    mr_stage_start(stage, NULL, 0);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_CONFIG);
    assert_string_equal(stage->error.text, "scripted refusal");
}

static bool stands_by_the_sink(const struct mr_stage *stage, long value)
{
    const struct mr_standstill *standstill = mr_pipeline_standstill(stage->pipeline);
    return mr_standstill_has(standstill, MR_CAUSE_SINK_FAILS) == (value != 0);
}

/* No row comes that could prove it: that nothing fails any more does. */
static void test_sink_that_failed_is_sound_on_a_quiet_server(void **state)
{
    struct mr_stage *stage = *state;
    stage->dead_sessions = 3;
    mr_stage_start(stage, NULL, 0);
    mr_stage_wait(stage, stands_by_the_sink, 1);
    mr_stage_wait(stage, stands_by_the_sink, 0);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* One transaction of 40 rows, and a sink that keeps the two batches there are. */
static void fill_the_pool(struct mr_stage *stage)
{
    static struct mr_step steps[42];
    steps[0] = (struct mr_step)BEGIN(100);
    for (int i = 1; i <= 40; i++) {
        static char big[40][700];
        memset(big[i - 1], 'x', sizeof(big[0]) - 1);
        steps[i] = (struct mr_step)ROW(big[i - 1]);
    }
    steps[41] = (struct mr_step)COMMIT(110);
    stage->options.batches = 2;
    stage->options.idle_ms = 10000;
    stage->options.batch_bytes = 4096;
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, 42);
    mr_stage_wait(stage, received, 2);
}

static void test_empty_pool_holds_the_source_back(void **state)
{
    struct mr_stage *stage = *state;
    fill_the_pool(stage);
    mr_stage_wait_held_back(stage, 20);
    assert_int_equal(atomic_load(&stage->received), 2);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 110);
    assert_true(mr_pipeline_stats(stage->pipeline).backpressure_ns > 0);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, 40);
}

/* Batches that were full, and so set out by themselves, are rows that may come twice. */
static void test_stop_says_that_full_batches_are_not_out(void **state)
{
    struct mr_stage *stage = *state;
    stage->options.shutdown_deadline_ms = 50;
    stage->options.latency_us = MR_STAGE_WAIT_S * 1000000; /* none sets out because it has waited */
    fill_the_pool(stage);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_DEADLINE);
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

/* Commits that are repeated while newer rows wait in a batch must not give that batch an older
 * position. */
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

/* The sink fails with a transaction half out: everything since the confirmed position comes again,
 * in order, and nothing of it was confirmed in between. */
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
    assert_int_equal(mr_pipeline_stats(stage->pipeline).sink.rebuilds, 1);
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
    assert_true(mr_standstill_has(mr_pipeline_standstill(stage->pipeline), MR_CAUSE_POISON));
}

/* It goes its way without its large value, and what is after it comes. */
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
static void test_pipeline_skipped_transaction(void **state)
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

static const struct mr_step messages_between[] = {
    MESSAGE(50),  BEGIN(50),    ROW("a"),   COMMIT(110), MESSAGE(150), MESSAGE(200),
    PASSED(200),  TOLD(200),    LOST,       BEGIN(200),  ROW("b"),     COMMIT(210),
    MESSAGE(230), MESSAGE(260), BEGIN(260), ROW("c"),    COMMIT(270)};

static void run_messages(struct mr_stage *stage, enum mr_sink_storage storage, uint32_t skipped_ops)
{
    stage->sink.storage = storage;
    stage->encode_options.skipped_operations = skipped_ops;
    mr_stage_renew_encoder(stage);
    mr_stage_start(stage, messages_between, MR_ARRAY_LEN(messages_between));
    mr_stage_wait(stage, mr_stage_told, 270);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(atomic_load(&stage->opens), 2);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
}

static void test_transaction_behind_a_message_comes(void **state)
{
    run_messages(*state, MR_STORES_NOTHING, 0);
}

static void test_transaction_behind_a_message_comes_stored_after(void **state)
{
    run_messages(*state, MR_STORES_AFTER, 0);
}

static void test_transaction_behind_a_message_comes_stored_with(void **state)
{
    run_messages(*state, MR_STORES_WITH, 0);
}

static void test_transaction_behind_a_skipped_message_comes(void **state)
{
    run_messages(*state, MR_STORES_AFTER, 1u << MR_OP_MESSAGE);
}

static bool pipeline_test_answered(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->answers) >= count;
}

static bool opened(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->opens) >= count;
}

static bool closed(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->closes) >= count;
}

static bool ended(const struct mr_stage *stage, long unused)
{
    (void)unused;
    return poll(&(struct pollfd){.fd = stage->done_fd, .events = POLLIN}, 1, 0) == 1;
}

/* Nothing happens there, and its answers say nothing new: many times as long as a silence would be
 * suffered. */
static void test_quiet_server_is_alive(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {PASSED(100)};
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, pipeline_test_answered, 20);
    assert_int_equal(atomic_load(&stage->opens), 1);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

static void test_silent_server_is_left(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {PASSED(100)};
    stage->silent = true;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, opened, 2);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_join(stage->pipeline, &stage->error);
}

/* All batches are with a sink that does not move, and a position waits for one: the source thread
 * sleeps. */
static void test_waiting_for_a_batch_burns_no_core(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(10), ROW("a"), PASSED(10), COMMIT(20),
                                           BEGIN(30), ROW("b"), PASSED(10), COMMIT(40),
                                           BEGIN(50), ROW("c"), PASSED(10), COMMIT(60)};
    stage->sink.storage = MR_STORES_AFTER;
    stage->options.batches = 3;
    stage->options.status_interval_ms = 50;
    stage->options.idle_ms = 1000;
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 2);
    mr_stage_wait_held_back(stage, 60);
    int before = atomic_load(&stage->receives);
    mr_stage_wait_held_back(stage, 300);
    assert_in_range(atomic_load(&stage->receives) - before, 1, 30);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 60);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
}

/* The sink has taken nothing for long: the server is free to stop until it takes something. */
static void test_server_is_left_alone_while_the_sink_stands(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), ROW("b"),   ROW("c"),
                                           ROW("d"),   ROW("e"), COMMIT(110)};
    stage->options.batches = 2;
    atomic_store(&stage->release_from, -1);
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, closed, 1);
    mr_stage_wait_held_back(stage, 100);
    assert_int_equal(atomic_load(&stage->opens), 1);
    atomic_store(&stage->release_from, 0);
    mr_stage_wait(stage, mr_stage_told, 110);
    assert_int_equal(atomic_load(&stage->opens), 2);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "c", "d", "e"}, 5);
}

/* The stop that --stop-after brings about waits for the end of a transaction; a person may shorten
 * it. */
static void test_second_stop_shortens_any_stop(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), PASSED(50)};
    stage->options.stop_after_events = 1;
    stage->options.shutdown_deadline_ms = 3600 * 1000;
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, received, 1);
    mr_stage_wait_confirms(stage, 3);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline);
    mr_stage_wait(stage, ended, 0);
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 0);
}

/* More records are refused in one transaction than are remembered one by one: it comes to an
 * end. */
static void test_many_refused_records(void **state)
{
    struct mr_stage *stage = *state;
    enum { ROWS = 150 };
    static struct mr_step steps[ROWS + 4];
    static char large[2600];
    memset(large, 'x', sizeof(large) - 1);
    int at = 0;
    steps[at++] = (struct mr_step)BEGIN(100);
    steps[at++] = (struct mr_step)ROW("a");
    while (at < ROWS + 2) {
        steps[at] = (struct mr_step)ROW(large + at);
        at++;
    }
    steps[at++] = (struct mr_step)ROW("b");
    steps[at++] = (struct mr_step)COMMIT(110);
    stage->refuse_from_bytes = 1200;
    stage->encode_options.oversize = MR_OVERSIZE_PLACEHOLDER;
    mr_stage_renew_encoder(stage);
    mr_stage_start(stage, steps, at);
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    /* One session for each that is remembered by itself, and a few more. */
    assert_in_range(atomic_load(&stage->sessions), 60, 75);
    assert_in_range(mr_pipeline_stats(stage->pipeline).oversize[MR_OVERSIZE_PLACEHOLDER], ROWS,
                    75 * ROWS);
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
        cmocka_unit_test_setup_teardown(test_stop_says_that_full_batches_are_not_out,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_repeats_nothing, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_takes_no_position_back, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_rows_go_out_while_the_source_is_away, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_received_does_not_go_back, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_sink_that_failed_is_sound_on_a_quiet_server,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_refused_sink_ends_a_standby, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stop_does_not_wait_for_a_position_alone,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits_for_the_position_that_ends_rows,
                                        mr_stage_setup, mr_stage_teardown),
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
        cmocka_unit_test_setup_teardown(test_pipeline_skipped_transaction, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_behind_a_message_comes, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_behind_a_message_comes_stored_after,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_behind_a_message_comes_stored_with,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_behind_a_skipped_message_comes,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_quiet_server_is_alive, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_silent_server_is_left, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_waiting_for_a_batch_burns_no_core, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_server_is_left_alone_while_the_sink_stands,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_second_stop_shortens_any_stop, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_many_refused_records, mr_stage_setup,
                                        mr_stage_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
