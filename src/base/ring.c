#include "base/ring.h"

void mr_ring_init(struct mr_ring *ring, uint32_t capacity)
{
    uint32_t size = 1;
    while (size < capacity) {
        size *= 2;
    }
    ring->slots = MR_NEW_ARRAY(void *, size);
    ring->mask = size - 1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
}

void mr_ring_done(struct mr_ring *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

bool mr_ring_push(struct mr_ring *ring, void *item)
{
    MR_ASSERT(item != NULL);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    /* Acquire pairs with pop's release: the slot has been read before it is written again. */
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    if (tail - head > ring->mask) {
        return false;
    }
    ring->slots[tail & ring->mask] = item;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

void *mr_ring_pop(struct mr_ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head == tail) {
        return NULL;
    }
    void *item = ring->slots[head & ring->mask];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return item;
}

uint32_t mr_ring_count(const struct mr_ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_acquire) -
           atomic_load_explicit(&ring->head, memory_order_acquire);
}
