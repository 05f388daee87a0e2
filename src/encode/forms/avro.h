/* Avro (specification 1.11, "Binary Encoding"), with schemas as Kafka Connect's AvroConverter derives them from Debezium's.
 *
 * An event is written as JSON first, in Debezium's form, and read once more with the schema beside it: so both forms say the same of
 * every type. In the batch the Avro takes the place of the JSON. Inside encode/ only; source thread.
 */
#ifndef MR_ENCODE_AVRO_H
#define MR_ENCODE_AVRO_H

#include "encode/values/types.h"

enum mr_avro_kind {
    MR_AVRO_BOOL,
    MR_AVRO_INT,
    MR_AVRO_LONG,
    MR_AVRO_FLOAT,
    MR_AVRO_DOUBLE,
    MR_AVRO_STRING,
    MR_AVRO_BYTES, /* base64 in JSON */
    MR_AVRO_RECORD,
    MR_AVRO_ARRAY,
    MR_AVRO_MAP,
    MR_AVRO_PAIRS, /* a map whose keys are numbers: a list of records of two; in JSON a list of lists */
};

/* One type in a schema. Its parts (a record's fields, an element) are `count` nodes from `first` on. */
struct mr_avro_node {
    uint8_t kind;
    bool nullable;
    uint32_t first;
    uint32_t count;
};

/* A schema: its text, and the same as a tree whose root is node 0. */
struct mr_avro_schema {
    struct mr_text text;
    char *name; /* with its namespace */
    struct mr_avro_node *nodes;
    uint32_t node_count;
};

/* Schemas of a table's events and keys; `columns` is that of plan.h, `topic` the first part of their names. NULL: two columns
 * would have one name. */
struct mr_avro_schema *mr_avro_envelope(const struct mr_encode_options *options,
                                        const struct mr_plan *plan, struct mr_error *ret_error);
struct mr_avro_schema *mr_avro_key(const struct mr_encode_options *options,
                                   const struct mr_plan *plan, struct mr_error *ret_error);
void mr_avro_free(struct mr_avro_schema *schema);

/* Makes both schemas of a plan that has its columns, and names them to the options' schemas. */
mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error);
/* The same for logical messages. */
struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic);
void mr_avro_pair_done(struct mr_avro_pair *pair);

/* Puts Avro in place of the records' JSON, which begins at `begin` and ends where the buffer stands. False: one of them does not fit
 * its schema; `ret_wrong` is then the field's name, which lies in the buffer, or empty. When the buffer is full, nothing is said of the records.
 * `unavailable` stands for a value that is not known; where a type can't hold it, it becomes null. */
bool mr_avro_records(const struct mr_avro_pair *pair, const char *unavailable, uint8_t *begin,
                     struct mr_buffer *out, struct mr_record *records, uint32_t count,
                     mr_slice *ret_wrong);

#endif
