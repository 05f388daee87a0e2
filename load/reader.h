/* The other end: a Kafka consumer in a thread of its own, from where the topics end now. */
#ifndef LOAD_READER_H
#define LOAD_READER_H

#include "load.h"

struct load_reader;

/* Makes topics that are missing; NULL after a message. */
struct load_reader *load_reader_start(const struct load_options *options,
                                      struct load_counters *counters);

/* Times from commit, and from the moment a row was due, to the arrival here; `step` as in the counters. The
 * reader must have been joined, or the step be over. */
const struct load_histogram *load_reader_latency(const struct load_reader *reader, int step);
const struct load_histogram *load_reader_response(const struct load_reader *reader, int step);

/* After counters->finished was set. */
void load_reader_join(struct load_reader *reader);
void load_reader_free(struct load_reader *reader);

#endif
