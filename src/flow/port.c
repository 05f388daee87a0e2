#include "flow/port.h"

#include "base/thread.h"

#include <poll.h>

#include "base/clock.h"
#include "flow/companions.h"
#include "flow/intake_internal.h"

static struct mr_pipeline *pipeline_of(const struct mr_port *port)
{
    return (struct mr_pipeline *)((uintptr_t)port - offsetof(struct mr_pipeline, port));
}

/* The source thread's own state, which is there as long as that thread runs. */
static struct mr_intake *intake_of(const struct mr_port *port)
{
    struct mr_intake *intake = pipeline_of(port)->intake;
    MR_ASSERT(intake != NULL);
    return intake;
}

void mr_port_want(struct mr_companion *companion)
{
    atomic_store_explicit(&companion->wants, true, memory_order_release);
    if (companion->port != NULL) {
        mr_port_wake(companion->port);
    }
}

void mr_port_wake(struct mr_port *port)
{
    mr_wake(pipeline_of(port)->wakes.source);
}

uint64_t mr_port_note(struct mr_lane *lane)
{
    MR_ASSERT(pthread_equal(lane->thread, pthread_self()));
    lane->step += lane->step == lane->handed.step;
    return lane->step;
}

uint64_t mr_port_records_beside(const struct mr_port *port)
{
    const struct mr_pipeline *pipeline = pipeline_of(port);
    uint64_t records = 0;
    for (uint32_t i = MR_LANE_STREAM + 1; i < pipeline->lanes.count; i++) {
        records +=
            atomic_load_explicit(&pipeline->lanes.items[i].counts.records, memory_order_relaxed);
    }
    return records;
}

struct mr_lane *mr_port_lane(struct mr_port *port, uint32_t index, struct mr_companion *owner)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    const struct mr_intake *intake = intake_of(port);
    MR_ASSERT(index > MR_LANE_STREAM && index < pipeline->lanes.count);
    struct mr_lane *lane = &pipeline->lanes.items[index];
    MR_ASSERT(lane->owner == NULL || lane->owner == owner);
    if (lane->session != intake->session) {
        mr_lane_follow_session(lane, intake->session);
    }
    lane->is_watched = true;
    lane->owner = owner;
    return lane;
}

void mr_port_watch(struct mr_companion *companion, bool watches)
{
    const struct mr_pipeline_options *options = &pipeline_of(companion->port)->options;
    companion->watches = watches;
    companion->port->stream->is_watched =
        MR_ANY(one, options->companions, options->companion_count, (*one)->watches);
}

mr_lsn mr_port_place(const struct mr_port *port)
{
    return intake_of(port)->carry.marked;
}

bool mr_port_is_above(const struct mr_port *port, struct mr_position position)
{
    return mr_position_compare(intake_of(port)->carry.appended, position) < 0;
}

mr_status mr_port_append(struct mr_port *port, const struct mr_change *change,
                         struct mr_error *ret_error)
{
    struct mr_intake *intake = intake_of(port);
    MR_ASSERT(mr_port_is_above(port, change->position));
    struct mr_item item = {.kind = MR_ITEM_CHANGE, .change = change};
    mr_status status = mr_lane_append(intake->lane, &item, ret_error);
    if (status == MR_OK) {
        mr_intake_appended(intake, change->position);
    }
    return status;
}

mr_status mr_port_append_record(struct mr_port *port, struct mr_record *record,
                                struct mr_error *ret_error)
{
    return mr_intake_append_record(intake_of(port), record, ret_error);
}

mr_lsn mr_port_published(const struct mr_port *port)
{
    return atomic_load(&pipeline_of(port)->published);
}

void mr_port_set_clock(struct mr_port *port, int64_t now_ns, int64_t wall_ns)
{
    struct mr_lane *lane = port->stream;
    lane->round.ns = now_ns;
    lane->round.wall_ns = wall_ns;
    mr_encoder_set_clock(lane->encoder, wall_ns);
}

bool mr_port_is_crowded(const struct mr_port *port)
{
    const struct mr_pool *pool = &pipeline_of(port)->pool;
    return mr_ring_count(&pool->free) < (pool->count + 1) / 2;
}

uint32_t mr_port_backoff_ms(const struct mr_port *port, uint32_t attempt)
{
    return mr_backoff_ms(attempt, atomic_load(&pipeline_of(port)->options.backoff_max_ms));
}

bool mr_port_is_over(const struct mr_port *port)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    return atomic_load(&pipeline->ending.sink) ||
           atomic_load(&pipeline->ending.level) != MR_STOP_NONE ||
           mr_handshake_look(&pipeline->handshake).session != intake_of(port)->session;
}

mr_status mr_port_look_around(struct mr_port *port, int wait_ms, struct mr_error *ret_error)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    struct mr_source *source = pipeline->source;
    if (mr_port_is_over(port)) {
        return MR_AGAIN;
    }
    atomic_store_explicit(&pipeline->by_source.turn_ns, mr_monotonic_ns(), memory_order_relaxed);
    mr_mailbox_serve(&pipeline->mailbox);
    return mr_intake_sleep(intake_of(port), source->ops->descriptor(source), POLLRDHUP, wait_ms)
               ? mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "PostgreSQL connection: it was closed while existing rows were copied")
               : MR_OK;
}

bool mr_port_known(const struct mr_port *port, struct mr_checkpoint *ret_known)
{
    return mr_intake_known(intake_of(port), ret_known);
}

void mr_port_set_known(struct mr_port *port, const struct mr_checkpoint *known)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    mr_checkpoint_done(&pipeline->loaded.stored);
    pipeline->loaded.stored = *known;
    pipeline->loaded.found = true;
}

bool mr_port_is_mending(const struct mr_port *port)
{
    return intake_of(port)->companions.are_mending;
}

void mr_port_begins(struct mr_port *port, const struct mr_identity *identity)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    mr_pipeline_identify(pipeline, identity);
    mr_standstill_end(&pipeline->standstill, MR_CAUSE_POSTGRESQL_AWAY);
}

bool mr_port_begin_lanes(struct mr_port *port, struct mr_position first)
{
    struct mr_pipeline *pipeline = pipeline_of(port);
    bool grows = true;
    MR_HOLD(&pipeline->hand_over.lock);
    for (uint32_t i = MR_LANE_STREAM + 1; i < pipeline->lanes.count; i++) {
        grows = grows && mr_position_compare(pipeline->lanes.items[i].handed.position, first) <= 0;
    }
    pipeline->hand_over.beside_ordinal = grows ? first.ordinal : pipeline->hand_over.beside_ordinal;
    return grows;
}

mr_status mr_port_begin_at(struct mr_port *port, mr_lsn lsn, int wait_ms,
                           struct mr_error *ret_error)
{
    struct mr_intake *intake = intake_of(port);
    mr_intake_mark(intake, lsn);
    while (mr_intake_position_waits(intake) || !mr_lane_all_published(intake->lane)) {
        if (mr_intake_position_waits(intake) && mr_lane_has_batch(intake->lane)) {
            mr_intake_send_position(intake, mr_monotonic_ns());
        }
        MR_TRY(mr_port_look_around(port, wait_ms, ret_error));
    }
    return MR_OK;
}
