#include "encode/values/row.h"

#include "base/json.h"

__attribute__((cold, noinline)) static void latch(struct mr_encoder *encoder, uint32_t column,
                                                  const char *what)
{
    mr_encoder_latch(encoder, column, what);
}

/* What is written without quotes is a number, or a server could write the rest of the event. False:
 * it is not one. */
static bool write_integer(struct mr_buffer *out, const struct mr_datum *value)
{
    uint8_t *room = mr_buffer_reserve(out, value->len);
    if (MR_UNLIKELY(room == NULL)) {
        return true;
    }
    size_t at = 0;
    if (value->len > 1 && value->data[0] == '-') {
        room[at++] = '-';
    }
    bool good = value->len > 0;
    for (; at < value->len; at++) {
        room[at] = value->data[at];
        good &= (uint8_t)(value->data[at] - '0') <= 9;
    }
    return good;
}

static void row_write_text(struct mr_buffer *out, struct mr_encoder *encoder,
                           const struct mr_plan *plan, uint32_t column,
                           const struct mr_datum *value)
{
    const struct mr_plan_column *planned = &plan->columns[column];
    enum mr_writer writer = planned->writer;
    mr_slice text = {.data = value->data, .len = value->len};
    if (writer == MR_WRITE_STRING) {
        mr_json_string(out, value->data, value->len);
    } else if (writer == MR_WRITE_PLAIN) {
        mr_json_plain(out, value->data, value->len);
    } else if (writer == MR_WRITE_BOOL) {
        if (MR_UNLIKELY(!mr_convert_boolean(out, NULL, text, NULL))) {
            latch(encoder, column, MR_FAULT_BOOL);
        }
    } else if (writer == MR_WRITE_CONVERT) {
        const struct mr_conversion *how = &planned->form->conversion;
        if (MR_UNLIKELY(!how->write(out, how, text, &encoder->scratch))) {
            latch(encoder, column, MR_FAULT_TEXT);
        }
    } else if (writer != MR_WRITE_ABSENT &&
               MR_UNLIKELY(writer == MR_WRITE_NUMBER ? !write_integer(out, value)
                                                     : !mr_convert_float(out, NULL, text, NULL))) {
        latch(encoder, column, MR_FAULT_NUMBER);
    }
}

/* What the old row says of a column that the update did not touch, or NULL. A key tuple has the
 * columns of the identity only, the rest are nulls that mean nothing (ExtractReplicaIdentity,
 * heapam.c). */
static const struct mr_datum *old_value(const struct mr_plan *plan, uint32_t column,
                                        const struct mr_tuple *old)
{
    bool has_it =
        old != NULL && (old->kind == MR_TUPLE_FULL ||
                        (old->kind == MR_TUPLE_KEY && plan->relation->columns[column].in_identity));
    return has_it ? &old->values[column] : NULL;
}

/* A value that is not known: what stands for it, or the column is left out again, name and all, and
 * listed. */
__attribute__((cold)) static void row_write_unknown(struct mr_buffer *out,
                                                    struct mr_encoder *encoder,
                                                    const struct mr_plan *plan, uint32_t column)
{
    const struct mr_plan_column *planned = &plan->columns[column];
    if (planned->writer == MR_WRITE_ABSENT) {
        return;
    }
    if (encoder->options.types != MR_TYPES_PLAIN) {
        mr_type_unavailable(out, planned, encoder->options.unavailable_value);
    } else if (!out->full) {
        out->at -= planned->prefix.len;
        for (uint32_t i = 0; i < encoder->missing.count; i++) {
            if (encoder->missing.columns[i] == column) {
                return;
            }
        }
        encoder->missing.columns[encoder->missing.count++] = column;
    }
}

void mr_row_missing(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan)
{
    if (MR_LIKELY(encoder->missing.count == 0)) {
        return;
    }
    mr_buffer_slice(out, encoder->options.format == MR_FORMAT_ROW
                             ? MR_SLICE(",\"__unavailable\":") /* beside columns */
                             : MR_SLICE(",\"unavailable\":"));
    for (uint32_t i = 0; i < encoder->missing.count; i++) {
        mr_slice prefix = plan->columns[encoder->missing.columns[i]].prefix;
        mr_buffer_append(out, i == 0 ? "[" : ",", 1);
        mr_buffer_append(out, prefix.data + 1, prefix.len - 2); /* the name in quotes */
    }
    MR_BUFFER_LITERAL(out, "]");
    encoder->missing.count = 0;
}

