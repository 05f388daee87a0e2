/* Signals that come by a topic. A consumer of its own, which joins no group: it has partition 0 and a group's offset, as
 * Debezium's KafkaSignalChannel. */
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "sink/kafka/kafka_conf.h"
#include "sink/kafka/kafka_threads.h"
#include "sink/sink.h"

enum {
    ROUND_MS = 200,
    ANSWER_MS = 1000,
    PATIENCE = 5, /* answers that may be late until it is told */
};

struct mr_kafka_signals {
    struct mr_kafka_signal_options options;
    pthread_t thread;
    _Atomic bool stopping;
    /* The thread's. */
    rd_kafka_t *consumer;     /* NULL: this instance does not have the stream */
    rd_kafka_queue_t *answer; /* to commits */
    bool reading;             /* it is known from where on */
    int late;                 /* answers to the question for that */
    rd_kafka_resp_err_t told; /* the failure that was logged last */
};

static mr_status consumer_new(const struct mr_kafka_signal_options *options,
                              rd_kafka_t **ret_consumer, struct mr_error *ret_error)
{
    const struct mr_kafka_property fixed[] = {
        {"group.id", options->group},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"isolation.level", "read_committed"},
        {"auto.offset.reset", "earliest"},
        {"queued.max.messages.kbytes", "1024"},
        {"fetch.message.max.bytes", "65536"},
        {"check.crcs", "true"},
        {"fetch.wait.max.ms", "500"},
        {"socket.timeout.ms", "3000"},    /* so long a commit without an answer holds up the end */
        {"message.max.bytes", "1000000"}, /* what is fetched may be as large */
    };
    struct mr_kafka_options plain = *options->kafka;
    plain.exactly_once = false;
    plain.statistics_interval_ms = 0;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    mr_status status = mr_kafka_conf_fill(conf, &plain, ret_error);
    char reason[256] = "";
    for (size_t i = 0; status == MR_OK && i < MR_ARRAY_LEN(fixed); i++) {
        if (rd_kafka_conf_set(conf, fixed[i].name, fixed[i].value, reason, sizeof(reason)) !=
            RD_KAFKA_CONF_OK) {
            status = mr_fail(ret_error, MR_ERR_CONFIG, "signal.kafka: %s", reason);
        }
    }
    if (status == MR_OK) {
        rd_kafka_conf_set_log_cb(conf, NULL);
        *ret_consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
        if (*ret_consumer != NULL) {
            rd_kafka_poll_set_consumer(*ret_consumer);
            return MR_OK;
        }
        status =
            mr_fail(ret_error, MR_ERR_CONFIG, "the consumer of signals can't be made: %s", reason);
    }
    rd_kafka_conf_destroy(conf);
    return status;
}

static void tell(struct mr_kafka_signals *signals, rd_kafka_resp_err_t err)
{
    if (err != signals->told) {
        mr_log(MR_LOG_WARN, "signal_topic_unread",
               "the topic of signals can't be read, or how far it was read can't be stored; it is "
               "tried again",
               MR_LOG_STR("topic", signals->options.topic),
               MR_LOG_STR("error", rd_kafka_err2str(err)));
    }
    signals->told = err;
}

/* Where the group stands, else the beginning. librdkafka does not look that up by itself: it does not survive a broken frame in place
 * of the answer (rd_kafka_assignment_handle_OffsetFetch uses offsets that it then has not, 2.0.2 to 2.15.0); this call does. */
static void find_place(struct mr_kafka_signals *signals)
{
    rd_kafka_topic_partition_list_t *part = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *place =
        rd_kafka_topic_partition_list_add(part, signals->options.topic, 0);
    rd_kafka_resp_err_t err = rd_kafka_committed(signals->consumer, part, ANSWER_MS);
    err = err == RD_KAFKA_RESP_ERR_NO_ERROR ? place->err : err;
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        place->offset = place->offset >= 0 ? place->offset : RD_KAFKA_OFFSET_BEGINNING;
        err = rd_kafka_assign(signals->consumer, part);
        MR_ASSERT(err == RD_KAFKA_RESP_ERR_NO_ERROR);
        signals->reading = true;
    } else if (err != RD_KAFKA_RESP_ERR__TIMED_OUT || ++signals->late >= PATIENCE) {
        tell(signals, err);
        poll(NULL, 0, ROUND_MS);
    }
    rd_kafka_topic_partition_list_destroy(part);
}

