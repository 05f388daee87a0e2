/* What the source calls: events become records of the batch at hand, and full batches go to the sink thread. */
#include "base/clock.h"
#include "base/thread.h"
#include "pipeline/intake_internal.h"

/* What is handed over is behind all that was. */
static void assert_order(struct mr_intake *intake, const struct mr_batch *batch)
{
    if (batch->record_count == 0) {
        return;
    }
    MR_ASSERT(mr_position_compare(intake->handed_over, mr_batch_record(batch, 0)->position) < 0);
    intake->handed_over = mr_batch_record(batch, batch->record_count - 1)->position;
}

void mr_intake_hand_over(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_batch *batch = intake->filling;
    MR_ASSERT(pthread_equal(intake->thread, pthread_self()));
    MR_ASSERT(batch->state == MR_BATCH_FILLING);
    MR_ASSERT(batch->record_count > 0 || batch->confirm_lsn != 0);
    assert_order(intake, batch);
    intake->filling = NULL;
    intake->records += batch->record_count;
    intake->bytes += mr_batch_bytes(batch);
    atomic_store_explicit(&pipeline->records, intake->records, memory_order_relaxed);
    atomic_store_explicit(&pipeline->bytes, intake->bytes, memory_order_relaxed);
    mr_meter_hand_over(&pipeline->meter, batch);
    batch->session = intake->session;
    batch->sequence = ++intake->sequence;
    if (batch->record_count > 0) {
        intake->needed = intake->sequence;
    }
    batch->state = MR_BATCH_SEALED;
    atomic_store_explicit(&pipeline->handed_over, intake->sequence, memory_order_relaxed);
    MR_ASSERT(mr_ring_push(&pipeline->to_sink, batch));
    mr_wake(pipeline->sink_wake);
}

/* How an item goes into a batch. */
enum form {
    FORM_OWN,      /* as it is */
    FORM_PLACED,   /* what the policy for oversize puts in its place */
    FORM_TOO_LARGE /* the same, because no block holds the item itself */
};

/* Encodes one item; `*form` becomes FORM_PLACED when it is too large for the sink. */
static mr_status encode_item(struct mr_intake *intake, const struct mr_item *item, enum form *form,
                             struct mr_buffer *buffer, struct mr_record *records,
                             uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_encoder *encoder = intake->pipeline->encoder;
    if (MR_LIKELY(*form != FORM_TOO_LARGE)) {
        struct mr_buffer begin = *buffer;
        mr_status status =
            item->change != NULL
                ? mr_encode_change(encoder, item->change, buffer, records, ret_count, ret_error)
                : mr_encode_message(encoder, item->message, buffer, records, ret_count, ret_error);
        if (status != MR_OK ||
            MR_LIKELY(!mr_oversizer_applies(&intake->oversizer, records, *ret_count))) {
            return status;
        }
        *buffer = begin;
        *form = FORM_PLACED;
    }
    return mr_oversizer_encode(&intake->oversizer, item, buffer, records, ret_count, ret_error);
}

/* Makes room after an item did not fit: hands over what is there, else takes a larger block. */
static mr_status make_room(struct mr_intake *intake, enum form *form, struct mr_error *ret_error)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    if (mr_intake_has_records(intake)) {
        mr_intake_hand_over(intake);
        return MR_OK;
    }
    size_t size = intake->filling->block_size;
    size_t most = pool->block_size_max;
    if (size >= most) {
        if (intake->oversizer.policy != MR_OVERSIZE_FAIL && *form != FORM_TOO_LARGE) {
            *form = FORM_TOO_LARGE;
            return MR_OK;
        }
        return mr_fail(
            ret_error, MR_ERR_POISON,
            "one change needs more than the %zu bytes that pipeline.change_max allows; raise it "
            "and pipeline.memory (and the broker's and topic's message sizes), set "
            "sink.kafka.oversize, or take the table out",
            most);
    }
    size_t larger = size > most / 2 ? most : 2 * size;
    if (!mr_batch_grow(pool, intake->filling, larger)) {
        intake->handler.hold = true;
        intake->wanted = larger;
        return MR_FULL;
    }
    return MR_OK;
}

