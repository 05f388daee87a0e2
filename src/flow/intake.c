/* The source thread's loop: receives, tells PostgreSQL how far delivery has come, and stops in
 * order. */
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "flow/companions.h"
#include "flow/intake_internal.h"

/* So many questions in a row at one position, each right after our answer: the server shuts down
 * and waits for a confirmation (walsender.c, WalSndDone). One that is only idle asks when half of
 * wal_sender_timeout is over (WalSndKeepaliveIfNecessary). */
#define INSISTENCE_MAX 20
/* A sink that takes nothing for so many idle intervals lets the connection go, so that the server
 * is free to stop. */
enum { STALLED_INTERVALS = 6 };
/* No byte for so many idle intervals although we asked: the connection is dead. */
enum { SILENT_INTERVALS = 5 };
/* At the end, a sink that is there has stored a position alone by then. */
#define POSITION_PATIENCE_NS (INT64_C(1) * 1000000000)

/* So long companions wait for a batch before the stream is looked at again. */
#define BESIDE_WAIT_NS (INT64_C(5) * 1000000)

/* There was no room for what the server sent. */
static mr_status intake_wait_for_room(struct mr_intake *intake, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    if (intake->wait.stalled_ns == 0) {
        intake->wait.stalled_ns = now_ns;
    }
    intake->feedback.heard_ns = now_ns; /* the server waits for us, not we for it */
    intake->feedback.question_ns = 0;
    if (now_ns - intake->wait.stalled_ns > STALLED_INTERVALS * mr_intake_idle_ns(intake)) {
        intake->wait.resting = true;
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "the sink has taken nothing for a minute; leaving PostgreSQL alone until it does");
    }
    mr_intake_wait_for_batch(intake);
    return MR_OK;
}

/* The server shuts down and asks without end for the confirmation of rows that the sink does not
 * take. It would wait for ever; the rows are safe with it. */
static mr_status leave_if_asked_in_vain(struct mr_intake *intake, struct mr_error *ret_error)
{
    if (intake->feedback.asked < INSISTENCE_MAX || mr_lane_all_published(intake->lane)) {
        return MR_OK;
    }
    intake->feedback.asked = 0;
    return mr_fail(
        ret_error, MR_ERR_TRANSIENT,
        "PostgreSQL is shutting down, and what it sent is not acknowledged yet; leaving, so that "
        "it can");
}

/* The answer to our question is a keepalive that may say nothing new (walsender.c,
 * ProcessStandbyReplyMessage). */
static void note_heard(struct mr_intake *intake, int64_t now_ns)
{
    uint64_t bytes =
        atomic_load_explicit(&intake->pipeline->source->received_bytes, memory_order_relaxed);
    if (bytes != intake->feedback.heard_bytes) {
        intake->feedback.heard_bytes = bytes;
        intake->feedback.heard_ns = now_ns;
        intake->feedback.question_ns = 0;
    }
}

static mr_status fail_if_silent(const struct mr_intake *intake, int64_t now_ns,
                                struct mr_error *ret_error)
{
    int64_t limit_ns = SILENT_INTERVALS * mr_intake_idle_ns(intake);
    if (intake->feedback.question_ns == 0 || now_ns - intake->feedback.question_ns <= limit_ns) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "PostgreSQL has been silent for a minute although it was asked to answer");
}

/* One round of receiving; MR_OK whatever there was to receive. */
static mr_status receive_round(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_lane *lane = intake->lane;
    lane->round.wall_ns = mr_wall_ns();
    mr_encoder_set_clock(lane->encoder, lane->round.wall_ns);
    mr_lane_look_for_room(lane);
    mr_status status =
        pipeline->source->ops->receive(pipeline->source, &intake->handler, ret_error);
    note_heard(intake, lane->round.ns);
    mr_backlog_judge(&pipeline->backlog);
    if (status == MR_FULL && !mr_intake_in_transaction(intake) &&
        mr_mailbox_wants_pause(&pipeline->mailbox)) {
        return MR_OK;
    }
    if (status == MR_FULL) {
        return intake_wait_for_room(intake, ret_error);
    }
    intake->wait.stalled_ns = 0;
    if (status == MR_AGAIN) {
        MR_TRY(fail_if_silent(intake, lane->round.ns, ret_error));
        mr_intake_wait_for_source(intake);
        return leave_if_asked_in_vain(intake, ret_error);
    }
    return status;
}

/* While the pool is empty there is nothing to receive for either. */
static void companions_round(struct mr_intake *intake)
{
    if (!mr_intake_in_transaction(intake) && mr_companions_between(intake->pipeline) == MR_FULL) {
        mr_intake_wait_for_sink(intake, BESIDE_WAIT_NS);
    }
}

static mr_status stream_round(struct mr_intake *intake, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    intake->lane->round.ns = now_ns;
    MR_TRY(mr_intake_feedback(intake, now_ns, ret_error));
    if (mr_intake_position_due_in(intake, now_ns) <= 0) {
        mr_intake_send_position(intake, now_ns);
    }
    companions_round(intake);
    return receive_round(intake, ret_error);
}

