/* The schemas of events and keys, and the subjects that they have in a registry. */
#include "encode/forms/avro.h"

#include <stdio.h>
#include <stdlib.h>

#include "encode/values/put.h"
#include "encode/values/types.h"

/* ---- types with parts, by the names that Debezium has for them ---- */

#define FIELD(name, type)    "{\"name\":\"" name "\",\"type\":\"" type "\"}"
#define NULLABLE(name, type) NULLABLE_OF(name, "\"" type "\"")
#define NULLABLE_OF(name, type)                                                                    \
    "{\"name\":\"" name "\",\"type\":[\"null\"," type "],\"default\":null}"
#define RECORD(space, name, fields)                                                                \
    "{\"type\":\"record\",\"name\":\"" name "\",\"namespace\":\"" space "\",\"fields\":[" fields   \
    "],\"connect.name\":\"" space "." name "\"}"
#define DATA      "io.debezium.data"
#define GEOMETRY  "io.debezium.data.geometry"
#define CONNECTOR "io.debezium.connector.postgresql"
#define MAP       "{\"type\":\"map\",\"values\":\"string\"}"
#define CIRCLE_BEGIN                                                                               \
    "{\"type\":\"record\",\"name\":\"Circle\",\"namespace\":\"" GEOMETRY                           \
    "\",\"fields\":[{\"name\":\"center\",\"type\":"
#define CIRCLE_END "}," FIELD("radius", "double") "],\"connect.name\":\"" GEOMETRY ".Circle\"}"

enum shape {
    SHAPE_NONE,
    SHAPE_DECIMAL,
    SHAPE_POINT,
    SHAPE_CIRCLE,
    SHAPE_LINE,
    SHAPE_GEOMETRY,
    SHAPE_GEOGRAPHY,
    SHAPE_SPARSE,
    SHAPE_COUNT,
};

static const struct {
    const char *name; /* by which the text refers to it once it has defined it */
    const char *type;
} shapes[SHAPE_COUNT] = {
    [SHAPE_DECIMAL] = {DATA ".VariableScaleDecimal",
                       RECORD(DATA, "VariableScaleDecimal",
                              FIELD("scale", "int") "," FIELD("value", "bytes"))},
    [SHAPE_POINT] = {GEOMETRY ".Point",
                     RECORD(GEOMETRY, "Point",
                            FIELD("x", "double") "," FIELD("y", "double") "," NULLABLE(
                                "wkb", "bytes") "," NULLABLE("srid", "int"))},
    [SHAPE_CIRCLE] = {GEOMETRY ".Circle", NULL /* it has a point in it */},
    [SHAPE_LINE] = {GEOMETRY ".Line",
                    RECORD(GEOMETRY, "Line",
                           FIELD("a", "double") "," FIELD("b", "double") "," FIELD("c", "double"))},
    [SHAPE_GEOMETRY] = {GEOMETRY ".Geometry",
                        RECORD(GEOMETRY, "Geometry",
                               FIELD("wkb", "bytes") "," NULLABLE("srid", "int") "," NULLABLE_OF(
                                   "extensions", MAP))},
    [SHAPE_GEOGRAPHY] = {GEOMETRY ".Geography",
                         RECORD(GEOMETRY, "Geography",
                                FIELD("wkb", "bytes") "," NULLABLE("srid", "int"))},
    [SHAPE_SPARSE] =
        {DATA ".SparseDoubleVector",
         RECORD(DATA, "SparseDoubleVector",
                FIELD("dimensions", "int") ",{\"name\":\"vector\",\"type\":{\"type\":\"array\","
                                           "\"items\":{\"type\":\"record\",\"name\":\"MapEntry\","
                                           "\"namespace\":\"io.confluent.connect.avro\","
                                           "\"fields\":[" FIELD("key", "int") "," FIELD(
                                               "value", "double") "]}}}")},
};

/* Debezium's source block, whose fields come in this order (its SourceInfo and LegacyV1 makers; docs/events.md). */
static const char source_type[] = RECORD(
    CONNECTOR, "Source",
    FIELD("version", "string") "," FIELD("connector", "string") "," FIELD("name", "string") "," FIELD("ts_ms", "long") "," NULLABLE("snapshot", "string") "," FIELD("db", "string") "," NULLABLE(
        "sequence",
        "string") "," NULLABLE("ts_us",
                               "long") "," NULLABLE("ts_ns",
                                                    "long") "," FIELD("schema",
                                                                      "string") "," FIELD("table",
                                                                                          "string") "," NULLABLE("txId",
                                                                                                                 "long") "," NULLABLE("lsn",
                                                                                                                                      "long") "," NULLABLE("xmin",
                                                                                                                                                           "long") "," NULLABLE("origin",
                                                                                                                                                                                "string") "," NULLABLE("origin_lsn",
                                                                                                                                                                                                       "long"));

