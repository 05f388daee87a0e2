/* CloudEvents 1.0 (cloudevents/spec: spec.md, formats/json-format.md, bindings/kafka-protocol-binding.md) with the attributes of
 * Debezium 3.7's CloudEventsConverter (CloudEventsMaker, PostgresCloudEventsMaker): the source block as extensions, `before` and `after`
 * as data.
 *
 * Structured: the value is the whole event, and begins with its id. Binary: the value is the data, and the attributes are
 * headers, the id first. */
#include "base/json.h"
#include "encode/forms/skeleton.h"

enum {
    ID_MAX = 1024,
    SEQUENCE_MAX = 64,
    NUMBER_MAX = 24,
    POSITION_LEN = 16 + 1 + 10 + 1 + 1, /* as in the header mr-pos */
};

/* What Debezium's source block says of an event. */
struct cloud_event {
    const char *schema, *table;
    char op;
    enum mr_copy_mark mark;
    mr_lsn lsn, last_commit_lsn;
    int64_t time_us;
    uint32_t xid;
    bool has_xid;
    mr_slice origin;
    mr_lsn origin_lsn;
    struct mr_position position;
    uint32_t part;
};

/* An event's attributes, one after the other. */
struct attributes {
    struct mr_buffer *out;
    bool binary;
};

/* `name` is that of the header; without ce_ it is the attribute's. */
static void put(struct attributes *to, const char *name, mr_slice value)
{
    if (to->binary) {
        mr_header_append(to->out, name, value);
        return;
    }
    MR_BUFFER_LITERAL(to->out, ",\"");
    mr_buffer_append(to->out, name + 3, strlen(name) - 3);
    MR_BUFFER_LITERAL(to->out, "\":");
    mr_json_string(to->out, value.data, value.len);
}

/* An attribute without a value: JSON has null, headers have nothing. */
static void put_null(struct attributes *to, const char *name)
{
    if (!to->binary) {
        MR_BUFFER_LITERAL(to->out, ",\"");
        mr_buffer_append(to->out, name + 3, strlen(name) - 3);
        MR_BUFFER_LITERAL(to->out, "\":null");
    }
}

static mr_slice written(const uint8_t *begin, const struct mr_buffer *out)
{
    MR_ASSERT(!out->full);
    return (mr_slice){.data = begin, .len = (size_t)(out->at - begin)};
}

/* Numbers are strings: an attribute's integer has 32 bits (spec.md, Type System). */
static void put_number(struct attributes *to, const char *name, int64_t value)
{
    uint8_t bytes[NUMBER_MAX];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_json_i64(&out, value);
    put(to, name, written(bytes, &out));
}

static void put_lsn(struct attributes *to, const char *name, mr_lsn value)
{
    uint8_t bytes[NUMBER_MAX];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_json_u64(&out, value);
    put(to, name, written(bytes, &out));
}

static void append_digits(struct mr_buffer *out, uint64_t value, unsigned width, unsigned base)
{
    uint8_t *room = mr_buffer_reserve(out, width);
    for (unsigned i = width; room != NULL && i-- > 0; value /= base) {
        room[i] = (uint8_t) "0123456789ABCDEF"[value % base];
    }
}

static void append_position(struct mr_buffer *out, struct mr_position position, uint32_t part)
{
    append_digits(out, position.commit_lsn, 16, 16);
    MR_BUFFER_LITERAL(out, "-");
    append_digits(out, position.ordinal, 10, 16);
    MR_BUFFER_LITERAL(out, "-");
    append_digits(out, part, 1, 10);
}

