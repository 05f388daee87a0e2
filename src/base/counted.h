/* Memory that several parts point into, each for as long as it likes: it goes with the last one
 * that holds it. Any thread. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

struct mr_counted {
    _Atomic uint32_t holders;
    void (*free)(struct mr_counted *counted);
};

static inline void mr_counted_hold(struct mr_counted *counted)
{
    if (counted != NULL) {
        MR_ASSERT(atomic_fetch_add(&counted->holders, 1) > 0);
    }
}

static inline void mr_counted_release(struct mr_counted *counted)
{
    if (counted == NULL) {
        return;
    }
    uint32_t before = atomic_fetch_sub(&counted->holders, 1);
    MR_ASSERT(before > 0);
    if (before == 1) {
        counted->free(counted);
    }
}

/* What is held becomes another; they may be the same. */
static inline void mr_counted_pass(struct mr_counted **held, struct mr_counted *next)
{
    struct mr_counted *before = *held;
    mr_counted_hold(next);
    *held = next;
    mr_counted_release(before);
}
