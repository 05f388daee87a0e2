/* Times counted in buckets: 64 a power of two, so a value is known to 1.6 %. One writer at a time; others may look
 * meanwhile.
 *
 * Not the histograms of src/metrics: those have the 49 round bounds that Prometheus shows, and a percentile of times that
 * lie close together is wrong by up to 34 % there (200,000 values of 7.2 ms, 0.1 ms deviation: 9.97 for a p99 of 7.43).
 * HdrHistogram_c, which has buckets like these, is not among the packages of Debian 12. */
#ifndef LOAD_HISTOGRAM_H
#define LOAD_HISTOGRAM_H

#include <stdint.h>

enum { LOAD_HISTOGRAM_BUCKETS = 64 * 40 };

struct load_histogram {
    _Atomic uint64_t counts[LOAD_HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum_us;
    _Atomic uint64_t max_us;
};

/* So many events took this time. Negative times (clocks that disagree) count as 0. */
void load_histogram_add(struct load_histogram *histogram, int64_t us, uint64_t events);
void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from);

uint64_t load_histogram_count(const struct load_histogram *histogram);
double load_histogram_mean_us(const struct load_histogram *histogram);

/* The time, in microseconds, that `share` (0…1) of the values don't pass; 0 when there are none. */
uint64_t load_histogram_quantile(const struct load_histogram *histogram, double share);

#endif
