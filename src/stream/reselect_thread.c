/* The thread that asks: mr_pg_connect and libpq wait, which the stream's must not. It is made with
 * the first question. */
#include <poll.h>
#include <sys/prctl.h>

#include "base/thread.h"
#include "base/wake.h"
#include "stream/reselect.h"

/* With nothing to do for so long, the connection is given up: it would hold up a server that stops
 * in order. */
enum { KEPT_MS = 2000 };

struct asker_thread {
    struct mr_reselect_asker base;
    const struct mr_pg_source_options *options;
    struct mr_pg_home *home;
    struct mr_reselector *reselector; /* NULL: the thread does not run */
    pthread_t thread;
    int stop_fd, asked_fd;
    _Atomic(struct mr_reselect_round *) round; /* NULL: nothing is asked */
};

static struct asker_thread *thread_of(struct mr_reselect_asker *asker)
{
    return (struct asker_thread *)asker;
}

static void *asker_main(void *context)
{
    struct asker_thread *thread = context;
    struct pollfd fds[2] = {{.fd = thread->stop_fd, .events = POLLIN},
                            {.fd = thread->asked_fd, .events = POLLIN}};
    prctl(PR_SET_NAME, "mr-reselect");
    mr_thread_begin(MR_THREAD_SOURCE, "mr-reselect");
    for (int wait_ms = -1;;) {
        int ready = poll(fds, 2, wait_ms);
        if (ready > 0 && fds[0].revents != 0) {
            break;
        }
        mr_wake_clear(thread->asked_fd);
        struct mr_reselect_round *round = atomic_load(&thread->round);
        wait_ms = round != NULL ? KEPT_MS : -1;
        if (round == NULL && ready == 0) {
            mr_reselector_rest(thread->reselector);
        } else if (round != NULL) {
            mr_reselector_answer(thread->reselector, round->questions, round->count,
                                 round->deadline_ns);
            atomic_store(&thread->round, NULL);
            atomic_store(&round->is_done, true);
            mr_wake(thread->base.done_fd);
        }
    }
    mr_thread_end();
    return NULL;
}

static bool thread_ask(struct mr_reselect_asker *asker, struct mr_reselect_round *round)
{
    struct asker_thread *thread = thread_of(asker);
    struct mr_error error;
    MR_ASSERT(atomic_load(&thread->round) == NULL);
    if (thread->reselector == NULL) {
        mr_wake_clear(thread->stop_fd);
        thread->reselector = mr_reselector_new(thread->options, thread->home, thread->stop_fd);
        if (mr_thread_create(&thread->thread, asker_main, thread, &error) != MR_OK) {
            mr_log(MR_LOG_WARN, "reselect_refused", error.text);
            mr_reselector_free(thread->reselector);
            thread->reselector = NULL;
            return false;
        }
    }
    atomic_store(&thread->round, round);
    mr_wake(thread->asked_fd);
    return true;
}

static void reselect_thread_end(struct mr_reselect_asker *asker)
{
    struct asker_thread *thread = thread_of(asker);
    if (thread->reselector == NULL) {
        return;
    }
    mr_wake(thread->stop_fd);
    pthread_join(thread->thread, NULL);
    mr_reselector_free(thread->reselector);
    thread->reselector = NULL;
    atomic_store(&thread->round, NULL);
    mr_wake_clear(thread->base.done_fd);
    mr_wake_clear(thread->asked_fd);
}

struct mr_reselect_asker *mr_reselect_thread_new(const struct mr_pg_source_options *options,
                                                 struct mr_pg_home *home)
{
    struct asker_thread *thread = MR_NEW(struct asker_thread);
    thread->base = (struct mr_reselect_asker){
        .ask = thread_ask, .end = reselect_thread_end, .done_fd = mr_wake_new()};
    thread->options = options;
    thread->home = home;
    thread->stop_fd = mr_wake_new();
    thread->asked_fd = mr_wake_new();
    return &thread->base;
}

void mr_reselect_thread_free(struct mr_reselect_asker *asker)
{
    struct asker_thread *thread = thread_of(asker);
    if (thread == NULL) {
        return;
    }
    reselect_thread_end(asker);
    close(thread->stop_fd);
    close(thread->asked_fd);
    close(thread->base.done_fd);
    free(thread);
}
