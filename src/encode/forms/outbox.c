/* Rows of an outbox table as the events that they are: a row's columns say topic, key, value and
 * headers.
 *
 * What becomes of a row is what Debezium 3.7's EventRouter makes of it
 * (io.debezium.transforms.outbox.EventRouterDelegate), and how a value is written is what Kafka
 * Connect's StringConverter, JsonConverter and SimpleHeaderConverter do. docs/outbox.md says where
 * it differs. */

#include "encode/forms/form.h"
#include "encode/values/put.h"
#include "event/relation.h"

enum {
    BYTEA_OID = 17,
    TIMESTAMP_OID = 1114,
    TIMESTAMPTZ_OID = 1184,
    NO_COLUMN = MR_COLUMNS_MAX /* by index */
};

/* The columns of an outbox, by their index. */
struct mr_outbox_columns {
    uint32_t id, key, payload, route_by, timestamp;
    bool has_envelope;
    uint32_t fields[]; /* as the options have them */
};

static uint32_t outbox_column_of(const struct mr_plan *plan, const char *name)
{
    uint32_t column;
    bool found = mr_relation_find_column(plan->relation, mr_slice_of(name), &column) &&
                 plan->columns[column].writer != MR_WRITE_ABSENT;
    return found ? column : NO_COLUMN;
}

static mr_status need_column(const struct mr_plan *plan, const char *option, const char *name,
                             uint32_t *ret_column, struct mr_error *ret_error)
{
    *ret_column = outbox_column_of(plan, name);
    if (*ret_column != NO_COLUMN) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_CONFIG,
                   "outbox table %s.%s has no column \"%s\" that is passed on, which %s names",
                   plan->relation->schema, plan->relation->table, name, option);
}

/* Topics are seen by many. */
static mr_status need_open(const struct mr_encode_options *options, const struct mr_plan *plan,
                           struct mr_error *ret_error)
{
    const char *name = options->outbox->route_by;
    if (!mr_shape_names(options, plan, name)) {
        return MR_OK;
    }
    return mr_fail(
        ret_error, MR_ERR_CONFIG,
        "outbox.route_by: column \"%s\" of outbox table %s.%s is one that columns.* masks, "
        "cuts or hashes, and names of topics would tell its values; route by another",
        name, plan->relation->schema, plan->relation->table);
}

static mr_status find_fields(const struct mr_outbox_options *outbox, const struct mr_plan *plan,
                             struct mr_outbox_columns *columns, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < outbox->field_count; i++) {
        const struct mr_outbox_field *field = &outbox->fields[i];
        columns->fields[i] = outbox_column_of(plan, field->column);
        if (columns->fields[i] == NO_COLUMN && !field->may_lack) {
            return need_column(plan, "outbox.fields", field->column, &columns->fields[i],
                               ret_error);
        }
        columns->has_envelope |= field->placement == MR_OUTBOX_ENVELOPE;
    }
    return MR_OK;
}

static mr_status find_timestamp(const struct mr_outbox_options *outbox, const struct mr_plan *plan,
                                struct mr_outbox_columns *columns, struct mr_error *ret_error)
{
    columns->timestamp = NO_COLUMN;
    if (outbox->timestamp == NULL) {
        return MR_OK;
    }
    MR_TRY(
        need_column(plan, "outbox.timestamp", outbox->timestamp, &columns->timestamp, ret_error));
    uint32_t oid = plan->relation->columns[columns->timestamp].type.oid;
    if (oid == TIMESTAMP_OID || oid == TIMESTAMPTZ_OID) {
        return MR_OK;
    }
    return mr_fail(ret_error, MR_ERR_CONFIG,
                   "column \"%s\" of outbox table %s.%s, which outbox.timestamp names, is not a "
                   "timestamp",
                   outbox->timestamp, plan->relation->schema, plan->relation->table);
}

/* Its rows have topics of their own; the plan's stands for them. */
static mr_status outbox_plan(struct mr_encoder *encoder, struct mr_plan *plan,
                             struct mr_error *ret_error)
{
    const struct mr_outbox_options *outbox = encoder->options.outbox;
    struct mr_outbox_columns *columns =
        MR_ALLOC(sizeof(*columns) + outbox->field_count * sizeof(columns->fields[0]));
    *columns = (struct mr_outbox_columns){0};
    plan->outbox = columns;
    MR_TRY(need_column(plan, "outbox.id", outbox->id, &columns->id, ret_error));
    MR_TRY(need_column(plan, "outbox.key", outbox->key, &columns->key, ret_error));
    MR_TRY(need_column(plan, "outbox.payload", outbox->payload, &columns->payload, ret_error));
    MR_TRY(need_column(plan, "outbox.route_by", outbox->route_by, &columns->route_by, ret_error));
    MR_TRY(need_open(&encoder->options, plan, ret_error));
    MR_TRY(find_timestamp(outbox, plan, columns, ret_error));
    MR_TRY(find_fields(outbox, plan, columns, ret_error));
    plan->topic = mr_topics_intern(encoder->topics, "(outbox)"); /* no name of Kafka's */
    return MR_OK;
}

