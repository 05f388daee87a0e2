#include "encode/values/types.h"

#include <string.h>

#include "encode/values/put.h"

enum rule {
    RULE_ABSENT,
    RULE_STRING,
    RULE_ASCII, /* a string that can't hold anything to escape */
    RULE_BOOL,
    RULE_INTEGER, /* of 32 bits */
    RULE_LONG,
    RULE_FLOAT,
    RULE_JAVA_FLOAT,
    RULE_JAVA_DOUBLE,
    RULE_DECIMAL,
    RULE_MONEY,
    RULE_PLAIN_MONEY,
    RULE_BYTES,
    RULE_BITS,
    RULE_DAYS,
    RULE_CLOCK,
    RULE_EPOCH,
    RULE_ZONED_CLOCK,
    RULE_ZONED_EPOCH,
    RULE_INTERVAL,
    RULE_ISO_DATE,
    RULE_ISO_CLOCK,
    RULE_ISO_STAMP,
    RULE_ISO_INTERVAL,
    RULE_JSON,
    RULE_POINT,
    RULE_LSEG,
    RULE_PATH,
    RULE_BOX,
    RULE_POLYGON,
    RULE_LINE,
    RULE_CIRCLE,
    /* What modes make of the above. */
    RULE_DECIMAL_TEXT,
    RULE_DECIMAL_DOUBLE,
    RULE_BASE64,
    RULE_BASE64_URL,
    RULE_HEX,
    RULE_MILLIS_CLOCK,
    RULE_MICROS_CLOCK,
    RULE_NANOS_CLOCK,
    RULE_MILLIS_EPOCH,
    RULE_MICROS_EPOCH,
    RULE_NANOS_EPOCH,
    RULE_UTC_DATE,
    RULE_UTC_CLOCK,
    RULE_UTC_STAMP,
    RULE_INTERVAL_TEXT,
    RULE_LIST, /* of the rule of the element */
};

struct type {
    const char *name;
    uint32_t oid;
    uint32_t array_oid;
    enum rule debezium;
    enum rule debezium_array;
    enum rule plain;
};

static const struct type types[] = {
#define MR_TYPE(name, oid, array_oid, debezium, debezium_array, plain)                             \
    {#name, oid, array_oid, RULE_##debezium, RULE_##debezium_array, RULE_##plain},
#include "encode/values/types.def"
#undef MR_TYPE
};

enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]), MONEY_DIGITS = 2, BOX_OID = 603 };

/* numeric.c: numeric_typmod_scale. Eleven bits with a sign; below zero, digits before the point are zero. */
static int32_t numeric_scale(int32_t modifier)
{
    int32_t scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400;
    return scale < 0 ? 0 : scale;
}

/* Behind the second's point, of a server that may lie. */
static int32_t digits_of(int32_t modifier)
{
    return modifier >= 0 && modifier <= 6 ? modifier : 6;
}

/* Milliseconds where the type has no more, else microseconds. */
static int32_t time_digits(int32_t modifier)
{
    return modifier >= 0 && modifier <= 3 ? 3 : 6;
}

