/* How the source thread waits: for PostgreSQL, for the sink thread, for a free batch; never past what is due. */
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "pipeline/intake_internal.h"

/* Below this many changes a wake-up, the socket is not worth waiting for. */
#define COALESCE_CHANGES_MIN 2

int mr_intake_timeout_ms(int64_t wait_ns)
{
    return wait_ns <= 0 ? 0 : (int)(wait_ns / 1000000) + 1;
}

static int64_t wait_limit_ns(const struct mr_intake *intake, int64_t now_ns)
{
    int64_t wait_ns = mr_intake_feedback_due_in(intake, now_ns);
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    /* Batches in flight may come home any time, and then there is something to tell. */
    if (!mr_intake_all_delivered(intake) && wait_ns > status_ns) {
        wait_ns = status_ns;
    }
    int64_t marker_ns = mr_intake_marker_due_in(intake, now_ns);
    if (marker_ns < wait_ns) {
        wait_ns = marker_ns;
    }
    if (intake->stop_deadline_ns != 0 && intake->stop_deadline_ns - now_ns < wait_ns) {
        wait_ns = intake->stop_deadline_ns - now_ns;
    }
    return wait_ns;
}

/* Sleeps until the source has something, the sink thread wakes us, a stop comes, or time is up. */
static void sleep_for(struct mr_intake *intake, int source_fd, int64_t wait_ns)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct pollfd fds[2] = {
        {.fd = pipeline->source_wake, .events = POLLIN},
        {.fd = source_fd, .events = POLLIN}, /* -1 is passed over */
    };
    if (poll(fds, 2, mr_intake_timeout_ms(wait_ns)) > 0 && fds[0].revents != 0) {
        mr_wake_clear(pipeline->source_wake);
    }
}

/* The socket is left alone for a moment, so that it fills and the server's sends wake nobody. Each wake-up
 * costs both sides more than the message it is for. */
static void coalesce(struct mr_intake *intake)
{
    struct pollfd stop = {.fd = intake->pipeline->stop, .events = POLLIN};
    struct timespec pause = {.tv_nsec = (long)intake->pipeline->options.coalesce_us * 1000};
    if (intake->stop_deadline_ns == 0) {
        ppoll(&stop, 1, &pause, NULL);
    } else {
        nanosleep(&pause, NULL);
    }
}

/* A partial batch goes out at once while enough others are free; when they run short it fills up first, so
 * a slow sink gets few large batches instead of many small ones. */
static bool may_hand_over_partial(const struct mr_intake *intake)
{
    const struct mr_pool *pool = &intake->pipeline->pool;
    return mr_ring_count(&pool->free) >= pool->count / 4 || intake->stop_deadline_ns != 0;
}

void mr_intake_wait_for_source(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    bool busy = intake->changes - intake->changes_at_wait >= COALESCE_CHANGES_MIN;
    intake->changes_at_wait = intake->changes;
    if (mr_intake_has_records(intake) && may_hand_over_partial(intake)) {
        mr_intake_hand_over(intake);
    }
    int64_t begin_ns = mr_monotonic_ns();
    if (busy && pipeline->options.coalesce_us > 0) {
        coalesce(intake);
        mr_meter_waited(&pipeline->meter, mr_monotonic_ns() - begin_ns);
        return;
    }
    int fd = pipeline->source->ops->descriptor(pipeline->source);
    bool holds_back = mr_intake_has_records(intake);
    atomic_store(&pipeline->source_waits, holds_back);
    /* Asked once more after the flag is up: a batch that came home just before woke nobody. */
    if (!holds_back || !may_hand_over_partial(intake)) {
        sleep_for(intake, fd, wait_limit_ns(intake, begin_ns));
        mr_meter_waited(&pipeline->meter, mr_monotonic_ns() - begin_ns);
    }
    atomic_store(&pipeline->source_waits, false);
}

void mr_intake_wait_for_sink(struct mr_intake *intake, int64_t limit_ns)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    int64_t begin_ns = mr_monotonic_ns();
    atomic_store(&pipeline->source_waits, true);
    int64_t wait_ns = wait_limit_ns(intake, begin_ns);
    sleep_for(intake, -1, wait_ns < limit_ns ? wait_ns : limit_ns);
    atomic_store(&pipeline->source_waits, false);
    atomic_fetch_add_explicit(&pipeline->backpressure_ns, (uint64_t)(mr_monotonic_ns() - begin_ns),
                              memory_order_relaxed);
}

void mr_intake_wait_for_batch(struct mr_intake *intake)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    atomic_store(&intake->pipeline->source_waits, true);
    bool has_batch = intake->filling != NULL || mr_ring_count(&pool->free) > 0;
    if (!has_batch || !mr_intake_may_go_on(intake)) {
        mr_intake_wait_for_sink(intake, MR_STATUS_IDLE_NS);
    }
}
