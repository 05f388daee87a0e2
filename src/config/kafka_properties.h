/* The properties of librdkafka that a file may set. Inside config/ only. */
#ifndef MR_CONFIG_KAFKA_PROPERTIES_H
#define MR_CONFIG_KAFKA_PROPERTIES_H

#include "config/config.h"

/* Adds what is wrong with it to the problems. */
void mr_kafka_property_check(struct mr_config *config, const struct mr_property *property);

/* The same for what they ask together, once all are known. */
void mr_kafka_kerberos_check(struct mr_config *config);

/* The names of those that may be set, for the reference. */
void mr_kafka_properties_print(FILE *to);

#endif
