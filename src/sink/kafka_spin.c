#include "sink/kafka_spin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

enum {
    FIRST_SOUND_VERSION = 0x02040000,
    /* A turn of the loop reads the clock two or three times within a microsecond or two; what serves a request does more between
     * two readings. */
    NEAR_NS = 5000,
    NEAR_READINGS = 32,
    /* What a timer may be late by, and what an answer may wait that comes meanwhile; so may whoever sets a timer, for one
     * reading of each turn is under the timers' lock (rd_kafka_timers_run). */
    NAP_NS = 300000,
};

struct watch {
    bool on;
    unsigned near; /* readings, each close behind the one before */
    int64_t last_ns;
};

static _Thread_local struct watch watch;
static int (*libc_clock_gettime)(clockid_t clock, struct timespec *ret_now);

/* Whatever comes next in the order of symbols: libc's, or a sanitizer's in front of it. */
__attribute__((constructor)) static void find_next(void)
{
    void *found = dlsym(RTLD_NEXT, "clock_gettime");
    memcpy(&libc_clock_gettime, &found, sizeof(found));
}

static int read_clock(clockid_t clock, struct timespec *ret_now)
{
    /* Libraries may ask before constructors have run. */
    return libc_clock_gettime == NULL ? (int)syscall(SYS_clock_gettime, clock, ret_now)
                                      : libc_clock_gettime(clock, ret_now);
}

static int64_t ns_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Whether it slept, so that what it has read is old. */
static bool nap_if_spinning(int64_t now_ns)
{
    watch.near = now_ns - watch.last_ns < NEAR_NS ? watch.near + 1 : 0;
    watch.last_ns = now_ns;
    if (watch.near < NEAR_READINGS) {
        return false;
    }
    int error = errno;
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    errno = error;
    watch.near = 0;
    return true;
}

/* For the whole process, in place of libc's. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = read_clock(clock, now);
    if (MR_UNLIKELY(watch.on) && clock == CLOCK_MONOTONIC && nap_if_spinning(ns_of(now))) {
        result = read_clock(clock, now);
    }
    return result;
}

bool mr_kafka_spins(int version)
{
    return version < FIRST_SOUND_VERSION;
}

void mr_kafka_spin_watch(void)
{
    watch.on = true;
}
