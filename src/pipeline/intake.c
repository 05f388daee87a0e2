/* The source thread: receives, encodes into batches, hands them over, and tells PostgreSQL how far delivery
 * has come. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "pipeline/oversize.h"
#include "pipeline/pipeline_internal.h"
#include "pipeline/poison.h"
#include "prof/threads.h"

/* With nothing new to tell, a status update still goes out so often: well below any sane
 * wal_sender_timeout, and the server's own question is answered anyway. */
#define STATUS_IDLE_NS (INT64_C(10) * 1000000000)
/* A server that asks again and again at one position (it is shutting down) is answered no faster. */
#define REPLY_INTERVAL_NS (INT64_C(100) * 1000000)
/* No byte for so long although we asked: the connection is dead. */
#define SILENCE_NS (INT64_C(60) * 1000000000)
/* So many questions in a row at one position: the server shuts down and waits for a confirmation. */
#define INSISTENCE_MAX 20
/* A sink that takes nothing for so long lets the connection go, so that the server is free to stop. */
#define STALL_NS (INT64_C(60) * 1000000000)
/* With nothing else to store, a position alone is stored so often. */
#define MARKER_NS (INT64_C(1) * 1000000000)
/* Below this many changes a wake-up, the socket is not worth waiting for. */
#define COALESCE_CHANGES_MIN 2

struct intake {
    struct mr_pipeline *pipeline;
    struct mr_source_handler handler;
    struct mr_batch *filling;
    size_t wanted; /* with `handler.hold`: the block that there was no room for; 0: any */
    uint32_t session;
    uint64_t sequence; /* of the batch handed over last in this session */
    struct mr_position
        appended; /* of the change appended last: anything up to it is a repetition */
    bool in_transaction;
    bool appended_in_transaction; /* part of the running transaction is in a batch */

    /* A position that may be confirmed once all batches up to `marker_sequence` are delivered. */
    mr_lsn marker_lsn;
    uint64_t marker_sequence;
    mr_lsn
        marked; /* the highest of this session: a repeated commit must not take a position back */

    mr_lsn confirmed; /* the most we may tell */
    mr_lsn told;      /* what the server was told last on this connection */
    int64_t told_ns;
    bool reply_wanted;
    int64_t heard_ns;
    mr_lsn asked_at;    /* position of the server's last question, */
    uint32_t asked;     /* and how often it asked there with nothing in between */
    int64_t stalled_ns; /* since when there has been no room; 0: there is */

    mr_lsn
        marker_sent; /* the highest that a batch carries; a marker above it needs one of its own */
    int64_t marker_sent_ns;
    bool marker_ends_rows; /* of a transaction, which are with the sink already */

    bool claimed;              /* the stream is ours, whether it is open or not */
    uint32_t claimed_in;       /* the session of the last claim, plus one */
    bool stored_is_stale;      /* the claim may be younger than what the sink has told */
    uint32_t attempt;          /* failed connections in a row */
    struct mr_error lost_told; /* the failure that was logged last */
    struct mr_poison poison;
    struct mr_oversizer oversizer;
    mr_lsn transaction_lsn;                  /* commit LSN of the running transaction */
    const struct mr_relation *last_relation; /* of the last change of it; NULL: none yet */
    struct mr_position failed_at;            /* the item that failed; {0}: none at hand */
    bool skipping;                           /* the running transaction, as it was asked for */
    bool skip_done;                          /* and that was told, or that it is behind */
    mr_lsn start_behind; /* the server can't send what commits before; 0: nothing of the kind */
    bool connected;
    bool ever_connected;
    uint64_t changes_at_wait;  /* `changes` when the thread last waited */
    int64_t round_ns;          /* when this round of receiving began, */
    int64_t round_wall_ns;     /* also by the wall clock */
    uint64_t changes_at_begin; /* `changes` and bytes made when the running transaction began */
    uint64_t bytes_at_begin;
    int64_t stop_deadline_ns; /* 0: not stopping */

    /* Own counts, published after each round. */
    uint64_t changes, records, bytes, skipped, transactions;
};

/* ---- batches ---- */

static void hand_over(struct intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_batch *batch = intake->filling;
    MR_ASSERT(batch->record_count > 0 || batch->confirm_lsn != 0);
    intake->filling = NULL;
    intake->records += batch->record_count;
    intake->bytes += mr_batch_bytes(batch);
    atomic_store_explicit(&pipeline->records, intake->records, memory_order_relaxed);
    atomic_store_explicit(&pipeline->bytes, intake->bytes, memory_order_relaxed);
    mr_meter_hand_over(&pipeline->meter, batch);
    batch->session = intake->session;
    batch->sequence = ++intake->sequence;
    batch->state = MR_BATCH_SEALED;
    atomic_store_explicit(&pipeline->handed_over, intake->sequence, memory_order_relaxed);
    MR_ASSERT(mr_ring_push(&pipeline->to_sink, batch));
    mr_wake(pipeline->sink_wake);
}

