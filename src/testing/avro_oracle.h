/* Avro made of JSON and a schema's text, as millrace made it before it wrote Avro directly: what
 * the encoder writes must be the same, byte for byte. For tests and fuzzers. */
#ifndef MR_TESTING_AVRO_ORACLE_H
#define MR_TESTING_AVRO_ORACLE_H

#include "base/buffer.h"

/* Appends the value. False: it does not fit the schema. `unavailable` is null where the type is no
 * text. */
bool mr_avro_oracle(mr_slice schema, mr_slice json, const char *unavailable, struct mr_buffer *out);

#endif
