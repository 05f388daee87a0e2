/* Preloaded into a program: its wall clock is wrong by as many nanoseconds as the first eight bytes
 * of the file TEST_CLOCK say, at each moment. tests/test_clock.py sets it. (libfaketime and
 * jemalloc do not stand each other.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void map(void)
{
    int fd = open(getenv("TEST_CLOCK"), O_RDONLY);
    void *at = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        abort();
    }
    shift = at;
}

static void add(struct timespec *at, int64_t ns)
{
    int64_t whole = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + ns;
    at->tv_sec = whole / 1000000000;
    at->tv_nsec = whole % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int code = (int)syscall(SYS_clock_gettime, clock, ret);
    if (clock == CLOCK_REALTIME && code == 0 && shift != NULL) {
        add(ret, *shift);
    }
    return code;
}

int timespec_get(struct timespec *ret, int base)
{
    return clock_gettime(CLOCK_REALTIME, ret) == 0 ? base : 0;
}

int gettimeofday(struct timeval *ret, void *zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret != NULL) {
        *ret = now.tv_sec;
    }
    return now.tv_sec;
}

/* librdkafka's waits end by the wall clock, and the kernel's is right. millrace's own end by the
 * time since the machine's start, which is a smaller number. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (real == NULL) {
        /* Without the version it may be that of before 2003. */
        void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        found = found == NULL ? dlsym(RTLD_NEXT, "pthread_cond_timedwait") : found;
        real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))found;
    }
    struct timespec right = *until;
    if (right.tv_sec > 1000000000 && shift != NULL) {
        add(&right, -*shift);
    }
    return real(condition, mutex, &right);
}
