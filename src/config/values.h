/* The options as they stand in a file: read from a tree, checked, with defaults filled in. */
#ifndef MR_CONFIG_VALUES_H
#define MR_CONFIG_VALUES_H

#include "base/status.h"
#include "config/toml.h"

enum mr_option_kind {
    MR_KIND_STRING,
    MR_KIND_BOOL,
    MR_KIND_COUNT,
    MR_KIND_DURATION,
    MR_KIND_DURATION_US,
    MR_KIND_SIZE,
    MR_KIND_STRINGS,
    MR_KIND_CHOICE,
};

struct mr_strings {
    char **items;
    uint32_t count;
};

typedef char *mr_value_STRING; /* never NULL; "" is "not set" */
typedef int64_t mr_value_BOOL;
typedef int64_t mr_value_COUNT;
typedef int64_t mr_value_DURATION;
typedef int64_t mr_value_DURATION_US;
typedef int64_t mr_value_SIZE;
typedef struct mr_strings mr_value_STRINGS;
typedef int64_t mr_value_CHOICE;

/* One [[streams]] of Outboxx's form. */
enum { MR_STREAM_COLUMNS = 5 };

struct mr_stream {
    char *name;
    char *resource;
    char *destination;
    char *routing_key;
    struct mr_strings operations;
    struct mr_strings
        columns[MR_STREAM_COLUMNS]; /* what becomes of them, as the options columns.* say it */
    uint32_t line;
};

struct mr_property {
    char *name;
    char *value;
    uint32_t line;
};

struct mr_config_values {
#define MR_OPTION(path, kind, field, fallback, low, high, text) mr_value_##kind field;
#include "config/options.def"
#undef MR_OPTION
    struct mr_property *properties;
    uint32_t property_count;
    uint32_t kafka_section_line; /* of [sink.kafka], 0: not there */
    uint32_t file_section_line;  /* of [sink.file] */
    struct mr_stream *streams;
    uint32_t stream_count;
    uint32_t
        lines[256]; /* line of each option in the file, by its place in options.def; 0: not there */
};

/* Everything that is wrong, or worth a word. */
struct mr_problem {
    bool is_error;
    uint32_t line; /* 0: of the whole file */
    char *text;
};

struct mr_problems {
    char *name; /* of the file */
    struct mr_problem *items;
    uint32_t count;
    uint32_t errors;
    bool without_secrets; /* they were read at the start and can't be read again: each is "" */
};

/* The field of an option: a char *, struct mr_strings or int64_t, as its kind says. */
const void *mr_value_of(const struct mr_config_values *values, uint32_t index);

void mr_problem_add(struct mr_problems *problems, bool is_error, uint32_t line, const char *format,
                    ...) MR_PRINTF(4, 5);
void mr_problems_done(struct mr_problems *problems);

/* Fills in defaults and reads the tree (NULL: defaults alone). */
void mr_values_read(struct mr_config_values *values, const struct mr_toml_node *root,
                    struct mr_problems *problems);
void mr_values_done(struct mr_config_values *values);

/* Line of an option in the file, 0 when it is not there: MR_VALUE_LINE(values, slot_name). */
enum mr_option_index {
#define MR_OPTION(path, kind, field, fallback, low, high, text) MR_INDEX_##field,
#include "config/options.def"
#undef MR_OPTION
    MR_OPTION_COUNT
};
_Static_assert(MR_OPTION_COUNT <= 256, "struct mr_config_values.lines is too short");

/* Nobody's table, in schema public: what `millrace convert` writes where it can't know which are meant; nothing starts with it. */
#define MR_CONVERT_PLACEHOLDER "name_your_tables_here"

#define MR_VALUE_LINE(values, field) ((values)->lines[MR_INDEX_##field])

/* The declaration, for help and reference. */
struct mr_option {
    const char *path;
    enum mr_option_kind kind;
    const char *fallback;
    const char *choices; /* CHOICE: the words, separated by | */
    int64_t low, high;
    const char *text;
};
const struct mr_option *mr_option_at(uint32_t index);

/* The option of that path; whether options are below it. */
bool mr_option_find(const char *path, uint32_t *ret_index);
bool mr_option_is_section(const char *path);

#endif
