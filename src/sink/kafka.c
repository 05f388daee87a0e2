/* The librdkafka edge: produce without copy, and delivery reports. Only files named sink/kafka* include
 * rdkafka.h. */
#include <librdkafka/rdkafka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/kafka_conf.h"
#include "sink/kafka_errors.h"
#include "sink/kafka_place.h"
#include "sink/kafka_state.h"
#include "sink/kafka_stats.h"
#include "sink/kafka_threads.h"
#include "sink/kafka_topics.h"
#include "sink/record_headers.h"
#include "sink/sink.h"
#include "sink/sink_counts.h"

enum {
    /* librdkafka counts time-outs, retries and statistics in its own threads; this is only how often the
     * sink looks for an error that came without a wake-up. */
    POLL_INTERVAL_MS = 1000,
    HEADERS = 5,
    BATCH_BYTES_MIN = 1024,
    CALL_TIMEOUT_MS = 1000, /* of one try of a transactional call */
    RETRY_MS = 20,
    COMMIT_MS = 10000,    /* then its outcome counts as unknown */
    UNSETTLED_MS = 30000, /* behind a commit: until then its markers may not be written */
};

struct kafka_sink {
    struct mr_sink base;
    struct mr_kafka_options options;
    rd_kafka_t *producer;
    rd_kafka_queue_t *queue;
    struct mr_kafka_topics topics;
    mr_sink_done_fn done;
    void *done_context;
    uint32_t send_at;      /* records of the batch at hand that are produced already */
    bool told_unreachable; /* said once, until something is delivered again */
    bool failed;
    bool judged; /* it failed because of a refused record, and what that means is settled */
    struct mr_error failure; /* the first of this session, or the one that no new session mends */

    /* For `view`. The latest report waits there until somebody looks; who takes it frees it. */
    struct mr_sink_counts counts;
    _Atomic bool connected;
    _Atomic int64_t unreachable_ns; /* since when, by the monotonic clock; 0: reachable */
    _Atomic(char *) statistics;
    _Atomic bool session_is_new;
    struct mr_sink_client client; /* the viewer's */

    int stop_fd;
    struct mr_record_headers headers;

    bool storing; /* a state record is on its way */

    /* The open transaction (exactly once). */
    bool in_transaction;
    bool ending;            /* its state record is sent; it ends once all is reported */
    int64_t commit_ns;      /* since when its commit is tried; 0: it is not */
    int64_t committed_ns;   /* when the one before was; 0: none of this session */
    uint64_t unreported;    /* records of it */
    struct mr_batch *first; /* its batches, in order */
    struct mr_batch **last;
};

static struct kafka_sink *kafka_of(struct mr_sink *sink)
{
    return (struct kafka_sink *)sink;
}

/* The status and the whole text of an error; `topic` may be NULL. */
static mr_status explain(const struct kafka_sink *kafka, rd_kafka_resp_err_t err, const char *topic,
                         const char *text, struct mr_error *ret_error)
{
    char remedy[MR_KAFKA_REMEDY_MAX];
    mr_status status = mr_kafka_error_classify(err, text, &kafka->options, remedy);
    return mr_fail(ret_error, status, "Kafka%s%s%s: %s (%s)%s%s", topic == NULL ? "" : " topic \"",
                   topic == NULL ? "" : topic, topic == NULL ? "" : "\"", text,
                   rd_kafka_err2name(err), remedy[0] == '\0' ? "" : "; ", remedy);
}

/* Whether this is now what the session ended with. */
static bool session_fail(struct kafka_sink *kafka, rd_kafka_resp_err_t err, const char *topic,
                         const char *text)
{
    mr_sink_counts_error(&kafka->counts, rd_kafka_err2name(err));
    struct mr_error failure;
    mr_status status = explain(kafka, err, topic, text, &failure);
    /* What a refused record brings about (a transaction in the wrong state, what is purged) may be told before it. */
    bool cause = status != MR_ERR_TRANSIENT && kafka->failure.status == MR_ERR_TRANSIENT;
    if (kafka->failed && (kafka->judged || !cause)) {
        return false;
    }
    kafka->failed = true;
    kafka->failure = failure;
    return true;
}

/* A record that Kafka refused: which one it was, and what that means for the next session. `alone`: it was the only
 * one of its request. */
