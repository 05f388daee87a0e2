/* The sink to Kafka: what it is given at the start. It is called through ports/sink.h. */
#pragma once

#include "kafka/options.h"
#include "ports/sink.h"

struct mr_sink *mr_kafka_sink_new(const struct mr_kafka_options *options);

/* `is_more` of mr_encode_options, in the measure of a Kafka's broker. `options` are the sink's. */
bool mr_kafka_is_more(const void *options, const struct mr_record *record, size_t bytes_max,
                      size_t sent);