static bool filling_has_records(const struct intake *intake)
{
    return intake->filling != NULL && intake->filling->record_count > 0;
}

/* Notes that everything before `lsn` is appended; once that is delivered, `lsn` may be confirmed. */
static void mark(struct intake *intake, mr_lsn lsn)
{
    if (lsn <= intake->marked) {
        return;
    }
    intake->marked = lsn;
    if (filling_has_records(intake)) {
        intake->filling->confirm_lsn = lsn;
        intake->marker_sent = lsn;
    } else {
        intake->marker_lsn = lsn;
        intake->marker_sequence = intake->sequence;
    }
}

static bool stores(const struct intake *intake)
{
    return intake->pipeline->sink->storage != MR_STORES_NOTHING;
}

/* A position that no batch carries waits to be stored by the sink. */
static bool marker_pending(const struct intake *intake)
{
    return stores(intake) && intake->marker_lsn > intake->marker_sent &&
           !filling_has_records(intake);
}

/* Nanoseconds until it is due; INT64_MAX: there is none. The end of a transaction whose rows are out already is due
 * with the next status update: without it they would come twice. */
static int64_t marker_due_in(const struct intake *intake, int64_t now_ns)
{
    if (!marker_pending(intake)) {
        return INT64_MAX;
    }
    if (intake->reply_wanted || intake->stop_deadline_ns != 0) {
        return 0;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    int64_t interval_ns = intake->marker_ends_rows ? status_ns : MARKER_NS;
    return intake->marker_sent_ns + interval_ns - now_ns;
}

/* An empty batch carries the position. */
static void send_marker(struct intake *intake, int64_t now_ns)
{
    if (marker_due_in(intake, now_ns) > 0) {
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
        hand_over(intake);
    }
}

/* How an item goes into a batch. */
enum form {
    FORM_OWN,      /* as it is */
    FORM_PLACED,   /* what the policy for oversize puts in its place */
    FORM_TOO_LARGE /* the same, because no block holds the item itself */
};

/* Encodes one item; `*form` becomes FORM_PLACED when it is too large for the sink. */
static mr_status encode_item(struct intake *intake, const struct mr_item *item, enum form *form,
                             struct mr_buffer *buffer, struct mr_record *records,
                             uint32_t *ret_count, struct mr_error *ret_error)
{
    struct mr_encoder *encoder = intake->pipeline->encoder;
    if (MR_LIKELY(*form != FORM_TOO_LARGE)) {
        struct mr_buffer begin = *buffer;
        mr_status status =
            item->change != NULL
                ? mr_encode_change(encoder, item->change, buffer, records, ret_count, ret_error)
                : mr_encode_message(encoder, item->message, buffer, records, ret_count, ret_error);
        if (status != MR_OK ||
            MR_LIKELY(!mr_oversizer_applies(&intake->oversizer, records, *ret_count))) {
            return status;
        }
        *buffer = begin;
        *form = FORM_PLACED;
    }
    return mr_oversizer_encode(&intake->oversizer, item, buffer, records, ret_count, ret_error);
}

/* Makes room after an item did not fit: hands over what is there, else takes a larger block. */
static mr_status make_room(struct intake *intake, enum form *form, struct mr_error *ret_error)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    if (filling_has_records(intake)) {
        hand_over(intake);
        return MR_OK;
    }
    size_t size = intake->filling->block_size;
    size_t most = pool->block_size_max;
    if (size >= most) {
        if (intake->oversizer.policy != MR_OVERSIZE_FAIL && *form != FORM_TOO_LARGE) {
            *form = FORM_TOO_LARGE;
            return MR_OK;
        }
        return mr_fail(
            ret_error, MR_ERR_POISON,
            "one change needs more than the %zu bytes that pipeline.change_max allows; raise it "
            "and pipeline.memory (and the broker's and topic's message sizes), set "
            "sink.kafka.oversize, or take the table out",
            most);
    }
    size_t larger = size > most / 2 ? most : 2 * size;
    if (!mr_batch_grow(pool, intake->filling, larger)) {
        intake->handler.hold = true;
        intake->wanted = larger;
        return MR_FULL;
    }
    return MR_OK;
}

