/* The sink thread: sealed batches to the sink, delivery reports to the acknowledgement window,
 * batches back to the pool, and the position into the sink's storage before it is published. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "flow/companions.h"
#include "flow/pace.h"
#include "flow/poison.h"
#include "flow/port.h"

enum {
    /* On a quiet stream the position is stored again now and then: compaction keeps what was stored
     * last, which may be an older position of an instance that lost the stream and woke up late. In
     * idle intervals. */
    STORED_AGAIN_INTERVALS = 6,
    /* A transaction that would stay open for more ends when nothing more comes. */
    TRANSACTION_QUIET_MS = 20,
    /* So long what a half-ended transaction held is waited for; less than a transaction may
     * last. */
    HALF_ENDED_MS = 30000,
    /* The loop comes round at least so often, so that somebody can see that it does. */
    TURN_MS_MAX = 10000,
    /* A session that has nothing to do for so long does not fail. */
    SOUND_MS = 2000,
    /* A sink that had no room is tried again. */
    FULL_MS = 10,
    /* Below it, epoll_wait's milliseconds are too coarse. */
    EXACT_NS = 10000000,
};

/* How far delivery is: all that ends at or before `lsn`, with `last` as the last transaction of it
 * that has rows, all batches up to `sequence`. */
struct progress {
    mr_lsn lsn;
    struct mr_commit last;
    uint64_t sequence;
};

enum storing {
    STORING_NOTHING,
    STORING_OWED,  /* a transaction is to end, and the sink had no room for its position yet */
    STORING_TAKEN, /* the sink has a position */
};

/* The position on its way into the sink's storage. */
struct store {
    enum storing state;
    struct progress of; /* what the position that was taken says (MR_STORES_AFTER) */
    int64_t asked_ns;   /* when the sink was asked last */
    bool owes_sections; /* steps have become safe since then */
    bool has_wanted;    /* companions that owe a section were told so (MR_STORES_WITH) */
    uint64_t *steps;    /* of a reach, by lane, */
    uint64_t *sequences;
};

/* The open transaction of a sink that stores the position with the events. Its batches go home as
 * their records are reported; they are acknowledged with its end. */
struct open_transaction {
    int64_t begun_ns; /* when the first change in it was received, */
    int64_t added_ns; /* and its last batch was sent */
    uint64_t bytes;
    bool copies;       /* existing rows are in it, which are a backlog */
    int64_t ending_ns; /* what the end of one takes lately */
    int64_t before_ns; /* how long the one before was open */
};

/* Of sessions. */
struct failures {
    uint32_t attempt; /* failed ones in a row */
    bool ever_connected;
    mr_lsn received;         /* when one ended */
    mr_lsn refused_at;       /* what was confirmed when a record was refused last, */
    uint32_t refusals;       /* and how many more there were, too many to be kept one by one */
    struct mr_poison poison; /* those that ended with a refused record, by what was confirmed */
};

struct delivery {
    struct mr_pipeline *pipeline;
    int woken;              /* of epoll: the thread was woken since it was asked last */
    struct mr_lane *stream; /* whose window says how far the stream is acknowledged */
    uint32_t session;
    int64_t served_ns;          /* since when it serves */
    struct mr_batch *current;   /* popped, not sent as a whole yet */
    mr_lsn sent_lsn;            /* end of the last transaction that was sent as a whole, */
    struct mr_commit sent_last; /* and the last one with rows that was */
    struct mr_position sent;    /* of the last change that was sent */
    struct progress published;  /* to the source thread */
    struct {
        struct progress of; /* of which it was asked last whether it is there for good */
        int64_t asked_ns;   /* when, or since when there is something to ask */
    } proof;
    struct mr_position committed; /* of the last transaction that was, in any session */
    struct store store;
    struct open_transaction transaction;
    struct failures failures;
};

/* Until somebody wakes the sink thread, or time is up. Edge-triggered: there is nothing to read
 * away, which spares a system call a wake-up (epoll(7), "Level-triggered and edge-triggered"). */
static void wait_for_wake(const struct delivery *delivery, int64_t timeout_ns)
{
    struct epoll_event event;
    if (timeout_ns > 0 && timeout_ns < EXACT_NS) {
        struct pollfd woken = {.fd = delivery->woken, .events = POLLIN};
        ppoll(&woken, 1, &(struct timespec){.tv_nsec = timeout_ns}, NULL);
        timeout_ns = 0;
    }
    epoll_wait(delivery->woken, &event, 1, mr_timeout_ms(timeout_ns));
}

static int watch_wake(int sink_wake)
{
    int woken = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    MR_ASSERT(woken >= 0 && epoll_ctl(woken, EPOLL_CTL_ADD, sink_wake, &event) == 0);
    return woken;
}

static void wake_source(struct mr_pipeline *pipeline)
{
    if (atomic_load(&pipeline->source_waits)) {
        mr_wake(pipeline->wakes.source);
    }
    for (uint32_t i = MR_LANE_STREAM + 1; i < pipeline->lanes.count; i++) {
        if (atomic_load(&pipeline->lanes.items[i].waits) &&
            mr_pool_has_batch(&pipeline->pool, pipeline->lanes.items[i].leaves)) {
            mr_wake(pipeline->lanes.items[i].wake);
        }
    }
}

