#include "encode/forms/connect.h"

#include "encode/forms/form.h"
#include "encode/values/put.h"

enum { INT2_OID = 21, JSON_OID = 114, JSONB_OID = 3802, UUID_OID = 2950, XML_OID = 142 };
enum { TSVECTOR_OID = 3614 };
/* Of the longest type: a sparse vector, a geometry. */
enum { TYPE_MAX = 768, AROUND_MAX = 4096 };

#define GEOMETRY "io.debezium.data.geometry."

#define FIELD(type, optional, name)                                                                \
    "{\"type\":\"" type "\",\"optional\":" optional ",\"field\":\"" name "\"}"
#define STRUCT(fields) "{\"type\":\"struct\",\"fields\":[" fields "],\"optional\":"
#define MAP(key, value)                                                                            \
    "{\"type\":\"map\",\"keys\":{\"type\":\"" key "\",\"optional\":false},\"values\":{\"type\":"   \
    "\"" value "\",\"optional\":"
#define WHOLE(fields, name)                                                                        \
    "{\"schema\":" STRUCT(fields) "false,\"name\":\"" name "\",\"version\":1},\"payload\":"

#define POINT                                                                                      \
    STRUCT(FIELD("double", "false", "x") "," FIELD("double", "false", "y") "," FIELD(              \
        "bytes", "true", "wkb") "," FIELD("int32", "true", "srid"))
#define POINT_NAME "\"name\":\"" GEOMETRY "Point\",\"version\":1,\"doc\":\"Geometry (POINT)\""

/* Types with parts: what stands before and after whether they are optional. */
static const struct {
    const char *begin, *end;
} shapes[] = {
    [MR_AVRO_SCALED] = {STRUCT(
                            FIELD("int32", "false", "scale") "," FIELD("bytes", "false", "value")),
                        ",\"name\":\"io.debezium.data.VariableScaleDecimal\",\"version\":1,"
                        "\"doc\":\"Variable scaled decimal\""},
    [MR_AVRO_POINT] = {POINT, "," POINT_NAME},
    [MR_AVRO_CIRCLE] = {STRUCT(POINT "false," POINT_NAME
                                     ",\"field\":\"center\"}," FIELD("double", "false", "radius")),
                        ",\"name\":\"" GEOMETRY
                        "Circle\",\"version\":1,\"doc\":\"Geometry (CIRCLE)\""},
    [MR_AVRO_LINE] = {STRUCT(FIELD("double", "false", "a") "," FIELD(
                          "double", "false", "b") "," FIELD("double", "false", "c")),
                      ",\"name\":\"" GEOMETRY "Line\",\"version\":1,\"doc\":\"Geometry (LINE)\""},
    [MR_AVRO_GEOMETRY] =
        {STRUCT(FIELD("bytes", "false", "wkb") "," FIELD("int32", "true", "srid") "," MAP(
             "string", "string") "false},\"optional\":true,\"field\":"
                                 "\"extensions\"}"),
         ",\"name\":\"" GEOMETRY "Geometry\",\"version\":2,\"doc\":\"Geometry\""},
    [MR_AVRO_GEOGRAPHY] = {STRUCT(
                               FIELD("bytes", "false", "wkb") "," FIELD("int32", "true", "srid")),
                           ",\"name\":\"" GEOMETRY
                           "Geography\",\"version\":1,\"doc\":\"Geography\""},
    [MR_AVRO_SPARSE] = {STRUCT(FIELD("int16", "false", "dimensions") "," MAP(
                            "int16", "double") "false},\"optional\":false,"
                                               "\"field\":\"vector\"}"),
                        ",\"name\":\"io.debezium.data.SparseDoubleVector\",\"version\":1,"
                        "\"doc\":\"Sparse double vector\""},
    [MR_AVRO_DOUBLES] = {"{\"type\":\"array\",\"items\":{\"type\":\"double\",\"optional\":false},"
                         "\"optional\":",
                         ",\"name\":\"io.debezium.data.DoubleVector\",\"version\":1"},
    [MR_AVRO_FLOATS] = {"{\"type\":\"array\",\"items\":{\"type\":\"float\",\"optional\":false},"
                        "\"optional\":",
                        ",\"name\":\"io.debezium.data.FloatVector\",\"version\":1"},
    [MR_AVRO_MAP] = {MAP("string", "string") "true},\"optional\":", ""},
};

