#include "profiler/http/capture.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "profiler/file.h"
#include "profiler/heap.h"
#include "profiler/output.h"
#include "profiler/profiler.h"

enum {
    LOOK_MS = 1000,
    HISTORY_S = 60,
    METRICS_FIRST = 64 * 1024,
    NAME_BYTES = 64, /* of a capture's folder */
};

static struct {
    struct mr_capture_options options;
    struct mr_monitor *monitor;
    pthread_t thread;
    int stop_fd;
    bool running;
    int64_t last_ns; /* of the last capture; 0: none yet */
    _Atomic uint64_t count;
} state;

/* ---- limits ---- */

const char *mr_capture_passed(const struct mr_capture_options *limits,
                              const struct mr_monitor_sample *second, char *reason, size_t size)
{
    if (limits->in_flight_max > 0 && second->messages_in_flight > limits->in_flight_max) {
        snprintf(reason, size, "%" PRIu64 " records are in flight, the limit is %" PRIu64,
                 second->messages_in_flight, limits->in_flight_max);
        return "in-flight";
    }
    if (limits->flush_max_ms > 0 && second->flush_p99 * 1000 > (double)limits->flush_max_ms) {
        snprintf(reason, size, "a flush took %.0f ms, the limit is %" PRId64 " ms",
                 second->flush_p99 * 1000, limits->flush_max_ms);
        return "flush";
    }
    if (limits->lag_max > 0 && second->lag_bytes > limits->lag_max) {
        snprintf(reason, size, "%" PRIu64 " bytes of WAL wait, the limit is %" PRIu64,
                 second->lag_bytes, limits->lag_max);
        return "lag";
    }
    if (limits->memory_max > 0 && second->resident_bytes > limits->memory_max) {
        snprintf(reason, size, "%" PRIu64 " bytes are resident, the limit is %" PRIu64,
                 second->resident_bytes, limits->memory_max);
        return "memory";
    }
    return NULL;
}

/* ---- what is written ---- */

static mr_status write_profiles(const char *folder, struct mr_error *ret_error)
{
    struct mr_profile profile;
    mr_profiler_last_minute(&profile);
    mr_profiler_name_all();
    size_t len;
    uint8_t *packed = mr_output_pprof(&profile, &len);
    mr_status status = mr_file_write_whole(folder, "profile.pb.gz", packed, len, ret_error);
    free(packed);
    char *text = mr_output_folded(&profile, 1, MR_PROFILE_ROOT_THREAD, &len);
    if (status == MR_OK) {
        status = mr_file_write_whole(folder, "profile.folded", text, len, ret_error);
    }
    free(text);
    mr_profile_done(&profile);
    struct mr_error heap_error;
    if (status == MR_OK && mr_heap_is_active() && mr_heap_profile(&profile, &heap_error) == MR_OK) {
        packed = mr_output_pprof(&profile, &len);
        status = mr_file_write_whole(folder, "heap.pb.gz", packed, len, ret_error);
        free(packed);
        mr_profile_done(&profile);
    }
    return status;
}

static mr_status write_metrics(const char *folder, struct mr_error *ret_error)
{
    size_t size = METRICS_FIRST;
    uint8_t *text = NULL;
    struct mr_buffer out;
    do {
        text = MR_REALLOC(text, size);
        out = mr_buffer_init(text, size);
        mr_monitor_write_metrics(state.monitor, &out);
        size *= 2;
    } while (out.full);
    mr_status status =
        mr_file_write_whole(folder, "metrics.txt", text, (size_t)(out.at - text), ret_error);
    free(text);
    return status;
}

/* One line a second, and why there is a capture. */
static mr_status write_state(const char *folder, const char *reason, struct mr_error *ret_error)
{
    struct mr_monitor_sample *seconds = MR_NEW_ARRAY(struct mr_monitor_sample, HISTORY_S + 2);
    int64_t after_ms = mr_wall_ns() / 1000000 - HISTORY_S * INT64_C(1000);
    uint32_t count = mr_monitor_history(state.monitor, after_ms, seconds, HISTORY_S + 2);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    MR_ASSERT(out != NULL);
    fprintf(out, "# %s\n", reason);
    fputs("# time_ms state bottleneck changes/s acknowledged/s in_flight lag_bytes flush_p99_s "
          "latency_p99_s cpu resident_bytes\n",
          out);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_monitor_sample *second = &seconds[i];
        fprintf(out,
                "%" PRId64 " %s %s %.0f %.0f %" PRIu64 " %" PRIu64 " %.6f %.6f %.2f %" PRIu64 "\n",
                second->time_ms, mr_state_name(second->state), mr_stage_name(second->stage),
                (double)second->changes_rate, (double)second->records_rate,
                second->messages_in_flight, second->lag_bytes, (double)second->flush_p99,
                (double)second->latency_p99, (double)second->cpu, second->resident_bytes);
    }
    fclose(out);
    mr_status status = mr_file_write_whole(folder, "state.txt", text, len, ret_error);
    free(text);
    free(seconds);
    return status;
}

