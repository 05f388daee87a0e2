#include "testing/stage.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing/test.h"

static struct mr_stage *testing_stage_of_source(const struct mr_source *source)
{
    return (struct mr_stage *)(uintptr_t)source;
}

static struct mr_stage *testing_stage_of_sink(const struct mr_sink *sink)
{
    return (struct mr_stage *)((uintptr_t)sink - offsetof(struct mr_stage, sink));
}

/* As the server does: a transaction is sent unless its commit record begins before the start, a
 * message outside transactions unless its record does (snapbuild.c, SnapBuildXactNeedsSkip);
 * records here leave no gap. */
static void skip_to(struct mr_stage *stage, mr_lsn start)
{
    mr_lsn begun = 0;
    bool in_transaction = false;
    for (int i = 0; i < stage->step_count; i++) {
        const struct mr_step *step = &stage->steps[i];
        if (step->kind == MR_STEP_BEGIN) {
            begun = step->lsn;
            in_transaction = true;
        } else if (step->kind == MR_STEP_COMMIT) {
            in_transaction = false;
            stage->at = begun < start ? i + 1 : stage->at;
        } else if (step->kind == MR_STEP_MESSAGE && !in_transaction) {
            stage->at = step->lsn <= start ? i + 1 : stage->at;
        } else if (step->kind == MR_STEP_UNSENT) {
            stage->at = step->lsn < start ? i + 1 : stage->at;
        }
    }
}

static mr_status script_open(struct mr_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *error)
{
    (void)stop_fd;
    (void)ret_identity;
    struct mr_stage *stage = testing_stage_of_source(source);
    stage->at = 0;
    stage->in_transaction = false;
    stage->asked = false;
    stage->known = stored != NULL ? *stored : (struct mr_checkpoint){0};
    int opens = atomic_fetch_add(&stage->opens, 1) + 1;
    int from = atomic_load(&stage->refuse_from);
    if (from != 0 && opens >= from && opens < atomic_load(&stage->refuse_to)) {
        stage->connected = false; /* an error ends the claim */
        return mr_fail(error, MR_ERR_HISTORY, "scripted gap");
    }
    skip_to(stage, start);
    return MR_OK;
}

static mr_status script_claim(struct mr_source *source, int stop_fd, struct mr_error *error)
{
    struct mr_stage *stage = testing_stage_of_source(source);
    MR_ASSERT(!stage->connected);
    if (stage->lost_once && atomic_load(&stage->gates_open) < stage->claim_gate) {
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted absence");
    }
    if (stage->stands_by) {
        struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
        atomic_fetch_add(&stage->claims, 1);
        MR_ASSERT(poll(&stop, 1, MR_STAGE_WAIT_S * 1000) == 1);
        return MR_AGAIN;
    }
    stage->connected = true;
    poll(NULL, 0, 5); /* who does not wait for it is ahead */
    atomic_fetch_add(&stage->claims, 1);
    return MR_OK;
}

static mr_status play_message(struct mr_stage *stage, const struct mr_step *step,
                              const struct mr_source_handler *handler, struct mr_error *error)
{
    struct mr_message_event message = {
        .lsn = step->lsn,
        .position = {.commit_lsn = step->lsn},
        .prefix = MR_SLICE("prefix"),
        .content = MR_SLICE("\"v\":\"message\""),
    };
    if (stage->in_transaction) {
        message.transaction = &stage->transaction;
        message.position = (struct mr_position){.commit_lsn = stage->transaction.commit_lsn,
                                                .ordinal = stage->ordinal + 1};
    }
    mr_status status = handler->message(handler->context, &message, error);
    stage->ordinal += stage->in_transaction && status == MR_OK;
    return status;
}

