#include "base/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

enum {
    SLOTS = 256, /* a power of two: 1 MiB, of which pages are touched as they are used */
    RETRY_MS = 100,
    STOP_MS = 1000, /* the longest wait for a reader at the end */
};

/* A slot's turn says whose it is: `n` that the n-th line may be put there, `n + 1` that it is there. */
struct slot {
    _Atomic uint64_t turn;
    size_t len;
    char line[MR_LOG_LINE_MAX];
};

static struct slot slots[SLOTS];
static _Alignas(64) _Atomic uint64_t put; /* lines so far that got a slot */
static _Alignas(64) _Atomic uint64_t dropped;
static sem_t filled;
static sem_t ended;
static _Atomic bool running;
static _Atomic bool stopping;
static mr_log_dropped_fn tell_dropped;

uint64_t mr_log_dropped(void)
{
    return atomic_load_explicit(&dropped, memory_order_relaxed);
}

static void drop(void)
{
    atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
}

/* Without a thread: a full pipe is asked, not waited for. */
static void write_at_once(const char *line, size_t len)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 ||
        write(STDERR_FILENO, line, len) < 0) {
        drop();
    }
}

void mr_log_emit(const char *line, size_t len)
{
    MR_ASSERT(len <= MR_LOG_LINE_MAX);
    if (!atomic_load(&running)) {
        write_at_once(line, len);
        return;
    }
    uint64_t at = atomic_load_explicit(&put, memory_order_relaxed);
    struct slot *slot;
    for (;;) {
        slot = &slots[at % SLOTS];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn < at) { /* its last line is not written yet */
            drop();
            return;
        }
        if (turn > at) { /* another thread was quicker */
            at = atomic_load_explicit(&put, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak(&put, &at, at + 1)) {
            break;
        }
    }
    memcpy(slot->line, line, len);
    slot->len = len;
    atomic_store_explicit(&slot->turn, at + 1, memory_order_release);
    sem_post(&filled);
}

/* All of it, however long that takes; false when standard error refuses it (a full disk, nobody at the other end).
 * A line that was cut off gets an end before the next. */
static bool write_whole(const char *line, size_t len)
{
    static bool torn;
    if (torn) {
        torn = false;
        torn = !write_whole("\n", 1);
    }
    size_t whole = len;
    while (len > 0) {
        ssize_t written = write(STDERR_FILENO, line, len);
        if (written >= 0) {
            line += written;
            len -= (size_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&ready, 1, RETRY_MS);
        } else if (errno != EINTR) {
            torn = torn || len < whole;
            return false;
        }
    }
    return true;
}

static void write_slot(struct slot *slot, uint64_t *told)
{
    if (!write_whole(slot->line, slot->len)) {
        drop();
        return;
    }
    uint64_t missing = mr_log_dropped() - *told;
    if (missing > 0) {
        char line[MR_LOG_LINE_MAX];
        if (write_whole(line, tell_dropped(line, missing))) {
            *told += missing;
        }
    }
}

static void *writer_main(void *context)
{
    (void)context;
    prctl(PR_SET_NAME, "mr-log");
    uint64_t told = 0;
    for (uint64_t at = 0;; at++) {
        while (sem_wait(&filled) != 0) {
        }
        struct slot *slot = &slots[at % SLOTS];
        /* A stop's post has no line. A later slot may be filled before an earlier one, for an instant. */
        while (atomic_load_explicit(&slot->turn, memory_order_acquire) != at + 1) {
            if (atomic_load(&stopping) && at == atomic_load(&put)) {
                sem_post(&ended);
                return NULL;
            }
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        }
        write_slot(slot, &told);
        atomic_store_explicit(&slot->turn, at + SLOTS, memory_order_release);
    }
}

void mr_log_start(void)
{
    MR_ASSERT(!atomic_load(&running));
    for (uint64_t i = 0; i < SLOTS; i++) {
        atomic_store(&slots[i].turn, i);
    }
    atomic_store(&put, 0);
    atomic_store(&stopping, false);
    sem_init(&filled, 0, 0);
    sem_init(&ended, 0, 0);
    pthread_t thread;
    if (mr_thread_create(&thread, writer_main, NULL) == 0) {
        pthread_detach(thread); /* one that hangs in a write can't be joined */
        atomic_store(&running, true);
    }
}

void mr_log_stop(void)
{
    if (!atomic_load(&running)) {
        return;
    }
    atomic_store(&stopping, true);
    sem_post(&filled);
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += STOP_MS / 1000;
    while (sem_clockwait(&ended, CLOCK_MONOTONIC, &limit) != 0 && errno == EINTR) {
    }
    atomic_store(&running, false);
}

void mr_log_writer_tell(mr_log_dropped_fn tell)
{
    tell_dropped = tell;
}