/* Of the rules that need to know no more than `detail`. */
static const struct conversion {
    mr_convert_fn write;
    int32_t detail;
} conversions[] = {
    [RULE_ABSENT] = {mr_convert_string, 0},
    [RULE_STRING] = {mr_convert_string, 0},
    [RULE_ASCII] = {mr_convert_string, 0},
    [RULE_BOOL] = {mr_convert_bool, 0},
    [RULE_INTEGER] = {mr_convert_integer, MR_INT_BYTES},
    [RULE_LONG] = {mr_convert_integer, MR_LONG_BYTES},
    [RULE_FLOAT] = {mr_convert_float, 0},
    [RULE_JAVA_FLOAT] = {mr_convert_java_float, MR_FLOAT_BYTES},
    [RULE_JAVA_DOUBLE] = {mr_convert_java_float, MR_DOUBLE_BYTES},
    [RULE_DECIMAL] = {mr_convert_decimal, 0},
    [RULE_MONEY] = {mr_convert_money, MONEY_DIGITS},
    [RULE_PLAIN_MONEY] = {mr_convert_plain_money, 0},
    [RULE_BYTES] = {mr_convert_bytes, MR_BINARY_BYTES},
    [RULE_BITS] = {mr_convert_bits, 0},
    [RULE_DAYS] = {mr_convert_days, 0},
    [RULE_CLOCK] = {mr_convert_clock, 0},
    [RULE_EPOCH] = {mr_convert_epoch, 0},
    [RULE_ZONED_CLOCK] = {mr_convert_zoned_clock, 0},
    [RULE_ZONED_EPOCH] = {mr_convert_zoned_epoch, 0},
    [RULE_INTERVAL] = {mr_convert_interval, 0},
    [RULE_ISO_DATE] = {mr_convert_iso_date, 0},
    [RULE_ISO_CLOCK] = {mr_convert_iso_clock, 0},
    [RULE_ISO_STAMP] = {mr_convert_iso_stamp, 0},
    [RULE_ISO_INTERVAL] = {mr_convert_iso_interval, 0},
    [RULE_JSON] = {mr_convert_json, 0},
    [RULE_POINT] = {mr_convert_point, 0},
    [RULE_LSEG] = {mr_convert_lseg, 0},
    [RULE_PATH] = {mr_convert_path, 0},
    [RULE_BOX] = {mr_convert_box, 0},
    [RULE_POLYGON] = {mr_convert_polygon, 0},
    [RULE_LINE] = {mr_convert_line, 0},
    [RULE_CIRCLE] = {mr_convert_circle, 0},
    [RULE_DECIMAL_TEXT] = {mr_convert_decimal_text, 0},
    [RULE_DECIMAL_DOUBLE] = {mr_convert_decimal_double, 0},
    [RULE_BASE64] = {mr_convert_bytes, MR_BINARY_BASE64},
    [RULE_BASE64_URL] = {mr_convert_bytes, MR_BINARY_BASE64_URL},
    [RULE_HEX] = {mr_convert_bytes, MR_BINARY_HEX},
    [RULE_MILLIS_CLOCK] = {mr_convert_clock, 3},
    [RULE_MICROS_CLOCK] = {mr_convert_clock, 6},
    [RULE_NANOS_CLOCK] = {mr_convert_clock, 9},
    [RULE_MILLIS_EPOCH] = {mr_convert_epoch, 3},
    [RULE_MICROS_EPOCH] = {mr_convert_epoch, 6},
    [RULE_NANOS_EPOCH] = {mr_convert_epoch, 9},
    [RULE_UTC_DATE] = {mr_convert_utc_date, 0},
    [RULE_UTC_CLOCK] = {mr_convert_utc_clock, 0},
    [RULE_UTC_STAMP] = {mr_convert_utc_stamp, 0},
    [RULE_INTERVAL_TEXT] = {mr_convert_interval_text, 0},
    [RULE_LIST] = {mr_convert_string, 0},
};

static struct mr_conversion conversion_of(enum rule rule, int32_t modifier)
{
    struct mr_conversion made = {.write = conversions[rule].write,
                                 .detail = conversions[rule].detail};
    if (rule == RULE_DECIMAL && modifier < 0) {
        made.write = mr_convert_scaled_decimal;
    } else if (rule == RULE_DECIMAL) {
        made.detail = numeric_scale(modifier);
    } else if (rule == RULE_BITS && modifier == 1) {
        made.write = mr_convert_bit;
    } else if (rule == RULE_CLOCK || rule == RULE_EPOCH) {
        made.detail = time_digits(modifier);
    } else if (rule == RULE_ZONED_EPOCH) {
        made.detail = digits_of(modifier);
    }
    return made;
}

/* Scalars that need no function of their own have the shorter way of row.c. */
static enum mr_writer writer_of(enum rule rule)
{
    switch (rule) {
    case RULE_ABSENT:
        return MR_WRITE_ABSENT;
    case RULE_STRING:
        return MR_WRITE_STRING;
    case RULE_ASCII:
        return MR_WRITE_PLAIN;
    case RULE_BOOL:
        return MR_WRITE_BOOL;
    case RULE_INTEGER:
    case RULE_LONG:
        return MR_WRITE_NUMBER;
    case RULE_FLOAT:
        return MR_WRITE_FLOAT;
    default:
        return MR_WRITE_CONVERT;
    }
}

