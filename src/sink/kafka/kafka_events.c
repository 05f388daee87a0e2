/* What librdkafka answers: delivery reports, errors, statistics; and what it never answers. */

#include "base/clock.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_token.h"
#include "sink/kafka/kafka_internal.h"
#include "sink/kafka/kafka_stats.h"

enum {
    /* Records that librdkafka does not report: how often to ask what became of their topics, and
     * how long to wait for the answer; and when they count as lost although their topics are well.
     * That is longer than librdkafka's own patience with a silent broker (socket.timeout.ms, 60 s),
     * and than a record of a transaction lasts (message.timeout.ms). */
    LOOK_MS = 5000,
    LOOK_ANSWER_MS = 1000,
    LOST_MS = 75000,
    LOOKS_A_MINUTE = 60000 / (LOOK_MS + LOOK_ANSWER_MS),
};

/* Of a request with several records that a broker refuses, librdkafka gives each the code
 * INVALID_RECORD, whatever is wrong with it (rdkafka_request.c, as in KIP-467); what it was is in
 * the broker's text alone (validateTimestamp in storage/internals/log/LogValidator.java, since
 * Kafka 2.4). */
static rd_kafka_resp_err_t code_of(const rd_kafka_message_t *message)
{
    const char *said = rd_kafka_message_produce_errstr(message);
    bool is_time = message->err == RD_KAFKA_RESP_ERR_INVALID_RECORD && said != NULL &&
                   strstr(said, "is out of range. The timestamp") != NULL;
    return is_time ? RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP : message->err;
}

static void report_failed(struct mr_kafka_sink *kafka, const rd_kafka_message_t *message,
                          bool alone)
{
    const struct mr_record *record = message->_private;
    rd_kafka_resp_err_t err = code_of(message);
    const char *text = rd_kafka_err2str(err);
    if (record == NULL || kafka->session == MR_KAFKA_REFUSED) {
        mr_kafka_session_fail(kafka, err, rd_kafka_topic_name(message->rkt), text);
        if (record != NULL) {
            mr_kafka_refuse_also(kafka, err, record, alone);
        }
    } else {
        mr_kafka_session_refuse(
            kafka, (struct mr_kafka_refusal){.record = record,
                                             .err = err,
                                             .text = text,
                                             .said = rd_kafka_message_produce_errstr(message),
                                             .alone = alone});
    }
}

/* All that a queue had handed over is with the broker. */
static void note_answer(struct mr_kafka_sink *kafka, const struct mr_kafka_queue *queue)
{
    int64_t now_ns = mr_monotonic_ns();
    mr_far_note(&kafka->far, now_ns, now_ns - queue->handed_ns, atomic_exchange(&kafka->sent, 0),
                queue->full);
    kafka->base.times = mr_far_times(&kafka->far);
    if (MR_UNLIKELY(kafka->base.times > 1 && !kafka->reach.far)) {
        kafka->reach.far = true;
        mr_log(MR_LOG_INFO, "kafka_far",
               "brokers are far away; more is sent at once, as far as pipeline.memory allows",
               MR_LOG_INT("fastest_answer_ms", mr_far_ms(&kafka->far)));
    }
}

static void report_of(struct mr_kafka_sink *kafka, const rd_kafka_message_t *message,
                      const struct mr_record *record)
{
    struct mr_batch *batch = record->batch;
    struct mr_kafka_queue *queue = record->flight;
    MR_ASSERT(batch->pending > 0 && queue->in_flight > 0);
    if (--queue->in_flight == 0) {
        note_answer(kafka, queue);
        if (queue->first != NULL) {
            mr_kafka_ready_add(&kafka->ready, queue);
        }
    }
    mr_sink_counts_acked(&kafka->counts, rd_kafka_topic_opaque(message->rkt), message->partition,
                         message->key_len + message->len);
    if (--batch->pending == 0) {
        MR_ASSERT(batch->state == MR_BATCH_SENDING);
        mr_sink_done(&kafka->base, batch);
    }
}

/* The position's record, or the one that ends a hanging transaction. */
static void state_reported(struct mr_kafka_sink *kafka, int64_t offset)
{
    kafka->transaction.offset = offset;
    MR_ASSERT(kafka->store == MR_KAFKA_STORE_SENT || kafka->store == MR_KAFKA_STORE_NONE);
    if (kafka->store == MR_KAFKA_STORE_SENT) {
        kafka->store = kafka->options.exactly_once ? MR_KAFKA_STORE_REPORTED : MR_KAFKA_STORE_NONE;
    }
}

