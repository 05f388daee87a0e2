#include "base/log_writer.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/thread.h"

enum {
    SLOTS = 256, /* a power of two: 1 MiB, of which pages are touched as they are used */
    RETRY_MS = 100,
    STOP_MS = 1000, /* the longest wait for a reader at the end */
};

static struct slot {
    size_t len;
    char line[MR_LOG_LINE_MAX];
} slots[SLOTS];
/* Over those three; a slot between the two counts is the writer's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t put, taken; /* lines so far */
static bool running;

static _Atomic uint64_t dropped;
static sem_t filled; /* a post for each line, and one more for the end */
static sem_t ended;

uint64_t mr_log_dropped(void)
{
    return atomic_load_explicit(&dropped, memory_order_relaxed);
}

static void log_writer_drop(void)
{
    atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
}

/* Without a thread: a full pipe is asked, not waited for. */
static void write_at_once(const char *line, size_t len)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 ||
        write(STDERR_FILENO, line, len) < 0) {
        log_writer_drop();
    }
}

void mr_log_emit(const char *line, size_t len)
{
    MR_ASSERT(len <= MR_LOG_LINE_MAX);
    pthread_mutex_lock(&lock);
    bool runs = running;
    bool fits = runs && put - taken < SLOTS;
    if (fits) {
        struct slot *slot = &slots[put++ % SLOTS];
        memcpy(slot->line, line, len);
        slot->len = len;
    }
    pthread_mutex_unlock(&lock);
    if (fits) {
        sem_post(&filled);
    } else if (runs) {
        log_writer_drop();
    } else {
        write_at_once(line, len);
    }
}

/* All of it, however long that takes; false when standard error refuses it (a full disk, nobody at
 * the other end). A line that was cut off gets an end before the next. */
static bool log_writer_write_whole(const char *line, size_t len)
{
    static bool torn;
    if (torn) {
        torn = false;
        torn = !log_writer_write_whole("\n", 1);
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

static void write_slot(const struct slot *slot, uint64_t *reported)
{
    if (!log_writer_write_whole(slot->line, slot->len)) {
        log_writer_drop();
        return;
    }
    uint64_t missing = mr_log_dropped() - *reported;
    char line[MR_LOG_LINE_MAX];
    if (missing > 0 && log_writer_write_whole(line, mr_log_format_dropped(line, missing))) {
        *reported += missing;
    }
}

/* The oldest line; NULL: the end, for which there was a post without one. */
static const struct slot *next_slot(void)
{
    while (sem_wait(&filled) != 0) {
    }
    MR_HOLD(&lock);
    return taken == put ? NULL : &slots[taken % SLOTS];
}

static void *writer_main(void *context)
{
    prctl(PR_SET_NAME, "mr-log");
    uint64_t reported = 0;
    const struct slot *slot;
    while ((slot = next_slot()) != NULL) {
        write_slot(slot, &reported);
        pthread_mutex_lock(&lock);
        taken++;
        pthread_mutex_unlock(&lock);
    }
    sem_post(&ended);
    return NULL;
}

static bool set_running(bool now)
{
    MR_HOLD(&lock);
    bool before = running;
    running = now;
    return before;
}

void mr_log_start(void)
{
    MR_ASSERT(!running);
    put = taken = 0;
    sem_init(&filled, 0, 0);
    sem_init(&ended, 0, 0);
    pthread_t thread;
    if (mr_thread_create(&thread, writer_main, NULL, NULL) == MR_OK) {
        pthread_detach(thread); /* one that hangs in a write can't be joined */
        set_running(true);
    }
}

void mr_log_stop(void)
{
    if (!set_running(false)) {
        return;
    }
    sem_post(&filled);
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += STOP_MS / 1000;
    while (sem_clockwait(&ended, CLOCK_MONOTONIC, &limit) != 0 && errno == EINTR) {
    }
}
