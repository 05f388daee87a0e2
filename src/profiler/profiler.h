/* The profiler of a running daemon: one thread that drains the sampler, follows stacks to their
 * roots, and fills the profiles that are being made. The sampler runs at the highest frequency that
 * anyone asked for. One a process, for there is one SIGPROF. Any thread, unless said otherwise. */
#pragma once

/* The door: all that others include. */
#include "profiler/draw/flame.h"
#include "profiler/files.h"
#include "profiler/heap.h"
#include "profiler/profile.h"
#include "profiler/sampler.h"

enum { MR_PROFILER_MINUTE_S = 60 };

/* Strings are the caller's and outlive the profiler. */
struct mr_profiler_options {
    const char *path; /* folder of the continuous profiler's files; "": none */
    uint32_t frequency_hz;
    uint32_t interval_s;
    uint64_t keep_bytes; /* of all files together; 0: no limit */
    bool recorder;       /* keep the last minute even when nobody asks */
};

/* Starts the profiler's thread; nothing is sampled until somebody asks, unless the options do.
 * MR_ERR_CONFIG: the folder can't be written. Once. */
mr_status mr_profiler_start(const struct mr_profiler_options *options, struct mr_error *ret_error);

/* Ends the thread; a running interval is written. Without a start: no effect. */
void mr_profiler_stop(void);

/* Begins to collect a CPU profile and waits until sampling runs. MR_FULL: somebody else does; one
 * at a time. MR_ERR_USAGE: the profiler does not run. */
mr_status mr_profiler_session_begin(uint32_t frequency_hz);

/* Ends it. The profile is the caller's, who calls mr_profile_done. */
void mr_profiler_session_end(struct mr_profile *ret);

/* What the recorder holds, at most the last minute; the caller's. */
void mr_profiler_last_minute(struct mr_profile *ret);

/* Names everything that was seen so far, a little at a time, so that sampling goes on. */
void mr_profiler_name_all(void);

struct mr_profiler_stats {
    struct mr_sampler_stats sampler;
    uint32_t frequency_hz;                   /* asked for now; 0: not sampling */
    uint64_t thread_ns;                      /* CPU time of the profiler's own thread */
    uint64_t files, file_errors;             /* of the continuous profiler */
    uint64_t stage_cpu_ns[MR_STAGES];        /* from samples; a few seconds behind */
    uint64_t stage_alloc_objects[MR_STAGES]; /* from heap profiles, when those are taken */
    uint64_t stage_alloc_bytes[MR_STAGES];
    struct mr_table_times table_times;
};
void mr_profiler_stats(struct mr_profiler_stats *ret);
