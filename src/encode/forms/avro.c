/* Debezium's events in Avro. Their schemas are avro_schema.c's. */
#include "encode/forms/skeleton.h"
#include "encode/values/put.h"

static const char misfit[] =
    "it has a value that does not fit its Avro schema (a key that is not UTF-8, or is NaN or "
    "infinite, has none); leave the column out with columns.exclude, or out of the key with "
    "key_columns";

static void latch_misfit(struct mr_buffer *out, struct mr_encoder *encoder, uint32_t column)
{
    if (MR_UNLIKELY(out->misfit)) {
        out->misfit = false;
        mr_encoder_latch(encoder, column, misfit);
    }
}

static void avro_put_text(struct mr_buffer *out, struct mr_encoder *encoder,
                          const struct mr_plan *plan, uint32_t column, const struct mr_datum *value)
{
    const struct mr_plan_column *planned = &plan->columns[column];
    mr_slice text = {.data = value->data, .len = value->len};
    const struct mr_conversion *how;
    static const struct mr_conversion narrow = {.detail = MR_INT_BYTES}, wide;
    bool good = true;
    switch (planned->writer) {
    case MR_WRITE_CONVERT:
        how = &planned->form->conversion;
        good = how->write(out, how, text, &encoder->scratch);
        break;
    case MR_WRITE_NUMBER:
        how = planned->rule == MR_RULE_INTEGER ? &narrow : &wide;
        good = mr_convert_integer(out, how, text, NULL);
        break;
    case MR_WRITE_BOOL:
        good = mr_convert_boolean(out, NULL, text, NULL);
        break;
    default: /* MR_WRITE_FLOAT is of none of Debezium's types */
        mr_avro_string(out, text.data, text.len);
    }
    if (MR_UNLIKELY(!good)) {
        mr_encoder_latch(encoder, column, mr_row_fault(planned->writer));
    }
}

/* Each column may be null, for the stream does not say which may not. */
static void avro_put_column(struct mr_buffer *out, struct mr_encoder *encoder,
                            const struct mr_plan *plan, uint32_t column,
                            const struct mr_datum *value)
{
    out->nullable = true;
    switch (value->kind) {
    case MR_DATUM_TEXT:
        avro_put_text(out, encoder, plan, column, value);
        break;
    case MR_DATUM_UNCHANGED:
    case MR_DATUM_CUT:
        mr_type_unavailable(out, &plan->columns[column], encoder->options.unavailable_value);
        break;
    case MR_DATUM_BINARY:
        mr_encoder_latch(encoder, column, MR_FAULT_BINARY);
        break;
    case MR_DATUM_NULL:
        mr_avro_null(out);
        break;
    }
    latch_misfit(out, encoder, column);
}

static void avro_put_row(struct mr_buffer *out, struct mr_encoder *encoder,
                         const struct mr_plan *plan, const struct mr_tuple *row,
                         const struct mr_tuple *old)
{
    out->nullable = true;
    if (row->kind == MR_TUPLE_NONE) {
        mr_avro_null(out);
        return;
    }
    mr_avro_mark(out);
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        if (plan->columns[i].writer != MR_WRITE_ABSENT) {
            avro_put_column(out, encoder, plan, i, mr_row_datum(plan, i, row, old));
        }
    }
}

/* A value that its conversion has null for would be the key of many rows. */
static void put_key_text(struct mr_buffer *out, struct mr_encoder *encoder,
                         const struct mr_plan *plan, uint32_t column, const struct mr_datum *value)
{
    enum mr_writer writer = plan->columns[column].writer;
    out->nullable = plan->key.may_be_null;
    mr_avro_mark(out);
    out->nullable = false;
    if ((writer == MR_WRITE_STRING || writer == MR_WRITE_ABSENT) &&
        !mr_is_utf8(value->data, value->len)) {
        out->misfit = true;
    } else {
        avro_put_text(out, encoder, plan, column, value);
    }
}

static void avro_put_key(struct mr_buffer *out, struct mr_encoder *encoder,
                         const struct mr_plan *plan, const struct mr_tuple *row,
                         const struct mr_tuple *old)
{
    if (MR_UNLIKELY(encoder->placing.writes_letter)) {
        out->is_avro = false;
        mr_row_key_object(out, encoder, plan, row, old);
        out->is_avro = true;
        return;
    }
    mr_schema_frame(out, plan->avro.key);
    for (uint32_t i = 0; i < plan->key.count; i++) {
        uint32_t column = plan->key.columns[i];
        const struct mr_datum *value = mr_row_key_datum(encoder, plan, i, row, old);
        if (MR_LIKELY(value->kind == MR_DATUM_TEXT)) {
            put_key_text(out, encoder, plan, column, value);
        } else {
            out->nullable = plan->key.may_be_null;
            mr_avro_null(out);
        }
        latch_misfit(out, encoder, column);
    }
    mr_buffer_slice(out, plan->key.avro_end);
}

