/* Rows without an envelope: what Debezium's ExtractNewRecordState makes of its events (3.7, ExtractNewRecordState.doApply,
 * DefaultDeleteHandlingStrategy), with fields of the envelope added to value and headers. */
#include "base/json.h"
#include "encode/forms/skeleton.h"

/* More than any field has: names, the name of a replication origin (512 bytes: origin.h, MAX_RONAME_LEN). */
enum { HEADER_BYTES_MAX = 1024 };

/* In the order in which a name without its part is looked for (AbstractExtractNewRecordState.FieldReference). */
static const struct {
    const char *part, *name;
} fields[] = {
    [MR_FIELD_OP] = {"", "op"},
    [MR_FIELD_TS_MS] = {"", "ts_ms"},
    [MR_FIELD_TS_US] = {"", "ts_us"},
    [MR_FIELD_TS_NS] = {"", "ts_ns"},
    [MR_FIELD_SOURCE_VERSION] = {"source", "version"},
    [MR_FIELD_SOURCE_CONNECTOR] = {"source", "connector"},
    [MR_FIELD_SOURCE_NAME] = {"source", "name"},
    [MR_FIELD_SOURCE_TS_MS] = {"source", "ts_ms"},
    [MR_FIELD_SOURCE_SNAPSHOT] = {"source", "snapshot"},
    [MR_FIELD_SOURCE_DB] = {"source", "db"},
    [MR_FIELD_SOURCE_SEQUENCE] = {"source", "sequence"},
    [MR_FIELD_SOURCE_TS_US] = {"source", "ts_us"},
    [MR_FIELD_SOURCE_TS_NS] = {"source", "ts_ns"},
    [MR_FIELD_SOURCE_SCHEMA] = {"source", "schema"},
    [MR_FIELD_SOURCE_TABLE] = {"source", "table"},
    [MR_FIELD_SOURCE_TXID] = {"source", "txId"},
    [MR_FIELD_SOURCE_LSN] = {"source", "lsn"},
    [MR_FIELD_SOURCE_XMIN] = {"source", "xmin"},
    [MR_FIELD_SOURCE_ORIGIN] = {"source", "origin"},
    [MR_FIELD_SOURCE_ORIGIN_LSN] = {"source", "origin_lsn"},
};

bool mr_event_field_find(mr_slice text, enum mr_event_field *ret_field, bool *ret_has_part)
{
    const uint8_t *dot = memchr(text.data, '.', text.len);
    size_t part_len = dot == NULL ? 0 : (size_t)(dot - text.data);
    mr_slice part = {.data = text.data, .len = part_len};
    mr_slice name = {.data = text.data + part_len + (dot != NULL),
                     .len = text.len - part_len - (dot != NULL)};
    for (size_t i = 0; i < MR_ARRAY_LEN(fields); i++) {
        bool fits = dot == NULL || mr_slice_equal(part, mr_slice_of(fields[i].part));
        if (fits && mr_slice_equal(name, mr_slice_of(fields[i].name))) {
            *ret_field = (enum mr_event_field)i;
            *ret_has_part = dot != NULL;
            return true;
        }
    }
    return false;
}

/* ---- fields ---- */

/* Text of a field: as JSON, or bare. */
static void write_string(struct mr_buffer *out, mr_slice text, bool bare)
{
    if (bare) {
        mr_buffer_slice(out, text);
    } else {
        mr_json_string(out, text.data, text.len);
    }
}

/* `[null,"123"]`, the text of a list. */
static void write_sequence(struct mr_buffer *out, const struct mr_change *change, bool bare)
{
    mr_lsn last = change->transaction->last_commit_lsn;
    mr_slice quote = bare ? MR_SLICE("\"") : MR_SLICE("\\\"");
    mr_buffer_append(out, "\"", !bare);
    MR_BUFFER_LITERAL(out, "[");
    if (last == 0) {
        MR_BUFFER_LITERAL(out, "null");
    } else {
        mr_buffer_slice(out, quote);
        mr_json_u64(out, last);
        mr_buffer_slice(out, quote);
    }
    MR_BUFFER_LITERAL(out, ",");
    mr_buffer_slice(out, quote);
    mr_json_u64(out, change->lsn);
    mr_buffer_slice(out, quote);
    MR_BUFFER_LITERAL(out, "]");
    mr_buffer_append(out, "\"", !bare);
}

