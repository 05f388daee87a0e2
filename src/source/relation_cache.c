#include "source/relation_cache.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 64 };

static uint32_t slot_of(const struct mr_relation_cache *cache, uint32_t oid)
{
    uint32_t mask = cache->capacity - 1;
    uint32_t i = (oid * 2654435761u) & mask;
    while (cache->slots[i] != NULL && cache->slots[i]->oid != oid) {
        i = (i + 1) & mask;
    }
    return i;
}

struct mr_relation *mr_relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid)
{
    return cache->capacity == 0 ? NULL : cache->slots[slot_of(cache, oid)];
}

static void cache_grow(struct mr_relation_cache *cache)
{
    struct mr_relation_cache old = *cache;
    cache->capacity = old.capacity == 0 ? SLOTS_MIN : 2 * old.capacity;
    cache->slots = MR_NEW_ARRAY(struct mr_relation *, cache->capacity);
    for (uint32_t i = 0; i < old.capacity; i++) {
        if (old.slots[i] != NULL) {
            cache->slots[slot_of(cache, old.slots[i]->oid)] = old.slots[i];
        }
    }
    free(old.slots);
}

bool mr_relation_cache_put(struct mr_relation_cache *cache, struct mr_relation *relation)
{
    if (2 * (cache->count + 1) > cache->capacity) {
        cache_grow(cache);
    }
    uint32_t slot = slot_of(cache, relation->oid);
    if (cache->slots[slot] == NULL) {
        if (cache->count == MR_RELATIONS_MAX) {
            return false;
        }
        cache->count++;
    }
    cache->slots[slot] = relation;
    cache->last = relation;
    return true;
}

void mr_relation_cache_done(struct mr_relation_cache *cache)
{
    for (uint32_t i = 0; i < cache->capacity; i++) {
        mr_relation_free(cache->slots[i]);
    }
    free(cache->slots);
    *cache = (struct mr_relation_cache){0};
}

void mr_relation_free(struct mr_relation *relation)
{
    if (relation == NULL) {
        return;
    }
    for (uint32_t i = 0; i < relation->column_count; i++) {
        free(relation->columns[i].name);
    }
    free(relation->columns);
    free(relation->schema);
    free(relation->table);
    free(relation);
}

static bool column_equal(const struct mr_column *a, const struct mr_column *b)
{
    return strcmp(a->name, b->name) == 0 && a->type_oid == b->type_oid &&
           a->type_modifier == b->type_modifier && a->in_identity == b->in_identity;
}

bool mr_relation_equal(const struct mr_relation *a, const struct mr_relation *b)
{
    if (a->oid != b->oid || a->identity != b->identity || a->column_count != b->column_count ||
        strcmp(a->schema, b->schema) != 0 || strcmp(a->table, b->table) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < a->column_count; i++) {
        if (!column_equal(&a->columns[i], &b->columns[i])) {
            return false;
        }
    }
    return true;
}
