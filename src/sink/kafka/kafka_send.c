/* Records on their way: from a batch into the queue of their partition, and from there to
 * librdkafka, without a copy. */

#include "base/clock.h"
#include "kafka/kafka_now.h"
#include "sink/kafka/kafka_internal.h"
#include "sink/kafka/kafka_place.h"

enum {
    HEADERS = 5,
    /* Of a request: a record's own lengths at their longest, and our three headers. */
    RECORD_WIRE_BYTES = 32,
    HEADERS_WIRE_BYTES = 90,
    REQUEST_HEAD_BYTES = 64, /* more than a batch of records has, as a broker counts it */
    FILL_US = 4000, /* less than linger.ms (kafka_conf.c), and half of it with exactly-once */
    LATE_RECORDS = 64,
    TIMESTAMP_AHEAD_MAX_MS = 1800000,
    TIMESTAMP_PAST_MAX_MS = 86400000,
};

#define ASK_AGAIN_NS INT64_C(60000000000)

/* The record's headers, made by librdkafka's own allocator because it frees them with the
 * message. */
static rd_kafka_headers_t *headers_new(struct mr_kafka_sink *kafka, const struct mr_record *record)
{
    struct mr_record_headers *text = &kafka->headers;
    mr_record_headers_format(record, text);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(HEADERS);
    struct mr_header own;
    const uint8_t *block = mr_record_headers(record);
    for (size_t at = 0; mr_header_next(block, &at, &own);) {
        rd_kafka_header_add(headers, (const char *)own.name.data, (ssize_t)own.name.len,
                            own.value.data, (ssize_t)own.value.len);
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

/* The commit time in milliseconds, or the record's own, within what a broker takes and keeps: Kafka
 * 4 refuses records from more than an hour ahead (message.timestamp.after.max.ms), and deletes a
 * segment whose latest record is older than retention.ms, however late it came
 * (UnifiedLog.deleteRetentionMsBreachedSegments). Where the commit time is somebody's invention
 * (pg_replication_origin_xact_setup), or of long ago, the record has the time it came, or that of
 * the day before. A whole day, since this machine's clock may be the one that is wrong: one that is
 * a day ahead must not make every record one of the future. */
int64_t mr_kafka_time_ms(const struct mr_record *record)
{
    int64_t own_ms = mr_headers_place(mr_record_headers(record)).time_ms;
    int64_t commit_ms = own_ms != 0 ? own_ms : record->commit_time_us / 1000;
    int64_t received_ms = record->batch->received_wall_ns / 1000000;
    if (MR_UNLIKELY(commit_ms > received_ms + TIMESTAMP_AHEAD_MAX_MS && received_ms > 0)) {
        return received_ms;
    }
    if (MR_UNLIKELY(commit_ms < received_ms - TIMESTAMP_PAST_MAX_MS)) {
        commit_ms = received_ms - TIMESTAMP_PAST_MAX_MS;
    }
    return commit_ms > 0 ? commit_ms : 1;
}

/* MR_FULL: librdkafka has no room; reports make some. */
static mr_status kafka_send_produce(struct mr_kafka_sink *kafka, struct mr_kafka_queue *queue,
                                    struct mr_record *record, struct mr_error *ret_error)
{
    /* A null value with length 0 is a tombstone; librdkafka tells it from an empty one by the
     * pointer. */
    rd_kafka_vu_t arguments[8] = {
        {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = queue->handle},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = RD_KAFKA_PARTITION_UA},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = 0},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {.ptr = (void *)(uintptr_t)record->value, .size = record->value_len}},
        {.vtype = RD_KAFKA_VTYPE_KEY,
         .u.mem = {.ptr = (void *)(uintptr_t)record->key, .size = record->key_len}},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = record},
        {.vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = mr_kafka_time_ms(record)},
    };
    size_t count = 7;
    rd_kafka_headers_t *headers = NULL;
    if (kafka->options.headers || MR_UNLIKELY(record->has_headers)) {
        headers = headers_new(kafka, record);
        arguments[count++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers};
    }
    rd_kafka_error_t *error = rd_kafka_produceva(kafka->producer, arguments, count);
    if (MR_LIKELY(error == NULL)) {
        return MR_OK;
    }
    /* On failure the headers are still ours. */
    if (headers != NULL) {
        rd_kafka_headers_destroy(headers);
    }
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        mr_kafka_session_refuse(kafka,
                                (struct mr_kafka_refusal){.record = record,
                                                          .err = code,
                                                          .text = rd_kafka_error_string(error),
                                                          .alone = true});
    }
    rd_kafka_error_destroy(error);
    /* The reports that are there may know the cause. */
    return code == RD_KAFKA_RESP_ERR__QUEUE_FULL ? MR_FULL : mr_kafka_take_events(kafka, ret_error);
}

