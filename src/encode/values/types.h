/* Which form a type's values have: the families of types, and the rule of each type. Inside encode/
 * only. */
#pragma once

#include "encode/values/convert.h"

/* Types of Avro: of a column's kind of text, plain ones, and those with parts (avro_schema.c). */
enum mr_avro_type {
    MR_AVRO_TEXT,
    MR_AVRO_BOOLEAN,
    MR_AVRO_INT,
    MR_AVRO_LONG,
    MR_AVRO_FLOAT,
    MR_AVRO_DOUBLE,
    MR_AVRO_STRING,
    MR_AVRO_BYTES,
    MR_AVRO_DECIMAL,
    MR_AVRO_SCALED,
    MR_AVRO_POINT,
    MR_AVRO_CIRCLE,
    MR_AVRO_LINE,
    MR_AVRO_GEOMETRY,
    MR_AVRO_GEOGRAPHY,
    MR_AVRO_FLOATS,
    MR_AVRO_DOUBLES,
    MR_AVRO_SPARSE,
    MR_AVRO_MAP,
};

/* What stands for a value that is not known: rules.def says which is what. */
enum mr_unknown {
    MR_UNKNOWN_TEXT,
    MR_UNKNOWN_OTHER,
    MR_UNKNOWN_NUMBER,
    MR_UNKNOWN_BYTES,
    MR_UNKNOWN_NONE,
};

/* A line of rules.def. */
struct mr_rule_line {
    enum mr_writer writer;
    mr_convert_fn write;
    int32_t detail;
    enum mr_avro_type avro;
    const char *avro_name; /* NULL: it has none */
    enum mr_unknown unknown;
};

extern const struct mr_rule_line mr_rules[]; /* by enum mr_rule */

/* What a column's values become. */
struct mr_type_form {
    enum mr_writer writer;
    /* With MR_WRITE_CONVERT: of the value, and of an array's elements. */
    struct mr_conversion conversion;
    struct mr_conversion element;
};

/* The form of a column's type under `types` and the modes; a type that is not known is text. */
struct mr_type_form mr_type_form(const struct mr_encode_options *options,
                                 const struct mr_column *column);

/* The form of a rule, for a type with that modifier (-1: with none). */
struct mr_type_form mr_type_form_of(enum mr_rule rule, int32_t modifier);

/* The name of a type as JSON, `"int4[]"`; null where it is not built in. */
void mr_type_name(struct mr_buffer *out, uint32_t oid);

/* Of a built-in array, what its elements are; of anything else, itself. */
uint32_t mr_type_element(uint32_t oid);

/* What the rules for columns make of a column's form. MR_ERR_CONFIG where a rule would make keys
 * equal that are not. */
mr_status mr_shape_column(const struct mr_encode_options *options, const struct mr_plan *plan,
                          uint32_t column, struct mr_type_form *form, struct mr_error *ret_error);

/* Whether one of them masks, cuts or hashes the column. */
bool mr_shape_names(const struct mr_encode_options *options, const struct mr_plan *plan,
                    const char *column);

/* What stands for a value that is not known: `text` in the form that the value would have. */
void mr_type_unavailable(struct mr_buffer *out, const struct mr_plan_column *column,
                         const char *text);
