#include "pipeline/pipeline.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing/test.h"

/* A source that plays a script from the position it is opened at, and a sink that answers when it is told
 * to: the pipeline between them is the real one, with its threads. */

enum step_kind { STEP_ROW, STEP_BEGIN, STEP_COMMIT, STEP_KEEPALIVE, STEP_LOST };

struct step {
    enum step_kind kind;
    mr_lsn lsn;    /* begin: commit LSN; commit: end LSN; keepalive: server's end */
    const char *v; /* row: its value */
};

enum { RECORDS_MAX = 64, WAIT_S = 20 };

struct stage {
    struct mr_source source;
    struct mr_sink sink;
    const struct step *steps;
    int step_count;
    int at;
    bool in_transaction;
    struct mr_transaction transaction;
    uint64_t ordinal;
    struct mr_column column;
    struct mr_relation relation;
    bool lost_once; /* STEP_LOST happens at the first pass only */
    _Atomic mr_lsn told;
    _Atomic int opens;

    mr_sink_done_fn done;
    void *done_context;
    struct mr_batch *held[RECORDS_MAX];
    int held_count;
    _Atomic int received; /* batches the sink has */
    _Atomic int
        release_from; /* holds batches until told: -1 keeps all, n gives back the n-th and later */
    _Atomic int fail_after; /* the session fails when so many batches have come; 0: never */
    _Atomic int sessions;
    bool ending; /* the position of what is held is stored with it: it comes home */
    pthread_mutex_t lock;
    char values[RECORDS_MAX][16]; /* delivered, in order of sending */
    _Atomic int value_count;

    /* Of a sink that stores the position; under `lock`. */
    struct mr_checkpoint stored;
    bool stored_found;
    bool stored_went_back;
    struct mr_checkpoint known; /* what the source was opened with last */
    _Atomic int stores;
    _Atomic bool hold_store; /* what is stored is not safe yet */
    _Atomic int claims;
    _Atomic int open_at_claims; /* the sink's session begins only after so many */
    bool loaded_unclaimed;      /* what a stranger goes on storing says nothing */
    _Atomic int
        refuse_from; /* from this open on the source speaks of a gap, until `refuse_to`; 0: never */
    _Atomic int refuse_to;

    int fd; /* always readable: the script never waits */
    struct mr_topics topics;
    struct mr_encode_options encode_options;
    struct mr_encoder *encoder;
    struct mr_pipeline_options options;
    struct mr_pipeline *pipeline;
    int done_fd;
    struct mr_error error;
};

static struct stage *of_source(const struct mr_source *source)
{
    return (struct stage *)(uintptr_t)source;
}

static struct stage *of_sink(const struct mr_sink *sink)
{
    return (struct stage *)((uintptr_t)sink - offsetof(struct stage, sink));
}

/* ---- the source ---- */

static mr_status script_open(struct mr_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *error)
{
    (void)stop_fd;
    (void)ret_identity;
    struct stage *stage = of_source(source);
    stage->at = 0;
    stage->in_transaction = false;
    stage->known = stored != NULL ? *stored : (struct mr_checkpoint){0};
    int opens = atomic_fetch_add(&stage->opens, 1) + 1;
    int from = atomic_load(&stage->refuse_from);
    if (from != 0 && opens >= from && opens < atomic_load(&stage->refuse_to)) {
        return mr_fail(error, MR_ERR_HISTORY, "scripted gap");
    }
    /* As the server does: transactions that end at or before the start are not sent. */
    for (int i = 0; i < stage->step_count; i++) {
        if (stage->steps[i].kind == STEP_COMMIT && stage->steps[i].lsn <= start) {
            stage->at = i + 1;
        }
    }
    return MR_OK;
}

static mr_status script_claim(struct mr_source *source, int stop_fd, struct mr_error *error)
{
    (void)stop_fd;
    (void)error;
    poll(NULL, 0, 5); /* who does not wait for it is ahead */
    atomic_fetch_add(&of_source(source)->claims, 1);
    return MR_OK;
}