static enum mr_handshake_state delivery_state_of(const struct delivery *delivery)
{
    struct mr_handshake_view view = mr_handshake_look(&delivery->pipeline->handshake);
    /* There is one session at a time, and it is ours. */
    MR_ASSERT(view.session == delivery->session);
    return view.state;
}

static void delivery_step(struct delivery *delivery, enum mr_handshake_event event)
{
    MR_ASSERT(mr_handshake_step(&delivery->pipeline->handshake, delivery->session, event));
    mr_wake(delivery->pipeline->wakes.source);
}

static void give_back(struct delivery *delivery, struct mr_batch *batch)
{
    MR_ASSERT(batch->lane < delivery->pipeline->lanes.count);
    batch->with_sink = false;
    mr_counter_add(&delivery->pipeline->meter.used_returned, mr_batch_used(batch));
    mr_pool_release(&delivery->pipeline->pool, batch);
    wake_source(delivery->pipeline);
}

static void delivery_publish(struct delivery *delivery, struct progress progress)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    MR_ASSERT(progress.lsn >= delivery->published.lsn); /* never goes back */
    MR_ASSERT(progress.sequence >= delivery->published.sequence);
    MR_ASSERT(progress.lsn <= delivery->stream->ack.acknowledged);
    MR_ASSERT(progress.sequence < delivery->stream->ack.next);
    if (progress.sequence != 0) {
        delivery->failures.attempt = 0; /* a session that delivers and can't store gets nowhere */
    }
    delivery->published = progress;
    /* Also where nothing that came was for the sink. */
    if (progress.sequence != 0 && progress.lsn >= delivery->failures.received) {
        mr_standstill_end(&pipeline->standstill, MR_CAUSE_SINK_FAILS);
    }
    pthread_mutex_lock(&pipeline->shared.lock);
    pipeline->shared.published = progress.lsn;
    pipeline->shared.last = progress.last;
    pthread_mutex_unlock(&pipeline->shared.lock);
    atomic_store(&pipeline->published, progress.lsn);
    atomic_store(&delivery->stream->published, progress.sequence);
}

static struct mr_lane *lane_of(const struct delivery *delivery, const struct mr_batch *batch)
{
    MR_ASSERT(batch->lane < delivery->pipeline->lanes.count);
    return &delivery->pipeline->lanes.items[batch->lane];
}

static struct progress delivery_acknowledged(const struct delivery *delivery)
{
    const struct mr_ack *ack = &delivery->stream->ack;
    return (struct progress){
        .lsn = ack->acknowledged, .last = ack->last, .sequence = ack->oldest - 1};
}

static bool is_transactional(const struct delivery *delivery)
{
    return delivery->pipeline->sink->storage == MR_STORES_WITH;
}

/* A transaction was committed, and is not published. */
static bool is_unproved(const struct delivery *delivery)
{
    const struct mr_ack *ack = &delivery->stream->ack;
    return is_transactional(delivery) && (ack->oldest - 1 != delivery->published.sequence ||
                                          ack->acknowledged != delivery->published.lsn);
}

/* Milliseconds until it may be asked whether what is committed is there for good; -1: it is, or it
 * was asked. */
static int proof_due_ms(const struct delivery *delivery)
{
    const struct mr_pipeline *pipeline = delivery->pipeline;
    if (!is_unproved(delivery) || pipeline->sink->proof == MR_PROOF_ASKED) {
        return -1;
    }
    int64_t interval_ns = (int64_t)pipeline->options.status_interval_ms * 1000000;
    bool stopping = atomic_load(&pipeline->ending.level) != MR_STOP_NONE;
    int64_t left_ns = delivery->proof.asked_ns + interval_ns - mr_monotonic_ns();
    return stopping && pipeline->sink->proof != MR_PROOF_LACKS ? 0 : mr_timeout_ms(left_ns);
}

/* A transaction is published once it is there for good (MR_STORES_WITH). */
static void delivery_take_proof(struct delivery *delivery)
{
    struct mr_sink *sink = delivery->pipeline->sink;
    if (sink->proof == MR_PROOF_GIVEN) {
        sink->proof = MR_PROOF_NONE;
        delivery_publish(delivery, delivery->proof.of);
        wake_source(delivery->pipeline);
    }
    if (proof_due_ms(delivery) == 0) {
        delivery->proof.of = delivery_acknowledged(delivery);
        delivery->proof.asked_ns = mr_monotonic_ns();
        sink->ops->prove(sink);
    }
}

static struct mr_meter_mark *mark_of(struct mr_lane *lane, uint64_t sequence)
{
    return &lane->marks[sequence % lane->ack.capacity];
}

/* Companions learn which steps are safe. */
static void follow_step(struct delivery *delivery, struct mr_lane *lane)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    if (MR_LIKELY(lane->ack.step == lane->step_safe)) {
        return;
    }
    MR_ASSERT(lane->ack.step > lane->step_safe);
    lane->step_safe = lane->ack.step;
    delivery->store.owes_sections = true;
    MR_EACH_COMPANION(pipeline, safe)
    {
        companion->ops->safe(companion, lane->index, lane->step_safe);
    }
    if (pipeline->sink->storage == MR_STORES_NOTHING) {
        mr_companions_stored(pipeline);
    }
}

/* What other lanes append has no position that could be stored as one; how far they are, sections
 * say. */