static void connect_put(struct mr_buffer *out, const char *text)
{
    mr_buffer_slice(out, mr_slice_of(text));
}

static void put_flag(struct mr_buffer *out, bool flag)
{
    connect_put(out, flag ? "true" : "false");
}

/* A plain type: its name where Connect tells more of it than that. */
static void connect_put_leaf(struct mr_buffer *out, const char *type, const char *name,
                             bool optional)
{
    mr_buffer_format(out, "{\"type\":\"%s\",\"optional\":%s", type, optional ? "true" : "false");
    if (name != NULL) {
        mr_buffer_format(out, ",\"name\":\"%s\",\"version\":1", name);
    }
}

static const char *text_name(uint32_t oid)
{
    return oid == JSON_OID || oid == JSONB_OID ? "io.debezium.data.Json"
           : oid == UUID_OID                   ? "io.debezium.data.Uuid"
           : oid == XML_OID                    ? "io.debezium.data.Xml"
           : oid == TSVECTOR_OID               ? "io.debezium.data.Tsvector"
                                               : NULL;
}

/* With time_precision_mode = "connect" times have Connect's own types. */
static const char *connect_name_of(const struct mr_encode_options *options, enum mr_rule rule)
{
    if (options->modes.time == MR_TIME_CONNECT) {
        switch (rule) {
        case MR_RULE_DAYS:
            return "org.apache.kafka.connect.data.Date";
        case MR_RULE_MILLIS_CLOCK:
            return "org.apache.kafka.connect.data.Time";
        case MR_RULE_MILLIS_EPOCH:
            return "org.apache.kafka.connect.data.Timestamp";
        default:
            break;
        }
    }
    return mr_rules[rule].avro_name;
}

/* numeric.c, numeric_typmod_precision: the upper half of the type's modifier. Money has none. */
static void connect_put_decimal(struct mr_buffer *out, int32_t modifier, int32_t scale,
                                bool optional)
{
    connect_put_leaf(out, "bytes", "org.apache.kafka.connect.data.Decimal", optional);
    mr_buffer_format(out, ",\"parameters\":{\"scale\":\"%d\"", scale);
    if (modifier >= 0) {
        mr_buffer_format(out, ",\"connect.decimal.precision\":\"%d\"", (modifier - 4) >> 16);
    }
    connect_put(out, "}");
}

/* What the configuration makes of a column's text (ColumnDefinition's transforms:
 * withMaskedOrTruncatedColumns). */
static void connect_put_shape(struct mr_buffer *out, const struct mr_plan_column *column)
{
    if (column->rule == MR_RULE_TRUNCATED) {
        mr_buffer_format(out, ",\"parameters\":{\"truncateLength\":\"%d\"}",
                         column->form->conversion.detail);
    } else if (column->rule == MR_RULE_MASK || column->rule == MR_RULE_HASH) {
        connect_put(out, ",\"parameters\":{\"masked\":\"true\"}");
    }
}

/* By the rule that writes it, without the end; `scale` is a decimal's. */
static void connect_put_value(struct mr_buffer *out, const struct mr_encode_options *options,
                              enum mr_rule rule, int32_t scale, uint32_t oid, int32_t modifier,
                              bool optional)
{
    static const char *const names[] = {
        [MR_AVRO_TEXT] = "string",   [MR_AVRO_BOOLEAN] = "boolean", [MR_AVRO_INT] = "int32",
        [MR_AVRO_LONG] = "int64",    [MR_AVRO_FLOAT] = "float",     [MR_AVRO_DOUBLE] = "double",
        [MR_AVRO_STRING] = "string", [MR_AVRO_BYTES] = "bytes",
    };
    enum mr_avro_type type = mr_rules[rule].avro;
    if (type == MR_AVRO_DECIMAL) {
        connect_put_decimal(out, rule == MR_RULE_MONEY ? -1 : modifier, scale, optional);
    } else if (type < (enum mr_avro_type)MR_ARRAY_LEN(names)) {
        bool is_short = rule == MR_RULE_INTEGER && oid == INT2_OID;
        connect_put_leaf(out, is_short ? "int16" : names[type],
                         type == MR_AVRO_TEXT ? text_name(oid) : connect_name_of(options, rule),
                         optional);
        if (rule == MR_RULE_BITS) {
            mr_buffer_format(out, ",\"parameters\":{\"length\":\"%d\"}",
                             modifier < 0 ? INT32_MAX : modifier);
        }
    } else {
        connect_put(out, shapes[type].begin);
        put_flag(out, optional);
        connect_put(out, shapes[type].end);
    }
}

