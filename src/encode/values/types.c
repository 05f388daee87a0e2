#include "encode/values/types.h"

#include "encode/values/put.h"

const struct mr_rule_line mr_rules[] = {
#define MR_RULE(name, writer, conversion, detail, avro, avro_name, unknown)                        \
    {MR_WRITE_##writer, mr_convert_##conversion, detail, MR_AVRO_##avro,                           \
     avro_name,         MR_UNKNOWN_##unknown},
#include "encode/values/rules.def"
#undef MR_RULE
};

struct type {
    const char *name;
    uint32_t oid;
    uint32_t array_oid;
    enum mr_rule debezium;
    enum mr_rule debezium_array;
    enum mr_rule plain;
};

static const struct type types[] = {
#define MR_TYPE(name, oid, array_oid, debezium, debezium_array, plain)                             \
    {#name, oid, array_oid, MR_RULE_##debezium, MR_RULE_##debezium_array, MR_RULE_##plain},
#include "encode/values/types.def"
#undef MR_TYPE
};

enum { BOX_OID = 603 };

/* numeric.c: numeric_typmod_scale. Eleven bits with a sign; below zero, digits before the point are
 * zero. */
static int32_t numeric_scale(int32_t modifier)
{
    int32_t scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400;
    return scale < 0 ? 0 : scale;
}

/* After the second's point, of a server that may lie. */
static int32_t digits_of(int32_t modifier)
{
    return modifier >= 0 && modifier <= 6 ? modifier : 6;
}

/* The rule of a type that has the modifier, for those that it tells apart. */
static enum mr_rule rule_with(enum mr_rule rule, int32_t modifier)
{
    bool is_coarse = modifier >= 0 && modifier <= 3; /* milliseconds are enough */
    switch (rule) {
    case MR_RULE_DECIMAL:
        return modifier < 0 ? MR_RULE_SCALED_DECIMAL : rule;
    case MR_RULE_BITS:
        return modifier == 1 ? MR_RULE_BIT : rule;
    case MR_RULE_CLOCK:
        return is_coarse ? MR_RULE_MILLIS_CLOCK : MR_RULE_MICROS_CLOCK;
    case MR_RULE_EPOCH:
        return is_coarse ? MR_RULE_MILLIS_EPOCH : MR_RULE_MICROS_EPOCH;
    default:
        return rule;
    }
}

static struct mr_conversion conversion_of(enum mr_rule rule, int32_t modifier)
{
    rule = rule_with(rule, modifier);
    return (struct mr_conversion){.write = mr_rules[rule].write,
                                  .rule = rule,
                                  .detail = rule == MR_RULE_DECIMAL       ? numeric_scale(modifier)
                                            : rule == MR_RULE_ZONED_EPOCH ? digits_of(modifier)
                                                                          : mr_rules[rule].detail};
}

struct mr_type_form mr_type_form_of(enum mr_rule rule, int32_t modifier)
{
    struct mr_conversion conversion = conversion_of(rule, modifier);
    return (struct mr_type_form){.writer = mr_rules[conversion.rule].writer,
                                 .conversion = conversion};
}

static struct mr_type_form types_list_of(struct mr_conversion element, char delimiter)
{
    struct mr_type_form list = mr_type_form_of(MR_RULE_LIST, -1);
    list.conversion.detail = (unsigned char)delimiter;
    list.element = element;
    return list;
}

/* What a time mode makes of the four types without a zone; ABSENT leaves the rule as it is. */
static const struct time_rules {
    enum mr_rule date, clock, epoch;
} time_rules[] = {
    [MR_TIME_ADAPTIVE] = {MR_RULE_DAYS, MR_RULE_CLOCK, MR_RULE_EPOCH},
    [MR_TIME_ADAPTIVE_MICROSECONDS] = {MR_RULE_DAYS, MR_RULE_MICROS_CLOCK, MR_RULE_EPOCH},
    [MR_TIME_CONNECT] = {MR_RULE_DAYS, MR_RULE_MILLIS_CLOCK, MR_RULE_MILLIS_EPOCH},
    [MR_TIME_ISOSTRING] = {MR_RULE_UTC_DATE, MR_RULE_UTC_CLOCK, MR_RULE_UTC_STAMP},
    [MR_TIME_MICROSECONDS] = {MR_RULE_DAYS, MR_RULE_MICROS_CLOCK, MR_RULE_MICROS_EPOCH},
    [MR_TIME_NANOSECONDS] = {MR_RULE_DAYS, MR_RULE_NANOS_CLOCK, MR_RULE_NANOS_EPOCH},
};

static enum mr_rule decimal_rule(enum mr_rule rule, enum mr_decimal_mode mode)
{
    if (mode == MR_DECIMAL_PRECISE) {
        return rule;
    }
    return mode == MR_DECIMAL_DOUBLE ? MR_RULE_DECIMAL_DOUBLE
           : rule == MR_RULE_MONEY   ? MR_RULE_PLAIN_MONEY
                                     : MR_RULE_DECIMAL_TEXT;
}

/* A rule of Debezium's family under the modes. */
static enum mr_rule rule_under(enum mr_rule rule, const struct mr_value_modes *modes)
{
    static const enum mr_rule bytes[] = {MR_RULE_BYTES, MR_RULE_BASE64, MR_RULE_BASE64_URL,
                                         MR_RULE_HEX};
    switch (rule) {
    case MR_RULE_DECIMAL:
    case MR_RULE_MONEY:
        return decimal_rule(rule, modes->decimal);
    case MR_RULE_BYTES:
        return bytes[modes->binary];
    case MR_RULE_DAYS:
        return time_rules[modes->time].date;
    case MR_RULE_CLOCK:
        return time_rules[modes->time].clock;
    case MR_RULE_EPOCH:
        return time_rules[modes->time].epoch;
    case MR_RULE_INTERVAL:
        return modes->interval == MR_INTERVAL_STRING ? MR_RULE_INTERVAL_TEXT : rule;
    default:
        return rule;
    }
}

static const struct type *find_type(uint32_t oid, bool *ret_is_array)
{
    for (uint32_t i = 0; i < MR_ARRAY_LEN(types); i++) {
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

static struct mr_type_form family_form(const struct mr_encode_options *options,
                                       const struct type *type, bool is_array, int32_t modifier)
{
    bool debezium = options->types == MR_TYPES_DEBEZIUM;
    enum mr_rule rule = debezium ? rule_under(type->debezium, &options->modes) : type->plain;
    if (!is_array) {
        return mr_type_form_of(rule, modifier);
    }
    if (debezium && type->debezium_array == MR_RULE_ABSENT) {
        return mr_type_form_of(MR_RULE_ABSENT, -1);
    }
    return types_list_of(conversion_of(rule, modifier), type->oid == BOX_OID ? ';' : ',');
}

/* Outboxx's: numbers and booleans, and PostgreSQL's text of everything else. */
static enum mr_rule text_rule(const struct type *type)
{
    enum mr_rule rule = type->plain;
    enum mr_writer writer = mr_rules[rule].writer;
    if (writer == MR_WRITE_BOOL || writer == MR_WRITE_FLOAT || writer == MR_WRITE_NUMBER) {
        return type->debezium == MR_RULE_ABSENT ? MR_RULE_STRING : rule;
    }
    bool is_ascii = rule == MR_RULE_ASCII || rule == MR_RULE_ISO_DATE ||
                    rule == MR_RULE_ISO_CLOCK || rule == MR_RULE_ISO_STAMP;
    return is_ascii ? MR_RULE_ASCII : MR_RULE_STRING;
}

/* Of types that are not built in; others are text. */
static const struct {
    enum mr_rule debezium, plain;
} user_rules[] = {
    [MR_TYPE_HSTORE] = {MR_RULE_HSTORE_STRING, MR_RULE_HSTORE_OBJECT},
    [MR_TYPE_GEOMETRY] = {MR_RULE_GEOMETRY, MR_RULE_STRING},
    [MR_TYPE_GEOGRAPHY] = {MR_RULE_GEOGRAPHY, MR_RULE_STRING},
    [MR_TYPE_VECTOR] = {MR_RULE_VECTOR, MR_RULE_PLAIN_VECTOR},
    [MR_TYPE_HALFVEC] = {MR_RULE_HALFVEC, MR_RULE_PLAIN_VECTOR},
    [MR_TYPE_SPARSEVEC] = {MR_RULE_SPARSEVEC, MR_RULE_STRING},
};

static enum mr_rule user_rule(const struct mr_encode_options *options, const struct mr_type *type)
{
    _Static_assert(MR_RULE_STRING == 0, "what the table does not have");
    bool is_array = false;
    if (type->kind == MR_TYPE_BUILT_IN) { /* an array of a domain */
        const struct type *base = find_type(type->oid, &is_array);
        return base == NULL || is_array ? MR_RULE_STRING : base->plain;
    }
    if (type->kind >= MR_ARRAY_LEN(user_rules)) {
        return MR_RULE_STRING;
    }
    if (options->types != MR_TYPES_DEBEZIUM) {
        return user_rules[type->kind].plain;
    }
    return type->kind == MR_TYPE_HSTORE && options->modes.hstore == MR_HSTORE_MAP
               ? MR_RULE_HSTORE_MAP
               : user_rules[type->kind].debezium;
}

/* A type that is not built in. Debezium's connector leaves out what it has no rule for, and arrays
 * of domains. */
static struct mr_type_form user_form(const struct mr_encode_options *options,
                                     const struct mr_type *type)
{
    bool is_place = type->kind == MR_TYPE_GEOMETRY || type->kind == MR_TYPE_GEOGRAPHY;
    if (options->types == MR_TYPES_DEBEZIUM &&
        (type->kind == MR_TYPE_OPAQUE || type->is_of_domain)) {
        return mr_type_form_of(MR_RULE_ABSENT, -1);
    }
    enum mr_rule rule = user_rule(options, type);
    return type->is_array ? types_list_of(conversion_of(rule, type->modifier), is_place ? ':' : ',')
                          : mr_type_form_of(rule, type->modifier);
}

struct mr_type_form mr_type_form(const struct mr_encode_options *options,
                                 const struct mr_column *column)
{
    bool is_array = false;
    const struct type *type = find_type(column->type_oid, &is_array);
    if (options->types == MR_TYPES_TEXT) {
        return mr_type_form_of(type == NULL || is_array ? MR_RULE_STRING : text_rule(type), -1);
    }
    int32_t modifier = column->type_modifier;
    if (column->type.kind != MR_TYPE_UNKNOWN) {
        if (column->type.is_array || column->type.kind != MR_TYPE_BUILT_IN) {
            return user_form(options, &column->type);
        }
        type = find_type(column->type.oid, &is_array);
        modifier = column->type.modifier;
    }
    return type == NULL ? mr_type_form_of(MR_RULE_STRING, -1)
                        : family_form(options, type, is_array, modifier);
}

/* Where a type of a schema can't hold the text, it is null. */
static void types_write_unknown(struct mr_buffer *out, enum mr_rule rule, const char *text)
{
    enum mr_unknown form = mr_rules[rule].unknown;
    if (form == MR_UNKNOWN_BYTES) {
        mr_convert_binary(out, (enum mr_binary_mode)mr_rules[rule].detail, (const uint8_t *)text,
                          strlen(text));
    } else if ((out->is_avro || out->is_typed) && form != MR_UNKNOWN_TEXT) {
        mr_put_null(out);
    } else {
        mr_put_slice(out, mr_slice_of(text));
    }
}

/* As Debezium: lists of numbers have the bytes of the text. */
static void write_unknown_list(struct mr_buffer *out, enum mr_rule element, const char *text)
{
    if (out->is_typed && mr_rules[element].unknown == MR_UNKNOWN_OTHER) {
        mr_put_null(out);
        return;
    }
    bool is_number = mr_rules[element].unknown == MR_UNKNOWN_NUMBER;
    size_t count = is_number ? strlen(text) : 1;
    uint8_t *list = mr_put_list(out, MR_SLICE("["));
    for (size_t i = 0; i < count; i++) {
        mr_put_field(out, i == 0 ? MR_SLICE("") : MR_SLICE(","), true);
        if (is_number) {
            mr_put_long(out, (uint8_t)text[i]);
        } else {
            types_write_unknown(out, element, text);
        }
    }
    mr_put_list_end(out, list, (int64_t)count, MR_SLICE("]"));
}

void mr_type_unavailable(struct mr_buffer *out, const struct mr_plan_column *column,
                         const char *text)
{
    bool is_list = column->rule == MR_RULE_LIST;
    enum mr_rule rule = is_list ? column->form->element.rule : column->rule;
    if (mr_rules[rule].unknown == MR_UNKNOWN_NONE) {
        mr_put_null(out); /* as Debezium: these hold no text */
    } else if (is_list) {
        write_unknown_list(out, rule, text);
    } else {
        types_write_unknown(out, rule, text);
    }
}