static void publish_beside(struct delivery *delivery, struct mr_lane *lane)
{
    delivery->failures.attempt = 0;
    atomic_store(&lane->published, lane->ack.oldest - 1);
}

/* All of a batch is safe. */
static void acknowledge(struct delivery *delivery, const struct mr_meter_mark *mark)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct mr_lane *lane = &pipeline->lanes.items[mark->lane];
    atomic_fetch_add_explicit(&pipeline->by_sink.records_acked, mark->records,
                              memory_order_relaxed);
    bool moved = mr_ack_complete(&lane->ack, mark->sequence);
    if (moved) {
        atomic_store_explicit(&lane->acknowledged, lane->ack.oldest - 1, memory_order_relaxed);
        follow_step(delivery, lane);
        atomic_store_explicit(&pipeline->by_sink.acknowledged, delivery->stream->ack.acknowledged,
                              memory_order_relaxed);
    }
    if (moved && lane != delivery->stream) {
        publish_beside(delivery, lane);
    } else if (moved && pipeline->sink->storage == MR_STORES_NOTHING) {
        delivery_publish(delivery, delivery_acknowledged(delivery));
    }
    mr_meter_acknowledge(&pipeline->meter, mark, moved ? lane->ack.oldest - 1 : 0);
    if (MR_UNLIKELY(delivery->failures.poison.failures > 0) &&
        delivery->stream->ack.acknowledged > delivery->failures.poison.position.commit_lsn) {
        delivery->failures.poison = (struct mr_poison){0};
        mr_standstill_end(&pipeline->standstill, MR_CAUSE_RECORD_REFUSED);
    }
    if (mark->records > 0) {
        mr_standstill_end(&pipeline->standstill, MR_CAUSE_SINK_FAILS);
    }
    delivery->failures.ever_connected = true;
    atomic_store_explicit(&pipeline->by_sink.connected, true, memory_order_relaxed);
}

/* mr_sink_owner's `done`. The window moves before the batch goes home: its next owner finds the
 * position published. Where a transaction is open, the memory goes home all the same: nothing is
 * sent again from it, for what becomes of a transaction that fails is read again from
 * PostgreSQL. */
static void delivery_batch_done(void *context, struct mr_batch *batch)
{
    struct delivery *delivery = context;
    MR_ASSERT(batch->with_sink);
    MR_ASSERT(batch->session == delivery->session);
    struct mr_meter_mark mark = mr_meter_mark(batch);
    if (is_transactional(delivery)) {
        *mark_of(lane_of(delivery, batch), mark.sequence) = mark;
    } else {
        acknowledge(delivery, &mark);
    }
    give_back(delivery, batch);
}

/* The transaction that holds all that was sent is committed. */
static void acknowledge_transaction(struct delivery *delivery)
{
    const struct mr_pipeline *pipeline = delivery->pipeline;
    if (!is_unproved(delivery)) {
        delivery->proof.asked_ns = mr_monotonic_ns();
    }
    delivery->failures.attempt = 0;
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        struct mr_lane *lane = &pipeline->lanes.items[i];
        for (uint64_t sequence = lane->ack.oldest; sequence < lane->ack.next; sequence++) {
            const struct mr_meter_mark *mark = mark_of(lane, sequence);
            MR_ASSERT(mark->sequence == sequence); /* it went home */
            acknowledge(delivery, mark);
        }
    }
    MR_ASSERT(delivery->stream->ack.acknowledged == delivery->sent_lsn);
    delivery->transaction.bytes = 0;
    delivery->committed = delivery->sent;
}

/* Batches are on their way, or wait for the end of their transaction. */
static bool delivery_is_open(const struct delivery *delivery)
{
    const struct mr_pipeline *pipeline = delivery->pipeline;
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        if (pipeline->lanes.items[i].ack.oldest != pipeline->lanes.items[i].ack.next) {
            return true;
        }
    }
    return false;
}

/* The ring's next batch may be any lane's. */
static bool window_is_full(const struct delivery *delivery)
{
    const struct mr_pipeline *pipeline = delivery->pipeline;
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        if (mr_ack_full(&pipeline->lanes.items[i].ack)) {
            return true;
        }
    }
    return false;
}

/* Whether a batch may set out, if there is one. A sink has one transaction at a time: while it is
 * committed, what is read waits. */
static bool delivery_may_take(const struct delivery *delivery)
{
    return !window_is_full(delivery) && mr_ring_count(&delivery->pipeline->hand_over.to_sink) > 0 &&
           !(is_transactional(delivery) && delivery->store.state != STORING_NOTHING);
}

/* Takes the next batch of this session; those filled for an older one are given back. */
static struct mr_batch *next_batch(struct delivery *delivery)
{
    while (delivery_may_take(delivery)) {
        struct mr_batch *batch = mr_ring_pop(&delivery->pipeline->hand_over.to_sink);
        MR_ASSERT(batch != NULL && batch->state == MR_BATCH_SEALED);
        if (batch->session == delivery->session) {
            struct mr_lane *lane = lane_of(delivery, batch);
            MR_ASSERT(!batch->with_sink);
            mr_ack_add(&lane->ack, batch->sequence, batch->confirm_lsn, &batch->last, batch->step);
            batch->with_sink = true;
            return batch;
        }
        give_back(delivery, batch);
    }
    return NULL;
}

