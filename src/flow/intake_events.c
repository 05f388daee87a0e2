/* What the source calls: events become records of the batch at hand, and full batches go to the
 * sink thread. */
#include "base/clock.h"
#include "base/thread.h"
#include "flow/companions.h"
#include "flow/intake_internal.h"

/* A keepalive may lie before what came already (see on_keepalive). */
static void note_received(struct mr_intake *intake, mr_lsn lsn)
{
    if (lsn > intake->received) {
        intake->received = lsn;
        atomic_store_explicit(&intake->pipeline->by_source.received, lsn, memory_order_relaxed);
    }
}

/* It is a repetition, or another program has delivered it: passed over, and counted. */
static bool is_delivered(struct mr_intake *intake, struct mr_position position, mr_lsn lsn)
{
    if (MR_LIKELY(!(mr_position_compare(position, intake->carry.appended) <= 0) &&
                  lsn >= intake->exceptions.delivered_below)) {
        return false;
    }
    mr_counter_add(&intake->counts->changes, 1);
    mr_counter_add(&intake->counts->skipped, 1);
    return true;
}

static void note_failure(struct mr_intake *intake, mr_status status, struct mr_position position)
{
    if (status != MR_FULL) {
        intake->failure.at = position;
    }
}

/* A person has to find the row. */
static void intake_events_name_row(const struct mr_intake *intake, const struct mr_change *change,
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

/* A signal is acted on before it counts as received, and the batch that carries its position
 * carries the step of what was asked for: if the one is stored, so is the other, and what comes
 * again is not done. */
static mr_status intake_events_hear_signal(struct mr_intake *intake, const struct mr_change *change,
                                           struct mr_error *ret_error)
{
    if (change->op != MR_OP_INSERT || change->lsn < intake->exceptions.delivered_below ||
        mr_position_compare(change->position, intake->carry.appended) <= 0 ||
        mr_position_compare(change->position, intake->companions.signalled) <= 0) {
        return MR_OK;
    }
    MR_EACH_COMPANION(intake->pipeline, signal)
    {
        mr_status status =
            companion->hears_signals ? companion->ops->signal(companion, change, ret_error) : MR_OK;
        if (status != MR_OK) {
            note_failure(intake, status, change->position);
            return status;
        }
    }
    intake->companions.signalled = change->position;
    return MR_OK;
}

static mr_status append_change(struct mr_intake *intake, const struct mr_item *item,
                               struct mr_error *ret_error)
{
    const struct mr_change *change = item->change;
    if (is_delivered(intake, change->position, change->lsn)) {
        if (intake->running.state == MR_RUNNING_SKIPPED) {
            mr_intake_skip_change(intake, change->relation);
        }
        return MR_OK;
    }
    mr_thread_table(change->relation->schema, change->relation->table);
    mr_status status = mr_lane_append(intake->lane, item, ret_error);
    mr_thread_table(NULL, NULL);
    if (MR_LIKELY(status == MR_OK)) {
        mr_counter_add(&intake->counts->changes, 1);
        mr_intake_appended_of_running(intake, change->position);
    } else {
        note_failure(intake, status, change->position);
        if (status == MR_ERR_POISON) {
            intake_events_name_row(intake, change, ret_error);
        }
    }
    return status;
}

/* With a topic of transactions: counts the item as one of its transaction. */
static mr_status count_item(struct mr_intake *intake, const struct mr_item *item,
                            const struct mr_transaction *transaction, struct mr_error *ret_error)
{
    if (MR_LIKELY(!intake->metadata.is_sent) || intake->running.state == MR_RUNNING_SKIPPED ||
        transaction == NULL) {
        return MR_OK;
    }
    if (mr_encoder_has_begun(intake->lane->encoder)) {
        intake->metadata.begun_lsn = transaction->commit_lsn;
    }
    return mr_encoder_pass(intake->lane->encoder, item, ret_error);
}

static uint64_t records_made(const struct mr_intake *intake)
{
    const struct mr_lane *lane = intake->lane;
    return atomic_load_explicit(&lane->counts.records, memory_order_relaxed) +
           (lane->filling == NULL ? 0 : lane->filling->record_count);
}

static mr_status intake_events_on_change(void *context, const struct mr_change *change,
                                         struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    const struct mr_item item = {.change = change};
    bool is_watched = intake->lane->is_watched;
    uint64_t before = MR_UNLIKELY(is_watched) ? records_made(intake) : 0;
    if (MR_UNLIKELY(change->relation->is_signal)) {
        MR_TRY(intake_events_hear_signal(intake, change, ret_error));
    }
    MR_TRY(append_change(intake, &item, ret_error));
    MR_TRY(count_item(intake, &item, change->transaction, ret_error));
    if (MR_UNLIKELY(is_watched)) {
        MR_EACH_COMPANION(intake->pipeline, change)
        {
            if (companion->watches) {
                companion->ops->change(companion, change, records_made(intake) != before);
            }
        }
    }
    return MR_OK;
}

static mr_status intake_events_on_message(void *context, const struct mr_message_event *message,
                                          struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (message->transaction == NULL && intake->exceptions.takes_over) {
        intake->exceptions.delivered_below = intake->pipeline->options.handed_over.lsn + 1;
    }
    const struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = message};
    if (!is_delivered(intake, message->position, message->lsn)) {
        mr_status status = mr_lane_append(intake->lane, &item, ret_error);
        if (status != MR_OK) {
            note_failure(intake, status, message->position);
            return status;
        }
        mr_counter_add(&intake->counts->changes, 1);
        if (message->transaction != NULL) {
            mr_intake_appended_of_running(intake, message->position);
        } else {
            mr_intake_appended(intake, message->position);
        }
    }
    if (message->transaction == NULL) {
        /* Its LSN is where its record ends; from there on the server sends what begins there, and
         * not the message (snapbuild.c, SnapBuildXactNeedsSkip, of the record's beginning). */
        mr_intake_mark(intake, message->lsn);
    }
    return count_item(intake, &item, message->transaction, ret_error);
}