/* A large block sets out at once with its one change. While it is on its way, nothing more may be received unless
 * there is room for the largest. */
static void hand_over_large(struct intake *intake)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    if (mr_batch_is_large(pool, intake->filling)) {
        hand_over(intake);
        intake->wanted = 0;
        intake->handler.hold = !mr_pool_admits(pool, NULL, 0);
    }
}

/* Whether what was held back may go on. */
static bool may_go_on(const struct intake *intake)
{
    return !intake->handler.hold ||
           mr_pool_admits(&intake->pipeline->pool, intake->filling, intake->wanted);
}

static mr_status append(struct intake *intake, const struct mr_item *item,
                        struct mr_error *ret_error)
{
    enum form form = FORM_OWN;
    for (;;) {
        if (intake->filling == NULL) {
            intake->filling = mr_pool_acquire(&intake->pipeline->pool);
        }
        if (intake->filling == NULL) {
            return MR_FULL;
        }
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        uint32_t count = 0;
        bool first = intake->filling->record_count == 0;
        int64_t decoded_ns = first ? mr_monotonic_ns() : 0;
        struct mr_buffer buffer = mr_batch_buffer(intake->filling);
        mr_status status = encode_item(intake, item, &form, &buffer, records, &count, ret_error);
        if (status == MR_OK && count == 0) {
            return MR_OK;
        }
        if (status == MR_OK && mr_batch_commit(intake->filling, buffer.at, records, count)) {
            mr_encoder_count(intake->pipeline->encoder,
                             item->change != NULL ? item->change->op : MR_OP_MESSAGE);
            if (MR_UNLIKELY(first)) {
                mr_meter_first(intake->filling, intake->round_ns, intake->round_wall_ns,
                               decoded_ns);
                hand_over_large(intake);
            }
            if (MR_UNLIKELY(form != FORM_OWN)) {
                mr_oversizer_note(&intake->oversizer, item);
            }
            return MR_OK;
        }
        if (status != MR_OK && status != MR_FULL) {
            return status;
        }
        MR_TRY(make_room(intake, &form, ret_error));
    }
}

/* ---- what the source calls ---- */

static void heard(struct intake *intake)
{
    intake->attempt = 0;
}

static bool is_repeated(struct intake *intake, struct mr_position position)
{
    intake->changes++;
    if (MR_UNLIKELY(mr_position_compare(position, intake->appended) <= 0)) {
        intake->skipped++;
        return true;
    }
    return false;
}

static void note_failure(struct intake *intake, mr_status status, struct mr_position position)
{
    if (status != MR_FULL) {
        intake->failed_at = position;
    }
}

static mr_status on_change(void *context, const struct mr_change *change,
                           struct mr_error *ret_error)
{
    struct intake *intake = context;
    intake->last_relation = change->relation;
    if (is_repeated(intake, change->position)) {
        return MR_OK;
    }
    struct mr_item item = {.change = change};
    mr_prof_thread_table(change->relation->schema, change->relation->table);
    mr_status status = append(intake, &item, ret_error);
    mr_prof_thread_table(NULL, NULL);
    if (MR_LIKELY(status == MR_OK)) {
        intake->appended = change->position;
        intake->appended_in_transaction = true;
    } else {
        intake->changes--; /* it comes again */
        note_failure(intake, status, change->position);
    }
    return status;
}

static mr_status on_message(void *context, const struct mr_message_event *message,
                            struct mr_error *ret_error)
{
    struct intake *intake = context;
    if (is_repeated(intake, message->position)) {
        return MR_OK;
    }
    struct mr_item item = {.message = message};
    mr_status status = append(intake, &item, ret_error);
    if (status != MR_OK) {
        intake->changes--;
        note_failure(intake, status, message->position);
        return status;
    }
    intake->appended = message->position;
    if (message->transaction != NULL) {
        intake->appended_in_transaction = true;
    } else {
        /* The server repeats a message whose record begins at or behind the confirmed position. */
        mark(intake, message->lsn + 1);
    }
    return MR_OK;
}

/* Bytes of keys and values so far, those in the batch at hand included. */
static uint64_t bytes_made(const struct intake *intake)
{
    return intake->bytes + (intake->filling == NULL ? 0 : mr_batch_bytes(intake->filling));
}

/* The transaction that is to be skipped: all of it counts as a repetition. */
static void begin_skipping(struct intake *intake, mr_lsn commit_lsn)
{
    struct mr_position end = {.commit_lsn = commit_lsn, .ordinal = UINT64_MAX};
    if (mr_position_compare(intake->appended, end) < 0) {
        intake->appended = end;
    }
    intake->skipping = true;
}

