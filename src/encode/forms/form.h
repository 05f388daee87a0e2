/* The forms of events. Each is a table of functions; what several forms use is declared here, too.
 * Inside encode/ only; the encoder's thread calls all of it. */
#pragma once

#include "encode/encoder.h"
#include "encode/values/row.h"

struct mr_form_ops {
    bool ends_rows; /* one that gets another key, or another topic, ends there and begins here */
    /* Makes the form's part of a plan, whose columns and topic are there. NULL: the form has
     * none. */
    mr_status (*plan)(struct mr_encoder *encoder, struct mr_plan *plan, struct mr_error *ret_error);
    void (*forget)(struct mr_plan *plan);
    /* As mr_encode_change, of one stream. What is wrong with a value is latched in the encoder. */
    mr_status (*change)(struct mr_encoder *encoder, struct mr_plan *plan,
                        const struct mr_change *change, struct mr_buffer *out,
                        struct mr_record *ret_records, uint32_t *ret_count,
                        struct mr_error *ret_error);
    /* A logical message as one record. NULL: the form has none. False: it does not fit its
     * schema. */
    bool (*message)(struct mr_encoder *encoder, const struct mr_message_event *message,
                    struct mr_buffer *out, struct mr_record *ret_record);
};

extern const struct mr_form_ops mr_form_debezium;
extern const struct mr_form_ops mr_form_wrapped;
extern const struct mr_form_ops mr_form_avro;
extern const struct mr_form_ops mr_form_flat;
extern const struct mr_form_ops mr_form_cloudevents;
extern const struct mr_form_ops mr_form_row;
extern const struct mr_form_ops mr_form_outbox;

static inline bool mr_plan_is_outbox(const struct mr_plan *plan)
{
    return plan->form == &mr_form_outbox;
}

struct mr_source_field {
    const char *part, *name;
    const char *json;      /* `,"name":` */
    const char *attribute; /* of a CloudEvent in binary mode, and after "ce_" in JSON */
    bool is_text;          /* else a number of 64 bits */
    bool nullable;         /* in Avro */
};

extern const struct mr_source_field mr_source_fields[]; /* by enum mr_event_field */

/* The values that the fields of an event are made of. It owns nothing that it points to. */
struct mr_source {
    const struct mr_encoder *encoder;
    enum mr_op op;
    enum mr_copy_mark mark;
    const char *schema, *table;
    mr_lsn lsn, last_commit_lsn;
    int64_t time_us;
    uint32_t xid;
    bool has_xid;
    mr_slice origin;
    mr_lsn origin_lsn;
};

struct mr_source mr_source_of_change(const struct mr_encoder *encoder,
                                     const struct mr_change *change, enum mr_op op);
struct mr_source mr_source_of_message(const struct mr_encoder *encoder,
                                      const struct mr_message_event *message);

struct mr_field_value {
    bool is_null;
    mr_slice text;  /* of a field that is text; … */
    int64_t number; /* … else this */
};

enum { MR_SEQUENCE_MAX = 64 };

/* `room` holds a text that is made for it. */
struct mr_field_value mr_source_value(const struct mr_source *source, enum mr_event_field field,
                                      uint8_t room[MR_SEQUENCE_MAX]);

/* The value alone, and fields in a row with their names; the block's first one opens it. In JSON or
 * Avro. */
void mr_source_put_value(struct mr_buffer *out, const struct mr_source *source,
                         enum mr_event_field field);
void mr_source_put(struct mr_buffer *out, const struct mr_source *source, enum mr_event_field first,
                   enum mr_event_field last);

/* The text of `sequence` up to the event's LSN, which `"]` follows: `["22305072","` */
mr_slice mr_source_sequence(uint8_t room[MR_SEQUENCE_MAX], mr_lsn last_commit_lsn);

/* Where the form writes no headers of its own: those of the transaction (NULL: there is none),
 * after the value. */
static inline void mr_transaction_headers(struct mr_buffer *out,
                                          const struct mr_transaction *transaction,
                                          struct mr_record *record)
{
    if (MR_UNLIKELY(transaction != NULL && transaction->headers.len > 0)) {
        uint8_t *block = mr_headers_begin(out, NULL);
        mr_buffer_slice(out, transaction->headers);
        mr_headers_end(out, block);
        record->has_headers = true;
    }
}

/* The record of a message without its key and value. */
struct mr_record mr_message_record(const struct mr_encoder *encoder,
                                   const struct mr_message_event *message);

/* Writes the record's key, `{"prefix":…}`, after which its value begins. */
void mr_message_key(struct mr_buffer *out, const struct mr_message_event *message,
                    struct mr_record *record);

/* `{"prefix":…,"content":…}` */
void mr_message_content(struct mr_buffer *out, const struct mr_encoder *encoder,
                        const struct mr_message_event *message);

void mr_message_envelope(struct mr_buffer *out, struct mr_encoder *encoder,
                         const struct mr_message_event *message);

/* Whether rows that are there say so, as those that are gone do. */
static inline bool mr_bare_rewrites(const struct mr_bare_options *options)
{
    return options->deletes == MR_DELETE_REWRITE ||
           options->deletes == MR_DELETE_REWRITE_WITH_TOMBSTONE;
}

struct mr_event;

/* The value of a change. */
void mr_debezium_envelope(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                          const struct mr_change *change, const struct mr_event *event);

/* Writes a message with an envelope in the form at hand. */
bool mr_debezium_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                         struct mr_buffer *out, struct mr_record *ret_record);

/* Renders what all changes of a relation in one transaction share. */
void mr_render_transaction(struct mr_encoder *encoder, struct mr_plan *plan,
                           const struct mr_change *change);

/* The block of an event's place in its transaction. */
void mr_event_transaction(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                          const struct mr_change *change, enum mr_op op);

/* Appends the headers of a row with values that were read later. */
void mr_append_later(struct mr_buffer *out, const struct mr_change *change);

/* Debezium's word of an operation. */
char mr_op_letter(enum mr_op op);

static inline int64_t mr_floor_div(int64_t value, int64_t by)
{
    return value / by - (value % by < 0);
}

void mr_cloud_set_position(struct mr_record *record);

/* Both Avro schemas, as Kafka Connect's AvroConverter derives them from Debezium's: of a plan that
 * has its columns, and of logical messages. */
mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error);
struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic);

/* Whether the column may be left out of a record that is too large. */
bool mr_outbox_may_cut(const struct mr_outbox_options *outbox, const struct mr_plan *plan,
                       uint32_t column);

/* Logical messages that are events of an outbox. */
struct mr_outbox_message *mr_outbox_message_new(const struct mr_outbox_options *outbox);
void mr_outbox_message_free(struct mr_outbox_message *row);
bool mr_is_outbox_message(const struct mr_encode_options *options,
                          const struct mr_message_event *message);

/* Whether it stands for such messages. */
bool mr_is_message(const struct mr_relation *relation);

/* The row of an outbox that the message would be, until the next one; NULL: it is not a JSON
 * object. */
const struct mr_change *mr_outbox_message_row(struct mr_encoder *encoder,
                                              const struct mr_message_event *message);

/* As mr_encode_change. One that can't be an event is left out, with a warning. */
mr_status mr_encode_outbox_message(struct mr_encoder *encoder,
                                   const struct mr_message_event *message, struct mr_buffer *buffer,
                                   struct mr_record *ret_records, uint32_t *ret_count);