/* Bytes of keys and values so far, those in the batch at hand included. */
static uint64_t bytes_made(const struct mr_intake *intake)
{
    const struct mr_lane *lane = intake->lane;
    return atomic_load_explicit(&lane->counts.bytes, memory_order_relaxed) +
           (lane->filling == NULL ? 0 : mr_batch_bytes(lane->filling));
}

/* What another program has delivered of it. A number of a transaction comes again after four
 * thousand million, but LSNs only grow. */
static void take_over(struct mr_intake *intake, const struct mr_transaction *transaction)
{
    const struct mr_handed_over *handed_over = &intake->pipeline->options.handed_over;
    intake->exceptions.delivered_below =
        transaction->xid == handed_over->xid ? handed_over->lsn + 1 : 0;
}

static mr_status intake_events_on_begin(void *context, const struct mr_transaction *transaction,
                                        struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (MR_UNLIKELY(intake->lane->is_watched)) {
        MR_TRY(mr_companions_between(intake->pipeline)); /* however fast transactions come */
    }
    if (mr_mailbox_wants_pause(&intake->pipeline->mailbox)) {
        return MR_FULL; /* it comes again after the command */
    }
    MR_ASSERT(!mr_intake_in_transaction(intake));
    intake->running = (struct mr_running){.state = MR_RUNNING_BEGUN,
                                          .commit_lsn = transaction->commit_lsn,
                                          .changes_at_begin = intake->counts->changes,
                                          .bytes_at_begin = bytes_made(intake)};
    mr_backlog_begin(&intake->pipeline->backlog, transaction->commit_time_us);
    if (MR_UNLIKELY(intake->pipeline->options.skip_commit_lsn != 0)) {
        mr_intake_skip_begin(intake, transaction->commit_lsn);
    }
    if (MR_UNLIKELY(intake->exceptions.takes_over)) {
        take_over(intake, transaction);
    }
    if (intake->metadata.is_sent) {
        mr_encoder_begin(intake->lane->encoder, transaction,
                         intake->metadata.begun_lsn == transaction->commit_lsn ||
                             intake->exceptions.delivered_below != 0);
    }
    return MR_OK;
}

