/* A pipeline whose sink stores the position. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "flow/port.h"
#include "testing/stage.h"
#include "testing/test.h"

static bool stored_position_test_stored(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->stores) >= count;
}

/* Three rows were read; of the batches that hold them, the first `count` are home. */
static bool holds_waiting_batches_alone(const struct mr_stage *stage, long count)
{
    struct mr_pipeline_stats stats = mr_pipeline_stats(stage->pipeline);
    return stats.records == 3 && stats.in_flight_batches == 3 &&
           stats.memory.free_batches >= stats.memory.batches - (3 - (uint32_t)count) - 1;
}

static bool opened_sessions(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->sessions) >= count;
}

static void stop_in_order(struct mr_stage *stage)
{
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_false(stage->stored_went_back);
    assert_false(stage->loaded_unclaimed);
}

static void start_storing(struct mr_stage *stage, enum mr_sink_storage storage, mr_lsn end_lsn,
                          struct mr_position position, const struct mr_step *steps, int count)
{
    stage->sink.storage = storage;
    stage->stored_found = end_lsn != 0;
    stage->stored = (struct mr_checkpoint){.end_lsn = end_lsn, .position = position};
    mr_stage_start(stage, steps, count);
}

static const struct mr_step two_transactions[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200),
                                                  ROW("b"),   ROW("c"), COMMIT(210)};
#define TWO_TRANSACTIONS two_transactions, MR_ARRAY_LEN(two_transactions)
#define NO_POSITION      ((struct mr_position){0})

static void test_nothing_is_told_before_it_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, stored_position_test_stored, 1);
    mr_stage_wait(stage, mr_stage_delivered, 3);
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->told), 0);
    assert_true(mr_pipeline_stats(stage->pipeline).in_flight_batches > 0); /* else it were no lag */
    atomic_store(&stage->hold_store, false);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
    assert_int_equal(stage->stored.position.commit_lsn, 0); /* whole transactions only */
}

/* The stop comes while something is being stored: it ends when that, and what came after it, is
 * safe. */
static void test_stop_waits_for_what_is_being_stored(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, stored_position_test_stored, 1);
    mr_stage_wait(stage, mr_stage_delivered, 3);
    mr_pipeline_stop(stage->pipeline);
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->hold_store, false);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(atomic_load(&stage->told), 210);
    assert_int_equal(stage->stored.end_lsn, 210);
}

/* A second session begins while the first one's position is under way: it reads what became of
 * it. */
static void test_session_lost_while_storing(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    atomic_store(&stage->fail_after, 2);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, opened_sessions, 2);
    atomic_store(&stage->hold_store, false);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
}

static void test_begins_where_it_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    start_storing(stage, MR_STORES_AFTER, 110, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"b", "c"}, 2);
    assert_int_equal(stage->known.end_lsn, 110); /* and the server was compared with it */
}

/* The position names the last whole transaction that has rows: not one that is under way, nor what
 * a keepalive says. */
static void test_last_transaction_goes_with_the_position(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"),       COMMIT(110), BEGIN(200),
                                           ROW("b"),   COMMIT(210),    BEGIN(300),  COMMIT(310),
                                           GATE(1),    KEEPALIVE(400), BEGIN(500),  ROW("c")};
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 310);
    assert_int_equal(stage->stored.last.lsn, 200);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 400);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(stage->stored.end_lsn, 400);
    assert_int_equal(stage->stored.last.lsn, 200);
    assert_int_equal(stage->stored.last.xid, 200);
}

/* Stored by the run before, and known to the source when the stream goes on, also on the next
 * connection. */
static void test_last_transaction_is_known_at_each_start(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"),   COMMIT(110), TOLD(110),
                                           LOST,       BEGIN(200), ROW("b"),    COMMIT(210)};
    start_storing(stage, MR_STORES_AFTER, 90, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->known.end_lsn, 110);
    assert_int_equal(stage->known.last.lsn, 100);
}

/* A start must not ask again for what the server can't send. */
static void test_no_last_transaction_before_one_that_is_not_sent(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100),  ROW("a"),       COMMIT(110),
                                           UNSENT(200), KEEPALIVE(250), GATE(1),
                                           BEGIN(300),  ROW("b"),       COMMIT(310)};
    stage->options.skip_commit_lsn = 200;
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 250);
    pthread_mutex_lock(&stage->lock);
    assert_int_equal(stage->stored.last.lsn, 0);
    pthread_mutex_unlock(&stage->lock);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 310);
    stop_in_order(stage);
    assert_int_equal(stage->stored.last.lsn, 300);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b"}, 2);
}

static void test_begins_inside_a_transaction(void **state)
{
    struct mr_stage *stage = *state;
    start_storing(stage, MR_STORES_WITH, 110, (struct mr_position){200, 1}, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"c"}, 1);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped, 1);
}

