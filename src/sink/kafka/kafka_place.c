#include "sink/kafka/kafka_place.h"

#include "base/hash.h"
#include "sink/kafka/kafka_topics.h"

int32_t mr_kafka_place(const rd_kafka_topic_t *handle, const struct mr_record *record,
                       int32_t count, int32_t present, enum mr_null_keys null_keys)
{
    int64_t own = mr_headers_place(mr_record_headers(record)).partition;
    bool if_there = own < -1;
    own -= if_there ? INT32_MIN : 0;
    if (MR_UNLIKELY(own >= 0 && (own < count || !if_there))) {
        return own < present ? (int32_t)own : -1;
    }
    if (count == 1) {
        return 0;
    }
    if (MR_UNLIKELY(record->key == NULL && null_keys == MR_NULL_KEYS_SPREAD)) {
        uint64_t hash = mr_hash_number(MR_HASH_BEGIN, record->position.commit_lsn);
        return (int32_t)(mr_hash_number(hash, record->position.ordinal) % (uint64_t)count);
    }
    return rd_kafka_msg_partitioner_murmur2(handle, record->key, record->key_len, count, NULL,
                                            NULL);
}

/* librdkafka asks on the thread that produces, or, when it did not know the topic any more, later
 * on one of its own. */
static int32_t kafka_place_place(const rd_kafka_topic_t *handle, const void *key, size_t key_len,
                                 int32_t count, void *topic_opaque, void *message_opaque)
{
    struct mr_kafka_queue *queue = ((const struct mr_record *)message_opaque)->flight;
    atomic_store_explicit(&queue->partitions, count, memory_order_relaxed);
    return queue->partition;
}

rd_kafka_topic_t *mr_kafka_place_topic(rd_kafka_t *producer, const struct mr_topic *topic)
{
    rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(producer);
    rd_kafka_topic_conf_set_partitioner_cb(conf, kafka_place_place);
    rd_kafka_topic_conf_set_opaque(conf, (void *)(uintptr_t)topic);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(producer, topic->name, conf);
    if (handle == NULL) {
        rd_kafka_topic_conf_destroy(conf);
    }
    return handle;
}
