#include "metrics/histogram.h"

#include <math.h>

#define DECADE(unit)                                                                               \
    UINT64_C(1) * (unit), UINT64_C(3) * (unit) / 2, UINT64_C(2) * (unit), UINT64_C(3) * (unit),    \
        UINT64_C(5) * (unit), UINT64_C(7) * (unit)

static const uint64_t seconds_bounds[] = {
    DECADE(UINT64_C(1000)),       DECADE(UINT64_C(10000)),       DECADE(UINT64_C(100000)),
    DECADE(UINT64_C(1000000)),    DECADE(UINT64_C(10000000)),    DECADE(UINT64_C(100000000)),
    DECADE(UINT64_C(1000000000)), DECADE(UINT64_C(10000000000)), UINT64_C(100000000000),
};

static const uint64_t counts_bounds[] = {
    1,       1 << 1,  1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,  1 << 8,
    1 << 9,  1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17,
    1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24,
};

static const uint64_t bytes_bounds[] = {
    1 << 6,  1 << 8,  1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18,
    1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30,
};

static const uint64_t ratio_bounds[] = {100, 200, 300, 400, 500, 600, 700, 800, 900, 1000};

struct layout {
    const uint64_t *bounds;
    uint32_t count;
    double divisor;
};

#define LAYOUT(table, unit)                                                                        \
    {                                                                                              \
        .bounds = (table), .count = MR_ARRAY_LEN(table), .divisor = (unit)                         \
    }

static const struct layout layouts[] = {
    [MR_HISTOGRAM_SECONDS] = LAYOUT(seconds_bounds, 1e9),
    [MR_HISTOGRAM_COUNTS] = LAYOUT(counts_bounds, 1),
    [MR_HISTOGRAM_BYTES] = LAYOUT(bytes_bounds, 1),
    [MR_HISTOGRAM_RATIO] = LAYOUT(ratio_bounds, 1000),
};

_Static_assert(MR_ARRAY_LEN(seconds_bounds) <= MR_HISTOGRAM_BOUNDS_MAX, "the longest layout");

void mr_histogram_init(struct mr_histogram *histogram, enum mr_histogram_layout layout)
{
    *histogram = (struct mr_histogram){.layout = layout};
}

/* The first bound that is not below the value; the count of bounds when all are. */
static uint32_t bucket_of(const struct layout *layout, uint64_t value)
{
    uint32_t low = 0;
    uint32_t high = layout->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (layout->bounds[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void mr_histogram_record(struct mr_histogram *histogram, uint64_t value)
{
    mr_counter_add(&histogram->counts[bucket_of(&layouts[histogram->layout], value)], 1);
    mr_counter_add(&histogram->sum, value);
}

void mr_histogram_read(const struct mr_histogram *histogram, struct mr_histogram_view *ret)
{
    *ret = (struct mr_histogram_view){.layout = histogram->layout};
    ret->sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    for (uint32_t i = 0; i <= layouts[histogram->layout].count; i++) {
        ret->counts[i] = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        ret->count += ret->counts[i];
    }
}

void mr_histogram_since(const struct mr_histogram_view *now, const struct mr_histogram_view *before,
                        struct mr_histogram_view *ret)
{
    struct mr_histogram_view since = {
        .layout = now->layout, .count = now->count - before->count, .sum = now->sum - before->sum};
    for (uint32_t i = 0; i <= layouts[now->layout].count; i++) {
        since.counts[i] = now->counts[i] - before->counts[i];
    }
    *ret = since;
}

double mr_histogram_quantile(const struct mr_histogram_view *view, double quantile)
{
    if (view->count == 0) {
        return NAN;
    }
    const struct layout *layout = &layouts[view->layout];
    double rank = quantile * (double)view->count;
    uint64_t below = 0;
    uint32_t i = 0;
    while (i < layout->count && (double)(below + view->counts[i]) < rank) {
        below += view->counts[i++];
    }
    if (i == layout->count) {
        return (double)layout->bounds[layout->count - 1] / layout->divisor;
    }
    double low = i == 0 ? 0 : (double)layout->bounds[i - 1];
    double high = (double)layout->bounds[i];
    double part = view->counts[i] == 0 ? 0 : (rank - (double)below) / (double)view->counts[i];
    return (low + (high - low) * part) / layout->divisor;
}

uint32_t mr_histogram_bound_count(enum mr_histogram_layout layout)
{
    return layouts[layout].count;
}

double mr_histogram_bound(enum mr_histogram_layout layout, uint32_t index)
{
    MR_ASSERT(index < layouts[layout].count);
    return (double)layouts[layout].bounds[index] / layouts[layout].divisor;
}

double mr_histogram_divisor(enum mr_histogram_layout layout)
{
    return layouts[layout].divisor;
}
