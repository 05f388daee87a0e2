/* FNV-1a, 64 bits: for tables in memory, colours, configurations. Not for input that somebody
 * chooses to make hashes equal. */
#pragma once

#include "base/base.h"

#define MR_HASH_BEGIN UINT64_C(14695981039346656037)

/* The hash of what `hash` is of, followed by these bytes. */
static inline uint64_t mr_hash_add(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)data;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

/* The same for a number, in one step. */
static inline uint64_t mr_hash_number(uint64_t hash, uint64_t number)
{
    hash = (hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}
