#include "base/index.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 64, ITEMS_MAX = 1 << 30 };

static void put(struct mr_index *index, struct mr_index_slot slot)
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
            put(index, old.slots[i]);
        }
    }
    free(old.slots);
}

uint32_t mr_index_add(struct mr_index *index, uint64_t hash)
{
    mr_index_reserve(index, index->count + 1);
    put(index, (struct mr_index_slot){.hash = mr_index_fold(hash), .item = index->count + 1});
    return index->count++;
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