static void write_time(struct mr_buffer *out, enum mr_event_field field,
                       const struct mr_encoder *encoder)
{
    int64_t made_ns = encoder->stamp.now_ns > encoder->stamp.commit_ns ? encoder->stamp.now_ns
                                                                       : encoder->stamp.commit_ns;
    int64_t unit = field == MR_FIELD_TS_MS ? 1000000 : field == MR_FIELD_TS_US ? 1000 : 1;
    mr_json_i64(out, made_ns / unit);
}

/* False: the field is null. */
static bool write_field(struct mr_buffer *out, enum mr_event_field field,
                        const struct mr_encoder *encoder, const struct mr_change *change,
                        enum mr_op op, bool bare)
{
    const struct mr_transaction *transaction = change->transaction;
    switch (field) {
    case MR_FIELD_OP:
        write_string(
            out, (mr_slice){.data = (const uint8_t[]){(uint8_t)mr_op_letter(op)}, .len = 1}, bare);
        return true;
    case MR_FIELD_TS_MS:
    case MR_FIELD_TS_US:
    case MR_FIELD_TS_NS:
        write_time(out, field, encoder);
        return true;
    case MR_FIELD_SOURCE_VERSION:
        write_string(out, MR_SLICE(MR_VERSION), bare);
        return true;
    case MR_FIELD_SOURCE_CONNECTOR:
        write_string(out, MR_SLICE("postgresql"), bare);
        return true;
    case MR_FIELD_SOURCE_NAME:
        write_string(out, mr_slice_of(encoder->options.topic_prefix), bare);
        return true;
    case MR_FIELD_SOURCE_TS_MS:
        mr_json_i64(out, mr_floor_div(transaction->commit_time_us, 1000));
        return true;
    case MR_FIELD_SOURCE_TS_US:
        mr_json_i64(out, transaction->commit_time_us);
        return true;
    case MR_FIELD_SOURCE_TS_NS:
        mr_json_i64(out, transaction->commit_time_us * 1000);
        return true;
    case MR_FIELD_SOURCE_SNAPSHOT:
        /* "false" is a default, which added fields don't have. */
        write_string(out, mr_slice_of(mr_mark_text(change->copy_mark)), bare);
        return change->copy_mark != MR_COPY_NONE;
    case MR_FIELD_SOURCE_DB:
        write_string(out, mr_slice_of(encoder->database), bare);
        return true;
    case MR_FIELD_SOURCE_SEQUENCE:
        write_sequence(out, change, bare);
        return true;
    case MR_FIELD_SOURCE_SCHEMA:
        write_string(out, mr_slice_of(change->relation->schema), bare);
        return true;
    case MR_FIELD_SOURCE_TABLE:
        write_string(out, mr_slice_of(change->relation->table), bare);
        return true;
    case MR_FIELD_SOURCE_TXID:
        mr_json_u64(out, transaction->xid);
        return true;
    case MR_FIELD_SOURCE_LSN:
        mr_json_u64(out, change->lsn);
        return true;
    case MR_FIELD_SOURCE_XMIN:
        return false;
    case MR_FIELD_SOURCE_ORIGIN:
        if (transaction->origin.len == 0) {
            return false;
        }
        write_string(out, transaction->origin, bare);
        return true;
    case MR_FIELD_SOURCE_ORIGIN_LSN:
        mr_json_u64(out, transaction->origin_lsn);
        return transaction->origin.len > 0;
    }
    return false;
}

static void add_field(struct mr_buffer *out, const struct mr_added_field *field,
                      const struct mr_encoder *encoder, const struct mr_change *change,
                      enum mr_op op)
{
    MR_BUFFER_LITERAL(out, ",");
    mr_json_string(out, (const uint8_t *)field->name, strlen(field->name));
    MR_BUFFER_LITERAL(out, ":");
    struct mr_buffer begin = *out;
    if (!write_field(out, field->field, encoder, change, op, false)) {
        *out = begin;
        MR_BUFFER_LITERAL(out, "null");
    }
}

/* ---- records ---- */

static bool rewrites(const struct mr_bare_options *options)
{
    return options->deletes == MR_DELETE_REWRITE ||
           options->deletes == MR_DELETE_REWRITE_WITH_TOMBSTONE;
}

