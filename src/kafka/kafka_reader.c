#include "kafka/kafka_reader.h"

#include "base/clock.h"
#include "kafka/kafka_ahead.h"
#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_threads.h"
#include "kafka/kafka_topic.h"

enum { ANSWER_TIMEOUT_MS = 30000 };

struct partition {
    int64_t begin;
    int64_t end;
    bool is_done;
};

struct mr_kafka_reader {
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    struct partition *partitions;
    uint32_t count;
    uint32_t done;
    struct mr_kafka_ahead *ahead; /* NULL: nothing is being read */
};

mr_status mr_kafka_reader_new(const struct mr_kafka_options *options,
                              struct mr_kafka_reader **ret_reader, struct mr_error *ret_error)
{
    static const struct mr_kafka_property properties[] = {
        {"isolation.level", "read_committed"},
        {"fetch.wait.max.ms", "100"},
        /* What is fetched and not taken yet. Where that is so much, librdkafka asks for more after
         * a second by default (rd_kafka_toppar_fetch_decide), and we have taken it in a fraction of
         * one. */
        {"queued.max.messages.kbytes", "4096"},
        {"fetch.queue.backoff.ms", "5"},
        /* A response stays in memory until its last record is taken. */
        {"max.partition.fetch.bytes", "262144"},
        /* One record may be as large as a broker takes. */
        {"fetch.max.bytes", "16000000"},
        {"message.max.bytes", "16000000"},
    };
    rd_kafka_t *consumer;
    MR_TRY(mr_kafka_consumer_new(options, properties, MR_ARRAY_LEN(properties), 0, &consumer,
                                 ret_error));
    struct mr_kafka_reader *reader = MR_NEW(struct mr_kafka_reader);
    *reader = (struct mr_kafka_reader){.consumer = consumer,
                                       .queue = rd_kafka_queue_get_consumer(consumer)};
    *ret_reader = reader;
    return MR_OK;
}

static void kafka_reader_forget(struct mr_kafka_reader *reader)
{
    mr_kafka_ahead_stop(reader->ahead);
    reader->ahead = NULL;
    rd_kafka_assign(reader->consumer, NULL); /* or it would go on fetching for nobody */
}

static void close_topic(struct mr_kafka_reader *reader)
{
    kafka_reader_forget(reader);
    free(reader->partitions);
    reader->partitions = NULL;
    reader->count = reader->done = 0;
}

void mr_kafka_reader_free(struct mr_kafka_reader *reader)
{
    if (reader != NULL) {
        close_topic(reader);
        rd_kafka_queue_destroy(reader->queue);
        mr_kafka_client_end(reader->consumer, MR_KAFKA_END_MS);
        free(reader);
    }
}

static mr_status kafka_reader_unreadable(const char *topic, rd_kafka_resp_err_t err,
                                         const char *reason, struct mr_error *ret_error)
{
    return mr_fail(ret_error, mr_kafka_is_refusal(err) ? MR_ERR_AUTH : MR_ERR_TRANSIENT,
                   "Kafka topic \"%s\" can't be read: %s%s", topic, reason,
                   mr_kafka_is_refusal(err) ? "; grant the user Describe and Read on it" : "");
}

static mr_status count_partitions(struct mr_kafka_reader *reader, const char *topic,
                                  uint32_t *ret_count, struct mr_error *ret_error)
{
    rd_kafka_topic_t *handle = rd_kafka_topic_new(reader->consumer, topic, NULL);
    const struct rd_kafka_metadata *found;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(reader->consumer, 0, handle, &found, ANSWER_TIMEOUT_MS);
    rd_kafka_topic_destroy(handle);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return kafka_reader_unreadable(topic, err, rd_kafka_err2str(err), ret_error);
    }
    err = found->topic_cnt == 1 ? found->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    *ret_count = err == RD_KAFKA_RESP_ERR_NO_ERROR ? (uint32_t)found->topics[0].partition_cnt : 0;
    rd_kafka_metadata_destroy(found);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR || mr_kafka_is_missing(err)
               ? MR_OK
               : kafka_reader_unreadable(topic, err, rd_kafka_err2str(err), ret_error);
}

/* One end of all partitions. Uncommitted records count: those of millrace may lie after the first
 * of a transaction of another producer that is still open, and then have to be waited for. */