static const char transaction_field[] = "," NULLABLE_OF(
    "transaction", RECORD("event", "block",
                          FIELD("id", "string") "," FIELD("total_order", "long") "," FIELD(
                              "data_collection_order", "long")));

static const char envelope_end[] = "," FIELD("op", "string") "," NULLABLE(
    "ts_ms", "long") "," NULLABLE("ts_us", "long") "," NULLABLE("ts_ns", "long");

/* ---- what a column's values are ---- */

enum { TYPE_MAX = 512, JSON_OID = 114, JSONB_OID = 3802, UUID_OID = 2950, XML_OID = 142 };
/* The largest money is 92233720368547758.07 (manual, 8.2). */
enum { MONEY_PRECISION = 19, TSVECTOR_OID = 3614 };

struct leaf {
    enum shape shape; /* SHAPE_NONE: `type` is its text */
    char type[TYPE_MAX];
};

static struct leaf leaf(const char *type, const char *connect_name)
{
    struct leaf made = {.shape = SHAPE_NONE};
    if (connect_name == NULL) {
        snprintf(made.type, sizeof(made.type), "\"%s\"", type);
    } else {
        snprintf(made.type, sizeof(made.type),
                 "{\"type\":\"%s\",\"connect.version\":1,\"connect.name\":\"%s\"}", type,
                 connect_name);
    }
    return made;
}

/* numeric.c, numeric_typmod_precision and _scale: the upper half of the type's modifier, and 11 bits with a sign. Avro's scale is
 * from 0 to the precision (specification, "Decimal"); digits that a negative one leaves out are written, and count. */
static struct leaf decimal(int32_t modifier, int32_t scale)
{
    int32_t precision = MONEY_PRECISION;
    if (modifier >= 4) {
        int32_t told = (((modifier - 4) & 0x7FF) ^ 1024) - 1024;
        precision = ((modifier - 4) >> 16) - (told < 0 ? told : 0);
    }
    precision = precision < scale ? scale : precision;
    struct leaf made = {.shape = SHAPE_NONE};
    snprintf(made.type, sizeof(made.type),
             "{\"type\":\"bytes\",\"scale\":%d,\"precision\":%d,\"connect.version\":1,"
             "\"connect.parameters\":{\"scale\":\"%d\",\"connect.decimal.precision\":\"%d\"},"
             "\"connect.name\":\"org.apache.kafka.connect.data.Decimal\",\"logicalType\":"
             "\"decimal\"}",
             scale, precision, scale, precision);
    return made;
}

static struct leaf text_leaf(uint32_t oid)
{
    const char *name = oid == JSON_OID || oid == JSONB_OID ? "io.debezium.data.Json"
                       : oid == UUID_OID                   ? "io.debezium.data.Uuid"
                       : oid == XML_OID                    ? "io.debezium.data.Xml"
                       : oid == TSVECTOR_OID               ? "io.debezium.data.Tsvector"
                                                           : NULL;
    return leaf("string", name);
}

static struct leaf time_leaf(int32_t digits, const char *const names[3], bool ms_is_int)
{
    bool is_int = digits == 3 && ms_is_int;
    return leaf(is_int ? "int" : "long", names[digits / 3 - 1]);
}