static mr_status play(struct stage *stage, const struct step *step,
                      const struct mr_source_handler *handler, struct mr_error *error)
{
    struct mr_datum value = {.kind = MR_DATUM_TEXT};
    switch (step->kind) {
    case STEP_BEGIN:
        stage->transaction = (struct mr_transaction){.commit_lsn = step->lsn, .xid = 1};
        stage->ordinal = 0;
        handler->begin(handler->context, &stage->transaction);
        return MR_OK;
    case STEP_COMMIT:
        stage->transaction.end_lsn = step->lsn;
        handler->commit(handler->context, &stage->transaction);
        return MR_OK;
    case STEP_KEEPALIVE:
        handler->keepalive(handler->context, step->lsn, true);
        return MR_OK;
    case STEP_LOST:
        if (stage->lost_once) {
            return MR_OK;
        }
        stage->lost_once = true;
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted loss");
    case STEP_ROW:
        break;
    }
    value.data = (const uint8_t *)step->v;
    value.len = (uint32_t)strlen(step->v);
    struct mr_change change = {
        .op = MR_OP_INSERT,
        .position = {.commit_lsn = stage->transaction.commit_lsn, .ordinal = stage->ordinal + 1},
        .transaction = &stage->transaction,
        .relation = &stage->relation,
        .after = {.kind = MR_TUPLE_NEW, .values = &value},
    };
    mr_status status = handler->change(handler->context, &change, error);
    stage->ordinal += status == MR_OK;
    return status;
}

static mr_status script_receive(struct mr_source *source, const struct mr_source_handler *handler,
                                struct mr_error *error)
{
    struct stage *stage = of_source(source);
    if (stage->at == stage->step_count) {
        /* What a pipeline does with its time when nothing comes is not what is tested here. */
        poll(NULL, 0, 1);
        return MR_AGAIN;
    }
    mr_status status = play(stage, &stage->steps[stage->at], handler, error);
    if (status == MR_OK) {
        stage->at++;
    }
    /* Each row is a batch of its own, together with the commit behind it; a row before a loss stays in the
     * pipeline's hands. */
    enum step_kind next = stage->at < stage->step_count ? stage->steps[stage->at].kind : STEP_ROW;
    bool together = next == STEP_LOST || next == STEP_COMMIT;
    return status == MR_OK && !together ? MR_AGAIN : status;
}

static mr_status script_confirm(struct mr_source *source, mr_lsn flushed, bool ping,
                                struct mr_error *error)
{
    (void)ping;
    (void)error;
    atomic_store(&of_source(source)->told, flushed);
    return MR_OK;
}

static int script_descriptor(const struct mr_source *source)
{
    return of_source(source)->fd;
}

static void script_close(struct mr_source *source, int64_t deadline_ns)
{
    (void)source;
    (void)deadline_ns;
}

/* ---- the sink ---- */

static mr_status stage_open(struct mr_sink *sink, mr_sink_done_fn done, void *context, int wake_fd,
                            int stop_fd, struct mr_error *error)
{
    (void)wake_fd;
    (void)stop_fd;
    (void)error;
    struct stage *stage = of_sink(sink);
    while (atomic_load(&stage->claims) < atomic_load(&stage->open_at_claims)) {
        poll(NULL, 0, 1);
    }
    stage->done = done;
    stage->done_context = context;
    stage->held_count = 0;
    atomic_store(&stage->received, 0);
    atomic_fetch_add(&stage->sessions, 1);
    return MR_OK;
}

static void remember(struct stage *stage, const struct mr_batch *batch)
{
    pthread_mutex_lock(&stage->lock);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        const char *begin = memmem(record->value, record->value_len, "\"v\":\"", 5);
        int at = atomic_load(&stage->value_count);
        if (begin != NULL && at < RECORDS_MAX) {
            sscanf(begin + 5, "%15[^\"]", stage->values[at]);
            atomic_store(&stage->value_count, at + 1);
        }
    }
    pthread_mutex_unlock(&stage->lock);
}

static mr_status stage_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *error)
{
    struct stage *stage = of_sink(sink);
    int count = atomic_fetch_add(&stage->received, 1) + 1;
    int fail_after = atomic_load(&stage->fail_after);
    if (fail_after != 0 && count >= fail_after) {
        atomic_store(&stage->fail_after, 0);
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted failure");
    }
    remember(stage, batch);
    batch->state = MR_BATCH_SENDING;
    stage->held[stage->held_count++] = batch;
    return MR_OK;
}

