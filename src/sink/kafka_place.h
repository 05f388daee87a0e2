/* Where librdkafka puts a record: Java's murmur2, and the partition it chose told to whoever produced. Inside
 * sink/ only. */
#ifndef MR_SINK_KAFKA_PLACE_H
#define MR_SINK_KAFKA_PLACE_H

#include <librdkafka/rdkafka.h>

#include "event/batch.h"

struct mr_kafka_place {
    int32_t partition; /* -1: not known yet; librdkafka puts it somewhere later */
    int32_t count;     /* of the topic's partitions */
};

/* A topic handle whose records are placed here and whose opaque is `topic`; NULL as rd_kafka_topic_new. */
rd_kafka_topic_t *mr_kafka_place_topic(rd_kafka_t *producer, const struct mr_topic *topic);

/* Before a record is produced; and after, where it went. Of the calling thread. */
void mr_kafka_place_begin(void);
struct mr_kafka_place mr_kafka_place_end(void);

#endif
