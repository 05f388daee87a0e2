/* What the operating system and the allocator say of this process. Linux's /proc; any thread. */
#pragma once

#include "base/base.h"

struct mr_process {
    double cpu_seconds;
    uint64_t resident_bytes, resident_peak_bytes, virtual_bytes;
    uint32_t open_fds, max_fds, threads;
    double start_time; /* seconds since 1970 */
    bool has_jemalloc;
    uint64_t jemalloc_allocated, jemalloc_active, jemalloc_resident;
    uint64_t allocations; /* of ours, since the start */
};

/* Takes some tens of microseconds. What can't be read stays 0. */
void mr_process_read(struct mr_process *ret);

/* CPU time and resident memory alone, at a quarter of the cost; the rest stays as it was. */
void mr_process_sample(struct mr_process *ret);

enum { MR_PROCESS_THREADS_MAX = 64, MR_THREAD_NAME_SIZE = 16 };

/* CPU time of the threads of one name. */
struct mr_thread_time {
    char name[MR_THREAD_NAME_SIZE];
    uint64_t cpu_ns;
    uint64_t wait_ns; /* ready, but without a CPU */
};

struct mr_process_threads {
    struct mr_thread_time items[MR_PROCESS_THREADS_MAX];
    uint32_t count;
};

/* Two files a thread. */
void mr_process_threads(struct mr_process_threads *ret);

/* CPU time of one thread, with the time it was ready without a CPU: a thread that gets no CPU is at
 * its limit as well. */
uint64_t mr_process_busy_ns(int tid);

/* "jemalloc" or "libc". */
const char *mr_process_allocator(void);
