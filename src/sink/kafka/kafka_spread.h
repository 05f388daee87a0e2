/* To how many partitions requests are on their way at once, of late. Pure; the sink thread's. The
 * more they are, the smaller each request is for the same memory, and a request costs the broker
 * and us the same whatever it holds: so the pool may grow with them (mr_sink.partitions). */
#pragma once

#include "base/base.h"

enum { MR_SPREAD_WINDOW_MS = 1000 };

struct mr_spread {
    uint32_t in_flight;    /* partitions, now */
    uint32_t most, before; /* in this window, and in the last */
    int64_t since_ns;
};

/* Requests to so many more partitions have set out at `now_ns`. */
static inline void mr_spread_note(struct mr_spread *spread, int64_t now_ns, uint32_t more)
{
    int64_t window_ns = MR_SPREAD_WINDOW_MS * INT64_C(1000000);
    if (now_ns - spread->since_ns > window_ns) {
        spread->before = now_ns - spread->since_ns > 2 * window_ns ? 0 : spread->most;
        spread->most = 0;
        spread->since_ns = now_ns;
    }
    spread->in_flight += more;
    spread->most = spread->in_flight > spread->most ? spread->in_flight : spread->most;
}

/* All of a partition's request is answered. */
static inline void mr_spread_answered(struct mr_spread *spread)
{
    MR_ASSERT(spread->in_flight > 0);
    spread->in_flight--;
}

static inline uint32_t mr_spread_partitions(const struct mr_spread *spread)
{
    return spread->before > spread->most ? spread->before : spread->most;
}
