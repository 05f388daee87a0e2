/* Values, rows and keys as JSON, and the state of an encoder that both formats share. Inside encode/ only. */
#ifndef MR_ENCODE_ROW_H
#define MR_ENCODE_ROW_H

#include "encode/transaction.h"
#include "encode/value_topics.h"
#include "encode/values/types.h"

struct mr_encoder {
    struct mr_encode_options options;
    struct mr_topics *topics;

    struct mr_plan **plans; /* open addressing by relation */
    uint32_t plan_capacity; /* a power of two */
    uint32_t plan_count;
    struct mr_plan *last_plan;  /* found last: rows of one table tend to come together */
    const struct mr_plan *only; /* of a table's streams the one to encode for; NULL: all */
    bool has_told;              /* with `only`: what comes once a change is there already */

    char *database_name;
    struct mr_text database; /* escaped */
    struct mr_text prefix;   /* topic prefix, escaped */
    struct mr_scratch scratch;
    uint32_t *missing; /* columns of the row at hand whose values are not known (plain types) */
    uint32_t missing_count;
    struct mr_text clock; /* `"ts_ms":…,"ts_us":…,"ts_ns":…}` of the time the event is made */
    int64_t now_ns;
    int64_t commit_ns; /* of the transaction at hand: no event was made before it */
    const char
        *wrong; /* what is wrong with the change at hand, found first while it was written; */
    uint32_t wrong_column; /* NULL: nothing. And the column with it */
    const struct mr_topic *message_topic;
    const struct mr_topic *heartbeat_topic;   /* NULL: not wanted */
    bool writes_letter;                       /* whose key is JSON in every format */
    struct mr_avro_pair message_avro;         /* `value` NULL: no message was seen yet */
    const struct mr_topic *schema_topic;      /* NULL: not wanted */
    const struct mr_topic *dead_letter_topic; /* NULL: not wanted */
    struct mr_table_line *messages;           /* where messages are counted; NULL: nowhere */
    struct mr_value_topics value_topics;
    uint64_t placed_back;        /* rows whose value was no topic's name */
    int64_t placed_back_told_ns; /* the log was told of them last */
    struct mr_transaction_counts transaction;
    struct mr_outbox_message *outbox_message; /* NULL: none is an event */
    uint64_t outbox_ignored;
    int64_t ignored_told_ns; /* the log was told of them last */
    uint64_t messages_dropped;
    int64_t dropped_told_ns; /* the log was told of them last */
};

/* One value of the row. An unchanged TOASTed one is taken from `old` (may be NULL) where that has it, else it is the
 * placeholder. */
void mr_row_value(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                  uint32_t column, const struct mr_tuple *row, const struct mr_tuple *old);

/* `{"a":1,…` with every column of the relation, for mr_row_close to end. */
void mr_row_columns(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old);

/* `{"a":1,…}` with every column of the relation. `old` may supply unchanged values. */
void mr_row_object(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                   const struct mr_tuple *row, const struct mr_tuple *old);

/* Whether two values of a column are the same; one that the server did not send did not change. */
bool mr_datum_equal(const struct mr_datum *a, const struct mr_datum *b);

/* The same of what becomes of them in a record: 1.0 and 1.00 may be one value there. */
bool mr_value_equal(struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column,
                    const struct mr_datum *a, const struct mr_datum *b);

/* Whether an update gives the row another key, as it is written, or another topic. */
bool mr_key_changed(struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_change *change);

/* The end of an object whose columns, each with its prefix, were written from `begin` on. */
void mr_row_close(struct mr_buffer *out, uint8_t *begin);

/* `,"unavailable":["a",…]` with the columns that the row at hand lacks, or nothing. */
void mr_row_missing(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan);

/* The value of the key's `n`th column, which must be there: never the placeholder, and null only if it was chosen. */
const struct mr_datum *mr_row_key_datum(struct mr_encoder *encoder, const struct mr_plan *plan,
                                        uint32_t n, const struct mr_tuple *row,
                                        const struct mr_tuple *old);

/* Text of a key: a string, or `{"hex":"ff41"}` where it is not UTF-8, so that two keys never become one. */
void mr_row_key_text(struct mr_buffer *out, const uint8_t *text, size_t len);

/* `{"a":1,…}` with the columns of the key, in key order. */
void mr_row_key_object(struct mr_buffer *out, struct mr_encoder *encoder,
                       const struct mr_plan *plan, const struct mr_tuple *row,
                       const struct mr_tuple *old);

/* The transaction at hand has another commit time: the clock of events may be behind the server's, and is read once a round
 * of receiving only. */
void mr_encoder_set_commit_time(struct mr_encoder *encoder, int64_t commit_time_us);

/* The plan of a relation version, made when it is asked for first. */
mr_status mr_plan_for(struct mr_encoder *encoder, const struct mr_relation *relation,
                      struct mr_plan **ret_plan, struct mr_error *ret_error);

/* A record at the change's position, without key and value. */
struct mr_record mr_record_of(const struct mr_plan *plan, const struct mr_change *change,
                              uint32_t part);

/* The part of a schema event's position: rows keep theirs, whether one comes before them or not. */
enum { MR_PART_SCHEMA = 9 };

/* The form of the change's table, as a record at the change's position. */
void mr_schema_event(struct mr_encoder *encoder, const struct mr_plan *plan,
                     const struct mr_change *change, struct mr_buffer *out,
                     struct mr_record *ret_record);

