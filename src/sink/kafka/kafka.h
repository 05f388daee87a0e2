/* The sink to Kafka: what it is given at the start. It is called through ports/sink.h. */
#pragma once

#include "kafka/options.h"
#include "ports/sink.h"

struct mr_sink *mr_kafka_sink_new(const struct mr_kafka_options *options);
