/* CloudEvents 1.0 (cloudevents/spec: spec.md, formats/json-format.md,
 * bindings/kafka-protocol-binding.md) with the attributes of Debezium 3.7's CloudEventsConverter
 * (CloudEventsMaker, PostgresCloudEventsMaker): the source block as extensions, `before` and
 * `after` as data.
 *
 * Structured: the value is the whole event, and begins with its id. Binary: the value is the data,
 * and the attributes are headers, the id first. */
#include "encode/forms/skeleton.h"
#include "encode/values/put.h"
#include "event/context.h"

enum {
    ID_MAX = 1024,
    POSITION_LEN = 16 + 1 + 10 + 1 + 1, /* as in the header mr-pos */
};

struct cloud_event {
    struct mr_source source;
    struct mr_position position;
    uint32_t part;
    mr_slice context; /* headers of the transaction, which are attributes too */
};

/* An event's attributes, one after the other. */
struct attributes {
    struct mr_buffer *out;
    bool binary;
};

/* `name` is that of the header; without ce_ it is the attribute's. Where there is no value, JSON
 * has null and headers nothing. */
static void cloudevents_put(struct attributes *to, const char *name, mr_slice value)
{
    if (to->binary) {
        if (value.data != NULL) {
            mr_header_append(to->out, name, value);
        }
        return;
    }
    MR_BUFFER_LITERAL(to->out, ",\"");
    mr_buffer_append(to->out, name + 3, strlen(name) - 3);
    MR_BUFFER_LITERAL(to->out, "\":");
    if (value.data != NULL) {
        mr_put_slice(to->out, value);
    } else {
        MR_BUFFER_LITERAL(to->out, "null");
    }
}

static const mr_slice null = {0};