/* A transaction tells of all that was sent. */
static void add_sections(struct delivery *delivery, struct mr_checkpoint *state)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        const struct mr_ack *ack = &pipeline->lanes.items[i].ack;
        delivery->store.steps[i] = is_transactional(delivery) ? ack->step_sent : ack->step;
        delivery->store.sequences[i] = (is_transactional(delivery) ? ack->next : ack->oldest) - 1;
    }
    struct mr_reach reach = {.end_lsn = state->end_lsn,
                             .position = state->position,
                             .steps = delivery->store.steps,
                             .sequences = delivery->store.sequences,
                             .lanes = pipeline->lanes.count,
                             .server_end = atomic_load(&pipeline->source->server_end)};
    MR_EACH_COMPANION(pipeline, section)
    {
        companion->ops->section(companion, &reach, state);
    }
}

/* `to`: its end, last transaction and position. */
static mr_status store(struct delivery *delivery, const struct mr_checkpoint *to,
                       struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct mr_checkpoint state = *to;
    MR_ASSERT(delivery->store.state != STORING_TAKEN);
    MR_ASSERT(to->end_lsn >= delivery->published.lsn);
    MR_ASSERT(is_transactional(delivery) || to->end_lsn <= delivery->stream->ack.acknowledged);
    pthread_mutex_lock(&pipeline->shared.lock);
    /* A transaction that gives up what is half ended is not committed. */
    MR_ASSERT(pipeline->shared.is_identified || pipeline->sink->is_half_ended);
    state.identity = pipeline->shared.identity;
    pthread_mutex_unlock(&pipeline->shared.lock);
    add_sections(delivery, &state);
    delivery->store.asked_ns = mr_monotonic_ns();
    mr_status status = pipeline->sink->ops->store(pipeline->sink, &state, ret_error);
    mr_checkpoint_done(&state);
    delivery->store.owes_sections = delivery->store.owes_sections && status != MR_OK;
    return status;
}

/* Not before anything of the stream is, and the server has said whose it is: a record says both.
 * What is stored within transactions needs one, which a step of the companion's makes
 * (`between`). */
static void follow_debts(struct delivery *delivery)
{
    struct store *store = &delivery->store;
    if (delivery->stream->ack.acknowledged == 0 ||
        !atomic_load_explicit(&delivery->pipeline->by_source.was_connected, memory_order_acquire)) {
        return;
    }
    bool wants = false;
    MR_EACH_COMPANION(delivery->pipeline, owes)
    {
        bool owes = companion->ops->owes(companion);
        store->owes_sections |= owes;
        if (owes && is_transactional(delivery) && !store->has_wanted &&
            companion->ops->between != NULL) {
            wants = true;
            mr_port_want(companion);
        }
    }
    store->has_wanted |= wants;
}

/* Milliseconds until what is acknowledged may be stored; 0: now, -1: there is nothing to store, or
 * it goes on. */
static int store_due_ms(const struct delivery *delivery)
{
    const struct mr_pipeline *pipeline = delivery->pipeline;
    if (pipeline->sink->storage != MR_STORES_AFTER || delivery->store.state == STORING_TAKEN) {
        return -1;
    }
    bool news = delivery_acknowledged(delivery).sequence != delivery->published.sequence ||
                delivery->store.owes_sections;
    if (!news && (delivery->published.lsn == 0 || delivery->published.sequence == 0)) {
        return -1;
    }
    uint32_t interval_ms = news ? pipeline->options.status_interval_ms
                                : STORED_AGAIN_INTERVALS * pipeline->options.idle_ms;
    int64_t interval_ns = (int64_t)interval_ms * 1000000;
    int64_t left_ns = delivery->store.asked_ns + interval_ns - mr_monotonic_ns();
    bool stopping = news && atomic_load(&pipeline->ending.level) != MR_STOP_NONE;
    return stopping ? 0 : mr_timeout_ms(left_ns);
}

/* Stores what is acknowledged, and publishes what is stored. */
static mr_status advance(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_sink *sink = delivery->pipeline->sink;
    if (delivery->store.state == STORING_TAKEN && !sink->ops->storing(sink)) {
        delivery->store.state = STORING_NOTHING;
        if (is_transactional(delivery)) {
            delivery->transaction.ending_ns = mr_pace_ending_ns(
                delivery->transaction.ending_ns, mr_monotonic_ns() - delivery->store.asked_ns);
            acknowledge_transaction(delivery);
            delivery->store.has_wanted = false;
        } else {
            delivery_publish(delivery, delivery->store.of);
        }
        mr_companions_stored(delivery->pipeline);
        wake_source(delivery->pipeline);
    }
    delivery_take_proof(delivery);
    follow_debts(delivery);
    if (store_due_ms(delivery) != 0) {
        return MR_OK;
    }
    struct progress progress = delivery_acknowledged(delivery);
    if (progress.lsn == delivery->published.lsn &&
        progress.sequence != delivery->published.sequence && !delivery->store.owes_sections) {
        delivery_publish(delivery, progress); /* part of a transaction: nothing to store yet */
        return MR_OK;
    }
    const struct mr_checkpoint to = {.end_lsn = progress.lsn, .last = progress.last};
    mr_status status = store(delivery, &to, ret_error);
    if (status == MR_OK) {
        delivery->store.of = progress;
        delivery->store.state = STORING_TAKEN;
    }
    return status == MR_FULL ? MR_OK : status; /* the next round comes back to it */
}