static mr_status stage_poll(struct mr_sink *sink, struct mr_error *error)
{
    (void)error;
    struct stage *stage = of_sink(sink);
    int from = atomic_load(&stage->release_from);
    if (sink->storage == MR_STORES_WITH && !stage->ending) {
        from = -1;
    }
    for (int i = from; from >= 0 && i < stage->held_count; i++) {
        if (stage->held[i] != NULL) {
            struct mr_batch *batch = stage->held[i];
            stage->held[i] = NULL;
            stage->done(stage->done_context, batch);
        }
    }
    stage->ending = stage->ending && from < 0;
    return MR_OK;
}

static mr_status stage_load(struct mr_sink *sink, bool *ret_found, struct mr_checkpoint *ret_state,
                            struct mr_error *error)
{
    (void)error;
    struct stage *stage = of_sink(sink);
    stage->loaded_unclaimed |= atomic_load(&stage->claims) == 0;
    pthread_mutex_lock(&stage->lock);
    *ret_found = stage->stored_found;
    *ret_state = stage->stored;
    pthread_mutex_unlock(&stage->lock);
    return MR_OK;
}

static mr_status stage_store(struct mr_sink *sink, const struct mr_checkpoint *state,
                             struct mr_error *error)
{
    (void)error;
    struct stage *stage = of_sink(sink);
    pthread_mutex_lock(&stage->lock);
    stage->stored_went_back |= state->end_lsn < stage->stored.end_lsn;
    stage->stored = *state;
    stage->stored_found = true;
    pthread_mutex_unlock(&stage->lock);
    stage->ending = sink->storage == MR_STORES_WITH;
    atomic_fetch_add(&stage->stores, 1);
    return MR_OK;
}

static bool stage_storing(const struct mr_sink *sink)
{
    return atomic_load(
        &((const struct stage *)((uintptr_t)sink - offsetof(struct stage, sink)))->hold_store);
}

static int stage_timeout_ms(const struct mr_sink *sink)
{
    (void)sink;
    return 1;
}

static void stage_close(struct mr_sink *sink)
{
    (void)sink;
}

/* ---- the fixture ---- */

static struct mr_key_columns no_keys(void *context, const struct mr_relation *relation)
{
    (void)context;
    (void)relation;
    return (struct mr_key_columns){0};
}

static int setup(void **state)
{
    static const struct mr_source_ops source_ops = {.name = "script",
                                                    .claim = script_claim,
                                                    .open = script_open,
                                                    .receive = script_receive,
                                                    .confirm = script_confirm,
                                                    .descriptor = script_descriptor,
                                                    .close = script_close};
    static const struct mr_sink_ops sink_ops = {.name = "stage",
                                                .open = stage_open,
                                                .send = stage_send,
                                                .poll = stage_poll,
                                                .timeout_ms = stage_timeout_ms,
                                                .load = stage_load,
                                                .store = stage_store,
                                                .storing = stage_storing,
                                                .close = stage_close};
    struct stage *stage = calloc(1, sizeof(*stage));
    stage->source.ops = &source_ops;
    stage->sink.ops = &sink_ops;
    pthread_mutex_init(&stage->lock, NULL);
    stage->fd = eventfd(1, 0);
    stage->done_fd = eventfd(0, 0);
    stage->column = (struct mr_column){.name = (char *)"v", .type_oid = 25};
    stage->relation = (struct mr_relation){.schema = (char *)"public",
                                           .table = (char *)"t",
                                           .identity = MR_IDENTITY_DEFAULT,
                                           .column_count = 1,
                                           .columns = &stage->column};
    stage->encode_options =
        (struct mr_encode_options){.topic_prefix = "p", .unavailable_value = "u"};
    stage->encoder = mr_encoder_new(&stage->encode_options, &stage->topics, no_keys, NULL);
    stage->options = (struct mr_pipeline_options){.batches = 8,
                                                  .batch_bytes = 4096,
                                                  .change_bytes_max = 65536,
                                                  .status_interval_ms = 1,
                                                  .shutdown_deadline_ms = WAIT_S * 1000,
                                                  .backoff_max_ms = 1};
    *state = stage;
    return 0;
}

