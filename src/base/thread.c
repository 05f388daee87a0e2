#include "base/thread.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>

static const struct mr_thread_hooks *hooks;

_Thread_local volatile struct mr_thread_work mr_thread_work
    __attribute__((tls_model("initial-exec")));

mr_status mr_thread_create(pthread_t *ret_thread, void *(*run)(void *context), void *context,
                           struct mr_error *ret_error)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(ret_thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? MR_OK
                       : mr_fail(ret_error, MR_ERR_SYSTEM, "a thread can't be started: %s",
                                 strerror(failed));
}

int mr_thread_signals(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGHUP);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

void mr_cond_init(pthread_cond_t *ret_cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(ret_cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool mr_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t end_ns)
{
    struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    return pthread_cond_timedwait(cond, lock, &end) != ETIMEDOUT;
}

void mr_thread_hook(const struct mr_thread_hooks *wanted)
{
    hooks = wanted;
}

void mr_thread_begin(enum mr_thread_role role, const char *name)
{
    if (hooks != NULL) {
        hooks->begin(role, name);
    }
}

void mr_thread_end(void)
{
    if (hooks != NULL) {
        hooks->end();
    }
}