static void connect_put_column(struct mr_buffer *out, const struct mr_encode_options *options,
                               const struct mr_plan *plan, uint32_t column, bool optional)
{
    const struct mr_column *of = &plan->relation->columns[column];
    const struct mr_plan_column *planned = &plan->columns[column];
    bool is_known = of->type.kind == MR_TYPE_BUILT_IN;
    uint32_t oid = is_known ? of->type.oid : of->type_oid;
    int32_t modifier = is_known ? of->type.modifier : of->type_modifier;
    if (planned->rule == MR_RULE_LIST) {
        const struct mr_conversion *element = &planned->form->element;
        connect_put(out, "{\"type\":\"array\",\"items\":");
        connect_put_value(out, options, element->rule, element->detail, mr_type_element(oid),
                          modifier, true);
        connect_put(out, "},\"optional\":");
        put_flag(out, optional);
    } else {
        connect_put_value(out, options, planned->rule,
                          planned->form == NULL ? 0 : planned->form->conversion.detail, oid,
                          modifier, optional);
        connect_put_shape(out, planned);
    }
    connect_put(out, ",\"field\":");
    mr_put_slice(out, mr_slice_of(of->name));
    connect_put(out, "}");
}

/* The stream does not say which columns may not be null, but for those of a key. Of them an old row
 * has those in the identity. */
static bool may_be_null(const struct mr_plan *plan, uint32_t column)
{
    bool is_held = plan->relation->columns[column].in_identity ||
                   plan->relation->identity == MR_IDENTITY_NOTHING;
    return plan->key.may_be_null || !mr_plan_is_key(plan, column) || !is_held;
}

static void put_name(struct mr_buffer *out, const char *space, const char *name)
{
    connect_put(out, ",\"name\":\"");
    mr_json_escaped(out, (const uint8_t *)space, strlen(space));
    connect_put(out, name);
    connect_put(out, "\"");
}

static void connect_put_key(struct mr_buffer *out, const struct mr_encode_options *options,
                            const struct mr_plan *plan, const char *space)
{
    connect_put(out, "{\"schema\":{\"type\":\"struct\",\"fields\":[");
    for (uint32_t i = 0; i < plan->key.count; i++) {
        connect_put(out, i == 0 ? "" : ",");
        connect_put_column(out, options, plan, plan->key.columns[i], plan->key.may_be_null);
    }
    if (plan->key.tail != NULL) { /* the table's name, where several share a topic (plan.c) */
        connect_put(out, ",{\"type\":\"string\",\"optional\":false,\"field\":");
        mr_put_slice(out, mr_slice_of(options->routing->key_field));
        connect_put(out, "}");
    }
    connect_put(out, "],\"optional\":false");
    put_name(out, space, ".Key");
    connect_put(out, "},\"payload\":");
}

static void put_columns(struct mr_buffer *out, const struct mr_encode_options *options,
                        const struct mr_plan *plan)
{
    connect_put(out, "{\"type\":\"struct\",\"fields\":[");
    const uint8_t *begin = out->at;
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        if (plan->columns[i].writer != MR_WRITE_ABSENT) {
            connect_put(out, out->at == begin ? "" : ",");
            connect_put_column(out, options, plan, i, may_be_null(plan, i));
        }
    }
}

static void connect_put_row(struct mr_buffer *out, const struct mr_encode_options *options,
                            const struct mr_plan *plan, const char *space)
{
    put_columns(out, options, plan);
    connect_put(out, "],\"optional\":true");
    put_name(out, space, ".Value");
    connect_put(out, ",\"field\":\"");
}

/* Its values come from an enum of Debezium's (SchemaFactory.snapshotRecordSchema). */
#define SNAPSHOT                                                                                   \
    "{\"type\":\"string\",\"optional\":true,\"name\":\"io.debezium.data.Enum\",\"version\":1,"     \
    "\"parameters\":{\"allowed\":\"true,first,first_in_data_collection,"                           \
    "last_in_data_collection,last,false,incremental\"}"

/* Fields that are added to a row may be null, and have no default
 * (ExtractNewRecordState.updateSchema). */