static void outbox_forget(struct mr_plan *plan)
{
    free(plan->outbox);
}

bool mr_outbox_may_cut(const struct mr_outbox_options *outbox, const struct mr_plan *plan,
                       uint32_t column)
{
    const struct mr_outbox_columns *columns = plan->outbox;
    bool is_used = column == columns->id || column == columns->key || column == columns->route_by;
    for (uint32_t i = 0; i < outbox->field_count && !is_used; i++) {
        is_used = columns->fields[i] == column && outbox->fields[i].placement != MR_OUTBOX_ENVELOPE;
    }
    return !is_used;
}

/* The row at hand. */
struct row {
    struct mr_encoder *encoder;
    const struct mr_plan *plan;
    const struct mr_change *change;
};

static const struct mr_datum *datum_of(const struct row *row, uint32_t column)
{
    return mr_row_datum(row->plan, column, &row->change->after, &row->change->before);
}

static bool outbox_is_known(const struct mr_datum *value)
{
    return value->kind != MR_DATUM_UNCHANGED && value->kind != MR_DATUM_CUT;
}

/* True when its bytes are sent: it is a bytea, and columns.* makes nothing else of it. */
static bool is_bytea(const struct row *row, uint32_t column)
{
    enum mr_rule rule = row->plan->columns[column].rule;
    return row->plan->relation->columns[column].type.oid == BYTEA_OID && rule != MR_RULE_MASK &&
           rule != MR_RULE_TRUNCATED && rule != MR_RULE_HASH;
}

static void write_json(struct mr_buffer *out, const struct row *row, uint32_t column)
{
    if (outbox_is_known(datum_of(row, column))) {
        mr_row_value(out, row->encoder, row->plan, column, &row->change->after,
                     &row->change->before);
    } else {
        mr_type_unavailable(out, &row->plan->columns[column],
                            row->encoder->options.unavailable_value);
    }
}

/* Whether the value's text is what Java's toString makes of what Debezium has: strings, decimals,
 * whose JSON is base64, and JSON itself, of which a string has quotes of its own. */
static bool is_bare(const struct mr_plan_column *column)
{
    return column->writer == MR_WRITE_STRING || column->writer == MR_WRITE_PLAIN ||
           column->rule == MR_RULE_DECIMAL || column->rule == MR_RULE_SCALED_DECIMAL ||
           column->rule == MR_RULE_JSON;
}

/* The value without the quotes that it has in JSON; not null. */
static void outbox_write_text(struct mr_buffer *out, const struct row *row, uint32_t column)
{
    const struct mr_datum *value = datum_of(row, column);
    if (value->kind == MR_DATUM_TEXT && is_bare(&row->plan->columns[column])) {
        mr_buffer_append(out, value->data, value->len);
        return;
    }
    uint8_t *begin = out->at;
    bool splits_astral = out->splits_astral;
    out->splits_astral = false;
    write_json(out, row, column);
    out->splits_astral = splits_astral;
    if (!out->full && out->at > begin + 1 && *begin == '"') {
        out->at = begin + mr_json_unescape(begin, begin + 1, (size_t)(out->at - begin) - 2);
    }
}

/* The bytes of a bytea as they are. */
static void outbox_write_bytes(struct mr_buffer *out, const struct row *row, uint32_t column)
{
    const struct mr_datum *value = datum_of(row, column);
    mr_slice bytes;
    if (value->kind != MR_DATUM_TEXT) {
        outbox_write_text(out, row, column);
    } else if (mr_convert_unhex((mr_slice){.data = value->data, .len = value->len},
                                &row->encoder->scratch, &bytes)) {
        mr_buffer_slice(out, bytes);
    } else {
        mr_encoder_latch(row->encoder, column, MR_FAULT_TEXT);
    }
}