/* A large block sets out at once with its one change. While it is on its way, nothing more may be received unless
 * there is room for the largest. */
static void hand_over_large(struct mr_intake *intake)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    if (mr_batch_is_large(pool, intake->filling)) {
        mr_intake_hand_over(intake);
        intake->wanted = 0;
        intake->handler.hold = !mr_pool_admits(pool, NULL, 0);
    }
}

bool mr_intake_may_go_on(const struct mr_intake *intake)
{
    return !intake->handler.hold ||
           mr_pool_admits(&intake->pipeline->pool, intake->filling, intake->wanted);
}

static mr_status append(struct mr_intake *intake, const struct mr_item *item,
                        struct mr_error *ret_error)
{
    enum form form = FORM_OWN;
    for (;;) {
        if (intake->filling == NULL) {
            intake->filling = mr_pool_acquire(&intake->pipeline->pool);
        }
        if (intake->filling == NULL) {
            return MR_FULL;
        }
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        uint32_t count = 0;
        bool first = intake->filling->record_count == 0;
        int64_t decoded_ns = first ? mr_monotonic_ns() : 0;
        struct mr_buffer buffer = mr_batch_buffer(intake->filling);
        mr_status status = encode_item(intake, item, &form, &buffer, records, &count, ret_error);
        if (status == MR_OK && count == 0) {
            return MR_OK;
        }
        if (status == MR_OK && mr_batch_commit(intake->filling, buffer.at, records, count)) {
            mr_encoder_count(intake->pipeline->encoder, item);
            if (MR_UNLIKELY(first)) {
                mr_intake_carry(intake);
                mr_meter_first(intake->filling, intake->round_ns, intake->round_wall_ns,
                               decoded_ns);
                hand_over_large(intake);
            }
            if (MR_UNLIKELY(form != FORM_OWN)) {
                mr_oversizer_note(&intake->oversizer, item);
            }
            return MR_OK;
        }
        if (status != MR_OK && status != MR_FULL) {
            return status;
        }
        MR_TRY(make_room(intake, &form, ret_error));
    }
}

/* ---- the handler ---- */

static void heard(struct mr_intake *intake)
{
    intake->attempt = 0;
}

/* A keepalive may lie before what came already (see on_keepalive). */
static void note_received(struct mr_intake *intake, mr_lsn lsn)
{
    if (lsn > intake->received) {
        intake->received = lsn;
        atomic_store_explicit(&intake->pipeline->received, lsn, memory_order_relaxed);
    }
}

static bool is_repeated(struct mr_intake *intake, struct mr_position position)
{
    intake->changes++;
    if (MR_UNLIKELY(mr_position_compare(position, intake->appended) <= 0)) {
        intake->skipped++;
        return true;
    }
    return false;
}

static void note_failure(struct mr_intake *intake, mr_status status, struct mr_position position)
{
    if (status != MR_FULL) {
        intake->failed_at = position;
    }
}

static mr_status on_change(void *context, const struct mr_change *change,
                           struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    intake->last_relation = change->relation;
    if (is_repeated(intake, change->position)) {
        return MR_OK;
    }
    struct mr_item item = {.change = change};
    mr_thread_table(change->relation->schema, change->relation->table);
    mr_status status = append(intake, &item, ret_error);
    mr_thread_table(NULL, NULL);
    if (MR_LIKELY(status == MR_OK)) {
        intake->appended = change->position;
        intake->appended_in_transaction = true;
    } else {
        intake->changes--; /* it comes again */
        note_failure(intake, status, change->position);
    }
    return status;
}