static mr_status kafka_reader_ask_ends(struct mr_kafka_reader *reader, const char *topic,
                                       int64_t which, struct mr_error *ret_error)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)reader->count);
    for (uint32_t i = 0; i < reader->count; i++) {
        rd_kafka_topic_partition_list_add(list, topic, (int32_t)i)->offset = which;
    }
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(reader->consumer, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
    rd_kafka_AdminOptions_set_request_timeout(options, ANSWER_TIMEOUT_MS, NULL, 0);
    rd_kafka_queue_t *answers = rd_kafka_queue_new(reader->consumer);
    rd_kafka_ListOffsets(reader->consumer, list, options, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, 2 * ANSWER_TIMEOUT_MS);
    rd_kafka_resp_err_t err =
        event == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT : rd_kafka_event_error(event);
    size_t count = 0;
    const rd_kafka_ListOffsetsResultInfo_t **infos =
        err != RD_KAFKA_RESP_ERR_NO_ERROR
            ? NULL
            : rd_kafka_ListOffsets_result_infos(rd_kafka_event_ListOffsets_result(event), &count);
    for (size_t i = 0; i < count && err == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        const rd_kafka_topic_partition_t *part =
            rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i]);
        err = part->err;
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR && (part->offset < 0 || part->partition < 0 ||
                                                  (uint32_t)part->partition >= reader->count)) {
            err = RD_KAFKA_RESP_ERR__BAD_MSG;
        }
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            struct partition *partition = &reader->partitions[part->partition];
            *(which == RD_KAFKA_OFFSET_SPEC_EARLIEST ? &partition->begin : &partition->end) =
                part->offset;
        }
    }
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR && count != reader->count) {
        err = RD_KAFKA_RESP_ERR__BAD_MSG;
    }
    if (event != NULL) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(answers);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_topic_partition_list_destroy(list);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR
               ? MR_OK
               : kafka_reader_unreadable(topic, err, rd_kafka_err2str(err), ret_error);
}

static mr_status kafka_reader_assign(struct mr_kafka_reader *reader,
                                     const rd_kafka_topic_partition_list_t *list,
                                     struct mr_error *ret_error)
{
    rd_kafka_resp_err_t err = rd_kafka_assign(reader->consumer, list);
    MR_ASSERT(err == RD_KAFKA_RESP_ERR_NO_ERROR && reader->ahead == NULL);
    return mr_kafka_ahead_start(reader->queue, &reader->ahead, ret_error);
}

static mr_status begin_reading(struct mr_kafka_reader *reader, const char *topic,
                               struct mr_error *ret_error)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)reader->count);
    for (uint32_t i = 0; i < reader->count; i++) {
        struct partition *partition = &reader->partitions[i];
        partition->is_done = partition->begin >= partition->end;
        if (partition->is_done) {
            reader->done++;
        } else {
            rd_kafka_topic_partition_list_add(list, topic, (int32_t)i)->offset = partition->begin;
        }
    }
    mr_status status = list->cnt > 0 ? kafka_reader_assign(reader, list, ret_error) : MR_OK;
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

static uint64_t records_ahead(const struct mr_kafka_reader *reader)
{
    uint64_t records = 0;
    for (uint32_t i = 0; i < reader->count; i++) {
        const struct partition *partition = &reader->partitions[i];
        records += partition->is_done ? 0 : (uint64_t)(partition->end - partition->begin);
    }
    return records;
}

mr_status mr_kafka_reader_open(struct mr_kafka_reader *reader, const char *topic,
                               struct mr_kafka_extent *ret_extent, struct mr_error *ret_error)
{
    close_topic(reader);
    MR_TRY(count_partitions(reader, topic, &reader->count, ret_error));
    struct mr_kafka_extent extent = {.partitions = reader->count};
    if (reader->count > 0) {
        reader->partitions = MR_NEW_ARRAY(struct partition, reader->count);
        memset(reader->partitions, 0, sizeof(*reader->partitions) * reader->count);
        MR_TRY(kafka_reader_ask_ends(reader, topic, RD_KAFKA_OFFSET_SPEC_LATEST, ret_error));
        MR_TRY(kafka_reader_ask_ends(reader, topic, RD_KAFKA_OFFSET_SPEC_EARLIEST, ret_error));
        MR_TRY(begin_reading(reader, topic, ret_error));
    }
    for (uint32_t i = 0; i < reader->count; i++) {
        extent.cut += reader->partitions[i].begin > 0;
    }
    extent.records = records_ahead(reader);
    *ret_extent = extent;
    return MR_OK;
}