static mr_slice cloudevents_written(const uint8_t *begin, const struct mr_buffer *out)
{
    MR_ASSERT(!out->full);
    return mr_text_since(out, begin);
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

/* RFC 3339 with milliseconds, in UTC. The years are 1677 to 2262 (mr_transaction's times are kept
 * within these). */
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

/* A field of the source block. Numbers are strings: an attribute's integer has 32 bits (spec.md,
 * Type System). Names of attributes are lower case; Debezium's converter leaves that of txId as it
 * is in JSON. */
static void cloudevents_put_field(struct attributes *to, const struct mr_source *source,
                                  enum mr_event_field field)
{
    bool is_as_in_json = field == MR_FIELD_SOURCE_TXID && !to->binary;
    const char *name = is_as_in_json ? "ce_iodebeziumtxId" : mr_source_fields[field].attribute;
    uint8_t room[MR_SEQUENCE_MAX];
    struct mr_field_value value = mr_source_value(source, field, room);
    if (!mr_source_fields[field].is_text) {
        struct mr_buffer digits = mr_buffer_init(room, sizeof(room));
        mr_json_i64(&digits, value.number);
        value.text = cloudevents_written(room, &digits);
    }
    cloudevents_put(to, name, value.is_null ? null : value.text);
}

static void put_extensions(struct attributes *to, const struct cloud_event *event)
{
    cloudevents_put_field(to, &event->source, MR_FIELD_OP);
    for (enum mr_event_field field = MR_FIELD_SOURCE_VERSION; field <= MR_FIELD_SOURCE_ORIGIN_LSN;
         field++) {
        cloudevents_put_field(to, &event->source, field);
    }
    cloudevents_put(to, "ce_iodebeziumtxid", null);
    cloudevents_put(to, "ce_iodebeziumtxtotalorder", null);
    cloudevents_put(to, "ce_iodebeziumtxdatacollectionorder", null);
}

/* Extensions, one of which the specification knows: extensions/distributed-tracing.md. It leaves
 * the headers of the transport as they are, by which Kafka's clients go on with a trace. */
static void put_context(struct attributes *to, mr_slice context)
{
    enum { PREFIX_LEN = 3 };
    struct mr_header header;
    char name[PREFIX_LEN + MR_CONTEXT_NAME_MAX + 1];
    for (size_t at = 0; mr_header_in(context, &at, &header);) {
        snprintf(name, sizeof(name), "ce_%.*s", MR_SLICE_ARGS(header.name));
        cloudevents_put(to, name, header.value);
    }
}

static void put_attributes(struct attributes *to, const struct mr_encoder *encoder,
                           const struct cloud_event *event)
{
    uint8_t bytes[ID_MAX];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    append_position(&out, event->position, event->part);
    cloudevents_put(to, "ce_id", cloudevents_written(bytes, &out));
    out = mr_buffer_init(bytes, sizeof(bytes));
    MR_BUFFER_LITERAL(&out, "/debezium/postgresql/");
    mr_buffer_slice(&out, mr_slice_of(encoder->options.topic_prefix));
    cloudevents_put(to, "ce_source", cloudevents_written(bytes, &out));
    cloudevents_put(to, "ce_specversion", MR_SLICE("1.0"));
    cloudevents_put(to, "ce_type", MR_SLICE("io.debezium.connector.postgresql.DataChangeEvent"));
    out = mr_buffer_init(bytes, sizeof(bytes));
    append_time(&out, event->source.time_us);
    cloudevents_put(to, "ce_time", cloudevents_written(bytes, &out));
    if (!to->binary) {
        cloudevents_put(to, "ce_datacontenttype", MR_SLICE("application/json"));
    }
    put_extensions(to, event);
    put_context(to, event->context);
}

/* A value up to its data. */
static void begin_value(struct mr_buffer *out, const struct mr_encoder *encoder,
                        const struct cloud_event *event)
{
    if (encoder->options.cloud_mode == MR_CLOUD_BINARY) {
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
    if (encoder->options.cloud_mode == MR_CLOUD_STRUCTURED) {
        MR_BUFFER_LITERAL(out, "}");
    }
}

static void cloudevents_write_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                                      const struct cloud_event *event, struct mr_record *record)
{
    record->kind = MR_RECORD_CLOUD;
    if (encoder->options.cloud_mode == MR_CLOUD_STRUCTURED) {
        mr_header_append(out, "content-type",
                         MR_SLICE("application/cloudevents+json; charset=UTF-8"));
        return;
    }
    struct attributes to = {.out = out, .binary = true};
    put_attributes(&to, encoder, event);
    mr_header_append(out, "content-type", MR_SLICE("application/json"));
}

static struct cloud_event event_of(const struct mr_encoder *encoder, const struct mr_change *change,
                                   const struct mr_event *event)
{
    struct cloud_event cloud = {.source = mr_source_of_change(encoder, change, event->op),
                                .position = change->position,
                                .part = event->part};
    if (change->copy_mark == MR_COPY_NONE) {
        cloud.context = change->transaction->headers;
    }
    return cloud;
}

static void cloud_value(struct mr_buffer *out, struct mr_encoder *encoder, struct mr_plan *plan,
                        const struct mr_change *change, const struct mr_event *event)
{
    const struct cloud_event cloud = event_of(encoder, change, event);
    begin_value(out, encoder, &cloud);
    MR_BUFFER_LITERAL(out, "{\"before\":");
    mr_row_or_null(out, encoder, plan, event->before, NULL);
    MR_BUFFER_LITERAL(out, ",\"after\":");
    mr_row_or_null(out, encoder, plan, event->after, &change->before);
    mr_row_missing(out, encoder, plan);
    MR_BUFFER_LITERAL(out, "}");
    end_value(out, encoder);
}

static bool cloudevents_has_headers(const struct mr_encoder *encoder,
                                    const struct mr_record *record)
{
    return record->value != NULL;
}

/* The id is the first of them. */
static void cloud_headers(struct mr_buffer *out, const struct mr_encoder *encoder,
                          const struct mr_change *change, const struct mr_event *event,
                          struct mr_record *record)
{
    if (record->value != NULL) {
        const struct cloud_event cloud = event_of(encoder, change, event);
        cloudevents_write_headers(out, encoder, &cloud, record);
    }
    mr_append_own(out, change, event);
}

MR_SKELETON_CHANGE(cloud_change, .key = mr_row_key_object, .value = cloud_value,
                   .headers = cloud_headers, .has_headers = cloudevents_has_headers)

static bool cloud_message(struct mr_encoder *encoder, const struct mr_message_event *message,
                          struct mr_buffer *out, struct mr_record *ret_record)
{
    struct mr_record record = mr_message_record(encoder, message);
    mr_slice context = message->transaction == NULL ? null : message->transaction->headers;
    const struct cloud_event event = {.source = mr_source_of_message(encoder, message),
                                      .position = message->position,
                                      .context = context};
    mr_message_key(out, message, &record);
    begin_value(out, encoder, &event);
    MR_BUFFER_LITERAL(out, "{\"message\":");
    mr_message_content(out, encoder, message);
    MR_BUFFER_LITERAL(out, "}");
    end_value(out, encoder);
    record.value_len = (uint32_t)(out->at - record.value);
    uint8_t *block = mr_headers_begin(out, NULL);
    cloudevents_write_headers(out, encoder, &event, &record);
    mr_buffer_slice(out, context);
    mr_headers_end(out, block);
    record.has_headers = true;
    *ret_record = record;
    return true;
}

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