static void record_refused(struct kafka_sink *kafka, rd_kafka_resp_err_t err, const char *text,
                           const struct mr_record *record, bool alone)
{
    if (!session_fail(kafka, err, record->topic->name, text) ||
        kafka->failure.status != MR_ERR_POISON) {
        return;
    }
    kafka->judged = true;
    bool too_large = err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    if (too_large && !alone && kafka->options.batch_bytes > BATCH_BYTES_MIN) {
        kafka->options.batch_bytes /= 2;
        mr_error_set(&kafka->failure, MR_ERR_TRANSIENT,
                     "Kafka topic \"%s\" takes no requests as large as sink.kafka.batch_size (its "
                     "max.message.bytes is smaller); going on with %zu bytes; set one or the other",
                     record->topic->name, kafka->options.batch_bytes);
        return;
    }
    kafka->base.refusal =
        (struct mr_sink_refusal){.position = record->position,
                                 .bytes = (size_t)record->key_len + record->value_len,
                                 .too_large = too_large};
    struct mr_error plain = kafka->failure;
    mr_error_set(
        &kafka->failure, MR_ERR_POISON,
        "%s; a record of %zu bytes, of change %llu of the transaction that commits "
        "at " MR_LSN_FORMAT "%s (--skip-commit-lsn " MR_LSN_FORMAT " skips that transaction)",
        plain.text, kafka->base.refusal.bytes, (unsigned long long)record->position.ordinal,
        MR_LSN_ARGS(record->position.commit_lsn), alone ? "" : " or one sent with it",
        MR_LSN_ARGS(record->position.commit_lsn));
}

static mr_status session_status(const struct kafka_sink *kafka, struct mr_error *ret_error)
{
    if (!kafka->failed) {
        return MR_OK;
    }
    *ret_error = kafka->failure;
    return kafka->failure.status;
}

/* librdkafka's own log. What matters of it comes as events too; its remarks on our choice of properties and on
 * each attempt to reconnect would only repeat themselves. */
static void on_log(const rd_kafka_t *producer, int level, const char *facility, const char *text)
{
    (void)producer;
    bool repeats = strcmp(facility, "CONFWARN") == 0 || strcmp(facility, "FAIL") == 0 ||
                   strcmp(facility, "ERROR") == 0 || strcmp(facility, "GETPID") == 0;
    enum mr_log_level mine = repeats || level > 6 ? MR_LOG_DEBUG
                             : level <= 3         ? MR_LOG_WARN
                                                  : MR_LOG_INFO;
    mr_log(mine, "kafka_client", text, MR_LOG_STR("facility", facility));
}

static mr_status producer_new(struct kafka_sink *kafka, int wake_fd, struct mr_error *ret_error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    mr_status status = mr_kafka_conf_fill(conf, &kafka->options, ret_error);
    if (status != MR_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    rd_kafka_conf_set_log_cb(conf, on_log);
    mr_kafka_threads_watch(conf);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS);
    char reason[256];
    kafka->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    if (kafka->producer == NULL) {
        /* The configuration is ours again, but librdkafka has freed its interceptors (those of the threads), and
         * would once more. It is left: the process ends with this error. */
        return mr_fail(ret_error, MR_ERR_CONFIG, "Kafka producer can't be made: %s", reason);
    }
    kafka->queue = rd_kafka_queue_get_main(kafka->producer);
    /* An eventfd adds up the eight-byte numbers that are written to it. */
    static const uint64_t one = 1;
    rd_kafka_queue_io_event_enable(kafka->queue, wake_fd, &one, sizeof(one));
    return MR_OK;
}

