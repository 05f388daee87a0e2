/* The thread that reads chunks: it does one job at a time for the source thread, which goes on
 * meanwhile. Inside copy/ only.
 *
 *   idle -> asked -> done -> idle
 *
 * From asked on the job is the reader's thread's, from done on the source thread's. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "copy/readers.h"
#include "ports/companion.h"

enum mr_chunk_job_kind {
    MR_CHUNK_JOB_FIND,
    MR_CHUNK_JOB_NUMBER,
    MR_CHUNK_JOB_HOLDER,
    MR_CHUNK_JOB_READ
};

enum mr_chunk_job_state { MR_CHUNK_JOB_IDLE, MR_CHUNK_JOB_ASKED, MR_CHUNK_JOB_DONE };

struct mr_chunk_job {
    enum mr_chunk_job_kind kind;
    uint64_t request;              /* the asker's own */
    struct mr_chunk_wish wish;     /* READ; FIND: what is named, and the key */
    struct mr_chunk_table *tables; /* FIND: the asker's to free */
    uint32_t table_count;
    uint32_t xid;                   /* NUMBER; HOLDER: whose it is */
    struct mr_chunk_holder *holder; /* HOLDER: the asker's, filled in */
    int64_t ns;                     /* how long it took */
    mr_status status;
    struct mr_error error;
};

struct mr_chunk_thread {
    const struct mr_copy_server *server;
    struct mr_port *port;           /* woken when a job is done */
    struct mr_chunk_reader *reader; /* NULL: it does not run */
    pthread_t thread;
    int stop_fd, asked_fd;
    _Atomic int state; /* enum mr_chunk_job_state */
    struct mr_chunk_job job;
    struct mr_chunk chunk; /* of the last READ */
};

/* Source thread. `begin` starts the thread if it does not run; `end` breaks off what it does and
 * waits for it. */
void mr_chunk_thread_init(struct mr_chunk_thread *thread, const struct mr_copy_server *server,
                          struct mr_port *port);
mr_status mr_chunk_thread_begin(struct mr_chunk_thread *thread, struct mr_error *ret_error);
void mr_chunk_thread_end(struct mr_chunk_thread *thread);
void mr_chunk_thread_done(struct mr_chunk_thread *thread);

static inline enum mr_chunk_job_state mr_chunk_thread_state(const struct mr_chunk_thread *thread)
{
    return (enum mr_chunk_job_state)atomic_load_explicit(&thread->state, memory_order_acquire);
}

/* Idle becomes asked; what `job` points to stays until it is done. */
void mr_chunk_thread_ask(struct mr_chunk_thread *thread, const struct mr_chunk_job *job);

/* Done becomes idle. */
void mr_chunk_thread_take(struct mr_chunk_thread *thread, struct mr_chunk_job *ret_job);
