/* Debezium's change events: `before, after, source, transaction, op, ts_ms, ts_us, ts_ns`.
 *
 * The order of fields and the form of each are those of Debezium 3.7 for PostgreSQL with Kafka
 * Connect's JsonConverter and schemas.enable=false. What does not differ between rows is written by
 * the same functions in Avro, and what is between a schema and its end (wrapped.c) is the same. */
#include "encode/forms/skeleton.h"
#include "encode/values/put.h"

static void no_transaction(struct mr_buffer *out)
{
    mr_put_field(out, MR_SLICE(",\"transaction\":"), true);
    mr_put_null(out);
}

void mr_render_transaction(struct mr_encoder *encoder, struct mr_plan *plan,
                           const struct mr_change *change)
{
    const struct mr_transaction *transaction = change->transaction;
    struct mr_rendered *rendered = &plan->rendered;
    const struct mr_source source = mr_source_of_change(encoder, change, change->op);
    uint8_t room[MR_SEQUENCE_MAX];
    mr_encoder_set_commit_time(encoder, transaction->commit_time_us);
    rendered->commit_lsn = transaction->commit_lsn;
    rendered->mark = change->copy_mark;
    enum { FIXED = 512 }; /* names of fields and numbers: 402, and what differs between versions */
    size_t size =
        FIXED + rendered->names_bytes + 6 * (strlen(encoder->database) + transaction->origin.len);
    struct mr_buffer out = mr_text_begin(&rendered->text, size);
    out.splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    out.is_avro = plan->form == &mr_form_avro;
    const uint8_t *begin = out.at;
    mr_put_field(&out, MR_SLICE(",\"source\":"), false);
    mr_source_put(&out, &source, MR_FIELD_SOURCE_VERSION, MR_FIELD_SOURCE_DB);
    mr_put_field(&out, MR_SLICE(",\"sequence\":"), true);
    mr_slice sequence = mr_source_sequence(room, transaction->last_commit_lsn);
    if (out.is_avro) {
        rendered->head = mr_text_since(&out, begin);
        begin = out.at;
        mr_buffer_slice(&out, sequence);
        rendered->sequence = mr_text_since(&out, begin);
        begin = out.at;
    } else {
        MR_BUFFER_LITERAL(&out, "\"");
        mr_json_escaped(&out, sequence.data, sequence.len);
        rendered->head = mr_text_since(&out, begin);
        begin = out.at;
        MR_BUFFER_LITERAL(&out, "\\\"]\"");
    }
    mr_source_put(&out, &source, MR_FIELD_SOURCE_TS_US, MR_FIELD_SOURCE_TXID);
    mr_put_field(&out, MR_SLICE(",\"lsn\":"), true);
    rendered->middle = mr_text_since(&out, begin);
    begin = out.at;
    mr_source_put(&out, &source, MR_FIELD_SOURCE_XMIN, MR_FIELD_SOURCE_ORIGIN_LSN);
    mr_put_json(&out, MR_SLICE("}"));
    rendered->ends_open = plan->tells_transaction && change->copy_mark == MR_COPY_NONE;
    if (!rendered->ends_open) {
        no_transaction(&out);
        mr_put_json(&out, MR_SLICE(",\"op\":\""));
    }
    rendered->tail = mr_text_since(&out, begin);
    MR_ASSERT(!out.full);
}

/* A changed key makes two events, a delete and a create. */
__attribute__((cold)) void mr_event_transaction(struct mr_buffer *out, struct mr_encoder *encoder,
                                                struct mr_plan *plan,
                                                const struct mr_change *change, enum mr_op op)
{
    struct mr_transaction_counts *counts = &encoder->transaction;
    bool is_second = op == MR_OP_INSERT && change->op == MR_OP_UPDATE &&
                     (plan->operations & (1u << MR_OP_DELETE)) != 0;
    mr_transaction_add(counts, &plan->slot, plan->relation->schema, plan->relation->table, 0);
    mr_transaction_block(out, counts, &plan->slot, change->transaction->xid, change->lsn,
                         is_second);
    mr_put_json(out, MR_SLICE(",\"op\":\""));
}

