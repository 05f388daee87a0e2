/* The sink's sessions and PostgreSQL's connections: the claim on the stream, and where it is opened. */
#include <poll.h>

#include "base/clock.h"
#include "base/log.h"
#include "pipeline/intake_internal.h"

void mr_intake_disconnect(struct mr_intake *intake, int64_t deadline_ns)
{
    struct mr_source *source = intake->pipeline->source;
    source->ops->close(source, deadline_ns);
    intake->connected = false;
    intake->claimed = false;
    intake->in_transaction = false;
    intake->skipping = false;
    intake->appended_in_transaction = false;
    intake->reply_wanted = false;
    intake->asked = 0;
    intake->stalled_ns = 0;
    atomic_store_explicit(&intake->pipeline->source_connected, false, memory_order_relaxed);
}

/* The sink began a new session: what is in batches now is void, and so is what was handed over but not
 * delivered. The stream begins again at the confirmed position. */
void mr_intake_follow_session(struct mr_intake *intake)
{
    uint32_t session = atomic_load(&intake->pipeline->session);
    if (session == intake->session) {
        return;
    }
    intake->session = session;
    intake->sequence = 0;
    atomic_store_explicit(&intake->pipeline->handed_over, 0, memory_order_relaxed);
    intake->marker_lsn = 0;
    intake->marker_sequence = 0;
    intake->marked = 0;
    intake->marker_sent = 0;
    intake->appended = (struct mr_position){0};
    intake->start_behind = 0;
    intake->oversizer.refused = intake->pipeline->refused;
    if (intake->filling != NULL) {
        intake->filling->record_count = 0;
        intake->filling->bytes_at = intake->filling->block;
        intake->filling->confirm_lsn = 0;
    }
    if (intake->connected || intake->claimed) {
        mr_intake_disconnect(intake, 0);
    }
}

static mr_status claim_source(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (pipeline->source->ops->claim != NULL) {
        MR_TRY(pipeline->source->ops->claim(pipeline->source, pipeline->stop, ret_error));
    }
    intake->claimed = true;
    intake->stored_is_stale = intake->claimed_in == intake->session + 1;
    intake->claimed_in = intake->session + 1;
    atomic_store(&pipeline->claimed, intake->session + 1);
    mr_wake(pipeline->sink_wake);
    return MR_OK;
}

/* Where the stream must go on: where the sink has it stored, or what this process has seen since. */
static bool known_position(const struct mr_intake *intake, struct mr_checkpoint *ret_known)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    bool stored = mr_intake_stores(intake) && pipeline->stored_found;
    *ret_known = stored ? pipeline->stored : (struct mr_checkpoint){0};
    if (intake->ever_connected && intake->confirmed >= ret_known->end_lsn) {
        ret_known->identity = pipeline->identity; /* written by this thread alone */
        ret_known->end_lsn = intake->confirmed;
    }
    /* What was handed over is, or will be, with the consumers, confirmed or not. */
    if (mr_position_compare(ret_known->position, intake->appended) < 0) {
        ret_known->position = intake->appended;
    }
    return stored || intake->ever_connected;
}

static mr_status open_source(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    mr_intake_update_confirmed(intake);
    struct mr_checkpoint known;
    bool is_known = known_position(intake, &known);
    if (mr_position_compare(intake->appended, known.position) < 0) {
        intake->appended = known.position;
    }
    /* A server whose slot was told less, because millrace died in between, reads its log from further back. */
    if (intake->marked < intake->confirmed) {
        intake->marked = intake->confirmed;
    }
    struct mr_identity identity = {0};
    mr_intake_check_skip(intake, intake->confirmed);
    /* All before the transaction that is skipped was received in this session: it is in flight, and stays there. */
    mr_lsn start =
        intake->start_behind > intake->confirmed ? intake->start_behind : intake->confirmed;
    MR_TRY(pipeline->source->ops->open(pipeline->source, is_known ? &known : NULL, start,
                                       pipeline->stop, &identity, ret_error));
    pthread_mutex_lock(&pipeline->identity_lock);
    pipeline->identity = identity;
    pthread_mutex_unlock(&pipeline->identity_lock);
    return MR_OK;
}

/* Waits for the sink to tell where it stands. Where the connection ends meanwhile, so does the claim, and the sink is not
 * to begin with one that may be somebody else's by now. */
static mr_status wait_with_claim(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_source *source = pipeline->source;
    bool has_claim = source->ops->claim != NULL;
    struct pollfd fds[2] = {
        {.fd = pipeline->source_wake, .events = POLLIN},
        {.fd = has_claim ? source->ops->descriptor(source) : -1, .events = POLLRDHUP},
    };
    if (poll(fds, 2, mr_intake_timeout_ms(MR_STATUS_IDLE_NS)) <= 0) {
        return MR_OK;
    }
    if (fds[0].revents != 0) {
        mr_wake_clear(pipeline->source_wake);
    }
    if (fds[1].revents == 0) {
        return MR_OK;
    }
    atomic_store(&pipeline->claimed, intake->session);
    mr_intake_disconnect(intake, 0);
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "PostgreSQL connection: it was closed while it waited for the sink");
}

/* Claims the stream, and opens it once the sink has told where it stands. */
mr_status mr_intake_connect(struct mr_intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (!intake->claimed) {
        MR_TRY(claim_source(intake, ret_error));
    }
    if (mr_intake_stores(intake) && (atomic_load(&pipeline->loaded) != intake->session + 1 ||
                                     atomic_load(&pipeline->reload) == intake->session + 1)) {
        return wait_with_claim(intake, ret_error);
    }
    mr_status status = open_source(intake, ret_error);
    if (status != MR_OK) {
        intake->claimed = false;
    }
    if (status == MR_ERR_HISTORY && mr_intake_stores(intake) && intake->stored_is_stale) {
        /* While the claim was lost, another instance may have gone on and stored how far. */
        atomic_store(&pipeline->reload, intake->session + 1);
        mr_wake(pipeline->sink_wake);
        return MR_OK;
    }
    MR_TRY(status);
    intake->connected = true;
    intake->ever_connected = true;
    intake->heard_ns = mr_monotonic_ns();
    intake->told = 0;
    intake->told_ns = intake->heard_ns;
    atomic_store_explicit(&pipeline->source_connected, true, memory_order_relaxed);
    atomic_store_explicit(&pipeline->source_was_connected, true, memory_order_relaxed);
    if (pipeline->on_open != NULL) {
        pipeline->on_open(pipeline->on_open_context);
    }
    mr_log(MR_LOG_INFO, "source_connected", "streaming from PostgreSQL",
           MR_LOG_LSN("start", intake->confirmed),
           MR_LOG_LSN("sent_commit_lsn", intake->appended.commit_lsn),
           MR_LOG_INT("sent_ordinal", intake->appended.ordinal));
    return MR_OK;
}
