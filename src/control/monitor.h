/* What millrace knows about itself: one thread ("mr-monitor") samples once a second and keeps the
 * last 15 minutes, and any thread asks for a snapshot, the history, or the text of /metrics. The
 * data path is only read, through atomics. */
#pragma once

#include "base/buffer.h"
#include "base/standstill.h"
#include "control/process.h"
#include "copy/copies.h"
#include "encode/table_counts.h"
#include "event/event.h"
#include "event/known_topics.h"
#include "flow/bottleneck.h"
#include "flow/pipeline.h"
#include "metrics/histogram.h"
#include "ports/sink.h"
#include "postgres/server/pg_heartbeat.h"
#include "postgres/server/pg_slot.h"

enum {
    MR_MONITOR_SAMPLES = 900,  /* seconds of history */
    MR_MONITOR_EVENTS = 64,    /* log records kept: state changes and errors */
    MR_MONITOR_TEXT_MAX = 768, /* a reason with the command at its end */
    MR_MONITOR_REASON_MAX = MR_CAUSE_TEXT_MAX + 256,
    MR_MONITOR_WHY_MAX = 512,
};

enum mr_state {
    MR_STATE_STARTING,           /* PostgreSQL was not reached yet */
    MR_STATE_STREAMING,          /* all is well */
    MR_STATE_WAITING_FOR_SOURCE, /* PostgreSQL is away */
    MR_STATE_WAITING_FOR_SINK,   /* the sink is away */
    MR_STATE_STOPPING,           /* asked to stop; delivering what was read */
    MR_STATE_POISON,             /* one change fails and is tried again, three times at most */
    MR_STATE_STANDBY,            /* another instance streams; ready to take over */
    MR_STATE_SNAPSHOT,           /* existing rows are copied; the stream begins after them */
    MR_STATE_FAILED, /* it has ended by itself, and stays up to be looked at (pipeline.stay_up) */
    MR_STATE_COUNT
};
/* "starting", "streaming", "waiting_for_source", … */
const char *mr_state_name(enum mr_state state);

/* Figures of a second. Rates are per second; times in seconds, NaN when nothing was delivered in
 * it. Latency: commit to acknowledgement. Backpressure: part of the second, 0 to 1. CPU: cores. */
#define MR_MONITOR_COLUMNS(X)                                                                      \
    X(float, changes_rate)                                                                         \
    X(float, records_rate) /* acknowledged, and so are bytes */                                    \
    X(float, bytes_rate)                                                                           \
    X(float, transactions_rate)                                                                    \
    X(float, flush_p50)                                                                            \
    X(float, flush_p99)                                                                            \
    X(float, latency_p50)                                                                          \
    X(float, latency_p95)                                                                          \
    X(float, latency_p99)                                                                          \
    X(float, lag_seconds)                                                                          \
    X(uint64_t, lag_bytes)                                                                         \
    X(uint64_t, messages_in_flight)                                                                \
    X(uint64_t, bytes_in_flight)                                                                   \
    X(uint64_t, resident_bytes)                                                                    \
    X(float, backpressure)                                                                         \
    X(float, cpu)

/* Positions behind the server's, in the order of the way. */
enum mr_behind {
    MR_BEHIND_SENT,
    MR_BEHIND_RECEIVED,
    MR_BEHIND_ACKNOWLEDGED,
    MR_BEHIND_STORED,
    MR_BEHIND_CONFIRMED,
    MR_BEHIND_COUNT
};

struct mr_monitor_sample {
    int64_t time_ms; /* end of the second, since 1970 */
#define MR_MONITOR_MEMBER(type, name) type name;
    MR_MONITOR_COLUMNS(MR_MONITOR_MEMBER)
#undef MR_MONITOR_MEMBER
    uint8_t state; /* enum mr_state */
    uint8_t stage; /* enum mr_stage: the bottleneck */
};

/* A log record of level info or above: state changes, warnings, errors. */
struct mr_monitor_event {
    int64_t time_ms;
    enum mr_log_level level;
    char event[40];                  /* "source_lost" */
    char text[MR_MONITOR_TEXT_MAX];  /* the sentence, cut */
    char about[MR_MONITOR_TEXT_MAX]; /* the fields, cut: "topic shop.public.orders, partitions 3" */
};

enum { MR_MONITOR_COPIED = 64 }; /* tables that are copied, of which figures are kept */