static void put_envelope(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                         const struct mr_change *change, const struct mr_event *event)
{
    const struct mr_rendered *rendered = &plan->rendered;
    uint8_t digits[32];
    struct mr_buffer lsn = mr_buffer_init(digits, sizeof(digits));
    mr_json_u64(&lsn, change->lsn);
    MR_BUFFER_LITERAL(&lsn, "\"]");
    size_t lsn_len = (size_t)(lsn.at - digits);
    mr_schema_frame(out, plan->avro.value);
    avro_put_row(out, encoder, plan, event->before, NULL);
    avro_put_row(out, encoder, plan, event->after, &change->before);
    mr_buffer_slice(out, rendered->head);
    out->nullable = true;
    mr_avro_long(out, (int64_t)(rendered->sequence.len + lsn_len));
    mr_buffer_slice(out, rendered->sequence);
    mr_buffer_append(out, digits, lsn_len);
    mr_buffer_slice(out, rendered->middle);
    mr_avro_long(out, (int64_t)change->lsn);
    mr_buffer_slice(out, rendered->tail);
    if (MR_UNLIKELY(rendered->ends_open)) {
        mr_event_transaction(out, encoder, plan, change, event->op);
    }
    mr_buffer_append(out, (const char[]){2, mr_op_letter(event->op)}, 2); /* of one byte */
    mr_buffer_append(out, encoder->stamp.clock.data, encoder->stamp.clock.len);
}

static mr_status avro_change(struct mr_encoder *encoder, struct mr_plan *plan,
                             const struct mr_change *change, struct mr_buffer *out,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             __attribute__((unused)) struct mr_error *ret_error)
{
    static const struct mr_skeleton form = {
        .key = avro_put_key, .value = put_envelope, .content = MR_CONTENT_FRAMED};
    out->is_avro = true;
    uint32_t count = mr_skeleton_change(&form, encoder, plan, change, out, ret_records);
    out->is_avro = false;
    for (uint32_t i = 0; MR_UNLIKELY(encoder->placing.writes_letter) && i < count; i++) {
        ret_records[i].key_content = MR_CONTENT_JSON;
    }
    *ret_count = count;
    return MR_OK;
}

/* In a string what is not UTF-8 stands as in JSON. */
static void put_prefix(struct mr_buffer *out, mr_slice prefix)
{
    out->nullable = true;
    if (mr_is_utf8(prefix.data, prefix.len)) {
        mr_avro_string(out, prefix.data, prefix.len);
        return;
    }
    uint8_t *gap = mr_avro_open(out);
    mr_row_key_text(out, prefix.data, prefix.len);
    mr_avro_close(out, gap, out->at - gap - 1);
}

static bool avro_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                         struct mr_buffer *out, struct mr_record *ret_record)
{
    struct mr_avro_pair *pair = &encoder->message_avro;
    if (encoder->placing.writes_letter) {
        return mr_debezium_message(encoder, message, out, ret_record);
    }
    if (pair->value == MR_NO_SCHEMA) {
        *pair = mr_avro_messages(&encoder->options, encoder->names.message);
    }
    struct mr_record record = mr_message_record(encoder, message);
    record.key_content = record.value_content = MR_CONTENT_FRAMED;
    record.key = out->at;
    out->is_avro = true;
    mr_schema_frame(out, pair->key);
    put_prefix(out, message->prefix);
    record.value = out->at;
    record.key_len = (uint32_t)(record.value - record.key);
    mr_schema_frame(out, pair->value);
    out->nullable = false;
    mr_message_envelope(out, encoder, message);
    record.value_len = (uint32_t)(out->at - record.value);
    mr_transaction_headers(out, message->transaction, &record);
    out->is_avro = false;
    bool good = !out->misfit;
    out->misfit = false;
    *ret_record = record;
    return good;
}

static mr_status avro_plan(struct mr_encoder *encoder, struct mr_plan *plan,
                           struct mr_error *ret_error)
{
    return plan->topic == NULL ? MR_OK : mr_avro_plan(&encoder->options, plan, ret_error);
}

const struct mr_form_ops mr_form_avro = {
    .ends_rows = true, .plan = avro_plan, .change = avro_change, .message = avro_message};