/* What is stored says less than what was committed or published. */
static void look_what_lacks(struct delivery *delivery, bool found,
                            const struct mr_checkpoint *stored)
{
    struct mr_sink *sink = delivery->pipeline->sink;
    if (stored->last.lsn < delivery->published.last.lsn) {
        /* PostgreSQL does not send it again: if it is half ended, the next end there is to
         * count. */
        sink->is_half_ended = false;
        if (found) {
            mr_log(MR_LOG_ERROR, "stored_went_back",
                   "Kafka keeps an older position than the one it had committed, so it may lack "
                   "the rows between them, too; \"millrace verify\" names them",
                   MR_LOG_LSN("stored", stored->end_lsn),
                   MR_LOG_LSN("confirmed", delivery->published.lsn));
        }
        return;
    }
    /* The end of a transaction after it may have taken it along in the state topic, and not in
     * others. */
    struct mr_position known = sink->is_half_ended ? sink->half_ended : stored->position;
    if (mr_position_compare(known, delivery->committed) < 0) {
        sink->is_half_ended = true;
        sink->half_ended = delivery->committed;
    }
}

/* The position that was stored last is where this session begins. */
static mr_status delivery_load(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    bool found = false;
    struct mr_checkpoint state = {0};
    MR_TRY(pipeline->sink->ops->load(pipeline->sink, &found, &state, ret_error));
    MR_ASSERT(delivery->current == NULL && !delivery_is_open(delivery));
    struct progress begin = {.lsn = state.end_lsn, .last = state.last};
    if (is_transactional(delivery)) {
        look_what_lacks(delivery, found, &state);
    }
    if (delivery->published.lsn > begin.lsn) {
        begin = (struct progress){.lsn = delivery->published.lsn, .last = delivery->published.last};
    }
    delivery->stream->ack.acknowledged = begin.lsn;
    delivery->stream->ack.last = begin.last;
    delivery->sent_lsn = begin.lsn;
    delivery->sent_last = begin.last;
    delivery->sent = state.position;
    delivery_publish(delivery, begin);
    MR_EACH_COMPANION(pipeline, adopt)
    {
        companion->ops->adopt(companion, &state);
    }
    mr_checkpoint_done(&pipeline->loaded.stored);
    pipeline->loaded.stored = state;
    pipeline->loaded.found = found;
    delivery_step(delivery, MR_HANDSHAKE_LOADED);
    return MR_OK;
}

/* Once a batch; no position is stored while there is a current one. */
static void note_sent(struct delivery *delivery, const struct mr_batch *batch)
{
    bool is_stream = batch->lane == MR_LANE_STREAM;
    if (batch->confirm_lsn != 0) {
        MR_ASSERT(batch->confirm_lsn >= delivery->sent_lsn);
        delivery->sent_lsn = batch->confirm_lsn;
        delivery->sent_last = batch->last;
    }
    if (is_stream && batch->record_count > 0) {
        MR_ASSERT(mr_position_compare(delivery->sent, mr_batch_record(batch, 0)->position) < 0);
        delivery->sent = mr_batch_record(batch, batch->record_count - 1)->position;
    }
    if (delivery->transaction.bytes == 0) {
        delivery->transaction.begun_ns = batch->received_ns;
        delivery->transaction.before_ns = mr_pace_before_ns(
            delivery->transaction.before_ns, batch->received_ns - delivery->store.asked_ns);
        delivery->transaction.copies = false;
    }
    delivery->transaction.copies |= !is_stream;
    delivery->transaction.bytes += mr_batch_bytes(batch);
}

/* Milliseconds until the transaction that gives up a half-ended one may end: it has a record in
 * each partition in which that has any, or what that held does not come. */
static int half_ended_due_ms(const struct delivery *delivery)
{
    struct mr_position up_to = delivery->pipeline->sink->half_ended;
    if (mr_position_compare(up_to, delivery->sent) <= 0 || up_to.commit_lsn < delivery->sent_lsn) {
        return 0;
    }
    int64_t most_ns = HALF_ENDED_MS * INT64_C(1000000);
    return mr_timeout_ms(delivery->served_ns + most_ns - mr_monotonic_ns());
}

/* Milliseconds until the open transaction is to end; 0: now, -1: there is none, or it does
 * already. */
static int end_due_ms(const struct delivery *delivery)
{
    if (!is_transactional(delivery) || delivery->store.state == STORING_TAKEN ||
        delivery->current != NULL) {
        return -1;
    }
    if (delivery->store.state == STORING_OWED || window_is_full(delivery)) {
        return 0;
    }
    if (MR_UNLIKELY(delivery->pipeline->sink->is_half_ended)) {
        return half_ended_due_ms(delivery);
    }
    if (!delivery_is_open(delivery)) {
        return -1;
    }
    int64_t latency_ns = (int64_t)delivery->pipeline->options.latency_us * 1000;
    int64_t due_ns = delivery->transaction.begun_ns + latency_ns;
    bool is_backlog =
        delivery->transaction.copies || mr_backlog_is_there(&delivery->pipeline->backlog);
    int64_t full_ns = delivery->transaction.begun_ns +
                      mr_pace_open_ns(delivery->transaction.bytes, delivery->transaction.ending_ns,
                                      delivery->transaction.before_ns, is_backlog);
    int64_t quiet_ns = delivery->transaction.added_ns + TRANSACTION_QUIET_MS * INT64_C(1000000);
    int64_t burst_ns = full_ns < quiet_ns ? full_ns : quiet_ns;
    int64_t left_ns = (due_ns > burst_ns ? due_ns : burst_ns) - mr_monotonic_ns();
    return mr_timeout_ms(left_ns);
}

