/* The sink's sessions and PostgreSQL's connections: the source thread's steps of the handshake. */
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "flow/companions.h"
#include "flow/intake_internal.h"

static bool intake_session_step(struct mr_intake *intake, enum mr_handshake_event event)
{
    struct mr_handshake *handshake = &intake->pipeline->handshake;
    if (!mr_handshake_step(handshake, intake->session, event)) {
        return false; /* the session is over; the next round follows it */
    }
    struct mr_handshake_view view = mr_handshake_look(handshake);
    if (view.session == intake->session) {
        intake->state = view.state;
    }
    return true;
}

static void close_source(struct mr_intake *intake, int64_t deadline_ns)
{
    struct mr_source *source = intake->pipeline->source;
    source->ops->close(source, deadline_ns);
    mr_companions_lost(intake->pipeline, MR_LOST_CONNECTION);
    intake->running.state = MR_RUNNING_NONE;
    intake->feedback.reply_wanted = false;
    intake->feedback.asked = 0;
    intake->received = 0;
    intake->wait.stalled_ns = 0;
}

void mr_intake_disconnect(struct mr_intake *intake, int64_t deadline_ns)
{
    close_source(intake, deadline_ns);
    if (!intake_session_step(intake, MR_HANDSHAKE_LOSE)) {
        intake->state = MR_HANDSHAKE_NONE;
    }
}

/* The sink began a new session: what is in batches now is void, and so is what was handed over but
 * not delivered. The stream begins again at the published position. */
void mr_intake_follow_session(struct mr_intake *intake)
{
    struct mr_handshake_view view = mr_handshake_look(&intake->pipeline->handshake);
    intake->state = view.state;
    if (view.session == intake->session) {
        return;
    }
    intake->session = view.session;
    close_source(intake, 0); /* with the claim that an earlier session had */
    MR_ASSERT(!mr_handshake_is_claimed(intake->state));
    mr_lane_follow_session(intake->lane, view.session);
    mr_companions_lost(intake->pipeline, MR_LOST_SESSION);
    intake->carry = (struct mr_carry){.last_row_before = mr_intake_last_row(intake),
                                      .alone_ns = intake->carry.alone_ns};
    intake->metadata.begun_lsn = 0;
    intake->exceptions.start_after = 0;
    /* What is in the way now comes home when the session has begun, after the claim. */
    intake->wait.resting = false;
}

static mr_status claim_source(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    MR_ASSERT(!mr_handshake_is_claimed(intake->state));
    if (pipeline->source->ops->claim != NULL) {
        MR_TRY(pipeline->source->ops->claim(pipeline->source, pipeline->wakes.stop, ret_error));
    }
    intake_session_step(intake, MR_HANDSHAKE_CLAIM);
    mr_wake(pipeline->wakes.sink);
    return MR_OK;
}

bool mr_intake_known(const struct mr_intake *intake, struct mr_checkpoint *ret_known)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    bool stored = intake->pipeline->port.stores && pipeline->loaded.found;
    bool was_open = atomic_load(&pipeline->by_source.was_connected);
    *ret_known = stored ? pipeline->loaded.stored : (struct mr_checkpoint){0};
    pthread_mutex_lock(&pipeline->shared.lock);
    if (was_open && pipeline->shared.published >= ret_known->end_lsn) {
        ret_known->identity = pipeline->shared.identity;
        ret_known->end_lsn = pipeline->shared.published;
        ret_known->last = pipeline->shared.last;
    }
    pthread_mutex_unlock(&pipeline->shared.lock);
    /* What was handed over is, or will be, with the consumers, published or not. */
    if (mr_position_compare(ret_known->position, intake->carry.appended) < 0) {
        ret_known->position = intake->carry.appended;
    }
    return was_open || (stored && mr_checkpoint_has_stream(ret_known));
}

