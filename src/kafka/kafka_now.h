/* How librdkafka learns that a request is complete. Left to itself, it would send the first record
 * of a partition alone, and the others would wait for its answer; or all would wait for linger.ms.
 *
 * The pinned one has a function for that (scripts/librdkafka.patch). Of a distribution's there is
 * only rd_kafka_flush, which tells it for as long as it lasts: a millisecond, in which the caller
 * stands. */
#pragma once

#include <librdkafka/rdkafka.h>

/* What was produced to the partition so far may set out. The caller then calls mr_kafka_now_all,
 * once for all partitions. */
void mr_kafka_now(rd_kafka_topic_t *topic, int32_t partition);
void mr_kafka_now_all(rd_kafka_t *producer);
