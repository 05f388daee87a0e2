/* Takes messages from a consumer's queue in a thread of its own, ahead of the one thread that asks
 * for them: what librdkafka does for each (headers, memory) was about a third of that thread's work
 * in `millrace verify`, and is done beside it now. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/kafka_reader.h"

struct mr_kafka_ahead;

/* A record, or what librdkafka says in place of one: `read` then has the place alone. */
struct mr_kafka_taken {
    rd_kafka_message_t *message;
    rd_kafka_resp_err_t err;
    struct mr_kafka_read read;
    uint8_t copied[48]; /* headers of usual lengths */
};

/* The queue is its alone until the stop. */
mr_status mr_kafka_ahead_start(rd_kafka_queue_t *queue, struct mr_kafka_ahead **ret_ahead,
                               struct mr_error *ret_error);

/* Drops what is taken and was not asked for. NULL is fine. */
void mr_kafka_ahead_stop(struct mr_kafka_ahead *ahead);

/* The next one, which stays until the next call. NULL: none has come for half a second. */
const struct mr_kafka_taken *mr_kafka_ahead_next(struct mr_kafka_ahead *ahead);