static void told_skipped(struct intake *intake, mr_lsn commit_lsn, int64_t changes)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    mr_log(MR_LOG_WARN, "transaction_skipped",
           "a transaction was skipped, because --skip-commit-lsn asks for it; what follows in it "
           "is in no topic",
           MR_LOG_LSN("commit_lsn", commit_lsn), MR_LOG_INT("changes", changes));
    atomic_fetch_add_explicit(&pipeline->skipped_transactions, 1, memory_order_relaxed);
    intake->skip_done = true;
}

/* Once the stream is past the transaction that is to be skipped, and it was not there. */
static void check_skip_behind(struct intake *intake, mr_lsn lsn)
{
    mr_lsn skip = intake->pipeline->options.skip_commit_lsn;
    if (skip != 0 && lsn > skip && !intake->skip_done) {
        intake->skip_done = true;
        mr_log(MR_LOG_WARN, "skip_ignored",
               "--skip-commit-lsn is behind what is delivered already, or no transaction commits "
               "there; nothing was skipped",
               MR_LOG_LSN("commit_lsn", skip), MR_LOG_LSN("at", lsn));
    }
}

static void on_begin(void *context, const struct mr_transaction *transaction)
{
    struct intake *intake = context;
    intake->in_transaction = true;
    intake->transaction_lsn = transaction->commit_lsn;
    intake->last_relation = NULL;
    if (MR_UNLIKELY(intake->pipeline->options.skip_commit_lsn != 0)) {
        check_skip_behind(intake, transaction->commit_lsn);
        if (transaction->commit_lsn == intake->pipeline->options.skip_commit_lsn) {
            begin_skipping(intake, transaction->commit_lsn);
        }
    }
    intake->appended_in_transaction = false;
    intake->changes_at_begin = intake->changes;
    intake->bytes_at_begin = bytes_made(intake);
}

/* The place that failed is behind: a transaction at or after it has come to its end. */
static void forget_poison(struct intake *intake, mr_lsn commit_lsn)
{
    if (commit_lsn >= intake->poison.position.commit_lsn) {
        intake->poison = (struct mr_poison){0};
        atomic_store(&intake->pipeline->source_poisoned, false);
    }
}

static void on_commit(void *context, const struct mr_transaction *transaction)
{
    struct intake *intake = context;
    heard(intake);
    intake->asked = 0;
    intake->in_transaction = false;
    if (MR_UNLIKELY(intake->skipping)) {
        intake->skipping = false;
        if (!intake->skip_done) {
            told_skipped(intake, transaction->commit_lsn,
                         (int64_t)(intake->changes - intake->changes_at_begin));
        }
    }
    if (MR_UNLIKELY(intake->poison.failures > 0)) {
        forget_poison(intake, transaction->commit_lsn);
    }
    intake->marker_ends_rows |= intake->appended_in_transaction;
    intake->appended_in_transaction = false;
    intake->transactions++;
    mr_meter_transaction(&intake->pipeline->meter, intake->changes - intake->changes_at_begin,
                         bytes_made(intake) - intake->bytes_at_begin);
    mark(intake, transaction->end_lsn);
    atomic_store_explicit(&intake->pipeline->received, transaction->end_lsn, memory_order_relaxed);
}

static void on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct intake *intake = context;
    heard(intake);
    if (reply_requested) {
        intake->reply_wanted = true;
        intake->asked = server_end == intake->asked_at ? intake->asked + 1 : 1;
        intake->asked_at = server_end;
    }
    /* All that commits before server_end was sent before this message; nothing may be said of a
     * transaction that is on its way. */
    if (!intake->in_transaction) {
        mark(intake, server_end);
        atomic_store_explicit(&intake->pipeline->received, server_end, memory_order_relaxed);
    }
}

static void on_relation_end(void *context, const struct mr_relation *relation)
{
    struct intake *intake = context;
    mr_encoder_forget(intake->pipeline->encoder, relation);
    if (intake->last_relation == relation) {
        intake->last_relation = NULL;
    }
}

/* ---- feedback ---- */

static bool all_delivered(const struct intake *intake)
{
    return !filling_has_records(intake) &&
           atomic_load(&intake->pipeline->delivered) == intake->sequence;
}

/* What may be confirmed now. Only meaningful while the session is the one the sink runs. */
static void update_confirmed(struct intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    uint64_t delivered = atomic_load(&pipeline->delivered);
    mr_lsn lsn = atomic_load(&pipeline->confirmed);
    if (!stores(intake) && intake->marker_sequence <= delivered && intake->marker_lsn > lsn &&
        atomic_load(&pipeline->session) == intake->session) {
        lsn = intake->marker_lsn;
    }
    if (lsn > intake->confirmed) {
        intake->confirmed = lsn;
    }
}

