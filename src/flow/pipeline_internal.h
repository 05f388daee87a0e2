/* What the two threads of a pipeline share. Inside pipeline/ only. */
#ifndef MR_PIPELINE_INTERNAL_H
#define MR_PIPELINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/standstill.h"
#include "base/wake.h"
#include "flow/companions.h"
#include "flow/handshake.h"
#include "flow/lane.h"
#include "flow/mailbox.h"
#include "flow/meter.h"
#include "flow/pipeline.h"

enum mr_stop {
    MR_STOP_NONE = 0,
    MR_STOP_ORDERLY = 1, /* finish the transaction, deliver, confirm */
    MR_STOP_NOW = 2,     /* give up what is in flight */
};

struct mr_intake;

struct mr_pipeline {
    struct mr_pipeline_options options;
    struct mr_source *source;
    struct mr_schemas *schemas; /* of events that have some; NULL */
    struct mr_sink *sink;
    struct mr_standstill standstill; /* what is in the way */
    void (*on_open)(void *context);
    void *on_open_context;

    struct mr_pool pool;
    struct mr_ring to_sink;    /* sealed batches of all lanes */
    pthread_mutex_t hand_over; /* one lane at a time puts one in; once a batch */
    uint64_t
        beside_ordinal; /* of what other lanes than the stream's handed over last; with `hand_over` */
    struct mr_lane *lanes; /* MR_LANE_STREAM, then those of companions */
    uint32_t lane_count;

    /* eventfds. `stop`, `abandon` and `sink_wake` stay readable once written; each write of the last is an event of its own. */
    int source_wake;
    int sink_wake;
    int stop;    /* the source's: an orderly stop was asked for */
    int abandon; /* the sink's: don't wait for anything any more */
    int done_fd; /* the caller's */

    pthread_t source_thread;
    pthread_t sink_thread;
    bool started;

    _Atomic int stop_level;    /* enum mr_stop; only ever goes up */
    _Atomic bool stop_asked;   /* by mr_pipeline_stop */
    _Atomic bool source_ended; /* nothing more will be handed over; the sink thread may leave */
    _Atomic bool
        sink_ended; /* the sink thread has left, because it was told to or by a fatal error */

    /* Who may do what; both threads take its steps. */
    _Alignas(64) struct mr_handshake handshake;

    /* Written by the sink thread before its step to the state that it belongs to. */
    struct mr_checkpoint stored;    /* MR_HANDSHAKE_LOADED: what the sink had stored, */
    bool stored_found;              /* if anything */
    struct mr_refused_list refused; /* MR_HANDSHAKE_END */

    /* Written by the sink thread: what is published to the source thread. */
    _Alignas(64) _Atomic mr_lsn published; /* may be confirmed; never goes back */
    _Atomic uint64_t records_acked;
    _Atomic uint64_t rebuilds;
    _Atomic bool sink_connected;

    struct mr_mailbox mailbox;     /* of the source thread */
    struct mr_intake *intake;      /* that thread's own state, for what it runs itself */
    pthread_mutex_t identity_lock; /* a few times a second */
    struct mr_identity identity;   /* of the stream that is open */

    /* Set by the source thread before it sleeps for a batch or for the end of delivery. */
    _Alignas(64) _Atomic bool source_waits;

    /* Written by the source thread, read by whoever looks. */
    _Alignas(64) _Atomic uint64_t changes;
    _Atomic uint64_t skipped;
    _Atomic uint64_t transactions;
    _Atomic uint64_t reconnects;
    _Atomic uint64_t backpressure_ns;
    _Atomic uint64_t oversize[MR_OVERSIZE_COUNT]; /* changes, by what became of them */
    _Atomic uint64_t skipped_transactions;        /* that --skip-commit-lsn asked for */
    _Atomic mr_lsn received;
    _Atomic mr_lsn confirmed;       /* what PostgreSQL was told */
    _Atomic int64_t source_turn_ns; /* when each thread's loop last came round */
    _Atomic int64_t sink_turn_ns;

    struct mr_meter meter;
    _Atomic bool source_was_connected;

    /* Each thread's own end; read after both are joined. */
    mr_status source_status;
    struct mr_error source_error;
    mr_status sink_status;
    struct mr_error sink_error;
};

/* Makes the change, on the source thread. */
mr_status mr_intake_change(struct mr_intake *intake, const struct mr_pipeline_change *change,
                           struct mr_error *ret_error);

/* Appends a heartbeat, on the source thread, between two transactions. MR_AGAIN: not now, and it is left out. */
mr_status mr_intake_beat(struct mr_intake *intake, struct mr_error *ret_error);

/* Thread functions. */
void *mr_intake_main(void *pipeline);
void *mr_delivery_main(void *pipeline);

/* The stop begins, unless one has. */
void mr_pipeline_stop_in_order(struct mr_pipeline *pipeline);

#endif