static void put_added(struct mr_buffer *out, const char *name, bool is_snapshot, bool is_text)
{
    connect_put(out, out->at[-1] == '[' ? "" : ","); /* the table may have no columns */
    if (is_snapshot) {
        connect_put(out, SNAPSHOT);
    } else {
        connect_put_leaf(out, is_text ? "string" : "int64", NULL, true);
    }
    connect_put(out, ",\"field\":");
    mr_put_slice(out, mr_slice_of(name));
    connect_put(out, "}");
}

static void end_bare(struct mr_buffer *out, const char *space, bool optional)
{
    connect_put(out, "],\"optional\":");
    put_flag(out, optional);
    put_name(out, space, ".Value");
    connect_put(out, "},\"payload\":");
}

static void put_bare(struct mr_buffer *out, const struct mr_encode_options *options,
                     const struct mr_plan *plan, const char *space)
{
    const struct mr_bare_options *bare = &options->bare;
    connect_put(out, "{\"schema\":");
    put_columns(out, options, plan);
    if (mr_bare_rewrites(bare)) {
        put_added(out, "__deleted", false, true);
    }
    for (uint32_t i = 0; i < bare->field_count; i++) {
        enum mr_event_field field = bare->fields[i].field;
        put_added(out, bare->fields[i].name, field == MR_FIELD_SOURCE_SNAPSHOT,
                  mr_source_fields[field].is_text);
    }
    end_bare(out, space, false);
}

/* A delete that null tells has the schema of the old row (AbstractExtractNewRecordState). */
static void put_bare_null(struct mr_buffer *out, const struct mr_encode_options *options,
                          const struct mr_plan *plan, const char *space)
{
    connect_put(out, "{\"schema\":");
    put_columns(out, options, plan);
    end_bare(out, space, true);
    connect_put(out, "null}");
}

static void put_envelope_end(struct mr_buffer *out, const char *space)
{
    connect_put(out, "],\"optional\":false");
    put_name(out, space, ".Envelope");
    connect_put(out, ",\"version\":2},\"payload\":");
}

/* An escaped byte takes six. */
static size_t room_for(const struct mr_encode_options *options, const struct mr_plan *plan,
                       const char *space)
{
    const struct mr_relation *relation = plan->relation;
    const char *field = plan->key.tail == NULL ? "" : options->routing->key_field;
    size_t size = 2 * TYPE_MAX + 3 * (6 * strlen(space)) + 6 * strlen(field);
    for (uint32_t i = 0; i < relation->column_count;
         i++) { /* in the key, in a row, in an old row */
        size += 3 * (6 * strlen(relation->columns[i].name) + TYPE_MAX);
    }
    for (uint32_t i = 0; i < options->bare.field_count; i++) {
        size += 6 * strlen(options->bare.fields[i].name) + TYPE_MAX;
    }
    return size;
}

struct mr_connect *mr_connect_new(const struct mr_encode_options *options,
                                  const struct mr_plan *plan)
{
    /* AbstractTopicNamingStrategy.recordSchemaPrefix is the topic's name before it is routed. */
    MR_FREED char *space = mr_topic_name(options->topic_prefix, options->topic_delimiter,
                                         plan->relation->schema, plan->relation->table);
    size_t size = room_for(options, plan, space);
    struct mr_connect *connect = MR_ALLOC(sizeof(*connect) + size);
    struct mr_buffer out = mr_buffer_init(connect->text, size);
    out.splits_astral = true;
    if (plan->key.count > 0) {
        connect_put_key(&out, options, plan, space);
    }
    size_t key_len = (size_t)(out.at - connect->text);
    bool is_bare = options->format == MR_FORMAT_ROW;
    (is_bare ? put_bare : connect_put_row)(&out, options, plan, space);
    size_t row_len = (size_t)(out.at - connect->text) - key_len;
    if (is_bare && options->bare.deletes == MR_DELETE_NULL) {
        put_bare_null(&out, options, plan, space);
    } else if (!is_bare) {
        put_envelope_end(&out, space);
    }
    MR_ASSERT(!out.full);
    size_t len = (size_t)(out.at - connect->text);
    connect = MR_REALLOC(connect, sizeof(*connect) + len);
    connect->key = (mr_slice){.data = connect->text, .len = key_len};
    connect->row = (mr_slice){.data = connect->text + key_len, .len = row_len};
    connect->end =
        (mr_slice){.data = connect->text + key_len + row_len, .len = len - key_len - row_len};
    return connect;
}

