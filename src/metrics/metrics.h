/* The metrics of metrics.def and Prometheus' text form: one family after the other,
 * mr_expose_begin(id), then its samples. Nothing here allocates; what does not fit leaves the
 * buffer `full`. Any thread, one at a time a writer. */
#pragma once

#include "base/buffer.h"
#include "metrics/histogram.h"

enum mr_metric_id {
#define MR_METRIC(id, name, type, unit, labels, help, meaning) MR_METRIC_##id,
#include "metrics/metrics.def"
#undef MR_METRIC
    MR_METRIC_COUNT
};

enum mr_metric_type { MR_METRIC_COUNTER, MR_METRIC_GAUGE, MR_METRIC_HISTOGRAM };

struct mr_metric {
    const char *name;
    enum mr_metric_type type;
    const char *unit;   /* "" for none */
    const char *labels; /* names separated by commas, "" for none */
    const char *help;
    const char *meaning;
};
const struct mr_metric *mr_metric_at(enum mr_metric_id id);

/* All zero but for `out` at first. */
struct mr_exposition {
    struct mr_buffer *out;
    enum mr_metric_id id; /* of the family that is being written */
};

/* HELP and TYPE of a family. Its samples follow, until the next begin. */
void mr_expose_begin(struct mr_exposition *exposition, enum mr_metric_id id);

/* One sample of the family at hand; `values` are as many label values as the family has labels
 * (NULL when it has none), escaped here. */
void mr_expose_u64(struct mr_exposition *exposition, const char *const *values, uint64_t value);
void mr_expose_f64(struct mr_exposition *exposition, const char *const *values, double value);
/* Nanoseconds as seconds. */
void mr_expose_ns(struct mr_exposition *exposition, const char *const *values, uint64_t ns);
void mr_expose_histogram(struct mr_exposition *exposition, const char *const *values,
                         const struct mr_histogram_view *view);

/* A family with one sample and no labels. */
void mr_expose_one_u64(struct mr_exposition *exposition, enum mr_metric_id id, uint64_t value);
void mr_expose_one_ns(struct mr_exposition *exposition, enum mr_metric_id id, uint64_t ns);

/* docs/metrics.md. */
void mr_metrics_print_reference(FILE *to);
