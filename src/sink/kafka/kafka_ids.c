/* Whether topics are still those that were sent to: brokers are asked for their ids now and then,
 * in one request, whose answer comes as an event. */

#include "base/clock.h"
#include "sink/kafka/kafka_internal.h"

enum {
    LOOK_S = 30,
    AGAIN_S = 5, /* where none has answered */
    ANSWER_MS = 10000,
};

static void ask_ids(struct mr_kafka_sink *kafka, const char **names, uint32_t count)
{
    rd_kafka_TopicCollection_t *topics = rd_kafka_TopicCollection_of_topic_names(names, count);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(kafka->producer, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(options, ANSWER_MS, NULL, 0);
    rd_kafka_DescribeTopics(kafka->producer, topics, options, kafka->events);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_TopicCollection_destroy(topics);
    kafka->ids.asked = true;
}

void mr_kafka_watch_topics(struct mr_kafka_sink *kafka)
{
    struct mr_known_topics *known = kafka->options.known;
    struct mr_kafka_ids *ids = &kafka->ids;
    if (known == NULL || ids->asked || ids->lacks) {
        return;
    }
    int64_t now_ns = mr_monotonic_ns();
    bool all = now_ns >= ids->due_ns;
    if (!all && !known->wants) {
        return;
    }
    uint32_t count;
    const char **names = mr_known_topics_names(known, all, &count);
    if (all) {
        ids->due_ns = now_ns + LOOK_S * INT64_C(1000000000);
    }
    if (count > 0) {
        ask_ids(kafka, names, count);
    }
}

int64_t mr_kafka_topics_due_in_ns(const struct mr_kafka_sink *kafka)
{
    const struct mr_kafka_ids *ids = &kafka->ids;
    if (kafka->options.known == NULL || ids->asked || ids->lacks || ids->due_ns == 0) {
        return INT64_MAX;
    }
    int64_t due_ns = ids->due_ns - mr_monotonic_ns();
    return due_ns > 0 ? due_ns : 0;
}

/* Any 64 bits of a random UUID tell it from others. 0: the broker gives topics none (before Kafka
 * 2.8). */
static uint64_t id_of(const rd_kafka_TopicDescription_t *topic)
{
    const rd_kafka_Uuid_t *id = rd_kafka_TopicDescription_topic_id(topic);
    return id == NULL ? 0
                      : (uint64_t)rd_kafka_Uuid_most_significant_bits(id) ^
                            (uint64_t)rd_kafka_Uuid_least_significant_bits(id);
}

void mr_kafka_take_topics(struct mr_kafka_sink *kafka, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_DescribeTopics_result_t *result = rd_kafka_event_DescribeTopics_result(event);
    const rd_kafka_TopicDescription_t **topics =
        result == NULL ? NULL : rd_kafka_DescribeTopics_result_topics(result, &count);
    kafka->ids.asked = false;
    if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        kafka->ids.due_ns = mr_monotonic_ns() + AGAIN_S * INT64_C(1000000000);
        return;
    }
    /* librdkafka has it from any answer about metadata; without it ids could be another's. */
    char *cluster = rd_kafka_clusterid(kafka->producer, 0);
    if (cluster == NULL && kafka->options.known->cluster != 0) {
        kafka->ids.due_ns = mr_monotonic_ns() + AGAIN_S * INT64_C(1000000000);
        return;
    }
    if (cluster != NULL) {
        mr_known_topics_cluster(kafka->options.known, cluster);
        rd_kafka_mem_free(kafka->producer, cluster);
    }
    for (size_t i = 0; i < count; i++) {
        if (rd_kafka_error_code(rd_kafka_TopicDescription_error(topics[i])) !=
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            continue; /* it is gone, say, which its records meet */
        }
        uint64_t id = id_of(topics[i]);
        mr_known_topics_compare(kafka->options.known, rd_kafka_TopicDescription_name(topics[i]),
                                id);
        if (id == 0 && !kafka->ids.lacks) {
            kafka->ids.lacks = true;
            mr_log(MR_LOG_DEBUG, "topic_ids_absent",
                   "the broker gives topics no ids, so one that others delete and make again is "
                   "not noticed");
        }
    }
}