/* With a topic of transactions: its END. */
static mr_status append_end(struct mr_intake *intake, const struct mr_transaction *transaction,
                            struct mr_error *ret_error)
{
    const struct mr_transaction_end end = {
        .transaction = transaction, .position = mr_encoder_end_position(intake->lane->encoder)};
    if (mr_position_compare(end.position, intake->carry.appended) <= 0) {
        return MR_OK;
    }
    const struct mr_item item = {.kind = MR_ITEM_END, .end = &end};
    mr_status status = mr_lane_append(intake->lane, &item, ret_error);
    if (status == MR_OK) {
        mr_intake_appended_of_running(intake, end.position);
    } else {
        note_failure(intake, status, end.position);
    }
    return status;
}

/* A connection sends again what was not published when the one before it ended. */
static void note_last(struct mr_intake *intake, const struct mr_transaction *transaction)
{
    if (MR_LIKELY(transaction->has_rows) && transaction->commit_lsn > intake->carry.last.lsn) {
        intake->carry.last = (struct mr_commit){.lsn = transaction->commit_lsn,
                                                .time_us = transaction->commit_time_us,
                                                .xid = transaction->xid,
                                                .asked = intake->asked};
    }
}

static mr_status intake_events_on_commit(void *context, const struct mr_transaction *transaction,
                                         struct mr_error *ret_error)
{
    struct mr_intake *intake = context;
    if (intake->metadata.is_sent) {
        MR_TRY(append_end(intake, transaction, ret_error));
    }
    intake->failure.attempt = 0;
    intake->feedback.asked = 0;
    const struct mr_running ended = intake->running;
    MR_ASSERT(ended.commit_lsn == transaction->commit_lsn);
    intake->running.state = MR_RUNNING_NONE;
    if (MR_UNLIKELY(ended.state == MR_RUNNING_SKIPPED)) {
        mr_intake_skip_end(intake, transaction->commit_lsn);
    }
    if (MR_UNLIKELY(intake->failure.poison.failures > 0)) {
        mr_intake_forget_poison(intake, transaction->commit_lsn);
    }
    intake->carry.ends_rows |= ended.state == MR_RUNNING_APPENDED;
    mr_counter_add(&intake->counts->transactions, 1);
    struct mr_meter *meter = &intake->pipeline->meter;
    mr_histogram_record(&meter->transaction_changes,
                        intake->counts->changes - ended.changes_at_begin);
    mr_histogram_record(&meter->transaction_bytes, bytes_made(intake) - ended.bytes_at_begin);
    note_last(intake, transaction);
    mr_intake_mark(intake, transaction->end_lsn);
    note_received(intake, transaction->end_lsn);
    if (MR_UNLIKELY(intake->lane->is_watched)) {
        MR_EACH_COMPANION(intake->pipeline, commit)
        {
            if (companion->watches) {
                companion->ops->commit(companion, transaction);
            }
        }
    }
    return MR_OK;
}

static void intake_events_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct mr_intake *intake = context;
    intake->failure.attempt = 0;
    if (reply_requested) {
        intake->feedback.reply_wanted = true;
        bool insists = server_end == intake->feedback.asked_at &&
                       intake->lane->round.ns - intake->feedback.asked_ns < MR_INSISTENCE_NS;
        intake->feedback.asked = insists ? intake->feedback.asked + 1 : 1;
        intake->feedback.asked_at = server_end;
        intake->feedback.asked_ns = intake->lane->round.ns;
    }
    /* All that commits before server_end was sent before this message (walsender.c,
     * XLogSendLogical: the end of the last record that was processed; it may lie before what is
     * marked already); nothing may be said of a transaction that is on its way. */
    if (!mr_intake_in_transaction(intake)) {
        mr_intake_mark(intake, server_end);
        note_received(intake, server_end);
    }
}

