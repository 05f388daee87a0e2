/* Where librdkafka puts a record: Java's murmur2. The sink works the partition out when a record
 * comes; librdkafka takes it from the record's queue. Inside sink/ only.
 *
 * Records without a key have one partition, or are spread by their position: what comes again has
 * its partition again, so positions grow within each. Java's clients take any
 * (BuiltInPartitioner). */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/options.h"
#include "ports/sink.h"

/* A topic handle whose opaque is `topic`, and whose records go to the partition of the queue
 * (kafka_topics.h) that they have in `flight`, and note there how many partitions the topic has.
 * NULL as rd_kafka_topic_new. */
rd_kafka_topic_t *mr_kafka_place_topic(rd_kafka_t *producer, const struct mr_topic *topic);

/* The partition of `record`, of `count`, while there are `present`; -1: it asks for one that is not
 * there. Any thread. */
int32_t mr_kafka_place(const rd_kafka_topic_t *handle, const struct mr_record *record,
                       int32_t count, int32_t present, enum mr_null_keys null_keys);