/* Once, before the first stream of this process. */
static void begin_take_over(struct mr_intake *intake, bool is_known)
{
    const struct mr_handed_over *handed_over = &intake->pipeline->options.handed_over;
    if (handed_over->lsn == 0 || atomic_load(&intake->pipeline->by_source.was_connected)) {
        return;
    }
    intake->exceptions.takes_over = !is_known;
    mr_log(MR_LOG_INFO, is_known ? "offset_ignored" : "offset_taken",
           is_known ? "a position of this pipeline is stored, so Debezium's offset does not count"
                    : "continues after Debezium's offset",
           MR_LOG_LSN("lsn_commit", handed_over->end_lsn), MR_LOG_LSN("lsn", handed_over->lsn),
           MR_LOG_INT("xid", handed_over->xid));
}

static mr_status open_source(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_checkpoint known;
    MR_ASSERT(!mr_intake_in_transaction(intake));
    bool is_known = mr_intake_known(intake, &known);
    if (mr_position_compare(intake->carry.appended, known.position) < 0) {
        intake->carry.appended = known.position;
        /* Its BEGIN is delivered, if it has one. */
        intake->metadata.begun_lsn = known.position.commit_lsn;
    }
    bool was_open = atomic_load(&pipeline->by_source.was_connected);
    /* Of one moment: the sink thread publishes meanwhile. */
    mr_lsn published = was_open ? known.end_lsn : mr_intake_published(intake);
    /* A server to which less was confirmed, because millrace died in between, reads its WAL from
     * further back. */
    if (intake->carry.marked <= published) {
        intake->carry.marked = published;
        intake->carry.carried = published;
        intake->carry.last = known.last;
    }
    struct mr_identity identity = {0};
    begin_take_over(intake, is_known);
    mr_intake_check_skip(intake, published);
    /* All before the transaction that is skipped was received in this session: it is in flight, and
     * stays there. */
    mr_lsn start =
        intake->exceptions.start_after > published ? intake->exceptions.start_after : published;
    if (intake->exceptions.takes_over && start < pipeline->options.handed_over.end_lsn) {
        start = pipeline->options.handed_over.end_lsn;
    }
    bool was_begun = is_known || mr_checkpoint_begins(&known) != 0;
    MR_TRY(pipeline->source->ops->open(pipeline->source, was_begun ? &known : NULL, start,
                                       pipeline->wakes.stop, &identity, ret_error));
    mr_pipeline_identify(pipeline, &identity);
    intake->asked = mr_identity_asked(&identity);
    if (!is_known && !intake->exceptions.takes_over) {
        intake->carry.last = mr_identity_no_commit(&identity); /* the stream begins at its slot */
    } else if (intake->carry.last.asked != intake->asked) {
        intake->carry.last = (struct mr_commit){0};
    }
    return MR_OK;
}

/* Waits for the sink thread's next step. Where the connection ends meanwhile, so does the claim,
 * and the sink is not to begin with one that may be somebody else's by now. */
static mr_status wait_for_step(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_source *source = pipeline->source;
    mr_standstill_end(&pipeline->standstill, MR_CAUSE_POSTGRESQL_AWAY); /* it has answered */
    bool has_claim = mr_handshake_is_claimed(intake->state) && source->ops->claim != NULL;
    int fd = has_claim ? source->ops->descriptor(source) : -1;
    if (!mr_intake_sleep(intake, fd, POLLRDHUP, mr_timeout_ms(mr_intake_idle_ns(intake)))) {
        return MR_OK;
    }
    mr_intake_disconnect(intake, 0);
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "PostgreSQL connection: it was closed while it waited for the sink");
}

/* Of a stream: a Unix socket holds little, and has no low-water mark (net/unix/af_unix.c,
 * unix_poll). */
static enum mr_socket socket_kind(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t len = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX
               ? MR_SOCKET_SMALL
               : MR_SOCKET_LARGE;
}

