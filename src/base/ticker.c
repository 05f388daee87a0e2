#include "base/ticker.h"

#include <sys/prctl.h>

#include "base/thread.h"
#include "base/wake.h"

void mr_ticker_init(struct mr_ticker *ticker, const char *name, int (*tick)(void *context),
                    void *context)
{
    *ticker = (struct mr_ticker){.name = name, .tick = tick, .context = context};
    ticker->stop_fd = mr_wake_new();
    ticker->wake_fd = mr_wake_new();
}

static void *ticker_main(void *context)
{
    const struct mr_ticker *ticker = context;
    prctl(PR_SET_NAME, ticker->name);
    mr_alloc_leave_out();
    mr_thread_begin(MR_THREAD_MONITOR, ticker->name);
    for (int ms = ticker->first_ms; !mr_wait_either(ticker->stop_fd, ticker->wake_fd, ms);) {
        mr_wake_clear(ticker->wake_fd);
        ms = ticker->tick(ticker->context);
    }
    mr_thread_end();
    return NULL;
}

mr_status mr_ticker_start(struct mr_ticker *ticker, int first_ms, struct mr_error *ret_error)
{
    ticker->first_ms = first_ms;
    MR_TRY(mr_thread_create(&ticker->thread, ticker_main, ticker, ret_error));
    ticker->runs = true;
    return MR_OK;
}

void mr_ticker_hurry(struct mr_ticker *ticker)
{
    mr_wake(ticker->wake_fd);
}

void mr_ticker_stop(struct mr_ticker *ticker)
{
    if (ticker->runs) {
        mr_wake(ticker->stop_fd);
        pthread_join(ticker->thread, NULL);
        ticker->runs = false;
    }
}

void mr_ticker_done(struct mr_ticker *ticker)
{
    MR_ASSERT(!ticker->runs);
    close(ticker->stop_fd);
    close(ticker->wake_fd);
}
