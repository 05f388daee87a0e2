/* librdkafka's properties, as the promise needs them and as the user set them. For kafka/ and
 * sink/kafka only. */
#pragma once

#include <librdkafka/rdkafka.h>

#include "kafka/options.h"

/* How long a transaction of the sink may take. */
#define MR_KAFKA_TRANSACTION_MS "60000"

/* What the promise stands on comes first, what the user set comes last; the configuration module
 * refuses the properties that would break the promise. MR_ERR_CONFIG names the property that
 * librdkafka refuses. */
mr_status mr_kafka_conf_fill(rd_kafka_conf_t *conf, const struct mr_kafka_options *options,
                             struct mr_error *ret_error);

/* A consumer of the same brokers that joins no group and stores nothing; `properties` come after
 * those, and `events` (RD_KAFKA_EVENT_…) by its queue. mr_kafka_client_end. */
mr_status mr_kafka_consumer_new(const struct mr_kafka_options *options,
                                const struct mr_kafka_property *properties, size_t count,
                                int events, rd_kafka_t **ret_consumer, struct mr_error *ret_error);
