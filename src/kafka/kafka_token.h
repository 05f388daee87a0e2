/* Tokens of OAUTHBEARER that a program prints (sink.kafka.sasl.token_command), one after the other
 * for each client of Kafka's. For kafka/ and sink/kafka only.
 *
 * librdkafka asks for the first one when the client is made, for the next when 80 % of a token's
 * life are over, and after a failure again in 10 s. It asks by a callback on its background thread,
 * where the program may take its time. The callback gets the client's opaque, which each kind of
 * client has a type of its own for; so each has a callback of its own, which calls
 * mr_kafka_token_give. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/options.h"

typedef void (*mr_kafka_token_fn)(rd_kafka_t *client, const char *unused, void *opaque);

/* Before and after rd_kafka_new; nothing without a program. */
void mr_kafka_token_want(rd_kafka_conf_t *conf, const struct mr_kafka_options *options,
                         mr_kafka_token_fn give);
void mr_kafka_token_begin(rd_kafka_t *client, const struct mr_kafka_options *options);

/* Runs the program and gives librdkafka its token, or the reason why there is none. */
void mr_kafka_token_give(rd_kafka_t *client, const struct mr_program *program);

/* The client is being ended, which must not wait for its program. Any thread; may be called again,
 * for one that begins later. */
void mr_kafka_token_stop(const rd_kafka_t *client);

/* What a failure means that librdkafka reports while it has no new token (kafka_errors.h); its text
 * begins like this. */
#define MR_KAFKA_NO_TOKEN "Failed to acquire SASL OAUTHBEARER token"
mr_status mr_kafka_token_classify(const char *text, const char **ret_remedy);
