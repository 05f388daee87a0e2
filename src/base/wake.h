/* Waking threads, and waiting between tries. Any thread. */
#pragma once

#include "base/base.h"

/* A new eventfd; its owner closes it. */
int mr_wake_new(void);

/* Whether a descriptor (-1: none) is readable within `ms` (-1: for ever); and with another one that
 * ends the wait. */
bool mr_wait_readable(int fd, int ms);
bool mr_wait_either(int fd, int other, int ms);

/* Writes an eventfd / empties it. */
void mr_wake(int fd);
void mr_wake_clear(int fd);

/* Milliseconds to wait before the `attempt`-th try (0, 1, …): from 100 ms doubling up to `max_ms`,
 * each with up to a quarter taken off at random, so that many instances don't come back in step. */
uint32_t mr_backoff_ms(uint32_t attempt, uint32_t max_ms);
