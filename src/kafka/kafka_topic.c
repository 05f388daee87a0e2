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

enum { SETTING_TIMEOUT_MS = 5000 };

void mr_kafka_setting(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *of,
                      const char *setting, char *ret_value, size_t size, char *ret_reason,
                      size_t reason_size)
{
    ret_value[0] = '\0';
    snprintf(ret_reason, reason_size, "no answer");
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(type, of);
    rd_kafka_queue_t *answers = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_AdminOptions_set_request_timeout(options, SETTING_TIMEOUT_MS, NULL, 0);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, SETTING_TIMEOUT_MS);
    if (event != NULL && rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        snprintf(ret_reason, reason_size, "%s", rd_kafka_event_error_string(event));
    } else if (event != NULL) {
        size_t count;
        const rd_kafka_ConfigResource_t **found = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(event), &count);
        const rd_kafka_ConfigEntry_t **entries = NULL;
        size_t entry_count = 0;
        if (count == 1) {
            entries = rd_kafka_ConfigResource_configs(found[0], &entry_count);
            snprintf(ret_reason, reason_size, "%s",
                     rd_kafka_err2str(rd_kafka_ConfigResource_error(found[0])));
        }
        for (size_t i = 0; i < entry_count; i++) {
            const char *value = rd_kafka_ConfigEntry_value(entries[i]);
            if (value != NULL && strcmp(rd_kafka_ConfigEntry_name(entries[i]), setting) == 0) {
                snprintf(ret_value, size, "%s", value);
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
