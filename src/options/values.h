/* The options as a file has them: read from the tree, checked against the table (options.def),
 * defaults filled in. All memory is the struct's. Before the first thread, or on the thread that
 * reads the file again. */
#pragma once

#include "options/options.h"
#include "options/problems.h"
#include "options/toml.h"

struct mr_strings {
    char **items;
    uint32_t count, room;
};

typedef char *mr_value_STRING; /* never NULL; "" is "not set" */
typedef char *mr_value_TOPIC;
typedef struct mr_strings mr_value_STRINGS;
typedef struct mr_strings mr_value_REWRITE;
typedef struct mr_strings mr_value_SECRET; /* "env:NAME" or "file:/PATH"; nothing is "not set" */
typedef struct mr_strings mr_value_LOGIN;  /* or a program, which begins with "/", and arguments */
typedef int64_t mr_value_BOOL;
typedef int64_t mr_value_COUNT;
typedef int64_t mr_value_DURATION;
typedef int64_t mr_value_DURATION_US;
typedef int64_t mr_value_SIZE;
typedef int64_t mr_value_CHOICE;

/* One [[streams]] of Outboxx's form. */
enum { MR_STREAM_COLUMNS = 5 };

struct mr_stream {
    char *name;
    char *resource;
    char *destination;
    char *routing_key;
    struct mr_strings operations;
    struct mr_strings columns[MR_STREAM_COLUMNS]; /* as the options columns.*, in their order */
    uint32_t line;
};

struct mr_property {
    char *name;
    char *value;
    uint32_t line;
};

struct mr_config_values {
#define MR_OPTION(path, kind, field, ...) mr_value_##kind field;
#include "options/options.def"
#undef MR_OPTION
    struct mr_property *properties;
    uint32_t property_count;
    uint32_t kafka_section_line; /* of [sink.kafka], 0: not there */
    uint32_t file_section_line;  /* of [sink.file] */
    uint32_t outboxx_line;       /* of [metadata], which files of Outboxx's form have */
    struct mr_stream *streams;
    uint32_t stream_count;
    uint32_t lines[MR_OPTION_COUNT]; /* of each option in the file; 0: not there */
};

/* The field of an option: a char *, struct mr_strings or int64_t, as its kind says. */
const void *mr_value_of(const struct mr_config_values *values, uint32_t index);
bool mr_value_is_set(const struct mr_config_values *values, uint32_t index);

/* Whether a value of that kind is struct mr_strings. */
bool mr_kind_is_list(enum mr_option_kind kind);

/* What follows that prefix ("env:", "file:"); NULL: the text does not begin so. */
const char *mr_text_after(const char *text, const char *prefix);

/* Whether a text says where a secret is: "env:NAME" or "file:/PATH". */
bool mr_text_is_reference(const char *text);

/* Fills in defaults and reads the tree (NULL: defaults alone). */
void mr_values_read(struct mr_config_values *values, const struct mr_toml_node *root,
                    struct mr_problems *problems);

/* Adds a problem for each option in the file without what it needs. */
void mr_values_check_needs(const struct mr_config_values *values, struct mr_problems *problems);

void mr_values_done(struct mr_config_values *values);

/* Line of an option in the file, 0 when it is not there: MR_VALUE_LINE(values, slot_name). */
#define MR_VALUE_LINE(values, field) ((values)->lines[MR_INDEX_##field])

void mr_strings_add(struct mr_strings *strings, const char *text);
void mr_strings_done(struct mr_strings *strings);
bool mr_strings_equal(const struct mr_strings *a, const struct mr_strings *b);

/* Whether the streams are the same but for their names. */
bool mr_streams_equal(const struct mr_config_values *a, const struct mr_config_values *b);

/* In schema public; what `millrace convert` writes where it can't know which tables are meant.
 * Nothing starts with it. */
#define MR_CONVERT_PLACEHOLDER "name_your_tables_here"
#define MR_CONVERT_TABLE       "public." MR_CONVERT_PLACEHOLDER
