#include "kafka/kafka_group.h"

#include <inttypes.h>

#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_threads.h"

enum { HEARTBEAT_MS_MAX = 3000, ANSWER_MS = 5000 };

struct mr_kafka_group {
    struct mr_kafka_group_options options;
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    rd_kafka_event_t *event;                  /* whose bytes were handed out last */
    rd_kafka_topic_partition_list_t *revoked; /* NULL: nothing is to be released */
    int32_t *partitions;
};

static mr_status begin(struct mr_kafka_group *group, struct mr_error *ret_error)
{
    const struct mr_kafka_group_options *options = &group->options;
    bool joins = options->group != NULL;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(2);
    for (size_t i = 0; i < MR_ARRAY_LEN(options->topics) && options->topics[i] != NULL; i++) {
        rd_kafka_topic_partition_list_add(list, options->topics[i],
                                          joins ? RD_KAFKA_PARTITION_UA : 0)
            ->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    rd_kafka_resp_err_t err =
        joins ? rd_kafka_subscribe(group->consumer, list) : rd_kafka_assign(group->consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG, "Kafka topic \"%s\" can't be followed: %s",
                         options->topics[0], rd_kafka_err2str(err));
}

void mr_kafka_group_follow_again(struct mr_kafka_group *group)
{
    MR_ASSERT(group->options.group == NULL);
    rd_kafka_assign(group->consumer, NULL);
    mr_status began = begin(group, NULL);
    MR_ASSERT(began == MR_OK);
}

mr_status mr_kafka_group_new(const struct mr_kafka_group_options *options,
                             struct mr_kafka_group **ret_group, struct mr_error *ret_error)
{
    char session[24], heartbeat[24], poll[24];
    int64_t beat =
        options->session_ms / 10 > HEARTBEAT_MS_MAX ? HEARTBEAT_MS_MAX : options->session_ms / 10;
    snprintf(session, sizeof(session), "%" PRId64, options->session_ms);
    snprintf(heartbeat, sizeof(heartbeat), "%" PRId64, beat);
    snprintf(poll, sizeof(poll), "%" PRId64, options->poll_ms);
    const struct mr_kafka_property properties[] = {
        {"isolation.level", "read_committed"},
        {"auto.offset.reset", "earliest"}, /* of a topic that was made anew */
        {"fetch.wait.max.ms", "250"}, /* that a partition has ended is heard after two of them */
        {"queued.max.messages.kbytes", "4096"},
        {"topic.metadata.refresh.interval.ms", "5000"}, /* a topic that is made later */
        {"fetch.max.bytes", "16000000"},
        {"message.max.bytes", "16000000"},
        /* Those of a group come last. */
        {"group.id", options->group},
        {"group.instance.id", options->member},
        {"partition.assignment.strategy", "cooperative-sticky"},
        {"session.timeout.ms", session},
        {"heartbeat.interval.ms", heartbeat},
        {"max.poll.interval.ms", poll},
    };
    size_t count = MR_ARRAY_LEN(properties) - (options->group == NULL ? 6 : 0);
    rd_kafka_t *consumer;
    MR_TRY(mr_kafka_consumer_new(options->kafka, properties, count, RD_KAFKA_EVENT_REBALANCE,
                                 &consumer, ret_error));
    struct mr_kafka_group *group = MR_NEW(struct mr_kafka_group);
    *group = (struct mr_kafka_group){
        .options = *options, .consumer = consumer, .queue = rd_kafka_queue_get_consumer(consumer)};
    static const uint64_t one = 1;
    rd_kafka_queue_io_event_enable(group->queue, options->wake_fd, &one, sizeof(one));
    mr_status status = begin(group, ret_error);
    if (status != MR_OK) {
        mr_kafka_group_free(group);
        return status;
    }
    *ret_group = group;
    return MR_OK;
}

static void forget_event(struct mr_kafka_group *group)
{
    if (group->event != NULL) {
        rd_kafka_event_destroy(group->event);
        group->event = NULL;
    }
}

void mr_kafka_group_free(struct mr_kafka_group *group)
{
    if (group != NULL) {
        forget_event(group);
        if (group->revoked != NULL) {
            rd_kafka_topic_partition_list_destroy(group->revoked);
        }
        rd_kafka_queue_io_event_enable(group->queue, -1, NULL, 0);
        rd_kafka_queue_destroy(group->queue);
        mr_kafka_client_end(group->consumer, MR_KAFKA_END_MS);
        free(group->partitions);
        free(group);
    }
}

/* librdkafka waits for the call that answers a rebalance, be it within the event or later (rd_kafka_rebalance_op_incr: the join state is
 * wait-unassign-call until then), and beats on meanwhile. */
static void answer(struct mr_kafka_group *group, const rd_kafka_topic_partition_list_t *list,
                   bool is_given)
{
    rd_kafka_error_t *error = is_given ? rd_kafka_incremental_assign(group->consumer, list)
                                       : rd_kafka_incremental_unassign(group->consumer, list);
    if (error != NULL) { /* it is being fenced, which is an event of its own */
        rd_kafka_error_destroy(error);
    }
}

void mr_kafka_group_release(struct mr_kafka_group *group)
{
    if (group->revoked != NULL) {
        answer(group, group->revoked, false);
        rd_kafka_topic_partition_list_destroy(group->revoked);
        group->revoked = NULL;
    }
}

static void take_rebalance(struct mr_kafka_group *group, struct mr_kafka_news_item *ret)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(group->event);
    bool is_given = rd_kafka_event_error(group->event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    bool is_lost = !is_given && rd_kafka_assignment_lost(group->consumer);
    group->partitions = MR_REALLOC(group->partitions, sizeof(int32_t) * ((size_t)list->cnt + 1));
    for (int i = 0; i < list->cnt; i++) {
        group->partitions[i] = list->elems[i].partition;
        list->elems[i].offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    mr_kafka_group_release(group);
    if (is_given || is_lost) {
        answer(group, list, is_given);
    } else {
        group->revoked = rd_kafka_topic_partition_list_copy(list);
    }
    *ret = (struct mr_kafka_news_item){.kind = is_given  ? MR_NEWS_ASSIGNED
                                               : is_lost ? MR_NEWS_LOST
                                                         : MR_NEWS_REVOKED,
                                       .partitions = group->partitions,
                                       .count = (uint32_t)list->cnt};
}

/* As the options have it. */
static const char *topic_of(const struct mr_kafka_group *group, const char *name)
{
    const char *const *topics = group->options.topics;
    return topics[1] != NULL && strcmp(topics[1], name) == 0 ? topics[1] : topics[0];
}

/* False: nothing to tell; the client goes on by itself. */
static bool take_error(struct mr_kafka_group *group, struct mr_kafka_news_item *ret)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(group->event);
    *ret = (struct mr_kafka_news_item){.text = rd_kafka_event_error_string(group->event)};
    if (err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        rd_kafka_topic_partition_t *place = rd_kafka_event_topic_partition(group->event);
        ret->kind = MR_NEWS_READ;
        ret->topic = topic_of(group, place->topic);
        ret->record.partition = place->partition;
        rd_kafka_topic_partition_destroy(place);
        return true;
    }
    ret->kind = err == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID ? MR_NEWS_FENCED
                : mr_kafka_is_refusal(err) || err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
                    ? MR_NEWS_REFUSED
                    : MR_NEWS_GONE;
    return ret->kind != MR_NEWS_GONE || mr_kafka_is_missing(err) ||
           err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
           err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET;
}

static bool take_record(struct mr_kafka_group *group, struct mr_kafka_news_item *ret)
{
    const rd_kafka_message_t *message = rd_kafka_event_message_next(group->event);
    if (message == NULL || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return false;
    }
    *ret = (struct mr_kafka_news_item){
        .kind = MR_NEWS_RECORD,
        .topic = topic_of(group, rd_kafka_topic_name(message->rkt)),
        .record = {.partition = message->partition,
                   .offset = message->offset,
                   .key = {.data = message->key, .len = message->key_len},
                   .value = {.data = message->payload, .len = message->len}}};
    return true;
}

bool mr_kafka_group_next(struct mr_kafka_group *group, struct mr_kafka_news_item *ret)
{
    bool found = false;
    while (!found) {
        forget_event(group);
        group->event = rd_kafka_queue_poll(group->queue, 0);
        if (group->event == NULL) {
            return false;
        }
        switch (rd_kafka_event_type(group->event)) {
        case RD_KAFKA_EVENT_FETCH:
            found = take_record(group, ret);
            break;
        case RD_KAFKA_EVENT_REBALANCE:
            take_rebalance(group, ret);
            found = true;
            break;
        case RD_KAFKA_EVENT_ERROR:
            found = take_error(group, ret);
            break;
        default:
            break;
        }
    }
    return true;
}

bool mr_kafka_group_topic_is_gone(struct mr_kafka_group *group)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(group->consumer, group->options.topics[0], NULL);
    const struct rd_kafka_metadata *found;
    rd_kafka_resp_err_t err = rd_kafka_metadata(group->consumer, 0, topic, &found, ANSWER_MS);
    rd_kafka_topic_destroy(topic);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return mr_kafka_is_missing(err);
    }
    bool is_gone = found->topic_cnt == 1 && mr_kafka_is_missing(found->topics[0].err);
    rd_kafka_metadata_destroy(found);
    return is_gone;
}
