#include "sink/kafka/kafka_place.h"

#include "base/hash.h"

/* librdkafka asks for the partition on the thread that produces, or, when it does not know the topic any more, later on
 * one of its own, whose note is empty. */
static _Thread_local struct {
    bool known;
    int32_t partition;
    int32_t count;
} next;

static int32_t place_by_position(const struct mr_record *record, int32_t count)
{
    uint64_t hash = mr_hash_number(MR_HASH_BEGIN, record->position.commit_lsn);
    return (int32_t)(mr_hash_number(hash, record->position.ordinal) % (uint64_t)count);
}

int32_t mr_kafka_place(const rd_kafka_topic_t *handle, const struct mr_record *record,
                       int32_t count, enum mr_null_keys null_keys)
{
    int64_t own = mr_headers_place(mr_record_headers(record)).partition;
    bool if_there = own < -1;
    own -= if_there ? INT32_MIN : 0;
    if (MR_UNLIKELY(own >= 0 && (own < count || !if_there))) {
        return own < count ? (int32_t)own : -1;
    }
    if (MR_UNLIKELY(record->key == NULL && null_keys == MR_NULL_KEYS_SPREAD)) {
        return place_by_position(record, count);
    }
    return rd_kafka_msg_partitioner_murmur2(handle, record->key, record->key_len, count, NULL,
                                            NULL);
}

static int32_t place(const rd_kafka_topic_t *handle, const void *key, size_t key_len, int32_t count,
                     void *topic_opaque, void *message_opaque)
{
    next.count = count;
    return next.known ? next.partition
                      : rd_kafka_msg_partitioner_murmur2(handle, key, key_len, count, topic_opaque,
                                                         message_opaque);
}

static int32_t place_and_spread(const rd_kafka_topic_t *handle, const void *key, size_t key_len,
                                int32_t count, void *topic_opaque, void *message_opaque)
{
    if (key == NULL && !next.known) {
        next.count = count;
        return place_by_position(message_opaque, count);
    }
    return place(handle, key, key_len, count, topic_opaque, message_opaque);
}

rd_kafka_topic_t *mr_kafka_place_topic(rd_kafka_t *producer, const struct mr_topic *topic,
                                       enum mr_null_keys null_keys)
{
    rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(producer);
    bool spreads = null_keys == MR_NULL_KEYS_SPREAD;
    rd_kafka_topic_conf_set_partitioner_cb(conf, spreads ? place_and_spread : place);
    rd_kafka_topic_conf_set_opaque(conf, (void *)(uintptr_t)topic);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(producer, topic->name, conf);
    if (handle == NULL) {
        rd_kafka_topic_conf_destroy(conf);
    }
    return handle;
}

void mr_kafka_place_next(int32_t partition)
{
    next.known = true;
    next.partition = partition;
    next.count = 0;
}

int32_t mr_kafka_place_count(void)
{
    return next.count;
}
