/* The schemas of events and keys, and the subjects that they have in a registry. */
#include <stdarg.h>

#include "encode/forms/form.h"
#include "encode/values/put.h"

enum { TYPE_MAX = 512, JSON_OID = 114, JSONB_OID = 3802, UUID_OID = 2950, XML_OID = 142 };
/* The largest money is 92233720368547758.07 (manual, 8.2). */
enum { MONEY_PRECISION = 19, TSVECTOR_OID = 3614 };

#define DATA      "io.debezium.data"
#define GEOMETRY  "io.debezium.data.geometry"
#define CONNECTOR "io.debezium.connector.postgresql"

struct builder {
    const struct mr_plan *plan; /* NULL: of messages */
    uint8_t *text;
    const char *space, *name;
    struct mr_buffer out;
    uint32_t defined; /* bits of the types with parts that the text has */
};

static void avro_schema_put(struct builder *to, const char *text)
{
    mr_buffer_slice(&to->out, mr_slice_of(text));
}

static void put_format(struct builder *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_format(struct builder *to, const char *format, ...)
{
    char text[TYPE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    MR_ASSERT(len > 0 && (size_t)len < sizeof(text));
    avro_schema_put(to, text);
}

static void begin_field(struct builder *to, const char *name, bool nullable)
{
    avro_schema_put(to, to->out.at[-1] == '[' ? "{\"name\":\"" : ",{\"name\":\"");
    avro_schema_put(to, name);
    avro_schema_put(to, nullable ? "\",\"type\":[\"null\"," : "\",\"type\":");
}

static void end_field(struct builder *to, bool nullable)
{
    avro_schema_put(to, nullable ? "],\"default\":null}" : "}");
}

/* `type` is JSON. */
static void avro_schema_put_field(struct builder *to, const char *name, const char *type,
                                  bool nullable)
{
    begin_field(to, name, nullable);
    avro_schema_put(to, type);
    end_field(to, nullable);
}

static void begin_record(struct builder *to, const char *space, const char *name)
{
    avro_schema_put(to, "{\"type\":\"record\",\"name\":\"");
    avro_schema_put(to, name);
    avro_schema_put(to, "\",\"namespace\":\"");
    avro_schema_put(to, space);
    avro_schema_put(to, "\",\"fields\":[");
}

static void end_record(struct builder *to, const char *space, const char *name)
{
    avro_schema_put(to, "],\"connect.name\":\"");
    avro_schema_put(to, space);
    avro_schema_put(to, ".");
    avro_schema_put(to, name);
    avro_schema_put(to, "\"}");
}

#define ENTRIES                                                                                    \
    "{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"MapEntry\",\"namespace\":"      \
    "\"io.confluent.connect.avro\",\"fields\":[{\"name\":\"key\",\"type\":\"int\"},"               \
    "{\"name\":\"value\",\"type\":\"double\"}]}}"

enum { PARTS_MAX = 4 };

static const struct shape {
    const char *space, *name; /* by which the text refers to it once it has defined it */
    struct {
        const char *name, *type; /* NULL: a point */
        bool nullable;
    } parts[PARTS_MAX];
} shapes[] = {
    [MR_AVRO_SCALED] = {DATA,
                        "VariableScaleDecimal",
                        {{"scale", "\"int\"", false}, {"value", "\"bytes\"", false}}},
    [MR_AVRO_POINT] = {GEOMETRY,
                       "Point",
                       {{"x", "\"double\"", false},
                        {"y", "\"double\"", false},
                        {"wkb", "\"bytes\"", true},
                        {"srid", "\"int\"", true}}},
    [MR_AVRO_CIRCLE] = {GEOMETRY,
                        "Circle",
                        {{"center", NULL, false}, {"radius", "\"double\"", false}}},
    [MR_AVRO_LINE] = {GEOMETRY,
                      "Line",
                      {{"a", "\"double\"", false},
                       {"b", "\"double\"", false},
                       {"c", "\"double\"", false}}},
    [MR_AVRO_GEOMETRY] = {GEOMETRY,
                          "Geometry",
                          {{"wkb", "\"bytes\"", false},
                           {"srid", "\"int\"", true},
                           {"extensions", "{\"type\":\"map\",\"values\":\"string\"}", true}}},
    [MR_AVRO_GEOGRAPHY] = {GEOMETRY,
                           "Geography",
                           {{"wkb", "\"bytes\"", false}, {"srid", "\"int\"", true}}},
    [MR_AVRO_SPARSE] = {DATA,
                        "SparseDoubleVector",
                        {{"dimensions", "\"int\"", false}, {"vector", ENTRIES, false}}},
};

/* A type that the text has defined already goes by its name. */
static void avro_schema_put_shape(struct builder *to, enum mr_avro_type type)
{
    const struct shape *shape = &shapes[type];
    bool is_known = (to->defined & (1u << type)) != 0;
    to->defined |= 1u << type;
    if (is_known) {
        put_format(to, "\"%s.%s\"", shape->space, shape->name);
        return;
    }
    begin_record(to, shape->space, shape->name);
    for (uint32_t i = 0; i < PARTS_MAX && shape->parts[i].name != NULL; i++) {
        begin_field(to, shape->parts[i].name, shape->parts[i].nullable);
        if (shape->parts[i].type != NULL) {
            avro_schema_put(to, shape->parts[i].type);
        } else {
            avro_schema_put_shape(to, MR_AVRO_POINT);
        }
        end_field(to, shape->parts[i].nullable);
    }
    end_record(to, shape->space, shape->name);
}

static void avro_schema_put_leaf(struct builder *to, const char *type, const char *connect_name)
{
    if (connect_name == NULL) {
        put_format(to, "\"%s\"", type);
    } else {
        put_format(to, "{\"type\":\"%s\",\"connect.version\":1,\"connect.name\":\"%s\"}", type,
                   connect_name);
    }
}

/* numeric.c, numeric_typmod_precision and _scale: the upper half of the type's modifier, and 11
 * bits with a sign. Avro's scale is from 0 to the precision (specification, "Decimal"); digits that
 * a negative one leaves out are written, and count. */
static void avro_schema_put_decimal(struct builder *to, int32_t modifier, int32_t scale)
{
    int32_t precision = MONEY_PRECISION;
    if (modifier >= 4) {
        int32_t sent = (((modifier - 4) & 0x7FF) ^ 1024) - 1024;
        precision = ((modifier - 4) >> 16) - (sent < 0 ? sent : 0);
    }
    precision = precision < scale ? scale : precision;
    put_format(to,
               "{\"type\":\"bytes\",\"scale\":%d,\"precision\":%d,\"connect.version\":1,"
               "\"connect.parameters\":{\"scale\":\"%d\",\"connect.decimal.precision\":\"%d\"},"
               "\"connect.name\":\"org.apache.kafka.connect.data.Decimal\",\"logicalType\":"
               "\"decimal\"}",
               scale, precision, scale, precision);
}

static void avro_schema_put_text(struct builder *to, uint32_t oid)
{
    avro_schema_put_leaf(to, "string",
                         oid == JSON_OID || oid == JSONB_OID ? "io.debezium.data.Json"
                         : oid == UUID_OID                   ? "io.debezium.data.Uuid"
                         : oid == XML_OID                    ? "io.debezium.data.Xml"
                         : oid == TSVECTOR_OID               ? "io.debezium.data.Tsvector"
                                                             : NULL);
}

/* By the rule that writes it; `scale` is a decimal's. */
static void avro_schema_put_value(struct builder *to, enum mr_rule rule, int32_t scale,
                                  uint32_t oid, int32_t modifier)
{
    static const char *const names[] = {
        [MR_AVRO_BOOLEAN] = "boolean", [MR_AVRO_INT] = "int",       [MR_AVRO_LONG] = "long",
        [MR_AVRO_FLOAT] = "float",     [MR_AVRO_DOUBLE] = "double", [MR_AVRO_STRING] = "string",
        [MR_AVRO_BYTES] = "bytes",
    };
    enum mr_avro_type type = mr_rules[rule].avro;
    bool is_double = type == MR_AVRO_DOUBLES;
    if (type == MR_AVRO_TEXT) {
        avro_schema_put_text(to, oid);
    } else if (type < (enum mr_avro_type)MR_ARRAY_LEN(names)) {
        avro_schema_put_leaf(to, names[type], mr_rules[rule].avro_name);
    } else if (type == MR_AVRO_DECIMAL) {
        avro_schema_put_decimal(to, rule == MR_RULE_MONEY ? -1 : modifier, scale);
    } else if (type == MR_AVRO_DOUBLES || type == MR_AVRO_FLOATS) {
        put_format(to,
                   "{\"type\":\"array\",\"items\":\"%s\",\"connect.version\":1,"
                   "\"connect.name\":\"io.debezium.data.%sVector\"}",
                   is_double ? "double" : "float", is_double ? "Double" : "Float");
    } else if (type == MR_AVRO_MAP) { /* values of maps and elements may be null */
        avro_schema_put(to, "{\"type\":\"map\",\"values\":[\"null\",\"string\"]}");
    } else {
        avro_schema_put_shape(to, type);
    }
}

static void put_type(struct builder *to, uint32_t column)
{
    const struct mr_column *of = &to->plan->relation->columns[column];
    const struct mr_plan_column *planned = &to->plan->columns[column];
    bool is_known = of->type.kind == MR_TYPE_BUILT_IN;
    uint32_t oid = is_known ? of->type.oid : of->type_oid;
    int32_t modifier = is_known ? of->type.modifier : of->type_modifier;
    if (planned->rule == MR_RULE_LIST) {
        const struct mr_conversion *element = &planned->form->element;
        avro_schema_put(to, "{\"type\":\"array\",\"items\":[\"null\",");
        avro_schema_put_value(to, element->rule, element->detail, mr_type_element(oid), modifier);
        avro_schema_put(to, "]}");
    } else {
        avro_schema_put_value(to, planned->rule,
                              planned->form == NULL ? 0 : planned->form->conversion.detail, oid,
                              modifier);
    }
}

/* What Avro takes in a name (specification, "Names"): other characters become underscores, as with
 * Debezium's adjustment mode avro, where one beyond the basic plane counts as two (Java's char);
 * one is put before a digit that begins a part. */
static void adjust(char *to, const char *from, bool dots)
{
    bool begins = true;
    for (; *from != '\0'; from++) {
        if (((unsigned char)*from & 0xC0) == 0x80) {
            continue; /* of a character that has its underscore */
        }
        bool digit = *from >= '0' && *from <= '9';
        bool letter = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z');
        if (digit && begins) {
            *to++ = '_';
        }
        *to++ = letter || digit || (dots && *from == '.' && !begins) ? *from : '_';
        if ((unsigned char)*from >= 0xF0) {
            *to++ = '_';
        }
        begins = dots && to[-1] == '.';
    }
    *to = '\0';
}

/* The namespace of a table's schemas. The caller frees it. */
static char *namespace_of(const struct mr_encode_options *options,
                          const struct mr_relation *relation)
{
    const char *parts[] = {options->topic_prefix, relation->schema, relation->table};
    size_t size = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++) {
        size += 2 * strlen(parts[i]) + 1;
    }
    char *whole = MR_ALLOC(size);
    char *at = whole;
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++) {
        if (i > 0) {
            *at++ = '.';
        }
        adjust(at, parts[i], i == 0);
        at += strlen(at);
    }
    return whole;
}