static int teardown(void **state)
{
    struct stage *stage = *state;
    mr_pipeline_free(stage->pipeline);
    mr_encoder_free(stage->encoder);
    mr_topics_done(&stage->topics);
    close(stage->fd);
    close(stage->done_fd);
    free(stage);
    return 0;
}

static void start(struct stage *stage, const struct step *steps, int count)
{
    stage->steps = steps;
    stage->step_count = count;
    stage->pipeline =
        mr_pipeline_new(&stage->options, &stage->source, &stage->sink, stage->encoder, NULL, NULL);
    assert_int_equal(mr_pipeline_start(stage->pipeline, stage->done_fd, &stage->error), MR_OK);
}

static void wait_until(const struct stage *stage, bool (*condition)(const struct stage *, long),
                       long value)
{
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)WAIT_S * 1000000000;
    while (!condition(stage, value)) {
        assert_true(mr_monotonic_ns() < limit_ns);
        poll(NULL, 0, 1);
    }
}

static bool told(const struct stage *stage, long lsn)
{
    return atomic_load(&stage->told) >= (mr_lsn)lsn;
}

static bool delivered(const struct stage *stage, long count)
{
    return atomic_load(&stage->value_count) >= count;
}

static bool received(const struct stage *stage, long count)
{
    return atomic_load(&stage->received) >= count;
}

static bool skipped(const struct stage *stage, long count)
{
    return mr_pipeline_stats(stage->pipeline).skipped >= (uint64_t)count;
}

static void assert_values(const struct stage *stage, const char *const *want, int count)
{
    assert_int_equal(atomic_load(&stage->value_count), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(stage->values[i], want[i]);
    }
}

#define BEGIN(lsn_)                                                                                \
    {                                                                                              \
        .kind = STEP_BEGIN, .lsn = (lsn_)                                                          \
    }
#define ROW(value)                                                                                 \
    {                                                                                              \
        .kind = STEP_ROW, .v = (value)                                                             \
    }
#define COMMIT(lsn_)                                                                               \
    {                                                                                              \
        .kind = STEP_COMMIT, .lsn = (lsn_)                                                         \
    }
#define KEEPALIVE(lsn_)                                                                            \
    {                                                                                              \
        .kind = STEP_KEEPALIVE, .lsn = (lsn_)                                                      \
    }
#define LOST                                                                                       \
    {                                                                                              \
        .kind = STEP_LOST                                                                          \
    }

static void test_orderly_stop_confirms_all(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), ROW("b"),   COMMIT(110),
                                        BEGIN(200), ROW("c"), COMMIT(210)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 210);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->told), 210);
}

/* Batches come home newest first; nothing may be confirmed before the oldest. */
static void test_confirmed_waits_for_the_oldest(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100),  ROW("a"),   COMMIT(110), BEGIN(200), ROW("b"),
                                        COMMIT(210), BEGIN(300), ROW("c"),    COMMIT(310)};
    atomic_store(&stage->release_from, 1);
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, received, 3);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    wait_until(stage, told, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* One partition is stuck while the others move: batches come and go past the oldest one many times, as far as the
 * window reaches, and go on when it is home. */
static void test_one_stuck_batch_fills_the_window(void **state)
{
    struct stage *stage = *state;
    enum { ROWS = 60, POOL = 4, WINDOW = 8 * POOL };
    static struct step steps[ROWS + 2];
    steps[0] = (struct step)BEGIN(100);
    for (int i = 1; i <= ROWS; i++) {
        steps[i] = (struct step)ROW("x");
    }
    steps[ROWS + 1] = (struct step)COMMIT(110);
    stage->options.batches = POOL;
    atomic_store(&stage->release_from, 1);
    start(stage, steps, ROWS + 2);
    wait_until(stage, received, POOL + 1);
    poll(NULL, 0, 50);
    assert_in_range(atomic_load(&stage->received), POOL + 1, WINDOW);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    wait_until(stage, told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, ROWS);
}

static void test_keepalive_of_an_idle_server_is_confirmed(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {KEEPALIVE(500)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 500);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* A keepalive behind rows, or inside a transaction, says nothing that may be told yet. */
static void test_keepalive_waits_for_what_is_in_flight(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100),     ROW("a"),    KEEPALIVE(105), ROW("b"),
                                        KEEPALIVE(106), COMMIT(110), KEEPALIVE(900)};
    atomic_store(&stage->release_from, -1);
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, received, 2);
    poll(NULL, 0, 250); /* two questions' worth of answers */
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->release_from, 0);
    wait_until(stage, told, 900);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
}