/* The position of all that was sent goes with it, and ends the transaction. */
static mr_status delivery_end_transaction(struct delivery *delivery, struct mr_error *ret_error)
{
    const struct mr_checkpoint to = {
        .end_lsn = delivery->sent_lsn, .last = delivery->sent_last, .position = delivery->sent};
    if (MR_UNLIKELY(delivery->pipeline->sink->is_half_ended)) {
        delivery->committed = (struct mr_position){0}; /* whatever was half ended of it goes now */
    }
    mr_status status = store(delivery, &to, ret_error);
    if (status == MR_OK && delivery->transaction.bytes > 0) {
        delivery->transaction.before_ns = delivery->store.asked_ns - delivery->transaction.begun_ns;
    }
    delivery->store.state = status == MR_OK     ? STORING_TAKEN
                            : status == MR_FULL ? STORING_OWED
                                                : STORING_NOTHING;
    return status == MR_FULL ? MR_OK : status;
}

static mr_status send_batches(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_sink *sink = delivery->pipeline->sink;
    for (;;) {
        if (delivery->current == NULL) {
            delivery->current = next_batch(delivery);
            if (delivery->current == NULL) {
                break;
            }
            note_sent(delivery, delivery->current);
        }
        if (delivery->current->pending == 0) {
            /* none of it is with the sink yet */
            delivery->current->enqueued_ns = mr_monotonic_ns();
            delivery->transaction.added_ns = delivery->current->enqueued_ns;
        }
        struct mr_schemas *schemas = delivery->pipeline->schemas;
        mr_status status = MR_OK;
        if (MR_UNLIKELY(schemas != NULL)) {
            status = mr_schemas_resolve(schemas, delivery->current, ret_error);
        }
        status = MR_THEN(status, sink->ops->send(sink, delivery->current, ret_error));
        if (status != MR_OK) {
            return status == MR_FULL ? MR_OK : status;
        }
        delivery->current = NULL;
    }
    return end_due_ms(delivery) == 0 ? delivery_end_transaction(delivery, ret_error) : MR_OK;
}

/* Of two times to wait; -1 milliseconds are none. */
static int64_t delivery_sooner(int64_t a_ns, int b_ms)
{
    int64_t b_ns = b_ms < 0 ? INT64_MAX : b_ms * INT64_C(1000000);
    return b_ns < a_ns ? b_ns : a_ns;
}

/* Records may wait for others for half of what latency may cost, while there are batches for
 * those. */
static int64_t gather_ns(struct mr_pipeline *pipeline)
{
    return mr_pool_has_batch(&pipeline->pool, 0) ? (int64_t)pipeline->options.latency_us * 500 : 0;
}

static bool must_leave(const struct mr_pipeline *pipeline)
{
    return atomic_load(&pipeline->ending.source);
}

/* A sink that failed is tried by what it gets next. On a quiet server that may be never: then the
 * time says it. */
static void look_whether_sound(const struct delivery *delivery)
{
    struct mr_standstill *standstill = &delivery->pipeline->standstill;
    int64_t since_ns = mr_monotonic_ns() - delivery->served_ns;
    if (!delivery_is_open(delivery) && delivery->current == NULL &&
        delivery->published.lsn >= delivery->failures.received &&
        since_ns > SOUND_MS * INT64_C(1000000)) {
        mr_standstill_end(standstill, MR_CAUSE_SINK_FAILS);
    }
}

static mr_status poll_sink(struct mr_sink *sink, struct mr_error *ret_error)
{
    return sink->ops->poll == NULL ? MR_OK : sink->ops->poll(sink, ret_error);
}

/* Serves one session until it fails or the thread is to leave (MR_END). */
static mr_status delivery_serve(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct mr_sink *sink = pipeline->sink;
    delivery->served_ns = mr_monotonic_ns();
    for (;;) {
        atomic_store_explicit(&pipeline->by_sink.turn_ns, mr_monotonic_ns(), memory_order_relaxed);
        MR_TRY(send_batches(delivery, ret_error));
        sink->gather_ns = gather_ns(pipeline);
        MR_TRY(poll_sink(sink, ret_error));
        mr_pool_lend(&pipeline->pool, sink->times);
        MR_TRY(advance(delivery, ret_error));
        int turn_ms = TURN_MS_MAX;
        if (MR_UNLIKELY(mr_standstill_has(&pipeline->standstill, MR_CAUSE_SINK_FAILS))) {
            look_whether_sound(delivery);
            turn_ms = SOUND_MS;
        }
        if (must_leave(pipeline)) {
            return MR_END;
        }
        if (delivery_state_of(delivery) == MR_HANDSHAKE_OUTDATED) {
            return mr_fail(
                ret_error, MR_ERR_TRANSIENT,
                "another instance may have had the stream meanwhile; reading its position");
        }
        /* A full sink queue empties without a wake-up of ours. */
        bool waits = delivery->current != NULL || delivery->store.state == STORING_OWED;
        if (!waits && delivery_may_take(delivery)) {
            continue; /* reports have made room */
        }
        int64_t due_ns = sink->ops->poll == NULL ? INT64_MAX : sink->ops->due_in_ns(sink);
        int64_t wait_ns = delivery_sooner(due_ns, waits ? FULL_MS : turn_ms);
        wait_ns = delivery_sooner(wait_ns, store_due_ms(delivery));
        wait_ns = delivery_sooner(wait_ns, end_due_ms(delivery));
        wait_ns = delivery_sooner(wait_ns, proof_due_ms(delivery));
        wait_for_wake(delivery, wait_ns);
    }
}