/* By the conversion that writes it. What no line names is text. */
static struct leaf converted(const struct mr_conversion *how, uint32_t oid, int32_t modifier)
{
    static const char *const epochs[] = {"io.debezium.time.Timestamp",
                                         "io.debezium.time.MicroTimestamp",
                                         "io.debezium.time.NanoTimestamp"};
    static const char *const clocks[] = {"io.debezium.time.Time", "io.debezium.time.MicroTime",
                                         "io.debezium.time.NanoTime"};
    static const struct {
        mr_convert_fn write;
        const char *type, *name;
    } simple[] = {
        {mr_convert_bool, "boolean", NULL},
        {mr_convert_bit, "boolean", NULL},
        {mr_convert_bits, "bytes", "io.debezium.data.Bits"},
        {mr_convert_days, "int", "io.debezium.time.Date"},
        {mr_convert_zoned_epoch, "string", "io.debezium.time.ZonedTimestamp"},
        {mr_convert_zoned_clock, "string", "io.debezium.time.ZonedTime"},
        {mr_convert_interval, "long", "io.debezium.time.MicroDuration"},
        {mr_convert_interval_text, "string", "io.debezium.time.Interval"},
        {mr_convert_utc_date, "string", "io.debezium.time.IsoDate"},
        {mr_convert_utc_clock, "string", "io.debezium.time.IsoTime"},
        {mr_convert_utc_stamp, "string", "io.debezium.time.IsoTimestamp"},
        {mr_convert_hstore_string, "string", "io.debezium.data.Json"},
        {mr_convert_decimal_double, "double", NULL},
    };
    static const struct {
        mr_convert_fn write;
        enum shape shape;
    } shaped[] = {
        {mr_convert_scaled_decimal, SHAPE_DECIMAL}, {mr_convert_point, SHAPE_POINT},
        {mr_convert_circle, SHAPE_CIRCLE},          {mr_convert_line, SHAPE_LINE},
        {mr_convert_lseg, SHAPE_GEOMETRY},          {mr_convert_path, SHAPE_GEOMETRY},
        {mr_convert_box, SHAPE_GEOMETRY},           {mr_convert_polygon, SHAPE_GEOMETRY},
        {mr_convert_sparse_vector, SHAPE_SPARSE},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(simple); i++) {
        if (how->write == simple[i].write) {
            return leaf(simple[i].type, simple[i].name);
        }
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(shaped); i++) {
        if (how->write == shaped[i].write) {
            return (struct leaf){.shape = shaped[i].shape};
        }
    }
    if (how->write == mr_convert_ewkb) {
        return (struct leaf){.shape = how->detail != 0 ? SHAPE_GEOMETRY : SHAPE_GEOGRAPHY};
    }
    if (how->write == mr_convert_vector) {
        struct leaf made = {.shape = SHAPE_NONE};
        snprintf(made.type, sizeof(made.type),
                 "{\"type\":\"array\",\"items\":\"%s\",\"connect.version\":1,\"connect.name\":"
                 "\"io.debezium.data.%sVector\"}",
                 how->detail == MR_FLOAT_BYTES ? "float" : "double",
                 how->detail == MR_FLOAT_BYTES ? "Float" : "Double");
        return made;
    }
    if (how->write == mr_convert_integer) {
        return leaf(how->detail == MR_INT_BYTES ? "int" : "long", NULL);
    }
    if (how->write == mr_convert_java_float) {
        return leaf(how->detail == MR_FLOAT_BYTES ? "float" : "double", NULL);
    }
    if (how->write == mr_convert_decimal || how->write == mr_convert_money) {
        return decimal(how->write == mr_convert_money ? -1 : modifier, how->detail);
    }
    if (how->write == mr_convert_bytes && how->detail == MR_BINARY_BYTES) {
        return leaf("bytes", NULL);
    }
    if (how->write == mr_convert_epoch) {
        return time_leaf(how->detail, epochs, false);
    }
    if (how->write == mr_convert_clock) {
        return time_leaf(how->detail, clocks, true);
    }
    return text_leaf(oid);
}

/* ---- writing a schema ---- */

struct builder {
    const struct mr_plan *plan; /* NULL: of messages */
    struct mr_avro_schema *schema;
    const char *space, *name;
    struct mr_buffer out;
    uint32_t defined; /* bits of the shapes that the text has */
};

static void put(struct builder *to, const char *text)
{
    mr_buffer_slice(&to->out, mr_slice_of(text));
}

static void begin_field(struct builder *to, const char *name, bool first, bool nullable)
{
    put(to, first ? "{\"name\":\"" : ",{\"name\":\"");
    put(to, name);
    put(to, nullable ? "\",\"type\":[\"null\"," : "\",\"type\":");
}

static void end_field(struct builder *to, bool nullable)
{
    put(to, nullable ? "],\"default\":null}" : "}");
}

static void begin_record(struct builder *to, const char *name)
{
    put(to, "{\"type\":\"record\",\"name\":\"");
    put(to, name);
    put(to, "\",\"namespace\":\"");
    put(to, to->space);
    put(to, "\",\"fields\":[");
}

static void end_record(struct builder *to, const char *name)
{
    put(to, "],\"connect.name\":\"");
    put(to, to->space);
    put(to, ".");
    put(to, name);
    put(to, "\"}");
}

