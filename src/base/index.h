/* Finds items by their hash. The items are their owner's, in an array: the first item that is added
 * has number 0, the next one 1, and the index knows of each its number and hash alone. So one index
 * serves every kind of key.
 *
 * Open addressing, at most half full: a search always meets a free slot, and looks at two slots on
 * average. An item that is removed leaves no hole: the last one gets its number. Memory is asked
 * for by mr_index_add when the index grows, and never within what was reserved. One thread.
 *
 *     uint32_t number;
 *     MR_INDEX_FIND(number, &index, hash, is_same(&items[number], key)); */
#pragma once

#include "base/base.h"

#define MR_INDEX_NONE UINT32_MAX

struct mr_index_slot {
    uint32_t hash;
    uint32_t item; /* number + 1; 0: free */
};

/* All zero is an empty index. */
struct mr_index {
    struct mr_index_slot *slots;
    uint32_t size;  /* a power of two, or 0 */
    uint32_t count; /* of items */
};

/* Room for this many items in all. */
void mr_index_reserve(struct mr_index *index, uint32_t count);

/* Adds the next item, and answers its number, which was index->count. Whether it is there already
 * is for the caller to know. */
uint32_t mr_index_add(struct mr_index *index, uint64_t hash);

/* Removes an item. The last item, whose hash is `last_hash`, has its number from then on, and its
 * owner moves it there. */
void mr_index_remove(struct mr_index *index, uint32_t number, uint64_t hash, uint64_t last_hash);

/* Forgets all items and keeps the memory. */
void mr_index_clear(struct mr_index *index);

/* Gives the memory back; the index is empty then and can be used again. */
void mr_index_done(struct mr_index *index);

/* Any 64 bits will do as a hash, an OID or an address too: after two multiplications each bit
 * depends on all of them. */
static inline uint32_t mr_index_fold(uint64_t hash)
{
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

/* The next item that may be the one of this hash, or MR_INDEX_NONE. `at` is 0 for the first, and
 * moves on. */
static inline uint32_t mr_index_next(const struct mr_index *index, uint64_t hash, uint32_t *at)
{
    uint32_t folded = mr_index_fold(hash);
    while (index->size > 0) {
        struct mr_index_slot slot = index->slots[(folded + (*at)++) & (index->size - 1)];
        if (slot.item == 0) {
            break;
        }
        if (slot.hash == folded) {
            return slot.item - 1;
        }
    }
    return MR_INDEX_NONE;
}

/* Sets `number` to the item of this hash for which the condition, which names `number`, is true;
 * MR_INDEX_NONE: there is none. */
#define MR_INDEX_FIND(number, index, hash, condition)                                              \
    do {                                                                                           \
        uint32_t at_ = 0;                                                                          \
        uint64_t hash_ = (hash);                                                                   \
        do {                                                                                       \
            (number) = mr_index_next((index), hash_, &at_);                                        \
        } while ((number) != MR_INDEX_NONE && !(condition));                                       \
    } while (0)