/* The session is over: what it held comes home undelivered, and the next one begins. The source
 * thread sees the number, drops what it was filling, and starts again at the confirmed position. */
static void end_session(struct delivery *delivery)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    pipeline->sink->ops->close(pipeline->sink);
    pipeline->sink->proof = MR_PROOF_NONE;
    atomic_store_explicit(&pipeline->by_sink.connected, false, memory_order_relaxed);
    delivery->current = NULL;
    delivery->store.state = STORING_NOTHING;
    delivery->store.owes_sections = delivery->store.has_wanted = false;
    delivery->transaction.bytes = 0;
    delivery->published.sequence = 0;
    for (uint32_t i = 0; i < pipeline->lanes.count; i++) {
        mr_ack_reset(&pipeline->lanes.items[i].ack, 1);
        pipeline->lanes.items[i].step_safe = 0;
        atomic_store(&pipeline->lanes.items[i].acknowledged, 0);
        atomic_store(&pipeline->lanes.items[i].published, 0);
    }
    delivery->sent_lsn = delivery->published.lsn;
    delivery->sent_last = delivery->published.last;
    delivery->sent = (struct mr_position){0};
    MR_ASSERT(!delivery_is_open(delivery));
    delivery_step(delivery, MR_HANDSHAKE_END);
    delivery->session++;
    for (uint32_t i = 0; i < pipeline->pool.most; i++) {
        if (pipeline->pool.batches[i].with_sink) {
            give_back(delivery, &pipeline->pool.batches[i]);
        }
    }
    mr_wake(pipeline->wakes.source);
}

/* Errors that a new session can't mend. Refused credentials may have been rotated while we ran. */
static bool delivery_is_fatal(const struct delivery *delivery, mr_status status)
{
    switch (status) {
    case MR_ERR_AUTH:
        return !delivery->failures.ever_connected;
    case MR_ERR_POISON:
        return delivery->failures.poison.failures >= MR_POISON_FAILURES_MAX;
    case MR_ERR_CONFIG:
    case MR_ERR_HISTORY:
    case MR_ERR_SYSTEM:
    case MR_AGAIN: /* the sink gave up waiting because it was asked to */
        return true;
    default:
        return false;
    }
}

/* The sink refused a record for good. One that is too large is replaced the next time, if the
 * policy is to, or anybody may have written it; one whose form its topic is now known to refuse has
 * another, or is dropped; else the failure is counted. Before the next session is seen. */
static mr_status take_refusal(struct delivery *delivery, mr_status status,
                              const struct mr_error *error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    const struct mr_sink_refusal *refusal = &pipeline->sink->refusal;
    mr_lsn confirmed =
        is_transactional(delivery) ? delivery->stream->ack.acknowledged : delivery->published.lsn;
    if (status != MR_ERR_POISON) {
        return status;
    }
    if (refusal->is_known) {
        delivery->failures.attempt = 0; /* once for each form that a topic refuses */
        return MR_ERR_TRANSIENT;
    }
    if (refusal->too_large &&
        (refusal->yields ||
         mr_encoder_options(delivery->stream->encoder)->oversize != MR_OVERSIZE_FAIL)) {
        bool is_step = mr_refused_add(
            &pipeline->loaded.refused,
            (struct mr_refused){.position = refusal->position, .bytes = refusal->bytes}, confirmed);
        bool moved = confirmed != delivery->failures.refused_at;
        delivery->failures.refused_at = confirmed;
        delivery->failures.refusals = is_step || moved ? 0 : delivery->failures.refusals + 1;
        delivery->failures.attempt = delivery->failures.refusals;
        return MR_ERR_TRANSIENT;
    }
    mr_poison_count(&delivery->failures.poison, (struct mr_position){.commit_lsn = confirmed},
                    status);
    char text[MR_CAUSE_TEXT_MAX];
    snprintf(text, sizeof(text),
             "a record is refused; it is tried three times, then exit code 65: %s", error->text);
    mr_standstill_begin(&pipeline->standstill, MR_CAUSE_RECORD_REFUSED, text);
    return status;
}

/* One session may end for any reason; the next one that ends before it has delivered anything says
 * that the sink fails. */
static void delivery_log_lost(struct delivery *delivery, mr_status status,
                              const struct mr_error *error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    mr_lsn received = atomic_load_explicit(&pipeline->by_source.received, memory_order_relaxed);
    delivery->failures.received =
        received > delivery->failures.received ? received : delivery->failures.received;
    if (status != MR_ERR_POISON && delivery->failures.attempt > 0) {
        mr_standstill_begin(&pipeline->standstill, MR_CAUSE_SINK_FAILS, error->text);
    }
    mr_log(MR_LOG_WARN, "sink_session_lost", error->text, MR_LOG_INT("session", delivery->session),
           MR_LOG_LSN("confirmed", delivery->published.lsn));
}