/* A type that the text has defined already goes by its name. */
static void put_shape(struct builder *to, enum shape shape)
{
    bool is_known = (to->defined & (1u << shape)) != 0;
    to->defined |= 1u << shape;
    if (is_known) {
        put(to, "\"");
        put(to, shapes[shape].name);
        put(to, "\"");
    } else if (shape == SHAPE_CIRCLE) {
        put(to, CIRCLE_BEGIN);
        put_shape(to, SHAPE_POINT);
        put(to, CIRCLE_END);
    } else {
        put(to, shapes[shape].type);
    }
}

static void put_leaf(struct builder *to, const struct leaf *leaf)
{
    if (leaf->shape != SHAPE_NONE) {
        put_shape(to, leaf->shape);
    } else {
        put(to, leaf->type);
    }
}

static void put_type(struct builder *to, uint32_t column)
{
    const struct mr_column *of = &to->plan->relation->columns[column];
    const struct mr_plan_column *planned = &to->plan->columns[column];
    uint32_t oid = of->type.kind == MR_TYPE_BUILT_IN ? of->type.oid : of->type_oid;
    int32_t modifier = of->type.kind == MR_TYPE_BUILT_IN ? of->type.modifier : of->type_modifier;
    struct leaf made = text_leaf(oid);
    const char *end = "";
    if (planned->writer == MR_WRITE_BOOL) {
        made = leaf("boolean", NULL);
    } else if (planned->writer == MR_WRITE_FLOAT) {
        made = leaf("double", NULL);
    } else if (planned->writer == MR_WRITE_NUMBER) {
        made = leaf(planned->is_int ? "int" : "long", NULL);
    } else if (planned->writer == MR_WRITE_CONVERT) {
        const struct mr_conversion *how = &planned->form->conversion;
        if (how->write == mr_convert_array) { /* elements and values of maps may be null */
            made = converted(&planned->form->element, mr_type_element(oid), modifier);
            put(to, "{\"type\":\"array\",\"items\":[\"null\",");
            end = "]}";
        } else if (how->write == mr_convert_hstore_map) {
            made = leaf("string", NULL);
            put(to, "{\"type\":\"map\",\"values\":[\"null\",");
            end = "]}";
        } else {
            made = converted(how, oid, modifier);
        }
    }
    put_leaf(to, &made);
    put(to, end);
}

/* ---- names ---- */

/* What Avro takes in a name (specification, "Names"): other characters become underscores, as with Debezium's adjustment
 * mode avro, where one beyond the basic plane counts as two (Java's char); one is put before a digit that begins a part. */
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

static mr_status check_names(const struct mr_plan *plan, struct mr_error *ret_error)
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

/* ---- the schemas ---- */

static void put_column(struct builder *to, uint32_t column, bool first, bool nullable)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    adjust(name, to->plan->relation->columns[column].name, false);
    begin_field(to, name, first, nullable);
    put_type(to, column);
    end_field(to, nullable);
}

/* `more`: bytes of names besides the columns'. */
static struct builder begin_schema(const struct mr_plan *plan, const char *space, const char *name,
                                   size_t more)
{
    struct mr_avro_schema *schema = MR_NEW(struct mr_avro_schema);
    size_t size = 8192 + 16 * strlen(space) + more;
    for (uint32_t i = 0; plan != NULL && i < plan->relation->column_count; i++) {
        size += 2 * strlen(plan->relation->columns[i].name) + 2 * TYPE_MAX;
    }
    struct builder made = {.plan = plan,
                           .schema = schema,
                           .space = space,
                           .name = name,
                           .out = mr_text_begin(&schema->text, size)};
    size_t name_size = strlen(space) + strlen(name) + 2;
    schema->name = MR_ALLOC(name_size);
    snprintf(schema->name, name_size, "%s.%s", space, name);
    begin_record(&made, name);
    return made;
}

static struct mr_avro_schema *end_schema(struct builder *to)
{
    end_record(to, to->name);
    MR_ASSERT(!to->out.full);
    to->schema->text.len = (size_t)(to->out.at - to->schema->text.data);
    return to->schema;
}

