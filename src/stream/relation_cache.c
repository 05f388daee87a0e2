#include "stream/relation_cache.h"

static uint32_t relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid)
{
    uint32_t number;
    MR_INDEX_FIND(number, &cache->by_oid, oid, cache->relations[number]->oid == oid);
    return number;
}

struct mr_relation *mr_relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid)
{
    uint32_t number = relation_cache_find(cache, oid);
    return number == MR_INDEX_NONE ? NULL : cache->relations[number];
}

struct mr_relation *mr_relation_cache_put(struct mr_relation_cache *cache,
                                          struct mr_relation *relation)
{
    uint32_t number = relation_cache_find(cache, relation->oid);
    struct mr_relation *replaced = NULL;
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&cache->by_oid, relation->oid);
        MR_GROW(cache->relations, cache->room, cache->by_oid.count);
    } else {
        replaced = cache->relations[number];
        cache->bytes -= replaced->bytes;
    }
    cache->relations[number] = relation;
    cache->bytes += relation->bytes;
    cache->last = relation;
    return replaced;
}

void mr_relation_cache_done(struct mr_relation_cache *cache)
{
    for (uint32_t i = 0; i < cache->by_oid.count; i++) {
        mr_relation_free(&cache->layouts, cache->relations[i]);
    }
    free(cache->relations);
    mr_layouts_done(&cache->layouts);
    mr_index_done(&cache->by_oid);
    *cache = (struct mr_relation_cache){0};
}
