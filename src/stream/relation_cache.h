/* The decoder's relations by OID: the version that the stream announced last. Inside source/ only.
 *
 * A relation is one block of memory (description, columns and names together), so a new version costs
 * one allocation, and the same version announced anew costs none: it is compared while it is still
 * slices of its message.
 */
#ifndef MR_SOURCE_RELATION_CACHE_H
#define MR_SOURCE_RELATION_CACHE_H

#include "base/index.h"
#include "event/event.h"

/* Far above what a server holds; it bounds the memory that a broken stream can ask for. */
enum { MR_RELATIONS_MAX = 100000 };

/* A relation as its message has it; the names are the message's bytes. */
struct mr_column_view {
    mr_slice name;
    uint32_t type_oid;
    int32_t type_modifier;
    struct mr_type type; /* not of the message: see mr_pgoutput_types_fn */
    mr_slice type_name;  /* of the Type message before it; empty: there was none */
    bool in_identity;
    bool is_flagged;
};

struct mr_relation_view {
    uint32_t oid;
    mr_slice schema;
    mr_slice table;
    enum mr_replica_identity identity;
    enum mr_replica_identity told_identity;
    uint32_t column_count;
    const struct mr_column_view *columns;
    uint32_t key_count; /* not of the message: see mr_pgoutput_keys_fn */
    const uint32_t *key_columns;
    bool key_is_chosen;
    bool is_unlisted; /* likewise */
    bool is_signal;
    bool is_narrowed;
};

/* The key that the stream itself tells: the flagged columns in the table's order, unless all are flagged because the
 * identity is FULL. Sets the view's key fields; `columns` has room for column_count. */
void mr_relation_flagged_key(struct mr_relation_view *view, uint32_t *columns);

/* The view of a relation, whose names are the relation's; `columns` has room for its columns. */
struct mr_relation_view mr_relation_viewed(const struct mr_relation *relation,
                                           struct mr_column_view *columns);

/* Whether rows of the partition lack, as old ones, what the identity of `root` has as the server tells it. Where that is FULL
 * they do unless the partition's is. A partition without any has no old rows. */
bool mr_relation_is_less(const struct mr_relation *partition, const struct mr_relation *root);

/* Of the columns in the view's identity those stay that have the name of one in `by`'s, whose kind of identity it has then. */
void mr_relation_narrow(struct mr_relation_view *view, struct mr_column_view *columns,
                        const struct mr_relation *by);

/* A relation of its own, with everything copied. */
struct mr_relation *mr_relation_new(const struct mr_relation_view *view);
void mr_relation_free(struct mr_relation *relation);

/* True when the relation, found by the view's OID, is what the view says, to the last column. */
bool mr_relation_matches(const struct mr_relation *relation, const struct mr_relation_view *view);

/* All zero is an empty cache. */
struct mr_relation_cache {
    struct mr_relation **relations; /* in the order in which they were announced first */
    struct mr_index by_oid;         /* and how many */
    uint32_t room;
    size_t bytes;             /* of all relations */
    struct mr_relation *last; /* rows of one table tend to come together */
};

/* Finds without the shortcut; NULL when the OID is not known. */
struct mr_relation *mr_relation_cache_find(const struct mr_relation_cache *cache, uint32_t oid);

/* Puts a relation in, in the place of the one of the same OID if there is one. The cache owns it then.
 * Answers the relation that it replaced, now the caller's, or NULL. */
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

#endif