/* A key or a value, with no envelope. NULL data: null. */
static mr_slice write_bare(struct mr_buffer *out, const struct row *row, uint32_t column,
                           bool as_json, enum mr_content *ret_content)
{
    const uint8_t *begin = out->at;
    *ret_content = as_json ? MR_CONTENT_JSON : MR_CONTENT_TEXT;
    if (as_json) {
        write_json(out, row, column);
    } else if (datum_of(row, column)->kind == MR_DATUM_NULL) {
        return (mr_slice){0};
    } else if (is_bytea(row, column)) {
        *ret_content = MR_CONTENT_BINARY;
        outbox_write_bytes(out, row, column);
    } else {
        outbox_write_text(out, row, column);
    }
    return mr_text_since(out, begin);
}

/* As Java's String.trim sees it. */
static bool outbox_is_empty(const struct mr_datum *value)
{
    if (value->kind == MR_DATUM_NULL) {
        return true;
    }
    uint32_t at = 0;
    while (at < value->len && value->data[at] <= ' ') {
        at++;
    }
    return value->kind == MR_DATUM_TEXT && at == value->len;
}

/* False: it is not expanded, because it is no text, or none of a JSON object or list. */
static bool expand_payload(struct mr_buffer *out, const struct row *row, uint32_t column)
{
    const struct mr_plan_column *planned = &row->plan->columns[column];
    const struct mr_datum *value = datum_of(row, column);
    bool is_text = planned->writer == MR_WRITE_STRING || planned->rule == MR_RULE_JSON;
    const struct mr_encode_options *options = &row->encoder->options;
    if (!options->outbox->expands || !is_text || value->kind != MR_DATUM_TEXT) {
        return false;
    }
    uint8_t *begin = out->at;
    if (mr_json_expand(out, options, (mr_slice){.data = value->data, .len = value->len},
                       &row->encoder->scratch)) {
        return true;
    }
    if (!out->full) {
        out->at = begin;
    }
    return false;
}

static void write_payload_json(struct mr_buffer *out, const struct row *row)
{
    uint32_t column = row->plan->outbox->payload;
    if (!expand_payload(out, row, column)) {
        write_json(out, row, column);
    }
}

static void outbox_write_envelope(struct mr_buffer *out, const struct row *row)
{
    const struct mr_outbox_options *outbox = row->encoder->options.outbox;
    MR_BUFFER_LITERAL(out, "{\"payload\":");
    write_payload_json(out, row);
    for (uint32_t i = 0; i < outbox->field_count; i++) {
        uint32_t column = row->plan->outbox->fields[i];
        if (outbox->fields[i].placement == MR_OUTBOX_ENVELOPE && column != NO_COLUMN) {
            const char *name = outbox->fields[i].name;
            MR_BUFFER_LITERAL(out, ",");
            mr_put_slice(out, mr_slice_of(name));
            MR_BUFFER_LITERAL(out, ":");
            write_json(out, row, column);
        }
    }
    MR_BUFFER_LITERAL(out, "}");
}

static mr_slice outbox_write_value(struct mr_buffer *out, const struct row *row,
                                   enum mr_content *ret_content)
{
    const struct mr_outbox_options *outbox = row->encoder->options.outbox;
    const struct mr_outbox_columns *columns = row->plan->outbox;
    const uint8_t *begin = out->at;
    *ret_content = MR_CONTENT_JSON;
    if (outbox->tombstones && outbox_is_empty(datum_of(row, columns->payload))) {
        return (mr_slice){0};
    }
    if (columns->has_envelope) {
        outbox_write_envelope(out, row);
    } else if (outbox->value_is_json) {
        write_payload_json(out, row);
    } else {
        return write_bare(out, row, columns->payload, false, ret_content);
    }
    return mr_text_since(out, begin);
}

static void outbox_write_header(struct mr_buffer *out, const struct row *row, const char *name,
                                uint32_t column)
{
    uint8_t *header = mr_header_begin(out, name);
    if (datum_of(row, column)->kind == MR_DATUM_NULL) {
        return;
    }
    outbox_write_text(out, row, column);
    mr_header_end(out, header);
}

static int32_t partition_of(const struct row *row, uint32_t column)
{
    const struct mr_datum *value = datum_of(row, column);
    if (value->kind == MR_DATUM_NULL) {
        return -1;
    }
    mr_slice text = {.data = value->data, .len = value->kind == MR_DATUM_TEXT ? value->len : 0};
    struct mr_cursor cursor = mr_cursor_of(text);
    int64_t number = -1;
    enum { DIGITS_MAX = 10 };
    if (!mr_cursor_number(&cursor, 1, DIGITS_MAX, &number) || !mr_cursor_ended(&cursor) ||
        number > INT32_MAX) {
        mr_encoder_latch(row->encoder, column,
                         "it is to be the number of a partition, and is none");
        return -1;
    }
    return (int32_t)number;
}

