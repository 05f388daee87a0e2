#include "kafka/kafka_topic.h"

rd_kafka_queue_t *mr_kafka_create_topics(rd_kafka_t *producer, rd_kafka_NewTopic_t **wanted,
                                         size_t count)
{
    rd_kafka_queue_t *answer = rd_kafka_queue_new(producer);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(producer, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(options, MR_KAFKA_CREATE_MS, NULL, 0);
    rd_kafka_CreateTopics(producer, wanted, count, options, answer);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewTopic_destroy_array(wanted, count);
    return answer;
}

rd_kafka_resp_err_t mr_kafka_create_result(rd_kafka_event_t *event, const char *awaited,
                                           int32_t partitions, char *reason, size_t reason_size)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        snprintf(reason, reason_size, "%s", rd_kafka_event_error_string(event));
        return err;
    }
    size_t count;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = rd_kafka_topic_result_name(results[i]);
        rd_kafka_resp_err_t one = rd_kafka_topic_result_error(results[i]);
        if (one == RD_KAFKA_RESP_ERR_NO_ERROR) {
            mr_log(MR_LOG_INFO, "topic_created", "the topic did not exist and was created",
                   MR_LOG_STR("topic", name), MR_LOG_INT("partitions", partitions));
        } else if (one != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS && strcmp(name, awaited) == 0) {
            const char *text = rd_kafka_topic_result_error_string(results[i]);
            snprintf(reason, reason_size, "%s", text == NULL ? rd_kafka_err2str(one) : text);
            err = one;
        }
    }
    return err;
}

enum {
    SETTING_TIMEOUT_MS = 5000,
    BOUNDS_TIMEOUT_MS = 2000, /* nothing is sent meanwhile */
    SETTINGS_MAX = 4,
    SETTING_SIZE = 64,
};

/* The settings of these names; empty where the broker does not say, with `ret_reason` filled. */
static void ask_settings(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *of,
                         const char *const *names, char (*ret_values)[SETTING_SIZE], size_t count,
                         int timeout_ms, char *ret_reason, size_t reason_size)
{
    memset(ret_values, 0, count * sizeof(*ret_values));
    snprintf(ret_reason, reason_size, "no answer");
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(type, of);
    rd_kafka_queue_t *answers = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, NULL, 0);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, timeout_ms);
    if (event != NULL && rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        snprintf(ret_reason, reason_size, "%s", rd_kafka_event_error_string(event));
    } else if (event != NULL) {
        size_t found_count;
        const rd_kafka_ConfigResource_t **found = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(event), &found_count);
        const rd_kafka_ConfigEntry_t **entries = NULL;
        size_t entry_count = 0;
        if (found_count == 1) {
            entries = rd_kafka_ConfigResource_configs(found[0], &entry_count);
            snprintf(ret_reason, reason_size, "%s",
                     rd_kafka_err2str(rd_kafka_ConfigResource_error(found[0])));
        }
        for (size_t i = 0; i < entry_count * count; i++) {
            const rd_kafka_ConfigEntry_t *entry = entries[i / count];
            const char *value = rd_kafka_ConfigEntry_value(entry);
            if (value != NULL && strcmp(rd_kafka_ConfigEntry_name(entry), names[i % count]) == 0) {
                snprintf(ret_values[i % count], SETTING_SIZE, "%s", value);
            }
        }
    }
    if (event != NULL) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(answers);
    rd_kafka_ConfigResource_destroy(resource);
}

void mr_kafka_setting(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *of,
                      const char *setting, char *ret_value, size_t size, char *ret_reason,
                      size_t reason_size)
{
    char value[1][SETTING_SIZE];
    ask_settings(client, type, of, &setting, value, 1, SETTING_TIMEOUT_MS, ret_reason, reason_size);
    snprintf(ret_value, size, "%s", value[0]);
}

/* What is missing bounds nothing. */
static int64_t bound_of(const char *value)
{
    return value[0] == '\0' ? INT64_MAX : strtoll(value, NULL, 10);
}

struct mr_kafka_bounds mr_kafka_topic_bounds(rd_kafka_t *client, const char *topic)
{
    static const char *const names[SETTINGS_MAX] = {"cleanup.policy", "max.message.bytes",
                                                    "message.timestamp.before.max.ms",
                                                    "message.timestamp.after.max.ms"};
    char values[SETTINGS_MAX][SETTING_SIZE];
    char unused[256];
    ask_settings(client, RD_KAFKA_RESOURCE_TOPIC, topic, names, values, SETTINGS_MAX,
                 BOUNDS_TIMEOUT_MS, unused, sizeof(unused));
    int64_t bytes = bound_of(values[1]);
    return (struct mr_kafka_bounds){.is_known = values[0][0] != '\0',
                                    .is_compacted = strstr(values[0], "compact") != NULL,
                                    .bytes_max = bytes == INT64_MAX ? 0 : (size_t)bytes,
                                    .past_ms = bound_of(values[2]),
                                    .ahead_ms = bound_of(values[3])};
}