static void kafka_close(struct mr_sink *sink)
{
    struct kafka_sink *kafka = kafka_of(sink);
    if (kafka->producer == NULL) {
        return;
    }
    rd_kafka_queue_io_event_enable(kafka->queue, -1, NULL, 0);
    /* A client that is about to add a partition to its transaction while it goes away aborts the process (2.0.2);
     * one that has given the transaction up adds none. */
    if (kafka->in_transaction) {
        rd_kafka_error_t *error = rd_kafka_abort_transaction(kafka->producer, 0);
        if (error != NULL) {
            rd_kafka_error_destroy(error); /* nobody waits for its end */
        }
    }
    /* Records point into batches: after the purge and the destroy no thread of librdkafka reads them. */
    rd_kafka_purge(kafka->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    mr_kafka_topics_done(&kafka->topics);
    rd_kafka_queue_destroy(kafka->queue);
    rd_kafka_destroy_flags(kafka->producer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    kafka->producer = NULL;
    kafka->queue = NULL;
    mr_sink_counts_reset(&kafka->counts);
    atomic_store(&kafka->connected, false);
}

static mr_status kafka_poll(struct mr_sink *sink, struct mr_error *ret_error);

/* While a call of librdkafka is tried again: errors are told, and a stop is heard. */
static mr_status serve(void *context, struct mr_error *ret_error)
{
    struct kafka_sink *kafka = context;
    MR_TRY(kafka_poll(&kafka->base, ret_error));
    struct pollfd stop = {.fd = kafka->stop_fd, .events = POLLIN};
    return poll(&stop, 1, RETRY_MS) == 1 ? MR_AGAIN : MR_OK;
}

/* What an error of a transactional call means: MR_OK to call again. */
static mr_status transaction_failed(struct kafka_sink *kafka, rd_kafka_error_t *error,
                                    struct mr_error *ret_error)
{
    if (!rd_kafka_error_is_retriable(error)) {
        session_fail(kafka, rd_kafka_error_code(error), NULL, rd_kafka_error_string(error));
    }
    rd_kafka_error_destroy(error);
    return session_status(kafka, ret_error);
}

/* Ends what an earlier process or session of the same name has open, and keeps it from writing on. */
static mr_status fence(struct kafka_sink *kafka, struct mr_error *ret_error)
{
    rd_kafka_error_t *error;
    while ((error = rd_kafka_init_transactions(kafka->producer, CALL_TIMEOUT_MS)) != NULL) {
        MR_TRY(transaction_failed(kafka, error, ret_error));
        MR_TRY(serve(kafka, ret_error));
    }
    return MR_OK;
}

static mr_status kafka_open(struct mr_sink *sink, mr_sink_done_fn done, void *context, int wake_fd,
                            int stop_fd, struct mr_error *ret_error)
{
    struct kafka_sink *kafka = kafka_of(sink);
    MR_ASSERT(kafka->producer == NULL);
    kafka->done = done;
    kafka->done_context = context;
    kafka->stop_fd = stop_fd;
    kafka->failed = false;
    kafka->judged = false;
    kafka->base.refusal = (struct mr_sink_refusal){0};
    kafka->send_at = 0;
    kafka->storing = false;
    kafka->in_transaction = false;
    kafka->ending = false;
    kafka->commit_ns = 0;
    kafka->committed_ns = 0;
    kafka->unreported = 0;
    kafka->first = NULL;
    kafka->last = &kafka->first;
    MR_TRY(producer_new(kafka, wake_fd, ret_error));
    mr_kafka_topics_init(&kafka->topics, kafka->producer, &kafka->options);
    atomic_store(&kafka->session_is_new, true);
    atomic_store(&kafka->connected, true);
    return kafka->options.exactly_once ? fence(kafka, ret_error) : MR_OK;
}

/* What a record that stands for a larger one says of it: two texts behind its value. */
static void add_note(rd_kafka_headers_t *headers, const struct mr_record *record)
{
    const char *bytes = (const char *)record->value + record->value_len;
    const char *columns = bytes + strlen(bytes) + 1;
    rd_kafka_header_add(headers, MR_HEADER_OVERSIZE, sizeof(MR_HEADER_OVERSIZE) - 1, bytes, -1);
    if (columns[0] != '\0') {
        rd_kafka_header_add(headers, MR_HEADER_OVERSIZE_COLUMNS,
                            sizeof(MR_HEADER_OVERSIZE_COLUMNS) - 1, columns, -1);
    }
}

/* The record's headers, made by librdkafka's own allocator because it frees them with the message. */
static rd_kafka_headers_t *headers_new(struct kafka_sink *kafka, const struct mr_record *record)
{
    struct mr_record_headers *text = &kafka->headers;
    mr_record_headers_format(record, text);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(HEADERS);
    if (MR_UNLIKELY(record->kind != MR_RECORD_EVENT)) {
        add_note(headers, record);
    }
    if (!kafka->options.headers) {
        return headers;
    }
    rd_kafka_header_add(headers, MR_HEADER_POSITION, sizeof(MR_HEADER_POSITION) - 1, text->position,
                        MR_POSITION_TEXT_LEN);
    rd_kafka_header_add(headers, MR_HEADER_XID, sizeof(MR_HEADER_XID) - 1, text->xid,
                        (ssize_t)text->xid_len);
    rd_kafka_header_add(headers, MR_HEADER_COMMIT_TIME, sizeof(MR_HEADER_COMMIT_TIME) - 1,
                        text->commit_time, (ssize_t)text->commit_time_len);
    return headers;
}

static mr_status produce(struct kafka_sink *kafka, rd_kafka_topic_t *topic, struct mr_batch *batch,
                         const struct mr_record *record, struct mr_error *ret_error)
{
    /* A null value with length 0 is a tombstone; librdkafka tells it from an empty one by the pointer. */
    rd_kafka_vu_t arguments[8] = {
        {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = RD_KAFKA_PARTITION_UA},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = 0},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {.ptr = (void *)(uintptr_t)record->value, .size = record->value_len}},
        {.vtype = RD_KAFKA_VTYPE_KEY,
         .u.mem = {.ptr = (void *)(uintptr_t)record->key, .size = record->key_len}},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = batch},
        {.vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = record->commit_time_us / 1000},
    };
    size_t count = 7;
    rd_kafka_headers_t *headers = NULL;
    if (kafka->options.headers || MR_UNLIKELY(record->kind != MR_RECORD_EVENT)) {
        headers = headers_new(kafka, record);
        arguments[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers};
    }
    mr_kafka_place_begin();
    rd_kafka_error_t *error = rd_kafka_produceva(kafka->producer, arguments, count);
    if (MR_LIKELY(error == NULL)) {
        struct mr_kafka_place place = mr_kafka_place_end();
        mr_sink_counts_sent(&kafka->counts, record->topic, place.partition, place.count,
                            record->key_len + record->value_len);
        return MR_OK;
    }
    /* On failure the headers are still ours (unlike single ones, which 2.0.2 frees twice). */
    if (headers != NULL) {
        rd_kafka_headers_destroy(headers);
    }
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        record_refused(kafka, code, rd_kafka_error_string(error), record, true);
    }
    rd_kafka_error_destroy(error);
    /* The reports that are there may know the cause. */
    return code == RD_KAFKA_RESP_ERR__QUEUE_FULL ? MR_FULL : kafka_poll(&kafka->base, ret_error);
}

