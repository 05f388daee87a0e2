/* A counter that one thread writes and anybody reads: no locked instruction, and no lost count. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

typedef _Atomic uint64_t mr_counter;

/* The writing thread; also in its signal handlers, if they alone write. */
static inline void mr_counter_add(mr_counter *counter, uint64_t by)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + by, memory_order_relaxed);
}