/* Whatever becomes of the row that shows it: the next one of the partition does not. */
static mr_status intake_events_on_part(void *context, const struct mr_relation *root,
                                       const struct mr_relation *part, struct mr_error *ret_error)
{
    const struct mr_intake *intake = context;
    return mr_encoder_part(intake->lane->encoder, root, part, ret_error);
}

static void intake_events_on_relation_end(void *context, const struct mr_relation *relation)
{
    struct mr_intake *intake = context;
    MR_EACH_COMPANION(intake->pipeline, relation_end)
    {
        companion->ops->relation_end(companion, relation);
    }
    mr_encoder_forget(intake->lane->encoder, relation);
}

/* Right below the place that the stream has come to, as copied rows are, which are not to be below
 * it. */
mr_status mr_intake_append_record(struct mr_intake *intake, struct mr_record *record,
                                  struct mr_error *ret_error)
{
    enum { ORDINALS = 1 << 16 };
    struct mr_position position = {.commit_lsn = intake->carry.marked - 1, .ordinal = 1};
    MR_ASSERT(!mr_intake_in_transaction(intake));
    if (intake->carry.appended.commit_lsn == position.commit_lsn) {
        position.ordinal = intake->carry.appended.ordinal + 1;
    }
    if (!mr_intake_is_open(intake) || intake->carry.marked == 0 || intake->lane->room.hold ||
        position.ordinal >= ORDINALS ||
        mr_position_compare(position, intake->carry.appended) <= 0) {
        return mr_fail(ret_error, MR_AGAIN, "there is no place for a record");
    }
    record->position = position;
    const struct mr_item item = {.kind = MR_ITEM_RECORD, .record = record};
    intake->lane->round.ns = mr_monotonic_ns();
    intake->lane->round.wall_ns = record->commit_time_us * 1000;
    mr_status status = mr_lane_append(intake->lane, &item, ret_error);
    if (status == MR_OK) {
        mr_intake_appended(intake, position);
    }
    return status;
}

mr_status mr_intake_beat(struct mr_intake *intake, struct mr_error *ret_error)
{
    enum { BEAT_BYTES = 1024 }; /* names of topics are shorter */
    uint8_t bytes[BEAT_BYTES];
    struct mr_buffer buffer = mr_buffer_init(bytes, sizeof(bytes));
    struct mr_record record = mr_encoder_heartbeat(intake->lane->encoder, mr_wall_ns(), &buffer);
    MR_ASSERT(!buffer.full);
    mr_status status = mr_intake_append_record(intake, &record, ret_error);
    return status == MR_FULL ? mr_fail(ret_error, MR_AGAIN, "there is no room for a heartbeat")
                             : status;
}

void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline)
{
    struct mr_lane *lane = &pipeline->lanes.items[MR_LANE_STREAM];
    *intake = (struct mr_intake){
        .pipeline = pipeline,
        .lane = lane,
        .counts = &pipeline->by_source,
        .handler = {.context = intake,
                    .hold = &lane->room.hold,
                    .sent_us = &pipeline->backlog.sent_us,
                    .begin = intake_events_on_begin,
                    .change = intake_events_on_change,
                    .message = intake_events_on_message,
                    .commit = intake_events_on_commit,
                    .keepalive = intake_events_on_keepalive,
                    .part = intake_events_on_part,
                    .relation_end = intake_events_on_relation_end},
        .metadata.is_sent = mr_encoder_options(lane->encoder)->transaction_topic != NULL,
    };
    mr_lane_attach(lane);
}
