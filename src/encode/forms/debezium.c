/* Debezium's change events, without schemas: `before, after, source, transaction, op, ts_ms, ts_us, ts_ns`.
 *
 * The order of fields and the form of each are those of Debezium 3.7 for PostgreSQL with Kafka Connect's
 * JsonConverter and schemas.enable=false. */
#include <inttypes.h>

#include "base/json.h"
#include "encode/values/row.h"

static void append_field_u64(struct mr_buffer *out, const char *name, uint64_t value)
{
    mr_buffer_append(out, name, strlen(name));
    mr_json_u64(out, value);
}

static void append_field_i64(struct mr_buffer *out, const char *name, int64_t value)
{
    mr_buffer_append(out, name, strlen(name));
    mr_json_i64(out, value);
}

static mr_slice text_since(const struct mr_buffer *out, const uint8_t *begin)
{
    return (mr_slice){.data = begin, .len = (size_t)(out->at - begin)};
}

const char *mr_mark_text(enum mr_copy_mark mark)
{
    static const char *const texts[] = {
        [MR_COPY_NONE] = "false",
        [MR_COPY_FIRST] = "first",
        [MR_COPY_FIRST_IN_TABLE] = "first_in_data_collection",
        [MR_COPY_ROW] = "true",
        [MR_COPY_LAST_IN_TABLE] = "last_in_data_collection",
        [MR_COPY_LAST] = "last",
        [MR_COPY_INCREMENTAL] = "incremental",
    };
    return texts[mark];
}

/* The source block up to the first place of the change's LSN: inside `"sequence":"[…,\"` */
static void source_head(struct mr_buffer *out, const struct mr_encoder *encoder,
                        int64_t commit_time_us, mr_lsn last_commit_lsn, enum mr_copy_mark mark)
{
    MR_BUFFER_LITERAL(out, ",\"source\":{\"version\":\"" MR_VERSION
                           "\",\"connector\":\"postgresql\",\"name\":\"");
    mr_buffer_append(out, encoder->prefix.data, encoder->prefix.len);
    append_field_i64(out, "\",\"ts_ms\":", mr_floor_div(commit_time_us, 1000));
    MR_BUFFER_LITERAL(out, ",\"snapshot\":\"");
    mr_buffer_slice(out, mr_slice_of(mr_mark_text(mark)));
    MR_BUFFER_LITERAL(out, "\",\"db\":\"");
    mr_buffer_append(out, encoder->database.data, encoder->database.len);
    MR_BUFFER_LITERAL(out, "\",\"sequence\":\"[");
    if (last_commit_lsn == 0) {
        MR_BUFFER_LITERAL(out, "null,\\\"");
    } else {
        MR_BUFFER_LITERAL(out, "\\\"");
        mr_json_u64(out, last_commit_lsn);
        MR_BUFFER_LITERAL(out, "\\\",\\\"");
    }
}

/* From there to the second place of the LSN: the value of `"lsn":` */
static void source_middle(struct mr_buffer *out, const char *schema, const char *table,
                          int64_t commit_time_us, uint32_t xid, bool has_xid)
{
    append_field_i64(out, "\\\"]\",\"ts_us\":", commit_time_us);
    append_field_i64(out, ",\"ts_ns\":", commit_time_us * 1000);
    MR_BUFFER_LITERAL(out, ",\"schema\":");
    mr_json_string(out, (const uint8_t *)schema, strlen(schema));
    MR_BUFFER_LITERAL(out, ",\"table\":");
    mr_json_string(out, (const uint8_t *)table, strlen(table));
    if (has_xid) {
        append_field_u64(out, ",\"txId\":", xid);
    } else {
        MR_BUFFER_LITERAL(out, ",\"txId\":null");
    }
    MR_BUFFER_LITERAL(out, ",\"lsn\":");
}

/* From the LSN to the end of the block. */
static void source_tail(struct mr_buffer *out, mr_slice origin, mr_lsn origin_lsn)
{
    MR_BUFFER_LITERAL(out, ",\"xmin\":null,\"origin\":");
    if (origin.len == 0) {
        MR_BUFFER_LITERAL(out, "null,\"origin_lsn\":null}");
    } else {
        mr_json_string(out, origin.data, origin.len);
        append_field_u64(out, ",\"origin_lsn\":", origin_lsn);
        MR_BUFFER_LITERAL(out, "}");
    }
}