/* MR_ERR_CONFIG: a column has the name of an added field. */
static mr_status bare_plan(struct mr_encoder *encoder, struct mr_plan *plan,
                           struct mr_error *ret_error)
{
    const struct mr_bare_options *bare = &encoder->options.bare;
    const struct mr_relation *relation = plan->relation;
    plan->operations &= ~(1u << MR_OP_TRUNCATE); /* which has no row */
    for (uint32_t i = 0; i < relation->column_count; i++) {
        const char *name = relation->columns[i].name;
        bool taken = rewrites(bare) && strcmp(name, "__deleted") == 0;
        for (uint32_t k = 0; k < bare->field_count; k++) {
            taken |= strcmp(name, bare->fields[k].name) == 0;
        }
        if (taken && plan->columns[i].writer != MR_WRITE_ABSENT) {
            return mr_fail(ret_error, MR_ERR_CONFIG,
                           "column \"%s\" of table %s.%s has the name of a field that is added to "
                           "its rows; set row.add_fields_prefix, or give the field a name of its "
                           "own (\"source.lsn:name\")",
                           name, relation->schema, relation->table);
        }
    }
    return MR_OK;
}

/* The row with the added fields: of a delete the old one. */
static void bare_value(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                       const struct mr_change *change, const struct mr_event *event)
{
    const struct mr_bare_options *options = &encoder->options.bare;
    bool deletes = event->op == MR_OP_DELETE;
    if (deletes && options->deletes == MR_DELETE_NULL) {
        MR_BUFFER_LITERAL(out, "null");
        return;
    }
    uint8_t *begin = out->at;
    mr_row_columns(out, encoder, plan, deletes ? &change->before : &change->after,
                   deletes ? NULL : &change->before);
    mr_row_missing(out, encoder, plan);
    if (rewrites(options)) {
        mr_buffer_slice(out, deletes ? MR_SLICE(",\"__deleted\":\"true\"")
                                     : MR_SLICE(",\"__deleted\":\"false\""));
    }
    for (uint32_t i = 0; i < options->field_count; i++) {
        add_field(out, &options->fields[i], encoder, change, event->op);
    }
    mr_row_close(out, begin);
}

static bool has_headers(const struct mr_encoder *encoder, const struct mr_record *record)
{
    (void)record;
    return encoder->options.bare.header_count > 0;
}

/* A tombstone that follows its delete has nothing but the operation. */
static void bare_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                         const struct mr_change *change, const struct mr_event *event,
                         struct mr_record *record)
{
    const struct mr_bare_options *options = &encoder->options.bare;
    uint8_t bytes[HEADER_BYTES_MAX];
    (void)record;
    mr_append_other_key(out, event);
    for (uint32_t i = 0; i < options->header_count; i++) {
        const struct mr_added_field *field = &options->headers[i];
        struct mr_buffer text = mr_buffer_init(bytes, sizeof(bytes));
        if ((!event->is_tombstone || field->field == MR_FIELD_OP) &&
            write_field(&text, field->field, encoder, change, event->op, true) && !text.full) {
            mr_header_append(out, field->name, mr_text_since(&text, bytes));
        }
    }
}

static struct mr_delete_form bare_deletes(const struct mr_encode_options *options)
{
    enum mr_delete_mode mode = options->bare.deletes;
    return (struct mr_delete_form){
        .has_value = mode != MR_DELETE_DROP && mode != MR_DELETE_TO_TOMBSTONE,
        .has_tombstone = mode == MR_DELETE_TO_TOMBSTONE ||
                         (mode == MR_DELETE_REWRITE_WITH_TOMBSTONE && options->tombstones)};
}

static mr_status bare_change(struct mr_encoder *encoder, struct mr_plan *plan,
                             const struct mr_change *change, struct mr_buffer *out,
                             struct mr_record *ret_records, uint32_t *ret_count,
                             struct mr_error *ret_error)
{
    static const struct mr_skeleton form = {.key = mr_row_key_object,
                                            .value = bare_value,
                                            .headers = bare_headers,
                                            .has_headers = has_headers,
                                            .deletes = bare_deletes};
    (void)ret_error;
    *ret_count = mr_skeleton_change(&form, encoder, plan, change, out, ret_records);
    return MR_OK;
}

const struct mr_form_ops mr_form_row = {
    .ends_rows = true, .plan = bare_plan, .change = bare_change, .message = mr_debezium_message};