static mr_status testing_stage_play(struct mr_stage *stage, const struct mr_step *step,
                                    const struct mr_source_handler *handler, struct mr_error *error)
{
    struct mr_datum values[] = {{.kind = MR_DATUM_TEXT}, {.kind = MR_DATUM_UNCHANGED}};
    switch (step->kind) {
    case MR_STEP_BEGIN:
        stage->transaction =
            (struct mr_transaction){.commit_lsn = step->lsn, .xid = (uint32_t)step->lsn};
        stage->ordinal = 0;
        MR_TRY(handler->begin(handler->context, &stage->transaction, error));
        stage->in_transaction = true;
        return MR_OK;
    case MR_STEP_COMMIT:
        stage->transaction.end_lsn = step->lsn;
        stage->transaction.has_rows = stage->ordinal > 0;
        MR_TRY(handler->commit(handler->context, &stage->transaction, error));
        stage->in_transaction = false;
        return MR_OK;
    case MR_STEP_MESSAGE:
        return play_message(stage, step, handler, error);
    case MR_STEP_KEEPALIVE:
    case MR_STEP_PASSED:
        handler->keepalive(handler->context, step->lsn, step->kind == MR_STEP_KEEPALIVE);
        stage->server_at = step->lsn;
        return MR_OK;
    case MR_STEP_TOLD:
        return atomic_load(&stage->told) >= step->lsn ? MR_OK : MR_AGAIN;
    case MR_STEP_GATE:
        return atomic_load(&stage->gates_open) >= (int)step->lsn ? MR_OK : MR_AGAIN;
    case MR_STEP_LOST:
        if (stage->lost_once) {
            return MR_OK;
        }
        stage->lost_once = true;
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted loss");
    case MR_STEP_UNSENT:
        stage->source.failed.commit_lsn = step->lsn;
        return mr_fail(error, MR_ERR_POISON, "scripted failure of the server");
    case MR_STEP_ROW:
        break;
    }
    values[0].data = (const uint8_t *)step->v;
    values[0].len = (uint32_t)strlen(step->v);
    MR_ASSERT(stage->relation.column_count <= MR_ARRAY_LEN(values));
    struct mr_change change = {
        .op = MR_OP_INSERT,
        .lsn = stage->transaction.commit_lsn - 10 + stage->ordinal,
        .position = {.commit_lsn = stage->transaction.commit_lsn, .ordinal = stage->ordinal + 1},
        .transaction = &stage->transaction,
        .relation = &stage->relation,
        .after = {.kind = MR_TUPLE_NEW, .values = values},
    };
    mr_status status = handler->change(handler->context, &change, error);
    stage->ordinal += status == MR_OK;
    return status;
}

static void receive_bytes(struct mr_source *source)
{
    atomic_fetch_add(&source->received_bytes, 1);
}

static mr_status script_receive(struct mr_source *source, const struct mr_source_handler *handler,
                                struct mr_error *error)
{
    struct mr_stage *stage = testing_stage_of_source(source);
    atomic_fetch_add(&stage->receives, 1);
    if (stage->asked && !stage->silent) {
        stage->asked = false;
        receive_bytes(source);
        handler->keepalive(handler->context, stage->server_at, false);
        atomic_fetch_add(&stage->answers, 1);
    }
    if (stage->at == stage->step_count) {
        /* What a pipeline does with its time when nothing comes is not what is tested here. */
        poll(NULL, 0, 1);
        return MR_AGAIN;
    }
    mr_status status = testing_stage_play(stage, &stage->steps[stage->at], handler, error);
    if (status == MR_OK) {
        stage->at++;
        receive_bytes(source);
    }
    /* Each row is a batch of its own, together with the commit after it; a row before a loss stays
     * in the pipeline's hands. */
    enum mr_step_kind next =
        stage->at < stage->step_count ? stage->steps[stage->at].kind : MR_STEP_ROW;
    bool together = next == MR_STEP_LOST || next == MR_STEP_COMMIT;
    return status == MR_OK && !together ? MR_AGAIN : status;
}

static mr_status script_confirm(struct mr_source *source, mr_lsn flushed, bool ping,
                                struct mr_error *error)
{
    (void)error;
    struct mr_stage *stage = testing_stage_of_source(source);
    stage->asked |= ping;
    atomic_store(&stage->told, flushed);
    atomic_fetch_add(&stage->confirms, 1);
    return MR_OK;
}

