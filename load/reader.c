#include "reader.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"

enum { TIMEOUT_MS = 15000, BATCH = 2000, PARTITIONS_MAX = 4096, POSITION_MAX = 64 };

struct load_reader {
    const struct load_options *options;
    struct load_counters *counters;
    rd_kafka_t *kafka;
    rd_kafka_queue_t *queue;
    pthread_t thread;
    struct load_histogram latency[LOAD_STEPS_MAX];
    struct load_histogram response[LOAD_STEPS_MAX];
    /* The last position of each (topic, partition), to see repeats. */
    struct {
        rd_kafka_topic_t *topic;
        int32_t partition;
        char position[POSITION_MAX];
    } seen[PARTITIONS_MAX];
    size_t seen_count;
};

static rd_kafka_t *consumer_new(const struct load_options *options)
{
    const char *settings[][2] = {
        {"bootstrap.servers", options->brokers},
        {"group.id", "millrace-load"},
        {"enable.auto.commit", "false"},
        {"fetch.wait.max.ms", "5"},
        {"queued.min.messages", "1000000"},
        {"queued.max.messages.kbytes", "262144"},
        {"log_level", "3"},
    };
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char error[512];
    for (size_t i = 0; i < MR_ARRAY_LEN(settings); i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], error, sizeof(error)) !=
            RD_KAFKA_CONF_OK) {
            load_say("Kafka: %s", error);
        }
    }
    rd_kafka_t *kafka = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof(error));
    if (kafka == NULL) {
        load_say("Kafka: %s", error);
        rd_kafka_conf_destroy(conf);
    }
    return kafka;
}

static void make_topic(struct load_reader *reader, const char *topic)
{
    char error[256];
    rd_kafka_NewTopic_t *new_topic = rd_kafka_NewTopic_new(topic, 1, -1, error, sizeof(error));
    rd_kafka_queue_t *queue = rd_kafka_queue_new(reader->kafka);
    rd_kafka_CreateTopics(reader->kafka, &new_topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, TIMEOUT_MS);
    if (event != NULL) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(new_topic);
}

/* Partitions of a topic, 0 when it is not there. */
static int partitions(struct load_reader *reader, const char *topic)
{
    rd_kafka_topic_t *handle = rd_kafka_topic_new(reader->kafka, topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(reader->kafka, 0, handle, &metadata, TIMEOUT_MS);
    int count = 0;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        load_say("Kafka at %s: %s", reader->options->brokers, rd_kafka_err2str(error));
        count = -1;
    } else {
        if (metadata->topic_cnt == 1 && metadata->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            count = metadata->topics[0].partition_cnt;
        }
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
    return count;
}

/* All partitions of a topic, from their ends. A topic just made takes a moment to show. */
static bool add_topic(struct load_reader *reader, const char *topic,
                      rd_kafka_topic_partition_list_t *list)
{
    int count = partitions(reader, topic);
    if (count == 0) {
        make_topic(reader, topic);
    }
    for (int tries = 0; count == 0 && tries < 100; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
        count = partitions(reader, topic);
    }
    if (count <= 0) {
        load_say("topic %s is not there and could not be made", topic);
        return false;
    }
    for (int i = 0; i < count; i++) {
        int64_t low, high = 0;
        rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__FAIL;
        for (int tries = 0; error != RD_KAFKA_RESP_ERR_NO_ERROR && tries < 50; tries++) {
            error =
                rd_kafka_query_watermark_offsets(reader->kafka, topic, i, &low, &high, TIMEOUT_MS);
            if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
                nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
            }
        }
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            load_say("where topic %s ends is unknown: %s", topic, rd_kafka_err2str(error));
            return false;
        }
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = high;
    }
    return true;
}

/* The header as text in `ret_text`, "" when it is missing. */
static void header(const rd_kafka_headers_t *headers, const char *name, char *ret_text, size_t size)
{
    const void *value;
    size_t len;
    *ret_text = '\0';
    if (headers != NULL &&
        rd_kafka_header_get_last(headers, name, &value, &len) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        len < size) {
        memcpy(ret_text, value, len);
        ret_text[len] = '\0';
    }
}

/* True when the position is not after the last one of its partition. */
static bool is_repeated(struct load_reader *reader, const rd_kafka_message_t *message,
                        const char *position)
{
    size_t i = 0;
    while (i < reader->seen_count && (reader->seen[i].topic != message->rkt ||
                                      reader->seen[i].partition != message->partition)) {
        i++;
    }
    if (i == PARTITIONS_MAX || *position == '\0') {
        return false;
    }
    if (i == reader->seen_count) {
        reader->seen_count++;
        reader->seen[i].topic = message->rkt;
        reader->seen[i].partition = message->partition;
    } else if (strcmp(position, reader->seen[i].position) <= 0) {
        return true;
    }
    snprintf(reader->seen[i].position, POSITION_MAX, "%s", position);
    return false;
}

