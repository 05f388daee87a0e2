/* What events have for the values of each type, and how the server is asked for the same
 * (docs/types.md). The list in forms.c says it once: the server itself computes an event's form of
 * a value, so that no code here repeats the encoder's. Values only. */
#pragma once

#include "encode/encode.h"

/* How two values are the same. */
enum mr_verify_leaf {
    MR_LEAF_TEXT,  /* strings with the same text */
    MR_LEAF_BARE,  /* the same text, in quotes or not: NaN is a string, too */
    MR_LEAF_REAL4, /* the same floating-point number of 4 … */
    MR_LEAF_REAL8, /* … or 8 bytes, however it is written */
    /* the server's decimal, and base64 of it without its point, or that and its scale */
    MR_LEAF_DECIMAL,
};

/* What a value is made of. */
enum mr_verify_shape {
    MR_SHAPE_LEAF,
    MR_SHAPE_TREE, /* JSON on both sides: lists and objects of leaves */
    /* likewise, of an array, whose elements the server has in one list: how they are nested is not
     * compared */
    MR_SHAPE_FLAT,
    MR_SHAPE_INNER,   /* like TREE; an event's strings are texts of JSON themselves */
    MR_SHAPE_ABSENT,  /* no event has it */
    MR_SHAPE_UNKNOWN, /* it is not compared */
};

struct mr_verify_form {
    enum mr_verify_leaf leaf;
    enum mr_verify_shape shape;
    uint32_t scale;   /* of DECIMAL … */
    bool is_scaled;   /* … unless each value says its own */
    bool is_text;     /* columns.truncate cuts it */
    bool is_hidden;   /* what an update left alone is null in its event, as if it were null */
    int digits;       /* of the fraction of a second: what # in `sql` stands for */
    const char *sql;  /* of the value @, or of an array's elements; NULL: the value alone */
    const char *back; /* the value of an event's text @; "": as the server has it; NULL: not said */
};

/* A type, as pg_type has it; of an array that of its elements, and of a domain what it is over. */
struct mr_verify_type {
    const char *name;
    char kind; /* pg_type.typtype */
    bool is_built_in;
    bool is_array;
    int32_t modifier; /* -1: none */
};

/* With `types = "debezium"`; `has_schema`: events have an array's elements in one list, whatever
 * dimensions it has. */
struct mr_verify_form mr_verify_form_of(const struct mr_value_modes *modes,
                                        const struct mr_verify_type *type, bool has_schema);

/* Adds to `sql` what makes the value of an event's text, which is SQL of type text; not where
 * `back` is NULL. */
void mr_verify_form_back_sql(const struct mr_verify_form *form, const char *text,
                             struct mr_text *sql);

/* Adds to `sql` what a column's value is asked for with; `name` is quoted. */
void mr_verify_form_sql(const struct mr_verify_form *form, const char *name, struct mr_text *sql);