/* Each group of batches is one transaction with the position after its last change; nothing of it
 * counts before. */
static void test_position_goes_with_the_events(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200), ROW("b")};
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_delivered, 2);
    mr_stage_wait(stage, mr_stage_told, 110);
    mr_stage_wait_confirms(stage, 3);
    pthread_mutex_lock(&stage->lock);
    assert_int_equal(stage->stored.end_lsn, 110);
    assert_int_equal(stage->stored.last.lsn, 100);
    assert_int_equal(stage->stored.position.commit_lsn, 200);
    assert_int_equal(stage->stored.position.ordinal, 1);
    pthread_mutex_unlock(&stage->lock);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline); /* the transaction's end would never come */
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 110);
}

/* The memory of a transaction's batches comes home before its end, and nothing of it counts yet. */
static void test_batches_come_home_before_the_end(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, stored_position_test_stored, 1);
    uint32_t first = (uint32_t)atomic_load(&stage->received); /* the others wait in the ring */
    mr_stage_wait(stage, holds_waiting_batches_alone, first);
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->told), 0);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, 0);
    assert_int_equal(atomic_load(&stage->received), first); /* one transaction at a time */
    atomic_store(&stage->hold_store, false);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, 3);
}

/* A session that fails with a transaction open whose batches are home: all of it is read again. */
static void test_session_lost_in_a_transaction(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->fail_after, 2);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, opened_sessions, 2);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).memory.free_batches,
                     stage->options.batches);
}

/* Two transactions, the second one when the test lets it come. */
static const struct mr_step one_and_one[] = {BEGIN(100), ROW("a"), COMMIT(110), GATE(1),
                                             BEGIN(200), ROW("b"), COMMIT(210)};

/* A broker that goes away takes a transaction with it that it had committed: it comes again, and
 * PostgreSQL still has it. */
static void test_committed_transaction_that_goes_with_the_broker(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_proof, true);
    stage->unsettles = true;
    atomic_store(&stage->fail_after, 2);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, one_and_one, MR_ARRAY_LEN(one_and_one));
    mr_stage_wait(stage, stored_position_test_stored, 1);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, opened_sessions, 2);
    atomic_store(&stage->hold_proof, false);
    mr_stage_wait(stage, mr_stage_told, 210);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    /* Sent in between, perhaps with what follows, to give up what may be open of it. */
    assert_int_equal(atomic_load(&stage->sessions), 3);
    int count = atomic_load(&stage->value_count);
    assert_in_range(count, 4, 5);
    assert_string_equal(stage->values[1], "a");
    assert_string_equal(stage->values[count - 2], "a");
    assert_string_equal(stage->values[count - 1], "b");
    assert_int_equal(stage->stored.end_lsn, 210);
}

/* What Kafka had left half ended is sent in a transaction that is given up, and then in one that is
 * not. */
static void test_half_ended_transaction_is_given_up(void **state)
{
    struct mr_stage *stage = *state;
    stage->sink.is_half_ended = true;
    stage->sink.half_ended = (struct mr_position){100, 1};
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, one_and_one, MR_ARRAY_LEN(one_and_one));
    mr_stage_wait(stage, mr_stage_told, 110);
    assert_int_equal(atomic_load(&stage->sessions), 2);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"a", "a", "b"}, 3);
}

/* All of it, however long that takes. */
static void test_half_ended_transaction_that_comes_late(void **state)
{
    struct mr_stage *stage = *state;
    stage->sink.is_half_ended = true;
    stage->sink.half_ended = (struct mr_position){200, 1};
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, one_and_one, MR_ARRAY_LEN(one_and_one));
    mr_stage_wait(stage, mr_stage_delivered, 1);
    mr_stage_wait_polls(stage, 50);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b", "a", "b"}, 4);
}

/* It may hold what does not come any more: the stream has passed it then. */
static void test_half_ended_transaction_that_does_not_come(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), PASSED(310)};
    stage->sink.is_half_ended = true;
    stage->sink.half_ended = (struct mr_position){300, 1};
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 310);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->sessions), 2);
    mr_stage_assert_values(stage, (const char *const[]){"a", "a"}, 2);
}

/* One that holds nothing behind what is stored needs none of what comes. */
static void test_half_ended_transaction_that_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    stage->sink.is_half_ended = true;
    stage->sink.half_ended = (struct mr_position){200, 1};
    start_storing(stage, MR_STORES_WITH, 110, (struct mr_position){200, 1}, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->sessions), 2);
    /* The first session may have sent it too, in the transaction that ended with it. */
    int count = atomic_load(&stage->value_count);
    assert_in_range(count, 1, 2);
    mr_stage_assert_values(stage, (const char *const[]){"c", "c"}, count);
}