/* ---- modes ---- */

/* What a time mode makes of the four types without a zone; ABSENT leaves the rule as it is. */
static const struct time_rules {
    enum rule date, clock, epoch;
} time_rules[] = {
    [MR_TIME_ADAPTIVE] = {RULE_DAYS, RULE_CLOCK, RULE_EPOCH},
    [MR_TIME_ADAPTIVE_MICROSECONDS] = {RULE_DAYS, RULE_MICROS_CLOCK, RULE_EPOCH},
    [MR_TIME_CONNECT] = {RULE_DAYS, RULE_MILLIS_CLOCK, RULE_MILLIS_EPOCH},
    [MR_TIME_ISOSTRING] = {RULE_UTC_DATE, RULE_UTC_CLOCK, RULE_UTC_STAMP},
    [MR_TIME_MICROSECONDS] = {RULE_DAYS, RULE_MICROS_CLOCK, RULE_MICROS_EPOCH},
    [MR_TIME_NANOSECONDS] = {RULE_DAYS, RULE_NANOS_CLOCK, RULE_NANOS_EPOCH},
};

static enum rule decimal_rule(enum rule rule, enum mr_decimal_mode mode)
{
    if (mode == MR_DECIMAL_PRECISE) {
        return rule;
    }
    return mode == MR_DECIMAL_DOUBLE ? RULE_DECIMAL_DOUBLE
           : rule == RULE_MONEY      ? RULE_PLAIN_MONEY
                                     : RULE_DECIMAL_TEXT;
}

/* A rule of Debezium's family under the modes. */
static enum rule rule_under(enum rule rule, const struct mr_value_modes *modes)
{
    static const enum rule bytes[] = {RULE_BYTES, RULE_BASE64, RULE_BASE64_URL, RULE_HEX};
    switch (rule) {
    case RULE_DECIMAL:
    case RULE_MONEY:
        return decimal_rule(rule, modes->decimal);
    case RULE_BYTES:
        return bytes[modes->binary];
    case RULE_DAYS:
        return time_rules[modes->time].date;
    case RULE_CLOCK:
        return time_rules[modes->time].clock;
    case RULE_EPOCH:
        return time_rules[modes->time].epoch;
    case RULE_INTERVAL:
        return modes->interval == MR_INTERVAL_STRING ? RULE_INTERVAL_TEXT : rule;
    default:
        return rule;
    }
}

static const struct type *find_type(uint32_t oid, bool *ret_is_array)
{
    for (uint32_t i = 0; i < TYPE_COUNT; i++) {
        if (types[i].oid == oid || types[i].array_oid == oid) {
            *ret_is_array = types[i].array_oid == oid;
            return &types[i];
        }
    }
    return NULL;
}

uint32_t mr_type_element(uint32_t oid)
{
    bool is_array = false;
    const struct type *type = find_type(oid, &is_array);
    return is_array ? type->oid : oid;
}

void mr_type_name(struct mr_buffer *out, uint32_t oid)
{
    bool is_array = false;
    const struct type *type = find_type(oid, &is_array);
    if (type == NULL) {
        MR_BUFFER_LITERAL(out, "null");
        return;
    }
    MR_BUFFER_LITERAL(out, "\"");
    mr_buffer_slice(out, mr_slice_of(type->name));
    mr_buffer_slice(out, is_array ? MR_SLICE("[]\"") : MR_SLICE("\""));
}

static struct mr_type_form list_of(struct mr_conversion element, char delimiter)
{
    return (struct mr_type_form){.writer = MR_WRITE_CONVERT,
                                 .conversion = {.write = mr_convert_array, .detail = delimiter},
                                 .element = element};
}