static mr_status begin(struct kafka_sink *kafka, struct mr_error *ret_error)
{
    if (kafka->in_transaction) {
        return MR_OK;
    }
    rd_kafka_error_t *error = rd_kafka_begin_transaction(kafka->producer);
    if (error != NULL) {
        MR_TRY(transaction_failed(kafka, error, ret_error));
        return MR_FULL;
    }
    kafka->in_transaction = true;
    return MR_OK;
}

static mr_status kafka_send(struct mr_sink *sink, struct mr_batch *batch,
                            struct mr_error *ret_error)
{
    struct kafka_sink *kafka = kafka_of(sink);
    MR_TRY(session_status(kafka, ret_error));
    if (kafka->options.exactly_once) {
        MR_TRY(begin(kafka, ret_error));
    }
    while (kafka->send_at < batch->record_count) {
        const struct mr_record *record = mr_batch_record(batch, kafka->send_at);
        rd_kafka_topic_t *topic;
        MR_TRY(mr_kafka_topics_get(&kafka->topics, batch, kafka->send_at, &topic, ret_error));
        MR_TRY(produce(kafka, topic, batch, record, ret_error));
        kafka->send_at++;
        kafka->unreported++;
        batch->pending++;
    }
    kafka->send_at = 0;
    batch->state = MR_BATCH_SENDING;
    if (kafka->options.exactly_once) {
        batch->next = NULL;
        *kafka->last = batch;
        kafka->last = &batch->next;
    } else if (batch->pending == 0) {
        kafka->done(kafka->done_context, batch); /* a position alone, or reported already */
    }
    return MR_OK;
}

/* ---- the state record ---- */

