#include "kafka/kafka_conf.h"

#include "kafka/kafka_token.h"

static mr_status conf_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                          struct mr_error *ret_error)
{
    char reason[256];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK) {
        return mr_fail(
            ret_error, MR_ERR_CONFIG,
            "Kafka property \"%s\" is not accepted: %s; see librdkafka's configuration page", name,
            reason);
    }
    return MR_OK;
}

static mr_status conf_set_all(rd_kafka_conf_t *conf, const struct mr_kafka_property *properties,
                              size_t count, struct mr_error *ret_error)
{
    for (size_t i = 0; i < count; i++) {
        MR_TRY(conf_set(conf, properties[i].name, properties[i].value, ret_error));
    }
    return MR_OK;
}

static mr_status conf_set_u64(rd_kafka_conf_t *conf, const char *name, uint64_t value,
                              struct mr_error *ret_error)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return conf_set(conf, name, text, ret_error);
}

static mr_status conf_set_secret(rd_kafka_conf_t *conf, const char *name, struct mr_secret *secret,
                                 struct mr_error *ret_error)
{
    char *text = mr_secret_take(secret);
    mr_status status =
        text == NULL || text[0] == '\0' ? MR_OK : conf_set(conf, name, text, ret_error);
    mr_secret_forget(text);
    return status;
}

mr_status mr_kafka_conf_fill(rd_kafka_conf_t *conf, const struct mr_kafka_options *options,
                             struct mr_error *ret_error)
{
    static const struct mr_kafka_property fixed[] = {
        {"client.id", "millrace"},
        {"acks", "all"},
        {"enable.idempotence", "true"},
        /* A permanent error of one batch is then fatal, so no later batch fills the log past a
         * hole. */
        {"enable.gapless.guarantee", "true"},
        /* No local time-out: a record waits until its session ends. */
        {"message.timeout.ms", "0"},
        /* As Java's clients place keys; a null key has one place, not a random one. */
        {"partitioner", "murmur2"},
        /* Else a null key would not be asked for: it would change its partition now and then. */
        {"sticky.partitioning.linger.ms", "0"},
        /* The pool bounds what is in flight; librdkafka's own bound comes first only if the user
         * wants it to. */
        {"queue.buffering.max.messages", "10000000"},
        {"queue.buffering.max.kbytes", "2097151"},
        {"allow.auto.create.topics", "false"},
        /* Of the ends of a partition that are asked for (kafka/kafka_state); nothing is read by a
         * producer. */
        {"isolation.level", "read_uncommitted"},
        /* The sink hands over whole requests and says when they set out; this is longer than
         * handing over takes. */
        {"linger.ms", "5"},
        {"batch.num.messages", "1000000"}, /* the sink bounds them: MR_KAFKA_REQUEST_RECORDS */
        /* A response is in memory as a whole, and librdkafka would take one of 100 MB. This is the
         * metadata of more than a hundred thousand partitions. */
        {"receive.message.max.bytes", "16777216"},
        {"reconnect.backoff.ms", "100"},
        {"reconnect.backoff.max.ms", "2000"},
        {"topic.metadata.refresh.fast.interval.ms", "100"},
        {"socket.nagle.disable", "true"},
        {"socket.keepalive.enable", "true"},
    };
    MR_TRY(conf_set_all(conf, fixed, MR_ARRAY_LEN(fixed), ret_error));
    if (options->exactly_once) {
        static const struct mr_kafka_property transactional[] = {
            {"transaction.timeout.ms", MR_KAFKA_TRANSACTION_MS},
            /* Must end before the transaction does. */
            {"message.timeout.ms", "55000"},
            /* The first records of a transaction wait until the broker knows that they come; by
             * then they have waited enough. */
            {"linger.ms", "2"},
        };
        MR_TRY(conf_set_all(conf, transactional, MR_ARRAY_LEN(transactional), ret_error));
        MR_TRY(conf_set(conf, "transactional.id", options->state_name, ret_error));
    }
    MR_TRY(conf_set(conf, "bootstrap.servers", options->brokers, ret_error));
    MR_TRY(conf_set(conf, "compression.codec", options->compression, ret_error));
    /* A request is within both. */
    size_t far = options->far_bytes;
    MR_TRY(conf_set_u64(conf, "batch.size", far > options->batch_bytes ? far : options->batch_bytes,
                        ret_error));
    MR_TRY(conf_set_u64(conf, "message.max.bytes",
                        far > options->message_bytes_max ? far : options->message_bytes_max,
                        ret_error));
    MR_TRY(
        conf_set_u64(conf, "statistics.interval.ms", options->statistics_interval_ms, ret_error));
    MR_TRY(conf_set_secret(conf, "sasl.password", options->password, ret_error));
    MR_TRY(
        conf_set_secret(conf, "sasl.oauthbearer.client.secret", options->client_secret, ret_error));
    return conf_set_all(conf, options->properties, options->property_count, ret_error);
}

static void kafka_conf_give_token(rd_kafka_t *consumer, const char *unused, void *program)
{
    mr_kafka_token_give(consumer, program);
}

mr_status mr_kafka_consumer_new(const struct mr_kafka_options *options,
                                const struct mr_kafka_property *properties, size_t count,
                                int events, rd_kafka_t **ret_consumer, struct mr_error *ret_error)
{
    static const struct mr_kafka_property fixed[] = {
        {"group.id", "millrace"}, /* asked for by the library */
        {"enable.auto.commit", "false"}, {"enable.partition.eof", "true"},
        {"check.crcs", "true"},          {"auto.offset.reset", "error"},
    };
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    struct mr_kafka_options plain = *options;
    plain.exactly_once = false;
    plain.far_bytes = 0;
    mr_status status = mr_kafka_conf_fill(conf, &plain, ret_error);
    status = MR_THEN(status, conf_set_all(conf, fixed, MR_ARRAY_LEN(fixed), ret_error));
    status = MR_THEN(status, conf_set_all(conf, properties, count, ret_error));
    if (status != MR_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    char reason[256];
    rd_kafka_conf_set_log_cb(conf, NULL);
    rd_kafka_conf_set_events(conf, events);
    rd_kafka_conf_set_opaque(conf, (void *)(uintptr_t)options->token_program);
    mr_kafka_token_want(conf, options, kafka_conf_give_token);
    *ret_consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
    if (*ret_consumer == NULL) {
        rd_kafka_conf_destroy(conf);
        return mr_fail(ret_error, MR_ERR_CONFIG, "Kafka consumer can't be made: %s", reason);
    }
    mr_kafka_token_begin(*ret_consumer, options);
    rd_kafka_poll_set_consumer(*ret_consumer);
    return MR_OK;
}

const char *mr_kafka_library_version(void)
{
    return rd_kafka_version_str();
}
