/* Times counted in buckets: 64 a power of two, so a value is known to 1.6 %. One writer at a time. */
#ifndef LOAD_HISTOGRAM_H
#define LOAD_HISTOGRAM_H

#include <stdint.h>

enum { LOAD_HISTOGRAM_BUCKETS = 64 * 40 };

struct load_histogram {
    uint64_t counts[LOAD_HISTOGRAM_BUCKETS];
    uint64_t count;
    uint64_t max_us;
};

/* Negative times (clocks that disagree) count as 0. */
void load_histogram_add(struct load_histogram *histogram, int64_t us);
void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from);

/* The time, in microseconds, that `share` (0…1) of the values don't pass; 0 when there are none. */
uint64_t load_histogram_quantile(const struct load_histogram *histogram, double share);

#endif
