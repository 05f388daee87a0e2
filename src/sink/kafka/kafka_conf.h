/* librdkafka's properties, as the promise needs them and as the user set them. Inside sink/ only. */
#ifndef MR_SINK_KAFKA_CONF_H
#define MR_SINK_KAFKA_CONF_H

#include <librdkafka/rdkafka.h>

#include "sink/kafka/kafka.h"

/* What the promise stands on comes first, what the user set comes last; the configuration module refuses the
 * properties that would break the promise. MR_ERR_CONFIG names the property that librdkafka refuses. */
mr_status mr_kafka_conf_fill(rd_kafka_conf_t *conf, const struct mr_kafka_options *options,
                             struct mr_error *ret_error);

#endif
