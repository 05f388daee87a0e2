#include "flow/lane.h"

#include <sys/eventfd.h>

#include "base/clock.h"
#include "flow/companions.h"

/* No session has this number: the sink thread gives such a batch back. */
#define SESSION_NONE UINT32_MAX

void mr_lane_init(struct mr_lane *lane, struct mr_pipeline *pipeline, uint32_t index,
                  struct mr_encoder *encoder)
{
    *lane = (struct mr_lane){.pipeline = pipeline, .index = index, .encoder = encoder};
    if (index > MR_LANE_STREAM +
                    1) { /* the second of four leaves a fifth of the pool, the third two fifths */
        lane->leaves = (index - 1) * pipeline->pool.count / pipeline->lanes.count;
    }
    lane->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(lane->wake >= 0);
    const struct mr_pool *pool = &pipeline->pool;
    uint32_t window = MR_LANE_WINDOW_POOLS * pool->count;
    mr_ack_init(&lane->ack, window > 2 * pool->most ? window : 2 * pool->most);
    lane->marks = MR_NEW_ARRAY(struct mr_meter_mark, lane->ack.capacity);
    mr_oversizer_init(&lane->oversizer, encoder, pool->block_size_max,
                      pipeline->by_source.oversize);
    lane->oversizer.copies = index != MR_LANE_STREAM;
}

void mr_lane_done(struct mr_lane *lane)
{
    mr_ack_done(&lane->ack);
    free(lane->marks);
    close(lane->wake);
}

void mr_lane_attach(struct mr_lane *lane)
{
    lane->thread = pthread_self();
}

void mr_lane_follow_session(struct mr_lane *lane, uint32_t session)
{
    MR_ASSERT(session >= lane->session);
    lane->session = session;
    lane->handed = (struct mr_handed){0};
    lane->step = 0;
    atomic_store_explicit(&lane->counts.sequence, 0, memory_order_relaxed);
    lane->oversizer.refused = lane->pipeline->loaded.refused;
    if (lane->filling != NULL) {
        lane->filling->record_count = 0;
        lane->filling->bytes_at = lane->filling->block;
        lane->filling->confirm_lsn = 0;
    }
}

static bool lane_may_take(const struct mr_lane *lane)
{
    return mr_pool_has_batch(&lane->pipeline->pool, lane->has_waited ? 0 : lane->leaves);
}

bool mr_lane_take(struct mr_lane *lane)
{
    if (lane->filling == NULL && lane_may_take(lane)) {
        lane->filling = mr_pool_acquire(&lane->pipeline->pool);
        lane->has_waited = false;
    }
    return lane->filling != NULL;
}

bool mr_lane_has_batch(const struct mr_lane *lane)
{
    return lane->filling != NULL || lane_may_take(lane);
}

uint64_t mr_lane_stored(const struct mr_lane *lane)
{
    bool is_with = lane->pipeline->sink->storage == MR_STORES_WITH;
    return atomic_load(is_with ? &lane->acknowledged : &lane->published);
}

void mr_lane_look_for_room(struct mr_lane *lane)
{
    lane->room.hold = !mr_lane_may_go_on(lane);
}

bool mr_lane_may_go_on(const struct mr_lane *lane)
{
    return !lane->room.hold ||
           mr_pool_admits(&lane->pipeline->pool, lane->filling, lane->room.wanted);
}

/* What is handed over is above all that was. */
static void assert_order(struct mr_lane *lane, const struct mr_batch *batch)
{
    if (batch->record_count == 0) {
        return;
    }
    MR_ASSERT(mr_position_compare(lane->handed.position, mr_batch_record(batch, 0)->position) < 0);
    lane->handed.position = mr_batch_record(batch, batch->record_count - 1)->position;
}

/* Several lanes may fill one topic, whose positions grow: what other lanes than the stream's append
 * gets its ordinal in the order in which batches are handed over. What is made of one row stays
 * together. */
static void place_beside(struct mr_pipeline *pipeline, struct mr_batch *batch)
{
    uint64_t of = 0;
    for (uint32_t i = 0; i < batch->record_count; i++) {
        struct mr_record *record = mr_batch_own_record(batch, i);
        if (record->position.ordinal != of) {
            of = record->position.ordinal;
            pipeline->hand_over.beside_ordinal++;
        }
        record->position.ordinal = pipeline->hand_over.beside_ordinal;
        if (MR_UNLIKELY(record->kind != MR_RECORD_EVENT)) {
            mr_record_set_position(record);
        }
    }
}

/* The ring has one producer at a time. */
static void push(struct mr_lane *lane, struct mr_batch *batch)
{
    struct mr_pipeline *pipeline = lane->pipeline;
    MR_ASSERT(batch->state == MR_BATCH_FILLING && !batch->with_sink);
    batch->lane = lane->index;
    batch->state = MR_BATCH_SEALED;
    pthread_mutex_lock(&pipeline->hand_over.lock);
    if (lane->index != MR_LANE_STREAM) {
        place_beside(pipeline, batch);
    }
    assert_order(lane, batch);
    mr_meter_hand_over(&pipeline->meter, batch);
    MR_ASSERT(mr_ring_push(&pipeline->hand_over.to_sink, batch));
    pthread_mutex_unlock(&pipeline->hand_over.lock);
    mr_wake(pipeline->wakes.sink);
}