/* What all changes of a relation in one transaction share is rendered once a transaction. */
static void render_transaction(struct mr_encoder *encoder, struct mr_plan *plan,
                               const struct mr_change *change)
{
    const struct mr_transaction *transaction = change->transaction;
    const struct mr_relation *relation = plan->relation;
    mr_encoder_set_commit_time(encoder, transaction->commit_time_us);
    plan->rendered_commit_lsn = transaction->commit_lsn;
    plan->rendered_mark = change->copy_mark;
    if (encoder->options.format == MR_FORMAT_ROW) {
        return; /* it has no such parts */
    }
    size_t size =
        1024 + encoder->prefix.len + encoder->database.len +
        6 * (strlen(relation->schema) + strlen(relation->table) + transaction->origin.len);
    struct mr_buffer out = mr_text_begin(&plan->rendered, size);
    out.splits_astral = encoder->options.types == MR_TYPES_DEBEZIUM;
    const uint8_t *begin = out.at;
    source_head(&out, encoder, transaction->commit_time_us, transaction->last_commit_lsn,
                change->copy_mark);
    plan->head = text_since(&out, begin);
    begin = out.at;
    source_middle(&out, relation->schema, relation->table, transaction->commit_time_us,
                  transaction->xid, true);
    plan->middle = text_since(&out, begin);
    begin = out.at;
    source_tail(&out, transaction->origin, transaction->origin_lsn);
    plan->ends_open = plan->tells_transaction && change->copy_mark == MR_COPY_NONE;
    if (plan->ends_open) {
        mr_transaction_head(&out, transaction->xid);
    } else {
        MR_BUFFER_LITERAL(&out, ",\"transaction\":null,\"op\":\"");
    }
    plan->tail = text_since(&out, begin);
    MR_ASSERT(!out.full);
}

char mr_op_letter(enum mr_op op)
{
    switch (op) {
    case MR_OP_INSERT:
        return 'c';
    case MR_OP_UPDATE:
        return 'u';
    case MR_OP_DELETE:
        return 'd';
    case MR_OP_TRUNCATE:
        return 't';
    case MR_OP_READ:
        return 'r';
    case MR_OP_MESSAGE:
        break;
    }
    return 'm';
}

static const struct mr_tuple no_tuple = {.kind = MR_TUPLE_NONE, .values = NULL};

static void write_row(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                      const struct mr_tuple *row, const struct mr_tuple *old)
{
    if (row->kind == MR_TUPLE_NONE) {
        MR_BUFFER_LITERAL(out, "null");
    } else {
        mr_row_object(out, encoder, plan, row, old);
    }
}

static struct mr_cloud_event cloud_event_of(const struct mr_change *change, enum mr_op op,
                                            uint32_t part)
{
    const struct mr_transaction *transaction = change->transaction;
    return (struct mr_cloud_event){
        .schema = change->relation->schema,
        .table = change->relation->table,
        .op = mr_op_letter(op),
        .mark = change->copy_mark,
        .lsn = change->lsn,
        .last_commit_lsn = transaction->last_commit_lsn,
        .time_us = transaction->commit_time_us,
        .xid = transaction->xid,
        .has_xid = true,
        .origin = transaction->origin,
        .origin_lsn = transaction->origin_lsn,
        .position = change->position,
        .part = part,
    };
}

/* What there is besides key and rows to say in a record of a change. */
struct told {
    enum mr_op op;
    uint32_t part;
    const char *other_name; /* of the header with the key that the row has elsewhere; NULL: none */
    mr_slice other_key;
    bool is_tombstone; /* that follows its delete */
};

/* The value of a CloudEvent: `before` and `after` as its data. */
static void write_cloud_event(struct mr_buffer *out, struct mr_encoder *encoder,
                              const struct mr_plan *plan, const struct mr_change *change,
                              const struct told *told, const struct mr_tuple *before,
                              const struct mr_tuple *after)
{
    struct mr_cloud_event event = cloud_event_of(change, told->op, told->part);
    mr_cloud_begin(out, encoder, &event);
    MR_BUFFER_LITERAL(out, "{\"before\":");
    write_row(out, encoder, plan, before, NULL);
    MR_BUFFER_LITERAL(out, ",\"after\":");
    write_row(out, encoder, plan, after, &change->before);
    mr_row_missing(out, encoder, plan);
    MR_BUFFER_LITERAL(out, "}");
    mr_cloud_end(out, encoder);
}