static mr_status tell(struct intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    struct mr_source *source = intake->pipeline->source;
    bool ping = now_ns - intake->heard_ns > STATUS_IDLE_NS;
    MR_TRY(source->ops->confirm(source, intake->confirmed, ping, ret_error));
    if (intake->confirmed > intake->told) {
        mr_meter_told(&intake->pipeline->meter, now_ns);
    }
    intake->told = intake->confirmed;
    intake->told_ns = now_ns;
    intake->reply_wanted = false;
    return MR_OK;
}

/* Nanoseconds until a status update is due; 0 or less: now. */
static int64_t feedback_due_in(const struct intake *intake, int64_t now_ns)
{
    int64_t since_ns = now_ns - intake->told_ns;
    bool news = intake->confirmed > intake->told;
    if (intake->reply_wanted) {
        return news ? 0 : REPLY_INTERVAL_NS - since_ns;
    }
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    return (news ? status_ns : STATUS_IDLE_NS) - since_ns;
}

static mr_status feedback(struct intake *intake, int64_t now_ns, struct mr_error *ret_error)
{
    atomic_store_explicit(&intake->pipeline->source_turn_ns, now_ns, memory_order_relaxed);
    update_confirmed(intake);
    if (now_ns - intake->heard_ns > SILENCE_NS) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "PostgreSQL has been silent for a minute although it was asked to answer");
    }
    return feedback_due_in(intake, now_ns) <= 0 ? tell(intake, now_ns, ret_error) : MR_OK;
}

/* ---- waiting ---- */

static int timeout_ms_of(int64_t wait_ns)
{
    return wait_ns <= 0 ? 0 : (int)(wait_ns / 1000000) + 1;
}

static int64_t wait_limit_ns(const struct intake *intake, int64_t now_ns)
{
    int64_t wait_ns = feedback_due_in(intake, now_ns);
    int64_t status_ns = (int64_t)intake->pipeline->options.status_interval_ms * 1000000;
    /* Batches in flight may come home any time, and then there is something to tell. */
    if (!all_delivered(intake) && wait_ns > status_ns) {
        wait_ns = status_ns;
    }
    int64_t marker_ns = marker_due_in(intake, now_ns);
    if (marker_ns < wait_ns) {
        wait_ns = marker_ns;
    }
    if (intake->stop_deadline_ns != 0 && intake->stop_deadline_ns - now_ns < wait_ns) {
        wait_ns = intake->stop_deadline_ns - now_ns;
    }
    return wait_ns;
}

/* Sleeps until the source has something, the sink thread wakes us, a stop comes, or time is up. */
static void sleep_for(struct intake *intake, int source_fd, int64_t wait_ns)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct pollfd fds[2] = {
        {.fd = pipeline->source_wake, .events = POLLIN},
        {.fd = source_fd, .events = POLLIN}, /* -1 is passed over */
    };
    if (poll(fds, 2, timeout_ms_of(wait_ns)) > 0 && fds[0].revents != 0) {
        mr_wake_clear(pipeline->source_wake);
    }
}

/* The socket is left alone for a moment, so that it fills and the server's sends wake nobody. Each wake-up
 * costs both sides more than the message it is for. */
static void coalesce(struct intake *intake)
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
static bool may_hand_over_partial(const struct intake *intake)
{
    const struct mr_pool *pool = &intake->pipeline->pool;
    return mr_ring_count(&pool->free) >= pool->count / 4 || intake->stop_deadline_ns != 0;
}

static void wait_for_source(struct intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    bool busy = intake->changes - intake->changes_at_wait >= COALESCE_CHANGES_MIN;
    intake->changes_at_wait = intake->changes;
    if (filling_has_records(intake) && may_hand_over_partial(intake)) {
        hand_over(intake);
    }
    int64_t begin_ns = mr_monotonic_ns();
    if (busy && pipeline->options.coalesce_us > 0) {
        coalesce(intake);
        mr_meter_waited(&pipeline->meter, mr_monotonic_ns() - begin_ns);
        return;
    }
    int fd = pipeline->source->ops->descriptor(pipeline->source);
    bool holds_back = filling_has_records(intake);
    atomic_store(&pipeline->source_waits, holds_back);
    /* Asked once more after the flag is up: a batch that came home just before woke nobody. */
    if (!holds_back || !may_hand_over_partial(intake)) {
        sleep_for(intake, fd, wait_limit_ns(intake, begin_ns));
        mr_meter_waited(&pipeline->meter, mr_monotonic_ns() - begin_ns);
    }
    atomic_store(&pipeline->source_waits, false);
}

