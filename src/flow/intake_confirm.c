/* Positions: which batch carries one, what is confirmed to PostgreSQL, and when. */
#include "base/clock.h"
#include "flow/intake_internal.h"

/* While the server's questions are not read, for want of room or because this is the end, it hears
 * of us so often all the same; else a short wal_sender_timeout would end the connection. */
#define UNREAD_NS (INT64_C(1) * 1000000000)
/* With nothing else to deliver, a position sets out alone so often. */
#define POSITION_NS (INT64_C(1) * 1000000000)

void mr_intake_mark(struct mr_intake *intake, mr_lsn lsn)
{
    if (lsn <= intake->carry.marked) {
        return;
    }
    intake->carry.marked = lsn;
    if (mr_lane_has_records(intake->lane)) {
        mr_intake_carry(intake);
    }
}

/* What waits was complete before the batch at hand had its first record, or is completed by its
 * last one. */
void mr_intake_carry(struct mr_intake *intake)
{
    MR_ASSERT(intake->carry.carried <= intake->carry.marked);
    if (intake->carry.marked > intake->carry.carried) {
        MR_ASSERT(intake->lane->filling->state == MR_BATCH_FILLING);
        MR_ASSERT(intake->carry.marked > intake->lane->filling->confirm_lsn);
        intake->lane->filling->confirm_lsn = intake->carry.marked;
        intake->lane->filling->last = intake->carry.last;
        intake->carry.carried = intake->carry.marked;
        intake->carry.ends_rows = false;
    }
}

/* A companion's step goes with a position, and there is one. */
static bool owes_step(const struct mr_intake *intake)
{
    return intake->carry.marked != 0 && mr_lane_owes_step(intake->lane);
}

bool mr_intake_position_waits(const struct mr_intake *intake)
{
    return (intake->carry.marked > intake->carry.carried || owes_step(intake)) &&
           !mr_lane_has_records(intake->lane);
}

/* The end of a transaction whose rows are out already is due with the next status update: without
 * it they would come twice. Without a batch nothing is due: the one that comes home next wakes
 * us. */
int64_t mr_intake_position_due_in(const struct mr_intake *intake, int64_t now_ns)
{
    bool has_batch = mr_lane_has_batch(intake->lane);
    if (!mr_intake_position_waits(intake) || !has_batch) {
        return INT64_MAX;
    }
    if (intake->feedback.reply_wanted || intake->stop_deadline_ns != 0) {
        return 0;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    bool is_soon = intake->carry.ends_rows || owes_step(intake);
    return intake->carry.alone_ns + (is_soon ? status_ns : POSITION_NS) - now_ns;
}

void mr_intake_send_position(struct mr_intake *intake, int64_t now_ns)
{
    struct mr_lane *lane = intake->lane;
    if (!mr_lane_take(lane)) {
        return; /* another lane has just taken it */
    }
    MR_ASSERT(lane->filling->record_count == 0);
    bool is_needed = intake->carry.ends_rows || owes_step(intake);
    mr_intake_carry(intake);
    intake->carry.alone_ns = now_ns;
    mr_lane_hand_over(lane);
    if (is_needed) {
        lane->handed.needed = lane->handed.sequence;
    }
}

mr_status mr_intake_confirm(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_source *source = pipeline->source;
    mr_lsn lsn = mr_intake_published(intake);
    MR_ASSERT(lsn >= intake->feedback.confirmed); /* what is confirmed never goes back */
    MR_ASSERT(mr_intake_is_open(intake));
    bool asks = now_ns - intake->feedback.heard_ns > mr_intake_idle_ns(intake);
    MR_TRY(source->ops->confirm(source, lsn, asks, ret_error));
    if (asks && intake->feedback.question_ns == 0) {
        intake->feedback.question_ns = now_ns;
    }
    if (lsn > intake->feedback.confirmed) {
        mr_meter_confirmed(&pipeline->meter, now_ns);
    }
    intake->feedback.confirmed = lsn;
    intake->feedback.known = lsn;
    intake->feedback.confirmed_ns = now_ns;
    intake->feedback.reply_wanted = false;
    atomic_store_explicit(&pipeline->by_source.confirmed, lsn, memory_order_relaxed);
    return MR_OK;
}

int64_t mr_intake_feedback_due_in(const struct mr_intake *intake, int64_t now_ns)
{
    int64_t since_ns = now_ns - intake->feedback.confirmed_ns;
    bool news = mr_intake_published(intake) > intake->feedback.confirmed;
    if (intake->feedback.reply_wanted) {
        return news ? 0 : MR_REPLY_INTERVAL_NS - since_ns;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    int64_t idle_ns = mr_intake_idle_ns(intake);
    bool reads = intake->wait.stalled_ns == 0 && intake->stop_deadline_ns == 0;
    return (news ? status_ns : reads || idle_ns < UNREAD_NS ? idle_ns : UNREAD_NS) - since_ns;
}

mr_status mr_intake_feedback(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    atomic_store_explicit(&intake->pipeline->by_source.turn_ns, now_ns, memory_order_relaxed);
    return mr_intake_feedback_due_in(intake, now_ns) <= 0
               ? mr_intake_confirm(intake, now_ns, ret_error)
               : MR_OK;
}
