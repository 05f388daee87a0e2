#include "sink/kafka/kafka_topics.h"

#include "base/clock.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_topic.h"
#include "sink/kafka/kafka_place.h"

enum {
    METADATA_TIMEOUT_MS = 1000,
    RETRY_FIRST_MS = 10,
    RETRY_LOGGED_MS = 100, /* a pause this long is worth a line in the log */
    RETRY_MAX_MS = 5000,
    CREATED_TOGETHER_MAX = 256,
};

void mr_kafka_topics_init(struct mr_kafka_topics *topics, rd_kafka_t *producer,
                          const struct mr_kafka_options *options, struct mr_standstill *standstill)
{
    *topics = (struct mr_kafka_topics){
        .producer = producer, .options = options, .standstill = standstill};
}

void mr_kafka_topics_release(struct mr_kafka_topics *topics)
{
    mr_standstill_end(topics->standstill, MR_CAUSE_TOPIC_MISSING); /* it is looked for again */
    for (uint32_t i = 0; i < topics->capacity; i++) {
        if (topics->items[i].handle != NULL) {
            mr_topic_set_partitions(rd_kafka_topic_opaque(topics->items[i].handle), 0);
            rd_kafka_topic_destroy(topics->items[i].handle);
        }
    }
    if (topics->awaited_handle != NULL) {
        rd_kafka_topic_destroy(topics->awaited_handle);
    }
    if (topics->creating != NULL) {
        rd_kafka_queue_destroy(topics->creating);
    }
}

void mr_kafka_topics_done(struct mr_kafka_topics *topics)
{
    for (uint32_t i = 0; i < topics->capacity; i++) {
        for (int32_t j = 0; j < topics->items[i].queue_count; j++) {
            free(topics->items[i].queues[j]);
        }
        free(topics->items[i].queues);
    }
    free(topics->items);
    *topics = (struct mr_kafka_topics){0};
}

/* Whether every partition answers. One that is only just being made refuses a request, and takes
 * the next one whatever was before it, because it knows nothing of this producer: rows would be
 * missing, or out of order. */
static rd_kafka_resp_err_t partitions_state(struct mr_kafka_topics *topics,
                                            const struct rd_kafka_metadata_topic *topic)
{
    rd_kafka_topic_partition_list_t *ends = rd_kafka_topic_partition_list_new(topic->partition_cnt);
    for (int i = 0; i < topic->partition_cnt; i++) {
        rd_kafka_topic_partition_list_add(ends, topic->topic, topic->partitions[i].id)->offset =
            RD_KAFKA_OFFSET_END;
    }
    rd_kafka_resp_err_t err =
        rd_kafka_offsets_for_times(topics->producer, ends, METADATA_TIMEOUT_MS);
    for (int i = 0; i < ends->cnt && err == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        err = ends->elems[i].err;
    }
    rd_kafka_topic_partition_list_destroy(ends);
    return err;
}

/* What the broker says of a topic: exists, doesn't, or no answer yet. */
static rd_kafka_resp_err_t topic_state(struct mr_kafka_topics *topics, rd_kafka_topic_t *handle)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(topics->producer, 0, handle, &metadata, METADATA_TIMEOUT_MS);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return err;
    }
    if (metadata->topic_cnt != 1) {
        err = RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    } else if (metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        err = metadata->topics[0].err;
    } else if (metadata->topics[0].partition_cnt == 0) {
        err = RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    } else {
        topics->awaited_partitions = metadata->topics[0].partition_cnt;
        err = partitions_state(topics, &metadata->topics[0]);
    }
    rd_kafka_metadata_destroy(metadata);
    return err;
}

static bool has_handle(const struct mr_kafka_topics *topics, const struct mr_topic *topic)
{
    return topic->index < topics->capacity && topics->items[topic->index].handle != NULL;
}

/* Asks for the topic of the `first` record and for those of later ones that have no handle yet.
 * That another one exists already is no error of anybody. */