/* When the row was due, 0 for a delete (its row is an old one). */
static int64_t due_us(const rd_kafka_message_t *message)
{
    static const char name[] = "\"due_us\":";
    static const char deleted[] = "\"after\":null";         /* the format debezium */
    static const char also_deleted[] = "\"op\":\"DELETE\""; /* flat */
    const char *at = message->payload;
    const char *end = at + message->len;
    const char *last = NULL;
    if (memmem(at, message->len, deleted, sizeof(deleted) - 1) != NULL ||
        memmem(at, message->len, also_deleted, sizeof(also_deleted) - 1) != NULL) {
        return 0;
    }
    /* The row before the change, if it is there, comes first. */
    while ((at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1)) != NULL) {
        at += sizeof(name) - 1;
        last = at;
    }
    int64_t us = 0;
    for (; last != NULL && last < end && *last >= '0' && *last <= '9'; last++) {
        us = us * 10 + (*last - '0');
    }
    return us;
}

static void take(struct load_reader *reader, const rd_kafka_message_t *message, int64_t now_us)
{
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR || message->payload == NULL) {
        return; /* an error that passes, or the tombstone after a delete */
    }
    rd_kafka_headers_t *headers = NULL;
    rd_kafka_message_headers(message, &headers);
    char position[POSITION_MAX], commit[24];
    header(headers, "mr-pos", position, sizeof(position));
    header(headers, "mr-ts", commit, sizeof(commit));
    if (is_repeated(reader, message, position)) {
        atomic_fetch_add(&reader->counters->repeated, 1);
        return;
    }
    int step = atomic_load(&reader->counters->step);
    if (*commit != '\0') {
        load_histogram_add(&reader->latency[step], now_us - strtoll(commit, NULL, 10), 1);
    }
    int64_t due = due_us(message);
    if (due != 0) {
        load_histogram_add(&reader->response[step], now_us - due, 1);
    }
    atomic_fetch_add(&reader->counters->delivered, 1);
    atomic_store(&reader->counters->last_arrival_ns, mr_monotonic_ns());
}

static void *reader_main(void *context)
{
    struct load_reader *reader = context;
    static rd_kafka_message_t *messages[BATCH];
    while (!atomic_load(&reader->counters->finished)) {
        /* Small waits: the call gathers until the batch is full or the time is over. */
        ssize_t count = rd_kafka_consume_batch_queue(reader->queue, 2, messages, BATCH);
        int64_t now_us = mr_wall_ns() / 1000;
        for (ssize_t i = 0; i < count; i++) {
            take(reader, messages[i], now_us);
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return NULL;
}

struct load_reader *load_reader_start(const struct load_options *options,
                                      struct load_counters *counters)
{
    struct load_reader *reader = MR_NEW(struct load_reader);
    reader->options = options;
    reader->counters = counters;
    reader->kafka = consumer_new(options);
    if (reader->kafka == NULL) {
        free(reader);
        return NULL;
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)options->tables);
    bool fine = true;
    for (unsigned i = 1; fine && i <= options->tables; i++) {
        char topic[256];
        snprintf(topic, sizeof(topic), "%s.public.%s_%u", options->prefix, options->table, i);
        fine = add_topic(reader, topic, list);
    }
    if (fine) {
        rd_kafka_poll_set_consumer(reader->kafka);
        rd_kafka_assign(reader->kafka, list);
        reader->queue = rd_kafka_queue_get_consumer(reader->kafka);
        MR_ASSERT(pthread_create(&reader->thread, NULL, reader_main, reader) == 0);
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (!fine) {
        rd_kafka_destroy(reader->kafka);
        free(reader);
        return NULL;
    }
    return reader;
}

const struct load_histogram *load_reader_latency(const struct load_reader *reader, int step)
{
    return &reader->latency[step];
}

const struct load_histogram *load_reader_response(const struct load_reader *reader, int step)
{
    return &reader->response[step];
}

void load_reader_join(struct load_reader *reader)
{
    pthread_join(reader->thread, NULL);
    rd_kafka_queue_destroy(reader->queue);
    rd_kafka_consumer_close(reader->kafka);
    rd_kafka_destroy(reader->kafka);
}

void load_reader_free(struct load_reader *reader)
{
    free(reader);
}