/* A changed key makes two events, a delete and a create. */
__attribute__((cold)) static void end_transaction(struct mr_buffer *out, struct mr_encoder *encoder,
                                                  struct mr_plan *plan,
                                                  const struct mr_change *change, enum mr_op op)
{
    struct mr_transaction_counts *counts = &encoder->transaction;
    bool is_second = op == MR_OP_INSERT && change->op == MR_OP_UPDATE &&
                     (plan->operations & (1u << MR_OP_DELETE)) != 0;
    mr_transaction_add(counts, &plan->slot, plan->relation->schema, plan->relation->table, 0);
    mr_transaction_block(out, counts, &plan->slot, change->lsn, is_second);
    MR_BUFFER_LITERAL(out, ",\"op\":\"");
}

static void write_envelope(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                           const struct mr_change *change, enum mr_op op,
                           const struct mr_tuple *before, const struct mr_tuple *after)
{
    MR_BUFFER_LITERAL(out, "{\"before\":");
    write_row(out, encoder, plan, before, NULL);
    MR_BUFFER_LITERAL(out, ",\"after\":");
    write_row(out, encoder, plan, after, &change->before);
    mr_row_missing(out, encoder, plan);
    mr_buffer_slice(out, plan->head);
    const uint8_t *lsn_begin = out->at;
    mr_json_u64(out, change->lsn);
    size_t lsn_len = (size_t)(out->at - lsn_begin);
    mr_buffer_slice(out, plan->middle);
    mr_buffer_append(out, lsn_begin, lsn_len);
    mr_buffer_slice(out, plan->tail);
    if (MR_UNLIKELY(plan->ends_open)) {
        end_transaction(out, encoder, plan, change, op);
    }
    mr_buffer_append(out, (const char[]){mr_op_letter(op), '"', ','}, 3);
    mr_buffer_append(out, encoder->clock.data, encoder->clock.len);
}

/* The key of the row, written once; delete, tombstone and create share or repeat it as they need. */
static mr_slice write_key(struct mr_buffer *out, struct mr_encoder *encoder,
                          const struct mr_plan *plan, const struct mr_tuple *row,
                          const struct mr_tuple *old)
{
    if (plan->key_count == 0 || row->kind == MR_TUPLE_NONE) {
        return (mr_slice){0};
    }
    const uint8_t *begin = out->at;
    mr_row_key_object(out, encoder, plan, row, old);
    return text_since(out, begin);
}

static struct mr_record record_with(const struct mr_plan *plan, const struct mr_change *change,
                                    uint32_t part, mr_slice key, const uint8_t *value,
                                    const struct mr_buffer *out)
{
    struct mr_record record = mr_record_of(plan, change, part);
    record.key = key.data;
    record.key_len = (uint32_t)key.len;
    record.value = value;
    record.value_len = value == NULL ? 0 : (uint32_t)(out->at - value);
    return record;
}

/* The key of the row as it was (`old`) or is. */
static mr_slice write_key_of(struct mr_buffer *out, struct mr_encoder *encoder,
                             const struct mr_plan *plan, const struct mr_change *change, bool old)
{
    const struct mr_tuple *before = &change->before;
    return old ? write_key(out, encoder, plan, before, NULL)
               : write_key(out, encoder, plan, &change->after, before);
}

static void append_other_key(struct mr_buffer *out, const struct told *told)
{
    if (told->other_name != NULL) {
        mr_header_append(out, told->other_name, told->other_key);
    }
}

/* The headers of the record that was just written, which is a CloudEvent or a bare row, or has another key to tell. */
__attribute__((cold)) static void write_headers(struct mr_encoder *encoder,
                                                const struct mr_change *change,
                                                const struct told *told, struct mr_buffer *out,
                                                struct mr_record *record)
{
    uint8_t *block = mr_headers_begin(out, NULL);
    if (encoder->options.format == MR_FORMAT_CLOUDEVENTS && record->value != NULL) {
        struct mr_cloud_event event = cloud_event_of(change, told->op, told->part);
        mr_cloud_headers(out, encoder, &event);
        record->kind = mr_cloud_kind(encoder);
    }
    append_other_key(out, told);
    if (encoder->options.format == MR_FORMAT_ROW) {
        mr_bare_headers(out, encoder, change, told->op, told->is_tombstone);
    }
    mr_headers_end(out, block);
    record->has_headers = true;
}

