#include <stdio.h>
#include <stdlib.h>

#include "encode/forms/avro.h"

/* ---- types with parts, by the names that Debezium has for them ---- */

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

struct part {
    const char *name;
    enum mr_avro_kind kind;
    const char *type;
    enum shape shape;
    bool nullable;
};

static const struct shape_form {
    const char *space;
    const char *name;
    struct part parts[4];
} shapes[SHAPE_COUNT] = {
    [SHAPE_DECIMAL] = {"io.debezium.data",
                       "VariableScaleDecimal",
                       {{"scale", MR_AVRO_INT, "\"int\"", SHAPE_NONE, false},
                        {"value", MR_AVRO_BYTES, "\"bytes\"", SHAPE_NONE, false}}},
    [SHAPE_POINT] = {"io.debezium.data.geometry",
                     "Point",
                     {{"x", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false},
                      {"y", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false},
                      {"wkb", MR_AVRO_BYTES, "\"bytes\"", SHAPE_NONE, true},
                      {"srid", MR_AVRO_INT, "\"int\"", SHAPE_NONE, true}}},
    [SHAPE_CIRCLE] = {"io.debezium.data.geometry",
                      "Circle",
                      {{"center", MR_AVRO_RECORD, NULL, SHAPE_POINT, false},
                       {"radius", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false}}},
    [SHAPE_LINE] = {"io.debezium.data.geometry",
                    "Line",
                    {{"a", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false},
                     {"b", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false},
                     {"c", MR_AVRO_DOUBLE, "\"double\"", SHAPE_NONE, false}}},
    [SHAPE_GEOMETRY] = {"io.debezium.data.geometry",
                        "Geometry",
                        {{"wkb", MR_AVRO_BYTES, "\"bytes\"", SHAPE_NONE, false},
                         {"srid", MR_AVRO_INT, "\"int\"", SHAPE_NONE, true},
                         {"extensions", MR_AVRO_MAP, "{\"type\":\"map\",\"values\":\"string\"}",
                          SHAPE_NONE, true}}},
    [SHAPE_GEOGRAPHY] = {"io.debezium.data.geometry",
                         "Geography",
                         {{"wkb", MR_AVRO_BYTES, "\"bytes\"", SHAPE_NONE, false},
                          {"srid", MR_AVRO_INT, "\"int\"", SHAPE_NONE, true}}},
    [SHAPE_SPARSE] = {"io.debezium.data",
                      "SparseDoubleVector",
                      {{"dimensions", MR_AVRO_INT, "\"int\"", SHAPE_NONE, false},
                       {"vector", MR_AVRO_PAIRS,
                        "{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"MapEntry\","
                        "\"namespace\":\"io.confluent.connect.avro\",\"fields\":[{\"name\":\"key\","
                        "\"type\":\"int\"},{\"name\":\"value\",\"type\":\"double\"}]}}",
                        SHAPE_NONE, false}}},
};