/* Sends a record to the state topic. Without an opaque: that is how its report is told from an event's. */
static mr_status produce_state(struct kafka_sink *kafka, const char *key, const char *value,
                               size_t value_len, struct mr_error *ret_error)
{
    rd_kafka_resp_err_t err = rd_kafka_producev(
        kafka->producer, RD_KAFKA_V_TOPIC(kafka->options.state_topic), RD_KAFKA_V_PARTITION(0),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, strlen(key)),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)value, value_len), RD_KAFKA_V_END);
    if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        return MR_FULL;
    }
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        session_fail(kafka, err, kafka->options.state_topic, rd_kafka_err2str(err));
        return session_status(kafka, ret_error);
    }
    kafka->unreported++;
    return MR_OK;
}

/* Gives the topic a record of ours, and the end of a transaction that is given up. It ends whatever the brokers have
 * left open there of an earlier session: they think it has ended, so nothing else will. What that held comes again. */
static mr_status end_hanging(struct kafka_sink *kafka, struct mr_error *ret_error)
{
    mr_status status;
    while ((status = begin(kafka, ret_error)) == MR_FULL) {
        MR_TRY(serve(kafka, ret_error));
    }
    MR_TRY(status);
    MR_TRY(produce_state(kafka, "", "", 0, ret_error)); /* the queue of a new session has room */
    while (kafka->unreported > 0) {
        MR_TRY(serve(kafka, ret_error));
    }
    rd_kafka_error_t *error;
    while ((error = rd_kafka_abort_transaction(kafka->producer, CALL_TIMEOUT_MS)) != NULL) {
        MR_TRY(transaction_failed(kafka, error, ret_error));
        MR_TRY(serve(kafka, ret_error));
    }
    kafka->in_transaction = false;
    mr_log(MR_LOG_WARN, "state_ended",
           "Kafka had left a transaction open in the topic that keeps the position, although it "
           "had ended; it is given up, and what it held comes again",
           MR_LOG_STR("topic", kafka->options.state_topic));
    return MR_OK;
}

static mr_status kafka_load(struct mr_sink *sink, bool *ret_found, struct mr_checkpoint *ret_state,
                            struct mr_error *ret_error)
{
    struct kafka_sink *kafka = kafka_of(sink);
    bool hangs;
    mr_status status = mr_kafka_state_load(kafka->producer, &kafka->options, serve, kafka,
                                           ret_found, ret_state, &hangs, ret_error);
    if (!hangs) {
        return status;
    }
    MR_TRY(end_hanging(kafka, ret_error));
    return mr_kafka_state_load(kafka->producer, &kafka->options, serve, kafka, ret_found, ret_state,
                               &hangs, ret_error);
}

static mr_status kafka_store(struct mr_sink *sink, const struct mr_checkpoint *state,
                             struct mr_error *ret_error)
{
    struct kafka_sink *kafka = kafka_of(sink);
    MR_ASSERT(!kafka->storing);
    char text[MR_STATE_TEXT_MAX];
    size_t len = mr_state_format(state, text);
    MR_TRY(produce_state(kafka, kafka->options.state_name, text, len, ret_error));
    kafka->storing = true;
    kafka->ending = kafka->options.exactly_once;
    return MR_OK;
}

static bool kafka_storing(const struct mr_sink *sink)
{
    return ((const struct kafka_sink *)sink)->storing;
}

/* All of the transaction is with the broker: makes it and its state visible. An outcome that is not known ends the
 * session; the next one reads what became of it. */
static mr_status end_transaction(struct kafka_sink *kafka, struct mr_error *ret_error)
{
    int64_t now_ns = mr_monotonic_ns();
    kafka->commit_ns = kafka->commit_ns == 0 ? now_ns : kafka->commit_ns;
    rd_kafka_error_t *error = rd_kafka_commit_transaction(kafka->producer, CALL_TIMEOUT_MS);
    if (error != NULL) {
        if (now_ns - kafka->commit_ns > COMMIT_MS * INT64_C(1000000)) {
            session_fail(kafka, rd_kafka_error_code(error), NULL,
                         "a transaction's commit is not answered; reading what became of it");
        }
        return transaction_failed(kafka, error, ret_error);
    }
    kafka->commit_ns = 0;
    kafka->committed_ns = mr_monotonic_ns();
    kafka->in_transaction = false;
    kafka->ending = false;
    kafka->storing = false;
    struct mr_batch *batch = kafka->first;
    kafka->first = NULL;
    kafka->last = &kafka->first;
    while (batch != NULL) {
        struct mr_batch *next = batch->next;
        kafka->done(kafka->done_context, batch);
        batch = next;
    }
    return MR_OK;
}