static void consumer_open(struct mr_kafka_signals *signals)
{
    struct mr_error error;
    if (consumer_new(&signals->options, &signals->consumer, &error) != MR_OK) {
        mr_log(MR_LOG_ERROR, "signal_topic_unread", error.text);
        atomic_store(&signals->stopping, true);
        return;
    }
    signals->answer = rd_kafka_queue_new(signals->consumer);
    signals->reading = false;
    signals->late = 0;
}

/* Nothing is joined, so nobody need be told. */
static void consumer_close(struct mr_kafka_signals *signals)
{
    if (signals->consumer != NULL) {
        rd_kafka_queue_destroy(signals->answer);
        mr_kafka_client_end(signals->consumer, MR_KAFKA_END_MS);
        signals->consumer = NULL;
    }
}

/* Without an answer in time the record may be acted on again by the next who reads. */
static void commit(struct mr_kafka_signals *signals, int64_t offset)
{
    rd_kafka_topic_partition_list_t *part = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(part, signals->options.topic, 0)->offset = offset;
    rd_kafka_resp_err_t err =
        rd_kafka_commit_queue(signals->consumer, part, signals->answer, NULL, NULL);
    rd_kafka_topic_partition_list_destroy(part);
    rd_kafka_event_t *answer = NULL;
    int64_t end_ns = mr_monotonic_ns() + ANSWER_MS * INT64_C(1000000);
    while (err == RD_KAFKA_RESP_ERR_NO_ERROR && answer == NULL && mr_monotonic_ns() < end_ns) {
        answer = rd_kafka_queue_poll(signals->answer, ROUND_MS);
    }
    if (answer != NULL) {
        err = rd_kafka_event_error(answer);
        rd_kafka_event_destroy(answer);
    }
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        tell(signals, err);
    }
}

static bool is_ours(const struct mr_kafka_signals *signals, const rd_kafka_message_t *message)
{
    size_t len = strlen(signals->options.key);
    return message->payload != NULL && message->key_len == len &&
           memcmp(message->key, signals->options.key, len) == 0;
}

static void take(struct mr_kafka_signals *signals, const rd_kafka_message_t *message)
{
    signals->told = RD_KAFKA_RESP_ERR_NO_ERROR;
    mr_slice value = {.data = message->payload, .len = message->len};
    mr_status status = MR_OK;
    if (is_ours(signals, message)) {
        while ((status = signals->options.take(signals->options.context, value)) == MR_AGAIN &&
               !atomic_load(&signals->stopping)) {
            poll(NULL, 0, ROUND_MS);
        }
    }
    bool is_stored;
    while (!(is_stored = signals->options.is_stored(signals->options.context)) &&
           !atomic_load(&signals->stopping) && signals->options.is_open(signals->options.context)) {
        poll(NULL, 0, ROUND_MS);
    }
    if (status == MR_OK && is_stored) {
        commit(signals, message->offset + 1);
    }
}

static void *signals_main(void *context)
{
    struct mr_kafka_signals *signals = context;
    mr_thread_begin(MR_THREAD_KAFKA, "mr-signals");
    while (!atomic_load(&signals->stopping)) {
        if (!signals->options.is_open(signals->options.context)) {
            consumer_close(signals);
            poll(NULL, 0, ROUND_MS);
            continue;
        }
        if (signals->consumer == NULL) {
            consumer_open(signals);
            continue;
        }
        if (!signals->reading) {
            find_place(signals);
            continue;
        }
        rd_kafka_message_t *message = rd_kafka_consumer_poll(signals->consumer, ROUND_MS);
        if (message == NULL) {
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            take(signals, message);
        } else {
            tell(signals, message->err);
        }
        rd_kafka_message_destroy(message);
    }
    consumer_close(signals);
    mr_thread_end();
    return NULL;
}

mr_status mr_kafka_signals_start(const struct mr_kafka_signal_options *options,
                                 struct mr_kafka_signals **ret_signals, struct mr_error *ret_error)
{
    struct mr_kafka_signals *signals = MR_NEW(struct mr_kafka_signals);
    signals->options = *options;
    int code = mr_thread_create(&signals->thread, signals_main, signals);
    if (code != 0) {
        free(signals);
        return mr_fail(ret_error, MR_ERR_SYSTEM, "no thread for signals: %s", strerror(code));
    }
    *ret_signals = signals;
    return MR_OK;
}

void mr_kafka_signals_stop(struct mr_kafka_signals *signals)
{
    if (signals == NULL) {
        return;
    }
    atomic_store(&signals->stopping, true);
    pthread_join(signals->thread, NULL);
    free(signals);
}