static struct mr_type_form family_form(const struct mr_encode_options *options,
                                       const struct type *type, bool is_array, int32_t modifier)
{
    enum mr_types family = options->types;
    enum rule rule =
        family == MR_TYPES_DEBEZIUM ? rule_under(type->debezium, &options->modes) : type->plain;
    if (!is_array) {
        return (struct mr_type_form){.writer = writer_of(rule),
                                     .conversion = conversion_of(rule, modifier)};
    }
    if (family == MR_TYPES_DEBEZIUM && type->debezium_array == RULE_ABSENT) {
        return (struct mr_type_form){.writer = MR_WRITE_ABSENT};
    }
    return list_of(conversion_of(rule, modifier), type->oid == BOX_OID ? ';' : ',');
}

/* Outboxx's: numbers and booleans, and PostgreSQL's text of everything else. */
static enum mr_writer text_writer(const struct type *type, bool is_array)
{
    if (is_array) {
        return MR_WRITE_STRING;
    }
    switch (type->plain) {
    case RULE_BOOL:
    case RULE_FLOAT:
    case RULE_INTEGER:
    case RULE_LONG:
        return type->debezium == RULE_ABSENT ? MR_WRITE_STRING : writer_of(type->plain);
    case RULE_ISO_DATE:
    case RULE_ISO_CLOCK:
    case RULE_ISO_STAMP:
    case RULE_ASCII:
        return MR_WRITE_PLAIN;
    default:
        return MR_WRITE_STRING;
    }
}

/* A type that is not built in. Debezium's connector leaves out what it has no rule for, and arrays of domains. */
static struct mr_type_form user_form(const struct mr_encode_options *options,
                                     const struct mr_type *type)
{
    bool debezium = options->types == MR_TYPES_DEBEZIUM;
    struct mr_conversion element = {.write = mr_convert_string};
    if (debezium && (type->kind == MR_TYPE_OPAQUE || type->is_of_domain)) {
        return (struct mr_type_form){.writer = MR_WRITE_ABSENT};
    }
    switch (type->kind) {
    case MR_TYPE_HSTORE:
        element.write = !debezium                                ? mr_convert_hstore_object
                        : options->modes.hstore == MR_HSTORE_MAP ? mr_convert_hstore_map
                                                                 : mr_convert_hstore_string;
        break;
    case MR_TYPE_GEOMETRY:
    case MR_TYPE_GEOGRAPHY:
        element.write = debezium ? mr_convert_ewkb : mr_convert_string;
        element.detail = type->kind == MR_TYPE_GEOMETRY;
        break;
    case MR_TYPE_VECTOR:
    case MR_TYPE_HALFVEC:
        element.write = mr_convert_vector;
        element.detail = !debezium ? 0 : type->kind == MR_TYPE_VECTOR ? 8 : 4;
        break;
    case MR_TYPE_SPARSEVEC:
        element.write = debezium ? mr_convert_sparse_vector : mr_convert_string;
        break;
    case MR_TYPE_BUILT_IN: { /* an array of a domain */
        bool is_array = false;
        const struct type *base = find_type(type->oid, &is_array);
        element = base == NULL || is_array ? element : conversion_of(base->plain, type->modifier);
        break;
    }
    case MR_TYPE_UNKNOWN:
    case MR_TYPE_TEXT:
    case MR_TYPE_OPAQUE:
        break;
    }
    if (type->is_array) {
        bool is_place = type->kind == MR_TYPE_GEOMETRY || type->kind == MR_TYPE_GEOGRAPHY;
        return list_of(element, is_place ? ':' : ',');
    }
    bool is_text = element.write == mr_convert_string;
    return (struct mr_type_form){.writer = is_text ? MR_WRITE_STRING : MR_WRITE_CONVERT,
                                 .conversion = element};
}

