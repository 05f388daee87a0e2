/* The decoder's relations by OID: the version that the stream announced last. Inside source/ only. */
#ifndef MR_SOURCE_RELATION_CACHE_H
#define MR_SOURCE_RELATION_CACHE_H

#include "event/event.h"

enum { MR_RELATIONS_MAX = 100000 };

struct mr_relation_cache {
    struct mr_relation **slots; /* open addressing by OID */
    uint32_t capacity;          /* a power of two, or 0 */
    uint32_t count;
    struct mr_relation *last; /* rows of one table tend to come together */
};

/* Finds without a shortcut; NULL when the OID is not known. */
struct mr_relation *mr_relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid);

/* Puts a relation in place of the one of the same OID, which the caller has freed before, or as a new one.
 * False when the cache is full. The cache owns it then. */
MR_MUST_USE bool mr_relation_cache_put(struct mr_relation_cache *cache,
                                       struct mr_relation *relation);

void mr_relation_cache_done(struct mr_relation_cache *cache);

void mr_relation_free(struct mr_relation *relation);
bool mr_relation_equal(const struct mr_relation *a, const struct mr_relation *b);

static inline struct mr_relation *mr_relation_cache_get(struct mr_relation_cache *cache,
                                                        uint32_t oid)
{
    if (MR_LIKELY(cache->last != NULL && cache->last->oid == oid)) {
        return cache->last;
    }
    struct mr_relation *found = mr_relation_cache_find(cache, oid);
    if (found != NULL) {
        cache->last = found;
    }
    return found;
}

#endif