/* The record that a failed report is of; NULL: the state. Its batch is still with us. */
static const struct mr_record *record_of(const rd_kafka_message_t *message)
{
    const struct mr_batch *batch = message->_private;
    for (uint32_t i = 0; batch != NULL && i < batch->record_count; i++) {
        const struct mr_record *record = mr_batch_record(batch, i);
        /* Keys are copied by librdkafka, values are not; a tombstone has none. */
        bool same = record->value != NULL
                        ? record->value == message->payload
                        : message->payload == NULL && record->key_len == message->key_len &&
                              memcmp(record->key, message->key, record->key_len) == 0;
        if (same) {
            return record;
        }
    }
    return NULL;
}

static void report_failed(struct kafka_sink *kafka, const rd_kafka_message_t *message, bool alone)
{
    const struct mr_record *record = kafka->judged ? NULL : record_of(message);
    const char *text = rd_kafka_err2str(message->err);
    if (record == NULL) {
        session_fail(kafka, message->err, rd_kafka_topic_name(message->rkt), text);
    } else {
        record_refused(kafka, message->err, text, record, alone);
    }
}

static void take_reports(struct kafka_sink *kafka, rd_kafka_event_t *event)
{
    const rd_kafka_message_t *message;
    bool alone =
        rd_kafka_event_message_count(event) == 1; /* of one request; taking them counts down */
    while ((message = rd_kafka_event_message_next(event)) != NULL) {
        if (MR_UNLIKELY(message->err != RD_KAFKA_RESP_ERR_NO_ERROR)) {
            report_failed(kafka, message, alone);
            continue;
        }
        if (MR_UNLIKELY(message->offset < 0)) {
            /* librdkafka takes a request for delivered once a later one of its partition was. But a broker that
             * knows nothing of this producer takes any first sequence, so it may have refused the one before, as
             * one does that is only just making the partition (KAFKA-15591); those records would be lost. */
            session_fail(kafka, RD_KAFKA_RESP_ERR__INCONSISTENT, rd_kafka_topic_name(message->rkt),
                         "a request is without an answer and a later one was taken; sending again");
            continue;
        }
        struct mr_batch *batch = message->_private;
        kafka->told_unreachable = false;
        kafka->unreported--;
        if (batch == NULL) {
            kafka->storing = kafka->ending; /* a transaction's is safe with its end */
            continue;
        }
        MR_ASSERT(batch->pending > 0);
        batch->pending--;
        mr_sink_counts_acked(&kafka->counts, rd_kafka_topic_opaque(message->rkt),
                             message->partition, message->key_len + message->len);
        /* A sealed batch is still being sent: a full queue cut `send` short. */
        if (batch->pending == 0 && batch->state == MR_BATCH_SENDING &&
            !kafka->options.exactly_once) {
            kafka->done(kafka->done_context, batch);
        }
    }
}

/* Whether a broker that goes away now may leave a transaction half ended: it has answered the commit before it writes
 * the markers, and brokers of 4.3 skip those of partitions that have no leader at that moment (KAFKA-20734). The next
 * transaction of a partition then decides, and one that is given up takes the other with it. So no more are committed
 * in this session; the next one reads how far the position has come, and begins there. */
static bool is_unsettled(const struct kafka_sink *kafka)
{
    return kafka->in_transaction ||
           (kafka->committed_ns != 0 &&
            mr_monotonic_ns() - kafka->committed_ns < UNSETTLED_MS * INT64_C(1000000));
}

static void take_error(struct kafka_sink *kafka, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    struct mr_error error;
    char reason[256];
    bool fatal = err == RD_KAFKA_RESP_ERR__FATAL;
    if (fatal) {
        err = rd_kafka_fatal_error(kafka->producer, reason, sizeof(reason));
    }
    if (err == RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE) {
        return; /* the reports of the records that were refused follow, and say why */
    }
    if (fatal) {
        session_fail(kafka, err, NULL, reason);
        return;
    }
    if (explain(kafka, err, NULL, text, &error) == MR_ERR_AUTH || is_unsettled(kafka)) {
        session_fail(kafka, err, NULL, text);
        return; /* it is counted there */
    }
    mr_sink_counts_error(&kafka->counts, rd_kafka_err2name(err));
    if (!kafka->told_unreachable) {
        kafka->told_unreachable = true;
        atomic_store(&kafka->unreachable_ns, mr_monotonic_ns());
        mr_log(MR_LOG_WARN, "kafka_unreachable", error.text);
    }
}

