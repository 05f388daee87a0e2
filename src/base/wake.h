/* Waking threads, and waiting between tries. Any thread. */
#ifndef MR_BASE_WAKE_H
#define MR_BASE_WAKE_H

#include <stdint.h>

/* Writes an eventfd / empties it. */
void mr_wake(int fd);
void mr_wake_clear(int fd);

/* Milliseconds to wait before the `attempt`-th try (0, 1, …): from 100 ms doubling up to `max_ms`, each with
 * up to a quarter taken off at random, so that many instances don't come back in step. */
uint32_t mr_backoff_ms(uint32_t attempt, uint32_t max_ms);

#endif
