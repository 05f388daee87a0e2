/* The source thread's loop: receives, tells PostgreSQL how far delivery has come, and stops in order. */
#include <sys/prctl.h>

#include "base/clock.h"
#include "pipeline/intake_internal.h"
#include "prof/threads.h"

/* So many questions in a row at one position: the server shuts down and waits for a confirmation. */
#define INSISTENCE_MAX 20
/* A sink that takes nothing for so long lets the connection go, so that the server is free to stop. */
#define STALL_NS (INT64_C(60) * 1000000000)

static void publish_counts(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    atomic_store_explicit(&pipeline->changes, intake->changes, memory_order_relaxed);
    atomic_store_explicit(&pipeline->skipped, intake->skipped, memory_order_relaxed);
    atomic_store_explicit(&pipeline->transactions, intake->transactions, memory_order_relaxed);
}

/* There was no room for what the server sent. */
static mr_status wait_for_room(struct mr_intake *intake, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    if (intake->stalled_ns == 0) {
        intake->stalled_ns = now_ns;
    }
    intake->heard_ns = now_ns; /* the server waits for us, not we for it */
    if (now_ns - intake->stalled_ns > STALL_NS) {
        return mr_fail(
            ret_error, MR_ERR_TRANSIENT,
            "the sink has taken nothing for a minute; leaving PostgreSQL alone until it does");
    }
    mr_intake_wait_for_batch(intake);
    return MR_OK;
}

/* The server shuts down and asks without end to be told of rows that the sink does not take. It would wait
 * for ever; the rows are safe with it. */
static mr_status leave_if_asked_in_vain(struct mr_intake *intake, struct mr_error *ret_error)
{
    if (intake->asked < INSISTENCE_MAX || mr_intake_all_delivered(intake)) {
        return MR_OK;
    }
    intake->asked = 0;
    return mr_fail(
        ret_error, MR_ERR_TRANSIENT,
        "PostgreSQL is shutting down, and what it sent is not acknowledged yet; leaving, so that "
        "it can");
}

/* One round of receiving; MR_OK whatever there was to receive. */
static mr_status receive_round(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    intake->round_wall_ns = mr_wall_ns();
    mr_encoder_set_clock(pipeline->encoder, intake->round_wall_ns);
    intake->handler.hold = !mr_intake_may_go_on(intake);
    mr_status status =
        pipeline->source->ops->receive(pipeline->source, &intake->handler, ret_error);
    publish_counts(intake);
    if (status == MR_FULL) {
        return wait_for_room(intake, ret_error);
    }
    intake->stalled_ns = 0;
    if (status == MR_AGAIN) {
        mr_intake_wait_for_source(intake);
        return leave_if_asked_in_vain(intake, ret_error);
    }
    return status;
}

static mr_status stream_round(struct mr_intake *intake, struct mr_error *ret_error)
{
    uint64_t activity = intake->changes + intake->transactions;
    mr_lsn received = atomic_load_explicit(&intake->pipeline->received, memory_order_relaxed);
    int64_t now_ns = mr_monotonic_ns();
    intake->round_ns = now_ns;
    MR_TRY(mr_intake_feedback(intake, now_ns, ret_error));
    mr_intake_send_marker(intake, now_ns);
    MR_TRY(receive_round(intake, ret_error));
    if (activity != intake->changes + intake->transactions || intake->reply_wanted ||
        received != atomic_load_explicit(&intake->pipeline->received, memory_order_relaxed)) {
        intake->heard_ns = now_ns;
    }
    return MR_OK;
}

static bool stop_asked(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    uint64_t limit = pipeline->options.stop_after_events;
    if (limit != 0 && intake->records >= limit) {
        atomic_store(&pipeline->stop_level, MR_STOP_ORDERLY);
    }
    if (atomic_load(&pipeline->stop_level) == MR_STOP_NONE) {
        return false;
    }
    if (intake->stop_deadline_ns == 0) {
        intake->stop_deadline_ns =
            mr_monotonic_ns() + (int64_t)pipeline->options.shutdown_deadline_ms * 1000000;
    }
    return true;
}

