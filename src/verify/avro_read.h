/* Records of format = "avro" as the JSON that format = "debezium" has in their place
 * (docs/formats.md), so that one reader reads both. An event's bytes name its schema in the
 * registry, and are read by that: Avro 1.11's specification, "Binary Encoding"; before them a zero
 * byte and the schema's number (Confluent's documentation, "Wire format"). Not the encoder's code.
 * One thread. */
#pragma once

#include "kafka/kafka_reader.h"
#include "registry/registry.h"

struct mr_avro;
struct mr_avro *mr_avro_new(const struct mr_registry_options *registry); /* outlives it */
void mr_avro_free(struct mr_avro *avro);                                 /* NULL is fine */

/* Puts JSON in the place of key and value. `*ret_fault`: what is no Avro, or of no known schema;
 * NULL: all is good. Both until the next call. An error: the registry does not answer. NULL: there
 * is nothing to be put. */
mr_status mr_avro_read(struct mr_avro *avro, struct mr_kafka_read *read, const char **ret_fault,
                       struct mr_error *ret_error);

/* What a schema's value is as JSON; false: the bytes are none, or the schema has what events have
 * not. */
MR_MUST_USE bool mr_avro_text(const char *schema, mr_slice bytes, struct mr_text *to);