static mr_status avro_schema_check_names(const struct mr_plan *plan, struct mr_error *ret_error)
{
    const struct mr_relation *relation = plan->relation;
    char a[2 * MR_IDENTIFIER_MAX + 2], b[2 * MR_IDENTIFIER_MAX + 2];
    for (uint32_t i = 1; i < relation->column_count; i++) {
        adjust(a, relation->columns[i].name, false);
        for (uint32_t k = 0; k < i; k++) {
            adjust(b, relation->columns[k].name, false);
            if (strcmp(a, b) == 0 && plan->columns[i].writer != MR_WRITE_ABSENT &&
                plan->columns[k].writer != MR_WRITE_ABSENT) {
                return mr_fail(ret_error, MR_ERR_CONFIG,
                               "columns \"%s\" and \"%s\" of table %s.%s would both be \"%s\" in "
                               "Avro; rename one, or leave one out with columns.exclude",
                               relation->columns[k].name, relation->columns[i].name,
                               relation->schema, relation->table, a);
            }
        }
    }
    return MR_OK;
}

static void avro_schema_put_column(struct builder *to, uint32_t column, bool nullable)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    adjust(name, to->plan->relation->columns[column].name, false);
    begin_field(to, name, nullable);
    put_type(to, column);
    end_field(to, nullable);
}

