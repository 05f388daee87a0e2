/* A TOML file as a tree, read by the toml11 library behind this C interface. No C++ exception
 * leaves it. */
#pragma once

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum mr_toml_kind {
    MR_TOML_STRING,
    MR_TOML_INTEGER,
    MR_TOML_BOOLEAN,
    MR_TOML_FLOAT,
    MR_TOML_ARRAY,
    MR_TOML_TABLE,
    MR_TOML_OTHER, /* dates and times */
};

/* One value. Children of a table carry their key, children of an array don't. */
struct mr_toml_node {
    enum mr_toml_kind kind;
    char *key;     /* NULL for elements and the root */
    uint32_t line; /* of a text in an array: the array's */
    char *string;
    int64_t integer; /* also a boolean's 0 or 1 */
    struct mr_toml_node *children;
    uint32_t count;
};

/* Parses `text`. On failure answers NULL and fills `ret_line` and `ret_reason` (of `reason_size`
 * bytes). */
struct mr_toml_node *mr_toml_parse(const char *text, size_t len, uint32_t *ret_line,
                                   char *ret_reason, size_t reason_size);
void mr_toml_free(struct mr_toml_node *root);

#ifdef __cplusplus
}
#endif