/* All that was sent of the transaction is delivered, but its rest is not sent yet. */
static void test_keepalive_inside_a_transaction_is_not_confirmed(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), KEEPALIVE(105), KEEPALIVE(106)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, received, 1);
    poll(NULL, 0, 250); /* two questions' worth of answers */
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline); /* the transaction's end would never come */
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 0);
}

static void test_empty_pool_holds_the_source_back(void **state)
{
    struct stage *stage = *state;
    static struct step steps[43];
    steps[0] = (struct step)BEGIN(100);
    for (int i = 1; i <= 40; i++) {
        static char big[40][700];
        memset(big[i - 1], 'x', sizeof(big[0]) - 1);
        steps[i] = (struct step)ROW(big[i - 1]);
    }
    steps[41] = (struct step)COMMIT(110);
    stage->options.batches = 2;
    stage->options.batch_bytes = 4096;
    atomic_store(&stage->release_from, -1);
    start(stage, steps, 42);
    wait_until(stage, received, 2);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->received), 2);
    atomic_store(&stage->release_from, 0);
    wait_until(stage, told, 110);
    assert_true(mr_pipeline_stats(stage->pipeline).backpressure_ns > 0);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).records_acked, 40);
}

/* The source comes back and repeats a transaction from its beginning; nothing goes out twice. */
static void test_source_loss_repeats_nothing(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), ROW("b"),
                                        LOST,       ROW("c"), COMMIT(110)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->opens), 2);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped, 2);
}

/* Commits that are repeated while newer rows wait in a batch must not give that batch an older position. */
static void test_source_loss_takes_no_position_back(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"),    COMMIT(110), BEGIN(200),
                                        ROW("b"),   COMMIT(210), BEGIN(300),  ROW("c"),
                                        LOST,       ROW("d"),    COMMIT(310)};
    atomic_store(&stage->release_from, -1);
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, skipped, 3);
    atomic_store(&stage->release_from, 0);
    wait_until(stage, told, 310);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "b", "c", "d"}, 4);
}

/* The sink fails with a transaction half out: everything since the confirmed position comes again, in
 * order, and nothing of it was confirmed in between. */
static void test_sink_failure_rewinds(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200),
                                        ROW("b"),   ROW("c"), COMMIT(210)};
    atomic_store(&stage->fail_after, 3);
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 210);
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
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), COMMIT(110)};
    atomic_store(&stage->release_from, -1);
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, received, 1);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_DEADLINE);
    assert_int_equal(atomic_load(&stage->told), 0);
}

static void test_stop_reads_a_transaction_to_its_end(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100),  ROW("a"),   ROW("b"), ROW("c"),
                                        COMMIT(110), BEGIN(200), ROW("d"), COMMIT(210)};
    stage->options.stop_after_events = 1; /* stops by itself once the first row is out */
    start(stage, steps, MR_ARRAY_LEN(steps));
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(atomic_load(&stage->told), 110);
}

static void test_large_change_grows_a_batch(void **state)
{
    struct stage *stage = *state;
    static char large[20000];
    memset(large, 'x', sizeof(large) - 1);
    static struct step steps[] = {BEGIN(100), ROW("a"), ROW(large), ROW("b"), COMMIT(110)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, delivered, 3);
    wait_until(stage, told, 110);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_string_equal(stage->values[2], "b");
}

