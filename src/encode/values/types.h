/* Which form a type's values have: the families of types, and the rule of each type. Inside encode/ only. */
#ifndef MR_ENCODE_TYPES_H
#define MR_ENCODE_TYPES_H

#include "encode/values/convert.h"

struct mr_plan;

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

/* The name of a type as JSON, `"int4[]"`; null where it is not built in. */
void mr_type_name(struct mr_buffer *out, uint32_t oid);

/* Of a built-in array, what its elements are; of anything else, itself. */
uint32_t mr_type_element(uint32_t oid);

/* What the rules for columns make of a column's form. MR_ERR_CONFIG where a rule would make keys equal that are not. */
mr_status mr_shape_column(const struct mr_encode_options *options, const struct mr_plan *plan,
                          uint32_t column, struct mr_type_form *form, struct mr_error *ret_error);

/* Whether one of them masks, cuts or hashes the column. */
bool mr_shape_names(const struct mr_encode_options *options, const struct mr_plan *plan,
                    const char *column);

/* What stands for a value that is not known: `text` in the form that the value would have. */
void mr_type_unavailable(struct mr_buffer *out, const struct mr_plan_column *column,
                         const char *text);

#endif
