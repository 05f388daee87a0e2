/* Items of one size, each with its OID as the first member, in the order of the OIDs. All zero is
 * an empty table. One thread. */
#pragma once

#include "base/base.h"

struct mr_by_oid {
    void *items;
    uint32_t count, room;
};

/* NULL: there is none. */
void *mr_by_oid_find(const struct mr_by_oid *table, size_t size, uint32_t oid);

/* The same; an item that is missing is made, all zero but for its OID. Others may move. */
void *mr_by_oid_make(struct mr_by_oid *table, size_t size, uint32_t oid);

/* What the items point to is the caller's to free before. */
void mr_by_oid_done(struct mr_by_oid *table);
