/* A build without the profiler: who asks for it gets an error. */
#include "daemon/profiling.h"

#include "metrics/metrics.h"

mr_status mr_profiling_check(const struct mr_config *config, struct mr_error *ret_error)
{
    const struct mr_config_values *values = &config->values;
    if (config->daemon->profiles || values->profiling_heap) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "[profiling] asks for the profiler, and this millrace was built without it; "
                       "take the section out, or build with -DMILLRACE_PROFILING=ON");
    }
    return MR_OK;
}

mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_error *ret_error)
{
    return mr_profiling_check(config, ret_error);
}

void mr_profiling_end(void)
{
}

double mr_profiling_seconds(void)
{
    return 0;
}

void mr_profiling_metrics(struct mr_buffer *out)
{
    struct mr_exposition exposition = {.out = out};
    for (enum mr_metric_id id = MR_METRIC_STAGE_CPU; id <= MR_METRIC_PROFILER_FILES; id++) {
        mr_expose_begin(&exposition, id);
    }
}
