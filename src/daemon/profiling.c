#include "daemon/profiling.h"

#include "metrics/metrics.h"
#include "profiler/profiler.h"

mr_status mr_profiling_check(const struct mr_config *config, struct mr_error *ret_error)
{
    const struct mr_config_values *values = &config->values;
    if (values->profiling_heap) {
        MR_TRY(mr_heap_available(ret_error));
    }
    return mr_file_check_folder(values->profiling_path, ret_error);
}

mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_error *ret_error)
{
    const struct mr_config_values *values = &config->values;
    /* A server for debug information is somebody else's machine; a daemon does not ask there by
     * itself. */
    unsetenv("DEBUGINFOD_URLS");
    mr_sampler_watch();
    mr_thread_begin(MR_THREAD_MAIN, "millrace");
    if (values->profiling_heap) {
        MR_TRY(mr_heap_set_active(true, ret_error));
        mr_log(MR_LOG_INFO, "heap_profiling", "allocations are sampled, one in 512 KiB");
    }
    if (!config->daemon->profiles) {
        return MR_OK;
    }
    struct mr_profiler_options options = {
        .path = values->profiling_path,
        .frequency_hz = (uint32_t)values->profiling_frequency,
        .interval_s = (uint32_t)(values->profiling_interval / 1000),
        .keep_bytes = (uint64_t)values->profiling_keep_size,
        .recorder = values->profiling_recorder,
    };
    MR_TRY(mr_profiler_start(&options, ret_error));
    if (values->profiling_endpoints && http != NULL) {
        mr_pprof_add(http, &config->http, options.recorder || options.path[0] != '\0');
    }
    return MR_OK;
}

void mr_profiling_end(void)
{
    mr_profiler_stop();
    mr_thread_end();
}

/* By stage, but for the allocator's, whose time is its caller's. */
static void profiling_expose_stages(struct mr_exposition *out, enum mr_metric_id metric,
                                    const uint64_t values[MR_STAGES])
{
    mr_expose_begin(out, metric);
    for (int i = MR_STAGE_RECEIVE; i < MR_STAGES; i++) {
        if (i != MR_STAGE_MALLOC && metric == MR_METRIC_STAGE_CPU) {
            mr_expose_ns(out, (const char *[]){mr_stage_name(i)}, values[i]);
        } else if (i != MR_STAGE_MALLOC) {
            mr_expose_u64(out, (const char *[]){mr_stage_name(i)}, values[i]);
        }
    }
}

double mr_profiling_seconds(void)
{
    struct mr_profiler_stats stats;
    mr_profiler_stats(&stats);
    return (double)(stats.sampler.handler_ns + stats.thread_ns) / 1e9;
}

void mr_profiling_metrics(struct mr_buffer *to)
{
    struct mr_exposition exposition = {.out = to};
    struct mr_exposition *out = &exposition;
    struct mr_profiler_stats stats;
    mr_profiler_stats(&stats);
    profiling_expose_stages(out, MR_METRIC_STAGE_CPU, stats.stage_cpu_ns);
    mr_expose_begin(out, MR_METRIC_TABLE_CPU);
    for (uint32_t i = 0; i < stats.table_times.count; i++) {
        mr_expose_ns(out, (const char *[]){stats.table_times.tables[i].name},
                     stats.table_times.tables[i].cpu_ns);
    }
    profiling_expose_stages(out, MR_METRIC_STAGE_ALLOCATIONS, stats.stage_alloc_objects);
    profiling_expose_stages(out, MR_METRIC_STAGE_ALLOCATED, stats.stage_alloc_bytes);
    mr_expose_one_u64(out, MR_METRIC_PROFILER_FREQUENCY, stats.frequency_hz);
    mr_expose_one_u64(out, MR_METRIC_PROFILER_SAMPLES, stats.sampler.samples);
    mr_expose_one_u64(out, MR_METRIC_PROFILER_LOST, stats.sampler.lost);
    mr_expose_one_u64(out, MR_METRIC_PROFILER_TRUNCATED, stats.sampler.truncated);
    mr_expose_one_ns(out, MR_METRIC_PROFILER_HANDLER_TIME, stats.sampler.handler_ns);
    mr_expose_begin(out, MR_METRIC_PROFILER_HANDLER);
    mr_expose_ns(out, (const char *[]){"50"}, stats.sampler.handler_p50_ns);
    mr_expose_ns(out, (const char *[]){"99"}, stats.sampler.handler_p99_ns);
    mr_expose_one_ns(out, MR_METRIC_PROFILER_THREAD_TIME, stats.thread_ns);
    mr_expose_begin(out, MR_METRIC_PROFILER_FILES);
    mr_expose_u64(out, (const char *[]){"written"}, stats.files);
    mr_expose_u64(out, (const char *[]){"failed"}, stats.file_errors);
}
