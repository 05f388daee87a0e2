/* The daemon's own proof (verify.continuous): each table is proved once within a time, under a budget, as long as millrace streams. The
 * proof runs in a process beside it (prover.h); a thread here says which tables are next (schedule.h), takes what it came to, logs what
 * differs, by place and without keys, and pauses it while the stream lags. What was proved when is not stored: after a start all tables
 * are proved anew, in a drawn order. */
#pragma once

#include "base/buffer.h"
#include "base/sha256.h"
#include "verify/prover.h"

struct mr_continuous_options {
    struct mr_prover *prover;
    int64_t interval_ms, lag_max_ms;
    uint32_t tables_max; /* that have lines of their own in metrics */
    /* Of the stream, in seconds; infinite while it does not run. */
    double (*lag)(void *context);
    /* Of the file that a reload has put into effect; "": the one of the start is. */
    struct mr_sha256_short (*digest)(void *context);
    void *context;
};

struct mr_continuous;

/* All is the caller's and outlives it, but the prover, which it ends. */
struct mr_continuous *mr_continuous_new(const struct mr_continuous_options *options);
mr_status mr_continuous_start(struct mr_continuous *continuous, struct mr_error *ret_error);

/* NULL is fine for all of these, and writes nothing. */
void mr_continuous_stop(struct mr_continuous *continuous);
void mr_continuous_free(struct mr_continuous *continuous);

/* Its part of /metrics; its member "verify" of /status. Any thread. */
void mr_continuous_metrics(struct mr_continuous *continuous, struct mr_buffer *out);
void mr_continuous_show(struct mr_continuous *continuous, struct cJSON *status);