const struct mr_datum *mr_row_datum(const struct mr_plan *plan, uint32_t column,
                                    const struct mr_tuple *row, const struct mr_tuple *old)
{
    const struct mr_datum *value = &row->values[column];
    if (MR_UNLIKELY(value->kind == MR_DATUM_UNCHANGED)) {
        const struct mr_datum *known = old_value(plan, column, old);
        value = known != NULL ? known : value;
    }
    return value;
}

/* One that is not simply there as text. */
__attribute__((noinline)) static void write_other(struct mr_buffer *out, struct mr_encoder *encoder,
                                                  const struct mr_plan *plan, uint32_t column,
                                                  const struct mr_tuple *row,
                                                  const struct mr_tuple *old)
{
    const struct mr_datum *value = mr_row_datum(plan, column, row, old);
    switch (value->kind) {
    case MR_DATUM_TEXT:
        row_write_text(out, encoder, plan, column, value);
        break;
    case MR_DATUM_UNCHANGED:
    case MR_DATUM_CUT:
        row_write_unknown(out, encoder, plan, column);
        break;
    case MR_DATUM_BINARY:
        latch(encoder, column, MR_FAULT_BINARY);
        break;
    case MR_DATUM_NULL:
        if (plan->columns[column].writer != MR_WRITE_ABSENT) {
            MR_BUFFER_LITERAL(out, "null");
        }
        break;
    }
}

void mr_row_value(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                  uint32_t column, const struct mr_tuple *row, const struct mr_tuple *old)
{
    const struct mr_datum *value = &row->values[column];
    if (MR_LIKELY(value->kind == MR_DATUM_TEXT)) {
        row_write_text(out, encoder, plan, column, value);
    } else {
        write_other(out, encoder, plan, column, row, old);
    }
}

void mr_row_close(struct mr_buffer *out, uint8_t *begin)
{
    if (MR_UNLIKELY(out->at == begin)) {
        MR_BUFFER_LITERAL(out, "{}");
        return;
    }
    *begin = '{'; /* it is a comma when the first columns were left out */
    MR_BUFFER_LITERAL(out, "}");
}

void mr_row_columns(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old)
{
    uint32_t count = plan->relation->column_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_plan_column *column = &plan->columns[i];
        mr_buffer_append(out, column->prefix.data, column->prefix.len);
        mr_row_value(out, encoder, plan, i, row, old);
    }
}

void mr_row_object(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                   const struct mr_tuple *row, const struct mr_tuple *old)
{
    uint8_t *begin = out->at;
    mr_row_columns(out, encoder, plan, row, old);
    mr_row_close(out, begin);
}

void mr_row_or_null(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old)
{
    if (row->kind == MR_TUPLE_NONE) {
        MR_BUFFER_LITERAL(out, "null");
    } else {
        mr_row_object(out, encoder, plan, row, old);
    }
}

const struct mr_datum *mr_row_key_datum(struct mr_encoder *encoder, const struct mr_plan *plan,
                                        uint32_t n, const struct mr_tuple *row,
                                        const struct mr_tuple *old)
{
    uint32_t column = plan->key.columns[n];
    const struct mr_datum *value = mr_row_datum(plan, column, row, old);
    if (MR_LIKELY(value->kind == MR_DATUM_TEXT)) {
        return value;
    }
    bool is_held = row->kind != MR_TUPLE_KEY || plan->relation->columns[column].in_identity;
    if (value->kind == MR_DATUM_UNCHANGED) {
        latch(encoder, column,
              "it is part of the key, and the server sent its value neither in the new row nor in "
              "the old one");
    } else if (!is_held && encoder->options.format != MR_FORMAT_FLAT) {
        latch(
            encoder, column,
            "it is part of the key, and the replica identity, which is all that is known of a row "
            "that ends, does not hold it; run ALTER TABLE … REPLICA IDENTITY FULL");
    } else if (value->kind == MR_DATUM_NULL && !plan->key.may_be_null) {
        latch(encoder, column, "it is part of the key, and the row has null there");
    }
    return value;
}

static bool is_same_datum(const struct mr_datum *a, const struct mr_datum *b)
{
    if (a->kind == MR_DATUM_UNCHANGED || b->kind == MR_DATUM_UNCHANGED) {
        return true; /* not sent because it did not change */
    }
    return a->kind == b->kind && (a->kind == MR_DATUM_NULL ||
                                  (a->len == b->len && memcmp(a->data, b->data, a->len) == 0));
}

#define FAULT_KEY                                                                                  \
    "it is part of the key, and its schema can't hold what the row has there (text that is not "   \
    "UTF-8, not-a-number, an infinity); leave it out of the key with key_columns"

/* Not-a-number and the infinities of a numeric, and times that the nanoseconds of 64 bits don't
 * reach, are null in a value. In a key they would all be one row. */
