/* Topics of one producer session and their partitions: looked up by the topic's index, made (and,
 * if wanted, created on the broker) on first use. Inside sink/ only; sink thread.
 *
 * Records come in order, so one topic at a time is waited for, and the waiting is left to the
 * caller: delivery reports and errors are served meanwhile. */
#pragma once

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>

#include "event/known_topics.h"
#include "event/placing.h"
#include "kafka/options.h"
#include "ports/sink.h"

/* What goes to one partition, in order: records that wait, and how many are with librdkafka. */
struct mr_kafka_queue {
    rd_kafka_topic_t *handle;
    int32_t partition;
    _Atomic int32_t partitions; /* of the topic, as librdkafka saw it last */
    uint32_t waiting;           /* records, */
    size_t waiting_bytes;       /* of a request */
    uint32_t in_flight;
    bool full;         /* these are a request as large as it may be, */
    int64_t handed_ns; /* handed over then (monotonic) */
    struct mr_record *first;
    struct mr_record **last;
    struct mr_kafka_queue *next;       /* of those that are ready */
    struct mr_kafka_queue *next_small; /* of those that set out together */
};

/* The queues that are ready, in the order in which they became so: each has records, and none of
 * them is with librdkafka. */
struct mr_kafka_ready {
    struct mr_kafka_queue *first;
    struct mr_kafka_queue **last;
    int64_t due_ns; /* none of them sets out before (monotonic); 0: one may */
};

static inline void mr_kafka_ready_init(struct mr_kafka_ready *ready)
{
    *ready = (struct mr_kafka_ready){.last = &ready->first};
}

/* The queue is about to get a record, or has some. */
static inline void mr_kafka_ready_add(struct mr_kafka_ready *ready, struct mr_kafka_queue *queue)
{
    MR_ASSERT(queue->in_flight == 0);
    queue->next = NULL;
    *ready->last = queue;
    ready->last = &queue->next;
    ready->due_ns = 0;
}

/* The queue at `at`, of which librdkafka has records by now. */
static inline void mr_kafka_ready_take(struct mr_kafka_ready *ready, struct mr_kafka_queue **at)
{
    struct mr_kafka_queue *queue = *at;
    MR_ASSERT(queue->in_flight > 0);
    *at = queue->next;
    if (queue->next == NULL) {
        ready->last = at;
    }
}

struct mr_kafka_topic {
    rd_kafka_topic_t *handle;
    struct mr_kafka_queue **queues;
    int32_t queue_count;
    const struct mr_placing *placing; /* NULL: by the number of queues */
    size_t bytes_max; /* that it takes, as it said in this session; 0: it was not asked */
    int64_t ask_ns;   /* it is asked again then (monotonic); 0: not yet known */
};

struct mr_kafka_topics {
    rd_kafka_t *producer;
    const struct mr_kafka_options *options;
    struct mr_standstill *standstill;
    struct mr_kafka_topic *items; /* by mr_topic.index */
    uint32_t capacity;
    uint32_t count; /* that have a handle */
    int64_t ask_ns; /* none is asked before what it takes (monotonic) */

    const struct mr_topic *awaited; /* NULL: none */
    rd_kafka_topic_t *awaited_handle;
    int32_t awaited_partitions;
    /* where the answer to a request to create comes; NULL: none is out */
    rd_kafka_queue_t *creating;
    int64_t retry_ns; /* when to look again */
    int wait_ms;      /* the pause after that */
    bool logged;      /* that it is waited for */
};

void mr_kafka_topics_init(struct mr_kafka_topics *topics, rd_kafka_t *producer,
                          const struct mr_kafka_options *options, struct mr_standstill *standstill);
/* Gives librdkafka its handles back; before the producer goes. */
void mr_kafka_topics_release(struct mr_kafka_topics *topics);
/* After that: librdkafka's threads may look into a queue as long as they live. */
void mr_kafka_topics_done(struct mr_kafka_topics *topics);

/* The topic of the `i`-th record of `batch`; good until the next call. MR_FULL while the broker has
 * not said that the topic exists, and for as long as it does not if it may not be created: rows
 * wait in PostgreSQL meanwhile. Topics are created together with the others that the batch
 * needs. */
mr_status mr_kafka_topics_get(struct mr_kafka_topics *topics, const struct mr_batch *batch,
                              uint32_t i, struct mr_kafka_topic **ret_topic,
                              struct mr_error *ret_error);

/* It has that many partitions by now. */
void mr_kafka_topics_grow(struct mr_kafka_topics *topics, const struct mr_topic *topic,
                          int32_t partitions);