/* RFC 3339 with milliseconds, in UTC. The years are 1677 to 2262 (mr_transaction's times are kept within these). */
static void append_time(struct mr_buffer *out, int64_t time_us)
{
    int64_t time_ms = mr_floor_div(time_us, 1000);
    int64_t days = mr_floor_div(time_ms, 86400000);
    int64_t rest = time_ms - days * 86400000;
    /* Years begin in March: then February's last day is the year's, and months have 30.6 days. */
    uint64_t since = (uint64_t)(days + 719468); /* 0000-03-01 */
    uint64_t era = since / 146097;
    uint64_t day_of_era = since % 146097;
    uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t month = (5 * day_of_year + 2) / 153;
    append_digits(out, era * 400 + year_of_era + (month >= 10), 4, 10);
    MR_BUFFER_LITERAL(out, "-");
    append_digits(out, month < 10 ? month + 3 : month - 9, 2, 10);
    MR_BUFFER_LITERAL(out, "-");
    append_digits(out, day_of_year - (153 * month + 2) / 5 + 1, 2, 10);
    MR_BUFFER_LITERAL(out, "T");
    append_digits(out, (uint64_t)rest / 3600000, 2, 10);
    MR_BUFFER_LITERAL(out, ":");
    append_digits(out, (uint64_t)rest / 60000 % 60, 2, 10);
    MR_BUFFER_LITERAL(out, ":");
    append_digits(out, (uint64_t)rest / 1000 % 60, 2, 10);
    MR_BUFFER_LITERAL(out, ".");
    append_digits(out, (uint64_t)rest % 1000, 3, 10);
    MR_BUFFER_LITERAL(out, "Z");
}

/* `[null,"22305072"]` */
static void append_sequence(struct mr_buffer *out, const struct cloud_event *event)
{
    if (event->last_commit_lsn == 0) {
        MR_BUFFER_LITERAL(out, "[null,\"");
    } else {
        MR_BUFFER_LITERAL(out, "[\"");
        mr_json_u64(out, event->last_commit_lsn);
        MR_BUFFER_LITERAL(out, "\",\"");
    }
    mr_json_u64(out, event->lsn);
    MR_BUFFER_LITERAL(out, "\"]");
}

static void append_id(struct mr_buffer *out, const struct mr_encoder *encoder,
                      const struct cloud_event *event)
{
    if (encoder->options.cloud.id == MR_CLOUD_ID_POSITION) {
        append_position(out, event->position, event->part);
        return;
    }
    MR_BUFFER_LITERAL(out, "name:");
    mr_buffer_slice(out, mr_slice_of(encoder->options.topic_prefix));
    MR_BUFFER_LITERAL(out, ";lsn:");
    mr_json_u64(out, event->lsn);
    MR_BUFFER_LITERAL(out, ";txId:");
    if (event->has_xid) {
        mr_json_u64(out, event->xid);
    } else {
        MR_BUFFER_LITERAL(out, "null");
    }
    MR_BUFFER_LITERAL(out, ";sequence:");
    append_sequence(out, event);
}

/* In the order of Debezium's source block. */
static void put_extensions(struct attributes *to, const struct mr_encoder *encoder,
                           const struct cloud_event *event)
{
    uint8_t bytes[SEQUENCE_MAX];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    append_sequence(&out, event);
    put(to, "ce_iodebeziumop", (mr_slice){.data = (const uint8_t *)&event->op, .len = 1});
    put(to, "ce_iodebeziumversion", MR_SLICE(MR_VERSION));
    put(to, "ce_iodebeziumconnector", MR_SLICE("postgresql"));
    put(to, "ce_iodebeziumname", mr_slice_of(encoder->options.topic_prefix));
    put_number(to, "ce_iodebeziumtsms", mr_floor_div(event->time_us, 1000));
    put(to, "ce_iodebeziumsnapshot", mr_slice_of(mr_mark_text(event->mark)));
    put(to, "ce_iodebeziumdb", mr_slice_of(encoder->database));
    put(to, "ce_iodebeziumsequence", written(bytes, &out));
    put_number(to, "ce_iodebeziumtsus", event->time_us);
    put_number(to, "ce_iodebeziumtsns", event->time_us * 1000);
    put(to, "ce_iodebeziumschema", mr_slice_of(event->schema));
    put(to, "ce_iodebeziumtable", mr_slice_of(event->table));
    /* Names of attributes are lower case; Debezium's converter leaves this one as it is. */
    const char *xid = to->binary ? "ce_iodebeziumtxid" : "ce_iodebeziumtxId";
    if (event->has_xid) {
        put_number(to, xid, event->xid);
    } else {
        put_null(to, xid);
    }
    put_lsn(to, "ce_iodebeziumlsn", event->lsn);
    put_null(to, "ce_iodebeziumxmin");
    if (event->origin.len > 0) {
        put(to, "ce_iodebeziumorigin", event->origin);
        put_lsn(to, "ce_iodebeziumoriginlsn", event->origin_lsn);
    } else {
        put_null(to, "ce_iodebeziumorigin");
        put_null(to, "ce_iodebeziumoriginlsn");
    }
    put_null(to, "ce_iodebeziumtxid");
    put_null(to, "ce_iodebeziumtxtotalorder");
    put_null(to, "ce_iodebeziumtxdatacollectionorder");
}

