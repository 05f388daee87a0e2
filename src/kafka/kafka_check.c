#include "kafka/kafka_check.h"

#include <poll.h>

#include "base/clock.h"
#include "kafka/kafka_conf.h"
#include "kafka/kafka_errors.h"
#include "kafka/kafka_token.h"
#include "kafka/kafka_topic.h"

enum { ANSWER_TIMEOUT_MS = 5000, LOOK_AGAIN_MS = 500, TEXT_MAX = 768 };

/* The transaction of an instance that streams lasts a third of a second. */
#define STORED_NS (INT64_C(5) * 1000000000)

/* Longer than a transaction of another pipeline may stay open (kafka_state.c). */
#define LOOK_NS (INT64_C(90) * 1000000000)

struct kafka_check {
    const struct mr_kafka_options *options;
    mr_finding_fn report;
    void *context;
    int64_t asked_ns;                         /* since when the position is being read */
    int stop_fd;                              /* ends that; of mr_kafka_look_at_stored */
    const struct rd_kafka_metadata *metadata; /* of all topics; NULL: nobody answered */
    const char *const *topics;                /* of the tables */
    uint32_t topic_count;
    int brokers;
    rd_kafka_resp_err_t last_code; /* what librdkafka complained of while it tried */
    char last_error[TEXT_MAX];
    _Atomic bool hung_up; /* a thread of librdkafka's logged it: mr_kafka_is_hung_up */
};

/* Reports what the format says; `remedy` may be NULL, and the status is that of an error. */
static MR_PRINTF(5, 6) void kafka_check_find(const struct kafka_check *check, mr_status status,
                                             const char *subject, const char *remedy,
                                             const char *format, ...)
{
    char text[MR_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    enum mr_finding_level level = status != MR_OK  ? MR_FINDING_ERROR
                                  : remedy != NULL ? MR_FINDING_WARNING
                                                   : MR_FINDING_OK;
    check->report(check->context, level, status, subject, text, remedy);
}

/* librdkafka's errors come while it tries; the last one says why there is no answer. */
static void remember_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct kafka_check *check = opaque;
    if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        check->last_code = (rd_kafka_resp_err_t)code;
        snprintf(check->last_error, sizeof(check->last_error), "%s", reason);
    }
}

static void kafka_check_on_log(const rd_kafka_t *client, int level, const char *facility,
                               const char *text)
{
    struct kafka_check *check = rd_kafka_opaque(client);
    if (mr_kafka_is_hung_up(facility, text)) {
        check->hung_up = true;
    }
}

static void kafka_check_give_token(rd_kafka_t *client, const char *unused, void *opaque)
{
    const struct kafka_check *check = opaque;
    mr_kafka_token_give(client, check->options->token_program);
}

static rd_kafka_t *client_new(struct kafka_check *check, struct mr_error *ret_error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_opaque(conf, check);
    rd_kafka_conf_set_error_cb(conf, remember_error);
    rd_kafka_conf_set_log_cb(conf, kafka_check_on_log);
    mr_kafka_token_want(conf, check->options, kafka_check_give_token);
    char reason[256];
    if (mr_kafka_conf_fill(conf, check->options, ret_error) != MR_OK) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    if (client == NULL) {
        rd_kafka_conf_destroy(conf);
        mr_error_set(ret_error, MR_ERR_CONFIG, "%s", reason);
    } else {
        mr_kafka_token_begin(client, check->options);
    }
    return client;
}

static const struct rd_kafka_metadata_topic *
kafka_check_find_topic(const struct rd_kafka_metadata *metadata, const char *name)
{
    return MR_FIND(topic, metadata->topics, metadata->topic_cnt,
                   strcmp(topic->topic, name) == 0 && topic->err == RD_KAFKA_RESP_ERR_NO_ERROR);
}

/* True: a topic can be made with as many copies as are wanted. */
static bool kafka_check_copies(const struct kafka_check *check, const char *subject)
{
    if (check->options->replication <= check->brokers) {
        return true;
    }
    kafka_check_find(check, MR_ERR_CONFIG, subject,
                     "lower sink.kafka.replication_factor; -1 is the brokers' default",
                     "can't be made with %d replicas on %d %s", check->options->replication,
                     check->brokers, check->brokers == 1 ? "broker" : "brokers");
    return false;
}

/* Kafka makes no topic whose name is another's but for . and _, which its metrics do not tell apart
 * (Topic.hasCollision in clients/…/common/internals). */
static bool kafka_check_collides(const char *name, const char *other)
{
    while (*name != '\0' && (*name == '.' ? '_' : *name) == (*other == '.' ? '_' : *other)) {
        name++;
        other++;
    }
    return *name == '\0' && *other == '\0';
}

