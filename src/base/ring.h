/* A bounded queue of pointers between exactly one producing and one consuming thread.
 *
 * Passing a pointer passes ownership of what it points to. The ring never blocks: push answers
 * false when full, pop answers NULL when empty, and a thread that wants to sleep has an event
 * descriptor for it. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

struct mr_ring {
    void **slots;
    uint32_t mask;
    _Alignas(64) _Atomic uint32_t head; /* next to pop; the consumer's */
    _Alignas(64) _Atomic uint32_t tail; /* next to push; the producer's */
};

/* Makes a ring for at least `capacity` pointers (rounded up to a power of two). */
void mr_ring_init(struct mr_ring *ring, uint32_t capacity);
void mr_ring_done(struct mr_ring *ring);

/* Producer's thread. False when the ring is full; `item` then stays the caller's. */
MR_MUST_USE bool mr_ring_push(struct mr_ring *ring, void *item);

/* Consumer's thread. NULL when the ring is empty. */
void *mr_ring_pop(struct mr_ring *ring);

/* How many pointers wait. Exact for the two threads, a recent value for others. */
uint32_t mr_ring_count(const struct mr_ring *ring);
