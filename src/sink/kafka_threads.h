/* librdkafka's threads make themselves known to the profiler. Inside sink/ only. */
#ifndef MR_SINK_KAFKA_THREADS_H
#define MR_SINK_KAFKA_THREADS_H

#include <librdkafka/rdkafka.h>

/* Before rd_kafka_new. librdkafka blocks every signal in its threads, so a profiler can't see them unless they
 * say so themselves; that is what its interceptors are for. */
void mr_kafka_threads_watch(rd_kafka_conf_t *conf);

#endif
