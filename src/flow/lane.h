/* A lane: an encoder, a batch that fills, a sequence, and an acknowledgement window. The stream is
 * lane 0; companions may have others. Lanes share the pool, the ring to the sink thread, and the
 * sink.
 *
 * A lane's thread fills it: it appends items; a full batch names its lane and goes to the sink
 * thread, which keeps a window for each. Sequences and steps count from 1 within a session and a
 * lane, and say nothing of other lanes. Who fills takes a lock for a batch from the pool and one to
 * hand it over, none for an item. Only flow/ and companions use it. */
#pragma once

#include "encode/oversize.h"
#include "flow/ack.h"
#include "flow/meter.h"

struct mr_companion;
struct mr_pipeline;

enum {
    MR_LANE_STREAM = 0,
    /* The window in pools: one slow partition keeps the oldest batch open while the others' come
     * and go. Twice what the pool may lend at most, where that is more. */
    MR_LANE_WINDOW_POOLS = 8,
};

/* Of this session, in the order of handing over. */
struct mr_handed {
    uint64_t sequence;           /* of the batch handed over last, */
    uint64_t needed;             /* of the last whose loss makes rows come twice */
    uint64_t step;               /* that a batch has carried last */
    struct mr_position position; /* of the last record */
};

struct mr_lane {
    struct mr_pipeline *pipeline;
    uint32_t index;

    /* ---- of its thread ---- */
    pthread_t thread; /* the only one that calls */
    struct mr_encoder *encoder;
    struct mr_oversizer oversizer;
    struct mr_batch *filling; /* NULL: none at hand */
    struct {
        bool hold;     /* nothing more is to come for now: there was no room, */
        size_t wanted; /* for a block of so many bytes; 0: for any large one */
    } room;
    uint32_t session; /* of the sink */
    uint64_t step;    /* that companions were given last in this session */
    struct mr_handed handed;
    struct {
        int64_t ns, wall_ns; /* when what is appended was received */
    } round;
    bool is_watched;                  /* companions hear when a batch is about to be handed over */
    const struct mr_companion *owner; /* the one that does, of another lane than the stream's */
    bool has_item;                    /* what is being appended is in the batch at hand */
    /* Free batches that it leaves to others than the stream's, unless it has waited for long: where
     * the sink is slower than those who read, the first of them reads alone, and the others cost no
     * CPU. */
    uint32_t leaves;
    bool has_waited;
    /* eventfd of another lane than the stream's: written, while it `waits`, for each batch that
     * comes home */
    int wake;

    /* ---- written by its thread, read by any ---- */
    _Alignas(64) struct {
        _Atomic uint64_t records, bytes, sequence;
    } counts;
    _Atomic bool waits;

    /* ---- of the sink thread ---- */
    _Alignas(64) struct mr_ack ack;
    struct mr_meter_mark *marks; /* of batches that are home before they are acknowledged */
    uint64_t step_safe;          /* that companions know is safe */

    /* Written by the sink thread, of the session: all batches up to it are safe, */
    _Atomic uint64_t acknowledged;
    /* and stored for good where the sink stores. */
    _Atomic uint64_t published;
};

void mr_lane_init(struct mr_lane *lane, struct mr_pipeline *pipeline, uint32_t index,
                  struct mr_encoder *encoder);
void mr_lane_done(struct mr_lane *lane);

/* The calling thread is the lane's from now on. */
void mr_lane_attach(struct mr_lane *lane);

/* The sink began another session: what is in the batch at hand is void. */
void mr_lane_follow_session(struct mr_lane *lane, uint32_t session);

/* Encodes an item into the batch at hand, and hands that over when it is full. MR_FULL: there is no
 * batch, or, with `hold`, no room for a large block; the same item may come again. */
mr_status mr_lane_append(struct mr_lane *lane, const struct mr_item *item,
                         struct mr_error *ret_error);

/* A batch is at hand. False: none can be had now. */
bool mr_lane_take(struct mr_lane *lane);

/* The batch at hand is the sink thread's from now on. It holds records, or a position or place. */
void mr_lane_hand_over(struct mr_lane *lane);

/* The batch at hand, if any, goes home as it is, and nothing of it to the sink. */
void mr_lane_give_up(struct mr_lane *lane);

/* Nothing more is held back if there is room by now. */
void mr_lane_look_for_room(struct mr_lane *lane);

/* Whether what was held back may go on. */
bool mr_lane_may_go_on(const struct mr_lane *lane);

/* A step waits for a batch that carries it. */
static inline bool mr_lane_owes_step(const struct mr_lane *lane)
{
    return lane->step != lane->handed.step;
}

static inline bool mr_lane_has_records(const struct mr_lane *lane)
{
    return lane->filling != NULL && lane->filling->record_count > 0;
}

/* A batch at hand, or one that can be had. */
bool mr_lane_has_batch(const struct mr_lane *lane);

/* The last batch of the session that Kafka has together with its position, or that needs none: what
 * is committed with it need not be proved, and published, for that. Any thread. */
uint64_t mr_lane_stored(const struct mr_lane *lane);

/* All that was handed over is published, and nothing is at hand. */
static inline bool mr_lane_all_published(const struct mr_lane *lane)
{
    return !mr_lane_has_records(lane) && atomic_load(&lane->published) == lane->handed.sequence;
}
