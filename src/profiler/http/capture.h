/* Triggered captures: when a limit is passed, what the last minute was like goes into a folder of its own: CPU
 * and heap profile, flame graph, metrics, and the second-by-second state. Rate-limited, and only so many stay. */
#ifndef MR_CAPTURE_H
#define MR_CAPTURE_H

#include "base/status.h"
#include "control/monitor.h"

struct mr_capture_options {
    const char *path; /* the folder; the caller's */
    int64_t pause_ms; /* least time between two */
    uint32_t keep;
    /* Limits; 0: none. */
    uint64_t in_flight_max; /* records */
    int64_t flush_max_ms;   /* 99th percentile of a second */
    uint64_t lag_max;       /* bytes */
    uint64_t memory_max;    /* bytes */
};

/* Which limit a second has passed ("in-flight", "flush", "lag", "memory"), with a sentence in `reason`; NULL: none. */
const char *mr_capture_passed(const struct mr_capture_options *limits,
                              const struct mr_monitor_sample *second, char *reason, size_t size);

/* Starts the thread that looks once a second. `monitor` outlives it. MR_ERR_CONFIG: the folder can't be made.
 * Once. */
mr_status mr_capture_start(const struct mr_capture_options *options, struct mr_monitor *monitor,
                           struct mr_error *ret_error);

/* Without a start: no effect. */
void mr_capture_stop(void);

uint64_t mr_capture_count(void);

#endif