/* The topic that is there, or that is made for a table before, with such a name; NULL: there is
 * none. */
static const char *find_collision(const struct kafka_check *check, const char *name)
{
    for (int i = 0; i < check->metadata->topic_cnt; i++) {
        const char *other = check->metadata->topics[i].topic;
        if (strcmp(name, other) != 0 && kafka_check_collides(name, other)) {
            return other;
        }
    }
    for (uint32_t i = 0; i < check->topic_count && strcmp(check->topics[i], name) != 0; i++) {
        if (kafka_check_collides(name, check->topics[i])) {
            return check->topics[i];
        }
    }
    return NULL;
}

static void check_missing_topic(const struct kafka_check *check, const char *subject,
                                const char *name)
{
    const char *other = find_collision(check, name);
    if (other != NULL) {
        kafka_check_find(
            check, MR_ERR_CONFIG, subject,
            "give one of them another name (topic_prefix, routes), or delete the other topic",
            "can't be made: Kafka does not tell . from _ in names, and has %s", other);
        return;
    }
    const struct mr_kafka_options *options = check->options;
    if (!options->create_topics) {
        char remedy[TEXT_MAX];
        snprintf(remedy, sizeof(remedy),
                 "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d",
                 options->brokers, name, options->partitions);
        kafka_check_find(check, MR_ERR_CONFIG, subject, remedy,
                         "does not exist, and create_topics is false");
    } else if (kafka_check_copies(check, subject)) {
        kafka_check_find(check, MR_OK, subject, NULL,
                         "does not exist; will be created with %d partition%s", options->partitions,
                         options->partitions == 1 ? "" : "s");
    }
}

static void check_topic(const struct kafka_check *check, const char *name)
{
    char subject[300];
    snprintf(subject, sizeof(subject), "topic %s", name);
    const struct rd_kafka_metadata_topic *topic = kafka_check_find_topic(check->metadata, name);
    if (topic == NULL) {
        check_missing_topic(check, subject, name);
        return;
    }
    int replicas = topic->partition_cnt > 0 ? topic->partitions[0].replica_cnt : 0;
    kafka_check_find(check, MR_OK, subject,
                     replicas >= 2
                         ? NULL
                         : "with one replica, the loss of a broker's disk loses acknowledged rows; "
                           "use three",
                     "%d partition%s, %d replica%s", topic->partition_cnt,
                     topic->partition_cnt == 1 ? "" : "s", replicas, replicas == 1 ? "" : "s");
}

static void check_policy(struct kafka_check *check, rd_kafka_t *client, const char *subject)
{
    char policy[64];
    char reason[256];
    mr_kafka_topic_policy(client, check->options->state_topic, policy, sizeof(policy), reason,
                          sizeof(reason));
    if (policy[0] == '\0') {
        kafka_check_find(
            check, MR_OK, subject,
            "grant the user DescribeConfigs on it, or make sure that its cleanup.policy is "
            "compact",
            "exists; whether it is compacted can't be seen: %s", reason);
    } else if (strcmp(policy, "compact") == 0) {
        kafka_check_find(check, MR_OK, subject, NULL, "exists, compacted");
    } else {
        char remedy[TEXT_MAX];
        snprintf(
            remedy, sizeof(remedy),
            "kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s "
            "--add-config cleanup.policy=compact",
            check->options->brokers, check->options->state_topic);
        kafka_check_find(
            check, MR_ERR_CONFIG, subject, remedy,
            "its cleanup.policy is %s: Kafka would delete the position of a quiet stream", policy);
    }
}

/* A broker refuses a producer whose transactions may take longer than its limit. One that does not
 * say is passed over. */
static void check_timeout(const struct kafka_check *check, rd_kafka_t *client,
                          const struct rd_kafka_metadata *metadata)
{
    for (int i = 0; i < metadata->broker_cnt; i++) {
        char broker[16], limit[32], reason[256], subject[64];
        snprintf(broker, sizeof(broker), "%d", metadata->brokers[i].id);
        mr_kafka_setting(client, RD_KAFKA_RESOURCE_BROKER, broker, "transaction.max.timeout.ms",
                         limit, sizeof(limit), reason, sizeof(reason));
        if (limit[0] != '\0' && atoll(limit) < atoll(MR_KAFKA_TRANSACTION_MS)) {
            char remedy[MR_KAFKA_REMEDY_MAX];
            mr_status status = mr_kafka_error_classify(
                RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, "", check->options, remedy);
            snprintf(subject, sizeof(subject), "broker %s", broker);
            kafka_check_find(check, status, subject, remedy,
                             "has transaction.max.timeout.ms = %s and will refuse exactly-once",
                             limit);
        }
    }
}