/* Debezium's source block, whose fields come in this order (its SourceInfo and LegacyV1 makers; docs/events.md). */
static const struct part source_parts[] = {
    {"version", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"connector", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"name", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"ts_ms", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, false},
    {"snapshot", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, true},
    {"db", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"sequence", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, true},
    {"ts_us", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"ts_ns", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"schema", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"table", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"txId", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"lsn", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"xmin", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"origin", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, true},
    {"origin_lsn", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
};

static const struct part transaction_parts[] = {
    {"id", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"total_order", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, false},
    {"data_collection_order", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, false},
};

static const struct part envelope_parts[] = {
    {"op", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
    {"ts_ms", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"ts_us", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    {"ts_ns", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
};

/* ---- what a column's values are ---- */

enum { TYPE_MAX = 512, JSON_OID = 114, JSONB_OID = 3802, UUID_OID = 2950, XML_OID = 142 };
/* The largest money is 92233720368547758.07 (manual, 8.2). */
enum { MONEY_PRECISION = 19, TSVECTOR_OID = 3614, INT2_OID = 21, INT4_OID = 23 };

struct leaf {
    enum mr_avro_kind kind;
    enum mr_avro_kind item; /* of a list that is one value */
    enum shape shape;
    char type[TYPE_MAX];
};

static struct leaf leaf(enum mr_avro_kind kind, const char *type, const char *connect_name)
{
    struct leaf made = {.kind = kind};
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
    struct leaf made = {.kind = MR_AVRO_BYTES};
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
    return leaf(MR_AVRO_STRING, "string", name);
}

static struct leaf time_leaf(int32_t digits, const char *const names[3], bool ms_is_int)
{
    bool is_int = digits == 3 && ms_is_int;
    return leaf(is_int ? MR_AVRO_INT : MR_AVRO_LONG, is_int ? "int" : "long",
                names[digits == 3   ? 0
                      : digits == 6 ? 1
                                    : 2]);
}

/* By the conversion that writes it. What no line names is text. */
static struct leaf converted(const struct mr_encode_options *options,
                             const struct mr_conversion *how, uint32_t oid, int32_t modifier)
{
    static const char *const epochs[] = {"io.debezium.time.Timestamp",
                                         "io.debezium.time.MicroTimestamp",
                                         "io.debezium.time.NanoTimestamp"};
    static const char *const clocks[] = {"io.debezium.time.Time", "io.debezium.time.MicroTime",
                                         "io.debezium.time.NanoTime"};
    static const struct {
        mr_convert_fn write;
        enum mr_avro_kind kind;
        const char *type, *name;
    } simple[] = {
        {mr_convert_bool, MR_AVRO_BOOL, "boolean", NULL},
        {mr_convert_bit, MR_AVRO_BOOL, "boolean", NULL},
        {mr_convert_bits, MR_AVRO_BYTES, "bytes", "io.debezium.data.Bits"},
        {mr_convert_days, MR_AVRO_INT, "int", "io.debezium.time.Date"},
        {mr_convert_zoned_epoch, MR_AVRO_STRING, "string", "io.debezium.time.ZonedTimestamp"},
        {mr_convert_zoned_clock, MR_AVRO_STRING, "string", "io.debezium.time.ZonedTime"},
        {mr_convert_interval, MR_AVRO_LONG, "long", "io.debezium.time.MicroDuration"},
        {mr_convert_interval_text, MR_AVRO_STRING, "string", "io.debezium.time.Interval"},
        {mr_convert_utc_date, MR_AVRO_STRING, "string", "io.debezium.time.IsoDate"},
        {mr_convert_utc_clock, MR_AVRO_STRING, "string", "io.debezium.time.IsoTime"},
        {mr_convert_utc_stamp, MR_AVRO_STRING, "string", "io.debezium.time.IsoTimestamp"},
        {mr_convert_hstore_string, MR_AVRO_STRING, "string", "io.debezium.data.Json"},
        {mr_convert_decimal_double, MR_AVRO_DOUBLE, "double", NULL},
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
            return leaf(simple[i].kind, simple[i].type, simple[i].name);
        }
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(shaped); i++) {
        if (how->write == shaped[i].write) {
            return (struct leaf){.kind = MR_AVRO_RECORD, .shape = shaped[i].shape};
        }
    }
    if (how->write == mr_convert_ewkb) {
        return (struct leaf){.kind = MR_AVRO_RECORD,
                             .shape = how->detail != 0 ? SHAPE_GEOMETRY : SHAPE_GEOGRAPHY};
    }
    if (how->write == mr_convert_vector) {
        struct leaf made = {.kind = MR_AVRO_ARRAY,
                            .item = how->detail == 4 ? MR_AVRO_FLOAT : MR_AVRO_DOUBLE};
        snprintf(made.type, sizeof(made.type),
                 "{\"type\":\"array\",\"items\":\"%s\",\"connect.version\":1,\"connect.name\":"
                 "\"io.debezium.data.%sVector\"}",
                 how->detail == 4 ? "float" : "double", how->detail == 4 ? "Float" : "Double");
        return made;
    }
    if (how->write == mr_convert_integer) {
        bool is_int = oid == INT2_OID || oid == INT4_OID;
        return leaf(is_int ? MR_AVRO_INT : MR_AVRO_LONG, is_int ? "int" : "long", NULL);
    }
    if (how->write == mr_convert_java_float) {
        return how->detail == 4 ? leaf(MR_AVRO_FLOAT, "float", NULL)
                                : leaf(MR_AVRO_DOUBLE, "double", NULL);
    }
    if (how->write == mr_convert_decimal || how->write == mr_convert_money) {
        return decimal(how->write == mr_convert_money ? -1 : modifier, how->detail);
    }
    if (how->write == mr_convert_bytes && options->modes.binary == MR_BINARY_BYTES) {
        return leaf(MR_AVRO_BYTES, "bytes", NULL);
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
    struct mr_avro_schema *schema;
    struct mr_buffer out;
    uint32_t capacity;
    uint32_t defined; /* bits of the shapes that the text has */
};

static uint32_t add_nodes(struct builder *to, uint32_t count)
{
    struct mr_avro_schema *schema = to->schema;
    if (schema->node_count + count > to->capacity) {
        to->capacity = 2 * (schema->node_count + count);
        schema->nodes = MR_REALLOC(schema->nodes, to->capacity * sizeof(*schema->nodes));
    }
    uint32_t first = schema->node_count;
    memset(schema->nodes + first, 0, count * sizeof(*schema->nodes));
    schema->node_count += count;
    return first;
}

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

static void begin_record(struct builder *to, const char *space, const char *name)
{
    put(to, "{\"type\":\"record\",\"name\":\"");
    put(to, name);
    put(to, "\",\"namespace\":\"");
    put(to, space);
    put(to, "\",\"fields\":[");
}

static void end_record(struct builder *to, const char *space, const char *name)
{
    put(to, "],\"connect.name\":\"");
    put(to, space);
    put(to, ".");
    put(to, name);
    put(to, "\"}");
}

static void write_shape(struct builder *to, uint32_t node, enum shape shape);

static void write_parts(struct builder *to, uint32_t first_node, const struct part *parts,
                        uint32_t count, bool first)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = &parts[i];
        struct mr_avro_node node = {.kind = (uint8_t)part->kind, .nullable = part->nullable};
        begin_field(to, part->name, first && i == 0, part->nullable);
        if (part->kind == MR_AVRO_MAP) {
            node.first = add_nodes(to, 1);
            node.count = 1;
            to->schema->nodes[node.first].kind = MR_AVRO_STRING;
        } else if (part->kind == MR_AVRO_PAIRS) {
            node.first = add_nodes(to, 2);
            node.count = 2;
            to->schema->nodes[node.first].kind = MR_AVRO_INT;
            to->schema->nodes[node.first + 1].kind = MR_AVRO_DOUBLE;
        }
        to->schema->nodes[first_node + i] = node;
        if (part->shape != SHAPE_NONE) {
            write_shape(to, first_node + i, part->shape);
        } else {
            put(to, part->type);
        }
        end_field(to, part->nullable);
    }
}

static void set_parts(struct builder *to, uint32_t node, uint32_t first, uint32_t count)
{
    to->schema->nodes[node].kind = MR_AVRO_RECORD;
    to->schema->nodes[node].first = first;
    to->schema->nodes[node].count = count;
}

/* A type that the text has defined already is told by its name. */
static void write_shape(struct builder *to, uint32_t node, enum shape shape)
{
    const struct shape_form *form = &shapes[shape];
    uint32_t count = 0;
    while (count < MR_ARRAY_LEN(form->parts) && form->parts[count].name != NULL) {
        count++;
    }
    uint32_t first = add_nodes(to, count);
    set_parts(to, node, first, count);
    bool is_known = (to->defined & (1u << shape)) != 0;
    to->defined |= 1u << shape;
    struct mr_buffer kept = to->out;
    if (!is_known) {
        begin_record(to, form->space, form->name);
    }
    write_parts(to, first, form->parts, count, true);
    if (!is_known) {
        end_record(to, form->space, form->name);
        return;
    }
    to->out = kept; /* the nodes are what was wanted of it */
    put(to, "\"");
    put(to, form->space);
    put(to, ".");
    put(to, form->name);
    put(to, "\"");
}

static void write_leaf(struct builder *to, uint32_t node, const struct leaf *leaf)
{
    to->schema->nodes[node].kind = (uint8_t)leaf->kind;
    if (leaf->shape != SHAPE_NONE) {
        write_shape(to, node, leaf->shape);
        return;
    }
    if (leaf->kind == MR_AVRO_ARRAY) {
        uint32_t first = add_nodes(to, 1);
        to->schema->nodes[node].first = first;
        to->schema->nodes[node].count = 1;
        to->schema->nodes[first].kind = (uint8_t)leaf->item;
    }
    put(to, leaf->type);
}

/* The element of a list or a map, of which either may be null. */
static void write_element(struct builder *to, uint32_t node, enum mr_avro_kind kind,
                          const struct leaf *element)
{
    uint32_t first = add_nodes(to, 1);
    to->schema->nodes[node].kind = (uint8_t)kind;
    to->schema->nodes[node].first = first;
    to->schema->nodes[node].count = 1;
    to->schema->nodes[first].nullable = true;
    put(to, kind == MR_AVRO_MAP ? "{\"type\":\"map\",\"values\":[\"null\","
                                : "{\"type\":\"array\",\"items\":[\"null\",");
    write_leaf(to, first, element);
    put(to, "]}");
}

static void write_type(struct builder *to, const struct mr_encode_options *options,
                       const struct mr_column *column, const struct mr_plan_column *planned,
                       uint32_t node)
{
    uint32_t oid = column->type.kind == MR_TYPE_BUILT_IN ? column->type.oid : column->type_oid;
    int32_t modifier =
        column->type.kind == MR_TYPE_BUILT_IN ? column->type.modifier : column->type_modifier;
    struct leaf made = text_leaf(oid);
    if (planned->writer == MR_WRITE_BOOL) {
        made = leaf(MR_AVRO_BOOL, "boolean", NULL);
    } else if (planned->writer == MR_WRITE_FLOAT) {
        made = leaf(MR_AVRO_DOUBLE, "double", NULL);
    } else if (planned->writer == MR_WRITE_NUMBER) {
        bool is_int = oid == INT2_OID || oid == INT4_OID;
        made = leaf(is_int ? MR_AVRO_INT : MR_AVRO_LONG, is_int ? "int" : "long", NULL);
    } else if (planned->writer == MR_WRITE_CONVERT) {
        const struct mr_conversion *how = &planned->form->conversion;
        if (how->write == mr_convert_array) {
            made = converted(options, &planned->form->element, mr_type_element(oid), modifier);
            write_element(to, node, MR_AVRO_ARRAY, &made);
            return;
        }
        if (how->write == mr_convert_hstore_map) {
            made = leaf(MR_AVRO_STRING, "string", NULL);
            write_element(to, node, MR_AVRO_MAP, &made);
            return;
        }
        made = converted(options, how, oid, modifier);
    }
    write_leaf(to, node, &made);
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
    size_t size =
        strlen(options->topic_prefix) + strlen(relation->schema) + strlen(relation->table) + 3;
    char *name = MR_ALLOC(size);
    char *schema = MR_ALLOC(2 * size);
    char *table = MR_ALLOC(2 * size);
    char *whole = MR_ALLOC(6 * size);
    adjust(schema, relation->schema, false);
    adjust(table, relation->table, false);
    char *prefix = MR_ALLOC(2 * size);
    adjust(prefix, options->topic_prefix, true);
    snprintf(whole, 6 * size, "%s.%s.%s", prefix, schema, table);
    free(prefix);
    free(name);
    free(schema);
    free(table);
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

/* ---- both schemas ---- */

static void write_column(struct builder *to, const struct mr_encode_options *options,
                         const struct mr_plan *plan, uint32_t column, uint32_t node, bool first,
                         bool nullable)
{
    char name[2 * MR_IDENTIFIER_MAX + 2];
    adjust(name, plan->relation->columns[column].name, false);
    begin_field(to, name, first, nullable);
    write_type(to, options, &plan->relation->columns[column], &plan->columns[column], node);
    to->schema->nodes[node].nullable = nullable;
    end_field(to, nullable);
}

/* `relation` NULL: there are no columns. `more`: bytes of names besides theirs. */
static struct builder begin_schema(const struct mr_relation *relation, const char *space,
                                   const char *name, size_t more)
{
    struct mr_avro_schema *schema = MR_NEW(struct mr_avro_schema);
    size_t size = 8192 + 16 * strlen(space) + more;
    for (uint32_t i = 0; relation != NULL && i < relation->column_count; i++) {
        size += 2 * strlen(relation->columns[i].name) + 2 * TYPE_MAX;
    }
    struct builder made = {.schema = schema, .out = mr_text_begin(&schema->text, size)};
    size_t name_size = strlen(space) + strlen(name) + 2;
    schema->name = MR_ALLOC(name_size);
    snprintf(schema->name, name_size, "%s.%s", space, name);
    add_nodes(&made, 1);
    begin_record(&made, space, name);
    return made;
}

static struct mr_avro_schema *end_schema(struct builder *to, const char *space, const char *name)
{
    end_record(to, space, name);
    MR_ASSERT(!to->out.full);
    to->schema->text.len = (size_t)(to->out.at - to->schema->text.data);
    return to->schema;
}

struct mr_avro_schema *mr_avro_key(const struct mr_encode_options *options,
                                   const struct mr_plan *plan, struct mr_error *ret_error)
{
    if (check_names(plan, ret_error) != MR_OK) {
        return NULL;
    }
    char *space = namespace_of(options, plan->relation);
    /* Behind the columns, the table's name, where several tables share a topic (plan.c, plan_key_end). */
    const char *field = plan->key_tail == NULL ? "" : options->routing->key_field;
    uint32_t count = plan->key_count + (plan->key_tail != NULL);
    struct builder to = begin_schema(plan->relation, space, "Key", 2 * strlen(field));
    uint32_t first = add_nodes(&to, count);
    set_parts(&to, 0, first, count);
    for (uint32_t i = 0; i < plan->key_count; i++) {
        write_column(&to, options, plan, plan->key_columns[i], first + i, i == 0,
                     plan->key_may_be_null);
    }
    if (plan->key_tail != NULL) {
        char *name = MR_ALLOC(2 * strlen(field) + 2);
        adjust(name, field, false);
        begin_field(&to, name, false, false);
        put(&to, "\"string\"");
        end_field(&to, false);
        to.schema->nodes[first + count - 1].kind = MR_AVRO_STRING;
        free(name);
    }
    struct mr_avro_schema *schema = end_schema(&to, space, "Key");
    free(space);
    return schema;
}

/* A row: each column may be null, for the stream does not say which may not. */
static void write_row_type(struct builder *to, const struct mr_encode_options *options,
                           const struct mr_plan *plan, const char *space, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->relation->column_count; i++) {
        count += plan->columns[i].writer != MR_WRITE_ABSENT;
    }
    uint32_t first = add_nodes(to, count);
    set_parts(to, node, first, count);
    begin_record(to, space, "Value");
    for (uint32_t i = 0, at = first; i < plan->relation->column_count; i++) {
        if (plan->columns[i].writer != MR_WRITE_ABSENT) {
            write_column(to, options, plan, i, at, at == first, true);
            at++;
        }
    }
    end_record(to, space, "Value");
}

static void write_block(struct builder *to, uint32_t node, const char *space, const char *name,
                        const struct part *parts, uint32_t count)
{
    uint32_t first = add_nodes(to, count);
    set_parts(to, node, first, count);
    begin_record(to, space, name);
    write_parts(to, first, parts, count, true);
    end_record(to, space, name);
}

static void write_transaction(struct builder *to, uint32_t node)
{
    begin_field(to, "transaction", false, true);
    write_block(to, node, "event", "block", transaction_parts, MR_ARRAY_LEN(transaction_parts));
    to->schema->nodes[node].nullable = true;
    end_field(to, true);
}

struct mr_avro_schema *mr_avro_envelope(const struct mr_encode_options *options,
                                        const struct mr_plan *plan, struct mr_error *ret_error)
{
    enum { BEFORE, AFTER, SOURCE, TRANSACTION, REST };
    if (check_names(plan, ret_error) != MR_OK) {
        return NULL;
    }
    char *space = namespace_of(options, plan->relation);
    struct builder to = begin_schema(plan->relation, space, "Envelope", 0);
    uint32_t first = add_nodes(&to, REST + MR_ARRAY_LEN(envelope_parts));
    set_parts(&to, 0, first, REST + MR_ARRAY_LEN(envelope_parts));
    begin_field(&to, "before", true, true);
    write_row_type(&to, options, plan, space, first + BEFORE);
    end_field(&to, true);
    to.schema->nodes[first + BEFORE].nullable = true;
    to.schema->nodes[first + AFTER] = to.schema->nodes[first + BEFORE];
    begin_field(&to, "after", false, true);
    put(&to, "\"Value\"");
    end_field(&to, true);
    begin_field(&to, "source", false, false);
    write_block(&to, first + SOURCE, "io.debezium.connector.postgresql", "Source", source_parts,
                MR_ARRAY_LEN(source_parts));
    end_field(&to, false);
    write_transaction(&to, first + TRANSACTION);
    write_parts(&to, first + REST, envelope_parts, MR_ARRAY_LEN(envelope_parts), false);
    struct mr_avro_schema *schema = end_schema(&to, space, "Envelope");
    free(space);
    return schema;
}

static const char message_space[] = "io.debezium.connector.postgresql";

static struct mr_avro_schema *message_key(void)
{
    static const struct part parts[] = {
        {"prefix", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, true},
    };
    struct builder to = begin_schema(NULL, message_space, "MessageKey", 0);
    uint32_t first = add_nodes(&to, MR_ARRAY_LEN(parts));
    set_parts(&to, 0, first, MR_ARRAY_LEN(parts));
    write_parts(&to, first, parts, MR_ARRAY_LEN(parts), true);
    return end_schema(&to, message_space, "MessageKey");
}

static struct mr_avro_schema *message_value(bool is_bytes)
{
    enum { OP, TS, SOURCE, TRANSACTION, MESSAGE, PARTS };
    const struct part head[] = {
        {"op", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, false},
        {"ts_ms", MR_AVRO_LONG, "\"long\"", SHAPE_NONE, true},
    };
    const struct part message[] = {
        {"prefix", MR_AVRO_STRING, "\"string\"", SHAPE_NONE, true},
        {"content", is_bytes ? MR_AVRO_BYTES : MR_AVRO_STRING,
         is_bytes ? "\"bytes\"" : "\"string\"", SHAPE_NONE, true},
    };
    struct builder to = begin_schema(NULL, message_space, "MessageValue", 0);
    uint32_t first = add_nodes(&to, PARTS);
    set_parts(&to, 0, first, PARTS);
    write_parts(&to, first, head, MR_ARRAY_LEN(head), true);
    begin_field(&to, "source", false, false);
    write_block(&to, first + SOURCE, message_space, "Source", source_parts,
                MR_ARRAY_LEN(source_parts));
    end_field(&to, false);
    write_transaction(&to, first + TRANSACTION);
    begin_field(&to, "message", false, false);
    write_block(&to, first + MESSAGE, message_space, "Message", message, MR_ARRAY_LEN(message));
    end_field(&to, false);
    return end_schema(&to, message_space, "MessageValue");
}

/* ---- subjects ---- */

static uint32_t intern(const struct mr_encode_options *options, const char *topic,
                       const struct mr_avro_schema *schema, const char *side)
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
    uint32_t index = mr_schemas_intern(options->schemas, subject, text);
    free(subject);
    return index;
}

static void intern_pair(const struct mr_encode_options *options, const char *topic,
                        struct mr_avro_pair *pair)
{
    pair->value_index = intern(options, topic, pair->value, "value");
    if (pair->key != NULL) {
        pair->key_index = intern(options, topic, pair->key, "key");
    }
}

mr_status mr_avro_plan(const struct mr_encode_options *options, struct mr_plan *plan,
                       struct mr_error *ret_error)
{
    plan->avro.value = mr_avro_envelope(options, plan, ret_error);
    if (plan->avro.value == NULL) {
        return ret_error->status;
    }
    plan->avro.key = plan->key_count == 0 ? NULL : mr_avro_key(options, plan, ret_error);
    intern_pair(options, plan->topic->name, &plan->avro);
    return MR_OK;
}

struct mr_avro_pair mr_avro_messages(const struct mr_encode_options *options,
                                     const struct mr_topic *topic)
{
    bool is_bytes = options->modes.binary == MR_BINARY_BYTES;
    struct mr_avro_pair pair = {
        .key = message_key(), .value = message_value(is_bytes), .hex_is_text = true};
    intern_pair(options, topic->name, &pair);
    return pair;
}

void mr_avro_pair_done(struct mr_avro_pair *pair)
{
    mr_avro_free(pair->key);
    mr_avro_free(pair->value);
}

void mr_avro_free(struct mr_avro_schema *schema)
{
    if (schema != NULL) {
        free(schema->text.data);
        free(schema->name);
        free(schema->nodes);
        free(schema);
    }
}
