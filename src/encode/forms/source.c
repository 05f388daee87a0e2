/* What stands around a row in Debezium's events, field by field, for all forms that say it. */
#include "encode/forms/form.h"
#include "encode/values/put.h"

static const char *mark_text(enum mr_copy_mark mark)
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

char mr_op_letter(enum mr_op op)
{
    static const char letters[] = {
        [MR_OP_INSERT] = 'c',   [MR_OP_UPDATE] = 'u',  [MR_OP_DELETE] = 'd',
        [MR_OP_TRUNCATE] = 't', [MR_OP_MESSAGE] = 'm', [MR_OP_READ] = 'r',
    };
    return letters[op];
}

struct mr_source mr_source_of_change(const struct mr_encoder *encoder,
                                     const struct mr_change *change, enum mr_op op)
{
    const struct mr_transaction *transaction = change->transaction;
    return (struct mr_source){.encoder = encoder,
                              .op = op,
                              .schema = change->relation->schema,
                              .table = change->relation->table,
                              .mark = change->copy_mark,
                              .lsn = change->lsn,
                              .last_commit_lsn = transaction->last_commit_lsn,
                              .time_us = transaction->commit_time_us,
                              .xid = transaction->xid,
                              .has_xid = true,
                              .origin = transaction->origin,
                              .origin_lsn = transaction->origin_lsn};
}

struct mr_source mr_source_of_message(const struct mr_encoder *encoder,
                                      const struct mr_message_event *message)
{
    const struct mr_transaction *transaction = message->transaction;
    bool has_transaction = transaction != NULL;
    return (struct mr_source){
        .encoder = encoder,
        .op = MR_OP_MESSAGE,
        .schema = "",
        .table = "",
        .lsn = message->lsn,
        .last_commit_lsn = has_transaction ? transaction->last_commit_lsn : 0,
        .time_us = has_transaction ? transaction->commit_time_us : encoder->stamp.now_ns / 1000,
        .xid = has_transaction ? transaction->xid : 0,
        .has_xid = has_transaction,
    };
}

mr_slice mr_source_sequence(uint8_t room[MR_SEQUENCE_MAX], mr_lsn last_commit_lsn)
{
    struct mr_buffer out = mr_buffer_init(room, MR_SEQUENCE_MAX);
    if (last_commit_lsn == 0) {
        MR_BUFFER_LITERAL(&out, "[null,\"");
    } else {
        MR_BUFFER_LITERAL(&out, "[\"");
        mr_json_u64(&out, last_commit_lsn);
        MR_BUFFER_LITERAL(&out, "\",\"");
    }
    return mr_text_since(&out, room);
}

static mr_slice whole_sequence(const struct mr_source *source, uint8_t room[MR_SEQUENCE_MAX])
{
    struct mr_buffer out = mr_buffer_init(room, MR_SEQUENCE_MAX);
    out.at += mr_source_sequence(room, source->last_commit_lsn).len;
    mr_json_u64(&out, source->lsn);
    MR_BUFFER_LITERAL(&out, "\"]");
    return mr_text_since(&out, room);
}

static mr_slice forms_source_text_of(const struct mr_source *source, enum mr_event_field field,
                                     uint8_t room[MR_SEQUENCE_MAX])
{
    switch (field) {
    case MR_FIELD_OP:
        room[0] = (uint8_t)mr_op_letter(source->op);
        return (mr_slice){.data = room, .len = 1};
    case MR_FIELD_SOURCE_VERSION:
        return MR_SLICE(MR_VERSION);
    case MR_FIELD_SOURCE_CONNECTOR:
        return MR_SLICE("postgresql");
    case MR_FIELD_SOURCE_NAME:
        return mr_slice_of(source->encoder->options.topic_prefix);
    case MR_FIELD_SOURCE_SNAPSHOT:
        return mr_slice_of(mark_text(source->mark));
    case MR_FIELD_SOURCE_DB:
        return mr_slice_of(source->encoder->database);
    case MR_FIELD_SOURCE_SEQUENCE:
        return whole_sequence(source, room);
    case MR_FIELD_SOURCE_SCHEMA:
        return mr_slice_of(source->schema);
    case MR_FIELD_SOURCE_TABLE:
        return mr_slice_of(source->table);
    default:
        return source->origin;
    }
}