static int script_descriptor(const struct mr_source *source)
{
    const struct mr_stage *stage = testing_stage_of_source(source);
    return atomic_load(&stage->claims) <= stage->dying_claims ? stage->dead_fd : stage->fd;
}

static void script_close(struct mr_source *source, int64_t deadline_ns)
{
    (void)deadline_ns;
    testing_stage_of_source(source)->connected = false;
    atomic_fetch_add(&testing_stage_of_source(source)->closes, 1);
}

static mr_status stage_open(struct mr_sink *sink, struct mr_error *error)
{
    struct mr_stage *stage = testing_stage_of_sink(sink);
    while (atomic_load(&stage->claims) < atomic_load(&stage->open_at_claims)) {
        poll(NULL, 0, 1);
    }
    if (stage->sink_is_refused) {
        return mr_fail(error, MR_ERR_CONFIG, "scripted refusal");
    }
    if (stage->dead_sessions > 0) {
        stage->dead_sessions--;
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted failure");
    }
    stage->held_count = 0;
    atomic_store(&stage->received, 0);
    atomic_fetch_add(&stage->sessions, 1);
    return MR_OK;
}

/* Whether `name` is in the record's value, and what follows it. */
static bool field_text(const struct mr_record *record, const char *name, char ret_text[16])
{
    const char *begin = memmem(record->value, record->value_len, name, strlen(name));
    return begin != NULL && sscanf(begin + strlen(name), "%15[^\",}]", ret_text) == 1;
}

/* A row's value, after its place in the transaction if that is known; the beginning or end of one;
 * the last eight digits of a resolved marker. */
static bool value_text(const struct mr_record *record, char ret_text[16])
{
    char word[16] = "", number[16] = "";
    bool is_row = field_text(record, "\"v\":\"", word);
    if (field_text(record, "{\"resolved\":\"00000000", ret_text)) {
        return true;
    }
    if (!is_row && !field_text(record, "{\"status\":\"", word)) {
        return false;
    }
    field_text(record, is_row ? "\"total_order\":" : "\"event_count\":", number);
    bool is_told = number[0] >= '0' && number[0] <= '9';
    snprintf(ret_text, 16, "%.*s%.*s", is_told ? 3 : 0, number, is_told ? 12 : 15, word);
    return true;
}

static void testing_stage_remember(struct mr_stage *stage, struct mr_batch *batch)
{
    pthread_mutex_lock(&stage->lock);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        struct mr_record *record = mr_batch_own_record(batch, i);
        record->batch = batch;
        mr_sink_sent(&stage->sink, record, 0);
        int at = atomic_load(&stage->value_count);
        if (at < MR_STAGE_RECORDS_MAX && value_text(record, stage->values[at])) {
            atomic_store(&stage->value_count, at + 1);
        }
    }
    pthread_mutex_unlock(&stage->lock);
}

static bool refuses(struct mr_stage *stage, const struct mr_batch *batch)
{
    for (uint32_t i = 0; stage->refuse_from_bytes != 0 && i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        size_t bytes = (size_t)record->key_len + record->value_len;
        if (bytes >= stage->refuse_from_bytes) {
            stage->sink.refusal = (struct mr_sink_refusal){
                .position = record->position, .bytes = bytes, .too_large = true};
            return true;
        }
    }
    return false;
}

static struct mr_checkpoint checkpoint_copy(const struct mr_checkpoint *state)
{
    struct mr_checkpoint copy = *state;
    for (uint32_t i = 0; i < copy.section_count; i++) {
        copy.sections[i].json = MR_STRDUP(state->sections[i].json);
    }
    return copy;
}

/* What was committed, and is not proved to be there for good, goes. */
static void unsettle(struct mr_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    mr_checkpoint_done(&stage->stored);
    stage->stored = checkpoint_copy(&stage->proved);
    stage->stored_found = stage->stored.end_lsn != 0;
    pthread_mutex_unlock(&stage->lock);
}