static mr_status on_message(void *context, const struct mr_message_event *message,
                            struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (!is_repeated(intake, message->position)) {
        struct mr_item item = {.message = message};
        mr_status status = append(intake, &item, ret_error);
        if (status != MR_OK) {
            intake->changes--;
            note_failure(intake, status, message->position);
            return status;
        }
        intake->appended = message->position;
        intake->appended_in_transaction |= message->transaction != NULL;
    }
    if (message->transaction == NULL) {
        /* Its LSN is where its record ends; from there on the server sends what begins there, and not the message
         * (snapbuild.c, SnapBuildXactNeedsSkip, of the record's beginning). */
        mr_intake_mark(intake, message->lsn);
    }
    return MR_OK;
}

/* Bytes of keys and values so far, those in the batch at hand included. */
static uint64_t bytes_made(const struct mr_intake *intake)
{
    return intake->bytes + (intake->filling == NULL ? 0 : mr_batch_bytes(intake->filling));
}

static mr_status on_begin(void *context, const struct mr_transaction *transaction,
                          struct mr_error *ret_error)
{
    (void)ret_error;
    struct mr_intake *intake = context;
    if (mr_mailbox_wants_pause(&intake->pipeline->mailbox)) {
        return MR_FULL; /* it comes again behind the command */
    }
    intake->in_transaction = true;
    intake->transaction_lsn = transaction->commit_lsn;
    intake->last_relation = NULL;
    if (MR_UNLIKELY(intake->pipeline->options.skip_commit_lsn != 0)) {
        mr_intake_skip_begin(intake, transaction->commit_lsn);
    }
    intake->appended_in_transaction = false;
    intake->changes_at_begin = intake->changes;
    intake->bytes_at_begin = bytes_made(intake);
    return MR_OK;
}

static mr_status on_commit(void *context, const struct mr_transaction *transaction,
                           struct mr_error *ret_error)
{
    (void)ret_error;
    struct mr_intake *intake = context;
    heard(intake);
    intake->asked = 0;
    intake->in_transaction = false;
    if (MR_UNLIKELY(intake->skipping)) {
        mr_intake_skip_end(intake, transaction->commit_lsn);
    }
    if (MR_UNLIKELY(intake->poison.failures > 0)) {
        mr_intake_forget_poison(intake, transaction->commit_lsn);
    }
    intake->ends_rows |= intake->appended_in_transaction;
    intake->appended_in_transaction = false;
    intake->transactions++;
    mr_meter_transaction(&intake->pipeline->meter, intake->changes - intake->changes_at_begin,
                         bytes_made(intake) - intake->bytes_at_begin);
    mr_intake_mark(intake, transaction->end_lsn);
    note_received(intake, transaction->end_lsn);
    return MR_OK;
}

static void on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct mr_intake *intake = context;
    heard(intake);
    if (reply_requested) {
        intake->reply_wanted = true;
        bool insists = server_end == intake->asked_at &&
                       intake->round_ns - intake->asked_ns < MR_INSISTENCE_NS;
        intake->asked = insists ? intake->asked + 1 : 1;
        intake->asked_at = server_end;
        intake->asked_ns = intake->round_ns;
    }
    /* All that commits before server_end was sent before this message (walsender.c, XLogSendLogical: the end of the last
     * record that was processed; it may lie before what is marked already); nothing may be said of a transaction that is
     * on its way. */
    if (!intake->in_transaction) {
        mr_intake_mark(intake, server_end);
        note_received(intake, server_end);
    }
}

static void on_relation_end(void *context, const struct mr_relation *relation)
{
    struct mr_intake *intake = context;
    mr_encoder_forget(intake->pipeline->encoder, relation);
    if (intake->last_relation == relation) {
        intake->last_relation = NULL;
    }
}

void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline)
{
    *intake = (struct mr_intake){
        .pipeline = pipeline,
        .thread = pthread_self(),
        .handler = {.context = intake,
                    .change = on_change,
                    .message = on_message,
                    .begin = on_begin,
                    .commit = on_commit,
                    .keepalive = on_keepalive,
                    .relation_end = on_relation_end},
    };
    mr_oversizer_init(&intake->oversizer, pipeline->encoder, pipeline->pool.block_size_max,
                      pipeline->oversize);
}
