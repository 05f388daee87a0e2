/* Topic handles of one producer session: looked up by the topic's index, made (and, if wanted, created on
 * the broker) on first use. Inside sink/ only; sink thread.
 *
 * Records come in order, so one topic at a time is waited for, and the waiting is left to the caller: delivery
 * reports and errors are served meanwhile. */
#ifndef MR_SINK_KAFKA_TOPICS_H
#define MR_SINK_KAFKA_TOPICS_H

#include <librdkafka/rdkafka.h>

#include "sink/sink.h"

struct mr_kafka_topics {
    rd_kafka_t *producer;
    const struct mr_kafka_options *options;
    rd_kafka_topic_t **handles; /* by mr_topic.index */
    uint32_t capacity;

    const struct mr_topic *awaited; /* NULL: none */
    rd_kafka_topic_t *awaited_handle;
    rd_kafka_queue_t
        *creating;    /* where the answer to a request to create comes; NULL: none is out */
    int64_t retry_ns; /* when to look again */
    int wait_ms;      /* the pause after that */
    bool told;        /* that it is waited for */
};

enum { MR_KAFKA_CREATE_MS = 10000 }; /* until the answer to a request to create is there */

/* Asks the broker for topics that are not there, and frees `wanted`'s items; the queue, which is the caller's, gets
 * the answer. Does not wait. */
rd_kafka_queue_t *mr_kafka_create_topics(rd_kafka_t *producer, rd_kafka_NewTopic_t **wanted,
                                         size_t count);

void mr_kafka_topics_init(struct mr_kafka_topics *topics, rd_kafka_t *producer,
                          const struct mr_kafka_options *options);
void mr_kafka_topics_done(struct mr_kafka_topics *topics);

/* The handle of the topic of the `i`-th record of `batch`. MR_FULL while the broker has not told that the topic
 * exists, and for as long as it does not if it may not be created: rows wait in PostgreSQL meanwhile. Topics
 * are created together with the others that the batch needs. */
mr_status mr_kafka_topics_get(struct mr_kafka_topics *topics, const struct mr_batch *batch,
                              uint32_t i, rd_kafka_topic_t **ret_handle,
                              struct mr_error *ret_error);

#endif