/* `more`: bytes of names besides the columns'. */
static struct builder begin_schema(const struct mr_plan *plan, const char *space, const char *name,
                                   size_t more)
{
    size_t size = 8192 + 16 * strlen(space) + more;
    for (uint32_t i = 0; plan != NULL && i < plan->relation->column_count; i++) {
        size += 2 * strlen(plan->relation->columns[i].name) + 2 * TYPE_MAX;
    }
    uint8_t *text = MR_ALLOC(size);
    struct builder made = {.plan = plan,
                           .text = text,
                           .space = space,
                           .name = name,
                           .out = mr_buffer_init(text, size)};
    begin_record(&made, space, name);
    return made;
}

/* Names the schema to the options' schemas, as that of a topic's keys or values. Answers its
 * index. */
static uint32_t end_schema(struct builder *to, const struct mr_encode_options *options,
                           const char *topic, const char *side)
{
    end_record(to, to->space, to->name);
    MR_ASSERT(!to->out.full);
    size_t size = strlen(topic) + strlen(to->space) + strlen(to->name) + strlen(side) + 3;
    MR_FREED char *subject = MR_ALLOC(size);
    switch (options->subjects) {
    case MR_SUBJECT_TOPIC:
        snprintf(subject, size, "%s-%s", topic, side);
        break;
    case MR_SUBJECT_RECORD:
        snprintf(subject, size, "%s.%s", to->space, to->name);
        break;
    case MR_SUBJECT_TOPIC_RECORD:
        snprintf(subject, size, "%s-%s.%s", topic, to->space, to->name);
        break;
    }
    uint32_t index =
        mr_schemas_intern(options->schemas, subject, mr_text_since(&to->out, to->text));
    free(to->text);
    return index;
}

