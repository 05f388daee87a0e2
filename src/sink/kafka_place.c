#include "sink/kafka_place.h"

/* librdkafka asks for the partition on the thread that produces, or, when it does not know the topic yet, later on
 * one of its own. So each thread has a note of its own. */
static _Thread_local struct mr_kafka_place placed;

static int32_t place(const rd_kafka_topic_t *handle, const void *key, size_t key_len, int32_t count,
                     void *topic_opaque, void *message_opaque)
{
    int32_t partition =
        rd_kafka_msg_partitioner_murmur2(handle, key, key_len, count, topic_opaque, message_opaque);
    placed = (struct mr_kafka_place){.partition = partition, .count = count};
    return partition;
}

rd_kafka_topic_t *mr_kafka_place_topic(rd_kafka_t *producer, const struct mr_topic *topic)
{
    rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(producer);
    rd_kafka_topic_conf_set_partitioner_cb(conf, place);
    rd_kafka_topic_conf_set_opaque(conf, (void *)(uintptr_t)topic);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(producer, topic->name, conf);
    if (handle == NULL) {
        rd_kafka_topic_conf_destroy(conf);
    }
    return handle;
}

void mr_kafka_place_begin(void)
{
    placed = (struct mr_kafka_place){.partition = -1};
}

struct mr_kafka_place mr_kafka_place_end(void)
{
    return placed;
}
