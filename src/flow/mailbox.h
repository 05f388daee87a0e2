/* Commands for the source thread: another thread writes a command, and waits for the answer. The
 * thread looks once a round, at one atomic; a command never waits for the flow, and the flow never
 * for a command.
 *
 * A stop is none of them: it cuts short what a command would have to wait for (a claim, a pause),
 * and nothing waits for its answer. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

/* The first member of the asker's own structure, which holds what `run` needs and what it finds
 * out. */
struct mr_command {
    /* On the source thread, between two transactions: the next one begins after it. */
    mr_status (*run)(struct mr_command *command, struct mr_error *ret_error);

    /* The mailbox's own. */
    struct mr_command *next;
    bool answered;
    mr_status status;
    struct mr_error error;
};

struct mr_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t answer;
    struct mr_command *first; /* in order of asking */
    bool closed;
    _Atomic uint32_t waiting; /* how many */
};

void mr_mailbox_init(struct mr_mailbox *mailbox);
void mr_mailbox_done(struct mr_mailbox *mailbox);

/* Asks, and waits: what `run` answered; MR_ERR_DEADLINE when it was not its turn in time, and won't
 * be any more; MR_AGAIN when the source thread has ended. Wakes the thread through `wake_fd`. Any
 * thread but that one. */
mr_status mr_mailbox_ask(struct mr_mailbox *mailbox, struct mr_command *command, int wake_fd,
                         uint32_t deadline_ms, struct mr_error *ret_error);

/* A command waits for this transaction not to begin. Source thread. */
static inline bool mr_mailbox_wants_pause(const struct mr_mailbox *mailbox)
{
    return MR_UNLIKELY(atomic_load_explicit(&mailbox->waiting, memory_order_relaxed) > 0);
}

/* Runs and answers the commands. Source thread, between two transactions. */
void mr_mailbox_serve(struct mr_mailbox *mailbox);

/* Answers all there are, and all that come, with MR_AGAIN. Source thread. */
void mr_mailbox_close(struct mr_mailbox *mailbox);
