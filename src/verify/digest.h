/* Digests of 128 bits that nobody can make equal on purpose: SipHash-1-3 under a key that is drawn
 * for each run. They are numbers, and sums of them (mod 2^128) do not depend on the order. Values
 * only. Any thread. */
#pragma once

#include <endian.h>

#include "base/base.h"

/* Eight bytes, the first the lowest. */
static inline uint64_t mr_word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return le64toh(word);
}

struct mr_digest {
    uint64_t low, high;
};

static inline bool mr_digest_equal(struct mr_digest a, struct mr_digest b)
{
    return a.low == b.low && a.high == b.high;
}

static inline struct mr_digest mr_digest_add(struct mr_digest a, struct mr_digest b)
{
    uint64_t low = a.low + b.low;
    return (struct mr_digest){.low = low, .high = a.high + b.high + (low < a.low)};
}

static inline struct mr_digest mr_digest_subtract(struct mr_digest a, struct mr_digest b)
{
    return (struct mr_digest){.low = a.low - b.low, .high = a.high - b.high - (a.low < b.low)};
}

/* A key for mr_digest_of that nobody knows. */
struct mr_digest mr_digest_draw_key(void);

struct mr_digest mr_digest_of(struct mr_digest key, mr_slice bytes);
