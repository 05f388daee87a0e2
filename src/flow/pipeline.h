/* The flow: two threads, a pool and a ring between them, and the position that is confirmed to
 * PostgreSQL.
 *
 *     pool -> source thread: receive, decode, encode -> ring -> sink thread: produce, reports
 *       ^                                                             |
 *       +----------------- ack window <-------------------------------+
 *
 * The source thread alone talks to PostgreSQL, so status updates never wait for Kafka. The sink
 * thread alone talks to Kafka. When a sink session fails, the sink thread drops all it holds and
 * opens the next one; the source thread sees the session number change, drops what it was filling
 * and starts the stream again at the confirmed position. When the source goes away, what is in
 * flight stays in flight: the stream is opened again at the confirmed position and changes at or
 * before the last one handed over are skipped by position.
 *
 * What rides along with it (copies of existing rows) are companions: ports/companion.h,
 * flow/port.h. */
#pragma once

#include "encode/encode.h"
#include "flow/mailbox.h"
#include "flow/meter.h"
#include "ports/companion.h"
#include "ports/sink.h"
#include "ports/source.h"

/* What another program has delivered of the stream: transactions that end at or before one place,
 * and of the next one the changes up to another. Counts while no position of ours is stored. */
struct mr_handed_over {
    mr_lsn end_lsn;
    mr_lsn lsn; /* of the last change; 0: there is nothing to take over */
    uint32_t xid;
};

struct mr_pipeline_options {
    uint32_t batches;        /* in the pool, */
    uint32_t batches_most;   /* and for a sink that is far away; 0: as many */
    size_t batch_bytes;      /* of a standard batch */
    size_t change_bytes_max; /* of one change's records */
    uint64_t memory_bytes;   /* the budget, to show (flow/memory) */
    size_t large_bytes_max;  /* of it, for changes that fit no standard batch; 0: no limit */
    /* These four may change while it runs (mr_pipeline_change). */
    /* what latency may cost: how long rows may gather before they set out */
    _Atomic uint32_t latency_us;
    _Atomic uint32_t status_interval_ms;
    _Atomic uint32_t shutdown_deadline_ms;
    _Atomic uint32_t backoff_max_ms;
    uint32_t idle_ms;           /* a quiet connection is used at least so often; 0: every 10 s */
    uint64_t stop_after_events; /* 0: never; else it stops after so many records */
    uint32_t lanes_beside;      /* lanes besides the stream's, for companions */
    struct mr_companion *const *companions; /* in the order in which they are called */
    uint32_t companion_count;
    mr_lsn skip_commit_lsn; /* the transaction that commits there is skipped; 0: none */
    struct mr_handed_over handed_over;
};

struct mr_pipeline;

/* Everything handed in stays the caller's and outlives the pipeline. `on_open` (may be NULL) is
 * called on the source thread after each successful open of the source. */
struct mr_pipeline *mr_pipeline_new(const struct mr_pipeline_options *options,
                                    struct mr_source *source, struct mr_sink *sink,
                                    struct mr_encoder *encoder, void (*on_open)(void *context),
                                    void *on_open_context);
void mr_pipeline_free(struct mr_pipeline *pipeline);

/* Starts both threads. `done_fd` (an eventfd) is written when the pipeline has ended by itself or
 * after a stop. */
mr_status mr_pipeline_start(struct mr_pipeline *pipeline, int done_fd, struct mr_error *ret_error);

/* Asks for an orderly end: read to the end of the running transaction, deliver, confirm, leave.
 * Asked a second time it ends at once (MR_ERR_DEADLINE). Any thread. */
void mr_pipeline_stop(struct mr_pipeline *pipeline);

/* Has the source thread run a command, and waits for its answer; as mr_mailbox_ask. */
mr_status mr_pipeline_ask(struct mr_pipeline *pipeline, struct mr_command *command,
                          uint32_t deadline_ms, struct mr_error *ret_error);

/* How long an orderly end may take. Any thread. */
uint32_t mr_pipeline_shutdown_ms(const struct mr_pipeline *pipeline);

/* What is to be different from now on. All of it is the caller's; who keeps something of it holds
 * its memory. */
