/* What PostgreSQL may be told, and when: positions of batches that are delivered, and of markers, which no batch with
 * records carries. */
#include "base/clock.h"
#include "pipeline/intake_internal.h"

/* No byte for so long although we asked: the connection is dead. */
#define SILENCE_NS (INT64_C(60) * 1000000000)
/* With nothing else to store, a position alone is stored so often. */
#define MARKER_NS (INT64_C(1) * 1000000000)

void mr_intake_mark(struct mr_intake *intake, mr_lsn lsn)
{
    if (lsn <= intake->marked) {
        return;
    }
    intake->marked = lsn;
    if (mr_intake_has_records(intake)) {
        intake->filling->confirm_lsn = lsn;
        intake->marker_sent = lsn;
    } else {
        intake->marker_lsn = lsn;
        intake->marker_sequence = intake->sequence;
    }
}

bool mr_intake_marker_pending(const struct mr_intake *intake)
{
    return mr_intake_stores(intake) && intake->marker_lsn > intake->marker_sent &&
           !mr_intake_has_records(intake);
}

/* The end of a transaction whose rows are out already is due with the next status update: without it they would come
 * twice. */
int64_t mr_intake_marker_due_in(const struct mr_intake *intake, int64_t now_ns)
{
    if (!mr_intake_marker_pending(intake)) {
        return INT64_MAX;
    }
    if (intake->reply_wanted || intake->stop_deadline_ns != 0) {
        return 0;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    int64_t interval_ns = intake->marker_ends_rows ? status_ns : MARKER_NS;
    return intake->marker_sent_ns + interval_ns - now_ns;
}

void mr_intake_send_marker(struct mr_intake *intake, int64_t now_ns)
{
    if (mr_intake_marker_due_in(intake, now_ns) > 0) {
        return;
    }
    if (intake->filling == NULL) {
        intake->filling = mr_pool_acquire(&intake->pipeline->pool);
    }
    if (intake->filling != NULL) {
        intake->filling->confirm_lsn = intake->marker_lsn;
        intake->marker_sent = intake->marker_lsn;
        intake->marker_sent_ns = now_ns;
        intake->marker_ends_rows = false;
        mr_intake_hand_over(intake);
    }
}

/* ---- feedback ---- */

bool mr_intake_all_delivered(const struct mr_intake *intake)
{
    return !mr_intake_has_records(intake) &&
           atomic_load(&intake->pipeline->delivered) == intake->sequence;
}

/* Only meaningful while the session is the one the sink runs. */
void mr_intake_update_confirmed(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    uint64_t delivered = atomic_load(&pipeline->delivered);
    mr_lsn lsn = atomic_load(&pipeline->confirmed);
    if (!mr_intake_stores(intake) && intake->marker_sequence <= delivered &&
        intake->marker_lsn > lsn && atomic_load(&pipeline->session) == intake->session) {
        lsn = intake->marker_lsn;
    }
    if (lsn > intake->confirmed) {
        intake->confirmed = lsn;
    }
}

mr_status mr_intake_tell(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    struct mr_source *source = intake->pipeline->source;
    bool ping = now_ns - intake->heard_ns > MR_STATUS_IDLE_NS;
    MR_TRY(source->ops->confirm(source, intake->confirmed, ping, ret_error));
    if (intake->confirmed > intake->told) {
        mr_meter_told(&intake->pipeline->meter, now_ns);
    }
    intake->told = intake->confirmed;
    intake->told_ns = now_ns;
    intake->reply_wanted = false;
    return MR_OK;
}

int64_t mr_intake_feedback_due_in(const struct mr_intake *intake, int64_t now_ns)
{
    int64_t since_ns = now_ns - intake->told_ns;
    bool news = intake->confirmed > intake->told;
    if (intake->reply_wanted) {
        return news ? 0 : MR_REPLY_INTERVAL_NS - since_ns;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    return (news ? status_ns : MR_STATUS_IDLE_NS) - since_ns;
}

mr_status mr_intake_feedback(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    atomic_store_explicit(&intake->pipeline->source_turn_ns, now_ns, memory_order_relaxed);
    mr_intake_update_confirmed(intake);
    if (now_ns - intake->heard_ns > SILENCE_NS) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "PostgreSQL has been silent for a minute although it was asked to answer");
    }
    return mr_intake_feedback_due_in(intake, now_ns) <= 0
               ? mr_intake_tell(intake, now_ns, ret_error)
               : MR_OK;
}