/* Waits before the next session; false when the thread is to leave. */
static bool delivery_back_off(struct delivery *delivery, mr_status status)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct pollfd fds[2] = {
        {.fd = pipeline->wakes.abandon, .events = POLLIN},
        {.fd = delivery->woken, .events = POLLIN},
    };
    uint32_t most_ms = pipeline->options.backoff_max_ms;
    uint32_t wait_ms = status == MR_ERR_POISON
                           ? mr_poison_pause_ms(&delivery->failures.poison, most_ms)
                           : mr_backoff_ms(delivery->failures.attempt++, most_ms);
    int64_t end_ns = mr_monotonic_ns() + (int64_t)wait_ms * 1000000;
    int64_t left_ns;
    while (!must_leave(pipeline) && (left_ns = end_ns - mr_monotonic_ns()) > 0) {
        if (poll(fds, 2, mr_timeout_ms(left_ns)) > 0 && fds[0].revents != 0) {
            return false;
        }
        wait_for_wake(delivery, 0);
    }
    return !must_leave(pipeline);
}

/* A transactional sink fences every other writer, and what is stored may change for as long as
 * another instance has the stream: both are for its owner to do. MR_END when the thread is to
 * leave. */
static mr_status wait_for_claim(struct delivery *delivery, bool sink_is_open,
                                struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct mr_sink *sink = pipeline->sink;
    while (delivery_state_of(delivery) != MR_HANDSHAKE_CLAIMED) {
        if (must_leave(pipeline)) {
            return MR_END;
        }
        if (sink_is_open) {
            /* errors are logged, and reports don't pile up, however long it takes */
            MR_TRY(poll_sink(sink, ret_error));
        }
        wait_for_wake(delivery, TURN_MS_MAX * INT64_C(1000000));
    }
    return MR_OK;
}

/* The claim may be lost between any two steps; once the loading has begun, that makes it void in
 * the end. */
static bool is_loading(const struct delivery *delivery)
{
    enum mr_handshake_state state = delivery_state_of(delivery);
    return state == MR_HANDSHAKE_LOADING || state == MR_HANDSHAKE_OUTDATED;
}

static mr_status run_session(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    struct mr_sink *sink = pipeline->sink;
    if (is_transactional(delivery)) {
        MR_TRY(wait_for_claim(delivery, false, ret_error));
    }
    if (sink->storage == MR_STORES_NOTHING) {
        delivery_step(delivery,
                      MR_HANDSHAKE_LOADED); /* what was published is all there is to know */
    }
    MR_TRY(sink->ops->open(sink, ret_error));
    if (sink->storage != MR_STORES_NOTHING) {
        do {
            MR_TRY(wait_for_claim(delivery, true, ret_error));
            delivery_step(delivery, MR_HANDSHAKE_LOAD);
        } while (!is_loading(delivery));
        MR_TRY(delivery_load(delivery, ret_error));
    }
    return delivery_serve(delivery, ret_error);
}

static mr_status run_sessions(struct delivery *delivery, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = delivery->pipeline;
    for (;;) {
        mr_status status = run_session(delivery, ret_error);
        status = take_refusal(delivery, status, ret_error);
        end_session(delivery);
        if (status == MR_END) {
            return MR_OK;
        }
        if (delivery_is_fatal(delivery, status)) {
            return status;
        }
        atomic_fetch_add_explicit(&pipeline->by_sink.rebuilds, 1, memory_order_relaxed);
        mr_counter_add(&pipeline->meter.rebuild_reasons[status], 1);
        pipeline->meter.newest_sequence = 0; /* sequences begin again */
        delivery_log_lost(delivery, status, ret_error);
        if (!delivery_back_off(delivery, status)) {
            return MR_OK;
        }
    }
}

void *mr_delivery_main(void *context)
{
    struct mr_pipeline *pipeline = context;
    prctl(PR_SET_NAME, "mr-sink");
    mr_thread_begin(MR_THREAD_SINK, "mr-sink");
    atomic_store(&pipeline->by_sink.tid, gettid());
    struct delivery delivery = {.pipeline = pipeline,
                                .woken = watch_wake(pipeline->wakes.sink),
                                .stream = &pipeline->lanes.items[MR_LANE_STREAM],
                                .store.steps = MR_NEW_ARRAY(uint64_t, pipeline->lanes.count),
                                .store.sequences = MR_NEW_ARRAY(uint64_t, pipeline->lanes.count)};
    pipeline->sink->owner = (struct mr_sink_owner){.done = delivery_batch_done,
                                                   .context = &delivery,
                                                   .wake_fd = pipeline->wakes.sink,
                                                   .stop_fd = pipeline->wakes.abandon};
    MR_EACH_COMPANION(pipeline, sent)
    {
        pipeline->sink->owner.sent = companion->ops->sent;
        pipeline->sink->owner.companion = companion;
    }
    pipeline->results.sink = run_sessions(&delivery, &pipeline->results.sink_error);
    close(delivery.woken);
    free(delivery.store.steps);
    free(delivery.store.sequences);
    atomic_store(&pipeline->ending.sink, true);
    mr_wake(pipeline->wakes.source);
    mr_wake(pipeline->wakes.stop); /* a claim or a pause that nothing follows */
    mr_thread_end();
    return NULL;
}