static void count_went_back(void *context, enum mr_log_level level, const char *event,
                            const char *sentence, const struct mr_log_field *fields)
{
    (void)level, (void)sentence, (void)fields;
    *(int *)context += strcmp(event, "stored_went_back") == 0;
}

/* Kafka keeps less than what was settled. PostgreSQL does not have it any more: the stream goes on,
 * and the log names the place. */
static void test_stored_position_that_went_back(void **state)
{
    struct mr_stage *stage = *state;
    int told = 0;
    mr_log_observe(count_went_back, &told);
    atomic_store(&stage->fail_after, 2);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, one_and_one, MR_ARRAY_LEN(one_and_one));
    mr_stage_wait(stage, mr_stage_told, 110);
    pthread_mutex_lock(&stage->lock);
    stage->stored.end_lsn = 50;
    stage->stored.last.lsn = 40;
    stage->stored.position = (struct mr_position){40, 1};
    pthread_mutex_unlock(&stage->lock);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"a", "b"}, 2);
    mr_log_observe(NULL, NULL);
    assert_int_equal(told, 1);
}

static bool stored_position_test_acknowledged(const struct mr_stage *stage, long lsn)
{
    return (long)mr_pipeline_stats(stage->pipeline).acknowledged_lsn >= lsn;
}

/* A commit is no proof. */
static void test_committed_transaction_is_proved_before_it_is_told(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_proof, true);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, one_and_one, MR_ARRAY_LEN(one_and_one));
    mr_stage_wait(stage, stored_position_test_stored, 1);
    atomic_store(&stage->gates_open, 1);
    mr_stage_wait(stage, stored_position_test_stored, 2);
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).stored_lsn, 0);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->hold_proof, false);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
}

/* A stop waits for the proof for a moment; all is delivered without it. */
static void test_stop_without_a_proof(void **state)
{
    struct mr_stage *stage = *state;
    atomic_store(&stage->hold_proof, true);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, stored_position_test_acknowledged, 210);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->told), 0);
    assert_int_equal(stage->stored.end_lsn, 210);
}

/* One without rows, too: the slot must not be ahead of what is stored if it goes. */
static void test_transaction_without_rows_is_proved(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {KEEPALIVE(500)};
    atomic_store(&stage->hold_proof, true);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, stored_position_test_stored, 1);
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->hold_proof, false);
    mr_stage_wait(stage, mr_stage_told, 500);
    stop_in_order(stage);
}

static void test_idle_position_is_stored(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {KEEPALIVE(500)};
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 500);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 500);
}

/* The slot was told less than what is stored, so the server begins further back and says so. */
static void test_keepalive_takes_no_stored_position_back(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {KEEPALIVE(200), KEEPALIVE(250), BEGIN(400),
                                           ROW("a"),       COMMIT(410),    KEEPALIVE(300)};
    start_storing(stage, MR_STORES_AFTER, 300, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 410);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 410);
}

/* What looks like a gap after the claim was lost may be another instance's progress: it is read
 * again, once. */
static void test_lost_claim_reads_the_position_anew(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), LOST,
                                           BEGIN(200), ROW("b"), COMMIT(210)};
    atomic_store(&stage->refuse_from, 2);
    atomic_store(&stage->refuse_to, 3);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->sessions), 2);
}

/* The first connection ends as soon as it has the claim: readable as ever, and ended. */
static void let_first_claim_die(struct mr_stage *stage, int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[1]);
    stage->dead_fd = ends[0];
    stage->dying_claims = 1;
}

/* That happens while a sink that is slow to open has the thread: the claim is made again before
 * anything is read. */
static void test_claim_that_dies_waiting(void **state)
{
    struct mr_stage *stage = *state;
    int ends[2];
    let_first_claim_die(stage, ends);
    atomic_store(&stage->open_at_claims, 2);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->claims), 2);
    assert_int_equal(atomic_load(&stage->sessions), 1);
    close(ends[0]);
}

/* It happens while the position is read: another instance may be storing. The session goes, and all
 * is read again. */
static void test_claim_that_dies_while_loading(void **state)
{
    struct mr_stage *stage = *state;
    int ends[2];
    let_first_claim_die(stage, ends);
    atomic_store(&stage->load_at_closes, 1);
    start_storing(stage, MR_STORES_AFTER, 110, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    assert_in_range(atomic_load(&stage->sessions), 1, 2); /* 1: it died before the reading began */
    mr_stage_assert_values(stage, (const char *const[]){"b", "c"}, 2);
    close(ends[0]);
}

/* Another program has delivered the first transaction, and of the second one the first row. */
static const struct mr_handed_over handed_over = {.end_lsn = 110, .lsn = 190, .xid = 200};

static void test_goes_on_where_another_program_was(void **state)
{
    static const struct mr_step lost_inside[] = {
        BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200), ROW("b"), {.kind = MR_STEP_LOST},
        ROW("c"),   ROW("d"), COMMIT(210), BEGIN(300), ROW("e"), COMMIT(310)};
    struct mr_stage *stage = *state;
    stage->options.handed_over = handed_over;
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, lost_inside, MR_ARRAY_LEN(lost_inside));
    mr_stage_wait(stage, mr_stage_told, 310);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"c", "d", "e"}, 3);
}