static void create_topics(struct mr_kafka_topics *topics, const struct mr_batch *batch,
                          uint32_t first)
{
    rd_kafka_NewTopic_t *wanted[CREATED_TOGETHER_MAX];
    const struct mr_topic *names[CREATED_TOGETHER_MAX];
    char reason[256];
    size_t count = 0;
    for (uint32_t i = first; i < batch->record_count && count < CREATED_TOGETHER_MAX; i++) {
        const struct mr_topic *topic = mr_batch_record(batch, i)->topic;
        size_t known = 0;
        while (known < count && names[known] != topic) {
            known++;
        }
        if (known == count && !has_handle(topics, topic)) {
            names[count] = topic;
            wanted[count] =
                rd_kafka_NewTopic_new(topic->name, topics->options->partitions,
                                      topics->options->replication, reason, sizeof(reason));
            MR_ASSERT(wanted[count] != NULL); /* the configuration checks the options' ranges */
            count++;
        }
    }
    if (topics->options->known != NULL) { /* of the others nobody knows yet whether they exist */
        mr_known_topics_miss(topics->options->known, topics->awaited);
    }
    topics->creating = mr_kafka_create_topics(topics->producer, wanted, count);
}

/* What the broker says now; MR_FULL with `ret_err` set to what is in the way, or to no error while
 * an answer is on its way. */
static mr_status kafka_topics_look(struct mr_kafka_topics *topics, const struct mr_batch *batch,
                                   uint32_t i, rd_kafka_resp_err_t *ret_err, char *reason,
                                   size_t reason_size)
{
    *ret_err = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (topics->creating != NULL) {
        rd_kafka_event_t *event = rd_kafka_queue_poll(topics->creating, 0);
        if (event == NULL) {
            return MR_FULL;
        }
        *ret_err = mr_kafka_create_result(event, topics->awaited->name, topics->options->partitions,
                                          reason, reason_size);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(topics->creating);
        topics->creating = NULL;
        if (*ret_err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            return MR_FULL;
        }
    }
    *ret_err = topic_state(topics, topics->awaited_handle);
    snprintf(reason, reason_size, "%s", rd_kafka_err2str(*ret_err));
    if (!mr_kafka_is_missing(*ret_err)) {
        return *ret_err == RD_KAFKA_RESP_ERR_NO_ERROR ? MR_OK : MR_FULL;
    }
    if (topics->options->create_topics) {
        create_topics(topics, batch, i);
        *ret_err = RD_KAFKA_RESP_ERR_NO_ERROR;
    } else {
        snprintf(reason, reason_size,
                 "it does not exist; create it, or set sink.kafka.create_topics = true");
    }
    return MR_FULL;
}

/* A broker that gives no answer (librdkafka's own errors are negative) is no matter of the topic,
 * and said elsewhere. */
static void log_wait(struct mr_kafka_topics *topics, rd_kafka_resp_err_t err, const char *reason)
{
    const char *name = topics->awaited->name;
    if (err < RD_KAFKA_RESP_ERR_NO_ERROR && !mr_kafka_is_missing(err)) {
        return;
    }
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        char text[MR_CAUSE_TEXT_MAX];
        snprintf(text, sizeof(text), "Kafka topic \"%s\": %s; rows wait in PostgreSQL until then",
                 name, reason);
        mr_standstill_begin(topics->standstill, MR_CAUSE_TOPIC_MISSING, text);
    }
    if (!topics->logged) {
        mr_log(MR_LOG_WARN, "topic_wait", reason, MR_LOG_STR("topic", name));
        topics->logged = true;
    }
}

/* MR_FULL: look again later. */
static mr_status put_off(struct mr_kafka_topics *topics, rd_kafka_resp_err_t err,
                         const char *reason, struct mr_error *ret_error)
{
    const char *name = topics->awaited->name;
    if (mr_kafka_is_refusal(err)) {
        return mr_fail(ret_error, MR_ERR_AUTH,
                       "Kafka topic \"%s\": %s; grant the user Describe, Write and Create on it",
                       name, reason);
    }
    /* The reports that say why are on their way. */
    if (err == RD_KAFKA_RESP_ERR__FATAL && topics->wait_ms >= RETRY_LOGGED_MS) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT, "Kafka topic \"%s\": %s", name, reason);
    }
    if (topics->wait_ms >= RETRY_LOGGED_MS) {
        log_wait(topics, err, reason);
    }
    topics->retry_ns = mr_monotonic_ns() + (int64_t)topics->wait_ms * 1000000;
    topics->wait_ms = topics->wait_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : topics->wait_ms * 2;
    return MR_FULL;
}