static void put_attributes(struct attributes *to, const struct mr_encoder *encoder,
                           const struct cloud_event *event)
{
    uint8_t bytes[ID_MAX];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    append_id(&out, encoder, event);
    put(to, "ce_id", written(bytes, &out));
    out = mr_buffer_init(bytes, sizeof(bytes));
    MR_BUFFER_LITERAL(&out, "/debezium/postgresql/");
    mr_buffer_slice(&out, mr_slice_of(encoder->options.topic_prefix));
    put(to, "ce_source", written(bytes, &out));
    put(to, "ce_specversion", MR_SLICE("1.0"));
    put(to, "ce_type", MR_SLICE("io.debezium.connector.postgresql.DataChangeEvent"));
    out = mr_buffer_init(bytes, sizeof(bytes));
    append_time(&out, event->time_us);
    put(to, "ce_time", written(bytes, &out));
    if (!to->binary) {
        put(to, "ce_datacontenttype", MR_SLICE("application/json"));
    }
    if (encoder->options.cloud.extensions) {
        put_extensions(to, encoder, event);
    }
}

/* A value up to its data. */
static void begin_value(struct mr_buffer *out, const struct mr_encoder *encoder,
                        const struct cloud_event *event)
{
    if (encoder->options.cloud.mode == MR_CLOUD_BINARY) {
        return;
    }
    uint8_t *begin = out->at;
    struct attributes to = {.out = out};
    put_attributes(&to, encoder, event);
    if (!out->full) {
        *begin = '{'; /* the comma before the first one */
    }
    MR_BUFFER_LITERAL(out, ",\"data\":");
}

static void end_value(struct mr_buffer *out, const struct mr_encoder *encoder)
{
    if (encoder->options.cloud.mode == MR_CLOUD_STRUCTURED) {
        MR_BUFFER_LITERAL(out, "}");
    }
}

static void write_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                          const struct cloud_event *event, struct mr_record *record)
{
    record->kind =
        encoder->options.cloud.id == MR_CLOUD_ID_POSITION ? MR_RECORD_CLOUD : MR_RECORD_EVENT;
    if (encoder->options.cloud.mode == MR_CLOUD_STRUCTURED) {
        mr_header_append(out, "content-type",
                         MR_SLICE("application/cloudevents+json; charset=UTF-8"));
        return;
    }
    struct attributes to = {.out = out, .binary = true};
    put_attributes(&to, encoder, event);
    mr_header_append(out, "content-type", MR_SLICE("application/json"));
}

/* ---- changes ---- */

static struct cloud_event event_of(const struct mr_change *change, const struct mr_event *event)
{
    const struct mr_transaction *transaction = change->transaction;
    return (struct cloud_event){
        .schema = change->relation->schema,
        .table = change->relation->table,
        .op = mr_op_letter(event->op),
        .mark = change->copy_mark,
        .lsn = change->lsn,
        .last_commit_lsn = transaction->last_commit_lsn,
        .time_us = transaction->commit_time_us,
        .xid = transaction->xid,
        .has_xid = true,
        .origin = transaction->origin,
        .origin_lsn = transaction->origin_lsn,
        .position = change->position,
        .part = event->part,
    };
}

static void write_row(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                      const struct mr_tuple *row, const struct mr_tuple *old)
{
    if (row->kind == MR_TUPLE_NONE) {
        MR_BUFFER_LITERAL(out, "null");
    } else {
        mr_row_object(out, encoder, plan, row, old);
    }
}

