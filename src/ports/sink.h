/* A sink takes records to where they go: a table of functions, so that a test or a benchmark brings
 * its own.
 *
 * A sink gets sealed batches in order. It owns each until it hands it to `done`: once every record
 * of the batch is safe, or will be with the end of the transaction that holds it. Batches may be
 * done in any order. The first failure ends the session: the sink gives up all it holds and is
 * closed. Records are not sent again one by one, because a hole in a partition that is filled later
 * would defeat consumers that drop by position. Only the sink thread calls, except for `view`. */
#pragma once

#include "base/standstill.h"
#include "event/batch.h"
#include "event/checkpoint.h"
#include "ports/sink_view.h"

/* Whether a sink keeps the position along with the events. */
enum mr_sink_storage {
    MR_STORES_NOTHING, /* the slot is all there is */
    MR_STORES_AFTER,   /* in a record of its own, after what it tells of is safe */
    /* In one transaction with what it tells of. One that is committed may still go as a whole until
     * that is proved: Kafka answers a commit before it writes the markers that end it in each
     * partition, and brokers of 4.3 leave out those of partitions without a leader, and take the
     * next transaction all the same (KAFKA-20734). */
    MR_STORES_WITH,
};

/* That what was committed is there for good. */
enum mr_sink_proof {
    MR_PROOF_NONE,
    MR_PROOF_ASKED,
    MR_PROOF_GIVEN,
    MR_PROOF_LACKS, /* not yet */
};

struct mr_sink;
struct mr_companion;

struct mr_sink_ops {
    const char *name;

    /* Starts a session. */
    mr_status (*open)(struct mr_sink *sink, struct mr_error *ret_error);

    /* Takes a batch. MR_FULL: not now; the batch stays the caller's and comes again after a
     * poll. */
    mr_status (*send)(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *ret_error);

    /* Serves what came back, without waiting. An error is the end of the session. NULL: all is done
     * when `send` returns. */
    mr_status (*poll)(struct mr_sink *sink, struct mr_error *ret_error);

    /* With `poll`: nanoseconds after which it is to be called even without a wake-up; INT64_MAX:
     * never. */
    int64_t (*due_in_ns)(const struct mr_sink *sink);

    /* The next three only where something is stored (`storage` of the sink).
     *
     * Reads what was stored last, by whichever process; once, right after `open`. Waits for the
     * broker, until `stop_fd` is readable (MR_AGAIN). */
    mr_status (*load)(struct mr_sink *sink, bool *ret_found, struct mr_checkpoint *ret_state,
                      struct mr_error *ret_error);

    /* Takes a state to store; one at a time. MR_STORES_WITH: it is of all batches sent so far,
     * which are safe together with it, and no other is sent before. MR_FULL as for `send`. */
    mr_status (*store)(struct mr_sink *sink, const struct mr_checkpoint *state,
                       struct mr_error *ret_error);

    /* A state that was taken is not safe yet. */
    bool (*storing)(const struct mr_sink *sink);

    /* MR_STORES_WITH: asks whether all that was committed so far is there for good; `proof` of the
     * sink tells, after a wake-up. One question at a time. */
    void (*prove)(struct mr_sink *sink);

    /* Ends the session at once. Batches not done are no longer touched when it returns. */
    void (*close)(struct mr_sink *sink);

    void (*free)(struct mr_sink *sink);

    /* Fills in what the sink knows of itself; NULL: nothing but its name. Any thread, one at a
     * time, until `free`. */
    void (*view)(struct mr_sink *sink, struct mr_sink_view *ret_view);
};

/* The record that the sink refused, for good. */
struct mr_sink_refusal {
    struct mr_position position;
    size_t bytes;   /* of key and value */
    bool too_large; /* a smaller one in its place may do */
    bool yields;    /* as the record does */
    bool is_known;  /* to its topic (mr_topic_refuse): it comes in another form, or not at all */
};

/* Whom a sink works for; set before the first `open`. */
struct mr_sink_owner {
    /* The sink needs the batch no more; it is the owner's again. Its records are safe; with
     * MR_STORES_WITH they are once the state that `store` gets next is. */
    void (*done)(void *context, struct mr_batch *batch);
    void *context;
    /* As in mr_companion_ops; NULL: none has it. */
    void (*sent)(struct mr_companion *companion, const struct mr_record *record, int32_t partition);
    struct mr_companion *companion;
    int wake_fd; /* an eventfd: written when `poll` has something to do */
    int stop_fd; /* readable: nothing is to be waited for any more */
};

/* At most, of `times`. */
enum { MR_SINK_TIMES_MAX = 16 };

struct mr_sink {
    const struct mr_sink_ops *ops;
    struct mr_sink_owner owner;
    enum mr_sink_storage storage;
    enum mr_sink_proof proof; /* the answer to the last question of this session. Sink thread */
    struct mr_sink_refusal refusal; /* of the session that ended with MR_ERR_POISON; sink thread */
    /* With MR_STORES_WITH. A transaction of an earlier session does not count, and its records are
     * open in some partitions: there, the next transaction's end decides over them, too. It held
     * what comes after the stored position, up to `half_ended`. So its owner sends all of that
     * again and calls `store`, which gives up both, and ends the session. Set by `load`, or by the
     * owner after it. Sink thread */
    bool is_half_ended;
    struct mr_position half_ended;
    uint32_t times; /* that the pool may be as large, for answers from far away. Sink thread */
    /* Records may wait for so long for others; 0: none may. Set by the owner. Sink thread */
    int64_t gather_ns;
    struct mr_standstill *standstill; /* the pipeline's; NULL: there is none */
};

static inline void mr_sink_done(const struct mr_sink *sink, struct mr_batch *batch)
{
    sink->owner.done(sink->owner.context, batch);
}

static inline void mr_sink_sent(const struct mr_sink *sink, const struct mr_record *record,
                                int32_t partition)
{
    if (MR_UNLIKELY(sink->owner.sent != NULL)) {
        sink->owner.sent(sink->owner.companion, record, partition);
    }
}
