/* Topics that are made. For kafka/ and sink/kafka only; any thread. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "base/base.h"

enum { MR_KAFKA_CREATE_MS = 10000 }; /* until the answer to a request to create is there */

/* Asks the broker for topics that are not there, and frees `wanted`'s items; the queue, which is
 * the caller's, gets the answer. Does not wait. */
rd_kafka_queue_t *mr_kafka_create_topics(rd_kafka_t *producer, rd_kafka_NewTopic_t **wanted,
                                         size_t count);

/* Why `awaited` was not created, with the broker's words in `reason`; no error when it is there
 * now. What else the answer tells of is logged, and asked for again when its turn comes. */
rd_kafka_resp_err_t mr_kafka_create_result(rd_kafka_event_t *event, const char *awaited,
                                           int32_t partitions, char *reason, size_t reason_size);

/* A setting of a topic or broker (by its number); empty, with `ret_reason` filled, where the broker
 * does not say. */
void mr_kafka_setting(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *of,
                      const char *setting, char *ret_value, size_t size, char *ret_reason,
                      size_t reason_size);

/* What a topic's configuration says of the records that it takes. */
struct mr_kafka_bounds {
    bool is_known;             /* else the broker does not say, or not to this user */
    bool is_compacted;         /* so it takes none without a key */
    size_t bytes_max;          /* of a batch of records as it is sent; 0: not known */
    int64_t past_ms, ahead_ms; /* how far a record's time may be from the broker's */
};

/* Waits for the answer. */
struct mr_kafka_bounds mr_kafka_topic_bounds(rd_kafka_t *client, const char *topic);

/* The topic's `cleanup.policy`. */
static inline void mr_kafka_topic_policy(rd_kafka_t *client, const char *topic, char *ret_policy,
                                         size_t size, char *ret_reason, size_t reason_size)
{
    mr_kafka_setting(client, RD_KAFKA_RESOURCE_TOPIC, topic, "cleanup.policy", ret_policy, size,
                     ret_reason, reason_size);
}