static void write_key_text(struct mr_buffer *out, struct mr_encoder *encoder,
                           const struct mr_plan *plan, uint32_t column,
                           const struct mr_datum *value)
{
    static const char null[] = "null";
    uint8_t *begin = out->at;
    row_write_text(out, encoder, plan, column, value);
    size_t len = (size_t)(out->at - begin);
    if (MR_LIKELY(len != sizeof(null) - 1 || memcmp(begin, null, len) != 0) ||
        plan->columns[column].form == NULL || plan->columns[column].rule == MR_RULE_JSON) {
        return;
    }
    if (out->is_typed) {
        latch(encoder, column, FAULT_KEY);
    }
    out->at = begin;
    MR_BUFFER_LITERAL(out, "{\"text\":");
    mr_json_string(out, value->data, value->len);
    MR_BUFFER_LITERAL(out, "}");
}

/* Two texts may be one value: 1.0 and 1.00, '1 day' and '24:00:00'. What fills the room counts as
 * another. */
__attribute__((cold, noinline)) static bool
is_written_alike(struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column,
                 const struct mr_datum *a, const struct mr_datum *b)
{
    enum { ROOM = 4096 }; /* what an index holds of a key is less (BTMaxItemSize in nbtree.h) */
    uint8_t room[2][ROOM];
    const struct mr_datum *values[] = {a, b};
    struct mr_buffer out[2];
    if (plan->columns[column].writer != MR_WRITE_CONVERT || a->kind != MR_DATUM_TEXT ||
        b->kind != MR_DATUM_TEXT) {
        return false;
    }
    const char *wrong = encoder->fault.what;
    for (int i = 0; i < 2; i++) {
        out[i] = mr_buffer_init(room[i], ROOM);
        write_key_text(&out[i], encoder, plan, column, values[i]);
    }
    bool is_right = encoder->fault.what == wrong && !out[0].full && !out[1].full;
    encoder->fault.what = wrong; /* who writes it tells it */
    return is_right && out[0].at - room[0] == out[1].at - room[1] &&
           memcmp(room[0], room[1], (size_t)(out[0].at - room[0])) == 0;
}

bool mr_value_equal(struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column,
                    const struct mr_datum *a, const struct mr_datum *b)
{
    return is_same_datum(a, b) || is_written_alike(encoder, plan, column, a, b);
}

bool mr_key_changed(struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_change *change)
{
    if (change->before.kind == MR_TUPLE_NONE) {
        return false;
    }
    for (uint32_t i = 0; i < plan->key.count; i++) {
        uint32_t column = plan->key.columns[i];
        const struct mr_datum *before = &change->before.values[column];
        const struct mr_datum *after = &change->after.values[column];
        if (!mr_value_equal(encoder, plan, column, before, after)) {
            return true;
        }
    }
    return false;
}

void mr_row_key_text(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    if (MR_LIKELY(mr_is_utf8(text, len))) {
        mr_json_string(out, text, len);
        return;
    }
    out->met_bytes = true;
    out->misfit = out->is_typed;
    static const char digits[] = "0123456789abcdef";
    MR_BUFFER_LITERAL(out, "{\"hex\":\"");
    for (size_t i = 0; i < len; i++) {
        mr_buffer_append(out, (const char[]){digits[text[i] >> 4], digits[text[i] & 0xF]}, 2);
    }
    MR_BUFFER_LITERAL(out, "\"}");
}

void mr_row_key_object(struct mr_buffer *out, struct mr_encoder *encoder,
                       const struct mr_plan *plan, const struct mr_tuple *row,
                       const struct mr_tuple *old)
{
    for (uint32_t i = 0; i < plan->key.count; i++) {
        const struct mr_datum *value = mr_row_key_datum(encoder, plan, i, row, old);
        mr_buffer_append(out, plan->key.prefixes[i].data, plan->key.prefixes[i].len);
        if (MR_UNLIKELY(value->kind != MR_DATUM_TEXT)) {
            MR_BUFFER_LITERAL(out, "null");
        } else if (plan->columns[plan->key.columns[i]].writer == MR_WRITE_STRING ||
                   plan->columns[plan->key.columns[i]].writer == MR_WRITE_ABSENT) {
            mr_row_key_text(out, value->data, value->len);
            if (MR_UNLIKELY(out->misfit)) {
                out->misfit = false;
                latch(encoder, plan->key.columns[i], FAULT_KEY);
            }
        } else {
            write_key_text(out, encoder, plan, plan->key.columns[i], value);
        }
    }
    mr_buffer_append(out, plan->key.end.data, plan->key.end.len);
}