/* Of a timestamp, with or without zone: the session's is UTC. 0: it has none that a record could
 * have. */
static int64_t time_of(const struct row *row, uint32_t column)
{
    static const struct mr_conversion in_ms = {.detail = 3};
    const struct mr_datum *value = datum_of(row, column);
    if (value->kind != MR_DATUM_TEXT) {
        return 0;
    }
    static const char utc[] = "+00";
    enum { UTC_LEN = sizeof(utc) - 1 };
    mr_slice text = {.data = value->data, .len = value->len};
    if (text.len > UTC_LEN && memcmp(text.data + text.len - UTC_LEN, utc, UTC_LEN) == 0) {
        text.len -= UTC_LEN;
    }
    uint8_t digits[32] = {0};
    struct mr_buffer out = mr_buffer_init(digits, sizeof(digits) - 1);
    if (!mr_convert_epoch(&out, &in_ms, text, &row->encoder->scratch)) {
        mr_encoder_latch(row->encoder, column, MR_FAULT_TEXT);
        return 0;
    }
    int64_t time_ms = strtoll((const char *)digits, NULL, 10);
    return time_ms > 0 ? time_ms : 0;
}

__attribute__((cold)) static void log_ignored(struct mr_encoder *encoder, enum mr_log_level level,
                                              const struct mr_relation *relation, const char *text)
{
    if (mr_tally(&encoder->ignored, encoder->stamp.now_ns)) {
        mr_log(level, "outbox_ignored", text, MR_LOG_STR("schema", relation->schema),
               MR_LOG_STR("table", relation->table), MR_LOG_INT("count", encoder->ignored.count));
    }
}

/* The time of its commit is one that the topic takes, or no record of that time. */
static bool refuses_time(const struct row *row, const struct mr_topic *topic, int64_t time_ms)
{
    const struct mr_change *change = row->change;
    int64_t off_ms = llabs(time_ms - change->transaction->commit_time_us / 1000);
    if (time_ms == 0 || MR_LIKELY(!mr_topic_refuses_time(topic, change->position.commit_lsn, off_ms,
                                                         row->encoder->stamp.now_ns))) {
        return false;
    }
    log_ignored(row->encoder, MR_LOG_WARN, row->plan->relation,
                "the topic of an outbox's event refuses the time that outbox.timestamp names; the "
                "event has that of its commit");
    return true;
}

static bool refuses_keyless(const struct row *row, const struct mr_topic *topic)
{
    return mr_topic_refuses_keyless(topic, row->change->position.commit_lsn,
                                    row->encoder->stamp.now_ns);
}

static void outbox_write_headers(struct mr_buffer *out, const struct row *row,
                                 const struct mr_topic *topic)
{
    const struct mr_outbox_options *outbox = row->encoder->options.outbox;
    const struct mr_outbox_columns *columns = row->plan->outbox;
    struct mr_record_place place = {.partition = -1};
    uint8_t *block = mr_headers_begin(out, NULL);
    if (row->change->op == MR_OP_UPDATE && row->encoder->options.types == MR_TYPES_DEBEZIUM) {
        uint8_t *header = mr_header_begin(out, MR_HEADER_OLD_KEY);
        mr_row_key_object(out, row->encoder, row->plan, &row->change->before, NULL);
        mr_header_end(out, header);
    }
    outbox_write_header(out, row, "id", columns->id);
    for (uint32_t i = 0; i < outbox->field_count; i++) {
        uint32_t column = columns->fields[i];
        if (column == NO_COLUMN) {
            continue;
        }
        if (outbox->fields[i].placement == MR_OUTBOX_HEADER) {
            outbox_write_header(out, row, outbox->fields[i].name, column);
        } else if (outbox->fields[i].placement == MR_OUTBOX_PARTITION) {
            place.partition = partition_of(row, column);
            if (place.partition >= 0 && mr_is_message(row->plan->relation)) {
                place.partition = MR_PARTITION_IF_THERE(place.partition);
            }
        }
    }
    if (columns->timestamp != NO_COLUMN) {
        place.time_ms = time_of(row, columns->timestamp);
        place.time_ms = refuses_time(row, topic, place.time_ms) ? 0 : place.time_ms;
    }
    mr_buffer_slice(out, row->change->transaction->headers);
    mr_headers_end(out, block);
    if (!out->full) {
        mr_headers_set_place(block, place);
    }
}