static void take_reports(struct mr_kafka_sink *kafka, rd_kafka_event_t *event)
{
    const rd_kafka_message_t *message;
    bool alone =
        rd_kafka_event_message_count(event) == 1; /* of one request; taking them counts down */
    kafka->reports.silent_ns = 0;
    while ((message = rd_kafka_event_message_next(event)) != NULL) {
        if (MR_UNLIKELY(message->err != RD_KAFKA_RESP_ERR_NO_ERROR)) {
            report_failed(kafka, message, alone);
            continue;
        }
        if (MR_UNLIKELY(message->offset < 0)) {
            /* librdkafka takes a request for delivered once a later one of its partition was. But a
             * broker that knows nothing of this producer takes any first sequence, so it may have
             * refused the one before, as one does that is only just making the partition
             * (KAFKA-15591); those records would be lost. */
            mr_kafka_session_fail(
                kafka, RD_KAFKA_RESP_ERR__INCONSISTENT, rd_kafka_topic_name(message->rkt),
                "a request is without an answer and a later one was taken; sending again");
            continue;
        }
        struct mr_record *record = message->_private;
        kafka->reach.logged = false;
        kafka->reach.ever = true;
        MR_ASSERT(kafka->reports.awaited > 0);
        kafka->reports.awaited--;
        if (MR_UNLIKELY(record == NULL)) {
            state_reported(kafka, message->offset);
        } else {
            report_of(kafka, message, record);
        }
    }
}

static void log_away(const struct mr_kafka_sink *kafka, const struct mr_error *error)
{
    char text[MR_CAUSE_TEXT_MAX];
    if (strstr(error->text, MR_KAFKA_NO_TOKEN) != NULL) {
        snprintf(text, sizeof(text),
                 "%.600s; it is asked for again every 10 s, and rows wait in PostgreSQL",
                 error->text);
    } else {
        snprintf(text, sizeof(text),
                 "%.400s; see that the brokers of sink.kafka.brokers (%.200s) run and are reached "
                 "from here; rows wait in PostgreSQL until one answers",
                 error->text, kafka->options.brokers);
    }
    mr_standstill_begin(kafka->base.standstill, MR_CAUSE_KAFKA_AWAY, text);
    mr_log(MR_LOG_WARN, "kafka_unreachable", error->text);
}

/* Once, until something is delivered again, or brokers that were up again are all gone: where
 * nothing is sent, only statistics say that they were (kafka_view). One broker of several that is
 * away is no news then. */
static bool kafka_events_is_news(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err)
{
    return !kafka->reach.logged ||
           (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && atomic_load(&kafka->reach.since_ns) == 0);
}

static void kafka_events_take_error(struct mr_kafka_sink *kafka, rd_kafka_event_t *event)
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
        mr_kafka_session_fail(kafka, err, NULL, reason);
        return;
    }
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && kafka->reach.hung_up && !kafka->reach.ever) {
        err = RD_KAFKA_RESP_ERR__TRANSPORT;
        text = MR_KAFKA_HUNG_UP;
    }
    if (mr_kafka_explain(kafka, err, NULL, text, &error) == MR_ERR_AUTH ||
        mr_kafka_transaction_is_unsettled(kafka)) {
        mr_kafka_session_fail(kafka, err, NULL, text);
        return; /* it is counted there */
    }
    mr_sink_counts_errors(&kafka->counts, rd_kafka_err2name(err), 1);
    if (kafka_events_is_news(kafka, rd_kafka_event_error(event))) {
        kafka->reach.logged = true;
        atomic_store(&kafka->reach.since_ns, mr_monotonic_ns());
        log_away(kafka, &error);
    }
}

/* How long to wait for the next event. The thread has nothing else to do: the session is over, but
 * one that ends without the record that was refused only leads to another. */
static int patience_ms(const struct mr_kafka_sink *kafka)
{
    if (MR_LIKELY(kafka->cause_by_ns == 0)) {
        return 0;
    }
    int64_t left_ms = (kafka->cause_by_ns - mr_monotonic_ns()) / 1000000;
    return left_ms > 0 ? (int)left_ms : 0;
}

