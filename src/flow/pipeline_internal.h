/* What the two threads of a pipeline share. Only flow/ includes it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/standstill.h"
#include "base/wake.h"
#include "flow/backlog.h"
#include "flow/handshake.h"
#include "flow/lane.h"
#include "flow/mailbox.h"
#include "flow/meter.h"
#include "flow/pipeline.h"
#include "flow/port.h"

enum mr_stop {
    MR_STOP_NONE = 0,
    MR_STOP_ORDERLY = 1, /* finish the transaction, deliver, confirm */
    MR_STOP_NOW = 2,     /* give up what is in flight */
};

struct mr_intake;

/* eventfds. `stop`, `abandon` and `sink` stay readable once written; each write of the last is an
 * event of its own. */
struct mr_wakes {
    int source, sink; /* each thread's */
    int stop;         /* the source's: an orderly stop was asked for */
    int abandon;      /* the sink's: don't wait for anything any more */
    int done;         /* the caller's */
};

struct mr_flow_threads {
    pthread_t source, sink;
    bool started;
};

/* How the end comes. Each only ever goes up. */
struct mr_ending {
    _Atomic int level;   /* enum mr_stop */
    _Atomic bool asked;  /* by mr_pipeline_stop */
    _Atomic bool source; /* nothing more will be handed over; the sink thread may leave */
    _Atomic bool sink;   /* the sink thread has left: it was asked to, or an error was fatal */
};

/* Written by the sink thread before its step to the state that it belongs to. */
struct mr_loaded {
    struct mr_checkpoint stored;    /* MR_HANDSHAKE_LOADED: what the sink had stored, */
    bool found;                     /* if anything */
    struct mr_refused_list refused; /* MR_HANDSHAKE_END */
};

/* Sealed batches of all lanes, on their way to the sink thread. */
struct mr_hand_over {
    pthread_mutex_t lock; /* one lane at a time puts one in; once a batch */
    struct mr_ring to_sink;
    uint64_t beside_ordinal; /* of what others than the stream handed over last; with the lock */
};

/* Each is written by one thread, and read by any. */
struct mr_by_source {
    _Atomic uint64_t changes, skipped, transactions, reconnects, backpressure_ns;
    _Atomic uint64_t oversize[MR_OVERSIZE_COUNT]; /* changes, by what became of them */
    _Atomic uint64_t skipped_transactions;        /* that --skip-commit-lsn asked for */
    _Atomic mr_lsn received;
    _Atomic mr_lsn confirmed;
    _Atomic int64_t turn_ns; /* when the thread's loop last came round */
    _Atomic int tid;
    _Atomic bool was_connected;
};

struct mr_by_sink {
    _Atomic uint64_t records_acked, rebuilds;
    _Atomic mr_lsn acknowledged; /* of the stream's lane */
    _Atomic int64_t turn_ns;
    _Atomic int tid;
    _Atomic bool connected;
};

/* What the source and the sink thread tell each other with more than one word. */
struct mr_shared {
    pthread_mutex_t lock;        /* once a batch */
    struct mr_identity identity; /* of the stream that is open; by the source thread */
    bool is_identified;          /* the source has said it */
    mr_lsn published;            /* as mr_pipeline's, */
    struct mr_commit last; /* and the last transaction with rows before it; by the sink thread */
};

/* Each thread's own end; read after both are joined. */
struct mr_results {
    mr_status source, sink;
    struct mr_error source_error, sink_error;
};

struct mr_pipeline {
    struct mr_pipeline_options options;
    struct mr_source *source;
    struct mr_schemas *schemas; /* of events that have some; NULL */
    struct mr_sink *sink;
    struct mr_standstill standstill; /* what is in the way */
    struct {
        void (*call)(void *context);
        void *context;
    } on_open;
    struct mr_pool pool;
    struct mr_hand_over hand_over;
    struct {
        struct mr_lane *items; /* MR_LANE_STREAM, then those of companions */
        uint32_t count;
    } lanes;
    struct mr_port port; /* of companions */
    struct mr_wakes wakes;
    struct mr_flow_threads threads;
    struct mr_ending ending;
    struct mr_mailbox mailbox; /* of the source thread */
    struct mr_intake *intake;  /* that thread's own state, for what it runs itself */
    struct mr_shared shared;
    struct mr_loaded loaded;
    struct mr_results results;
    struct mr_meter meter;
    _Alignas(64) struct mr_handshake handshake; /* who may do what; both threads take its steps */
    /* By the sink thread, for the source thread: may be confirmed; never goes back. */
    _Alignas(64) _Atomic mr_lsn published;
    struct mr_by_sink by_sink;
    /* Set by the source thread before it sleeps for a batch or for the end of delivery. */
    _Alignas(64) _Atomic bool source_waits;
    _Alignas(64) struct mr_by_source by_source;
    struct mr_backlog backlog; /* the source thread's; the sink thread asks */
};

/* Makes the change, on the source thread. */
mr_status mr_intake_change(struct mr_intake *intake, const struct mr_pipeline_change *change,
                           struct mr_error *ret_error);

/* Whose stream the stored positions are of from now on. Source thread. */
void mr_pipeline_identify(struct mr_pipeline *pipeline, const struct mr_identity *identity);

/* The batch at hand has records: it carries the position that waits. */
void mr_intake_carry(struct mr_intake *intake);

/* Appends a heartbeat, on the source thread, between two transactions. MR_AGAIN: not now, and it is
 * left out. */
mr_status mr_intake_beat(struct mr_intake *intake, struct mr_error *ret_error);

/* Thread functions. */
void *mr_intake_main(void *pipeline);
void *mr_delivery_main(void *pipeline);

/* The stop begins, unless one has. */
void mr_pipeline_stop_in_order(struct mr_pipeline *pipeline);