static void put_fields(struct mr_buffer *out, enum mr_event_field first, enum mr_event_field last)
{
    for (enum mr_event_field i = first; i <= last; i++) {
        const struct mr_source_field *field = &mr_source_fields[i];
        connect_put(out, i == first ? "" : ",");
        if (i == MR_FIELD_SOURCE_SNAPSHOT) {
            connect_put(out, SNAPSHOT ",\"default\":\"false\",\"field\":\"snapshot\"}");
            continue;
        }
        connect_put_leaf(out, field->is_text ? "string" : "int64", NULL, field->nullable);
        mr_buffer_format(out, ",\"field\":\"%s\"}", field->name);
    }
}

static void put_source(struct mr_buffer *out)
{
    connect_put(out, "{\"type\":\"struct\",\"fields\":[");
    put_fields(out, MR_FIELD_SOURCE_VERSION, MR_FIELD_SOURCE_ORIGIN_LSN);
    connect_put(out, "],\"optional\":false,\"name\":\"io.debezium.connector.postgresql.Source\","
                     "\"version\":1,\"field\":\"source\"},");
    connect_put(out, STRUCT(FIELD("string", "false", "id") "," FIELD(
                         "int64", "false", "total_order") "," FIELD("int64", "false",
                                                                    "data_collection_order")));
    connect_put(out, "true,\"name\":\"event.block\",\"version\":1,\"field\":\"transaction\"}");
}

struct mr_bytes mr_connect_around(void)
{
    struct mr_bytes text = {0};
    struct mr_buffer out = mr_text_begin(&text, AROUND_MAX);
    put_source(&out);
    connect_put(&out, ",");
    put_fields(&out, MR_FIELD_OP, MR_FIELD_TS_NS);
    MR_ASSERT(!out.full);
    text.len = (size_t)(out.at - text.data);
    return text;
}

mr_slice mr_connect_heartbeat(bool is_key)
{
    return is_key ? MR_SLICE(WHOLE(FIELD("string", "false", "serverName"),
                                   "io.debezium.connector.common.ServerNameKey"))
                  : MR_SLICE(WHOLE(FIELD("int64", "false", "ts_ms"),
                                   "io.debezium.connector.common.Heartbeat"));
}

#define COLLECTIONS                                                                                \
    "{\"type\":\"array\",\"items\":" STRUCT(FIELD("string", "false", "data_collection") "," FIELD( \
        "int64", "false",                                                                          \
        "event_count")) "true,\"name\":\"event.collection\",\"version\":1},\"optional\":true,"     \
                        "\"field\":\"data_collections\"}"

mr_slice mr_connect_transaction(bool is_key)
{
    return is_key ? MR_SLICE(WHOLE(FIELD("string", "false", "id"),
                                   "io.debezium.connector.common.TransactionMetadataKey"))
                  : MR_SLICE(WHOLE(
                        FIELD("string", "false", "status") "," FIELD(
                            "string", "false",
                            "id") "," FIELD("int64", "true",
                                            "event_count") "," COLLECTIONS
                                                           "," FIELD("int64", "false", "ts_ms"),
                        "io.debezium.connector.common.TransactionMetadataValue"));
}

void mr_connect_message(struct mr_buffer *out, const struct mr_encode_options *options, bool is_key)
{
    if (is_key) {
        connect_put(out, WHOLE(FIELD("string", "true", "prefix"),
                               "io.debezium.connector.postgresql.MessageKey"));
        return;
    }
    bool is_bytes = options->modes.binary == MR_BINARY_BYTES;
    connect_put(out, "{\"schema\":{\"type\":\"struct\",\"fields\":[");
    put_fields(out, MR_FIELD_OP, MR_FIELD_TS_MS);
    connect_put(out, ",");
    put_source(out);
    connect_put(out, ",{\"type\":\"struct\",\"fields\":[" FIELD("string", "true", "prefix") ",");
    connect_put_leaf(out, is_bytes ? "bytes" : "string", NULL, true);
    connect_put(
        out, ",\"field\":\"content\"}],\"optional\":false,\"name\":"
             "\"io.debezium.connector.postgresql.Message\",\"version\":1,\"field\":\"message\"}],"
             "\"optional\":false,\"name\":\"io.debezium.connector.postgresql.MessageValue\","
             "\"version\":1},\"payload\":");
}