/* Waits for the sink thread to give something back. */
static void wait_for_sink(struct intake *intake, int64_t limit_ns)
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

static void wait_for_batch(struct intake *intake)
{
    struct mr_pool *pool = &intake->pipeline->pool;
    atomic_store(&intake->pipeline->source_waits, true);
    bool has_batch = intake->filling != NULL || mr_ring_count(&pool->free) > 0;
    if (!has_batch || !may_go_on(intake)) {
        wait_for_sink(intake, STATUS_IDLE_NS);
    }
}

/* ---- sessions and connections ---- */

static void publish_counts(struct intake *intake)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    atomic_store_explicit(&pipeline->changes, intake->changes, memory_order_relaxed);
    atomic_store_explicit(&pipeline->skipped, intake->skipped, memory_order_relaxed);
    atomic_store_explicit(&pipeline->transactions, intake->transactions, memory_order_relaxed);
}

static void disconnect(struct intake *intake, int64_t deadline_ns)
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
static void follow_session(struct intake *intake)
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
        disconnect(intake, 0);
    }
}

static mr_status claim_source(struct intake *intake, struct mr_error *ret_error)
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
static bool known_position(const struct intake *intake, struct mr_checkpoint *ret_known)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    bool stored = stores(intake) && pipeline->stored_found;
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

static mr_status open_source(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    update_confirmed(intake);
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
    check_skip_behind(intake, intake->confirmed);
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
static mr_status wait_with_claim(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    struct mr_source *source = pipeline->source;
    bool has_claim = source->ops->claim != NULL;
    struct pollfd fds[2] = {
        {.fd = pipeline->source_wake, .events = POLLIN},
        {.fd = has_claim ? source->ops->descriptor(source) : -1, .events = POLLRDHUP},
    };
    if (poll(fds, 2, timeout_ms_of(STATUS_IDLE_NS)) <= 0) {
        return MR_OK;
    }
    if (fds[0].revents != 0) {
        mr_wake_clear(pipeline->source_wake);
    }
    if (fds[1].revents == 0) {
        return MR_OK;
    }
    atomic_store(&pipeline->claimed, intake->session);
    disconnect(intake, 0);
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "PostgreSQL connection: it was closed while it waited for the sink");
}

/* Claims the stream, and opens it once the sink has told where it stands. */
static mr_status connect_source(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (!intake->claimed) {
        MR_TRY(claim_source(intake, ret_error));
    }
    if (stores(intake) && (atomic_load(&pipeline->loaded) != intake->session + 1 ||
                           atomic_load(&pipeline->reload) == intake->session + 1)) {
        return wait_with_claim(intake, ret_error);
    }
    mr_status status = open_source(intake, ret_error);
    if (status != MR_OK) {
        intake->claimed = false;
    }
    if (status == MR_ERR_HISTORY && stores(intake) && intake->stored_is_stale) {
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
           MR_LOG_LSN("start", intake->confirmed));
    return MR_OK;
}

/* Failures of one place in the stream, which may come again there. */
static bool is_of_a_place(mr_status status)
{
    return status == MR_ERR_POISON || status == MR_ERR_PROTOCOL;
}

static bool is_fatal(const struct intake *intake, mr_status status)
{
    switch (status) {
    case MR_ERR_AUTH:
        return !intake->ever_connected; /* later: credentials may be being rotated */
    case MR_ERR_POISON:
    case MR_ERR_PROTOCOL:
        return intake->poison.failures >= MR_POISON_FAILURES_MAX;
    case MR_ERR_TRANSIENT:
    case MR_END:
        return false;
    default:
        return true;
    }
}

/* Waits before the next try; ends early on a stop. */
static void back_off(struct intake *intake, mr_status status)
{
    struct pollfd stop = {.fd = intake->pipeline->stop, .events = POLLIN};
    uint32_t most_ms = intake->pipeline->options.backoff_max_ms;
    poll(&stop, 1,
         (int)(is_of_a_place(status) ? mr_poison_pause_ms(&intake->poison, most_ms)
                                     : mr_backoff_ms(intake->attempt, most_ms)));
    intake->attempt++;
}

/* Where the stream stands: the item that was at hand, else behind what has come of the running transaction. */
static struct mr_position failing_place(const struct intake *intake)
{
    if (intake->failed_at.commit_lsn != 0 || !intake->in_transaction) {
        return intake->failed_at;
    }
    return (struct mr_position){.commit_lsn = intake->transaction_lsn,
                                .ordinal = intake->changes - intake->changes_at_begin + 1};
}

