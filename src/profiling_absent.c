/* A build without the profiler: what asks for it is told so. */
#include "ask_profile.h"
#include "metrics/metrics.h"
#include "profiling.h"

mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_monitor *monitor, struct mr_error *ret_error)
{
    (void)http;
    (void)monitor;
    const struct mr_config_values *values = &config->values;
    if (values->profiling_endpoints || values->profiling_path[0] != '\0' ||
        values->profiling_heap || values->profiling_recorder ||
        values->profiling_capture_path[0] != '\0' || values->profiling_push_url[0] != '\0') {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "[profiling] asks for the profiler, and this millrace was built without it; "
                       "take the section out, or build with -DMILLRACE_PROFILING=ON");
    }
    return MR_OK;
}

void mr_profiling_end(void)
{
}

void mr_profiling_metrics(struct mr_buffer *out)
{
    struct mr_exposition exposition = mr_exposition_begin(out);
    for (enum mr_metric_id id = MR_METRIC_STAGE_CPU; id <= MR_METRIC_PROFILER_CAPTURES; id++) {
        mr_expose_begin(&exposition, id);
    }
}

static mr_status no_profiler(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_USAGE,
                   "this millrace was built without the profiler; build with "
                   "-DMILLRACE_PROFILING=ON");
}

mr_status mr_ask_profile(const struct mr_http_options *server, const struct mr_ask_profile *wish,
                         FILE *to, struct mr_error *ret_error)
{
    (void)server;
    (void)wish;
    (void)to;
    return no_profiler(ret_error);
}

mr_status mr_ask_profile_diff(const char *before, const char *after, const char *out, FILE *to,
                              struct mr_error *ret_error)
{
    (void)before;
    (void)after;
    (void)out;
    (void)to;
    return no_profiler(ret_error);
}