static void test_too_large_change_is_poison(void **state)
{
    struct stage *stage = *state;
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct step steps[] = {BEGIN(100), ROW(large), COMMIT(110)};
    start(stage, steps, MR_ARRAY_LEN(steps));
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
    struct stage *stage = *state;
    mr_encoder_free(stage->encoder);
    stage->encode_options.oversize = MR_OVERSIZE_PLACEHOLDER;
    stage->encoder = mr_encoder_new(&stage->encode_options, &stage->topics, no_keys, NULL);
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct step steps[] = {BEGIN(100), ROW("a"), ROW(large), ROW("b"), COMMIT(110)};
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, delivered, 3);
    wait_until(stage, told, 110);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).oversize[MR_OVERSIZE_PLACEHOLDER], 1);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "u", "b"}, 3);
}

/* Exactly the transaction that is asked for is missing, and its end is confirmed as any other. */
static void test_skipped_transaction(void **state)
{
    struct stage *stage = *state;
    static char large[80000];
    memset(large, 'x', sizeof(large) - 1);
    static struct step steps[] = {BEGIN(100), ROW("a"),    COMMIT(110), BEGIN(200), ROW("b"),
                                  ROW(large), COMMIT(210), BEGIN(300),  ROW("c"),   COMMIT(310)};
    stage->options.skip_commit_lsn = 200;
    start(stage, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 310);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped_transactions, 1);
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_values(stage, (const char *const[]){"a", "c"}, 2);
}

/* ---- a sink that stores the position ---- */

static bool stored(const struct stage *stage, long count)
{
    return atomic_load(&stage->stores) >= count;
}

static bool opened_sessions(const struct stage *stage, long count)
{
    return atomic_load(&stage->sessions) >= count;
}

static void stop_in_order(struct stage *stage)
{
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_false(stage->stored_went_back);
    assert_false(stage->loaded_unclaimed);
}

static void start_storing(struct stage *stage, enum mr_sink_storage storage, mr_lsn end_lsn,
                          struct mr_position position, const struct step *steps, int count)
{
    stage->sink.storage = storage;
    stage->stored_found = end_lsn != 0;
    stage->stored = (struct mr_checkpoint){.end_lsn = end_lsn, .position = position};
    start(stage, steps, count);
}

static const struct step two_transactions[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200),
                                               ROW("b"),   ROW("c"), COMMIT(210)};
#define TWO_TRANSACTIONS two_transactions, MR_ARRAY_LEN(two_transactions)
#define NO_POSITION      ((struct mr_position){0})

static void test_nothing_is_told_before_it_is_stored(void **state)
{
    struct stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    wait_until(stage, stored, 1);
    wait_until(stage, delivered, 3);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->hold_store, false);
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
    assert_int_equal(stage->stored.position.commit_lsn, 0); /* whole transactions only */
}

/* The stop comes while something is being stored: it ends when that, and what came behind it, is safe. */
static void test_stop_waits_for_what_is_being_stored(void **state)
{
    struct stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    wait_until(stage, stored, 1);
    wait_until(stage, delivered, 3);
    mr_pipeline_stop(stage->pipeline);
    poll(NULL, 0, 50);
    assert_int_equal(atomic_load(&stage->told), 0);
    atomic_store(&stage->hold_store, false);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_OK);
    assert_int_equal(atomic_load(&stage->told), 210);
    assert_int_equal(stage->stored.end_lsn, 210);
}

/* A second session begins while the first one's position is under way: it reads what became of it. */
static void test_session_lost_while_storing(void **state)
{
    struct stage *stage = *state;
    atomic_store(&stage->hold_store, true);
    atomic_store(&stage->fail_after, 2);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, TWO_TRANSACTIONS);
    wait_until(stage, opened_sessions, 2);
    atomic_store(&stage->hold_store, false);
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 210);
}

static void test_begins_where_it_is_stored(void **state)
{
    struct stage *stage = *state;
    start_storing(stage, MR_STORES_AFTER, 110, NO_POSITION, TWO_TRANSACTIONS);
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_values(stage, (const char *const[]){"b", "c"}, 2);
    assert_int_equal(stage->known.end_lsn, 110); /* and the server was compared with it */
}