/* All that /status, /readyz and the live page need, of one moment. */
struct mr_monitor_snapshot {
    int64_t time_ms;
    int64_t uptime_ms;
    enum mr_state state;
    int64_t state_since_ms; /* since 1970 */
    bool ready;             /* does what it is there for: streams, or stands by */
    /* Why rows don't flow here, or what threatens to stop them; "" when all is well. */
    char reason[MR_MONITOR_REASON_MAX];
    struct mr_standstill_view standstill; /* what is in the way */
    double standstill_seconds;            /* 0: nothing is */
    bool source_left_alone;               /* on purpose: the sink takes nothing */
    enum mr_stage bottleneck;
    /* part of the last second: changes waited for values that are read again */
    float reselect_waited;
    /* which part is the bottleneck, or keeps WAL, and what shows it; "": none */
    char why[MR_MONITOR_WHY_MAX];
    struct mr_monitor_danger {
        bool slot_is_lost_soon; /* at the present rate, or after little more */
        bool slot_is_short; /* it is lost, at the present rate, before existing rows are copied */
    } danger;

    struct mr_pipeline_stats pipeline; /* counts, positions, connections */
    struct mr_sink_view sink;   /* in flight by partition, errors by code, client statistics */
    struct mr_again_view again; /* topics that were deleted and made again */
    struct mr_slot_view slot;   /* retained, safe, wal_status, forecast */
    struct mr_heartbeat_counts heartbeat;
    struct mr_process process;
    struct mr_monitor_own {
        struct mr_process_threads threads; /* in /metrics */
        double write_seconds;              /* that the last /metrics took */
        uint64_t log_dropped;
    } own;

    struct mr_monitor_lag {
        mr_lsn server_lsn;
        mr_lsn confirmed_lsn; /* the slot's, until something is confirmed */
        uint64_t bytes;
        double seconds;
        double stalled_seconds;
        /* How long ago the server's WAL ended at each position; NaN: it is not known. */
        double behind[MR_BEHIND_COUNT];
    } lag;
    struct mr_monitor_sample rates; /* the last second sampled */
    struct mr_monitor_times {       /* since the start; `rates` has those of the last second */
        struct mr_histogram_view flush, latency, path[MR_PATH_COUNT];
    } times;

    struct mr_monitor_tables {
        struct mr_table_count *items; /* the snapshot's */
        uint32_t count;
    } tables;
    struct mr_monitor_events {
        struct mr_monitor_event items[MR_MONITOR_EVENTS]; /* oldest first */
        uint32_t count;
    } events;
    struct mr_monitor_copies {
        struct mr_copy_stats snapshot;                        /* before the stream */
        struct mr_incremental_stats incremental;              /* while it runs */
        struct mr_copy_table_stats tables[MR_MONITOR_COPIED]; /* those under way first */
        uint32_t table_count;
        struct mr_gap gap;
    } copies;
};

struct mr_monitor_options {
    uint32_t sample_ms; /* 1000; tests take less */
    uint32_t log_ms;    /* how often memory is logged at info; 0: never */
    /* All of these are the caller's and outlive the monitor. `slot` may be NULL. */
    struct mr_pipeline *pipeline;
    struct mr_copies *copies; /* NULL: there are none */
    struct mr_sink *sink;
    struct mr_known_topics *topics; /* NULL: there are none */
    const struct mr_table_counts *tables;
    struct mr_pg_slot *slot;
    const struct mr_pg_heartbeat *heartbeat; /* NULL: there is none */
    /* Writes other families; NULL: none. */
    void (*more_metrics)(void *context, struct mr_buffer *out);
    void *context;
};

struct mr_monitor;

/* Begins to collect log records at once; before the first thread. */
struct mr_monitor *mr_monitor_new(const struct mr_monitor_options *options);
void mr_monitor_free(struct mr_monitor *monitor); /* NULL is fine */

mr_status mr_monitor_start(struct mr_monitor *monitor, struct mr_error *ret_error);
void mr_monitor_stop(struct mr_monitor *monitor);

/* The caller frees it with mr_monitor_snapshot_free. About 60 KiB. */
struct mr_monitor_snapshot *mr_monitor_snapshot_new(struct mr_monitor *monitor);
void mr_monitor_snapshot_free(struct mr_monitor_snapshot *snapshot);

/* Samples after `after_ms` (0: all), oldest first; at most `capacity`. */
uint32_t mr_monitor_history(struct mr_monitor *monitor, int64_t after_ms,
                            struct mr_monitor_sample *ret_samples, uint32_t capacity);

/* The text of /metrics, to be freed. */
char *mr_monitor_metrics(struct mr_monitor *monitor, size_t *ret_len);
