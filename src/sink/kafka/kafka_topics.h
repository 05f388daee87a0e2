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

/* A request that librdkafka has. */
struct mr_kafka_flight {
    uint32_t records; /* that are not reported yet; 0: there is none */
    bool full;        /* it is as large as it may be */
};

/* What goes to one partition, in order: records that wait, and those that are with librdkafka. */
struct mr_kafka_queue {
    rd_kafka_topic_t *handle;
    int32_t partition;
    _Atomic int32_t partitions;         /* of the topic, as librdkafka saw it last */
    uint32_t waiting;                   /* records, */
    size_t waiting_bytes;               /* of a request */
    struct mr_kafka_flight flight;      /* on its way, */
    struct mr_kafka_flight next_flight; /* and what librdkafka sends once that is answered */
    int64_t handed_ns;                  /* when something was handed over last (monotonic) */
    bool is_ready;
    struct mr_record *first;
    struct mr_record **last;
    struct mr_kafka_queue *next; /* of those that are ready */
};

/* The queues that are ready, in the order in which they became so: each has records that librdkafka
 * may have now or soon. */
struct mr_kafka_ready {
    struct mr_kafka_queue *first;
    struct mr_kafka_queue **last;
    int64_t due_ns; /* none of them sets out before (monotonic); 0: one may */
};

static inline void mr_kafka_ready_init(struct mr_kafka_ready *ready)
{
    *ready = (struct mr_kafka_ready){.last = &ready->first};
}

enum {
    /* Behind so many messages librdkafka holds the partition's next request back until they are
     * answered (RD_KAFKA_IDEMP_MAX_INFLIGHT, which it counts in messages). Two at once would not
     * do: a broker that does not know the producer takes any first sequence, also of the second
     * request after it refused the first. */
    MR_KAFKA_HELD_BACK = 5,
};

/* What a full request holds. */
struct mr_kafka_request_size {
    size_t bytes;
    uint32_t records;
};

static inline bool mr_kafka_queue_is_full(const struct mr_kafka_queue *queue,
                                          struct mr_kafka_request_size full)
{
    return queue->waiting_bytes >= full.bytes || queue->waiting >= full.records;
}

/* A full request goes to librdkafka while the one before is on its way, so that it sets out at the
 * moment of the answer, and not after two threads were woken. `is_apart`: they are not sent as
 * one. */
static inline bool mr_kafka_queue_may_go_ahead(const struct mr_kafka_queue *queue,
                                               struct mr_kafka_request_size full, bool is_apart)
{
    return is_apart && queue->flight.records >= MR_KAFKA_HELD_BACK &&
           queue->next_flight.records == 0 && mr_kafka_queue_is_full(queue, full);
}

/* Where it has become so. */
static inline void mr_kafka_ready_add(struct mr_kafka_ready *ready, struct mr_kafka_queue *queue)
{
    MR_ASSERT(!queue->is_ready && queue->next_flight.records == 0);
    queue->is_ready = true;
    queue->next = NULL;
    *ready->last = queue;
    ready->last = &queue->next;
    ready->due_ns = 0;
}

/* The queue at `at`, of which librdkafka has records by now. */
static inline void mr_kafka_ready_take(struct mr_kafka_ready *ready, struct mr_kafka_queue **at)
{
    struct mr_kafka_queue *queue = *at;
    MR_ASSERT(queue->is_ready && queue->flight.records > 0);
    queue->is_ready = false;
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
};

struct mr_kafka_topics {
    rd_kafka_t *producer;
    const struct mr_kafka_options *options;
    struct mr_standstill *standstill;
    struct mr_kafka_topic *items; /* by mr_topic.index */
    uint32_t capacity;
    uint32_t count; /* that have a handle */

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
