/* The sink to Kafka: what it is given at the start. It is called through ports/sink.h. */
#ifndef MR_SINK_KAFKA_KAFKA_H
#define MR_SINK_KAFKA_KAFKA_H

#include "kafka/options.h"
#include "ports/sink.h"

struct mr_sink *mr_kafka_sink_new(const struct mr_kafka_options *options);

#endif
