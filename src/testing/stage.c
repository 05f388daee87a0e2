#include "testing/stage.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing/test.h"

static struct mr_stage *of_source(const struct mr_source *source)
{
    return (struct mr_stage *)(uintptr_t)source;
}

static struct mr_stage *of_sink(const struct mr_sink *sink)
{
    return (struct mr_stage *)((uintptr_t)sink - offsetof(struct mr_stage, sink));
}

/* ---- the source ---- */

static mr_status script_open(struct mr_source *source, const struct mr_checkpoint *stored,
                             mr_lsn start, int stop_fd, struct mr_identity *ret_identity,
                             struct mr_error *error)
{
    (void)stop_fd;
    (void)ret_identity;
    struct mr_stage *stage = of_source(source);
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
        if (stage->steps[i].kind == MR_STEP_COMMIT && stage->steps[i].lsn <= start) {
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

static mr_status play(struct mr_stage *stage, const struct mr_step *step,
                      const struct mr_source_handler *handler, struct mr_error *error)
{
    struct mr_datum value = {.kind = MR_DATUM_TEXT};
    switch (step->kind) {
    case MR_STEP_BEGIN:
        stage->transaction = (struct mr_transaction){.commit_lsn = step->lsn, .xid = 1};
        stage->ordinal = 0;
        handler->begin(handler->context, &stage->transaction);
        return MR_OK;
    case MR_STEP_COMMIT:
        stage->transaction.end_lsn = step->lsn;
        handler->commit(handler->context, &stage->transaction);
        return MR_OK;
    case MR_STEP_KEEPALIVE:
        handler->keepalive(handler->context, step->lsn, true);
        return MR_OK;
    case MR_STEP_LOST:
        if (stage->lost_once) {
            return MR_OK;
        }
        stage->lost_once = true;
        return mr_fail(error, MR_ERR_TRANSIENT, "scripted loss");
    case MR_STEP_ROW:
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
    struct mr_stage *stage = of_source(source);
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
    enum mr_step_kind next =
        stage->at < stage->step_count ? stage->steps[stage->at].kind : MR_STEP_ROW;
    bool together = next == MR_STEP_LOST || next == MR_STEP_COMMIT;
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
    struct mr_stage *stage = of_sink(sink);
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

static void remember(struct mr_stage *stage, const struct mr_batch *batch)
{
    pthread_mutex_lock(&stage->lock);
    for (uint32_t i = 0; i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        const char *begin = memmem(record->value, record->value_len, "\"v\":\"", 5);
        int at = atomic_load(&stage->value_count);
        if (begin != NULL && at < MR_STAGE_RECORDS_MAX) {
            sscanf(begin + 5, "%15[^\"]", stage->values[at]);
            atomic_store(&stage->value_count, at + 1);
        }
    }
    pthread_mutex_unlock(&stage->lock);
}

static mr_status stage_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *error)
{
    struct mr_stage *stage = of_sink(sink);
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
    struct mr_stage *stage = of_sink(sink);
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
    struct mr_stage *stage = of_sink(sink);
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
    struct mr_stage *stage = of_sink(sink);
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
        &((const struct mr_stage *)((uintptr_t)sink - offsetof(struct mr_stage, sink)))
             ->hold_store);
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

void mr_stage_renew_encoder(struct mr_stage *stage)
{
    mr_encoder_free(stage->encoder);
    stage->encoder = mr_encoder_new(&stage->encode_options, &stage->topics, no_keys, NULL);
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
                                                .timeout_ms = stage_timeout_ms,
                                                .load = stage_load,
                                                .store = stage_store,
                                                .storing = stage_storing,
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
    stage->encode_options =
        (struct mr_encode_options){.topic_prefix = "p", .unavailable_value = "u"};
    mr_stage_renew_encoder(stage);
    stage->options = (struct mr_pipeline_options){.batches = 8,
                                                  .batch_bytes = 4096,
                                                  .change_bytes_max = 65536,
                                                  .status_interval_ms = 1,
                                                  .shutdown_deadline_ms = MR_STAGE_WAIT_S * 1000,
                                                  .backoff_max_ms = 1};
    *state = stage;
    return 0;
}

int mr_stage_teardown(void **state)
{
    struct mr_stage *stage = *state;
    mr_pipeline_free(stage->pipeline);
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