/* Adds to the error where that was, and how to get past it. */
static void tell_place(const struct intake *intake, struct mr_position place,
                       struct mr_error *error)
{
    if (place.commit_lsn == 0) {
        return;
    }
    const struct mr_relation *last = intake->last_relation;
    bool has_table = intake->failed_at.commit_lsn != 0 || last == NULL;
    struct mr_error whole;
    mr_error_set(&whole, error->status,
                 "%s; change %llu of the transaction that commits at " MR_LSN_FORMAT
                 "%s%s%s%s (--skip-commit-lsn " MR_LSN_FORMAT " skips that transaction)",
                 error->text, (unsigned long long)place.ordinal, MR_LSN_ARGS(place.commit_lsn),
                 has_table ? "" : ", behind one of ", has_table ? "" : last->schema,
                 has_table ? "" : ".", has_table ? "" : last->table, MR_LSN_ARGS(place.commit_lsn));
    *error = whole;
}

/* A failure of one place: counted, told, and shown as a state. True: the server can't send the transaction that is to
 * be skipped anyway, and the stream goes on behind it. */
static bool place_failed(struct intake *intake, mr_status status, struct mr_error *error)
{
    struct mr_position place = failing_place(intake);
    tell_place(intake, place, error);
    intake->failed_at = (struct mr_position){0};
    mr_lsn skip = intake->pipeline->options.skip_commit_lsn;
    if (skip != 0 && place.commit_lsn == skip && intake->start_behind == 0) {
        intake->start_behind = skip + 1;
        if (!intake->skip_done) {
            told_skipped(intake, skip, -1);
        }
        return true;
    }
    mr_poison_count(&intake->poison, place, status);
    atomic_store(&intake->pipeline->source_poisoned, true);
    return false;
}

/* MR_OK: try again. */
static mr_status source_failed(struct intake *intake, mr_status status, struct mr_error *error)
{
    bool skips = is_of_a_place(status) && place_failed(intake, status, error);
    if (intake->connected) {
        disconnect(intake, 0);
    }
    if (skips) {
        return MR_OK;
    }
    if (status == MR_AGAIN) {
        return MR_OK; /* a stop cut it short */
    }
    if (status == MR_END) {
        mr_error_set(error, MR_ERR_TRANSIENT, "PostgreSQL ended the stream");
    }
    mr_meter_source_error(&intake->pipeline->meter, error->status);
    if (is_fatal(intake, status)) {
        return status;
    }
    /* Once for each reason: that the server is back, but another process holds the slot, is news. */
    if (intake->attempt == 0 || strcmp(error->text, intake->lost_told.text) != 0) {
        intake->lost_told = *error;
        mr_log(MR_LOG_WARN, "source_lost", error->text, MR_LOG_LSN("confirmed", intake->confirmed));
    }
    atomic_fetch_add_explicit(&intake->pipeline->reconnects, 1, memory_order_relaxed);
    if (is_of_a_place(status) && filling_has_records(intake)) {
        hand_over(intake); /* what is before that place is delivered, whatever becomes of it */
    }
    back_off(intake, status);
    return MR_OK;
}

/* ---- the loop ---- */

/* There was no room for what the server sent. */
static mr_status wait_for_room(struct intake *intake, struct mr_error *ret_error)
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
    wait_for_batch(intake);
    return MR_OK;
}

/* The server shuts down and asks without end to be told of rows that the sink does not take. It would wait
 * for ever; the rows are safe with it. */
static mr_status leave_if_asked_in_vain(struct intake *intake, struct mr_error *ret_error)
{
    if (intake->asked < INSISTENCE_MAX || all_delivered(intake)) {
        return MR_OK;
    }
    intake->asked = 0;
    return mr_fail(
        ret_error, MR_ERR_TRANSIENT,
        "PostgreSQL is shutting down, and what it sent is not acknowledged yet; leaving, so that "
        "it can");
}

/* One round of receiving; MR_OK whatever there was to receive. */
static mr_status receive_round(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    intake->round_wall_ns = mr_wall_ns();
    mr_encoder_set_clock(pipeline->encoder, intake->round_wall_ns);
    intake->handler.hold = !may_go_on(intake);
    mr_status status =
        pipeline->source->ops->receive(pipeline->source, &intake->handler, ret_error);
    publish_counts(intake);
    if (status == MR_FULL) {
        return wait_for_room(intake, ret_error);
    }
    intake->stalled_ns = 0;
    if (status == MR_AGAIN) {
        wait_for_source(intake);
        return leave_if_asked_in_vain(intake, ret_error);
    }
    return status;
}

