/* Where changes come from: a table of functions, so that a test or a benchmark slides in its own. A
 * source decodes and calls the handler, in stream order, on the source thread, which alone calls.
 * It never confirms anything by itself. */
#pragma once

#include <stdatomic.h>

#include "base/counter.h"
#include "event/checkpoint.h"
#include "event/context.h"
#include "event/reselected.h"

/* What the pipeline does with the stream. Every function that answers may be called again with the
 * same arguments after it answered MR_FULL; positions tell what was done already, and a begin or
 * commit that was full was not. */
struct mr_source_handler {
    void *context;
    const bool *hold; /* true: hand over nothing more, `receive` answers MR_FULL; NULL: never */
    int64_t *sent_us; /* when the server sent what is handed over; NULL: nobody wants to know */
    mr_status (*change)(void *context, const struct mr_change *change, struct mr_error *ret_error);
    mr_status (*message)(void *context, const struct mr_message_event *message,
                         struct mr_error *ret_error);
    mr_status (*begin)(void *context, const struct mr_transaction *transaction,
                       struct mr_error *ret_error);
    mr_status (*commit)(void *context, const struct mr_transaction *transaction,
                        struct mr_error *ret_error);
    /* The server has sent all that lies before `server_end`; it may want a status update now. */
    void (*keepalive)(void *context, mr_lsn server_end, bool reply_requested);
    /* Rows come as those of `root` that are of `part`, from the next one on. NULL: nobody asks. */
    mr_status (*part)(void *context, const struct mr_relation *root, const struct mr_relation *part,
                      struct mr_error *ret_error);
    /* `relation` is about to be freed; forget what was derived from it. */
    void (*relation_end)(void *context, const struct mr_relation *relation);
};

struct mr_source;

struct mr_source_ops {
    const char *name;

    /* Connects, and waits until no other instance has the stream. Returns early with MR_AGAIN once
     * `stop_fd` is readable. Safe to call again after `close`. NULL where nobody else could. */
    mr_status (*claim)(struct mr_source *source, int stop_fd, struct mr_error *ret_error);

    /* After `claim`: sets up or verifies publication and slot, verifies that the stream may go on
     * where `stored` says (NULL: nothing is stored), and starts it at `start` (0: where the slot
     * stands). After an error the claim is gone. */
    mr_status (*open)(struct mr_source *source, const struct mr_checkpoint *stored, mr_lsn start,
                      int stop_fd, struct mr_identity *ret_identity, struct mr_error *ret_error);

    /* From now on `options`, of the source's own kind and the caller's for as long, say what is
     * streamed. Closed. NULL: that can't be changed. */
    void (*change)(struct mr_source *source, const void *options);

    /* Hands messages to the handler until none is there (MR_AGAIN), a fair share is done (MR_OK),
     * the handler is full (MR_FULL; the same message comes again), or the stream ends (MR_END or
     * error). */
    mr_status (*receive)(struct mr_source *source, const struct mr_source_handler *handler,
                         struct mr_error *ret_error);

    /* Tells the server that all before `flushed` is safe, and asks for an answer if `ping`. Does
     * not block. */
    mr_status (*confirm)(struct mr_source *source, mr_lsn flushed, bool ping,
                         struct mr_error *ret_error);

    /* The descriptor that gets readable when there is something to receive. */
    int (*descriptor)(const struct mr_source *source);

    /* Ends the stream. With a `deadline_ns` (monotonic) above 0 it first makes sure, up to that
     * moment, that the server has taken the last confirm. */
    void (*close)(struct mr_source *source, int64_t deadline_ns);
};

/* What is known of the place at which `receive` failed, besides what came. */
struct mr_failed_place {
    const struct mr_relation *table; /* of the change; NULL: not known */
    bool is_behind;    /* the last change that came is of that table, rather than the failing one */
    mr_lsn commit_lsn; /* of a transaction that has not begun here; 0: none, or not known */
};

struct mr_source {
    const struct mr_source_ops *ops;
    struct mr_failed_place failed; /* of the last `receive`; until `close` */
    bool unanswered;               /* the last `close` could not make sure */
    /* The source counts, anybody reads. */
    mr_counter received_bytes;          /* of messages */
    _Atomic uint64_t message_bytes_max; /* the longest since the stream was opened */
    _Atomic mr_lsn server_end;          /* of the server's log when the stream was opened last */
    _Atomic bool slot_adopted;          /* read on from a slot without a stored position */
    mr_counter contexts[MR_CONTEXT_OUTCOMES]; /* messages of that kind, by what became of them */
    _Atomic bool stands_by;                   /* connected, and waits until another instance ends */
    mr_counter reselected[MR_RESELECTED_COUNT]; /* updates, by what became of them */
    mr_counter reselect_wait_ns; /* that changes were held back for values that are read again */
};
