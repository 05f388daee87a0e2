/* Time: monotonic for deadlines, wall for what people and records see, and PostgreSQL's epoch. */
#pragma once

#include <time.h>

#include "base/base.h"

/* Microseconds from 1970-01-01 to 2000-01-01, the epoch of PostgreSQL's timestamps. */
#define MR_PG_EPOCH_US INT64_C(946684800000000)

static inline int64_t mr_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds that never jump; only differences mean anything. */
static inline int64_t mr_monotonic_ns(void)
{
    return mr_clock_ns(CLOCK_MONOTONIC);
}

/* For poll(), rounded up; 0: the time is over. */
static inline int mr_timeout_ms(int64_t left_ns)
{
    return left_ns <= 0 ? 0 : (int)(left_ns / 1000000) + 1;
}

/* Nanoseconds since 1970. */
static inline int64_t mr_wall_ns(void)
{
    return mr_clock_ns(CLOCK_REALTIME);
}