static mr_status stream_round(struct intake *intake, struct mr_error *ret_error)
{
    uint64_t activity = intake->changes + intake->transactions;
    mr_lsn received = atomic_load_explicit(&intake->pipeline->received, memory_order_relaxed);
    int64_t now_ns = mr_monotonic_ns();
    intake->round_ns = now_ns;
    MR_TRY(feedback(intake, now_ns, ret_error));
    send_marker(intake, now_ns);
    MR_TRY(receive_round(intake, ret_error));
    if (activity != intake->changes + intake->transactions || intake->reply_wanted ||
        received != atomic_load_explicit(&intake->pipeline->received, memory_order_relaxed)) {
        intake->heard_ns = now_ns;
    }
    return MR_OK;
}

static bool stop_asked(struct intake *intake)
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

static bool deadline_passed(const struct intake *intake)
{
    return atomic_load(&intake->pipeline->stop_level) == MR_STOP_NOW ||
           (intake->stop_deadline_ns != 0 && mr_monotonic_ns() > intake->stop_deadline_ns);
}

/* Streams until a stop finds a moment between transactions, or something fatal happens. */
static mr_status stream(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    for (;;) {
        follow_session(intake);
        if (atomic_load(&pipeline->sink_ended)) {
            return MR_OK;
        }
        /* Part of a transaction is out: its rest must follow, or a restart would repeat that part. */
        if (stop_asked(intake) &&
            (!intake->connected || !intake->appended_in_transaction || deadline_passed(intake))) {
            return MR_OK;
        }
        mr_status status =
            intake->connected ? stream_round(intake, ret_error) : connect_source(intake, ret_error);
        if (status != MR_OK) {
            MR_TRY(source_failed(intake, status, ret_error));
        }
    }
}

/* Waits until all that was handed over is delivered, while the server keeps hearing of us. */
static mr_status drain(struct intake *intake, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = intake->pipeline;
    if (filling_has_records(intake) && !intake->appended_in_transaction) {
        hand_over(intake);
    }
    while (!all_delivered(intake) || marker_pending(intake)) {
        bool sink_lost = atomic_load(&pipeline->session) != intake->session ||
                         atomic_load(&pipeline->sink_ended);
        if (sink_lost || deadline_passed(intake)) {
            return mr_fail(
                ret_error, MR_ERR_DEADLINE,
                "stopped before Kafka had acknowledged everything in flight; nothing is lost, "
                "but some rows will come twice after the next start");
        }
        if (intake->connected && feedback(intake, mr_monotonic_ns(), ret_error) != MR_OK) {
            disconnect(intake, 0);
        }
        send_marker(intake, mr_monotonic_ns());
        if (!all_delivered(intake)) {
            wait_for_sink(intake, REPLY_INTERVAL_NS);
        }
    }
    return MR_OK;
}

/* The last word to the server, and its answer. */
static mr_status confirm_end(struct intake *intake, struct mr_error *ret_error)
{
    update_confirmed(intake);
    if (!intake->connected) {
        if (intake->confirmed == intake->told || intake->confirmed == 0) {
            return MR_OK;
        }
        return mr_fail(
            ret_error, MR_ERR_DEADLINE,
            "stopped while PostgreSQL was away, so it could not be told what is delivered; "
            "nothing is lost, but some rows will come twice after the next start");
    }
    mr_status status = tell(intake, mr_monotonic_ns(), ret_error);
    disconnect(intake, intake->stop_deadline_ns);
    return status == MR_OK ? MR_OK : MR_ERR_DEADLINE;
}

static mr_status run(struct intake *intake, struct mr_error *ret_error)
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
    struct intake intake = {
        .pipeline = pipeline,
        .handler = {.change = on_change,
                    .message = on_message,
                    .begin = on_begin,
                    .commit = on_commit,
                    .keepalive = on_keepalive,
                    .relation_end = on_relation_end},
    };
    intake.handler.context = &intake;
    mr_oversizer_init(&intake.oversizer, pipeline->encoder, pipeline->pool.block_size_max,
                      pipeline->oversize);
    pipeline->source_status = run(&intake, &pipeline->source_error);
    if (intake.connected || intake.claimed) {
        disconnect(&intake, 0);
    }
    publish_counts(&intake);
    atomic_store(&pipeline->source_ended, true);
    mr_wake(pipeline->abandon);
    mr_wake(pipeline->sink_wake);
    mr_wake(pipeline->done_fd);
    mr_prof_thread_end();
    return NULL;
}
