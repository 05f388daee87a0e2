#include "kafka/kafka_writer.h"

#include "base/clock.h"
#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_threads.h"
#include "kafka/kafka_token.h"
#include "kafka/kafka_topic.h"

enum { CALL_MS = 1000, ANSWER_MS = 30000, FLUSH_MS = 2000, POLL_MS = 100, REASON_MAX = 256 };

struct mr_kafka_writer {
    rd_kafka_t *producer;
    struct mr_kafka_options options;
    rd_kafka_resp_err_t err; /* the last that librdkafka has told of, or why a record failed */
    char text[REASON_MAX];
};

static void remember(struct mr_kafka_writer *writer, rd_kafka_resp_err_t err, const char *text)
{
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) { /* another says why */
        writer->err = err;
        snprintf(writer->text, sizeof(writer->text), "%s", text);
    }
}

static void on_error(rd_kafka_t *producer, int err, const char *text, void *opaque)
{
    remember(opaque, (rd_kafka_resp_err_t)err, text);
}

static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR &&
        message->err != RD_KAFKA_RESP_ERR__PURGE_QUEUE) { /* of a transaction that has failed */
        remember(opaque, message->err, rd_kafka_err2str(message->err));
    }
}

static void give_token(rd_kafka_t *producer, const char *unused, void *opaque)
{
    const struct mr_kafka_writer *writer = opaque;
    mr_kafka_token_give(producer, writer->options.token_program);
}

mr_status mr_kafka_writer_new(const struct mr_kafka_options *options, const char *transactional_id,
                              struct mr_kafka_writer **ret_writer, struct mr_error *ret_error)
{
    static const struct mr_kafka_property own[] = {
        {"enable.gapless.guarantee", "false"}, /* each record stands for itself */
        {"message.timeout.ms", "25000"},
        {"transaction.timeout.ms",
         "30000"}, /* how long readers wait for one whose writer was killed */
    };
    char reason[REASON_MAX];
    struct mr_kafka_writer *writer = MR_NEW(struct mr_kafka_writer);
    *writer = (struct mr_kafka_writer){.options = *options};
    writer->options.exactly_once = transactional_id != NULL;
    writer->options.state_name = transactional_id;
    writer->options.statistics_interval_ms = 0;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    mr_status status = mr_kafka_conf_fill(conf, &writer->options, ret_error);
    for (size_t i = 0; i < MR_ARRAY_LEN(own); i++) {
        rd_kafka_conf_set(conf, own[i].name, own[i].value, reason, sizeof(reason));
    }
    rd_kafka_conf_set_opaque(conf, writer);
    rd_kafka_conf_set_log_cb(conf, NULL);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    mr_kafka_token_want(conf, &writer->options, give_token);
    if (status == MR_OK) {
        writer->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
        status = writer->producer != NULL ? MR_OK
                                          : mr_fail(ret_error, MR_ERR_CONFIG,
                                                    "Kafka producer can't be made: %s", reason);
    }
    if (status != MR_OK) {
        rd_kafka_conf_destroy(conf);
        free(writer);
        return status;
    }
    mr_kafka_token_begin(writer->producer, &writer->options);
    *ret_writer = writer;
    return MR_OK;
}

void mr_kafka_writer_free(struct mr_kafka_writer *writer)
{
    if (writer != NULL) {
        if (!writer->options.exactly_once) {
            rd_kafka_flush(writer->producer, FLUSH_MS);
        }
        mr_kafka_client_end(writer->producer, MR_KAFKA_END_MS);
        free(writer);
    }
}

static mr_status failed(const struct mr_kafka_writer *writer, const char *what,
                        rd_kafka_resp_err_t err, const char *text, struct mr_error *ret_error)
{
    char remedy[MR_KAFKA_REMEDY_MAX];
    char fatal[REASON_MAX];
    if (err == RD_KAFKA_RESP_ERR__FENCED ||
        rd_kafka_fatal_error(writer->producer, fatal, sizeof(fatal)) == RD_KAFKA_RESP_ERR__FENCED) {
        return mr_fail(ret_error, MR_AGAIN, "another writer of \"%s\" has come since",
                       writer->options.state_name);
    }
    mr_status status = mr_kafka_error_classify(err, text, &writer->options, remedy);
    return mr_fail(ret_error, status, "Kafka: %s: %s%s%s", what, text,
                   remedy[0] == '\0' ? "" : "; ", remedy);
}

typedef rd_kafka_error_t *(*call_fn)(rd_kafka_t *producer, int timeout_ms);