static mr_status ignore_update(struct mr_encoder *encoder, const struct mr_relation *relation,
                               struct mr_error *ret_error)
{
    enum mr_outbox_update update = encoder->options.outbox->update;
    if (update == MR_OUTBOX_FATAL) {
        return mr_fail(ret_error, MR_ERR_POISON,
                       "a row of outbox table %s.%s was updated, which is no event, and "
                       "outbox.updates = \"fatal\"",
                       relation->schema, relation->table);
    }
    log_ignored(encoder, update == MR_OUTBOX_WARN ? MR_LOG_WARN : MR_LOG_ERROR, relation,
                "a row of an outbox was updated, which is no event, and is not passed on");
    return MR_OK;
}

static mr_status outbox_find_topic(const struct row *row, const struct mr_topic **ret_topic,
                                   struct mr_error *ret_error)
{
    struct mr_encoder *encoder = row->encoder;
    const struct mr_outbox_options *outbox = encoder->options.outbox;
    const struct mr_relation *relation = row->plan->relation;
    const struct mr_datum *value = datum_of(row, row->plan->outbox->route_by);
    const char *fault = NULL;
    if (value->kind == MR_DATUM_TEXT) {
        *ret_topic =
            mr_value_topics_find(&encoder->value_topics, encoder->topics, &outbox->route,
                                 (mr_slice){.data = value->data, .len = value->len}, &fault);
    } else {
        fault = "is not there: the value is null";
        *ret_topic = outbox->route.fallback_topic == NULL
                         ? NULL
                         : mr_topics_intern(encoder->topics, outbox->route.fallback_topic);
    }
    if (*ret_topic == NULL) {
        return mr_fail(ret_error, MR_ERR_POISON,
                       "the topic that column \"%s\" of outbox table %s.%s names %s; set "
                       "outbox.fallback_topic for such rows",
                       outbox->route_by, relation->schema, relation->table, fault);
    }
    if (MR_UNLIKELY(fault != NULL)) {
        log_ignored(encoder, MR_LOG_WARN, relation,
                    "a value names no topic that can be; its row goes to outbox.fallback_topic");
    }
    return MR_OK;
}

static mr_status outbox_change(struct mr_encoder *encoder, struct mr_plan *plan,
                               const struct mr_change *change, struct mr_buffer *out,
                               struct mr_record *ret_records, uint32_t *ret_count,
                               struct mr_error *ret_error)
{
    *ret_count = 0;
    if (change->op == MR_OP_DELETE || change->op == MR_OP_TRUNCATE) {
        return MR_OK; /* how an outbox is emptied */
    }
    /* With another primary key it is a delete and a create, and the create is an event. */
    if (change->op == MR_OP_UPDATE && !mr_key_changed(encoder, plan, change)) {
        return ignore_update(encoder, plan->relation, ret_error);
    }
    const struct row row = {.encoder = encoder, .plan = plan, .change = change};
    struct mr_record record = mr_record_of(plan, change, 0);
    MR_TRY(outbox_find_topic(&row, &record.topic, ret_error));
    enum mr_content key_content, value_content;
    mr_slice key = write_bare(out, &row, plan->outbox->key, encoder->options.outbox->key_is_json,
                              &key_content);
    mr_slice value = outbox_write_value(out, &row, &value_content);
    if (key.data == NULL && value.data == NULL) {
        return MR_OK; /* a tombstone of nothing, which a compacted topic refuses */
    }
    record.yields = mr_is_message(plan->relation);
    if (record.yields && key.data == NULL && refuses_keyless(&row, record.topic)) {
        return mr_fail(ret_error, MR_ERR_POISON,
                       "it has no key, and topic \"%s\" takes no record without one: it is "
                       "compacted",
                       record.topic->name);
    }
    outbox_write_headers(out, &row, record.topic);
    mr_record_set_key(&record, key);
    mr_record_set_value(&record, value);
    record.key_content = key_content & 0xF;
    record.value_content = value_content & 0xF;
    record.has_headers = true;
    ret_records[0] = record;
    *ret_count = 1;
    return MR_OK;
}

const struct mr_form_ops mr_form_outbox = {
    .ends_rows = true, .plan = outbox_plan, .forget = outbox_forget, .change = outbox_change};
