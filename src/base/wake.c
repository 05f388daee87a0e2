#include "base/wake.h"

#include <sys/eventfd.h>

#include "base/clock.h"

enum { BACKOFF_MIN_MS = 100 };

void mr_wake(int fd)
{
    eventfd_write(fd,
                  1); /* fails only when the counter would overflow; it is readable then anyway */
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
