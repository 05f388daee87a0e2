/* Writers: one thread and one connection each, transactions at their moments. */
#ifndef LOAD_WRITER_H
#define LOAD_WRITER_H

#include "load.h"

struct load_writers;

/* Starts `count` writers that share the rate; NULL after a message when one can't connect.
 * `quota` events in all (0: until told to stop). Burst writers write without waiting. */
struct load_writers *load_writers_start(const struct load_options *options,
                                        struct load_counters *counters, unsigned count,
                                        uint64_t quota, bool burst,
                                        uint64_t first_ids[LOAD_TABLES_MAX]);

/* True when all have written their quota. */
bool load_writers_ended(const struct load_writers *writers);

/* Waits for them, adds their times from due to commit, frees them. */
void load_writers_join(struct load_writers *writers, struct load_histogram *into);

#endif