static uint32_t key_schema(const struct mr_encode_options *options, const struct mr_plan *plan,
                           const char *space)
{
    /* After the columns the table's name, where several tables share a topic (plan.c,
     * plan_key_end). */
    const char *field = plan->key.tail == NULL ? "" : options->routing->key_field;
    struct builder to = begin_schema(plan, space, "Key", 2 * strlen(field));
    for (uint32_t i = 0; i < plan->key.count; i++) {
        avro_schema_put_column(&to, plan->key.columns[i], plan->key.may_be_null);
    }
    if (plan->key.tail != NULL) {
        char *name = MR_ALLOC(2 * strlen(field) + 2);
        adjust(name, field, false);
        avro_schema_put_field(&to, name, "\"string\"", false);
        free(name);
    }
    return end_schema(&to, options, plan->topic->name, "key");
}

/* A row: each column may be null, for the stream does not say which may not. */
static void put_row_type(struct builder *to)
{
    begin_record(to, to->space, "Value");
    for (uint32_t i = 0; i < to->plan->relation->column_count; i++) {
        if (to->plan->columns[i].writer != MR_WRITE_ABSENT) {
            avro_schema_put_column(to, i, true);
        }
    }
    end_record(to, to->space, "Value");
}

static void put_source_fields(struct builder *to, enum mr_event_field first,
                              enum mr_event_field last)
{
    for (enum mr_event_field i = first; i <= last; i++) {
        const struct mr_source_field *field = &mr_source_fields[i];
        avro_schema_put_field(to, field->name, field->is_text ? "\"string\"" : "\"long\"",
                              field->nullable);
    }
}

/* The source block, and the place in a transaction. */
static void put_origin(struct builder *to)
{
    begin_field(to, "source", false);
    begin_record(to, CONNECTOR, "Source");
    put_source_fields(to, MR_FIELD_SOURCE_VERSION, MR_FIELD_SOURCE_ORIGIN_LSN);
    end_record(to, CONNECTOR, "Source");
    end_field(to, false);
    begin_field(to, "transaction", true);
    begin_record(to, "event", "block");
    avro_schema_put_field(to, "id", "\"string\"", false);
    avro_schema_put_field(to, "total_order", "\"long\"", false);
    avro_schema_put_field(to, "data_collection_order", "\"long\"", false);
    end_record(to, "event", "block");
    end_field(to, true);
}

static uint32_t envelope_schema(const struct mr_encode_options *options, const struct mr_plan *plan,
                                const char *space)
{
    struct builder to = begin_schema(plan, space, "Envelope", 0);
    begin_field(&to, "before", true);
    put_row_type(&to);
    end_field(&to, true);
    avro_schema_put_field(&to, "after", "\"Value\"", true);
    put_origin(&to);
    put_source_fields(&to, MR_FIELD_OP, MR_FIELD_TS_NS);
    return end_schema(&to, options, plan->topic->name, "value");
}

static uint32_t message_key(const struct mr_encode_options *options, const char *topic)
{
    struct builder to = begin_schema(NULL, CONNECTOR, "MessageKey", 0);
    avro_schema_put_field(&to, "prefix", "\"string\"", true);
    return end_schema(&to, options, topic, "key");
}

static uint32_t message_value(const struct mr_encode_options *options, const char *topic)
{
    bool is_bytes = options->modes.binary == MR_BINARY_BYTES;
    struct builder to = begin_schema(NULL, CONNECTOR, "MessageValue", 0);
    put_source_fields(&to, MR_FIELD_OP, MR_FIELD_TS_MS);
    put_origin(&to);
    begin_field(&to, "message", false);
    begin_record(&to, CONNECTOR, "Message");
    avro_schema_put_field(&to, "prefix", "\"string\"", true);
    avro_schema_put_field(&to, "content", is_bytes ? "\"bytes\"" : "\"string\"", true);
    end_record(&to, CONNECTOR, "Message");
    end_field(&to, false);
    return end_schema(&to, options, topic, "value");
}

mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error)
{
    MR_TRY(avro_schema_check_names(plan, ret_error));
    MR_FREED char *space = namespace_of(options, plan->relation);
    plan->avro.value = envelope_schema(options, plan, space);
    plan->avro.key = plan->key.count == 0 ? MR_NO_SCHEMA : key_schema(options, plan, space);
    return MR_OK;
}

struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic)
{
    struct mr_avro_pair pair;
    pair.value = message_value(options, topic->name);
    pair.key = message_key(options, topic->name);
    return pair;
}