MR_SKELETON void debezium_write_envelope(struct mr_buffer *out, struct mr_encoder *encoder,
                                         struct mr_plan *plan, const struct mr_change *change,
                                         const struct mr_event *event)
{
    MR_BUFFER_LITERAL(out, "{\"before\":");
    mr_row_or_null(out, encoder, plan, event->before, NULL);
    MR_BUFFER_LITERAL(out, ",\"after\":");
    mr_row_or_null(out, encoder, plan, event->after, &change->before);
    mr_row_missing(out, encoder, plan);
    mr_buffer_slice(out, plan->rendered.head);
    const uint8_t *lsn_begin = out->at;
    mr_json_u64(out, change->lsn);
    size_t lsn_len = (size_t)(out->at - lsn_begin);
    mr_buffer_slice(out, plan->rendered.middle);
    mr_buffer_append(out, lsn_begin, lsn_len);
    mr_buffer_slice(out, plan->rendered.tail);
    if (MR_UNLIKELY(plan->rendered.ends_open)) {
        mr_event_transaction(out, encoder, plan, change, event->op);
    }
    mr_buffer_append(out, (const char[]){mr_op_letter(event->op), '"', ','}, 3);
    mr_buffer_append(out, encoder->stamp.clock.data, encoder->stamp.clock.len);
}

MR_SKELETON_CHANGE(debezium_change, .key = mr_row_key_object, .value = debezium_write_envelope)

void mr_debezium_envelope(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                          const struct mr_change *change, const struct mr_event *event)
{
    debezium_write_envelope(out, encoder, plan, change, event);
}

struct mr_record mr_message_record(const struct mr_encoder *encoder,
                                   const struct mr_message_event *message)
{
    const struct mr_source source = mr_source_of_message(encoder, message);
    return (struct mr_record){.topic = encoder->names.message,
                              .position = message->position,
                              .commit_time_us = source.time_us,
                              .xid = source.xid};
}

void mr_message_content(struct mr_buffer *out, const struct mr_encoder *encoder,
                        const struct mr_message_event *message)
{
    mr_put_record(out, MR_SLICE("{\"prefix\":"), true);
    mr_put_slice(out, message->prefix);
    mr_put_field(out, MR_SLICE(",\"content\":"), true);
    mr_convert_binary(out, encoder->options.modes.binary, message->content.data,
                      message->content.len);
    mr_put_json(out, MR_SLICE("}"));
}

void mr_message_envelope(struct mr_buffer *out, struct mr_encoder *encoder,
                         const struct mr_message_event *message)
{
    const struct mr_transaction *transaction = message->transaction;
    const struct mr_source source = mr_source_of_message(encoder, message);
    int64_t now_us = encoder->stamp.now_ns / 1000;
    mr_put_record(out, MR_SLICE("{\"op\":"), false);
    mr_put_slice(out, MR_SLICE("m"));
    mr_put_field(out, MR_SLICE(",\"ts_ms\":"), true);
    mr_put_long(out, mr_floor_div(now_us > source.time_us ? now_us : source.time_us, 1000));
    mr_put_field(out, MR_SLICE(",\"source\":"), false);
    mr_source_put(out, &source, MR_FIELD_SOURCE_VERSION, MR_FIELD_SOURCE_ORIGIN_LSN);
    mr_put_json(out, MR_SLICE("}"));
    if (transaction != NULL && encoder->transaction.topic != NULL) {
        struct mr_transaction_counts *counts = &encoder->transaction;
        mr_transaction_add(counts, &counts->messages, NULL, NULL, 0);
        mr_transaction_block(out, counts, &counts->messages, transaction->xid, message->lsn, 0);
    } else {
        no_transaction(out);
    }
    mr_put_field(out, MR_SLICE(",\"message\":"), false);
    mr_message_content(out, encoder, message);
    mr_put_json(out, MR_SLICE("}"));
}

void mr_message_key(struct mr_buffer *out, const struct mr_message_event *message,
                    struct mr_record *record)
{
    record->key = out->at;
    MR_BUFFER_LITERAL(out, "{\"prefix\":");
    mr_row_key_text(out, message->prefix.data, message->prefix.len);
    MR_BUFFER_LITERAL(out, "}");
    record->value = out->at;
    record->key_len = (uint32_t)(record->value - record->key);
}

bool mr_debezium_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                         struct mr_buffer *out, struct mr_record *ret_record)
{
    struct mr_record record = mr_message_record(encoder, message);
    mr_message_key(out, message, &record);
    mr_message_envelope(out, encoder, message);
    record.value_len = (uint32_t)(out->at - record.value);
    mr_transaction_headers(out, message->transaction, &record);
    *ret_record = record;
    return true;
}

const struct mr_form_ops mr_form_debezium = {
    .ends_rows = true, .change = debezium_change, .message = mr_debezium_message};
