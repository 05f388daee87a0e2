/* A failure that comes again at the same place: counted, with growing pauses in between, and given
 * up the third time. Inside flow/ only; each thread has its own. */
#pragma once

#include "event/event.h"

enum { MR_POISON_FAILURES_MAX = 3, MR_POISON_PAUSE_MS = 1000 };

struct mr_poison {
    struct mr_position position;
    mr_status status;
    uint32_t failures; /* in a row, at that position; 0: none */
};

/* Counts a failure. */
static inline void mr_poison_count(struct mr_poison *poison, struct mr_position position,
                                   mr_status status)
{
    if (poison->failures > 0 && poison->status == status &&
        mr_position_compare(poison->position, position) == 0) {
        poison->failures++;
    } else {
        *poison = (struct mr_poison){.position = position, .status = status, .failures = 1};
    }
}

/* Milliseconds until the next try: 1 s, 2 s, but no more than `max_ms`. */
static inline uint32_t mr_poison_pause_ms(const struct mr_poison *poison, uint32_t max_ms)
{
    uint32_t pause_ms = MR_POISON_PAUSE_MS << (poison->failures - 1);
    return pause_ms < max_ms ? pause_ms : max_ms;
}