static bool stop_asked(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    uint64_t limit = pipeline->options.stop_after_events;
    if (limit != 0 &&
        atomic_load_explicit(&intake->lane->counts.records, memory_order_relaxed) >= limit) {
        mr_pipeline_stop_in_order(pipeline);
    }
    if (atomic_load(&pipeline->ending.level) == MR_STOP_NONE) {
        return false;
    }
    if (intake->stop_deadline_ns == 0) {
        intake->stop_deadline_ns =
            mr_monotonic_ns() + (int64_t)pipeline->options.shutdown_deadline_ms * 1000000;
    }
    return true;
}

/* A topic that is missing when the stop is asked for, only a person can make; what else is in
 * flight gets a moment. */
static int64_t deadline_ns(const struct mr_intake *intake)
{
    const struct mr_pipeline *pipeline = intake->pipeline;
    if (!mr_standstill_has(&pipeline->standstill, MR_CAUSE_TOPIC_MISSING)) {
        return intake->stop_deadline_ns;
    }
    int64_t whole_ns = (int64_t)pipeline->options.shutdown_deadline_ms * 1000000;
    return intake->stop_deadline_ns - whole_ns + POSITION_PATIENCE_NS;
}

static bool deadline_passed(const struct mr_intake *intake)
{
    return atomic_load(&intake->pipeline->ending.level) == MR_STOP_NOW ||
           (intake->stop_deadline_ns != 0 && mr_monotonic_ns() > deadline_ns(intake));
}

/* The four numbers. Other threads read them. */
static void change_numbers(struct mr_pipeline_options *options,
                           const struct mr_pipeline_options *wanted)
{
    atomic_store(&options->latency_us, wanted->latency_us);
    atomic_store(&options->status_interval_ms, wanted->status_interval_ms);
    atomic_store(&options->shutdown_deadline_ms, wanted->shutdown_deadline_ms);
    atomic_store(&options->backoff_max_ms, wanted->backoff_max_ms);
}

mr_status mr_intake_change(struct mr_intake *intake, const struct mr_pipeline_change *change,
                           struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    MR_EACH_COMPANION(pipeline, is_busy)
    {
        if (companion->ops->is_busy(companion)) {
            return mr_fail(ret_error, MR_AGAIN,
                           "existing rows are being copied; ask again when that is done");
        }
    }
    MR_ASSERT(!mr_intake_in_transaction(intake));
    if (change->options != NULL) {
        change_numbers(&pipeline->options, change->options);
    }
    if (change->encode != NULL) {
        for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
            mr_encoder_change(pipeline->lanes.items[i].encoder, change->encode);
        }
    }
    if (change->source != NULL) {
        mr_intake_change_source(intake, change->source);
    }
    return MR_OK;
}

/* Streams until a stop finds a moment between transactions, or something fatal happens. */
static mr_status intake_stream(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    for (;;) {
        mr_intake_follow_session(intake);
        if (!mr_intake_in_transaction(intake)) {
            mr_mailbox_serve(&pipeline->mailbox);
        }
        if (atomic_load(&pipeline->ending.sink)) {
            return MR_OK;
        }
        /* Part of a transaction is out: its rest must follow, or a restart would repeat that
         * part. */
        if (stop_asked(intake) &&
            (!mr_intake_is_open(intake) || intake->running.state != MR_RUNNING_APPENDED ||
             deadline_passed(intake))) {
            return MR_OK;
        }
        mr_status status = mr_intake_is_open(intake) ? stream_round(intake, ret_error)
                                                     : mr_intake_connect(intake, ret_error);
        if (status != MR_OK) {
            MR_TRY(mr_intake_failed(intake, status, ret_error));
        }
    }
}

/* Without what is not published yet, no row would come twice. */
static bool rows_are_published(const struct mr_intake *intake)
{
    return !mr_lane_has_records(intake->lane) && !intake->carry.ends_rows &&
           mr_lane_stored(intake->lane) >= intake->lane->handed.needed;
}

static mr_status left_in_flight(struct mr_pipeline *pipeline, struct mr_error *ret_error)
{
    struct mr_standstill_view standstill;
    mr_standstill_look(&pipeline->standstill, &standstill);
    return mr_fail(ret_error, MR_ERR_DEADLINE,
                   "stopped before Kafka had acknowledged everything that was read; nothing is "
                   "lost, but some rows will come twice after the next start%s%s",
                   standstill.cause == MR_CAUSE_NONE ? "" : ". In the way was: ", standstill.text);
}

/* Waits until all that was handed over is delivered, while the server keeps hearing of us; for
 * positions without rows only a moment. */