/* The batch at hand is about to be handed over. */
static void call_sealed(const struct mr_lane *lane)
{
    MR_EACH_COMPANION(lane->pipeline, sealed)
    {
        bool hears = lane->index == MR_LANE_STREAM ? companion->watches : companion == lane->owner;
        if (hears) {
            companion->ops->sealed(companion, lane->index, lane->has_item);
        }
    }
}

void mr_lane_hand_over(struct mr_lane *lane)
{
    struct mr_batch *batch = lane->filling;
    bool is_beside = lane->index != MR_LANE_STREAM;
    MR_ASSERT(pthread_equal(lane->thread, pthread_self()));
    if (MR_UNLIKELY(lane->is_watched)) {
        call_sealed(lane);
    }
    MR_ASSERT(batch->record_count > 0 || batch->confirm_lsn != 0 || is_beside ||
              mr_lane_owes_step(lane));
    MR_ASSERT(lane->step >= lane->handed.step);
    MR_ASSERT(lane->filling == batch);
    lane->filling = NULL;
    mr_counter_add(&lane->counts.records, batch->record_count);
    mr_counter_add(&lane->counts.bytes, mr_batch_bytes(batch));
    batch->session = lane->session;
    batch->step = lane->step;
    lane->handed.step = lane->step;
    batch->sequence = ++lane->handed.sequence;
    if (batch->record_count > 0) {
        lane->handed.needed = lane->handed.sequence; /* others carry a position alone */
    }
    atomic_store_explicit(&lane->counts.sequence, lane->handed.sequence, memory_order_relaxed);
    push(lane, batch);
}

void mr_lane_give_up(struct mr_lane *lane)
{
    struct mr_batch *batch = lane->filling;
    if (batch == NULL) {
        return;
    }
    lane->filling = NULL;
    batch->record_count = 0;
    batch->bytes_at = batch->block;
    batch->session = SESSION_NONE;
    push(lane, batch);
}

/* Makes room after an item did not fit: hands over what is there, else takes a larger block. */
static mr_status lane_make_room(struct mr_lane *lane, const struct mr_item *item,
                                struct mr_error *ret_error)
{
    struct mr_pool *pool = &lane->pipeline->pool;
    if (mr_lane_has_records(lane)) {
        mr_lane_hand_over(lane);
        return MR_OK;
    }
    size_t size = lane->filling->block_size;
    size_t most = pool->block_size_max;
    if (size >= most) {
        if (mr_oversizer_no_block(&lane->oversizer, item)) {
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
    larger = larger < lane->room.wanted ? lane->room.wanted : larger;
    if (!mr_batch_grow(pool, lane->filling, larger)) {
        /* Lanes that kept what they have would wait for each other. */
        mr_batch_shrink(pool, lane->filling);
        lane->room.hold = true;
        lane->room.wanted = larger;
        return MR_FULL;
    }
    lane->room.wanted = 0;
    return MR_OK;
}

/* A large block sets out at once with its one change. While it is on its way, nothing more may be
 * received unless there is room for the largest. */
static void hand_over_large(struct mr_lane *lane)
{
    struct mr_pool *pool = &lane->pipeline->pool;
    if (mr_batch_is_large(pool, lane->filling)) {
        lane->has_item = true;
        mr_lane_hand_over(lane);
        lane->has_item = false;
        lane->room.wanted = 0;
        lane->room.hold = !mr_pool_admits(pool, NULL, 0);
    }
}

static void began_batch(struct mr_lane *lane, int64_t decoded_ns)
{
    if (lane->index == MR_LANE_STREAM) {
        mr_intake_carry(lane->pipeline->intake);
    }
    mr_meter_first(lane->filling, lane->round.ns, lane->round.wall_ns, decoded_ns);
    hand_over_large(lane);
}

mr_status mr_lane_append(struct mr_lane *lane, const struct mr_item *item,
                         struct mr_error *ret_error)
{
    mr_oversizer_next(&lane->oversizer);
    for (;;) {
        if (lane->filling == NULL && !mr_lane_take(lane)) {
            return MR_FULL;
        }
        struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
        uint32_t count = 0;
        bool first = lane->filling->record_count == 0;
        int64_t decoded_ns = first ? mr_monotonic_ns() : 0;
        struct mr_buffer buffer = mr_batch_buffer(lane->filling);
        mr_status status =
            mr_oversizer_encode(&lane->oversizer, item, &buffer, records, &count, ret_error);
        if (status == MR_OK && count == 0) {
            return MR_OK;
        }
        if (status == MR_OK && mr_batch_commit(lane->filling, buffer.at, records, count)) {
            mr_encoder_count(lane->encoder, item, records, count);
            if (MR_UNLIKELY(first)) {
                began_batch(lane, decoded_ns);
            }
            mr_oversizer_kept(&lane->oversizer, item);
            return MR_OK;
        }
        if (status != MR_OK && status != MR_FULL) {
            return status;
        }
        MR_TRY(lane_make_room(lane, item, ret_error));
    }
}
