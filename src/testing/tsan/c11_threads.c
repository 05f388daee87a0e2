/* C11's threads by way of POSIX's, in builds with the thread sanitizer only.
 *
 * librdkafka calls thrd_create and its kin, which the sanitizer of GCC 12 does not know: a thread made that way has
 * none of its state, and the first allocation in it crashes. In glibc the types have the same layout (a mtx_t is a
 * pthread_mutex_t), so it is enough to pass the calls on; the linker exports these in the C library's place. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

#include "base/base.h"

struct start {
    thrd_start_t function;
    void *argument;
};

static int result_of(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case ETIMEDOUT:
        return thrd_timedout;
    case ENOMEM:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

static void *run(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    return (void *)(intptr_t)start.function(start.argument);
}

int thrd_create(thrd_t *ret_thread, thrd_start_t function, void *argument)
{
    struct start *start = MR_NEW(struct start);
    *start = (struct start){.function = function, .argument = argument};
    int error = pthread_create(ret_thread, NULL, run, start);
    if (error != 0) {
        free(start);
    }
    return result_of(error);
}

int thrd_join(thrd_t thread, int *ret_result)
{
    void *result = NULL;
    int error = pthread_join(thread, &result);
    if (error == 0 && ret_result != NULL) {
        *ret_result = (int)(intptr_t)result;
    }
    return result_of(error);
}

static pthread_mutex_t *mutex_of(mtx_t *mutex)
{
    _Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "not glibc's");
    return (pthread_mutex_t *)(void *)mutex;
}

static pthread_cond_t *condition_of(cnd_t *condition)
{
    _Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "not glibc's");
    return (pthread_cond_t *)(void *)condition;
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, (type & mtx_recursive) != 0 ? PTHREAD_MUTEX_RECURSIVE
                                                                       : PTHREAD_MUTEX_NORMAL);
    int error = pthread_mutex_init(mutex_of(mutex), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return result_of(error);
}

int mtx_lock(mtx_t *mutex)
{
    return result_of(pthread_mutex_lock(mutex_of(mutex)));
}

int mtx_unlock(mtx_t *mutex)
{
    return result_of(pthread_mutex_unlock(mutex_of(mutex)));
}

/* librdkafka's own counts of references, which the sanitizer does not see, make sure that nobody has it any more; taking it
 * once more tells the sanitizer of those who had it before. */
void mtx_destroy(mtx_t *mutex)
{
    if (pthread_mutex_trylock(mutex_of(mutex)) == 0) {
        pthread_mutex_unlock(mutex_of(mutex));
    }
    pthread_mutex_destroy(mutex_of(mutex));
}

int cnd_init(cnd_t *condition)
{
    return result_of(pthread_cond_init(condition_of(condition), NULL));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return result_of(pthread_cond_wait(condition_of(condition), mutex_of(mutex)));
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until)
{
    return result_of(pthread_cond_timedwait(condition_of(condition), mutex_of(mutex), until));
}

int cnd_signal(cnd_t *condition)
{
    return result_of(pthread_cond_signal(condition_of(condition)));
}

int cnd_broadcast(cnd_t *condition)
{
    return result_of(pthread_cond_broadcast(condition_of(condition)));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy(condition_of(condition));
}