/* The value that the column has in `row`, or had where it was not sent. */
const struct mr_datum *mr_row_datum(const struct mr_plan *plan, uint32_t column,
                                    const struct mr_tuple *row, const struct mr_tuple *old);

/* As mr_encode_end; without `tables`, their counts are left out. */
mr_status mr_encode_end_as(struct mr_encoder *encoder, const struct mr_transaction_end *end,
                           bool tables, struct mr_buffer *buffer, struct mr_record *ret_records,
                           uint32_t *ret_count);

/* The columns of an outbox; NULL when one that it needs is not there. */
struct mr_outbox_columns *mr_outbox_columns_new(const struct mr_encode_options *options,
                                                const struct mr_plan *plan,
                                                struct mr_error *ret_error);

/* Whether the column may be left out of a record that is too large. */
bool mr_outbox_may_cut(const struct mr_outbox_options *outbox, const struct mr_plan *plan,
                       uint32_t column);

/* One row of an outbox as at most one record. */
mr_status mr_outbox_change(struct mr_encoder *encoder, const struct mr_plan *plan,
                           const struct mr_change *change, struct mr_buffer *out,
                           struct mr_record *ret_records, uint32_t *ret_count,
                           struct mr_error *ret_error);

/* Makes `place` of a plan that has its topic, where a rule is for its table. */
mr_status mr_place_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                        struct mr_error *ret_error);
void mr_place_free(struct mr_place *place);

/* Gives the records of a change the topics that the value names which the row has, or had. */
mr_status mr_place_records(struct mr_encoder *encoder, const struct mr_plan *plan,
                           const struct mr_change *change, struct mr_record *records,
                           uint32_t count, struct mr_error *ret_error);

/* Logical messages that are events of an outbox. */
struct mr_outbox_message *mr_outbox_message_new(const struct mr_outbox_options *outbox);
void mr_outbox_message_free(struct mr_outbox_message *row);
bool mr_is_outbox_message(const struct mr_encode_options *options,
                          const struct mr_message_event *message);

/* Whether it stands for such messages. */
bool mr_is_message(const struct mr_relation *relation);

/* The row of an outbox that the message would be, until the next one; NULL: it is not a JSON object. */
const struct mr_change *mr_outbox_message_row(struct mr_encoder *encoder,
                                              const struct mr_message_event *message);

/* As mr_encode_change. One that can't be an event is left out, with a warning. */
mr_status mr_encode_outbox_message(struct mr_encoder *encoder,
                                   const struct mr_message_event *message, struct mr_buffer *buffer,
                                   struct mr_record *ret_records, uint32_t *ret_count);

/* Debezium's word of an operation. */
char mr_op_letter(enum mr_op op);

/* Of MR_FORMAT_ROW. MR_ERR_CONFIG: a column has the name of an added field. */
mr_status mr_bare_check(const struct mr_encode_options *options, const struct mr_plan *plan,
                        struct mr_error *ret_error);

/* The row with the added fields: of a delete the old one. */
void mr_bare_value(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                   const struct mr_change *change, enum mr_op op);

/* Adds headers to a block. `of_tombstone`: of one that follows its delete, and has nothing but the operation. */
void mr_bare_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                     const struct mr_change *change, enum mr_op op, bool of_tombstone);

/* What a delete becomes, in each format. */
struct mr_delete_form {
    bool has_value;
    bool has_tombstone;
};
struct mr_delete_form mr_delete_form(const struct mr_encode_options *options);

/* The formats. `ret_records` has room for MR_RECORDS_PER_CHANGE_MAX. */
uint32_t mr_debezium_change(struct mr_encoder *encoder, struct mr_plan *plan,
                            const struct mr_change *change, struct mr_buffer *out,
                            struct mr_record *ret_records);
uint32_t mr_debezium_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                             struct mr_buffer *out, struct mr_record *ret_records);

/* What Debezium's source block says of an event, for CloudEvents. */
struct mr_cloud_event {
    const char *schema, *table;
    char op;
    enum mr_copy_mark mark;
    mr_lsn lsn, last_commit_lsn;
    int64_t time_us;
    uint32_t xid;
    bool has_xid;
    mr_slice origin;
    mr_lsn origin_lsn;
    struct mr_position position;
    uint32_t part;
};

/* A CloudEvent's value up to its data, what follows that, and its headers (into a block that was begun). */
void mr_cloud_begin(struct mr_buffer *out, const struct mr_encoder *encoder,
                    const struct mr_cloud_event *event);
void mr_cloud_end(struct mr_buffer *out, const struct mr_encoder *encoder);
void mr_cloud_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                      const struct mr_cloud_event *event);
void mr_cloud_set_position(struct mr_record *record);

static inline uint8_t mr_cloud_kind(const struct mr_encoder *encoder)
{
    return encoder->options.cloud.id == MR_CLOUD_ID_POSITION ? MR_RECORD_CLOUD : MR_RECORD_EVENT;
}

/* How a row came to be copied, in Debezium's words. */
const char *mr_mark_text(enum mr_copy_mark mark);

static inline int64_t mr_floor_div(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

uint32_t mr_flat_change(struct mr_encoder *encoder, struct mr_plan *plan,
                        const struct mr_change *change, struct mr_buffer *out,
                        struct mr_record *ret_records);

#endif