static mr_status kafka_poll(struct mr_sink *sink, struct mr_error *ret_error)
{
    struct kafka_sink *kafka = kafka_of(sink);
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(kafka->queue, 0)) != NULL) {
        switch (rd_kafka_event_type(event)) {
        case RD_KAFKA_EVENT_DR:
            take_reports(kafka, event);
            break;
        case RD_KAFKA_EVENT_ERROR:
            take_error(kafka, event);
            break;
        case RD_KAFKA_EVENT_STATS:
            /* A report that no memory was left for is missing, and no more. */
            free(atomic_exchange(&kafka->statistics, strdup(rd_kafka_event_stats(event))));
            break;
        default:
            break;
        }
        rd_kafka_event_destroy(event);
    }
    if (!kafka->told_unreachable) {
        atomic_store_explicit(&kafka->unreachable_ns, 0, memory_order_relaxed);
    }
    MR_TRY(session_status(kafka, ret_error));
    return kafka->ending && kafka->unreported == 0 ? end_transaction(kafka, ret_error) : MR_OK;
}

static int kafka_timeout_ms(const struct mr_sink *sink)
{
    const struct kafka_sink *kafka = (const struct kafka_sink *)sink;
    return kafka->ending && kafka->unreported == 0 ? RETRY_MS : POLL_INTERVAL_MS;
}

/* Takes the latest report, if a new one has come. */
static void take_statistics(struct kafka_sink *kafka)
{
    if (atomic_exchange(&kafka->session_is_new, false)) {
        kafka->client = (struct mr_sink_client){0};
    }
    char *json = atomic_exchange(&kafka->statistics, NULL);
    if (json != NULL) {
        mr_kafka_stats_parse(json, &kafka->client);
        free(json);
    }
}

/* Once a broker was called unreachable, only a delivery or a report of a broker that is up says otherwise. */
static bool is_reachable(const struct kafka_sink *kafka)
{
    int64_t since_ns = atomic_load_explicit(&kafka->unreachable_ns, memory_order_relaxed);
    bool up = since_ns == 0;
    for (uint32_t i = 0; i < kafka->client.broker_count; i++) {
        up = up || (kafka->client.brokers[i].up && kafka->client.time_ns > since_ns);
    }
    return up;
}

static void kafka_view(struct mr_sink *sink, struct mr_sink_view *ret_view)
{
    struct kafka_sink *kafka = kafka_of(sink);
    take_statistics(kafka);
    mr_sink_counts_read(&kafka->counts, ret_view);
    ret_view->name = sink->ops->name;
    ret_view->unreachable = !is_reachable(kafka);
    ret_view->connected = atomic_load(&kafka->connected) && !ret_view->unreachable;
    ret_view->client = kafka->client;
}

static void kafka_free(struct mr_sink *sink)
{
    struct kafka_sink *kafka = kafka_of(sink);
    kafka_close(sink);
    free(kafka->statistics);
    mr_sink_counts_done(&kafka->counts);
    free(sink);
}

const char *mr_kafka_library_version(void)
{
    return rd_kafka_version_str();
}

struct mr_sink *mr_kafka_sink_new(const struct mr_kafka_options *options)
{
    static const struct mr_sink_ops ops = {
        .name = "kafka",
        .open = kafka_open,
        .send = kafka_send,
        .poll = kafka_poll,
        .timeout_ms = kafka_timeout_ms,
        .load = kafka_load,
        .store = kafka_store,
        .storing = kafka_storing,
        .close = kafka_close,
        .free = kafka_free,
        .view = kafka_view,
    };
    struct kafka_sink *kafka = MR_NEW(struct kafka_sink);
    kafka->base.ops = &ops;
    kafka->options = *options;
    mr_sink_counts_init(&kafka->counts);
    mr_sink_counts_expect_error(&kafka->counts,
                                rd_kafka_err2name(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN));
    mr_sink_counts_expect_error(&kafka->counts, rd_kafka_err2name(RD_KAFKA_RESP_ERR__TRANSPORT));
    kafka->base.storage = options->exactly_once          ? MR_STORES_WITH
                          : options->state_topic != NULL ? MR_STORES_AFTER
                                                         : MR_STORES_NOTHING;
    return &kafka->base;
}
