/* The Kafka sink's functions: sessions, the position's record, and what the sink tells of itself.
 * Only files named sink/kafka/kafka* include rdkafka.h. */
#include <poll.h>

#include "base/clock.h"
#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_threads.h"
#include "kafka/kafka_token.h"
#include "sink/kafka/kafka_internal.h"
#include "sink/kafka/kafka_stats.h"

enum {
    POLL_INTERVAL_MS = 1000, /* while the broker is to answer */
    CAUSE_MS = 5000,         /* for the report of a refused record, after what follows from it */
    PRODUCE = 0,             /* Kafka's number of the request */
};

static struct mr_kafka_sink *kafka_of(struct mr_sink *sink)
{
    return (struct mr_kafka_sink *)sink;
}

mr_status mr_kafka_explain(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                           const char *topic, const char *text, struct mr_error *ret_error)
{
    char remedy[MR_KAFKA_REMEDY_MAX];
    mr_status status = mr_kafka_error_classify(err, text, &kafka->options, remedy);
    return mr_fail(ret_error, status, "Kafka%s%s%s: %s (%s)%s%s", topic == NULL ? "" : " topic \"",
                   topic == NULL ? "" : topic, topic == NULL ? "" : "\"", text,
                   rd_kafka_err2name(err), remedy[0] == '\0' ? "" : "; ", remedy);
}

/* What follows from a refused record or a lost transaction may be reported before it. */
static bool only_follows(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT ||
           err == RD_KAFKA_RESP_ERR__STATE || err == RD_KAFKA_RESP_ERR__FATAL ||
           err == RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE ||
           err == RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD;
}

static bool is_cause(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err, mr_status status)
{
    switch (kafka->session) {
    case MR_KAFKA_SERVES:
        return true;
    case MR_KAFKA_FAILED:
        return (status != MR_ERR_TRANSIENT && kafka->failure.status == MR_ERR_TRANSIENT) ||
               (kafka->failure_follows && !only_follows(err));
    default:
        return false;
    }
}

/* A transaction that has failed purges what waits, and that may be reported before its cause, which
 * librdkafka answers to a call in the wrong state (rdkafka_txnmgr.c,
 * rd_kafka_txn_set_abortable_error and rd_kafka_txn_require_states0). False: there is none. */
static bool explain_purge(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err,
                          struct mr_error *ret_failure, bool *ret_is_refusal)
{
    bool follows = err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
                   err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT || err == RD_KAFKA_RESP_ERR__STATE;
    if (!follows || !kafka->options.exactly_once || kafka->session != MR_KAFKA_SERVES) {
        return false;
    }
    rd_kafka_error_t *error = rd_kafka_begin_transaction(kafka->producer);
    rd_kafka_resp_err_t cause = rd_kafka_error_code(error);
    bool is_known = error != NULL && cause != RD_KAFKA_RESP_ERR__STATE;
    if (is_known) {
        mr_kafka_explain(kafka, cause, NULL, rd_kafka_error_string(error), ret_failure);
        bool is_poison = ret_failure->status == MR_ERR_POISON;
        *ret_is_refusal = is_poison || cause == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
        if (is_poison) {
            ret_failure->status = MR_ERR_TRANSIENT; /* of another record, whose report is to come */
        }
    }
    rd_kafka_error_destroy(error);
    return is_known;
}

/* At least once, a refused record is a fatal error of the producer. */
static bool follows_from_refusal(const struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err)
{
    return only_follows(err) &&
           rd_kafka_fatal_error(kafka->producer, NULL, 0) == RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE;
}

bool mr_kafka_session_fail(struct mr_kafka_sink *kafka, rd_kafka_resp_err_t err, const char *topic,
                           const char *text)
{
    mr_sink_counts_errors(&kafka->counts, rd_kafka_err2name(err), 1);
    struct mr_error failure;
    bool is_refusal = follows_from_refusal(kafka, err);
    bool is_known = explain_purge(kafka, err, &failure, &is_refusal);
    if (!is_known) {
        mr_kafka_explain(kafka, err, topic, text, &failure);
    }
    if (!only_follows(err)) {
        kafka->cause_by_ns = 0;
    } else if (is_refusal && kafka->session == MR_KAFKA_SERVES) {
        kafka->cause_by_ns = mr_monotonic_ns() + CAUSE_MS * INT64_C(1000000);
    }
    if (!is_cause(kafka, err, failure.status)) {
        return false;
    }
    kafka->session = MR_KAFKA_FAILED;
    kafka->failure = failure;
    kafka->failure_follows = !is_known && only_follows(err);
    return true;
}