static void test_own_position_counts_more_than_another_programs(void **state)
{
    struct mr_stage *stage = *state;
    stage->options.handed_over = handed_over;
    start_storing(stage, MR_STORES_AFTER, 110, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"b", "c"}, 2);
}

static void test_another_transaction_is_not_taken_for_the_one_handed_over(void **state)
{
    struct mr_stage *stage = *state;
    stage->options.handed_over = handed_over;
    stage->options.handed_over.xid = 201;
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    stop_in_order(stage);
    mr_stage_assert_values(stage, (const char *const[]){"b", "c"}, 2);
}

/* Nothing happens; what is stored is stored again all the same, so that it stays what was stored
 * last. */
static void test_quiet_position_is_stored_anew(void **state)
{
    struct mr_stage *stage = *state;
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    mr_stage_wait(stage, stored_position_test_stored, atomic_load(&stage->stores) + 3);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
}

/* Has something to be stored that no row brings along. */
static struct debtor {
    struct mr_companion base;
    _Atomic bool owes;
} debtor;

static bool debtor_owes(const struct mr_companion *companion)
{
    return atomic_load(&((const struct debtor *)companion)->owes);
}

static mr_status debtor_between(struct mr_companion *companion)
{
    atomic_store(&companion->wants, false);
    (void)mr_port_note(companion->port->stream);
    return MR_OK;
}

static void debtor_section(struct mr_companion *companion, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint)
{
    (void)reach;
    (void)checkpoint;
    atomic_store(&((struct debtor *)companion)->owes, false);
}

static void test_what_is_owed_is_stored(void **state)
{
    static const struct mr_companion_ops ops = {.name = "debtor",
                                                .owes = debtor_owes,
                                                .between = debtor_between,
                                                .section = debtor_section};
    static struct mr_companion *companions[] = {&debtor.base};
    struct mr_stage *stage = *state;
    debtor = (struct debtor){.base.ops = &ops};
    stage->options.companions = companions;
    stage->options.companion_count = 1;
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    mr_stage_wait(stage, mr_stage_told, 210);
    long stores = atomic_load(&stage->stores);
    atomic_store(&debtor.owes, true);
    mr_stage_wait(stage, stored_position_test_stored, stores + 1);
    assert_false(atomic_load(&debtor.owes));
    mr_stage_wait_confirms(stage, 3);
    assert_int_equal(atomic_load(&stage->stores), stores + 1); /* once */
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
}

static void test_gap_ends_it(void **state)
{
    struct mr_stage *stage = *state;
    static const struct mr_step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), LOST};
    atomic_store(&stage->refuse_from, 2);
    atomic_store(&stage->refuse_to, 1000);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_HISTORY);
    assert_int_equal(atomic_load(&stage->sessions), 2); /* asked once more, not for ever */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_told_before_it_is_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits_for_what_is_being_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_session_lost_while_storing, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_begins_where_it_is_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_last_transaction_goes_with_the_position,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_last_transaction_is_known_at_each_start,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_no_last_transaction_before_one_that_is_not_sent,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_begins_inside_a_transaction, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_position_goes_with_the_events, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_batches_come_home_before_the_end, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_session_lost_in_a_transaction, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_committed_transaction_that_goes_with_the_broker,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stored_position_that_went_back, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_half_ended_transaction_is_given_up, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_half_ended_transaction_that_comes_late, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_half_ended_transaction_that_does_not_come,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_half_ended_transaction_that_is_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_committed_transaction_is_proved_before_it_is_told,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_stop_without_a_proof, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_without_rows_is_proved, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_idle_position_is_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_takes_no_stored_position_back,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_lost_claim_reads_the_position_anew, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_claim_that_dies_waiting, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_quiet_position_is_stored_anew, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_claim_that_dies_while_loading, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_goes_on_where_another_program_was, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_own_position_counts_more_than_another_programs,
                                        mr_stage_setup, mr_stage_teardown),
        cmocka_unit_test_setup_teardown(
            test_another_transaction_is_not_taken_for_the_one_handed_over, mr_stage_setup,
            mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_owed_is_stored, mr_stage_setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_gap_ends_it, mr_stage_setup, mr_stage_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