/* Whether a record in the form at hand has headers of its own, even without another key to tell. */
static bool has_headers(const struct mr_encode_options *options)
{
    return options->format == MR_FORMAT_CLOUDEVENTS || options->bare.header_count > 0;
}

/* Writes the value, and the headers behind it if there are any. */
static inline __attribute__((always_inline)) void
write_record(struct mr_encoder *encoder, struct mr_plan *plan, const struct mr_change *change,
             const struct told *told, mr_slice key, const struct mr_tuple *before,
             const struct mr_tuple *after, struct mr_buffer *out, struct mr_record *ret_record)
{
    const uint8_t *value = out->at;
    bool is_other = encoder->options.format > MR_FORMAT_AVRO; /* which is made of the envelope */
    if (MR_LIKELY(!is_other)) {
        write_envelope(out, encoder, plan, change, told->op, before, after);
    } else if (encoder->options.format == MR_FORMAT_ROW) {
        mr_bare_value(out, encoder, plan, change, told->op);
    } else {
        write_cloud_event(out, encoder, plan, change, told, before, after);
    }
    *ret_record = record_with(plan, change, told->part, key, value, out);
    if (MR_UNLIKELY((is_other && has_headers(&encoder->options)) || told->other_name != NULL)) {
        write_headers(encoder, change, told, out, ret_record);
    }
}

/* A delete and, if wanted, its tombstone. `moved`: the row goes on under another key, which is told. */
static uint32_t write_delete(struct mr_encoder *encoder, struct mr_plan *plan,
                             const struct mr_change *change, bool moved, struct mr_buffer *out,
                             struct mr_record *ret_records)
{
    struct mr_delete_form form = mr_delete_form(&encoder->options);
    if (!form.has_value && !form.has_tombstone) {
        return 0;
    }
    struct told told = {.op = MR_OP_DELETE};
    if (moved) {
        told.other_name = MR_HEADER_NEW_KEY;
        told.other_key = write_key_of(out, encoder, plan, change, false);
    }
    mr_slice key = write_key_of(out, encoder, plan, change, true);
    struct mr_record tombstone = record_with(plan, change, form.has_value, key, NULL, out);
    /* A tombstone without a key means nothing, and a compacted topic refuses it. */
    form.has_tombstone &= key.data != NULL;
    if (form.has_tombstone && (moved || encoder->options.bare.header_count > 0)) {
        told.is_tombstone = form.has_value;
        write_headers(encoder, change, &told, out, &tombstone);
        told.is_tombstone = false;
    }
    if (form.has_value) {
        write_record(encoder, plan, change, &told, key, &change->before, &no_tuple, out,
                     &ret_records[0]);
    }
    if (form.has_tombstone) {
        ret_records[form.has_value] = tombstone;
    }
    return (uint32_t)form.has_value + form.has_tombstone;
}

uint32_t mr_debezium_change(struct mr_encoder *encoder, struct mr_plan *plan,
                            const struct mr_change *change, struct mr_buffer *out,
                            struct mr_record *ret_records)
{
    if (plan->rendered_commit_lsn != change->transaction->commit_lsn ||
        MR_UNLIKELY(plan->rendered_mark != change->copy_mark)) {
        render_transaction(encoder, plan, change);
    }
    if (change->op == MR_OP_DELETE) {
        return write_delete(encoder, plan, change, false, out, ret_records);
    }
    struct told told = {.op = change->op};
    const struct mr_tuple *before = &change->before;
    if (told.op == MR_OP_UPDATE && mr_key_changed(encoder, plan, change)) {
        /* A new key is a new entity to whoever folds the topic: the old one ends, the new one begins. */
        bool moved = encoder->options.types == MR_TYPES_DEBEZIUM;
        if ((plan->operations & (1u << MR_OP_DELETE)) != 0) {
            told.part = write_delete(encoder, plan, change, moved, out, ret_records);
        }
        if ((plan->operations & (1u << MR_OP_INSERT)) == 0) {
            return told.part;
        }
        told.op = MR_OP_INSERT;
        before = &no_tuple;
        if (moved) {
            told.other_name = MR_HEADER_OLD_KEY;
            told.other_key = write_key_of(out, encoder, plan, change, true);
        }
    }
    mr_slice key = write_key_of(out, encoder, plan, change, false);
    write_record(encoder, plan, change, &told, key, before, &change->after, out,
                 &ret_records[told.part]);
    return told.part + 1;
}

