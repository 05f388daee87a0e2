#include "metrics/metrics.h"

static const struct mr_metric metrics[] = {
#define MR_METRIC(id, name, type, unit, labels, help, meaning)                                     \
    {name, MR_METRIC_##type, unit, labels, help, meaning},
#include "metrics/metrics.def"
#undef MR_METRIC
};

const struct mr_metric *mr_metric_at(enum mr_metric_id id)
{
    MR_ASSERT(id < MR_METRIC_COUNT);
    return &metrics[id];
}