static mr_status kafka_topics_await(struct mr_kafka_topics *topics, const struct mr_topic *topic,
                                    struct mr_error *ret_error)
{
    MR_ASSERT(topics->awaited == NULL);
    topics->awaited_handle = mr_kafka_place_topic(topics->producer, topic);
    if (topics->awaited_handle == NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG, "Kafka topic \"%s\": %s", topic->name,
                       rd_kafka_err2str(rd_kafka_last_error()));
    }
    topics->awaited = topic;
    topics->retry_ns = 0;
    topics->wait_ms = RETRY_FIRST_MS;
    topics->logged = false;
    return MR_OK;
}

void mr_kafka_topics_grow(struct mr_kafka_topics *topics, const struct mr_topic *topic,
                          int32_t partitions)
{
    struct mr_kafka_topic *item = &topics->items[topic->index];
    if (partitions <= item->queue_count) {
        return;
    }
    item->queues = MR_REALLOC(item->queues, (size_t)partitions * sizeof(*item->queues));
    for (; item->queue_count < partitions; item->queue_count++) {
        struct mr_kafka_queue *queue = MR_NEW(struct mr_kafka_queue);
        queue->handle = item->handle;
        queue->partition = item->queue_count;
        queue->last = &queue->first;
        item->queues[item->queue_count] = queue;
    }
    if (topics->options->placings != NULL) {
        item->placing = mr_placings_see(topics->options->placings, topic, partitions);
    } else {
        mr_topic_set_partitions(topic, partitions);
    }
}

/* For topics that patterns and rows name. Where the configuration names many, config/build_sink.c
 * turns the figures off. */
static void log_many(const struct mr_kafka_topics *topics)
{
    enum { MANY = 1000 };
    if (topics->count == MANY && topics->options->statistics_interval_ms > 0) {
        mr_log(MR_LOG_WARN, "topics_many",
               "the Kafka client takes 25 KiB of memory more for each topic as long as it reports "
               "its figures; set metrics.interval = \"0ms\"",
               MR_LOG_INT("topics", topics->count));
    }
}

static void keep_awaited(struct mr_kafka_topics *topics)
{
    MR_ASSERT(topics->awaited_handle != NULL && topics->awaited_partitions > 0);
    uint32_t index = topics->awaited->index;
    if (index >= topics->capacity) {
        uint32_t capacity = topics->capacity;
        MR_GROW(topics->items, topics->capacity, index + 1);
        memset(topics->items + capacity, 0, (topics->capacity - capacity) * sizeof(*topics->items));
    }
    topics->items[index].handle = topics->awaited_handle;
    topics->count++;
    log_many(topics);
    mr_kafka_topics_grow(topics, topics->awaited, topics->awaited_partitions);
    if (topics->options->known != NULL) {
        mr_known_topics_add(topics->options->known, topics->awaited);
    }
    topics->awaited = NULL;
    topics->awaited_handle = NULL;
    mr_standstill_end(topics->standstill, MR_CAUSE_TOPIC_MISSING);
}

mr_status mr_kafka_topics_get(struct mr_kafka_topics *topics, const struct mr_batch *batch,
                              uint32_t i, struct mr_kafka_topic **ret_topic,
                              struct mr_error *ret_error)
{
    const struct mr_topic *topic = mr_batch_record(batch, i)->topic;
    if (MR_UNLIKELY(!has_handle(topics, topic))) {
        if (topics->awaited == NULL) {
            MR_TRY(kafka_topics_await(topics, topic, ret_error));
        }
        if (mr_monotonic_ns() < topics->retry_ns) {
            return MR_FULL;
        }
        char reason[256];
        rd_kafka_resp_err_t err;
        mr_status status = kafka_topics_look(topics, batch, i, &err, reason, sizeof(reason));
        if (status != MR_OK) {
            return err == RD_KAFKA_RESP_ERR_NO_ERROR ? status
                                                     : put_off(topics, err, reason, ret_error);
        }
        keep_awaited(topics);
    }
    *ret_topic = &topics->items[topic->index];
    return MR_OK;
}
