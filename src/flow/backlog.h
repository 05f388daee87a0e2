/* Whether the stream is a backlog: what comes was committed more than a second before the server
 * sent it. Both times are the server's (Begin, XLogData), so the clock of this machine does not
 * count. A backlog is read in gulps (intake_wait.c), and a Kafka transaction of it may be long
 * (pace.h).
 *
 * A commit time may be somebody's invention (pg_replication_origin_xact_setup), and a prepared
 * transaction's rows are old when it commits. Then that is a backlog as long as it comes:
 * MR_BACKLOG_GULP_MS of latency at most. A stream that brings nothing is none.
 *
 * The source thread notes and judges; any thread asks. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

enum {
    MR_BACKLOG_AGE_MS = 1000,
    MR_BACKLOG_GULP_MS = 50,
    MR_BACKLOG_GULP_BYTES = 2 * 1024 * 1024,
};

struct mr_backlog {
    int64_t commit_us; /* of the transaction that came last; INT64_MAX: none that counts */
    int64_t sent_us;   /* when the server sent what came last */
    _Atomic bool is_there;
};

static inline bool mr_backlog_is_there(const struct mr_backlog *backlog)
{
    return atomic_load_explicit(&backlog->is_there, memory_order_relaxed);
}

/* The stream begins, or it has brought nothing. */
static inline void mr_backlog_end(struct mr_backlog *backlog)
{
    backlog->commit_us = INT64_MAX;
    atomic_store_explicit(&backlog->is_there, false, memory_order_relaxed);
}

/* A transaction has begun. */
static inline void mr_backlog_begin(struct mr_backlog *backlog, int64_t commit_us)
{
    backlog->commit_us = commit_us;
}

/* After something came: its transaction may be older by now. */
static inline void mr_backlog_judge(struct mr_backlog *backlog)
{
    int64_t age_us; /* a server may say any times */
    bool is_old = !__builtin_sub_overflow(backlog->sent_us, backlog->commit_us, &age_us) &&
                  age_us > MR_BACKLOG_AGE_MS * INT64_C(1000);
    atomic_store_explicit(&backlog->is_there, is_old, memory_order_relaxed);
}
