/* Avro, with schemas as Kafka Connect's AvroConverter derives them from Debezium's. Inside encode/ only; the encoder's thread. */
#ifndef MR_ENCODE_AVRO_H
#define MR_ENCODE_AVRO_H

#include "encode/plan.h"

/* Makes both schemas of a plan that has its columns, and names them to the options' schemas. */
mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error);
/* The same for logical messages. */
struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic);

#endif