static bool deadline_passed(const struct mr_intake *intake)
{
    return atomic_load(&intake->pipeline->stop_level) == MR_STOP_NOW ||
           (intake->stop_deadline_ns != 0 && mr_monotonic_ns() > intake->stop_deadline_ns);
}

/* Streams until a stop finds a moment between transactions, or something fatal happens. */
static mr_status stream(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    for (;;) {
        mr_intake_follow_session(intake);
        if (atomic_load(&pipeline->sink_ended)) {
            return MR_OK;
        }
        /* Part of a transaction is out: its rest must follow, or a restart would repeat that part. */
        if (stop_asked(intake) &&
            (!intake->connected || !intake->appended_in_transaction || deadline_passed(intake))) {
            return MR_OK;
        }
        mr_status status = intake->connected ? stream_round(intake, ret_error)
                                             : mr_intake_connect(intake, ret_error);
        if (status != MR_OK) {
            MR_TRY(mr_intake_failed(intake, status, ret_error));
        }
    }
}

/* Waits until all that was handed over is delivered, while the server keeps hearing of us. */
static mr_status drain(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (mr_intake_has_records(intake) && !intake->appended_in_transaction) {
        mr_intake_hand_over(intake);
    }
    while (!mr_intake_all_delivered(intake) || mr_intake_marker_pending(intake)) {
        bool sink_lost = atomic_load(&pipeline->session) != intake->session ||
                         atomic_load(&pipeline->sink_ended);
        if (sink_lost || deadline_passed(intake)) {
            return mr_fail(
                ret_error, MR_ERR_DEADLINE,
                "stopped before Kafka had acknowledged everything in flight; nothing is lost, "
                "but some rows will come twice after the next start");
        }
        if (intake->connected &&
            mr_intake_feedback(intake, mr_monotonic_ns(), ret_error) != MR_OK) {
            mr_intake_disconnect(intake, 0);
        }
        mr_intake_send_marker(intake, mr_monotonic_ns());
        if (!mr_intake_all_delivered(intake)) {
            mr_intake_wait_for_sink(intake, MR_REPLY_INTERVAL_NS);
        }
    }
    return MR_OK;
}

/* The last word to the server, and its answer. */
static mr_status confirm_end(struct mr_intake *intake, struct mr_error *ret_error)
{
    mr_intake_update_confirmed(intake);
    if (!intake->connected) {
        /* Of a stream that never began there is nothing new to tell. */
        if (intake->confirmed == intake->told || intake->confirmed == 0 ||
            !intake->ever_connected) {
            return MR_OK;
        }
        return mr_fail(
            ret_error, MR_ERR_DEADLINE,
            "stopped while PostgreSQL was away, so it could not be told what is delivered; "
            "nothing is lost, but some rows will come twice after the next start");
    }
    mr_status status = mr_intake_tell(intake, mr_monotonic_ns(), ret_error);
    mr_intake_disconnect(intake, intake->stop_deadline_ns);
    return status == MR_OK ? MR_OK : MR_ERR_DEADLINE;
}

static mr_status run(struct mr_intake *intake, struct mr_error *ret_error)
{
    MR_TRY(stream(intake, ret_error));
    if (intake->stop_deadline_ns == 0) {
        intake->stop_deadline_ns = mr_monotonic_ns(); /* the sink has ended: nothing to wait for */
    }
    MR_TRY(drain(intake, ret_error));
    return confirm_end(intake, ret_error);
}

void *mr_intake_main(void *context)
{
    struct mr_pipeline *pipeline = context;
    prctl(PR_SET_NAME, "mr-source");
    mr_prof_thread_start(MR_PROF_SOURCE, "mr-source");
    /* Pauses of some hundred microseconds should be just that: the kernel may add 50 µs otherwise. */
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    struct mr_intake intake;
    mr_intake_init(&intake, pipeline);
    pipeline->source_status = run(&intake, &pipeline->source_error);
    if (intake.connected || intake.claimed) {
        mr_intake_disconnect(&intake, 0);
    }
    publish_counts(&intake);
    atomic_store(&pipeline->source_ended, true);
    mr_wake(pipeline->abandon);
    mr_wake(pipeline->sink_wake);
    mr_wake(pipeline->done_fd);
    mr_prof_thread_end();
    return NULL;
}
