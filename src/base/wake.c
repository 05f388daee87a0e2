#include "base/wake.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "base/clock.h"

enum { BACKOFF_MIN_MS = 100 };

int mr_wake_new(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MR_ASSERT(fd >= 0);
    return fd;
}

bool mr_wait_either(int fd, int other, int ms)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    return poll(fds, 2, ms) > 0 && fds[0].revents != 0;
}

bool mr_wait_readable(int fd, int ms)
{
    return mr_wait_either(fd, -1, ms);
}

void mr_wake(int fd)
{
    eventfd_write(fd, 1); /* where the counter would overflow it is readable anyway */
}

void mr_wake_clear(int fd)
{
    eventfd_t count;
    eventfd_read(fd, &count);
}

uint32_t mr_backoff_ms(uint32_t attempt, uint32_t max_ms)
{
    uint64_t wait_ms = BACKOFF_MIN_MS;
    while (attempt-- > 0 && wait_ms < max_ms) {
        wait_ms *= 2;
    }
    if (wait_ms > max_ms) {
        wait_ms = max_ms;
    }
    uint64_t jitter = (uint64_t)mr_monotonic_ns() / 1000 % (wait_ms / 4 + 1);
    return (uint32_t)(wait_ms - jitter);
}
