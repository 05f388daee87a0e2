/* What the source calls: events become records of the batch at hand, and full batches go to the sink thread. */
#include "base/clock.h"
#include "base/thread.h"
#include "flow/intake_internal.h"

static mr_status append(struct mr_intake *intake, const struct mr_item *item,
                        struct mr_error *ret_error)
{
    mr_status status = mr_lane_append(intake->lane, item, ret_error);
    intake->handler.hold = intake->lane->hold;
    return status;
}

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

/* Another program has delivered it. */
static bool is_handed_over(struct mr_intake *intake, mr_lsn lsn)
{
    if (MR_UNLIKELY(lsn < intake->delivered_below)) {
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

/* A person has to find the row. */
static void tell_row(const struct mr_intake *intake, const struct mr_change *change,
                     struct mr_error *error)
{
    char name[MR_ROW_NAME_MAX];
    mr_encode_row_name(intake->lane->encoder, change, name);
    if (name[0] != '\0') {
        struct mr_error whole;
        mr_error_set(&whole, error->status, "%s; the row is one of %s.%s %s", error->text,
                     change->relation->schema, change->relation->table, name);
        *error = whole;
    }
}

static mr_status on_change(void *context, const struct mr_change *change,
                           struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (is_repeated(intake, change->position) || is_handed_over(intake, change->lsn)) {
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
        if (status == MR_ERR_POISON) {
            tell_row(intake, change, ret_error);
        }
    }
    return status;
}

static mr_status on_message(void *context, const struct mr_message_event *message,
                            struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (message->transaction == NULL && intake->takes_over) {
        intake->delivered_below = intake->pipeline->options.handed_over.lsn + 1;
    }
    if (!is_repeated(intake, message->position) && !is_handed_over(intake, message->lsn)) {
        struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = message};
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
    const struct mr_lane *lane = intake->lane;
    return atomic_load_explicit(&lane->bytes, memory_order_relaxed) +
           (lane->filling == NULL ? 0 : mr_batch_bytes(lane->filling));
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
    if (MR_UNLIKELY(intake->pipeline->options.skip_commit_lsn != 0)) {
        mr_intake_skip_begin(intake, transaction->commit_lsn);
    }
    if (MR_UNLIKELY(intake->takes_over)) {
        mr_intake_take_over(intake, transaction);
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
                       intake->lane->round_ns - intake->asked_ns < MR_INSISTENCE_NS;
        intake->asked = insists ? intake->asked + 1 : 1;
        intake->asked_at = server_end;
        intake->asked_ns = intake->lane->round_ns;
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
    mr_companions_relation_end(intake->pipeline, relation);
    mr_encoder_forget(intake->lane->encoder, relation);
}

/* ---- with a topic of transactions, besides ---- */

static mr_status pass(struct mr_intake *intake, const struct mr_item *item,
                      const struct mr_transaction *transaction, struct mr_error *ret_error)
{
    if (intake->skipping || transaction == NULL) {
        return MR_OK;
    }
    if (mr_encoder_has_begun(intake->lane->encoder)) {
        intake->begun_lsn = transaction->commit_lsn;
    }
    return mr_encoder_pass(intake->lane->encoder, item, ret_error);
}

static mr_status on_change_counted(void *context, const struct mr_change *change,
                                   struct mr_error *ret_error)
{
    const struct mr_item item = {.change = change};
    MR_TRY(on_change(context, change, ret_error));
    return pass(context, &item, change->transaction, ret_error);
}

static mr_status on_message_counted(void *context, const struct mr_message_event *message,
                                    struct mr_error *ret_error)
{
    const struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = message};
    MR_TRY(on_message(context, message, ret_error));
    return pass(context, &item, message->transaction, ret_error);
}

static mr_status on_begin_counted(void *context, const struct mr_transaction *transaction,
                                  struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    MR_TRY(on_begin(context, transaction, ret_error));
    mr_encoder_begin(intake->lane->encoder, transaction,
                     intake->begun_lsn == transaction->commit_lsn || intake->delivered_below != 0);
    return MR_OK;
}

static mr_status on_commit_counted(void *context, const struct mr_transaction *transaction,
                                   struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    const struct mr_transaction_end end = {
        .transaction = transaction, .position = mr_encoder_end_position(intake->lane->encoder)};
    if (mr_position_compare(end.position, intake->appended) > 0) {
        const struct mr_item item = {.kind = MR_ITEM_END, .end = &end};
        mr_status status = append(intake, &item, ret_error);
        if (status != MR_OK) {
            note_failure(intake, status, end.position);
            return status;
        }
        intake->appended = end.position;
        intake->appended_in_transaction = true;
    }
    return on_commit(context, transaction, ret_error);
}

/* ---- where there is a table of signals, besides ---- */

/* A signal is acted on before it counts as received, and the batch that carries its position carries the step of what was asked for:
 * who has stored the one has the other, too, and what comes again is not done. */
static mr_status on_change_signals(void *context, const struct mr_change *change,
                                   struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (MR_UNLIKELY(change->relation->is_signal) && change->op == MR_OP_INSERT &&
        intake->hears_signals && change->lsn >= intake->delivered_below &&
        mr_position_compare(change->position, intake->appended) > 0 &&
        mr_position_compare(change->position, intake->signalled) > 0) {
        mr_status status = mr_companions_signal(intake->pipeline, change, ret_error);
        if (status != MR_OK) {
            note_failure(intake, status, change->position);
            return status;
        }
        intake->signalled = change->position;
    }
    return intake->counts ? on_change_counted(context, change, ret_error)
                          : on_change(context, change, ret_error);
}

/* ---- while a companion watches, besides ---- */

static uint64_t records_made(const struct mr_intake *intake)
{
    const struct mr_lane *lane = intake->lane;
    return atomic_load_explicit(&lane->records, memory_order_relaxed) +
           (lane->filling == NULL ? 0 : lane->filling->record_count);
}

static mr_status on_change_watched(void *context, const struct mr_change *change,
                                   struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    uint64_t before = records_made(intake);
    MR_TRY(on_change_signals(context, change, ret_error));
    mr_companions_change(intake->pipeline, change, records_made(intake) != before);
    return MR_OK;
}

/* The moment between two transactions, however fast they come. */
static mr_status on_begin_watched(void *context, const struct mr_transaction *transaction,
                                  struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    MR_TRY(mr_companions_between(intake->pipeline));
    return intake->counts ? on_begin_counted(context, transaction, ret_error)
                          : on_begin(context, transaction, ret_error);
}

static mr_status on_commit_watched(void *context, const struct mr_transaction *transaction,
                                   struct mr_error *ret_error)
{
    const struct mr_intake *intake = context;
    MR_TRY(intake->counts ? on_commit_counted(context, transaction, ret_error)
                          : on_commit(context, transaction, ret_error));
    mr_companions_commit(intake->pipeline, transaction);
    return MR_OK;
}

static void on_sealed_watched(void *context, const struct mr_lane *lane)
{
    mr_companions_sealed(context, lane);
}

void mr_intake_watch(struct mr_intake *intake, bool watches)
{
    intake->lane->on_sealed = watches ? on_sealed_watched : NULL;
    intake->lane->sealed_context = intake->pipeline;
    struct mr_source_handler *handler = &intake->handler;
    bool counts = intake->counts;
    handler->change = watches                 ? on_change_watched
                      : intake->hears_signals ? on_change_signals
                      : counts                ? on_change_counted
                                              : on_change;
    handler->begin = watches ? on_begin_watched : counts ? on_begin_counted : on_begin;
    handler->commit = watches ? on_commit_watched : counts ? on_commit_counted : on_commit;
    handler->message = counts ? on_message_counted : on_message;
}

/* Right below the place that the stream has come to, as what companions append has, which is not
 * to find themselves behind a heartbeat. */
mr_status mr_intake_beat(struct mr_intake *intake, struct mr_error *ret_error)
{
    enum { ORDINALS = 1 << 16 };
    MR_ASSERT(!intake->in_transaction);
    struct mr_heartbeat beat = {.position = {.commit_lsn = intake->marked - 1, .ordinal = 1},
                                .wall_ns = mr_wall_ns()};
    if (intake->appended.commit_lsn == beat.position.commit_lsn) {
        beat.position.ordinal = intake->appended.ordinal + 1;
    }
    if (!mr_intake_is_open(intake) || intake->marked == 0 || intake->lane->hold ||
        beat.position.ordinal >= ORDINALS ||
        mr_position_compare(beat.position, intake->appended) <= 0) {
        return mr_fail(ret_error, MR_AGAIN, "there is no place for a heartbeat");
    }
    const struct mr_item item = {.kind = MR_ITEM_HEARTBEAT, .heartbeat = &beat};
    intake->lane->round_ns = mr_monotonic_ns();
    intake->lane->round_wall_ns = beat.wall_ns;
    mr_status status = append(intake, &item, ret_error);
    if (status == MR_FULL) {
        return mr_fail(ret_error, MR_AGAIN, "there is no room for a heartbeat");
    }
    if (status == MR_OK) {
        intake->appended = beat.position;
    }
    return status;
}

static void on_first(void *context)
{
    mr_intake_carry(context);
}

void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline)
{
    *intake = (struct mr_intake){
        .pipeline = pipeline,
        .lane = &pipeline->lanes[MR_LANE_STREAM],
        .handler = {.context = intake, .keepalive = on_keepalive, .relation_end = on_relation_end},
    };
    const struct mr_encode_options *encode = mr_encoder_options(intake->lane->encoder);
    intake->counts = encode->transaction_topic != NULL;
    intake->hears_signals = mr_companions_hear_signals(pipeline);
    mr_intake_watch(intake, false);
    mr_lane_attach(intake->lane);
    intake->lane->on_first = on_first;
    intake->lane->context = intake;
}
