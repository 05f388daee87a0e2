/* Threads: they leave signals to the main thread, and say who they are and what they work for. */
#pragma once

#include <pthread.h>

#include "base/base.h"

/* pthread_create for a thread in which every signal is blocked: they are the main thread's. Any
 * thread. */
mr_status mr_thread_create(pthread_t *ret_thread, void *(*run)(void *context), void *context,
                           struct mr_error *ret_error);

/* Holds a mutex to the end of the block, however that is left. */
#define MR_HOLD(mutex) MR_HOLD_AS(MR_JOIN(held_, __LINE__), mutex)
#define MR_HOLD_AS(name, mutex)                                                                    \
    pthread_mutex_t *name __attribute__((unused, cleanup(mr_let_go))) = mr_hold(mutex)
static inline pthread_mutex_t *mr_hold(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
static inline void mr_let_go(pthread_mutex_t **held)
{
    pthread_mutex_unlock(*held);
}

/* SIGTERM, SIGINT and SIGHUP come as reads of the descriptor, so that nothing of ours runs inside a
 * handler; -1: there is none left. Main thread, before it makes others. */
int mr_thread_signals(void);

/* A condition whose waits end by the monotonic clock. */
void mr_cond_init(pthread_cond_t *ret_cond);

/* pthread_cond_wait, until `end_ns` (monotonic) at most. false: that moment has come. */
bool mr_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t end_ns);

/* What a thread is for. */
enum mr_thread_role {
    MR_THREAD_MAIN,
    MR_THREAD_SOURCE,
    MR_THREAD_SINK,
    MR_THREAD_KAFKA, /* librdkafka's own */
    MR_THREAD_HTTP,
    MR_THREAD_MONITOR,
    MR_THREAD_PROFILER,
    MR_THREAD_ROLES
};

/* Who looks at threads, if anyone does: the profiler. Both are called in the thread itself. */
struct mr_thread_hooks {
    void (*begin)(enum mr_thread_role role, const char *name);
    void (*end)(void);
};

/* For threads that begin after this; before the first of them starts. `hooks` must live as long as
 * they do. */
void mr_thread_hook(const struct mr_thread_hooks *hooks);

/* The calling thread makes itself known; `name` is copied (15 bytes). In the thread's first
 * function: stacks are followed up to this call's frame and a little beyond. Again: no effect.
 * Without hooks: nothing. */
void mr_thread_begin(enum mr_thread_role role, const char *name);

/* The last that the thread does of note. Without a begin: no effect. */
void mr_thread_end(void);

/* What the calling thread works for; a signal handler in it may read this at any moment. */
struct mr_thread_work {
    const char *schema;
    const char *table; /* NULL: nothing in particular */
};
extern _Thread_local volatile struct mr_thread_work mr_thread_work
    __attribute__((tls_model("initial-exec")));

/* The table that the calling thread works for, until the next call; the texts must live until then.
 * NULL: none. Three stores. */
static inline void mr_thread_table(const char *schema, const char *table)
{
    mr_thread_work.table = NULL; /* the handler may come in between */
    mr_thread_work.schema = schema;
    mr_thread_work.table = table;
}