static int64_t forms_source_number_of(const struct mr_source *source, enum mr_event_field field)
{
    const struct mr_stamp *stamp = &source->encoder->stamp;
    int64_t made_ns = stamp->now_ns > stamp->commit_ns ? stamp->now_ns : stamp->commit_ns;
    switch (field) {
    case MR_FIELD_TS_MS:
        return made_ns / 1000000;
    case MR_FIELD_TS_US:
        return made_ns / 1000;
    case MR_FIELD_TS_NS:
        return made_ns;
    case MR_FIELD_SOURCE_TS_MS:
        return mr_floor_div(source->time_us, 1000);
    case MR_FIELD_SOURCE_TS_US:
        return source->time_us;
    case MR_FIELD_SOURCE_TS_NS:
        return source->time_us * 1000;
    case MR_FIELD_SOURCE_TXID:
        return source->xid;
    case MR_FIELD_SOURCE_LSN:
        return (int64_t)source->lsn;
    default:
        return (int64_t)source->origin_lsn;
    }
}

struct mr_field_value mr_source_value(const struct mr_source *source, enum mr_event_field field,
                                      uint8_t room[MR_SEQUENCE_MAX])
{
    bool is_of_origin = field == MR_FIELD_SOURCE_ORIGIN || field == MR_FIELD_SOURCE_ORIGIN_LSN;
    struct mr_field_value value = {.is_null = field == MR_FIELD_SOURCE_XMIN ||
                                              (is_of_origin && source->origin.len == 0) ||
                                              (field == MR_FIELD_SOURCE_TXID && !source->has_xid)};
    if (mr_source_fields[field].is_text) {
        value.text = forms_source_text_of(source, field, room);
    } else {
        value.number = forms_source_number_of(source, field);
    }
    return value;
}

void mr_source_put_value(struct mr_buffer *out, const struct mr_source *source,
                         enum mr_event_field field)
{
    uint8_t room[MR_SEQUENCE_MAX];
    struct mr_field_value value = mr_source_value(source, field, room);
    if (value.is_null) {
        mr_put_null(out);
    } else if (mr_source_fields[field].is_text) {
        mr_put_slice(out, value.text);
    } else {
        mr_put_long(out, value.number);
    }
}

void mr_source_put(struct mr_buffer *out, const struct mr_source *source, enum mr_event_field first,
                   enum mr_event_field last)
{
    for (enum mr_event_field field = first; field <= last; field++) {
        mr_slice json = mr_slice_of(mr_source_fields[field].json);
        if (field == MR_FIELD_SOURCE_VERSION) { /* of the block */
            mr_put_json(out, MR_SLICE("{"));
            json = (mr_slice){.data = json.data + 1, .len = json.len - 1};
        }
        mr_put_field(out, json, mr_source_fields[field].nullable);
        mr_source_put_value(out, source, field);
    }
}

void mr_append_later(struct mr_buffer *out, const struct mr_change *change)
{
    const struct mr_later *later = change->transaction->later;
    mr_header_append(out, MR_HEADER_RESELECTED, MR_SLICE("later"));
    uint8_t *header = mr_header_begin(out, MR_HEADER_RESELECTED_COLUMNS);
    bool is_avro = out->is_avro;
    out->is_avro = false;
    for (uint32_t i = 0; i < later->count; i++) {
        const char *name = change->relation->columns[later->columns[i]].name;
        mr_buffer_append(out, i == 0 ? "[" : ",", 1);
        mr_put_slice(out, mr_slice_of(name));
    }
    MR_BUFFER_LITERAL(out, "]");
    out->is_avro = is_avro;
    mr_header_end(out, header);
}
