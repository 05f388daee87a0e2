/* A judge of Avro that shares no code with the encoder: reads a schema's text and a value's bytes,
 * strictly, beside the JSON that the value was made of. For tests and fuzzers. */
#ifndef MR_TESTING_STRICT_AVRO_H
#define MR_TESTING_STRICT_AVRO_H

#include "base/base.h"

/* Whether the bytes are one value of the schema and say what the JSON says: the elements of lists
 * in lists come in one list, and `unavailable` may be null. The schema's names must be Avro's, and
 * no two fields of a record alike. */
bool mr_strict_avro(mr_slice schema, mr_slice avro, mr_slice json, const char *unavailable);

/* Reading a schema: a member of an object by its name in quotes; the parts of a list or object one
 * by one (`*at` begins at 0); a record that the schema defines, by its name. Empty: there is
 * none. */
mr_slice mr_schema_member(mr_slice object, const char *quoted);
bool mr_schema_next(mr_slice all, size_t *at, mr_slice *ret_name, mr_slice *ret_value);
mr_slice mr_schema_named(mr_slice schema, mr_slice quoted);

#endif
