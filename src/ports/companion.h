/* What rides along with the flow: a table of functions that the flow calls at named moments. Copies
 * of existing rows are the first kind (copy/); the flow knows nothing of them but this.
 *
 * The wiring hands the flow an array of companions, which are called in its order, and outlive the
 * flow. A companion appends items of its own, and learns when they are safe by steps: a step is a
 * number of one lane and one session of the sink, which mr_port_note (flow/port.h) gives out, and
 * which the lane's next batch carries. A companion keeps what a step means to it; the flow only
 * says which steps are safe. What is to outlive the process goes into sections of the stored record
 * (event/checkpoint.h).
 *
 * Threads: each function says whose thread calls it. What a companion shares between threads is its
 * own to protect. */
#pragma once

#include <stdatomic.h>

#include "event/checkpoint.h"

struct mr_port;
struct mr_record;

/* What a stored record is to say: all that is before is in the sink, or will be together with the
 * record. */
struct mr_reach {
    mr_lsn end_lsn;
    struct mr_position position;
    const uint64_t *steps;     /* by lane; 0: none yet */
    const uint64_t *sequences; /* by lane: of the last batch that is among it */
    uint32_t lanes;
    mr_lsn server_end; /* of the server's log when the stream was opened; 0: not known */
};

enum mr_loss {
    MR_LOST_CONNECTION, /* of the source; what was handed over stays in flight */
    MR_LOST_SESSION,    /* of the sink: steps count from 1 again, and what was not safe is lost */
    /* the source's options are about to change: no thread of the companion uses them after the
     * call */
    MR_LOST_OPTIONS,
    MR_LOST_END, /* the flow ends: no thread of the companion runs after the call */
};

struct mr_companion;

/* NULL where the moment does not matter, but for the name. */
struct mr_companion_ops {
    const char *name;

    /* Its port is there; before the threads are started. */
    void (*attach)(struct mr_companion *companion);

    /* ---- source thread ---- */

    /* Once the source is claimed and the stored position is known, before the stream is opened.
     * MR_OK: there is no more to prepare; MR_AGAIN: broken off, and it comes again; MR_END: done,
     * and no stream is to begin. Errors as the source's. */
    mr_status (*prepare)(struct mr_companion *companion, struct mr_error *ret_error);

    /* The stream can't go on (MR_ERR_HISTORY). True: what `prepare` does next mends that. */
    bool (*mends)(const struct mr_companion *companion);

    /* Nothing may be changed now. */
    bool (*is_busy)(const struct mr_companion *companion);

    /* A row was inserted into a table of signals. Once for each position, before it counts as
     * received; after an error the connection begins again, and it comes again. Only where
     * `hears_signals` is set. */
    mr_status (*signal)(struct mr_companion *companion, const struct mr_change *change,
                        struct mr_error *ret_error);

    /* Between two transactions, while `wants` is set. MR_OK, or MR_FULL: there is no room for what
     * is to be appended. */
    mr_status (*between)(struct mr_companion *companion);

    /* While `wants` is set: nanoseconds until `between` is to be called though nobody wakes the
     * thread. */
    int64_t (*due_in)(const struct mr_companion *companion, int64_t now_ns);

    /* While it watches (mr_port_watch): what the stream brings. `is_new`: records of the change are
     * in a batch now. */
    void (*change)(struct mr_companion *companion, const struct mr_change *change, bool is_new);
    void (*commit)(struct mr_companion *companion, const struct mr_transaction *transaction);

    /* Always: the relation is about to be freed. */
    void (*relation_end)(struct mr_companion *companion, const struct mr_relation *relation);

    void (*lost)(struct mr_companion *companion, enum mr_loss loss);

    /* ---- the lane's thread ---- */

    /* The lane's batch at hand is about to be handed over; of the stream's lane while it watches,
     * of a lane of its own always. `has_item`: what is being appended is in the batch. A step that
     * is noted now goes with this batch. */
    void (*sealed)(struct mr_companion *companion, uint32_t lane, bool has_item);

    /* ---- sink thread; these never wait, and hold locks for a moment only ---- */

    /* The sink has taken the record, for that partition (-1: it has none). In the order of sending;
     * of one companion. */
    void (*sent)(struct mr_companion *companion, const struct mr_record *record, int32_t partition);

    /* A session begins where that was stored (all zero: nothing was). Before it is ready for the
     * source thread. */
    void (*adopt)(struct mr_companion *companion, const struct mr_checkpoint *stored);

    /* All batches of the lane up to one that carries the step are with the sink. Steps only
     * grow. */
    void (*safe)(struct mr_companion *companion, uint32_t lane, uint64_t step);

    /* Whether `section` has something that no batch brings along, and that is to be stored soon.
     * Of a sink that stores with the events (MR_STORES_WITH): then `between` is wanted, to note a
     * step. */
    bool (*owes)(const struct mr_companion *companion);

    /* Adds to `checkpoint`, which is about to be stored, the sections that tell of `reach`. */
    void (*section)(struct mr_companion *companion, const struct mr_reach *reach,
                    struct mr_checkpoint *checkpoint);

    /* What `section` said last is stored. Where the sink stores nothing: after each `safe`. */
    void (*stored)(struct mr_companion *companion);
};

struct mr_companion {
    const struct mr_companion_ops *ops;
    struct mr_port *port; /* the flow's */
    bool hears_signals;   /* set before the flow is made */
    bool watches;         /* the flow's own: mr_port_watch */
    _Atomic bool wants;   /* any thread sets it (mr_port_want); looked at once a round */
};