static void cloud_value(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                        const struct mr_change *change, const struct mr_event *event)
{
    const struct cloud_event cloud = event_of(change, event);
    begin_value(out, encoder, &cloud);
    MR_BUFFER_LITERAL(out, "{\"before\":");
    write_row(out, encoder, plan, event->before, NULL);
    MR_BUFFER_LITERAL(out, ",\"after\":");
    write_row(out, encoder, plan, event->after, &change->before);
    mr_row_missing(out, encoder, plan);
    MR_BUFFER_LITERAL(out, "}");
    end_value(out, encoder);
}

static bool has_headers(const struct mr_encoder *encoder, const struct mr_record *record)
{
    (void)encoder;
    return record->value != NULL;
}

/* The id is the first of them. */
static void cloud_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                          const struct mr_change *change, const struct mr_event *event,
                          struct mr_record *record)
{
    if (record->value != NULL) {
        const struct cloud_event cloud = event_of(change, event);
        write_headers(out, encoder, &cloud, record);
    }
    mr_append_other_key(out, event);
}

static mr_status cloud_change(struct mr_encoder *encoder, struct mr_plan *plan,
                              const struct mr_change *change, struct mr_buffer *out,
                              struct mr_record *ret_records, uint32_t *ret_count,
                              struct mr_error *ret_error)
{
    static const struct mr_skeleton form = {.key = mr_row_key_object,
                                            .value = cloud_value,
                                            .headers = cloud_headers,
                                            .has_headers = has_headers};
    (void)ret_error;
    *ret_count = mr_skeleton_change(&form, encoder, plan, change, out, ret_records);
    return MR_OK;
}

static bool cloud_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                          struct mr_buffer *out, struct mr_record *ret_record)
{
    const struct mr_transaction *transaction = message->transaction;
    struct mr_record record = mr_message_record(encoder, message);
    const struct cloud_event event = {
        .schema = "",
        .table = "",
        .op = 'm',
        .lsn = message->lsn,
        .last_commit_lsn = transaction != NULL ? transaction->last_commit_lsn : 0,
        .time_us = record.commit_time_us,
        .xid = record.xid,
        .has_xid = transaction != NULL,
        .position = message->position,
    };
    record.key = out->at;
    MR_BUFFER_LITERAL(out, "{\"prefix\":");
    mr_row_key_text(out, message->prefix.data, message->prefix.len);
    MR_BUFFER_LITERAL(out, "}");
    record.value = out->at;
    record.key_len = (uint32_t)(record.value - record.key);
    begin_value(out, encoder, &event);
    MR_BUFFER_LITERAL(out, "{\"message\":");
    mr_message_content(out, encoder, message);
    MR_BUFFER_LITERAL(out, "}");
    end_value(out, encoder);
    record.value_len = (uint32_t)(out->at - record.value);
    uint8_t *block = mr_headers_begin(out, NULL);
    write_headers(out, encoder, &event, &record);
    mr_headers_end(out, block);
    record.has_headers = true;
    *ret_record = record;
    return true;
}

/* ---- positions ---- */

void mr_cloud_set_position(struct mr_record *record)
{
    static const char field[] = "{\"id\":\"";
    uint8_t *text = (uint8_t *)(uintptr_t)record->value + sizeof(field) - 1;
    struct mr_header id = {0};
    size_t at = 0;
    bool is_structured = record->value_len > sizeof(field) + POSITION_LEN &&
                         memcmp(record->value, field, sizeof(field) - 1) == 0;
    if (!is_structured) {
        MR_ASSERT(mr_header_next(mr_record_headers(record), &at, &id));
        MR_ASSERT(id.value.len == POSITION_LEN);
        text = (uint8_t *)(uintptr_t)id.value.data;
    }
    struct mr_buffer out = mr_buffer_init(text, POSITION_LEN);
    append_position(&out, record->position, record->part);
}

const struct mr_form_ops mr_form_cloudevents = {
    .ends_rows = true, .change = cloud_change, .message = cloud_message};
