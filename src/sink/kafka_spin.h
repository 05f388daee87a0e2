/* librdkafka's main thread, kept from burning a core for the last millisecond of each timer. Inside sink/ only.
 *
 * Before 2.4.0 the loop of rd_kafka_thread_main takes whole milliseconds, rounded down, to wait for its next timer: within
 * the last one it does not wait at all (https://github.com/confluentinc/librdkafka/pull/4671). Each transaction has two timers of
 * one millisecond, so that this thread alone takes 2 ms of CPU for each, most of what exactly-once costs on a quiet day. All that
 * the loop does meanwhile is to take free locks and to read the clock. The last can be seen from outside: the program has a
 * clock_gettime of its own, before libc's in the order in which symbols are found, and a thread that is watched and reads the
 * clock over and over sleeps in it.
 */
#ifndef MR_SINK_KAFKA_SPIN_H
#define MR_SINK_KAFKA_SPIN_H

#include <stdbool.h>

/* Whether a librdkafka of that version (rd_kafka_version) spins. */
bool mr_kafka_spins(int version);

/* From now on the calling thread sleeps for a moment where it does nothing but read the clock. For ever. */
void mr_kafka_spin_watch(void);

#endif