mr_status mr_kafka_session_status(const struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    if (kafka->session == MR_KAFKA_SERVES) {
        return MR_OK;
    }
    *ret_error = kafka->failure;
    return kafka->failure.status;
}

/* librdkafka's own log. What matters of it comes as events too; its remarks on our choice of
 * properties and on each attempt to reconnect would only repeat themselves. */
static void kafka_on_log(const rd_kafka_t *producer, int level, const char *facility,
                         const char *text)
{
    struct mr_kafka_sink *kafka = rd_kafka_opaque(producer);
    if (mr_kafka_is_hung_up(facility, text)) {
        kafka->reach.hung_up = true;
    }
    bool repeats = strcmp(facility, "CONFWARN") == 0 || strcmp(facility, "FAIL") == 0 ||
                   strcmp(facility, "ERROR") == 0 || strcmp(facility, "GETPID") == 0;
    enum mr_log_level mine = repeats || level > 6 ? MR_LOG_DEBUG
                             : level <= 3         ? MR_LOG_WARN
                                                  : MR_LOG_INFO;
    mr_log(mine, "kafka_client", text, MR_LOG_STR("facility", facility));
}

/* On one of librdkafka's threads. */
static rd_kafka_resp_err_t on_sent(rd_kafka_t *producer, int socket, const char *broker, int32_t id,
                                   int16_t request, int16_t version, int32_t number, size_t bytes,
                                   void *opaque)
{
    struct mr_kafka_sink *kafka = opaque;
    size_t most = atomic_load(&kafka->sent);
    while (request == PRODUCE && bytes > most &&
           !atomic_compare_exchange_weak(&kafka->sent, &most, bytes)) {
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t kafka_on_new(rd_kafka_t *producer, const rd_kafka_conf_t *conf,
                                        void *opaque, char *reason, size_t reason_size)
{
    return rd_kafka_interceptor_add_on_request_sent(producer, "sizes", on_sent, opaque);
}

static void kafka_give_token(rd_kafka_t *producer, const char *unused, void *opaque)
{
    const struct mr_kafka_sink *kafka = opaque;
    mr_kafka_token_give(producer, kafka->options.token_program);
}

/* mr_secret_fn: connections stay, and the next one logs in with it (rdkafka.h,
 * rd_kafka_sasl_set_credentials). */
static void kafka_take_password(void *context, const char *password)
{
    const struct mr_kafka_sink *kafka = context;
    rd_kafka_error_t *error =
        rd_kafka_sasl_set_credentials(kafka->producer, kafka->options.username, password);
    MR_ASSERT(error == NULL); /* it wants both to be there */
}

static mr_status kafka_producer_new(struct mr_kafka_sink *kafka, struct mr_error *ret_error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    mr_status status = mr_kafka_conf_fill(conf, &kafka->options, ret_error);
    if (status != MR_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    kafka->reach.hung_up = false;
    rd_kafka_conf_set_opaque(conf, kafka);
    rd_kafka_conf_set_log_cb(conf, kafka_on_log);
    rd_kafka_conf_interceptor_add_on_new(conf, "sizes", kafka_on_new, kafka);
    mr_kafka_threads_watch(conf);
    mr_kafka_token_want(conf, &kafka->options, kafka_give_token);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS);
    char reason[256];
    kafka->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    if (kafka->producer == NULL) {
        /* The configuration is ours again, but librdkafka has freed its interceptors (those of the
         * threads), and would once more. It is left: the process ends with this error. */
        bool lacks = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
        return mr_fail(ret_error, lacks ? MR_ERR_SYSTEM : MR_ERR_CONFIG,
                       "Kafka producer can't be made: %s", reason);
    }
    mr_kafka_token_begin(kafka->producer, &kafka->options);
    mr_secret_listen(kafka->options.password, kafka_take_password, kafka);
    kafka->events = rd_kafka_queue_get_main(kafka->producer);
    /* An eventfd adds up the eight-byte numbers that are written to it. */
    static const uint64_t one = 1;
    rd_kafka_queue_io_event_enable(kafka->events, kafka->base.owner.wake_fd, &one, sizeof(one));
    return MR_OK;
}

static void kafka_close(struct mr_sink *sink)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    if (kafka->producer == NULL) {
        return;
    }
    mr_secret_listen(kafka->options.password, NULL, NULL);
    rd_kafka_queue_io_event_enable(kafka->events, -1, NULL, 0);
    mr_kafka_transaction_abandon(kafka);
    /* Records point into batches: after the purge and the destroy no thread of librdkafka reads
     * them. */
    rd_kafka_purge(kafka->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    mr_kafka_topics_release(&kafka->topics);
    rd_kafka_queue_destroy(kafka->events);
    mr_kafka_client_end(kafka->producer, MR_KAFKA_END_MS);
    mr_kafka_topics_done(&kafka->topics);
    kafka->producer = NULL;
    kafka->events = NULL;
    mr_sink_counts_reset(&kafka->counts);
    atomic_store(&kafka->reach.connected, false);
}

static mr_status kafka_poll(struct mr_sink *sink, struct mr_error *ret_error);

mr_status mr_kafka_serve(void *context, struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = context;
    MR_TRY(kafka_poll(&kafka->base, ret_error));
    struct pollfd stop = {.fd = kafka->base.owner.stop_fd, .events = POLLIN};
    return poll(&stop, 1, MR_KAFKA_RETRY_MS) == 1 ? MR_AGAIN : MR_OK;
}

static mr_status kafka_open(struct mr_sink *sink, struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    MR_ASSERT(kafka->producer == NULL);
    MR_ASSERT(sink->owner.done != NULL);
    kafka->session = MR_KAFKA_SERVES;
    kafka->base.refusal = (struct mr_sink_refusal){0};
    kafka->cause_by_ns = 0;
    kafka->asked = NULL;
    kafka->send_at = 0;
    kafka->store = MR_KAFKA_STORE_NONE;
    free(kafka->state);
    kafka->state = NULL;
    kafka->reports = (struct mr_kafka_reports){0};
    kafka->ids = (struct mr_kafka_ids){0};
    mr_kafka_ready_init(&kafka->ready);
    kafka->transaction = (struct mr_kafka_transaction){0};
    MR_TRY(kafka_producer_new(kafka, ret_error));
    mr_kafka_topics_init(&kafka->topics, kafka->producer, &kafka->options, kafka->base.standstill);
    atomic_store(&kafka->figures.session_is_new, true);
    atomic_store(&kafka->reach.connected, true);
    return kafka->options.exactly_once ? mr_kafka_transaction_fence(kafka, ret_error) : MR_OK;
}

/* What hangs stays until the next transaction, which has all that it held, is given up: that ends
 * it in the state topic together with all others. An end before leaves it for the next session. */
static void note_hanging(struct mr_kafka_sink *kafka, struct mr_position up_to)
{
    kafka->base.is_half_ended = true;
    kafka->base.half_ended = up_to;
    mr_log(MR_LOG_WARN, "state_ended",
           "Kafka had left a transaction open in the topic that keeps the position, although it "
           "had ended; it is given up, and what it held comes again. If it stays, "
           "\"kafka-transactions.sh find-hanging\" shows it and \"abort\" ends it",
           MR_LOG_STR("topic", kafka->options.state_topic));
}

static mr_status kafka_load(struct mr_sink *sink, bool *ret_found, struct mr_checkpoint *ret_state,
                            struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    struct mr_kafka_stored stored = {0};
    struct mr_kafka_hanging hanging;
    sink->is_half_ended = false;
    mr_status status = mr_kafka_state_load(kafka->producer, &kafka->options, mr_kafka_serve, kafka,
                                           &stored, &hanging, ret_error);
    MR_TRY(status);
    if (hanging.found) {
        note_hanging(kafka, hanging.up_to);
    }
    *ret_found = stored.found;
    *ret_state = stored.state;
    return MR_OK;
}

static mr_status kafka_store(struct mr_sink *sink, const struct mr_checkpoint *state,
                             struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    MR_ASSERT(kafka->store == MR_KAFKA_STORE_NONE);
    if (kafka->options.exactly_once) {
        MR_TRY(mr_kafka_transaction_begin(kafka, ret_error)); /* where no batch came before */
    }
    kafka->state = mr_state_format(state);
    kafka->store = MR_KAFKA_STORE_WAITS;
    return mr_kafka_hand_over(kafka, ret_error);
}

static bool kafka_storing(const struct mr_sink *sink)
{
    return ((const struct mr_kafka_sink *)sink)->store != MR_KAFKA_STORE_NONE;
}

/* All of the transaction is with the broker, the position too. */
static bool may_commit(const struct mr_kafka_sink *kafka)
{
    return kafka->store == MR_KAFKA_STORE_REPORTED && kafka->reports.awaited == 0;
}

static mr_status kafka_poll(struct mr_sink *sink, struct mr_error *ret_error)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    MR_TRY(mr_kafka_take_events(kafka, ret_error));
    MR_TRY(mr_kafka_hand_over(kafka, ret_error));
    mr_kafka_watch_reports(kafka);
    mr_kafka_watch_topics(kafka);
    return may_commit(kafka) ? mr_kafka_transaction_end(kafka, ret_error) : MR_OK;
}

static int64_t flow_due_in_ns(const struct mr_kafka_sink *kafka)
{
    const int64_t ms = 1000000;
    if (kafka->ready.first != NULL || kafka->store == MR_KAFKA_STORE_WAITS) {
        int64_t settles_ns = mr_kafka_transaction_settles_in_ns(kafka);
        int64_t due_ns = kafka->ready.due_ns - mr_monotonic_ns();
        due_ns = due_ns > settles_ns ? due_ns : settles_ns;
        return due_ns > 0 ? due_ns : MR_KAFKA_RETRY_MS * ms; /* there was no room */
    }
    if (may_commit(kafka)) {
        return MR_KAFKA_RETRY_MS * ms;
    }
    /* Whatever else librdkafka has to say comes with a wake-up (rd_kafka_q_io_event). */
    return kafka->reports.awaited > 0 ? POLL_INTERVAL_MS * ms : INT64_MAX;
}

static int64_t kafka_due_in_ns(const struct mr_sink *sink)
{
    const struct mr_kafka_sink *kafka = (const struct mr_kafka_sink *)sink;
    int64_t flow_ns = flow_due_in_ns(kafka);
    int64_t topics_ns = mr_kafka_topics_due_in_ns(kafka);
    return flow_ns < topics_ns ? flow_ns : topics_ns;
}

static void take_statistics(struct mr_kafka_sink *kafka)
{
    if (atomic_exchange(&kafka->figures.session_is_new, false)) {
        kafka->figures.client = (struct mr_sink_client){0};
    }
    char *json = atomic_exchange(&kafka->figures.report, NULL);
    if (json != NULL) {
        mr_kafka_stats_parse(json, &kafka->figures.client);
        free(json);
    }
}

/* Once a broker was called unreachable, only a delivery or a report of a broker that is up says
 * otherwise. */
static bool is_reachable(const struct mr_kafka_sink *kafka, int64_t since_ns)
{
    const struct mr_sink_client *client = &kafka->figures.client;
    return since_ns == 0 || (client->time_ns > since_ns &&
                             MR_ANY(broker, client->brokers, client->broker_count, broker->up));
}

static void kafka_view(struct mr_sink *sink, struct mr_sink_view *ret_view)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    take_statistics(kafka);
    int64_t since_ns = atomic_load(&kafka->reach.since_ns);
    mr_sink_counts_read(&kafka->counts, ret_view);
    ret_view->name = sink->ops->name;
    ret_view->unreachable = !is_reachable(kafka, since_ns);
    if (!ret_view->unreachable &&
        atomic_compare_exchange_strong(&kafka->reach.since_ns, &since_ns, 0)) {
        mr_standstill_end(kafka->base.standstill, MR_CAUSE_KAFKA_AWAY);
    }
    ret_view->connected = atomic_load(&kafka->reach.connected) && !ret_view->unreachable;
    ret_view->client = kafka->figures.client;
}

