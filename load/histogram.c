#include "histogram.h"

#include <stdatomic.h>

enum { SUB_BITS = 6, SUB = 1 << SUB_BITS };

/* Below 64 every value has a bucket; above, each power of two has 64. */
static unsigned bucket_of(uint64_t value)
{
    if (value < SUB) {
        return (unsigned)value;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - SUB_BITS;
    unsigned bucket = (shift + 1) * SUB + (unsigned)(value >> shift & (SUB - 1));
    return bucket < LOAD_HISTOGRAM_BUCKETS ? bucket : LOAD_HISTOGRAM_BUCKETS - 1;
}

static uint64_t bucket_end(unsigned bucket)
{
    if (bucket < SUB) {
        return bucket;
    }
    unsigned shift = bucket / SUB - 1;
    return ((uint64_t)(SUB + bucket % SUB + 1) << shift) - 1;
}

/* The writer's own: no locked instruction. */
static void add(_Atomic uint64_t *to, uint64_t by)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

void load_histogram_add(struct load_histogram *histogram, int64_t us, uint64_t events)
{
    uint64_t value = us < 0 ? 0 : (uint64_t)us;
    add(&histogram->counts[bucket_of(value)], events);
    add(&histogram->sum_us, value * events);
    if (value > atomic_load_explicit(&histogram->max_us, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max_us, value, memory_order_relaxed);
    }
}

void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from)
{
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS; i++) {
        add(&into->counts[i], from->counts[i]);
    }
    add(&into->sum_us, from->sum_us);
    if (from->max_us > into->max_us) {
        into->max_us = from->max_us;
    }
}

uint64_t load_histogram_count(const struct load_histogram *histogram)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS; i++) {
        count += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
    }
    return count;
}

double load_histogram_mean_us(const struct load_histogram *histogram)
{
    uint64_t count = load_histogram_count(histogram);
    return count == 0 ? 0 : (double)histogram->sum_us / (double)count;
}

uint64_t load_histogram_quantile(const struct load_histogram *histogram, double share)
{
    /* What is added from here on is not counted: the share is one of what is there now. */
    uint64_t counts[LOAD_HISTOGRAM_BUCKETS];
    uint64_t count = 0;
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS; i++) {
        counts[i] = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        count += counts[i];
    }
    uint64_t max_us = atomic_load_explicit(&histogram->max_us, memory_order_relaxed);
    uint64_t need = (uint64_t)(share * (double)count + 0.999999);
    uint64_t seen = 0;
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS && count > 0; i++) {
        seen += counts[i];
        if (seen >= need && seen > 0) {
            uint64_t end = bucket_end(i);
            return end < max_us ? end : max_us;
        }
    }
    return 0;
}
