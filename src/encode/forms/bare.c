/* Rows without an envelope: what Debezium's ExtractNewRecordState makes of its events (3.7,
 * ExtractNewRecordState.doApply, DefaultDeleteHandlingStrategy), with fields of the envelope added
 * to value and headers. */
#include "encode/forms/connect.h"
#include "encode/forms/skeleton.h"
#include "encode/values/put.h"

/* "false" is a default of `snapshot`, which added fields don't have. */
static bool is_default(const struct mr_source *source, enum mr_event_field field)
{
    return field == MR_FIELD_SOURCE_SNAPSHOT && source->mark == MR_COPY_NONE;
}

static void add_field(struct mr_buffer *out, const struct mr_added_field *field,
                      const struct mr_source *source)
{
    MR_BUFFER_LITERAL(out, ",");
    mr_put_slice(out, mr_slice_of(field->name));
    MR_BUFFER_LITERAL(out, ":");
    if (is_default(source, field->field)) {
        MR_BUFFER_LITERAL(out, "null");
    } else {
        mr_source_put_value(out, source, field->field);
    }
}

static void add_header(struct mr_buffer *out, const struct mr_added_field *field,
                       const struct mr_source *source)
{
    uint8_t room[MR_SEQUENCE_MAX];
    struct mr_field_value value = mr_source_value(source, field->field, room);
    if (value.is_null || is_default(source, field->field)) {
        return;
    }
    uint8_t *header = mr_header_begin(out, field->name);
    if (mr_source_fields[field->field].is_text) {
        mr_buffer_slice(out, value.text);
    } else {
        mr_json_i64(out, value.number);
    }
    mr_header_end(out, header);
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
        bool taken = (mr_bare_rewrites(bare) && strcmp(name, "__deleted") == 0) ||
                     MR_ANY(field, bare->fields, bare->field_count, strcmp(name, field->name) == 0);
        if (taken && plan->columns[i].writer != MR_WRITE_ABSENT) {
            return mr_fail(ret_error, MR_ERR_CONFIG,
                           "column \"%s\" of table %s.%s has the name of a field that is added to "
                           "its rows; give the field a name of its own in row.add_fields "
                           "(\"source.lsn:name\")",
                           name, relation->schema, relation->table);
        }
    }
    if (encoder->options.json_schemas != MR_JSON_BARE) {
        plan->connect = mr_connect_new(&encoder->options, plan);
    }
    return MR_OK;
}

static void bare_key(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                     const struct mr_tuple *row, const struct mr_tuple *old)
{
    if (MR_UNLIKELY(plan->connect != NULL)) {
        mr_wrapped_key(out, encoder, plan, row, old);
    } else {
        mr_row_key_object(out, encoder, plan, row, old);
    }
}

/* The row with the added fields: of a delete the old one. */
static void bare_value(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                       const struct mr_change *change, const struct mr_event *event)
{
    const struct mr_bare_options *options = &encoder->options.bare;
    bool deletes = event->op == MR_OP_DELETE;
    bool wraps = MR_UNLIKELY(plan->connect != NULL) &&
                 (encoder->options.json_schemas & MR_JSON_VALUE_SCHEMA) != 0;
    if (deletes && options->deletes == MR_DELETE_NULL) {
        mr_buffer_slice(out, wraps ? plan->connect->end : MR_SLICE("null"));
        return;
    }
    mr_connect_begin(out, wraps, wraps ? plan->connect->row : MR_SLICE(""));
    out->is_typed = plan->connect != NULL;
    uint8_t *begin = out->at;
    mr_row_columns(out, encoder, plan, deletes ? &change->before : &change->after,
                   deletes ? NULL : &change->before);
    mr_row_missing(out, encoder, plan);
    if (mr_bare_rewrites(options)) {
        mr_buffer_slice(out, deletes ? MR_SLICE(",\"__deleted\":\"true\"")
                                     : MR_SLICE(",\"__deleted\":\"false\""));
    }
    const struct mr_source source = mr_source_of_change(encoder, change, event->op);
    for (uint32_t i = 0; i < options->field_count; i++) {
        add_field(out, &options->fields[i], &source);
    }
    mr_row_close(out, begin);
    mr_connect_end(out, wraps);
    out->is_typed = false;
}

static bool bare_has_headers(const struct mr_encoder *encoder,
                             __attribute__((unused)) const struct mr_record *record)
{
    return encoder->options.bare.header_count > 0;
}

/* A tombstone that follows its delete has nothing but the operation. */
static void bare_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                         const struct mr_change *change, const struct mr_event *event,
                         __attribute__((unused)) struct mr_record *record)
{
    const struct mr_bare_options *options = &encoder->options.bare;
    const struct mr_source source = mr_source_of_change(encoder, change, event->op);
    mr_append_own(out, change, event);
    for (uint32_t i = 0; i < options->header_count; i++) {
        if (!event->is_tombstone || options->headers[i].field == MR_FIELD_OP) {
            add_header(out, &options->headers[i], &source);
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

/* Its messages have their envelope. */
static bool bare_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                         struct mr_buffer *out, struct mr_record *ret_record)
{
    return (encoder->options.json_schemas == MR_JSON_BARE
                ? mr_debezium_message
                : mr_wrapped_message)(encoder, message, out, ret_record);
}

MR_SKELETON_CHANGE(bare_change, .key = bare_key, .value = bare_value, .headers = bare_headers,
                   .has_headers = bare_has_headers, .deletes = bare_deletes)

const struct mr_form_ops mr_form_row = {.ends_rows = true,
                                        .plan = bare_plan,
                                        .forget = mr_wrapped_forget,
                                        .change = bare_change,
                                        .message = bare_message};
