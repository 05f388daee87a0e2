/* Threads that leave signals to the main thread. */
#ifndef MR_BASE_THREAD_H
#define MR_BASE_THREAD_H

#include <pthread.h>

/* pthread_create for a thread in which every signal is blocked, so that those that ask for a stop reach the main
 * thread; 0 or pthread_create's error. Any thread. */
int mr_thread_create(pthread_t *ret_thread, void *(*run)(void *context), void *context);

#endif