/* ---- folders ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Captures are flat folders named by time; anything else in `path` is left alone. */
static void remove_capture(const char *name)
{
    static const char *const files[] = {"profile.pb.gz", "profile.folded", "heap.pb.gz",
                                        "metrics.txt", "state.txt"};
    char path[PATH_MAX];
    for (size_t i = 0; i < MR_ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", state.options.path, name, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/%s", state.options.path, name);
    rmdir(path);
}

static void remove_old(void)
{
    char(*names)[NAME_BYTES] = NULL;
    size_t count = 0;
    DIR *folder = opendir(state.options.path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        size_t size = strlen(entry->d_name) + 1;
        if (strncmp(entry->d_name, "capture-", 8) == 0 && size <= NAME_BYTES) {
            names = MR_REALLOC(names, sizeof(*names) * (count + 1));
            memcpy(names[count++], entry->d_name, size);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (count > state.options.keep) {
        qsort(names, count, sizeof(*names), by_name);
        for (size_t i = 0; i < count - state.options.keep; i++) {
            remove_capture(names[i]);
        }
    }
    free(names);
}

static mr_status make_folder(const char *limit, char *ret, size_t size, struct mr_error *ret_error)
{
    time_t now = time(NULL);
    struct tm utc;
    char when[32];
    strftime(when, sizeof(when), "%Y-%m-%d-%H_%M_%S", gmtime_r(&now, &utc));
    snprintf(ret, size, "%s/capture-%s-%s", state.options.path, when, limit);
    if (mkdir(ret, 0750) != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "the folder \"%s\" can't be made: %s", ret,
                       strerror(errno));
    }
    return MR_OK;
}

static mr_status capture(const char *limit, const char *reason, struct mr_error *ret_error)
{
    char folder[PATH_MAX];
    MR_TRY(make_folder(limit, folder, sizeof(folder), ret_error));
    MR_TRY(write_state(folder, reason, ret_error));
    MR_TRY(write_profiles(folder, ret_error));
    MR_TRY(write_metrics(folder, ret_error));
    mr_log(MR_LOG_WARN, "captured", reason, MR_LOG_STR("folder", folder));
    atomic_fetch_add(&state.count, 1);
    return MR_OK;
}

/* ---- the thread ---- */

static void look(void)
{
    int64_t now_ns = mr_monotonic_ns();
    if (state.last_ns != 0 && now_ns - state.last_ns < state.options.pause_ms * 1000000) {
        return;
    }
    struct mr_monitor_sample second;
    char reason[160];
    int64_t after_ms = mr_wall_ns() / 1000000 - 2 * LOOK_MS;
    if (mr_monitor_history(state.monitor, after_ms, &second, 1) == 0) {
        return;
    }
    const char *limit = mr_capture_passed(&state.options, &second, reason, sizeof(reason));
    if (limit == NULL) {
        return;
    }
    state.last_ns = now_ns;
    struct mr_error error;
    if (capture(limit, reason, &error) != MR_OK) {
        mr_log(MR_LOG_WARN, "capture_failed", error.text);
    }
    remove_old();
}

static void *capture_main(void *context)
{
    (void)context;
    prctl(PR_SET_NAME, "mr-capture");
    mr_thread_begin(MR_THREAD_PROFILER, "mr-capture");
    struct pollfd stop = {.fd = state.stop_fd, .events = POLLIN};
    /* An interrupted wait only looks earlier. */
    while (poll(&stop, 1, LOOK_MS) <= 0) {
        look();
    }
    mr_thread_end();
    return NULL;
}

mr_status mr_capture_start(const struct mr_capture_options *options, struct mr_monitor *monitor,
                           struct mr_error *ret_error)
{
    MR_TRY(mr_file_make_folder(options->path, "profiling.capture_path", ret_error));
    state.options = *options;
    state.monitor = monitor;
    state.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = mr_thread_create(&state.thread, capture_main, NULL);
    if (failed != 0) {
        return mr_fail(ret_error, MR_ERR_SYSTEM, "a thread for captures can't be started: %s",
                       strerror(failed));
    }
    state.running = true;
    return MR_OK;
}

void mr_capture_stop(void)
{
    if (state.running) {
        eventfd_write(state.stop_fd, 1);
        pthread_join(state.thread, NULL);
        close(state.stop_fd);
        state.running = false;
    }
}

uint64_t mr_capture_count(void)
{
    return atomic_load(&state.count);
}
