/* librdkafka's threads make themselves known to the profiler, and the wait for their end has a
 * limit. For kafka/ and sink/kafka only. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "base/base.h"

/* Before rd_kafka_new. librdkafka blocks every signal in its threads, so they must make themselves
 * known to the profiler. */
void mr_kafka_threads_watch(rd_kafka_conf_t *conf);

enum { MR_KAFKA_END_MS = 60000 }; /* longer than a resolver is usually silent */

/* Ends a client of ours, which is gone when it returns; it leaves no group. Where its threads do
 * not end within the limit, the process leaves with the code of MR_ERR_PROTOCOL: they may read
 * batches as long as they live, so nothing can go on. Any thread, without locks. */
void mr_kafka_client_end(rd_kafka_t *client, int limit_ms);
