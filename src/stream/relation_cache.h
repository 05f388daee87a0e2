/* The decoder's relations by OID: the version that the stream announced last. One that is announced
 * again costs no memory: it is compared while it is still slices of its message. Tables of equal
 * columns share these. */
#pragma once

#include "base/index.h"
#include "event/relation.h"

/* Far above what a server holds; it bounds the memory that a broken stream can ask for. */
enum { MR_RELATIONS_MAX = 100000 };

/* All zero is an empty cache. */
struct mr_relation_cache {
    struct mr_relation **relations; /* in the order in which they were announced first */
    struct mr_index by_oid;         /* and how many */
    uint32_t room;
    struct mr_layouts layouts;
    size_t bytes;             /* of all relations, without their layouts */
    struct mr_relation *last; /* rows of one table tend to come together */
};

/* Finds without the shortcut; NULL when the OID is not known. */
struct mr_relation *mr_relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid);

/* Puts a relation in, which the cache owns then. Answers the one of the same OID that it replaced,
 * now the caller's, or NULL. */
MR_MUST_USE struct mr_relation *mr_relation_cache_put(struct mr_relation_cache *cache,
                                                      struct mr_relation *relation);

/* Frees the relations and the table; the cache is empty then and can be used again. */
void mr_relation_cache_done(struct mr_relation_cache *cache);

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