/* What a record adds to a request, or a little more: lengths, key, value, headers. */
static size_t wire_bytes(const struct mr_kafka_sink *kafka, const struct mr_record *record)
{
    size_t headers = kafka->options.headers ? HEADERS_WIRE_BYTES : 0;
    return RECORD_WIRE_BYTES + headers + mr_record_bytes(record);
}

/* What a topic takes that has refused a request as too large; 0: it has not. */
static size_t taken_by(const struct mr_kafka_sink *kafka, const struct mr_topic *topic)
{
    size_t said = kafka->topics.items[topic->index].bytes_max;
    return said != 0 ? said : atomic_load_explicit(&topic->bytes_max, memory_order_relaxed);
}

/* Somebody may have raised that, so it is asked for again each minute. Nothing is sent meanwhile:
 * all topics together may take a tenth of the time for it. */
static void ask_again(struct mr_kafka_sink *kafka, const struct mr_topic *topic, int64_t now_ns)
{
    struct mr_kafka_topics *topics = &kafka->topics;
    struct mr_kafka_topic *item = &topics->items[topic->index];
    if (MR_LIKELY(taken_by(kafka, topic) == 0) || now_ns < topics->ask_ns) {
        return;
    }
    if (item->ask_ns != 0 && now_ns >= item->ask_ns) {
        item->bytes_max = mr_kafka_topic_bounds(kafka->producer, topic->name).bytes_max;
        int64_t took_ns = mr_monotonic_ns() - now_ns;
        topics->ask_ns = now_ns + 11 * took_ns;
        item->ask_ns = 0;
    }
    item->ask_ns = item->ask_ns == 0 ? now_ns + ASK_AGAIN_NS : item->ask_ns;
}

/* Bytes of a request of the queue, before compression. A topic that refused one as too large gets
 * none that is more than it takes; a record adds less than wire_bytes says. */
static size_t request_bytes(const struct mr_kafka_sink *kafka, const struct mr_kafka_queue *queue)
{
    size_t most = mr_far_bytes(&kafka->far);
    size_t taken = taken_by(kafka, rd_kafka_topic_opaque(queue->handle));
    return taken <= REQUEST_HEAD_BYTES || taken > most ? most : taken - REQUEST_HEAD_BYTES;
}

/* librdkafka sends by itself what is there when linger.ms of the first record is over; what came
 * after it would wait for the answer. The first records of a transaction wait for longer. */
static bool is_late(const struct mr_kafka_sink *kafka, const struct mr_kafka_queue *queue)
{
    bool waits = kafka->transaction.state == MR_KAFKA_TRANSACTION_OPEN;
    int64_t most_us = kafka->options.exactly_once ? FILL_US / 2 : FILL_US;
    return queue->in_flight % LATE_RECORDS == 0 && !waits &&
           mr_monotonic_ns() - queue->handed_ns > most_us * 1000;
}

/* Gives librdkafka as much of a queue as one request takes. MR_FULL: it has no room. */
static mr_status fill_request(struct mr_kafka_sink *kafka, struct mr_kafka_queue *queue,
                              struct mr_error *ret_error)
{
    mr_status status = MR_OK;
    size_t bytes = 0;
    uint32_t most = MR_KAFKA_REQUEST_RECORDS * mr_far_times(&kafka->far);
    MR_ASSERT(queue->first != NULL && queue->in_flight == 0);
    bool is_full = false;
    queue->handed_ns = mr_monotonic_ns();
    ask_again(kafka, rd_kafka_topic_opaque(queue->handle), queue->handed_ns);
    size_t most_bytes = request_bytes(kafka, queue);
    while (queue->first != NULL && queue->in_flight < most) {
        struct mr_record *record = queue->first;
        struct mr_record *next = record->next;
        size_t record_bytes = wire_bytes(kafka, record);
        bytes += record_bytes;
        is_full = queue->in_flight > 0 && bytes > most_bytes;
        if (is_full || (bytes > kafka->far.near && is_late(kafka, queue))) {
            break;
        }
        record->flight = queue; /* in the place of `next` */
        if ((status = kafka_send_produce(kafka, queue, record, ret_error)) != MR_OK) {
            record->next = next;
            break;
        }
        queue->first = next;
        queue->waiting--;
        queue->waiting_bytes -= record_bytes;
        queue->in_flight++;
    }
    queue->full = is_full && most_bytes == mr_far_bytes(&kafka->far);
    queue->last = queue->first == NULL ? &queue->first : queue->last;
    mr_kafka_topics_grow(&kafka->topics, rd_kafka_topic_opaque(queue->handle),
                         atomic_load_explicit(&queue->partitions, memory_order_relaxed));
    return status;
}

