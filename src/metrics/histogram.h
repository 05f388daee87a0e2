/* Histograms with fixed buckets: one thread writes (a short search, two relaxed stores), any thread
 * reads a view, whose counts are of about one moment. Values are whole numbers in the layout's own
 * unit (nanoseconds, bytes, records, thousandths). */
#pragma once

#include "base/base.h"
#include "base/counter.h"

enum { MR_HISTOGRAM_BOUNDS_MAX = 50 };

enum mr_histogram_layout {
    MR_HISTOGRAM_SECONDS, /* values in ns; bounds 1, 1.5, 2, 3, 5, 7 a decade from 1 µs to 100 s */
    MR_HISTOGRAM_COUNTS,  /* powers of two up to 2^24 */
    MR_HISTOGRAM_BYTES,   /* powers of four from 64 B to 1 GiB */
    MR_HISTOGRAM_RATIO,   /* values in thousandths; a tenth each */
};

struct mr_histogram {
    enum mr_histogram_layout layout;
    mr_counter sum;
    mr_counter counts[MR_HISTOGRAM_BOUNDS_MAX + 1]; /* the last is above all bounds */
};

void mr_histogram_init(struct mr_histogram *histogram, enum mr_histogram_layout layout);

/* The one writing thread. */
void mr_histogram_record(struct mr_histogram *histogram, uint64_t value);

struct mr_histogram_view {
    enum mr_histogram_layout layout;
    uint64_t count;
    uint64_t sum;
    uint64_t counts[MR_HISTOGRAM_BOUNDS_MAX + 1];
};

void mr_histogram_read(const struct mr_histogram *histogram, struct mr_histogram_view *ret);

/* What came in since `before`, a view of the same histogram; the result may be `before` itself. */
void mr_histogram_since(const struct mr_histogram_view *now, const struct mr_histogram_view *before,
                        struct mr_histogram_view *ret);

/* The value below which the part `quantile` (0 to 1) lies, interpolated within its bucket as
 * Prometheus' histogram_quantile does, in the exposed unit (seconds, bytes, records, 0 to 1). NaN
 * when there is none. */
double mr_histogram_quantile(const struct mr_histogram_view *view, double quantile);

/* Bounds of a layout in the exposed unit, and what a value is divided by to get there. */
uint32_t mr_histogram_bound_count(enum mr_histogram_layout layout);
double mr_histogram_bound(enum mr_histogram_layout layout, uint32_t index);
double mr_histogram_divisor(enum mr_histogram_layout layout);