static mr_status intake_drain(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (mr_lane_has_records(intake->lane) && intake->running.state != MR_RUNNING_APPENDED) {
        mr_lane_hand_over(intake->lane);
    }
    int64_t begin_ns = mr_monotonic_ns();
    bool rows_out = false;
    while (!mr_lane_all_published(intake->lane) || mr_intake_position_waits(intake)) {
        bool sink_lost = mr_handshake_look(&pipeline->handshake).session != intake->session ||
                         atomic_load(&pipeline->ending.sink);
        rows_out = rows_out || (!sink_lost && rows_are_published(intake));
        bool patient = !rows_out || mr_monotonic_ns() - begin_ns < POSITION_PATIENCE_NS;
        if (sink_lost || deadline_passed(intake) || !patient) {
            return rows_out ? MR_OK : left_in_flight(pipeline, ret_error);
        }
        if (mr_intake_is_open(intake) &&
            mr_intake_feedback(intake, mr_monotonic_ns(), ret_error) != MR_OK) {
            mr_intake_disconnect(intake, 0);
            intake->feedback.was_lost = true;
        }
        if (mr_intake_position_due_in(intake, mr_monotonic_ns()) <= 0) {
            mr_intake_send_position(intake, mr_monotonic_ns());
        }
        if (!mr_lane_all_published(intake->lane)) {
            mr_intake_wait_for_sink(intake, MR_REPLY_INTERVAL_NS);
        }
    }
    return MR_OK;
}

/* Whether the server knows of every row that was delivered, if any was: later positions don't
 * matter. One whose connection was lost may have crashed, and then knows less than was confirmed
 * (LogicalConfirmReceivedLocation in src/backend/replication/logical/logical.c saves the slot only
 * when its catalog_xmin or restart_lsn moves; until 16 an orderly restart forgets the rest,
 * too). */
static bool rows_are_confirmed(const struct mr_intake *intake)
{
    mr_lsn last = mr_intake_last_row(intake);
    bool all_confirmed =
        last < intake->feedback.known || mr_intake_published(intake) == intake->feedback.confirmed;
    return last == 0 || (all_confirmed && !intake->feedback.was_lost);
}

/* Whether rows that an earlier session had, and lost, have not come again since: nothing is in
 * flight, and yet not all is delivered. */
static bool lost_rows_are_owed(const struct mr_intake *intake)
{
    mr_lsn last = intake->carry.last_row_before;
    return last != 0 && last >= mr_intake_published(intake);
}

/* The last word to the server, and its answer. */
static mr_status confirm_end(struct mr_intake *intake, struct mr_error *ret_error)
{
    bool was_open = mr_intake_is_open(intake);
    if (was_open) {
        mr_status status = mr_intake_confirm(intake, mr_monotonic_ns(), ret_error);
        mr_intake_disconnect(intake, intake->stop_deadline_ns);
        if (status != MR_OK) {
            return MR_ERR_DEADLINE;
        }
    }
    /* Without an answer, what was confirmed before may not have come either. */
    bool is_known = was_open
                        ? !intake->pipeline->source->unanswered || mr_intake_last_row(intake) == 0
                        : intake->feedback.confirmed_ns == 0 || rows_are_confirmed(intake);
    /* The next start goes on where the sink says, whatever the server knows. Of a stream that
     * never began there is nothing new to confirm. */
    if (intake->pipeline->port.stores || is_known) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_DEADLINE,
        "stopped while PostgreSQL was away, so it may not know what is delivered; nothing is "
        "lost, but some rows may come twice after the next start");
}

static mr_status intake_run(struct mr_intake *intake, struct mr_error *ret_error)
{
    MR_TRY(intake_stream(intake, ret_error));
    if (intake->stop_deadline_ns == 0) {
        intake->stop_deadline_ns = mr_monotonic_ns(); /* the sink has ended: nothing to wait for */
    }
    MR_TRY(intake_drain(intake, ret_error));
    if (lost_rows_are_owed(intake)) {
        return left_in_flight(intake->pipeline, ret_error);
    }
    return confirm_end(intake, ret_error);
}

void *mr_intake_main(void *context)
{
    struct mr_pipeline *pipeline = context;
    prctl(PR_SET_NAME, "mr-source");
    mr_thread_begin(MR_THREAD_SOURCE, "mr-source");
    atomic_store(&pipeline->by_source.tid, gettid());
    /* Pauses of some hundred microseconds should be just that: the kernel may add 50 µs
     * otherwise. */
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    struct mr_intake intake;
    mr_intake_init(&intake, pipeline);
    pipeline->intake = &intake;
    pipeline->results.source = intake_run(&intake, &pipeline->results.source_error);
    mr_mailbox_close(&pipeline->mailbox);
    mr_companions_lost(pipeline, MR_LOST_END);
    if (mr_handshake_is_claimed(intake.state)) {
        mr_intake_disconnect(&intake, 0);
    }
    atomic_store(&pipeline->ending.source, true);
    mr_wake(pipeline->wakes.abandon);
    mr_wake(pipeline->wakes.sink);
    mr_wake(pipeline->wakes.done);
    mr_thread_end();
    return NULL;
}
