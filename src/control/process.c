#include "control/process.h"

#include <dirent.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/jemalloc.h"

/* The value of a line "Name:  123 kB" of /proc/self/status. */
static uint64_t status_number(const char *status, const char *name)
{
    const char *at = strstr(status, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static uint32_t count_entries(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return 0;
    }
    uint32_t count = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count - 1; /* the folder's own descriptor */
}

/* That of the first look, a moment after the start. */
static double start_time(void)
{
    static double known;
    known = known == 0 ? (double)mr_wall_ns() / 1e9 : known;
    return known;
}

static uint64_t jemalloc_size(const char *name)
{
    size_t value = 0;
    size_t size = sizeof(value);
    return mallctl(name, &value, &size, NULL, 0) == 0 ? value : 0;
}

static void read_jemalloc(struct mr_process *ret)
{
    if (mallctl == NULL) {
        return;
    }
    /* Its figures stand still until the epoch is set. */
    uint64_t epoch = 1;
    size_t size = sizeof(epoch);
    mallctl("epoch", &epoch, &size, &epoch, size);
    ret->has_jemalloc = true;
    ret->jemalloc_allocated = jemalloc_size("stats.allocated");
    ret->jemalloc_active = jemalloc_size("stats.active");
    ret->jemalloc_resident = jemalloc_size("stats.resident");
}

const char *mr_process_allocator(void)
{
    return mallctl == NULL ? "libc" : "jemalloc";
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

void mr_process_sample(struct mr_process *ret)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    ret->cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    char pages[64];
    if (mr_file_read_head("/proc/self/statm", pages,
                          sizeof(pages))) { /* of all, then of what is resident */
        ret->resident_bytes = strtoull(strchrnul(pages, ' '), NULL, 10) * (size_t)getpagesize();
    }
}

void mr_process_read(struct mr_process *ret)
{
    *ret = (struct mr_process){0};
    mr_process_sample(ret);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    ret->max_fds = limit.rlim_cur > UINT32_MAX ? UINT32_MAX : (uint32_t)limit.rlim_cur;
    char status[4096];
    if (mr_file_read_head("/proc/self/status", status, sizeof(status))) {
        ret->resident_peak_bytes = status_number(status, "VmHWM:") * 1024;
        ret->virtual_bytes = status_number(status, "VmSize:") * 1024;
        ret->threads = (uint32_t)status_number(status, "Threads:");
    }
    ret->open_fds = count_entries("/proc/self/fd");
    ret->start_time = start_time();
    ret->allocations = mr_alloc_count();
    read_jemalloc(ret);
}

/* The line of that name, which may be new; NULL: there is no room. */
static struct mr_thread_time *process_line_of(struct mr_process_threads *threads, const char *name)
{
    for (uint32_t i = 0; i < threads->count; i++) {
        if (strcmp(threads->items[i].name, name) == 0) {
            return &threads->items[i];
        }
    }
    if (threads->count == MR_PROCESS_THREADS_MAX) {
        return NULL;
    }
    struct mr_thread_time *line = &threads->items[threads->count++];
    *line = (struct mr_thread_time){0};
    snprintf(line->name, sizeof(line->name), "%.15s", name);
    return line;
}

/* /proc/self/task/N/schedstat: nanoseconds on a CPU, nanoseconds ready without one, turns. */
static void add_times(const char *id, struct mr_thread_time *line)
{
    char path[64], times[96];
    snprintf(path, sizeof(path), "/proc/self/task/%.10s/schedstat", id);
    if (mr_file_read_head(path, times, sizeof(times))) {
        char *rest;
        line->cpu_ns += strtoull(times, &rest, 10);
        line->wait_ns += strtoull(rest, NULL, 10);
    }
}

uint64_t mr_process_busy_ns(int tid)
{
    char id[12];
    struct mr_thread_time times = {.cpu_ns = 0};
    snprintf(id, sizeof(id), "%d", tid);
    add_times(id, &times);
    return times.cpu_ns + times.wait_ns;
}

static void add_thread(struct mr_process_threads *threads, const char *id)
{
    char path[64], name[MR_THREAD_NAME_SIZE + 1];
    snprintf(path, sizeof(path), "/proc/self/task/%.10s/comm", id);
    if (!mr_file_read_head(path, name, sizeof(name))) {
        return; /* it has ended */
    }
    name[strcspn(name, "\n")] = '\0';
    struct mr_thread_time *line = process_line_of(threads, name);
    if (line != NULL) {
        add_times(id, line);
    }
}

void mr_process_threads(struct mr_process_threads *ret)
{
    ret->count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            add_thread(ret, entry->d_name);
        }
    }
    closedir(folder);
}
