#include "base/index.h"

enum { SLOTS_MIN = 64, ITEMS_MAX = 1 << 30 };

static void index_put(struct mr_index *index, struct mr_index_slot slot)
{
    uint32_t at = slot.hash;
    while (index->slots[at & (index->size - 1)].item != 0) {
        at++;
    }
    index->slots[at & (index->size - 1)] = slot;
}

void mr_index_reserve(struct mr_index *index, uint32_t count)
{
    MR_ASSERT(count <= ITEMS_MAX);
    if (2 * count <= index->size) {
        return;
    }
    struct mr_index old = *index;
    index->size = SLOTS_MIN;
    while (index->size < 2 * count) {
        index->size *= 2;
    }
    index->slots = MR_NEW_ARRAY(struct mr_index_slot, index->size);
    for (uint32_t i = 0; i < old.size; i++) {
        if (old.slots[i].item != 0) {
            index_put(index, old.slots[i]);
        }
    }
    free(old.slots);
}

uint32_t mr_index_add(struct mr_index *index, uint64_t hash)
{
    mr_index_reserve(index, index->count + 1);
    index_put(index, (struct mr_index_slot){.hash = mr_index_fold(hash), .item = index->count + 1});
    return index->count++;
}

static uint32_t slot_of(const struct mr_index *index, uint32_t number, uint64_t hash)
{
    uint32_t at = mr_index_fold(hash);
    while (index->slots[at & (index->size - 1)].item != number + 1) {
        MR_ASSERT(index->slots[at & (index->size - 1)].item != 0);
        at++;
    }
    return at & (index->size - 1);
}

/* Moves into the freed slot what it had pushed aside, and so on: a search ends at the first free
 * slot. */
static void index_close_gap(struct mr_index *index, uint32_t gap)
{
    uint32_t mask = index->size - 1;
    for (uint32_t i = (gap + 1) & mask; index->slots[i].item != 0; i = (i + 1) & mask) {
        if (((i - index->slots[i].hash) & mask) >= ((i - gap) & mask)) {
            index->slots[gap] = index->slots[i];
            gap = i;
        }
    }
    index->slots[gap].item = 0;
}

void mr_index_remove(struct mr_index *index, uint32_t number, uint64_t hash, uint64_t last_hash)
{
    MR_ASSERT(number < index->count);
    uint32_t last = slot_of(index, index->count - 1, last_hash);
    uint32_t removed = slot_of(index, number, hash);
    index->slots[last].item = number + 1;
    index->count--;
    index_close_gap(index, removed);
}

void mr_index_clear(struct mr_index *index)
{
    if (index->count > 0) {
        memset(index->slots, 0, index->size * sizeof(*index->slots));
    }
    index->count = 0;
}

void mr_index_done(struct mr_index *index)
{
    free(index->slots);
    *index = (struct mr_index){0};
}
