/* How long a Kafka transaction stays open for what it holds. Pure; any thread.
 *
 * One costs about the same whatever it holds, some 20 ms of a busy machine. So it stays open for a
 * millisecond per so many bytes above the first: a quiet stream commits soon, and a burst seldom.
 * While one ends nothing is sent: what that takes (each partition has a marker of its own) may be a
 * twentieth of a burst's time, as far as a second allows. A burst begins with short ones, each at
 * most twice as long as the one before, so that its first rows are read soon.
 *
 * Where rows are not old already (backlog.h), nothing is gained by that but CPU: there a
 * transaction is open for as long as the ends of two take, and 20 ms at most. */
#pragma once

#include "base/base.h"

enum {
    MR_PACE_AT_ONCE_BYTES = 65536,
    MR_PACE_BYTES_PER_MS = 20000,
    MR_PACE_MS_FIRST = 20,
    MR_PACE_MS_MAX = 300,
    MR_PACE_ENDS_PART = 20,
    MR_PACE_MS_MOST = 1000,
    MR_PACE_ENDS_LIVE = 2,
    MR_PACE_MS_LIVE = 20,
};

/* At most, where rows are not old. */
static inline int64_t mr_pace_live_ns(int64_t ending_ns)
{
    const int64_t most_ns = MR_PACE_MS_LIVE * INT64_C(1000000);
    return ending_ns < most_ns / MR_PACE_ENDS_LIVE ? ending_ns * MR_PACE_ENDS_LIVE : most_ns;
}

/* Nanoseconds from its begin; `ending_ns`: what the end of one takes lately, `before_ns`: how long
 * the one before was open, `is_backlog`: its rows are old. */
static inline int64_t mr_pace_open_ns(uint64_t bytes, int64_t ending_ns, int64_t before_ns,
                                      bool is_backlog)
{
    const int64_t ms = 1000000;
    int64_t most_ns = MR_PACE_MS_MOST * ms;
    if (ending_ns < most_ns / MR_PACE_ENDS_PART) {
        most_ns = ending_ns * MR_PACE_ENDS_PART;
    }
    if (most_ns < MR_PACE_MS_MAX * ms) {
        most_ns = MR_PACE_MS_MAX * ms;
    }
    int64_t longer_ns =
        before_ns < MR_PACE_MS_FIRST / 2 * ms ? MR_PACE_MS_FIRST * ms : 2 * before_ns;
    most_ns = longer_ns < most_ns ? longer_ns : most_ns;
    int64_t live_ns = is_backlog ? most_ns : mr_pace_live_ns(ending_ns);
    most_ns = live_ns < most_ns ? live_ns : most_ns;
    uint64_t more = bytes < MR_PACE_AT_ONCE_BYTES ? 0 : bytes - MR_PACE_AT_ONCE_BYTES;
    uint64_t most_bytes = (uint64_t)most_ns / (uint64_t)ms * MR_PACE_BYTES_PER_MS;
    return more >= most_bytes ? most_ns : (int64_t)(more * (uint64_t)ms / MR_PACE_BYTES_PER_MS);
}

/* What `before_ns` counts for when nothing was sent for `idle_ns`: after a pause another burst
 * begins. */
static inline int64_t mr_pace_before_ns(int64_t before_ns, int64_t idle_ns)
{
    return idle_ns > MR_PACE_MS_MAX * INT64_C(1000000) ? 0 : before_ns;
}

/* What the end of one takes, of what it took before and this time. A single slow one does not count
 * for much, or for long. */
static inline int64_t mr_pace_ending_ns(int64_t before_ns, int64_t now_ns)
{
    return before_ns + (now_ns - before_ns) / 4;
}
