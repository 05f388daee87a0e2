#include "encode/row.h"

#include "base/json.h"

static void write_quoted(struct mr_buffer *out, const struct mr_datum *value)
{
    uint8_t *room = mr_buffer_reserve(out, (size_t)value->len + 2);
    if (room != NULL) {
        room[0] = '"';
        memcpy(room + 1, value->data, value->len);
        room[value->len + 1] = '"';
    }
}

/* NaN, Infinity and -Infinity are the only texts of a float that end in a letter other than a digit. */
static bool float_is_finite(const struct mr_datum *value)
{
    return value->len > 0 && value->data[value->len - 1] >= '0' &&
           value->data[value->len - 1] <= '9';
}

static void write_text(struct mr_buffer *out, enum mr_writer writer, const struct mr_datum *value)
{
    switch (writer) {
    case MR_WRITE_STRING:
        mr_json_string(out, value->data, value->len);
        break;
    case MR_WRITE_PLAIN:
        write_quoted(out, value);
        break;
    case MR_WRITE_NUMBER:
        mr_buffer_append(out, value->data, value->len);
        break;
    case MR_WRITE_FLOAT:
        if (float_is_finite(value)) {
            mr_buffer_append(out, value->data, value->len);
        } else {
            write_quoted(out, value);
        }
        break;
    case MR_WRITE_BOOL:
        if (value->len == 1 && value->data[0] == 't') {
            MR_BUFFER_LITERAL(out, "true");
        } else {
            MR_BUFFER_LITERAL(out, "false");
        }
        break;
    }
}

void mr_row_value(struct mr_buffer *out, const struct mr_encoder *encoder, enum mr_writer writer,
                  const struct mr_datum *value, const struct mr_datum *old)
{
    if (MR_UNLIKELY(value->kind == MR_DATUM_UNCHANGED && old != NULL)) {
        value = old;
    }
    if (MR_LIKELY(value->kind == MR_DATUM_TEXT)) {
        write_text(out, writer, value);
    } else if (value->kind == MR_DATUM_UNCHANGED || value->kind == MR_DATUM_CUT) {
        mr_buffer_append(out, encoder->unavailable.data, encoder->unavailable.len);
    } else {
        MR_BUFFER_LITERAL(out, "null");
    }
}

/* The old value of a column, where the old row is there as a whole. */
static const struct mr_datum *old_value(const struct mr_tuple *old, uint32_t column)
{
    return old != NULL && old->kind == MR_TUPLE_FULL ? &old->values[column] : NULL;
}

void mr_row_object(struct mr_buffer *out, const struct mr_encoder *encoder,
                   const struct mr_plan *plan, const struct mr_tuple *row,
                   const struct mr_tuple *old)
{
    uint32_t count = plan->relation->column_count;
    if (count == 0) {
        MR_BUFFER_LITERAL(out, "{}");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_plan_column *column = &plan->columns[i];
        mr_buffer_append(out, column->prefix.data, column->prefix.len);
        mr_row_value(out, encoder, column->writer, &row->values[i], old_value(old, i));
    }
    MR_BUFFER_LITERAL(out, "}");
}

void mr_row_key_object(struct mr_buffer *out, const struct mr_encoder *encoder,
                       const struct mr_plan *plan, const struct mr_tuple *row,
                       const struct mr_tuple *old)
{
    for (uint32_t i = 0; i < plan->key_count; i++) {
        uint32_t column = plan->key_columns[i];
        mr_buffer_append(out, plan->key_prefixes[i].data, plan->key_prefixes[i].len);
        mr_row_value(out, encoder, plan->columns[column].writer, &row->values[column],
                     old_value(old, column));
    }
    MR_BUFFER_LITERAL(out, "}");
}

struct mr_record mr_record_of(const struct mr_plan *plan, const struct mr_change *change,
                              uint32_t part)
{
    return (struct mr_record){
        .topic = plan->topic,
        .position = change->position,
        .commit_time_us = change->transaction->commit_time_us,
        .xid = change->transaction->xid,
        .part = part,
    };
}