mr_status mr_kafka_reader_extend(struct mr_kafka_reader *reader, const char *topic,
                                 struct mr_kafka_extent *extent, struct mr_error *ret_error)
{
    MR_ASSERT(reader->done == reader->count);
    MR_TRY(count_partitions(reader, topic, &extent->partitions, ret_error));
    if (extent->partitions != reader->count || reader->count == 0) {
        return MR_OK;
    }
    kafka_reader_forget(reader);
    for (uint32_t i = 0; i < reader->count; i++) {
        struct partition *partition = &reader->partitions[i];
        partition->begin = partition->end > partition->begin ? partition->end : partition->begin;
    }
    MR_TRY(kafka_reader_ask_ends(reader, topic, RD_KAFKA_OFFSET_SPEC_LATEST, ret_error));
    reader->done = 0;
    MR_TRY(begin_reading(reader, topic, ret_error));
    extent->records += records_ahead(reader);
    return MR_OK;
}

static void kafka_reader_pass(struct mr_kafka_reader *reader, int32_t number, int64_t offset)
{
    struct partition *partition = &reader->partitions[number];
    if (!partition->is_done && offset >= partition->end) {
        partition->is_done = true;
        reader->done++;
    }
}

static bool is_passing(const struct mr_kafka_taken *failed)
{
    return failed->err == RD_KAFKA_RESP_ERR__TIMED_OUT || mr_kafka_is_passing(failed->message);
}

mr_status mr_kafka_reader_next(struct mr_kafka_reader *reader, struct mr_kafka_read *ret_record,
                               struct mr_error *ret_error)
{
    while (reader->done < reader->count) {
        const struct mr_kafka_taken *taken = mr_kafka_ahead_next(reader->ahead);
        if (taken == NULL) {
            return MR_AGAIN;
        }
        const struct mr_kafka_read *read = &taken->read;
        if (taken->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            bool is_ours = read->offset < reader->partitions[read->partition].end;
            kafka_reader_pass(reader, read->partition, read->offset + 1);
            if (is_ours) {
                *ret_record = *read;
                return MR_OK;
            }
        } else if (taken->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            kafka_reader_pass(reader, read->partition, read->offset);
        } else if (!is_passing(taken)) {
            const rd_kafka_message_t *message = taken->message;
            return kafka_reader_unreadable(message->rkt == NULL ? "?"
                                                                : rd_kafka_topic_name(message->rkt),
                                           taken->err, rd_kafka_message_errstr(message), ret_error);
        }
    }
    return MR_END;
}

mr_status mr_kafka_reader_fetch(struct mr_kafka_reader *reader, const char *topic,
                                int32_t partition, int64_t offset, struct mr_kafka_read *ret_record,
                                struct mr_error *ret_error)
{
    close_topic(reader);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
    mr_status status = kafka_reader_assign(reader, list, ret_error);
    rd_kafka_topic_partition_list_destroy(list);
    MR_TRY(status);
    int64_t end_ns = mr_monotonic_ns() + (int64_t)ANSWER_TIMEOUT_MS * 1000000;
    while (mr_monotonic_ns() < end_ns) {
        const struct mr_kafka_taken *taken = mr_kafka_ahead_next(reader->ahead);
        if (taken == NULL || is_passing(taken)) {
            continue;
        }
        if (taken->err == RD_KAFKA_RESP_ERR_NO_ERROR && taken->read.offset == offset) {
            *ret_record = taken->read;
            return MR_OK;
        }
        return taken->err == RD_KAFKA_RESP_ERR_NO_ERROR ||
                       taken->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
                       taken->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET
                   ? MR_END
                   : kafka_reader_unreadable(topic, taken->err,
                                             rd_kafka_message_errstr(taken->message), ret_error);
    }
    return kafka_reader_unreadable(topic, RD_KAFKA_RESP_ERR__TIMED_OUT, "no answer", ret_error);
}

bool mr_kafka_reader_is_compacted(struct mr_kafka_reader *reader, const char *topic,
                                  bool *ret_is_compacted)
{
    char policy[64];
    char unused[256];
    mr_kafka_topic_policy(reader->consumer, topic, policy, sizeof(policy), unused, sizeof(unused));
    *ret_is_compacted = strstr(policy, "compact") != NULL;
    return policy[0] != '\0';
}