/* Sends the position's record. Without an opaque: that is how its report is known from an
 * event's. */
static mr_status produce_state(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    const char *key = kafka->options.state_name;
    /* Another handle of the one there is. */
    rd_kafka_topic_t *topic = rd_kafka_topic_new(kafka->producer, kafka->options.state_topic, NULL);
    rd_kafka_resp_err_t err = rd_kafka_producev(
        kafka->producer, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(0),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, strlen(key)),
        RD_KAFKA_V_VALUE(kafka->state, strlen(kafka->state)), RD_KAFKA_V_END);
    mr_kafka_now(topic, 0);
    rd_kafka_topic_destroy(topic);
    if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        return MR_FULL;
    }
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        mr_kafka_session_fail(kafka, err, kafka->options.state_topic, rd_kafka_err2str(err));
        return mr_kafka_take_events(kafka, ret_error);
    }
    kafka->reports.awaited++;
    return MR_OK;
}

/* The one that waits. */
static mr_status hand_over_state(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    MR_TRY(produce_state(kafka, ret_error));
    free(kafka->state);
    kafka->state = NULL;
    kafka->store = MR_KAFKA_STORE_SENT;
    return MR_OK;
}

/* The first records of a transaction wait for the broker's word on it. They need not wait for
 * linger.ms (kafka_conf.c) besides, but a flush would have ended by then. */
static void set_out(struct mr_kafka_sink *kafka)
{
    struct mr_kafka_transaction *transaction = &kafka->transaction;
    MR_ASSERT(!kafka->options.exactly_once || transaction->state != MR_KAFKA_TRANSACTION_NONE);
    if (transaction->state == MR_KAFKA_TRANSACTION_OPEN) {
        transaction->state = MR_KAFKA_TRANSACTION_BEGUN;
    } else {
        mr_kafka_now_all(kafka->producer);
    }
}

/* When the request that a queue would fill sets out (monotonic; in the past: now): a full one at
 * once, another one once the last was so long ago, unless a transaction ends with it. */
static int64_t queue_due_ns(const struct mr_kafka_sink *kafka, const struct mr_kafka_queue *queue)
{
    bool is_full = queue->waiting_bytes >= request_bytes(kafka, queue) ||
                   queue->waiting >= MR_KAFKA_REQUEST_RECORDS * mr_far_times(&kafka->far);
    return is_full || kafka->store != MR_KAFKA_STORE_NONE
               ? 0
               : queue->handed_ns + kafka->base.gather_ns;
}

/* Fills the requests that are due; MR_FULL: some, there is no room for more. Those that are not
 * full set out together, and so in one (scripts/librdkafka.patch). */
static mr_status hand_over_ready(struct mr_kafka_sink *kafka, bool *ret_any,
                                 struct mr_error *ret_error)
{
    struct mr_kafka_ready *ready = &kafka->ready;
    int64_t now_ns = mr_monotonic_ns();
    int64_t due_ns = INT64_MAX;
    struct mr_kafka_queue *small = NULL;
    mr_status status = MR_OK;
    for (struct mr_kafka_queue **at = &ready->first; *at != NULL && status == MR_OK;) {
        struct mr_kafka_queue *queue = *at;
        int64_t its_ns = queue_due_ns(kafka, queue);
        if (its_ns > now_ns) {
            due_ns = its_ns < due_ns ? its_ns : due_ns;
            at = &queue->next;
            continue;
        }
        status = fill_request(kafka, queue, ret_error);
        if (queue->in_flight == 0) {
            break; /* the reports of other queues make room */
        }
        *ret_any = true;
        mr_kafka_ready_take(ready, at);
        if (queue->full) {
            mr_kafka_now(queue->handle, queue->partition);
        } else {
            queue->next_small = small;
            small = queue;
        }
    }
    for (; small != NULL; small = small->next_small) {
        mr_kafka_now(small->handle, small->partition);
    }
    ready->due_ns = status == MR_OK && due_ns != INT64_MAX ? due_ns : 0;
    return status;
}