/* The topic that transactions are kept in is made for the first one, if there are brokers enough.
 * One that may not be described, or brokers that do not say, are passed over. */
static void check_coordinator(const struct kafka_check *check, rd_kafka_t *client,
                              const struct rd_kafka_metadata *metadata)
{
    if (kafka_check_find_topic(metadata, "__transaction_state") != NULL) {
        return;
    }
    char broker[16], copies[32], reason[256], remedy[MR_KAFKA_REMEDY_MAX];
    snprintf(broker, sizeof(broker), "%d", metadata->orig_broker_id);
    mr_kafka_setting(client, RD_KAFKA_RESOURCE_BROKER, broker,
                     "transaction.state.log.replication.factor", copies, sizeof(copies), reason,
                     sizeof(reason));
    if (atoll(copies) > metadata->broker_cnt) {
        mr_kafka_error_classify(RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, "", check->options,
                                remedy);
        kafka_check_find(check, MR_OK, "exactly-once", remedy,
                         "waits for %s brokers that keep its transactions, and there %s %d", copies,
                         metadata->broker_cnt == 1 ? "is" : "are", metadata->broker_cnt);
    }
}

/* mr_kafka_serve_fn */
static mr_status is_in_time(void *context, struct mr_error *ret_error)
{
    const struct kafka_check *check = context;
    return mr_monotonic_ns() - check->asked_ns < STORED_NS
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_TRANSIENT, "no answer within 5 s");
}

/* Whether the stream can go on there, who asks PostgreSQL says. */
static void check_stored(struct kafka_check *check, rd_kafka_t *client, const char *subject,
                         struct mr_kafka_stored *ret_stored)
{
    struct mr_error error = {0};
    struct mr_kafka_hanging hanging;
    check->asked_ns = mr_monotonic_ns();
    mr_status status = mr_kafka_state_load(client, check->options, is_in_time, check, ret_stored,
                                           &hanging, &error);
    if (status == MR_OK) {
        return;
    }
    bool will_fail = status == MR_ERR_AUTH || status == MR_ERR_HISTORY;
    char text[MR_ERROR_TEXT_MAX + 64];
    snprintf(text, sizeof(text), "the position that is stored can't be read: %s", error.text);
    check->report(check->context, will_fail ? MR_FINDING_ERROR : MR_FINDING_WARNING, status,
                  subject, text, NULL);
}

static void check_state(struct kafka_check *check, rd_kafka_t *client,
                        const struct rd_kafka_metadata *metadata,
                        struct mr_kafka_stored *ret_stored)
{
    const struct mr_kafka_options *options = check->options;
    if (options->state_topic == NULL) {
        kafka_check_find(check, MR_OK, "position", "set sink.kafka.state_topic",
                         "is kept by the slot alone; a slot that is made again goes unnoticed");
        return;
    }
    char subject[300];
    snprintf(subject, sizeof(subject), "state topic %s", options->state_topic);
    if (kafka_check_find_topic(metadata, options->state_topic) == NULL &&
        !mr_kafka_is_refusal(mr_kafka_state_find(client, options))) {
        if (kafka_check_copies(check, subject)) {
            kafka_check_find(check, MR_OK, subject, NULL,
                             "does not exist; will be created, compacted");
        }
    } else {
        check_policy(check, client, subject);
        check_stored(check, client, subject, ret_stored);
    }
    if (options->exactly_once) {
        check_timeout(check, client, metadata);
        check_coordinator(check, client, metadata);
        /* To initialise an id fences its user. */
        snprintf(subject, sizeof(subject), "transactional id %s", options->state_name);
        kafka_check_find(
            check, MR_OK, subject, NULL,
            "is not tried, which would end the transaction of the instance that streams now; the "
            "user needs Describe and Write on it where Kafka has ACLs");
    }
}

static void check_unreachable(struct kafka_check *check, rd_kafka_t *client,
                              rd_kafka_resp_err_t err)
{
    rd_kafka_poll(client, 0); /* calls remember_error */
    if (check->last_error[0] == '\0') {
        check->last_code = check->hung_up ? RD_KAFKA_RESP_ERR__TRANSPORT : err;
        snprintf(check->last_error, sizeof(check->last_error), "%s",
                 check->hung_up ? MR_KAFKA_HUNG_UP : rd_kafka_err2str(err));
    }
    char remedy[MR_KAFKA_REMEDY_MAX];
    mr_status status =
        mr_kafka_error_classify(check->last_code, check->last_error, check->options, remedy);
    kafka_check_find(
        check, status, "Kafka",
        remedy[0] != '\0'
            ? remedy
            : "check sink.kafka.brokers, the network, and TLS and SASL settings on both sides",
        "%s %s: %s", check->options->brokers, status == MR_ERR_AUTH ? "refused" : "does not answer",
        check->last_error);
}

