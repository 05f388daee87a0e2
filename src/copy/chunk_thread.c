#include "copy/chunk_thread.h"

#include <poll.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/wake.h"
#include "flow/port.h"

/* With nothing to do for so long, the connection is given up: it would hold up a server that stops
 * in order. */
enum { KEPT_MS = 2000 };

void mr_chunk_thread_init(struct mr_chunk_thread *thread, const struct mr_copy_server *server,
                          struct mr_port *port)
{
    *thread = (struct mr_chunk_thread){.server = server, .port = port};
    thread->stop_fd = mr_wake_new();
    thread->asked_fd = mr_wake_new();
}

static mr_status run_job(struct mr_chunk_thread *thread, struct mr_chunk_job *job)
{
    const struct mr_chunk_ops *ops = thread->server->chunks;
    switch (job->kind) {
    case MR_CHUNK_JOB_FIND:
        return ops->find(thread->reader, job->wish.named_schema, job->wish.named_table,
                         job->wish.key, &job->tables, &job->table_count, &job->error);
    case MR_CHUNK_JOB_NUMBER:
        return ops->number(thread->reader, &job->xid, &job->error);
    case MR_CHUNK_JOB_HOLDER:
        return ops->holder(thread->reader, job->xid, job->holder, &job->error);
    case MR_CHUNK_JOB_READ:
        break;
    }
    return ops->read(thread->reader, &job->wish, &thread->chunk, &job->error);
}

static bool wait_for_job(struct mr_chunk_thread *thread)
{
    struct pollfd fds[2] = {{.fd = thread->stop_fd, .events = POLLIN},
                            {.fd = thread->asked_fd, .events = POLLIN}};
    int wait_ms = KEPT_MS;
    while (mr_chunk_thread_state(thread) != MR_CHUNK_JOB_ASKED && fds[0].revents == 0) {
        if (poll(fds, 2, wait_ms) == 0) {
            thread->server->chunks->rest(thread->reader);
            wait_ms = -1;
        }
        mr_wake_clear(thread->asked_fd);
    }
    return fds[0].revents == 0;
}

static void *thread_main(void *context)
{
    struct mr_chunk_thread *thread = context;
    prctl(PR_SET_NAME, "mr-chunks");
    mr_thread_begin(MR_THREAD_SOURCE, "mr-chunks");
    while (wait_for_job(thread)) {
        struct mr_chunk_job *job = &thread->job;
        int64_t begun_ns = mr_monotonic_ns();
        job->status = run_job(thread, job);
        job->ns = mr_monotonic_ns() - begun_ns;
        if (job->status != MR_OK) {
            thread->server->chunks->rest(thread->reader); /* whatever failed: it connects again */
        }
        atomic_store_explicit(&thread->state, MR_CHUNK_JOB_DONE, memory_order_release);
        mr_port_wake(thread->port);
    }
    mr_thread_end();
    return NULL;
}

mr_status mr_chunk_thread_begin(struct mr_chunk_thread *thread, struct mr_error *ret_error)
{
    if (thread->reader != NULL) {
        return MR_OK;
    }
    mr_wake_clear(thread->stop_fd);
    thread->reader = thread->server->chunks->new (thread->server->context, thread->stop_fd);
    mr_status status = mr_thread_create(&thread->thread, thread_main, thread, ret_error);
    if (status != MR_OK) {
        thread->server->chunks->free(thread->reader);
        thread->reader = NULL;
    }
    return status;
}

void mr_chunk_thread_end(struct mr_chunk_thread *thread)
{
    if (thread->reader == NULL) {
        return;
    }
    mr_wake(thread->stop_fd);
    pthread_join(thread->thread, NULL);
    thread->server->chunks->free(thread->reader);
    thread->reader = NULL;
    if (mr_chunk_thread_state(thread) == MR_CHUNK_JOB_DONE) {
        free(thread->job.tables);
    }
    thread->job = (struct mr_chunk_job){0};
    thread->chunk.relation = NULL;
    atomic_store(&thread->state, MR_CHUNK_JOB_IDLE);
}

void mr_chunk_thread_done(struct mr_chunk_thread *thread)
{
    mr_chunk_thread_end(thread);
    mr_chunk_done(&thread->chunk);
    close(thread->stop_fd);
    close(thread->asked_fd);
}

void mr_chunk_thread_ask(struct mr_chunk_thread *thread, const struct mr_chunk_job *job)
{
    MR_ASSERT(mr_chunk_thread_state(thread) == MR_CHUNK_JOB_IDLE);
    thread->job = *job;
    atomic_store_explicit(&thread->state, MR_CHUNK_JOB_ASKED, memory_order_release);
    mr_wake(thread->asked_fd);
}

void mr_chunk_thread_take(struct mr_chunk_thread *thread, struct mr_chunk_job *ret_job)
{
    MR_ASSERT(mr_chunk_thread_state(thread) == MR_CHUNK_JOB_DONE);
    *ret_job = thread->job;
    thread->job = (struct mr_chunk_job){0};
    atomic_store_explicit(&thread->state, MR_CHUNK_JOB_IDLE, memory_order_release);
}
