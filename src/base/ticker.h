/* A thread that does one thing again and again until it is stopped. It only looks on: what it asks
 * for is not counted as the flow's (mr_alloc_leave_out). The owner starts and stops it, and keeps
 * what it works on until it has stopped. */
#pragma once

#include <pthread.h>

#include "base/base.h"

struct mr_ticker {
    const char *name;           /* the thread's, 15 bytes at most */
    int (*tick)(void *context); /* on the thread; answers in how many ms it is called again */
    void *context;
    int first_ms; /* until the first call */
    int stop_fd;  /* readable: the thread is to end */
    int wake_fd;  /* readable: the next call is to come now */
    bool runs;
    pthread_t thread;
};

void mr_ticker_init(struct mr_ticker *ticker, const char *name, int (*tick)(void *context),
                    void *context);
mr_status mr_ticker_start(struct mr_ticker *ticker, int first_ms, struct mr_error *ret_error);

/* The next call comes now. Any thread. */
void mr_ticker_hurry(struct mr_ticker *ticker);

/* Waits for the call at hand. One that does not run: nothing. */
void mr_ticker_stop(struct mr_ticker *ticker);

/* After stop. */
void mr_ticker_done(struct mr_ticker *ticker);
