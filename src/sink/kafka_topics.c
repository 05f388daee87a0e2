#include "sink/kafka_topics.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    ADMIN_TIMEOUT_MS = 10000,
    METADATA_TIMEOUT_MS = 5000,
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
    HANDLES_MIN = 16,
};

void mr_kafka_topics_init(struct mr_kafka_topics *topics, rd_kafka_t *producer,
                          const struct mr_kafka_options *options, int stop_fd)
{
    *topics =
        (struct mr_kafka_topics){.producer = producer, .options = options, .stop_fd = stop_fd};
}

void mr_kafka_topics_done(struct mr_kafka_topics *topics)
{
    for (uint32_t i = 0; i < topics->capacity; i++) {
        if (topics->handles[i] != NULL) {
            rd_kafka_topic_destroy(topics->handles[i]);
        }
    }
    free(topics->handles);
    *topics = (struct mr_kafka_topics){0};
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
    }
    rd_kafka_metadata_destroy(metadata);
    return err;
}

/* The result of the one topic that was asked for. */
static rd_kafka_resp_err_t create_result(rd_kafka_event_t *event, char *reason, size_t reason_size)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    const rd_kafka_CreateTopics_result_t *result = rd_kafka_event_CreateTopics_result(event);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR && result != NULL) {
        size_t count;
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(result, &count);
        if (count == 1) {
            err = rd_kafka_topic_result_error(results[0]);
            text = rd_kafka_topic_result_error_string(results[0]);
        }
    }
    snprintf(reason, reason_size, "%s", text == NULL ? rd_kafka_err2str(err) : text);
    return err == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS ? RD_KAFKA_RESP_ERR_NO_ERROR : err;
}

static rd_kafka_resp_err_t topic_create(struct mr_kafka_topics *topics, const char *name,
                                        char *reason, size_t reason_size)
{
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(
        name, topics->options->partitions, topics->options->replication, reason, reason_size);
    if (wanted == NULL) {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    rd_kafka_queue_t *answer = rd_kafka_queue_new(topics->producer);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(topics->producer, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(options, ADMIN_TIMEOUT_MS, NULL, 0);
    rd_kafka_CreateTopics(topics->producer, &wanted, 1, options, answer);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answer, ADMIN_TIMEOUT_MS + 1000);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (event != NULL) {
        err = create_result(event, reason, reason_size);
        rd_kafka_event_destroy(event);
    } else {
        snprintf(reason, reason_size, "the broker does not answer");
    }
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(answer);
    rd_kafka_NewTopic_destroy(wanted);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        mr_log(MR_LOG_INFO, "topic_created", "the topic did not exist and was created",
               MR_LOG_STR("topic", name), MR_LOG_INT("partitions", topics->options->partitions));
    }
    return err;
}

static bool stopped_within(const struct mr_kafka_topics *topics, int wait_ms)
{
    struct pollfd stop = {.fd = topics->stop_fd, .events = POLLIN};
    return poll(&stop, 1, wait_ms) == 1;
}

static bool is_missing(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
}

/* One look, and one attempt to create; `reason` tells what stands in the way. */
static rd_kafka_resp_err_t topic_try(struct mr_kafka_topics *topics, const char *name,
                                     rd_kafka_topic_t *handle, char *reason, size_t reason_size)
{
    rd_kafka_resp_err_t err = topic_state(topics, handle);
    snprintf(reason, reason_size, "%s", rd_kafka_err2str(err));
    if (!is_missing(err)) {
        return err;
    }
    if (!topics->options->create_topics) {
        snprintf(reason, reason_size,
                 "it does not exist; create it, or set sink.kafka.create_topics = true");
        return err;
    }
    err = topic_create(topics, name, reason, reason_size);
    /* Created is not yet known everywhere: look again. */
    return err == RD_KAFKA_RESP_ERR_NO_ERROR ? RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE : err;
}

static mr_status topic_wait(struct mr_kafka_topics *topics, const char *name,
                            rd_kafka_topic_t *handle, struct mr_error *ret_error)
{
    char reason[256];
    bool told = false;
    int wait_ms = RETRY_MIN_MS / 10;
    for (;;) {
        rd_kafka_resp_err_t err = topic_try(topics, name, handle, reason, sizeof(reason));
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            return MR_OK;
        }
        if (err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
            err == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED ||
            err == RD_KAFKA_RESP_ERR__AUTHENTICATION) {
            return mr_fail(
                ret_error, MR_ERR_AUTH,
                "Kafka topic \"%s\": %s; grant the user Describe, Write and Create on it", name,
                reason);
        }
        if (err == RD_KAFKA_RESP_ERR__FATAL) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT, "Kafka topic \"%s\": %s", name, reason);
        }
        if (!told && wait_ms >= RETRY_MIN_MS) {
            mr_log(MR_LOG_WARN, "topic_wait", reason, MR_LOG_STR("topic", name));
            told = true;
        }
        if (stopped_within(topics, wait_ms)) {
            return MR_AGAIN;
        }
        wait_ms = wait_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : wait_ms * 2;
    }
}

mr_status mr_kafka_topics_get(struct mr_kafka_topics *topics, const struct mr_topic *topic,
                              rd_kafka_topic_t **ret_handle, struct mr_error *ret_error)
{
    if (MR_LIKELY(topic->index < topics->capacity && topics->handles[topic->index] != NULL)) {
        *ret_handle = topics->handles[topic->index];
        return MR_OK;
    }
    rd_kafka_topic_t *handle = rd_kafka_topic_new(topics->producer, topic->name, NULL);
    if (handle == NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG, "Kafka topic \"%s\": %s", topic->name,
                       rd_kafka_err2str(rd_kafka_last_error()));
    }
    mr_status status = topic_wait(topics, topic->name, handle, ret_error);
    if (status != MR_OK) {
        rd_kafka_topic_destroy(handle);
        return status;
    }
    if (topic->index >= topics->capacity) {
        uint32_t capacity = topic->index + HANDLES_MIN;
        topics->handles = MR_REALLOC(topics->handles, capacity * sizeof(*topics->handles));
        memset(topics->handles + topics->capacity, 0,
               (capacity - topics->capacity) * sizeof(*topics->handles));
        topics->capacity = capacity;
    }
    topics->handles[topic->index] = handle;
    *ret_handle = handle;
    return MR_OK;
}