void mr_kafka_check(const struct mr_kafka_options *options, const char *const *topics,
                    uint32_t topic_count, mr_finding_fn report, void *context,
                    struct mr_kafka_stored *ret_stored)
{
    struct kafka_check check = {.options = options,
                                .report = report,
                                .context = context,
                                .topics = topics,
                                .topic_count = topic_count};
    struct mr_error error;
    rd_kafka_t *client = client_new(&check, &error);
    if (client == NULL) {
        report(context, MR_FINDING_ERROR, error.status, "Kafka", error.text, NULL);
        return;
    }
    const struct rd_kafka_metadata *metadata;
    int token_ms = options->token_program == NULL ? 0 : MR_PROGRAM_LIMIT_S * 1000;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(client, 1, NULL, &metadata, ANSWER_TIMEOUT_MS + token_ms);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        check_unreachable(&check, client, err);
    } else {
        check.metadata = metadata;
        check.brokers = metadata->broker_cnt;
        kafka_check_find(&check, MR_OK, "Kafka", NULL, "%d %s, answered by %s",
                         metadata->broker_cnt, metadata->broker_cnt == 1 ? "broker" : "brokers",
                         metadata->orig_broker_name);
        for (uint32_t i = 0; i < topic_count; i++) {
            check_topic(&check, topics[i]);
        }
        check_state(&check, client, metadata, ret_stored);
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_destroy(client);
}

/* mr_finding_fn: why there is no answer. */
static void take_failure(void *context, enum mr_finding_level level, mr_status status,
                         const char *subject, const char *finding, const char *remedy)
{
    mr_error_set(context, status, "%s: %s%s%s", subject, finding, remedy == NULL ? "" : "; ",
                 remedy == NULL ? "" : remedy);
}

/* mr_kafka_serve_fn */
static mr_status may_wait(void *context, struct mr_error *ret_error)
{
    const struct kafka_check *check = context;
    struct pollfd stop = {.fd = check->stop_fd, .events = POLLIN};
    if (poll(&stop, 1, 0) == 1) {
        return MR_AGAIN;
    }
    return mr_monotonic_ns() - check->asked_ns < LOOK_NS
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_TRANSIENT, "no answer within 90 s");
}

/* Without the topic nothing is stored; reading it would make it. A list of all topics would leave
 * out one that the user may not describe: asked for by name, the broker says so
 * (KafkaApis.handleTopicMetadataRequest). One that has no leader now is there. */
static mr_status look_once(struct kafka_check *check, rd_kafka_t *client,
                           struct mr_kafka_stored *ret_stored, struct mr_error *ret_error)
{
    rd_kafka_resp_err_t err = mr_kafka_state_find(client, check->options);
    if (mr_kafka_is_missing(err)) {
        return MR_OK;
    }
    if (err < RD_KAFKA_RESP_ERR__END) { /* librdkafka's own: there is no answer */
        check->context = ret_error;
        check_unreachable(check, client, err);
        return ret_error->status;
    }
    struct mr_kafka_hanging hanging;
    return mr_kafka_state_load(client, check->options, may_wait, check, ret_stored, &hanging,
                               ret_error);
}

mr_status mr_kafka_look_at_stored(const struct mr_kafka_options *options, int stop_fd,
                                  struct mr_kafka_stored *ret_stored, struct mr_error *ret_error)
{
    struct mr_kafka_stored stored = {0};
    struct mr_kafka_options looking = *options;
    looking.exactly_once =
        false; /* a transaction that is open is that of who streams, not one that hangs */
    struct kafka_check check = {.options = &looking,
                                .report = take_failure,
                                .stop_fd = stop_fd,
                                .asked_ns = mr_monotonic_ns()};
    rd_kafka_t *client = client_new(&check, ret_error);
    if (client == NULL) {
        return ret_error->status;
    }
    mr_status status = look_once(&check, client, &stored, ret_error);
    struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
    while (status == MR_ERR_TRANSIENT && mr_monotonic_ns() - check.asked_ns < LOOK_NS) {
        status = poll(&stop, 1, LOOK_AGAIN_MS) == 1 ? MR_AGAIN
                                                    : look_once(&check, client, &stored, ret_error);
    }
    rd_kafka_destroy(client);
    MR_TRY(status);
    *ret_stored = stored;
    return MR_OK;
}