static void intake_session_begin_stream(struct mr_intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    int64_t now_ns = mr_monotonic_ns();
    MR_ASSERT(mr_intake_published(intake) <= intake->carry.marked);
    intake->feedback =
        (struct mr_feedback){.known = intake->feedback.was_lost ? 0 : intake->feedback.known,
                             .heard_bytes = intake->feedback.heard_bytes,
                             .heard_ns = now_ns,
                             .confirmed_ns = now_ns};
    intake->companions.are_mending = false;
    intake->wait.socket = socket_kind(pipeline->source->ops->descriptor(pipeline->source));
    mr_backlog_end(&pipeline->backlog);
    mr_standstill_end(&pipeline->standstill, MR_CAUSE_POSTGRESQL_AWAY);
    atomic_store_explicit(&pipeline->by_source.was_connected, true, memory_order_release);
    if (pipeline->on_open.call != NULL) {
        pipeline->on_open.call(pipeline->on_open.context);
    }
    mr_log(MR_LOG_INFO, "source_connected", "streaming from PostgreSQL",
           MR_LOG_LSN("start", mr_intake_published(intake)),
           MR_LOG_LSN("sent_commit_lsn", intake->carry.appended.commit_lsn),
           MR_LOG_INT("sent_ordinal", intake->carry.appended.ordinal));
}

/* What one of them does next mends what the stream could not be opened for. */
static bool companions_mend(const struct mr_pipeline *pipeline)
{
    MR_EACH_COMPANION(pipeline, mends)
    {
        if (companion->ops->mends(companion)) {
            return true;
        }
    }
    return false;
}

static mr_status intake_session_open_stream(struct mr_intake *intake, struct mr_error *ret_error)
{
    mr_status status = open_source(intake, ret_error);
    if (status == MR_OK) {
        /* Before it is seen as connected: the last turn was long ago, or there was none. */
        atomic_store_explicit(&intake->pipeline->by_source.turn_ns, mr_monotonic_ns(),
                              memory_order_relaxed);
        if (intake_session_step(intake, MR_HANDSHAKE_OPENED)) {
            intake_session_begin_stream(intake);
        }
        return MR_OK;
    }
    /* Where it can't go on, a companion may mend that; once. */
    bool mends = status == MR_ERR_HISTORY && !intake->companions.are_mending &&
                 companions_mend(intake->pipeline);
    intake->companions.prepared = mends ? 0 : intake->companions.prepared;
    if (status == MR_ERR_HISTORY && intake->pipeline->port.stores &&
        intake->state == MR_HANDSHAKE_RECLAIMED) {
        /* While the claim was lost, another instance may have gone on and stored how far. */
        close_source(intake, 0);
        intake_session_step(intake, MR_HANDSHAKE_OUTDATE);
        mr_wake(intake->pipeline->wakes.sink);
        return MR_OK;
    }
    if (mends) {
        intake->companions.are_mending = true;
        mr_intake_disconnect(intake, 0);
        return MR_OK;
    }
    return status;
}

/* On one connection a server streams once: its flags of an ended stream stay (walsender.c,
 * streamingDoneSending in StartLogicalReplication). */
void mr_intake_change_source(struct mr_intake *intake, const void *options)
{
    struct mr_source *source = intake->pipeline->source;
    if (mr_handshake_is_claimed(intake->state)) {
        mr_intake_disconnect(intake, 0);
    }
    mr_companions_lost(intake->pipeline, MR_LOST_OPTIONS);
    source->ops->change(source, options);
}

/* One companion after the other. */
static mr_status intake_session_prepare(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_companion *next = pipeline->options.companions[intake->companions.prepared];
    mr_status status = next->ops->prepare == NULL ? MR_OK : next->ops->prepare(next, ret_error);
    intake->companions.prepared += status == MR_OK || status == MR_END;
    if (status == MR_END) {
        mr_pipeline_stop_in_order(pipeline);
    }
    return status == MR_AGAIN || status == MR_END ? MR_OK : status;
}

mr_status mr_intake_connect(struct mr_intake *intake, struct mr_error *ret_error)
{
    switch (intake->state) {
    case MR_HANDSHAKE_NONE:
    case MR_HANDSHAKE_DETACHED:
        if (intake->wait.resting && !mr_intake_has_room(intake)) {
            mr_intake_wait_for_batch(intake);
            return MR_OK;
        }
        intake->wait.resting = false;
        return claim_source(intake, ret_error);
    case MR_HANDSHAKE_READY:
    case MR_HANDSHAKE_RECLAIMED:
        if (intake->companions.prepared < intake->pipeline->options.companion_count) {
            return intake_session_prepare(intake, ret_error);
        }
        return intake_session_open_stream(intake, ret_error);
    default:
        return wait_for_step(intake, ret_error);
    }
}