struct mr_type_form mr_type_form(const struct mr_encode_options *options,
                                 const struct mr_column *column)
{
    bool is_array = false;
    const struct type *type = find_type(column->type_oid, &is_array);
    if (options->types == MR_TYPES_TEXT) {
        return (struct mr_type_form){.writer = type == NULL ? MR_WRITE_STRING
                                                            : text_writer(type, is_array)};
    }
    int32_t modifier = column->type_modifier;
    if (column->type.kind != MR_TYPE_UNKNOWN) {
        if (column->type.is_array || column->type.kind != MR_TYPE_BUILT_IN) {
            return user_form(options, &column->type);
        }
        type = find_type(column->type.oid, &is_array);
        modifier = column->type.modifier;
    }
    return type == NULL ? (struct mr_type_form){.writer = MR_WRITE_STRING}
                        : family_form(options, type, is_array, modifier);
}

/* ---- what stands for a value that is not known ---- */

/* Whether a conversion's values are strings. */
static bool writes_text(const struct mr_conversion *how)
{
    static const mr_convert_fn others[] = {
        mr_convert_bool,           mr_convert_integer,       mr_convert_float,
        mr_convert_java_float,     mr_convert_decimal,       mr_convert_scaled_decimal,
        mr_convert_decimal_double, mr_convert_money,         mr_convert_bit,
        mr_convert_bits,           mr_convert_days,          mr_convert_epoch,
        mr_convert_clock,          mr_convert_interval,      mr_convert_json,
        mr_convert_hstore_map,     mr_convert_hstore_object, mr_convert_array,
        mr_convert_point,          mr_convert_circle,        mr_convert_line,
        mr_convert_lseg,           mr_convert_path,          mr_convert_box,
        mr_convert_polygon,        mr_convert_ewkb,          mr_convert_vector,
        mr_convert_sparse_vector,
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(others); i++) {
        if (how->write == others[i]) {
            return false;
        }
    }
    return how->write != mr_convert_bytes || how->detail != MR_BINARY_BYTES;
}

/* Where a type of Avro can't hold the text, it is null. */
static void write_unavailable(struct mr_buffer *out, bool is_text, const char *text)
{
    if (out->is_avro && !is_text) {
        mr_put_null(out);
    } else {
        mr_put_slice(out, mr_slice_of(text));
    }
}

static void write_unavailable_value(struct mr_buffer *out, const struct mr_conversion *how,
                                    const char *text)
{
    if (how->write == mr_convert_bytes && how->detail != MR_BINARY_HEX) {
        mr_convert_binary(out, (enum mr_binary_mode)how->detail, (const uint8_t *)text,
                          strlen(text));
    } else {
        write_unavailable(out, writes_text(how), text);
    }
}

/* As Debezium: lists of numbers have the bytes of the text. */
static void write_unavailable_list(struct mr_buffer *out, const struct mr_conversion *element,
                                   const char *text)
{
    bool is_number = element->write == mr_convert_integer || element->write == mr_convert_days;
    size_t count = is_number ? strlen(text) : 1;
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    mr_put_json(out, MR_SLICE("["));
    for (size_t i = 0; i < count; i++) {
        mr_put_field(out, i == 0 ? MR_SLICE("") : MR_SLICE(","), true);
        if (is_number) {
            mr_put_long(out, (uint8_t)text[i]);
        } else {
            write_unavailable_value(out, element, text);
        }
    }
    mr_put_json(out, MR_SLICE("]"));
    if (gap != NULL) {
        mr_avro_close_list(out, gap, (int64_t)count);
    }
}

void mr_type_unavailable(struct mr_buffer *out, const struct mr_plan_column *column,
                         const char *text)
{
    if (column->writer != MR_WRITE_CONVERT) {
        write_unavailable(
            out, column->writer == MR_WRITE_STRING || column->writer == MR_WRITE_PLAIN, text);
        return;
    }
    const struct mr_type_form *form = column->form;
    bool is_array = form->conversion.write == mr_convert_array;
    const struct mr_conversion *how = is_array ? &form->element : &form->conversion;
    if (how->write == mr_convert_ewkb || how->write == mr_convert_vector ||
        how->write == mr_convert_sparse_vector) {
        mr_put_null(out); /* as Debezium: these hold no text */
    } else if (is_array) {
        write_unavailable_list(out, how, text);
    } else {
        write_unavailable_value(out, how, text);
    }
}