static void kafka_free(struct mr_sink *sink)
{
    struct mr_kafka_sink *kafka = kafka_of(sink);
    kafka_close(sink);
    free(kafka->figures.report);
    free(kafka->state);
    mr_sink_counts_done(&kafka->counts);
    free(sink);
}

struct mr_sink *mr_kafka_sink_new(const struct mr_kafka_options *options)
{
    static const struct mr_sink_ops ops = {
        .name = "kafka",
        .open = kafka_open,
        .send = mr_kafka_send,
        .poll = kafka_poll,
        .due_in_ns = kafka_due_in_ns,
        .load = kafka_load,
        .store = kafka_store,
        .storing = kafka_storing,
        .prove = mr_kafka_transaction_prove,
        .close = kafka_close,
        .free = kafka_free,
        .view = kafka_view,
    };
    struct mr_kafka_sink *kafka = MR_NEW(struct mr_kafka_sink);
    kafka->base.ops = &ops;
    kafka->options = *options;
    mr_far_init(&kafka->far, options->batch_bytes, options->far_bytes, options->message_bytes_max);
    mr_sink_counts_errors(&kafka->counts, rd_kafka_err2name(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN),
                          0);
    mr_sink_counts_errors(&kafka->counts, rd_kafka_err2name(RD_KAFKA_RESP_ERR__TRANSPORT), 0);
    kafka->base.storage = options->exactly_once          ? MR_STORES_WITH
                          : options->state_topic != NULL ? MR_STORES_AFTER
                                                         : MR_STORES_NOTHING;
    return &kafka->base;
}
