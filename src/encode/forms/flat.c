/* Outboxx's events: `{"op":…,"data":{…},"meta":{…}}`, keyed by the bare text of one column. */
#include "base/json.h"
#include "encode/forms/form.h"

/* Everything of `meta` but the change's LSN is the same for a relation in one transaction. */
static void render_meta(struct mr_plan *plan, const struct mr_transaction *transaction)
{
    const struct mr_relation *relation = plan->relation;
    size_t size = 128 + 6 * (strlen(relation->schema) + strlen(relation->table));
    struct mr_buffer out = mr_text_begin(&plan->rendered.text, size);
    const uint8_t *begin = out.at;
    MR_BUFFER_LITERAL(&out, ",\"meta\":{\"source\":\"postgres\",\"resource\":\"");
    mr_json_escaped(&out, (const uint8_t *)relation->schema, strlen(relation->schema));
    MR_BUFFER_LITERAL(&out, ".");
    mr_json_escaped(&out, (const uint8_t *)relation->table, strlen(relation->table));
    MR_BUFFER_LITERAL(&out, "\",\"timestamp\":");
    mr_json_i64(&out, transaction->commit_time_us / 1000000);
    MR_BUFFER_LITERAL(&out, ",\"lsn\":\"");
    MR_ASSERT(!out.full);
    plan->rendered.head = mr_text_since(&out, begin);
    plan->rendered.commit_lsn = transaction->commit_lsn;
}

/* The bare text of one column, or an object. */
static mr_slice flat_write_key(struct mr_buffer *out, struct mr_encoder *encoder,
                               const struct mr_plan *plan, const struct mr_tuple *row,
                               const struct mr_tuple *old)
{
    const uint8_t *begin = out->at;
    if (!plan->key.is_text) {
        if (plan->key.count == 0) {
            return (mr_slice){0};
        }
        mr_row_key_object(out, encoder, plan, row, old);
        return mr_text_since(out, begin);
    }
    const struct mr_datum *value = mr_row_key_datum(encoder, plan, 0, row, old);
    if (value->kind != MR_DATUM_TEXT) {
        MR_BUFFER_LITERAL(out, "null");
    } else if (plan->columns[plan->key.columns[0]].writer == MR_WRITE_BOOL) {
        bool is_true = value->len == 1 && value->data[0] == 't';
        mr_buffer_slice(out, is_true ? MR_SLICE("true") : MR_SLICE("false"));
    } else {
        mr_buffer_append(out, value->data, value->len);
    }
    return mr_text_since(out, begin);
}

/* A key tuple holds only the identity's columns; the others are not null, they are not known. */
static void write_identity(struct mr_buffer *out, struct mr_encoder *encoder,
                           const struct mr_plan *plan, const struct mr_tuple *row)
{
    uint8_t *begin = out->at;
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        if (plan->relation->columns[i].in_identity) {
            mr_buffer_slice(out, plan->columns[i].prefix);
            mr_row_value(out, encoder, plan, i, row, NULL);
        }
    }
    mr_row_close(out, begin);
}

static mr_slice op_text(enum mr_op op)
{
    return op == MR_OP_INSERT   ? MR_SLICE("{\"op\":\"INSERT\",\"data\":")
           : op == MR_OP_READ   ? MR_SLICE("{\"op\":\"READ\",\"data\":")
           : op == MR_OP_UPDATE ? MR_SLICE("{\"op\":\"UPDATE\",\"data\":")
                                : MR_SLICE("{\"op\":\"DELETE\",\"data\":");
}

static void append_hex(struct mr_buffer *out, uint32_t value)
{
    char digits[8];
    unsigned at = sizeof(digits);
    do {
        digits[--at] = "0123456789ABCDEF"[value & 0xF];
        value >>= 4;
    } while (value != 0);
    mr_buffer_append(out, digits + at, sizeof(digits) - at);
}

/* As MR_LSN_FORMAT, with the end of the event. Through snprintf it took a tenth of all
 * instructions. */
static void append_lsn(struct mr_buffer *out, mr_lsn lsn)
{
    append_hex(out, (uint32_t)(lsn >> 32));
    MR_BUFFER_LITERAL(out, "/");
    append_hex(out, (uint32_t)lsn);
    MR_BUFFER_LITERAL(out, "\"}}");
}

static mr_status flat_change(struct mr_encoder *encoder, struct mr_plan *plan,
                             const struct mr_change *change, struct mr_buffer *out,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             __attribute__((unused)) struct mr_error *ret_error)
{
    *ret_count = change->op != MR_OP_TRUNCATE; /* for which the form has no event */
    if (*ret_count == 0) {
        return MR_OK;
    }
    if (plan->rendered.commit_lsn != change->transaction->commit_lsn) {
        render_meta(plan, change->transaction);
    }
    const struct mr_tuple *row = change->op == MR_OP_DELETE ? &change->before : &change->after;
    mr_slice key = flat_write_key(out, encoder, plan, row, &change->before);
    const uint8_t *value = out->at;
    mr_buffer_slice(out, op_text(change->op));
    if (row->kind == MR_TUPLE_KEY) {
        write_identity(out, encoder, plan, row);
    } else {
        mr_row_object(out, encoder, plan, row, &change->before);
    }
    mr_row_missing(out, encoder, plan);
    mr_buffer_slice(out, plan->rendered.head);
    append_lsn(out, change->lsn);
    ret_records[0] = mr_record_of(plan, change, 0);
    mr_record_set_key(&ret_records[0], key);
    ret_records[0].key_content = plan->key.is_text ? MR_CONTENT_TEXT : MR_CONTENT_JSON;
    mr_record_set_value(&ret_records[0], mr_text_since(out, value));
    if (MR_UNLIKELY(change->transaction->later != NULL)) {
        uint8_t *block = mr_headers_begin(out, NULL);
        mr_append_later(out, change);
        mr_buffer_slice(out, change->transaction->headers);
        mr_headers_end(out, block);
        ret_records[0].has_headers = true;
    } else {
        mr_transaction_headers(out, change->transaction, &ret_records[0]);
    }
    return MR_OK;
}

const struct mr_form_ops mr_form_flat = {.change = flat_change};