/* A call of transactions, until it is answered. */
static mr_status transact(struct mr_kafka_writer *writer, const char *what, call_fn call,
                          struct mr_error *ret_error)
{
    int64_t end_ns = mr_monotonic_ns() + (int64_t)ANSWER_MS * 1000000;
    rd_kafka_error_t *error;
    while ((error = call(writer->producer, CALL_MS)) != NULL) {
        rd_kafka_resp_err_t err = rd_kafka_error_code(error);
        char text[REASON_MAX];
        snprintf(text, sizeof(text), "%s", rd_kafka_error_string(error));
        bool is_over = !rd_kafka_error_is_retriable(error) || mr_monotonic_ns() > end_ns;
        rd_kafka_error_destroy(error);
        rd_kafka_poll(writer->producer, 0);
        if (is_over || mr_kafka_is_refusal(writer->err)) {
            bool is_told =
                writer->err != RD_KAFKA_RESP_ERR_NO_ERROR && err != RD_KAFKA_RESP_ERR__FENCED;
            return failed(writer, what, is_told ? writer->err : err, is_told ? writer->text : text,
                          ret_error);
        }
    }
    return MR_OK;
}

mr_status mr_kafka_writer_fence(struct mr_kafka_writer *writer, struct mr_error *ret_error)
{
    return transact(writer, "transactions can't begin", rd_kafka_init_transactions, ret_error);
}

static rd_kafka_resp_err_t produce(struct mr_kafka_writer *writer, const char *topic,
                                   const struct mr_kafka_written *record)
{
    return rd_kafka_producev(
        writer->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(record->partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_KEY((void *)(uintptr_t)record->key.data, record->key.len),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)record->value.data, record->value.len), RD_KAFKA_V_END);
}

/* A producer that asks for the first time while a topic is being made may take its partitions for unknown, and then fails records at once. */
static void learn_partitions(struct mr_kafka_writer *writer, const char *topic)
{
    int64_t end_ns = mr_monotonic_ns() + (int64_t)ANSWER_MS * 1000000;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(writer->producer, topic, NULL);
    const struct rd_kafka_metadata *found;
    bool is_known = false;
    while (!is_known && mr_monotonic_ns() < end_ns) {
        if (rd_kafka_metadata(writer->producer, 0, handle, &found, CALL_MS) ==
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            is_known = found->topic_cnt == 1 && found->topics[0].partition_cnt > 0;
            rd_kafka_metadata_destroy(found);
        }
        rd_kafka_poll(writer->producer, is_known ? 0 : POLL_MS);
    }
    rd_kafka_topic_destroy(handle);
}

mr_status mr_kafka_writer_commit(struct mr_kafka_writer *writer, const char *topic,
                                 const struct mr_kafka_written *records, uint32_t count,
                                 struct mr_error *ret_error)
{
    static const char what[] = "the change can't be written";
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
    learn_partitions(writer, topic);
    rd_kafka_error_t *error = rd_kafka_begin_transaction(writer->producer);
    if (error != NULL) {
        err = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        return failed(writer, what, err, rd_kafka_err2str(err), ret_error);
    }
    writer->err = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (uint32_t i = 0; i < count && err == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        err = produce(writer, topic, &records[i]);
    }
    mr_status status = err == RD_KAFKA_RESP_ERR_NO_ERROR
                           ? transact(writer, what, rd_kafka_commit_transaction, ret_error)
                           : failed(writer, what, err, rd_kafka_err2str(err), ret_error);
    if (status != MR_OK && status != MR_AGAIN) {
        struct mr_error unused;
        (void)transact(writer, what, rd_kafka_abort_transaction, &unused);
    }
    return status;
}

void mr_kafka_writer_send(struct mr_kafka_writer *writer, const char *topic,
                          const struct mr_kafka_written *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)produce(writer, topic, &records[i]); /* a full queue drops it */
    }
    rd_kafka_poll(writer->producer, 0);
}

mr_status mr_kafka_writer_create(struct mr_kafka_writer *writer, const char *name,
                                 int32_t partitions, struct mr_error *ret_error)
{
    char reason[REASON_MAX] = "no answer";
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(
        name, partitions, writer->options.replication, reason, sizeof(reason));
    MR_ASSERT(topic != NULL); /* the configuration checks the range of copies */
    rd_kafka_NewTopic_set_config(topic, "cleanup.policy", "compact");
    /* Compaction never touches the segment that is being written. */
    rd_kafka_NewTopic_set_config(topic, "segment.bytes", "16777216");
    rd_kafka_queue_t *answer = mr_kafka_create_topics(writer->producer, &topic, 1);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answer, 2 * MR_KAFKA_CREATE_MS);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (event != NULL) {
        err = mr_kafka_create_result(event, name, partitions, reason, sizeof(reason));
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(answer);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR ? MR_OK : failed(writer, name, err, reason, ret_error);
}