mr_status mr_kafka_take_events(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(kafka->events, patience_ms(kafka))) != NULL) {
        switch (rd_kafka_event_type(event)) {
        case RD_KAFKA_EVENT_DR:
            take_reports(kafka, event);
            break;
        case RD_KAFKA_EVENT_ERROR:
            kafka_events_take_error(kafka, event);
            break;
        case RD_KAFKA_EVENT_LISTOFFSETS_RESULT:
            mr_kafka_transaction_take_proof(kafka, event);
            break;
        case RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT:
            mr_kafka_take_topics(kafka, event);
            break;
        case RD_KAFKA_EVENT_STATS:
            /* A report that no memory was left for is missing, and no more. */
            free(atomic_exchange(&kafka->figures.report,
                                 mr_kafka_stats_keep(rd_kafka_event_stats(event))));
            break;
        default:
            break;
        }
        rd_kafka_event_destroy(event);
    }
    if (!kafka->reach.logged) {
        atomic_store_explicit(&kafka->reach.since_ns, 0, memory_order_relaxed);
        mr_standstill_end(kafka->base.standstill, MR_CAUSE_KAFKA_AWAY);
    }
    return mr_kafka_session_status(kafka, ret_error);
}

/* Whether all partitions of a topic that is there can be written to. */
static bool is_served(const struct rd_kafka_metadata_topic *topic)
{
    bool served = topic->err == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < topic->partition_cnt && served; i++) {
        served = topic->partitions[i].leader >= 0;
    }
    return served;
}

/* librdkafka 2.15 forgets each broker that a Metadata response does not list. One that ends in
 * order lists none, and where it was the last, nobody is left to ask, however long
 * (rd_kafka_metadata_decommission_unavailable_brokers; tests/lies/test_lying_kafka.py). So the
 * brokers of the configuration are named again; not at each look, because librdkafka keeps what it
 * is given. */
static void name_brokers_again(struct mr_kafka_sink *kafka)
{
    if (kafka->reports.unanswered++ % LOOKS_A_MINUTE == 0) {
        rd_kafka_brokers_add(kafka->producer, kafka->options.brokers);
    }
}

/* Some records are never reported. When the state topic of exactly once was deleted under load,
 * sessions stood still for more than two minutes (tests/test_topics.py). How, was read in the
 * source of 2.16 and not traced: a request that is answered "unknown topic" is tried again
 * (rd_kafka_handle_Produce_error), in the queue of a partition that the topic has lost meanwhile
 * (rd_kafka_topic_partition_cnt_update), where no broker and no time-out looks
 * (rd_kafka_topic_scan_all). A new session makes the topic again, and sends them again. */
static void look_for_lost(struct mr_kafka_sink *kafka, int64_t silent_ms)
{
    const struct rd_kafka_metadata *found;
    if (rd_kafka_metadata(kafka->producer, 0, NULL, &found, LOOK_ANSWER_MS) !=
        RD_KAFKA_RESP_ERR_NO_ERROR) {
        name_brokers_again(kafka);
        return; /* no broker answers, so they wait */
    }
    bool served = true;
    for (int i = 0; i < found->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *topic = &found->topics[i];
        served = served && is_served(topic);
        if (topic->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
            mr_kafka_session_fail(kafka, topic->err, topic->topic,
                                  "deleted while records were on their way to it; sending again");
        }
    }
    rd_kafka_metadata_destroy(found);
    if (served && silent_ms > LOST_MS) {
        mr_kafka_session_fail(
            kafka, RD_KAFKA_RESP_ERR__INCONSISTENT, NULL,
            "records are without an answer although Kafka gives others; sending again");
    }
}

void mr_kafka_watch_reports(struct mr_kafka_sink *kafka)
{
    if (kafka->reports.awaited == 0) {
        kafka->reports.silent_ns = 0;
        return;
    }
    int64_t now_ns = mr_monotonic_ns();
    if (kafka->reports.silent_ns == 0) {
        kafka->reports.silent_ns = kafka->reports.looked_ns = now_ns;
        kafka->reports.unanswered = 0;
    }
    if (MR_UNLIKELY(now_ns - kafka->reports.looked_ns > LOOK_MS * INT64_C(1000000))) {
        kafka->reports.looked_ns = now_ns;
        look_for_lost(kafka, (now_ns - kafka->reports.silent_ns) / 1000000);
    }
}