static mr_status stage_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *error)
{
    struct mr_stage *stage = testing_stage_of_sink(sink);
    int count = atomic_fetch_add(&stage->received, 1) + 1;
    int fail_after = atomic_load(&stage->fail_after);
    if (fail_after != 0 && count >= fail_after) {
        atomic_store(&stage->fail_after, 0);
        if (stage->unsettles) {
            unsettle(stage);
        }
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted failure");
    }
    if (refuses(stage, batch)) {
        return mr_fail(error, MR_ERR_POISON, "scripted refusal");
    }
    testing_stage_remember(stage, batch);
    batch->state = MR_BATCH_SENDING;
    stage->held[stage->held_count++] = batch;
    return MR_OK;
}

static mr_status stage_poll(struct mr_sink *sink, struct mr_error *error)
{
    (void)error;
    struct mr_stage *stage = testing_stage_of_sink(sink);
    atomic_fetch_add(&stage->polls, 1);
    int from = atomic_load(&stage->release_from);
    for (int i = from; from >= 0 && i < stage->held_count; i++) {
        if (stage->held[i] != NULL) {
            struct mr_batch *batch = stage->held[i];
            stage->held[i] = NULL;
            mr_sink_done(sink, batch);
        }
    }
    return MR_OK;
}

static mr_status stage_load(struct mr_sink *sink, bool *ret_found, struct mr_checkpoint *ret_state,
                            struct mr_error *error)
{
    (void)error;
    struct mr_stage *stage = testing_stage_of_sink(sink);
    stage->loaded_unclaimed |= atomic_load(&stage->claims) == 0;
    while (atomic_load(&stage->closes) < atomic_load(&stage->load_at_closes)) {
        poll(NULL, 0, 1);
    }
    pthread_mutex_lock(&stage->lock);
    *ret_found = stage->stored_found;
    *ret_state = checkpoint_copy(&stage->stored);
    pthread_mutex_unlock(&stage->lock);
    return MR_OK;
}

static mr_status stage_store(struct mr_sink *sink, const struct mr_checkpoint *state,
                             struct mr_error *error)
{
    struct mr_stage *stage = testing_stage_of_sink(sink);
    if (sink->is_half_ended) {
        sink->is_half_ended = false; /* the next session's `load` finds no other */
        return mr_fail(error, MR_ERR_TRANSIENT, "given up");
    }
    pthread_mutex_lock(&stage->lock);
    stage->stored_went_back |= state->end_lsn < stage->stored.end_lsn;
    mr_checkpoint_done(&stage->stored);
    stage->stored = checkpoint_copy(state);
    stage->stored_found = true;
    pthread_mutex_unlock(&stage->lock);
    atomic_fetch_add(&stage->stores, 1);
    return MR_OK;
}

/* A transaction ends when all of it is reported. */
static bool stage_storing(const struct mr_sink *sink)
{
    const struct mr_stage *stage = testing_stage_of_sink(sink);
    bool holds = false;
    for (int i = 0; i < stage->held_count; i++) {
        holds = holds || stage->held[i] != NULL;
    }
    return atomic_load(&stage->hold_store) || (sink->storage == MR_STORES_WITH && holds);
}

static void stage_prove(struct mr_sink *sink)
{
    struct mr_stage *stage = testing_stage_of_sink(sink);
    if (atomic_load(&stage->hold_proof)) {
        sink->proof = MR_PROOF_LACKS;
        return;
    }
    sink->proof = MR_PROOF_GIVEN;
    pthread_mutex_lock(&stage->lock);
    mr_checkpoint_done(&stage->proved);
    stage->proved = checkpoint_copy(&stage->stored);
    pthread_mutex_unlock(&stage->lock);
}

static int64_t stage_due_in_ns(const struct mr_sink *sink)
{
    (void)sink;
    return 1000000;
}