static struct mr_avro_schema *key_schema(const struct mr_encode_options *options,
                                         const struct mr_plan *plan, const char *space)
{
    /* After the columns the table's name, where several tables share a topic (plan.c, plan_key_end). */
    const char *field = plan->key.tail == NULL ? "" : options->routing->key_field;
    struct builder to = begin_schema(plan, space, "Key", 2 * strlen(field));
    for (uint32_t i = 0; i < plan->key.count; i++) {
        put_column(&to, plan->key.columns[i], i == 0, plan->key.may_be_null);
    }
    if (plan->key.tail != NULL) {
        char *name = MR_ALLOC(2 * strlen(field) + 2);
        adjust(name, field, false);
        begin_field(&to, name, false, false);
        put(&to, "\"string\"");
        end_field(&to, false);
        free(name);
    }
    return end_schema(&to);
}

/* A row: each column may be null, for the stream does not say which may not. */
static void put_row_type(struct builder *to)
{
    bool first = true;
    begin_record(to, "Value");
    for (uint32_t i = 0; i < to->plan->relation->column_count; i++) {
        if (to->plan->columns[i].writer != MR_WRITE_ABSENT) {
            put_column(to, i, first, true);
            first = false;
        }
    }
    end_record(to, "Value");
}

static struct mr_avro_schema *envelope_schema(const struct mr_plan *plan, const char *space)
{
    struct builder to = begin_schema(plan, space, "Envelope", 0);
    begin_field(&to, "before", true, true);
    put_row_type(&to);
    end_field(&to, true);
    put(&to, "," NULLABLE("after", "Value"));
    begin_field(&to, "source", false, false);
    put(&to, source_type);
    end_field(&to, false);
    put(&to, transaction_field);
    put(&to, envelope_end);
    return end_schema(&to);
}

static struct mr_avro_schema *message_key(void)
{
    struct builder to = begin_schema(NULL, CONNECTOR, "MessageKey", 0);
    put(&to, NULLABLE("prefix", "string"));
    return end_schema(&to);
}

static struct mr_avro_schema *message_value(bool is_bytes)
{
    struct builder to = begin_schema(NULL, CONNECTOR, "MessageValue", 0);
    put(&to, FIELD("op", "string") "," NULLABLE("ts_ms", "long"));
    begin_field(&to, "source", false, false);
    put(&to, source_type);
    end_field(&to, false);
    put(&to, transaction_field);
    begin_field(&to, "message", false, false);
    begin_record(&to, "Message");
    put(&to, NULLABLE("prefix", "string") ",");
    put(&to, is_bytes ? NULLABLE("content", "bytes") : NULLABLE("content", "string"));
    end_record(&to, "Message");
    end_field(&to, false);
    return end_schema(&to);
}

/* ---- subjects ---- */

static void intern(const struct mr_encode_options *options, const char *topic,
                   struct mr_avro_schema *schema, const char *side)
{
    size_t size = strlen(topic) + strlen(schema->name) + strlen(side) + 2;
    char *subject = MR_ALLOC(size);
    switch (options->subjects) {
    case MR_SUBJECT_TOPIC:
        snprintf(subject, size, "%s-%s", topic, side);
        break;
    case MR_SUBJECT_RECORD:
        snprintf(subject, size, "%s", schema->name);
        break;
    case MR_SUBJECT_TOPIC_RECORD:
        snprintf(subject, size, "%s-%s", topic, schema->name);
        break;
    }
    mr_slice text = {.data = schema->text.data, .len = schema->text.len};
    schema->index = mr_schemas_intern(options->schemas, subject, text);
    free(subject);
}

static void intern_pair(const struct mr_encode_options *options, const char *topic,
                        struct mr_avro_pair *pair)
{
    intern(options, topic, pair->value, "value");
    if (pair->key != NULL) {
        intern(options, topic, pair->key, "key");
    }
}

mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error)
{
    MR_TRY(check_names(plan, ret_error));
    char *space = namespace_of(options, plan->relation);
    *plan->avro =
        (struct mr_avro_pair){.key = plan->key.count == 0 ? NULL : key_schema(options, plan, space),
                              .value = envelope_schema(plan, space)};
    free(space);
    intern_pair(options, plan->topic->name, plan->avro);
    return MR_OK;
}

struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic)
{
    struct mr_avro_pair pair = {.key = message_key(),
                                .value = message_value(options->modes.binary == MR_BINARY_BYTES)};
    intern_pair(options, topic->name, &pair);
    return pair;
}

static void schema_free(struct mr_avro_schema *schema)
{
    if (schema != NULL) {
        free(schema->text.data);
        free(schema->name);
        free(schema);
    }
}

void mr_avro_pair_done(struct mr_avro_pair *pair)
{
    schema_free(pair->key);
    schema_free(pair->value);
}