static void test_begins_inside_a_transaction(void **state)
{
    struct stage *stage = *state;
    start_storing(stage, MR_STORES_WITH, 110, (struct mr_position){200, 1}, TWO_TRANSACTIONS);
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_values(stage, (const char *const[]){"c"}, 1);
    assert_int_equal(mr_pipeline_stats(stage->pipeline).skipped, 1);
}

/* Each group of batches is one transaction with the position behind its last change; nothing of it counts before. */
static void test_position_goes_with_the_events(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), BEGIN(200), ROW("b")};
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, delivered, 2);
    wait_until(stage, told, 110);
    poll(NULL, 0, 50);
    pthread_mutex_lock(&stage->lock);
    assert_int_equal(stage->stored.end_lsn, 110);
    assert_int_equal(stage->stored.position.commit_lsn, 200);
    assert_int_equal(stage->stored.position.ordinal, 1);
    pthread_mutex_unlock(&stage->lock);
    mr_pipeline_stop(stage->pipeline);
    mr_pipeline_stop(stage->pipeline); /* the transaction's end would never come */
    mr_pipeline_join(stage->pipeline, &stage->error);
    assert_int_equal(atomic_load(&stage->told), 110);
}

static void test_idle_position_is_stored(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {KEEPALIVE(500)};
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 500);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 500);
}

/* The slot was told less than what is stored, so the server begins further back and says so. */
static void test_keepalive_takes_no_stored_position_back(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {KEEPALIVE(200), KEEPALIVE(250), BEGIN(400),
                                        ROW("a"),       COMMIT(410),    KEEPALIVE(300)};
    start_storing(stage, MR_STORES_AFTER, 300, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 410);
    stop_in_order(stage);
    assert_int_equal(stage->stored.end_lsn, 410);
}

/* What looks like a gap after the claim was lost may be another instance's progress: it is read anew, once. */
static void test_lost_claim_reads_the_position_anew(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), LOST,
                                        BEGIN(200), ROW("b"), COMMIT(210)};
    atomic_store(&stage->refuse_from, 2);
    atomic_store(&stage->refuse_to, 3);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_int_equal(atomic_load(&stage->sessions), 2);
}

/* The connection ends while a sink that is slow to open has the thread: the claim is made anew before anything is read. */
static void test_claim_that_dies_waiting(void **state)
{
    struct stage *stage = *state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[1]);
    close(stage->fd);
    stage->fd = ends[0]; /* readable as ever, and ended */
    atomic_store(&stage->open_at_claims, 2);
    start_storing(stage, MR_STORES_WITH, 0, NO_POSITION, TWO_TRANSACTIONS);
    wait_until(stage, told, 210);
    stop_in_order(stage);
    assert_true(atomic_load(&stage->claims) >= 2);
    assert_int_equal(atomic_load(&stage->sessions), 1);
}

static void test_gap_ends_it(void **state)
{
    struct stage *stage = *state;
    static const struct step steps[] = {BEGIN(100), ROW("a"), COMMIT(110), LOST};
    atomic_store(&stage->refuse_from, 2);
    atomic_store(&stage->refuse_to, 1000);
    start_storing(stage, MR_STORES_AFTER, 0, NO_POSITION, steps, MR_ARRAY_LEN(steps));
    assert_int_equal(mr_pipeline_join(stage->pipeline, &stage->error), MR_ERR_HISTORY);
    assert_int_equal(atomic_load(&stage->sessions), 2); /* asked once more, not for ever */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_orderly_stop_confirms_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_confirmed_waits_for_the_oldest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_stuck_batch_fills_the_window, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_of_an_idle_server_is_confirmed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_inside_a_transaction_is_not_confirmed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_waits_for_what_is_in_flight, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_empty_pool_holds_the_source_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_repeats_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_source_loss_takes_no_position_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sink_failure_rewinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_second_stop_ends_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_reads_a_transaction_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_change_grows_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large_change_is_poison, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large_change_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_skipped_transaction, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_told_before_it_is_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits_for_what_is_being_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_session_lost_while_storing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_begins_where_it_is_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_begins_inside_a_transaction, setup, teardown),
        cmocka_unit_test_setup_teardown(test_position_goes_with_the_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_position_is_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keepalive_takes_no_stored_position_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_lost_claim_reads_the_position_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim_that_dies_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gap_ends_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