struct mr_pipeline_change {
    const struct mr_pipeline_options *options; /* the four that may change; NULL: none */
    const struct mr_encode_options *encode;    /* as mr_encoder_change; NULL: nothing */
    const void *source; /* the source's options, if what is streamed changes; NULL: it stays */
};

/* Sends a heartbeat between two transactions. MR_AGAIN, MR_ERR_DEADLINE: there was no moment or
 * room for it in time, and it is left out. Any thread. */
mr_status mr_pipeline_beat(struct mr_pipeline *pipeline, uint32_t deadline_ms,
                           struct mr_error *ret_error);

/* Makes a change between two transactions: what is received after it is as it says, all before as
 * it was. MR_AGAIN: a companion is busy, or the pipeline ends. MR_ERR_DEADLINE: there was no such
 * moment in time. After an error nothing has changed. Any thread. */
mr_status mr_pipeline_change(struct mr_pipeline *pipeline, const struct mr_pipeline_change *change,
                             uint32_t deadline_ms, struct mr_error *ret_error);

/* Waits for the end. MR_OK: all that was read is delivered and confirmed. */
mr_status mr_pipeline_join(struct mr_pipeline *pipeline, struct mr_error *ret_error);

/* Of the source, and of its thread. */
struct mr_source_stats {
    bool connected;
    bool was_connected; /* at least once */
    bool stands_by;     /* connected; another instance has the stream */
    bool backlog;       /* what comes is old (flow/backlog.h) */
    bool slot_adopted;  /* it began where a slot stood, with no position stored */
    /* updates with values that were read again, by outcome */
    uint64_t reselected[MR_RESELECTED_COUNT];
    uint64_t reselect_wait_ns; /* that changes waited for them */
    int tid;                   /* the kernel's number of the thread; 0: not yet */
    int64_t turn_ns;           /* monotonic: when the thread's loop last came round; 0: not yet */
    uint64_t wait_ns;          /* spent waiting for the source */
    uint64_t received_bytes;   /* of replication messages */
    uint64_t contexts[MR_CONTEXT_OUTCOMES];
    uint64_t reconnects;
    uint64_t errors[MR_STATUS_COUNT]; /* by status */
};

struct mr_sink_stats {
    bool connected;
    int tid;
    int64_t turn_ns;
    uint64_t rebuilds; /* of the session */
    uint64_t rebuild_reasons[MR_STATUS_COUNT];
};

struct mr_memory_stats {
    uint32_t batches, free_batches; /* of the pool */
    uint64_t arena_bytes;           /* memory of all batches */
    uint64_t high_water_bytes;
    uint64_t arena_used_bytes; /* of sealed batches, on their way or waiting */
    uint64_t limit_bytes;
    uint64_t used_bytes; /* of it: batches, and what receives rows */
};

/* A recent view for logs and the control plane. Any thread. */
struct mr_pipeline_stats {
    uint64_t changes; /* received from the source, skipped ones included */
    uint64_t records; /* handed to the sink */
    uint64_t records_acked;
    uint64_t bytes; /* of keys and values handed to the sink */
    uint64_t bytes_acked;
    uint64_t skipped;              /* received again and dropped by position */
    uint64_t skipped_transactions; /* on request */
    uint64_t transactions;
    uint64_t oversize[MR_OVERSIZE_COUNT]; /* changes, by what became of them */
    mr_lsn received_lsn;
    mr_lsn acknowledged_lsn; /* 0: nothing yet, and so of the next */
    mr_lsn stored_lsn;
    mr_lsn confirmed_lsn;
    int64_t commit_us_confirmed; /* commit time of the newest change that is confirmed; 0: none */
    uint32_t in_flight_batches;
    uint64_t backpressure_ns; /* spent with an empty pool */
    bool stopping;
    struct mr_source_stats source;
    struct mr_sink_stats sink;
    struct mr_memory_stats memory;
};
struct mr_pipeline_stats mr_pipeline_stats(const struct mr_pipeline *pipeline);

/* What is in its way; it lives as long as the pipeline. Any thread. */
struct mr_standstill *mr_pipeline_standstill(struct mr_pipeline *pipeline);

/* Its histograms; they live as long as the pipeline. Any thread. */
const struct mr_meter *mr_pipeline_meter(const struct mr_pipeline *pipeline);