mr_status mr_kafka_hand_over(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    if (mr_kafka_transaction_settles_in_ns(kafka) > 0) {
        return MR_OK;
    }
    mr_status status = MR_OK;
    bool any = false;
    if (kafka->ready.first != NULL) {
        status = hand_over_ready(kafka, &any, ret_error);
    }
    if (kafka->store == MR_KAFKA_STORE_WAITS && status == MR_OK) {
        status = hand_over_state(kafka, ret_error);
        any |= status == MR_OK;
    }
    if (any) {
        set_out(kafka);
    }
    return status == MR_FULL ? MR_OK : status;
}

/* The queue in which the `i`-th record of the batch waits. MR_FULL: its topic is not known yet, or
 * how it is placed. */
static mr_status queue_of(struct mr_kafka_sink *kafka, const struct mr_batch *batch, uint32_t i,
                          struct mr_kafka_queue **ret_queue, int32_t *ret_partitions,
                          struct mr_error *ret_error)
{
    struct mr_kafka_topic *topic;
    MR_TRY(mr_kafka_topics_get(&kafka->topics, batch, i, &topic, ret_error));
    const struct mr_record *record = mr_batch_record(batch, i);
    int32_t count = topic->placing == NULL ? topic->queue_count
                                           : mr_placing_count(topic->placing, record->position);
    if (MR_UNLIKELY(count == 0)) {
        return MR_FULL;
    }
    int32_t partition =
        mr_kafka_place(topic->handle, record, count, topic->queue_count, kafka->options.null_keys);
    if (MR_UNLIKELY(partition < 0)) {
        char why[512];
        snprintf(why, sizeof(why),
                 "Kafka topic \"%s\" has %d partitions, and a row wants partition %d; add "
                 "partitions, or change outbox.fields",
                 record->topic->name, topic->queue_count,
                 mr_headers_place(mr_record_headers(record)).partition);
        return mr_kafka_refuse_record(kafka, why, record, "", ret_error);
    }
    *ret_queue = topic->queues[partition];
    *ret_partitions = topic->queue_count;
    return MR_OK;
}

static void note_placed(const struct mr_kafka_sink *kafka, const struct mr_batch *batch)
{
    if (kafka->options.placings != NULL && batch->record_count > 0) {
        mr_placings_note_sent(kafka->options.placings,
                              mr_batch_record(batch, batch->record_count - 1)->position);
    }
}

/* Records wait in queues, not in librdkafka: its thread polls without sleeping for as long as
 * anything waits there after a request that is on its way (rd_kafka_toppar_producer_serve and
 * rd_kafka_msgq_allow_wakeup_at; 2.4 to 2.16). And a second request of a partition does wait there:
 * what RD_KAFKA_IDEMP_MAX_INFLIGHT (5) limits is counted in messages, not in requests
 * (rktp_msgs_inflight; https://github.com/confluentinc/librdkafka/pull/4989). */
mr_status mr_kafka_send(struct mr_sink *sink, struct mr_batch *batch, struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = (struct mr_kafka_sink *)sink;
    MR_ASSERT(batch->state == MR_BATCH_SEALED);
    MR_TRY(mr_kafka_session_status(kafka, ret_error));
    if (kafka->options.exactly_once) {
        MR_TRY(mr_kafka_transaction_begin(kafka, ret_error));
    }
    if (kafka->send_at == 0) {
        batch->pending = batch->record_count;
        note_placed(kafka, batch);
    }
    for (; kafka->send_at < batch->record_count; kafka->send_at++) {
        struct mr_kafka_queue *queue;
        int32_t partitions;
        MR_TRY(queue_of(kafka, batch, kafka->send_at, &queue, &partitions, ret_error));
        struct mr_record *record = mr_batch_own_record(batch, kafka->send_at);
        record->batch = batch;
        record->next = NULL;
        if (queue->first == NULL && queue->in_flight == 0) {
            mr_kafka_ready_add(&kafka->ready, queue);
        }
        *queue->last = record;
        queue->last = &record->next;
        queue->waiting++;
        queue->waiting_bytes += wire_bytes(kafka, record);
        kafka->reports.awaited++;
        mr_sink_counts_sent(&kafka->counts, record->topic, queue->partition, partitions,
                            record->key_len + record->value_len);
        mr_sink_sent(sink, record, queue->partition);
    }
    kafka->send_at = 0;
    batch->state = MR_BATCH_SENDING;
    if (batch->pending == 0) {
        mr_sink_done(sink, batch); /* a position alone */
    }
    return MR_OK;
}
