#include "flow/mailbox.h"

#include "base/clock.h"
#include "base/thread.h"
#include "flow/pipeline_internal.h"

void mr_mailbox_init(struct mr_mailbox *mailbox)
{
    mr_cond_init(&mailbox->answer);
    pthread_mutex_init(&mailbox->lock, NULL);
}

void mr_mailbox_done(struct mr_mailbox *mailbox)
{
    MR_ASSERT(mailbox->first == NULL);
    pthread_mutex_destroy(&mailbox->lock);
    pthread_cond_destroy(&mailbox->answer);
}

static void mailbox_append(struct mr_mailbox *mailbox, struct mr_command *command)
{
    struct mr_command **last = &mailbox->first;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = command;
    atomic_fetch_add(&mailbox->waiting, 1);
}

/* Takes it out of the queue; false when it is not there (any more). */
static bool take_out(struct mr_mailbox *mailbox, struct mr_command *command)
{
    struct mr_command **at = &mailbox->first;
    while (*at != NULL && *at != command) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return false;
    }
    *at = command->next;
    atomic_fetch_sub(&mailbox->waiting, 1);
    return true;
}

static void mailbox_answer(struct mr_mailbox *mailbox, struct mr_command *command, mr_status status)
{
    MR_ASSERT(!command->answered);
    command->status = status;
    command->answered = true;
    pthread_cond_broadcast(&mailbox->answer);
}

mr_status mr_mailbox_ask(struct mr_mailbox *mailbox, struct mr_command *command, int wake_fd,
                         uint32_t deadline_ms, struct mr_error *ret_error)
{
    int64_t end_ns = mr_monotonic_ns() + (int64_t)deadline_ms * 1000000;
    MR_ASSERT(command->run != NULL);
    command->answered = false;
    command->next = NULL;
    pthread_mutex_lock(&mailbox->lock);
    if (mailbox->closed) {
        pthread_mutex_unlock(&mailbox->lock);
        return mr_fail(ret_error, MR_AGAIN, "the stream has ended");
    }
    mailbox_append(mailbox, command);
    mr_wake(wake_fd);
    while (!command->answered && mr_cond_wait_until(&mailbox->answer, &mailbox->lock, end_ns)) {
    }
    if (!command->answered && take_out(mailbox, command)) {
        mailbox_answer(
            mailbox, command,
            mr_fail(&command->error, MR_ERR_DEADLINE,
                    "the stream did not come to a point where it could be done in time"));
    }
    while (!command->answered) {
        pthread_cond_wait(&mailbox->answer, &mailbox->lock); /* it is being run */
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (command->status != MR_OK && ret_error != NULL) {
        *ret_error = command->error;
    }
    return command->status;
}

void mr_mailbox_serve(struct mr_mailbox *mailbox)
{
    if (MR_LIKELY(atomic_load_explicit(&mailbox->waiting, memory_order_relaxed) == 0)) {
        return;
    }
    pthread_mutex_lock(&mailbox->lock);
    for (struct mr_command *one; (one = mailbox->first) != NULL;) {
        take_out(mailbox, one);
        pthread_mutex_unlock(&mailbox->lock);
        mr_status status = one->run(one, &one->error);
        pthread_mutex_lock(&mailbox->lock);
        mailbox_answer(mailbox, one, status);
    }
    pthread_mutex_unlock(&mailbox->lock);
}

void mr_mailbox_close(struct mr_mailbox *mailbox)
{
    MR_HOLD(&mailbox->lock);
    mailbox->closed = true;
    while (mailbox->first != NULL) {
        struct mr_command *one = mailbox->first;
        take_out(mailbox, one);
        mailbox_answer(mailbox, one, mr_fail(&one->error, MR_AGAIN, "the stream has ended"));
    }
}
