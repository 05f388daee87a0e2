/* Topic handles of one producer session: looked up by the topic's index, made (and, if wanted, created on
 * the broker) on first use. Inside sink/ only; sink thread. */
#ifndef MR_SINK_KAFKA_TOPICS_H
#define MR_SINK_KAFKA_TOPICS_H

#include <librdkafka/rdkafka.h>

#include "sink/sink.h"

struct mr_kafka_topics {
    rd_kafka_t *producer;
    const struct mr_kafka_options *options;
    int stop_fd;
    rd_kafka_topic_t **handles; /* by mr_topic.index */
    uint32_t capacity;
};

void mr_kafka_topics_init(struct mr_kafka_topics *topics, rd_kafka_t *producer,
                          const struct mr_kafka_options *options, int stop_fd);
void mr_kafka_topics_done(struct mr_kafka_topics *topics);

/* The handle of a topic that exists. Waits on first use until the broker has told whether it does, and
 * for as long as it does not if it may not be created: rows wait in PostgreSQL meanwhile. MR_AGAIN once
 * `stop_fd` is readable. */
mr_status mr_kafka_topics_get(struct mr_kafka_topics *topics, const struct mr_topic *topic,
                              rd_kafka_topic_t **ret_handle, struct mr_error *ret_error);

#endif
