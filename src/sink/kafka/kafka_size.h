/* What a record takes, alone in a request, as a broker counts it: the batch of records that it is
 * sent as, compressed as librdkafka would. Inside sink/kafka/ only; any thread. */
#pragma once

#include "kafka/options.h"
#include "ports/sink.h"

/* Bytes as it is, and as it is sent; the second is 0 where it can't be told. */
struct mr_kafka_size {
    size_t plain;
    size_t sent;
};

size_t mr_kafka_plain_size(const struct mr_kafka_options *options, const struct mr_record *record);
struct mr_kafka_size mr_kafka_size_of(const struct mr_kafka_options *options,
                                      const struct mr_record *record);
