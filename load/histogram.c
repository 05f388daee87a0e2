#include "histogram.h"

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

void load_histogram_add(struct load_histogram *histogram, int64_t us)
{
    uint64_t value = us < 0 ? 0 : (uint64_t)us;
    histogram->counts[bucket_of(value)]++;
    histogram->count++;
    if (value > histogram->max_us) {
        histogram->max_us = value;
    }
}

void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from)
{
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS; i++) {
        into->counts[i] += from->counts[i];
    }
    into->count += from->count;
    if (from->max_us > into->max_us) {
        into->max_us = from->max_us;
    }
}

uint64_t load_histogram_quantile(const struct load_histogram *histogram, double share)
{
    uint64_t need = (uint64_t)(share * (double)histogram->count + 0.999999);
    uint64_t seen = 0;
    for (unsigned i = 0; i < LOAD_HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        seen += histogram->counts[i];
        if (seen >= need && seen > 0) {
            uint64_t end = bucket_end(i);
            return end < histogram->max_us ? end : histogram->max_us;
        }
    }
    return 0;
}