static void stage_close(struct mr_sink *sink)
{
    (void)sink;
}

void mr_stage_renew_encoder(struct mr_stage *stage)
{
    mr_encoder_free(stage->encoder);
    stage->encoder = mr_encoder_new(&stage->encode_options, &stage->topics);
}

int mr_stage_setup(void **state)
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
                                                .due_in_ns = stage_due_in_ns,
                                                .load = stage_load,
                                                .store = stage_store,
                                                .storing = stage_storing,
                                                .prove = stage_prove,
                                                .close = stage_close};
    struct mr_stage *stage = calloc(1, sizeof(*stage));
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
    static const char *const all_messages[] = {"*"};
    stage->encode_options = (struct mr_encode_options){.topic_prefix = "p",
                                                       .unavailable_value = "u",
                                                       .message_prefixes = all_messages,
                                                       .message_prefix_count = 1,
                                                       .message_bytes_max = SIZE_MAX};
    mr_stage_renew_encoder(stage);
    stage->options = (struct mr_pipeline_options){.batches = 8,
                                                  .batch_bytes = 4096,
                                                  .change_bytes_max = 65536,
                                                  .status_interval_ms = 1,
                                                  .shutdown_deadline_ms = MR_STAGE_WAIT_S * 1000,
                                                  .backoff_max_ms = 1,
                                                  .idle_ms = 5};
    *state = stage;
    return 0;
}

int mr_stage_teardown(void **state)
{
    struct mr_stage *stage = *state;
    mr_pipeline_free(stage->pipeline);
    mr_checkpoint_done(&stage->stored);
    mr_checkpoint_done(&stage->proved);
    mr_encoder_free(stage->encoder);
    mr_topics_done(&stage->topics);
    close(stage->fd);
    close(stage->done_fd);
    free(stage);
    return 0;
}

void mr_stage_start(struct mr_stage *stage, const struct mr_step *steps, int count)
{
    stage->steps = steps;
    stage->step_count = count;
    stage->pipeline =
        mr_pipeline_new(&stage->options, &stage->source, &stage->sink, stage->encoder, NULL, NULL);
    assert_int_equal(mr_pipeline_start(stage->pipeline, stage->done_fd, &stage->error), MR_OK);
}

void mr_stage_wait(const struct mr_stage *stage, bool (*condition)(const struct mr_stage *, long),
                   long value)
{
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)MR_STAGE_WAIT_S * 1000000000;
    while (!condition(stage, value)) {
        assert_true(mr_monotonic_ns() < limit_ns);
        poll(NULL, 0, 1);
    }
}

static bool confirmed_times(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->confirms) >= count;
}

void mr_stage_wait_confirms(const struct mr_stage *stage, int more)
{
    mr_stage_wait(stage, confirmed_times, atomic_load(&stage->confirms) + more);
}

static bool polled(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->polls) >= count;
}

void mr_stage_wait_polls(const struct mr_stage *stage, int more)
{
    mr_stage_wait(stage, polled, atomic_load(&stage->polls) + more);
}

static bool held_back(const struct mr_stage *stage, long ns)
{
    return mr_pipeline_stats(stage->pipeline).backpressure_ns >= (uint64_t)ns;
}

void mr_stage_wait_held_back(const struct mr_stage *stage, int more_ms)
{
    long now = (long)mr_pipeline_stats(stage->pipeline).backpressure_ns;
    mr_stage_wait(stage, held_back, now + more_ms * 1000000L);
}

bool mr_stage_told(const struct mr_stage *stage, long lsn)
{
    return atomic_load(&stage->told) >= (mr_lsn)lsn;
}

bool mr_stage_delivered(const struct mr_stage *stage, long count)
{
    return atomic_load(&stage->value_count) >= count;
}

void mr_stage_assert_values(const struct mr_stage *stage, const char *const *want, int count)
{
    assert_int_equal(atomic_load(&stage->value_count), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(stage->values[i], want[i]);
    }
}
