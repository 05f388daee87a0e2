/* The monitor's inside, shared by the files that make it. Inside control/ only. */
#pragma once

#include <pthread.h>

#include "base/ticker.h"
#include "control/ladder.h"
#include "control/monitor.h"

/* What the sampling compares with: counts at the end of the second before. */
struct mr_monitor_mark {
    int64_t time_ns;
    struct mr_pipeline_stats pipeline;
    struct mr_histogram_view flush;
    struct mr_histogram_view latency;
    uint64_t encode_ns;
    uint64_t source_cpu_ns; /* ready without a CPU included */
    uint64_t sink_cpu_ns;
    double cpu_seconds;
};

/* Of the last whole window of some seconds: how much WAL the stream passed, how much of it was sent
 * here, and which table's changes were most. */
struct mr_monitor_mix {
    uint64_t wal_bytes, sent_bytes;
    uint64_t events, table_events;
    const char *table; /* lives as long as the counts of tables */
    struct mr_monitor_mix_begin {
        int64_t time_ns;
        mr_lsn lsn;
        uint64_t bytes;
        struct mr_monitor_counted {
            const char *table; /* the same as long as the process lives */
            uint64_t events;
        } * counted; /* tables that had events; in their order, which new ones come into */
        uint32_t count;
    } begin; /* of the window at hand */
};

#define MR_MONITOR_MEMORY_EVENT "memory"

/* A slot that is lost within so many seconds is in danger; as the alert MillraceSlotForecast. */
enum { MR_MONITOR_DANGER_S = 3600 };

/* What was logged last, and when (0: nothing). */
struct mr_monitor_logged {
    int64_t memory_ns;
    int64_t copy_ns;           /* that the slot is lost before existing rows are copied */
    int64_t danger_ns;         /* that it is lost soon */
    enum mr_cause cause;       /* of the standstill seen last, */
    int64_t cause_since_ns;    /* its beginning, */
    int64_t standstill_ns;     /* and when it was logged */
    bool standstill_endangers; /* logged: this one endangers the slot */
};

/* What the lag is worked out from: what was seen last, and when (0: not yet). */
struct mr_monitor_seen {
    int64_t caught_up_ns; /* all was confirmed */
    int64_t waiting_ns;   /* something waited, for the first time */
    mr_lsn server_lsn;    /* the end of the server's WAL at the last look, */
    int64_t server_ns;    /* and when that was */
    int64_t commit_us;    /* time of the newest confirmed commit, */
    int64_t commit_ns;    /* and when it was first seen confirmed */
    uint64_t acked;       /* the count of acknowledgements, */
    int64_t acked_ns;     /* and when it last moved, or nothing waited */
};

struct mr_monitor {
    struct mr_monitor_options options;
    int64_t begin_ns;
    struct mr_ticker ticker;

    /* Log records come on any thread; their lock is held for a copy only. */
    pthread_mutex_t events_lock;
    struct mr_monitor_event events[MR_MONITOR_EVENTS]; /* by count modulo size */
    uint64_t event_count;                              /* ever */

    pthread_mutex_t lock; /* over all that follows */
    struct mr_monitor_sample samples[MR_MONITOR_SAMPLES];
    uint64_t sample_count; /* since the start, or since the clock was set back */
    struct mr_monitor_mark mark;
    struct mr_monitor_snapshot *now; /* the one that sampling and /metrics work on */
    enum mr_state state;
    int64_t state_since_ns;
    enum mr_stage bottleneck;
    struct mr_monitor_seen seen;
    struct mr_monitor_mix mix;
    struct mr_ladder ladder; /* of the server's WAL */
    struct mr_monitor_logged logged;
    size_t text_size; /* that /metrics fits in, so far */
};

/* Of counters that begin again with a session. */
static inline uint64_t mr_monitor_grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Whether the slot is lost, by its forecast, before the copy is done by its own. */
bool mr_monitor_slot_is_short(const struct mr_copy_stats *copy, const struct mr_slot_view *slot);

/* With the lock. */
void mr_monitor_log(struct mr_monitor *monitor, const struct mr_monitor_snapshot *now,
                    int64_t now_ns);

/* Takes what was sampled into the mix, and fills in its `why`. */
void mr_monitor_mix_add(struct mr_monitor_mix *mix, const struct mr_monitor_snapshot *now,
                        int64_t now_ns);
void mr_monitor_explain(struct mr_monitor_snapshot *now, const struct mr_monitor_mix *mix);

void mr_monitor_expose(const struct mr_monitor_snapshot *snapshot, const struct mr_meter *meter,
                       struct mr_buffer *out);
