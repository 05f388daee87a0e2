/* How the source thread waits: for PostgreSQL, for the sink thread, for a free batch; never past
 * what is due. */
#include <poll.h>

#include "base/clock.h"
#include "flow/companions.h"
#include "flow/gulp.h"
#include "flow/intake_internal.h"

/* The first pause for the rest of a transaction is this part of pipeline.latency, each further one
 * twice the one before, up to half of it. A walsender sends the 10 rows of a small transaction
 * within the first, 100 rows within three. */
#define PAUSE_FIRST_PART 16
/* What a pause may bring through a Unix socket: about half of what that holds of small messages, so
 * the walsender need not wait. */
#define SMALL_SOCKET_BYTES 24576

static int64_t intake_wait_sooner(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static int64_t wait_limit_ns(const struct mr_intake *intake, int64_t now_ns)
{
    int64_t wait_ns = mr_intake_is_open(intake) ? mr_intake_feedback_due_in(intake, now_ns)
                                                : mr_intake_idle_ns(intake);
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    /* Batches in flight may come home any time, and then there is something to confirm. */
    wait_ns =
        mr_lane_all_published(intake->lane) ? wait_ns : intake_wait_sooner(wait_ns, status_ns);
    wait_ns = intake_wait_sooner(wait_ns, mr_intake_position_due_in(intake, now_ns));
    MR_EACH_COMPANION(intake->pipeline, due_in)
    {
        if (mr_companion_wants(companion)) {
            wait_ns = intake_wait_sooner(wait_ns, companion->ops->due_in(companion, now_ns));
        }
    }
    return intake->stop_deadline_ns == 0
               ? wait_ns
               : intake_wait_sooner(wait_ns, intake->stop_deadline_ns - now_ns);
}

bool mr_intake_sleep(struct mr_intake *intake, int fd, short events, int timeout_ms)
{
    struct pollfd fds[2] = {
        {.fd = intake->pipeline->wakes.source, .events = POLLIN},
        {.fd = fd, .events = events}, /* -1 is passed over */
    };
    if (poll(fds, 2, timeout_ms) > 0 && fds[0].revents != 0) {
        mr_wake_clear(intake->pipeline->wakes.source);
    }
    return fds[1].revents != 0;
}

/* The socket is left alone for a moment, so that it fills and the server's sends wake nobody. Each
 * wake-up costs both sides more than the message it is for. */
static void leave_socket_alone(struct mr_intake *intake)
{
    struct pollfd stop = {.fd = intake->pipeline->wakes.stop, .events = POLLIN};
    struct timespec pause = {.tv_nsec = (long)intake->wait.pause_ns};
    if (intake->stop_deadline_ns == 0) {
        ppoll(&stop, 1, &pause, NULL);
    } else {
        nanosleep(&pause, NULL);
    }
}

/* Of a backlog, the longest pause, and as much as the socket holds: what a row costs the server
 * follows how often its reader comes. It ends early for a stop, a command, or the end of the sink's
 * session. */
static void gulp(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    int fd = pipeline->source->ops->descriptor(pipeline->source);
    if (mr_gulp(fd, MR_BACKLOG_GULP_BYTES, pipeline->wakes.stop, pipeline->wakes.source,
                intake->wait.pause_ns)) {
        mr_wake_clear(pipeline->wakes.source);
    }
}

/* Latency is not what a backlog lacks; but who wants none at all (0) does not wait here either. */
static bool reads_backlog(const struct mr_intake *intake)
{
    return mr_backlog_is_there(&intake->pipeline->backlog) && intake->stop_deadline_ns == 0 &&
           intake->pipeline->options.latency_us != 0;
}

/* How long rows may gather. */
static int64_t gather_most_ns(const struct mr_intake *intake)
{
    int64_t latency_ns = (int64_t)intake->pipeline->options.latency_us * 1000;
    int64_t gulp_ns = MR_BACKLOG_GULP_MS * INT64_C(1000000);
    return reads_backlog(intake) && gulp_ns > latency_ns ? gulp_ns : latency_ns;
}

/* The next pause, of which the last has brought so many bytes. */
static int64_t longer_pause_ns(const struct mr_intake *intake, uint64_t brought_bytes)
{
    int64_t latency_ns = (int64_t)intake->pipeline->options.latency_us * 1000;
    int64_t last_ns = intake->wait.pause_ns;
    if (last_ns == 0) {
        return latency_ns / PAUSE_FIRST_PART;
    }
    if (intake->wait.socket == MR_SOCKET_SMALL && brought_bytes > SMALL_SOCKET_BYTES) {
        return intake_wait_sooner(last_ns / 2 + 1, latency_ns / 2);
    }
    bool is_known = mr_intake_in_transaction(intake) || intake->wait.socket == MR_SOCKET_SMALL;
    return is_known ? intake_wait_sooner(2 * last_ns, latency_ns / 2) : latency_ns / 2;
}

/* How long to leave the socket alone; 0: until there is something. The rest of a transaction that
 * has begun is a moment away, for the server sends it whole. Between transactions the next may take
 * any time, unless the last pause has brought a whole one, or there is a backlog. */
static int64_t next_pause_ns(struct mr_intake *intake, int64_t now_ns)
{
    struct mr_source *source = intake->pipeline->source;
    uint64_t received = atomic_load_explicit(&source->received_bytes, memory_order_relaxed);
    uint64_t brought_bytes = received - intake->wait.bytes;
    uint64_t brought = intake->counts->transactions - intake->wait.transactions;
    bool whole = brought > (intake->wait.in_transaction ? 1 : 0) && intake->wait.pause_ns != 0;
    intake->wait.bytes = received;
    intake->wait.transactions = intake->counts->transactions;
    intake->wait.in_transaction = mr_intake_in_transaction(intake);
    if (brought_bytes == 0) {
        mr_backlog_end(&intake->pipeline->backlog);
        return 0;
    }
    if (reads_backlog(intake) && intake->wait.socket == MR_SOCKET_LARGE) {
        int64_t limit_ns = wait_limit_ns(intake, now_ns);
        return limit_ns <= 0 ? 0 : intake_wait_sooner(gather_most_ns(intake), limit_ns);
    }
    return mr_intake_in_transaction(intake) || whole || reads_backlog(intake)
               ? longer_pause_ns(intake, brought_bytes)
               : 0;
}

/* Rows of a transaction that is still coming gather for as long as it may take. */
static bool may_gather(const struct mr_intake *intake, int64_t now_ns)
{
    return mr_intake_in_transaction(intake) && intake->wait.pause_ns != 0 &&
           now_ns - intake->lane->filling->received_ns < gather_most_ns(intake);
}

/* A partial batch goes out at once while enough others are free; when they run short it fills up
 * first, so a slow sink gets few large batches instead of many small ones. */
static bool may_hand_over_partial(const struct mr_intake *intake)
{
    const struct mr_pool *pool = &intake->pipeline->pool;
    return mr_ring_count(&pool->free) >= pool->count / 4 || intake->stop_deadline_ns != 0;
}

static void note_waited(struct mr_pipeline *pipeline, int64_t begin_ns)
{
    mr_counter_add(&pipeline->meter.source_wait_ns, (uint64_t)(mr_monotonic_ns() - begin_ns));
}

void mr_intake_wait_for_source(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    int64_t begin_ns = mr_monotonic_ns();
    intake->wait.pause_ns = next_pause_ns(intake, begin_ns);
    if (mr_lane_has_records(intake->lane) && may_hand_over_partial(intake) &&
        !may_gather(intake, begin_ns)) {
        mr_lane_hand_over(intake->lane);
    }
    if (intake->wait.pause_ns != 0) {
        if (reads_backlog(intake) && intake->wait.socket == MR_SOCKET_LARGE) {
            gulp(intake);
        } else {
            leave_socket_alone(intake);
        }
        note_waited(pipeline, begin_ns);
        return;
    }
    bool holds_back = mr_lane_has_records(intake->lane);
    atomic_store(&pipeline->source_waits, holds_back);
    /* Asked once more after the flag is up: a batch that came home just before woke nobody. */
    if (!holds_back || !may_hand_over_partial(intake)) {
        mr_intake_sleep(intake, pipeline->source->ops->descriptor(pipeline->source), POLLIN,
                        mr_timeout_ms(wait_limit_ns(intake, begin_ns)));
        note_waited(pipeline, begin_ns);
    }
    atomic_store(&pipeline->source_waits, false);
}

void mr_intake_wait_for_sink(struct mr_intake *intake, int64_t limit_ns)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    int64_t begin_ns = mr_monotonic_ns();
    atomic_store(&pipeline->source_waits, true);
    int64_t wait_ns = intake_wait_sooner(wait_limit_ns(intake, begin_ns), limit_ns);
    mr_intake_sleep(intake, -1, 0, mr_timeout_ms(wait_ns));
    atomic_store(&pipeline->source_waits, false);
    atomic_fetch_add_explicit(&pipeline->by_source.backpressure_ns,
                              (uint64_t)(mr_monotonic_ns() - begin_ns), memory_order_relaxed);
}

bool mr_intake_has_room(const struct mr_intake *intake)
{
    return mr_lane_has_batch(intake->lane) && mr_lane_may_go_on(intake->lane);
}

void mr_intake_wait_for_batch(struct mr_intake *intake)
{
    atomic_store(&intake->pipeline->source_waits, true);
    if (!mr_intake_has_room(intake)) {
        mr_intake_wait_for_sink(intake, mr_intake_idle_ns(intake));
    }
}
