#include "profiling.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "metrics/metrics.h"
#include "pprof/capture.h"
#include "pprof/routes.h"
#include "prof/heap.h"
#include "prof/profiler.h"

static bool is_wanted(const struct mr_config_values *values)
{
    return values->profiling_endpoints || values->profiling_path[0] != '\0' ||
           values->profiling_recorder || values->profiling_capture_path[0] != '\0' ||
           values->profiling_push_url[0] != '\0';
}

static mr_status start_heap(struct mr_error *ret_error)
{
    mr_status status = mr_heap_set_active(true, ret_error);
    if (status == MR_OK) {
        mr_log(MR_LOG_INFO, "heap_profiling", "allocations are sampled, one in 512 KiB");
    }
    return status;
}

static mr_status start_captures(const struct mr_config_values *values, struct mr_monitor *monitor,
                                struct mr_error *ret_error)
{
    struct mr_capture_options options = {
        .path = values->profiling_capture_path,
        .pause_ms = values->profiling_capture_pause,
        .keep = (uint32_t)values->profiling_capture_keep,
        .in_flight_max = (uint64_t)values->profiling_capture_in_flight,
        .flush_max_ms = values->profiling_capture_flush,
        .lag_max = (uint64_t)values->profiling_capture_lag,
        .memory_max = (uint64_t)values->profiling_capture_memory,
    };
    return mr_capture_start(&options, monitor, ret_error);
}

mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_monitor *monitor, struct mr_error *ret_error)
{
    const struct mr_config_values *values = &config->values;
    /* A server for debug information is somebody else's machine; a daemon does not ask there by itself. */
    unsetenv("DEBUGINFOD_URLS");
    mr_prof_thread_start(MR_PROF_MAIN, "millrace");
    if (values->profiling_heap) {
        MR_TRY(start_heap(ret_error));
    }
    if (!is_wanted(values)) {
        return MR_OK;
    }
    struct mr_profiler_options options = {
        .path = values->profiling_path,
        .frequency_hz = (uint32_t)values->profiling_frequency,
        .interval_s = (uint32_t)(values->profiling_interval / 1000),
        .name = values->profiling_name,
        .keep_count = (uint32_t)values->profiling_keep_intervals,
        .keep_bytes = (uint64_t)values->profiling_keep_size,
        .recorder = values->profiling_recorder || values->profiling_capture_path[0] != '\0',
        .push_url = values->profiling_push_url,
    };
    MR_TRY(mr_profiler_start(&options, ret_error));
    if (values->profiling_endpoints && http != NULL) {
        MR_TRY(mr_pprof_add(
            http, &config->http, values->profiling_name,
            options.recorder || options.path[0] != '\0' || options.push_url[0] != '\0', ret_error));
    }
    return values->profiling_capture_path[0] == '\0' ? MR_OK
                                                     : start_captures(values, monitor, ret_error);
}

void mr_profiling_end(void)
{
    mr_capture_stop();
    mr_profiler_stop();
    mr_prof_thread_end();
}

/* ---- metrics ---- */

static void expose_stages(struct mr_exposition *out, const struct mr_profiler_stats *stats)
{
    mr_expose_begin(out, MR_METRIC_STAGE_CPU);
    for (int i = 0; i < MR_PROF_STAGES; i++) {
        mr_expose_ns(out, (const char *[]){mr_prof_stage_name(i)}, stats->stage_cpu_ns[i]);
    }
    mr_expose_begin(out, MR_METRIC_TABLE_CPU);
    for (uint32_t i = 0; i < stats->table_count; i++) {
        mr_expose_ns(out, (const char *[]){stats->tables[i].name}, stats->tables[i].cpu_ns);
    }
    mr_expose_begin(out, MR_METRIC_STAGE_ALLOCATIONS);
    for (int i = 0; i < MR_PROF_STAGES; i++) {
        mr_expose_u64(out, (const char *[]){mr_prof_stage_name(i)}, stats->stage_alloc_objects[i]);
    }
    mr_expose_begin(out, MR_METRIC_STAGE_ALLOCATED);
    for (int i = 0; i < MR_PROF_STAGES; i++) {
        mr_expose_u64(out, (const char *[]){mr_prof_stage_name(i)}, stats->stage_alloc_bytes[i]);
    }
}

void mr_profiling_metrics(struct mr_buffer *to)
{
    struct mr_exposition exposition = mr_exposition_begin(to);
    struct mr_exposition *out = &exposition;
    struct mr_profiler_stats stats;
    mr_profiler_stats(&stats);
    expose_stages(out, &stats);
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
    mr_expose_begin(out, MR_METRIC_PROFILER_PUSHES);
    mr_expose_u64(out, (const char *[]){"sent"}, stats.pushed);
    mr_expose_u64(out, (const char *[]){"failed"}, stats.push_errors);
    mr_expose_one_u64(out, MR_METRIC_PROFILER_CAPTURES, mr_capture_count());
}