static void write_message(struct mr_buffer *out, const struct mr_encoder *encoder,
                          const struct mr_message_event *message)
{
    MR_BUFFER_LITERAL(out, "\"message\":{\"prefix\":");
    mr_json_string(out, message->prefix.data, message->prefix.len);
    MR_BUFFER_LITERAL(out, ",\"content\":");
    mr_convert_binary(out, encoder->options.modes.binary, message->content.data,
                      message->content.len);
    MR_BUFFER_LITERAL(out, "}");
}

static void write_message_envelope(struct mr_buffer *out, struct mr_encoder *encoder,
                                   const struct mr_message_event *message, int64_t time_us)
{
    const struct mr_transaction *transaction = message->transaction;
    int64_t made_us = encoder->now_ns / 1000 > time_us ? encoder->now_ns / 1000 : time_us;
    append_field_i64(out, "{\"op\":\"m\",\"ts_ms\":", mr_floor_div(made_us, 1000));
    source_head(out, encoder, time_us, transaction != NULL ? transaction->last_commit_lsn : 0,
                MR_COPY_NONE);
    mr_json_u64(out, message->lsn);
    source_middle(out, "", "", time_us, transaction != NULL ? transaction->xid : 0,
                  transaction != NULL);
    mr_json_u64(out, message->lsn);
    source_tail(out, (mr_slice){0}, 0);
    if (transaction != NULL && encoder->transaction.topic != NULL) {
        struct mr_transaction_counts *counts = &encoder->transaction;
        mr_transaction_add(counts, &counts->messages, NULL, NULL, 0);
        mr_transaction_head(out, transaction->xid);
        mr_transaction_block(out, counts, &counts->messages, message->lsn, 0);
        MR_BUFFER_LITERAL(out, ",");
    } else {
        MR_BUFFER_LITERAL(out, ",\"transaction\":null,");
    }
    write_message(out, encoder, message);
    MR_BUFFER_LITERAL(out, "}");
}

uint32_t mr_debezium_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                             struct mr_buffer *out, struct mr_record *ret_records)
{
    const struct mr_transaction *transaction = message->transaction;
    bool has_xid = transaction != NULL;
    bool is_cloud = encoder->options.format == MR_FORMAT_CLOUDEVENTS;
    struct mr_record record = {
        .topic = encoder->message_topic,
        .key = out->at,
        .position = message->position,
        .commit_time_us = has_xid ? transaction->commit_time_us : encoder->now_ns / 1000,
        .xid = has_xid ? transaction->xid : 0,
        .has_headers = is_cloud,
    };
    struct mr_cloud_event event = {
        .schema = "",
        .table = "",
        .op = 'm',
        .lsn = message->lsn,
        .last_commit_lsn = has_xid ? transaction->last_commit_lsn : 0,
        .time_us = record.commit_time_us,
        .xid = record.xid,
        .has_xid = has_xid,
        .position = message->position,
    };
    MR_BUFFER_LITERAL(out, "{\"prefix\":");
    mr_row_key_text(out, message->prefix.data, message->prefix.len);
    MR_BUFFER_LITERAL(out, "}");
    record.value = out->at;
    record.key_len = (uint32_t)(record.value - record.key);
    if (is_cloud) {
        mr_cloud_begin(out, encoder, &event);
        MR_BUFFER_LITERAL(out, "{");
        write_message(out, encoder, message);
        MR_BUFFER_LITERAL(out, "}");
        mr_cloud_end(out, encoder);
    } else {
        write_message_envelope(out, encoder, message, record.commit_time_us);
    }
    record.value_len = (uint32_t)(out->at - record.value);
    if (is_cloud) {
        uint8_t *block = mr_headers_begin(out, NULL);
        mr_cloud_headers(out, encoder, &event);
        mr_headers_end(out, block);
        record.kind = mr_cloud_kind(encoder);
    }
    ret_records[0] = record;
    return 1;
}
