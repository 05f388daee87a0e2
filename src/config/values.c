#include "config/values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/unknown.h"

/* CHOICE lines hold their words where the others hold the lower bound. */
#define LOW_STRING(low)      NULL, 0
#define LOW_BOOL(low)        NULL, 0
#define LOW_STRINGS(low)     NULL, 0
#define LOW_CHOICE(low)      (low), 0
#define LOW_COUNT(low)       NULL, (low)
#define LOW_DURATION(low)    NULL, (low)
#define LOW_DURATION_US(low) NULL, (low)
#define LOW_SIZE(low)        NULL, (low)

static const struct mr_option options[] = {
#define MR_OPTION(path_, kind_, field_, fallback_, low_, high_, text_)                             \
    {path_, MR_KIND_##kind_, fallback_, LOW_##kind_(low_), high_, text_},
#include "config/options.def"
#undef MR_OPTION
};

const struct mr_option *mr_option_at(uint32_t index)
{
    MR_ASSERT(index < MR_OPTION_COUNT);
    return &options[index];
}

static void *value_at(struct mr_config_values *values, uint32_t index)
{
    static const size_t offsets[] = {
#define MR_OPTION(path, kind, field, fallback, low, high, text)                                    \
    offsetof(struct mr_config_values, field),
#include "config/options.def"
#undef MR_OPTION
    };
    return (char *)values + offsets[index];
}

const void *mr_value_of(const struct mr_config_values *values, uint32_t index)
{
    return value_at((struct mr_config_values *)(uintptr_t)values, index);
}

/* ---- problems ---- */

void mr_problem_add(struct mr_problems *problems, bool is_error, uint32_t line, const char *format,
                    ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    problems->items = MR_REALLOC(problems->items, (problems->count + 1) * sizeof(*problems->items));
    problems->items[problems->count++] =
        (struct mr_problem){.is_error = is_error, .line = line, .text = MR_STRDUP(text)};
    problems->errors += is_error;
}

void mr_problems_done(struct mr_problems *problems)
{
    for (uint32_t i = 0; i < problems->count; i++) {
        free(problems->items[i].text);
    }
    free(problems->items);
    free(problems->name);
    *problems = (struct mr_problems){0};
}

#define PROBLEM(problems, line, ...) mr_problem_add((problems), true, (line), __VA_ARGS__)

/* ---- numbers with units ---- */

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},      {"B", 1},     {"KiB", 1024},   {"MiB", 1048576},  {"GiB", 1073741824},
    {"kB", 1000}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}};
static const struct unit ms_units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
static const struct unit us_units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};

static bool parse_with_unit(const char *text, const struct unit *units, size_t count, int64_t *ret)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || errno != 0 || number < 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(end, units[i].name) == 0) {
            return !__builtin_mul_overflow((int64_t)number, units[i].factor, ret);
        }
    }
    return false;
}

static bool parse_choice(const char *text, const char *choices, int64_t *ret)
{
    size_t len = strlen(text);
    int64_t index = 0;
    for (const char *at = choices;; index++) {
        const char *end = strchrnul(at, '|');
        if ((size_t)(end - at) == len && memcmp(at, text, len) == 0) {
            *ret = index;
            return true;
        }
        if (*end == '\0') {
            return false;
        }
        at = end + 1;
    }
}

/* What a value of the kind looks like, for messages. */
static const char *kind_example(enum mr_option_kind kind)
{
    switch (kind) {
    case MR_KIND_STRING:
        return "a string";
    case MR_KIND_BOOL:
        return "true or false";
    case MR_KIND_COUNT:
        return "a whole number";
    case MR_KIND_DURATION:
        return "a duration such as \"500ms\", \"10s\" or \"2m\"";
    case MR_KIND_DURATION_US:
        return "a duration such as \"500us\" or \"2ms\"";
    case MR_KIND_SIZE:
        return "a size such as \"64KiB\" or \"10MB\"";
    case MR_KIND_STRINGS:
        return "a list of strings, [\"…\", \"…\"]";
    case MR_KIND_CHOICE:
        return "one of the words below";
    }
    return "";
}

/* A text (from the file or a default) into the place of its option. */
static bool parse_text(const struct mr_option *option, const char *text, int64_t *ret)
{
    switch (option->kind) {
    case MR_KIND_BOOL:
        *ret = strcmp(text, "true") == 0;
        return *ret == 1 || strcmp(text, "false") == 0;
    case MR_KIND_COUNT: {
        char *end;
        *ret = strtoll(text, &end, 10);
        return *end == '\0' && end != text;
    }
    case MR_KIND_DURATION:
        return parse_with_unit(text, ms_units, MR_ARRAY_LEN(ms_units), ret);
    case MR_KIND_DURATION_US:
        return parse_with_unit(text, us_units, MR_ARRAY_LEN(us_units), ret);
    case MR_KIND_SIZE:
        return parse_with_unit(text, size_units, MR_ARRAY_LEN(size_units), ret);
    case MR_KIND_CHOICE:
        return parse_choice(text, option->choices, ret);
    default:
        return false;
    }
}

/* ---- one value ---- */

static void strings_free(struct mr_strings *strings)
{
    for (uint32_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    *strings = (struct mr_strings){0};
}

static void strings_add(struct mr_strings *strings, const char *text)
{
    strings->items = MR_REALLOC(strings->items, (strings->count + 1) * sizeof(*strings->items));
    strings->items[strings->count++] = MR_STRDUP(text);
}

static bool read_strings(const struct mr_toml_node *node, struct mr_strings *to)
{
    if (node->kind != MR_TOML_ARRAY) {
        return false;
    }
    strings_free(to);
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i].kind != MR_TOML_STRING) {
            return false;
        }
        strings_add(to, node->children[i].string);
    }
    return true;
}

/* False when the value is not of the option's kind. */
static bool read_scalar(const struct mr_option *option, const struct mr_toml_node *node,
                        int64_t *ret)
{
    bool number = option->kind == MR_KIND_COUNT || option->kind == MR_KIND_SIZE;
    if (node->kind == MR_TOML_INTEGER && number) {
        *ret = node->integer;
        return true;
    }
    if (node->kind == MR_TOML_BOOLEAN && option->kind == MR_KIND_BOOL) {
        *ret = node->integer;
        return true;
    }
    return node->kind == MR_TOML_STRING && option->kind != MR_KIND_BOOL &&
           option->kind != MR_KIND_COUNT && parse_text(option, node->string, ret);
}

/* A bound as a file would write it: in the largest unit that leaves a whole number. */
static void write_bound(const struct mr_option *option, int64_t bound, char *ret, size_t size)
{
    const struct unit *units = size_units;
    size_t count = option->kind == MR_KIND_COUNT ? 1 : MR_ARRAY_LEN(size_units);
    if (option->kind == MR_KIND_DURATION) {
        units = ms_units;
        count = MR_ARRAY_LEN(ms_units);
    } else if (option->kind == MR_KIND_DURATION_US) {
        units = us_units;
        count = MR_ARRAY_LEN(us_units);
    }
    const struct unit *best = units;
    for (size_t i = 1; i < count; i++) {
        bool fits = bound != 0 && bound % units[i].factor == 0;
        best = fits && units[i].factor > best->factor ? &units[i] : best;
    }
    snprintf(ret, size, "%lld%s", (long long)(bound / best->factor), best->name);
}

static void check_range(const struct mr_option *option, int64_t value, uint32_t line,
                        struct mr_problems *problems)
{
    bool ranged = option->high != 0;
    if (ranged && (value < option->low || value > option->high)) {
        char low[32];
        char high[32];
        write_bound(option, option->low, low, sizeof(low));
        write_bound(option, option->high, high, sizeof(high));
        PROBLEM(problems, line, "%s is out of range: it goes from %s to %s", option->path, low,
                high);
    }
}

static void read_option(struct mr_config_values *values, uint32_t index,
                        const struct mr_toml_node *node, struct mr_problems *problems)
{
    const struct mr_option *option = &options[index];
    void *to = value_at(values, index);
    bool good = false;
    if (option->kind == MR_KIND_STRING) {
        good = node->kind == MR_TOML_STRING;
        if (good) {
            free(*(char **)to);
            *(char **)to = MR_STRDUP(node->string);
        }
    } else if (option->kind == MR_KIND_STRINGS) {
        good = read_strings(node, to);
    } else {
        int64_t value = 0;
        good = read_scalar(option, node, &value);
        if (good) {
            *(int64_t *)to = value;
            check_range(option, value, node->line, problems);
        }
    }
    values->lines[index] = node->line == 0 ? 1 : node->line;
    if (!good && option->kind == MR_KIND_CHOICE) {
        PROBLEM(problems, node->line, "%s must be one of %s", option->path, option->choices);
    } else if (!good) {
        PROBLEM(problems, node->line, "%s must be %s", option->path, kind_example(option->kind));
    }
}

static void fill_default(struct mr_config_values *values, uint32_t index)
{
    const struct mr_option *option = &options[index];
    void *to = value_at(values, index);
    if (option->kind == MR_KIND_STRING) {
        *(char **)to = MR_STRDUP(option->fallback);
    } else if (option->kind == MR_KIND_STRINGS) {
        if (option->fallback[0] != '\0') {
            strings_add(to, option->fallback);
        }
    } else {
        MR_ASSERT(parse_text(option, option->fallback, to));
    }
}

/* ---- the tree's names ---- */

bool mr_option_find(const char *path, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (strcmp(options[i].path, path) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

bool mr_option_is_section(const char *path)
{
    size_t len = strlen(path);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (strncmp(options[i].path, path, len) == 0 && options[i].path[len] == '.') {
            return true;
        }
    }
    return false;
}

/* ---- parts that are no plain options ---- */

static void read_properties(struct mr_config_values *values, const struct mr_toml_node *table,
                            struct mr_problems *problems)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct mr_toml_node *node = &table->children[i];
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)node->integer);
        const char *value = node->kind == MR_TOML_STRING    ? node->string
                            : node->kind == MR_TOML_INTEGER ? number
                            : node->kind == MR_TOML_BOOLEAN ? (node->integer ? "true" : "false")
                                                            : NULL;
        if (value == NULL) {
            PROBLEM(problems, node->line,
                    "Kafka property \"%s\" must be a string, number or boolean", node->key);
            continue;
        }
        values->properties = MR_REALLOC(values->properties,
                                        (values->property_count + 1) * sizeof(*values->properties));
        values->properties[values->property_count++] = (struct mr_property){
            .name = MR_STRDUP(node->key), .value = MR_STRDUP(value), .line = node->line};
    }
}

struct stream_key {
    const char *table; /* NULL: the stream itself */
    const char *key;
    size_t offset;
};

static const struct stream_key stream_keys[] = {
    {NULL, "name", offsetof(struct mr_stream, name)},
    {"source", "resource", offsetof(struct mr_stream, resource)},
    {"sink", "destination", offsetof(struct mr_stream, destination)},
    {"sink", "routing_key", offsetof(struct mr_stream, routing_key)},
};

static bool stream_string(struct mr_stream *stream, const char *table,
                          const struct mr_toml_node *node)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(stream_keys); i++) {
        const struct stream_key *known = &stream_keys[i];
        bool same_table = (table == NULL) == (known->table == NULL) &&
                          (table == NULL || strcmp(table, known->table) == 0);
        if (same_table && strcmp(known->key, node->key) == 0 && node->kind == MR_TOML_STRING) {
            char **to = (char **)((char *)stream + known->offset);
            free(*to);
            *to = MR_STRDUP(node->string);
            return true;
        }
    }
    return false;
}

/* In the order of enum mr_column_action. */
const char *const mr_stream_column_keys[MR_STREAM_COLUMNS] = {"include", "exclude", "mask",
                                                              "truncate", "hash"};

static bool stream_columns(struct mr_stream *stream, const char *table,
                           const struct mr_toml_node *node)
{
    for (size_t i = 0; table != NULL && strcmp(table, "columns") == 0 && i < MR_STREAM_COLUMNS;
         i++) {
        if (strcmp(node->key, mr_stream_column_keys[i]) == 0) {
            return read_strings(node, &stream->columns[i]);
        }
    }
    return false;
}

static void read_stream_key(struct mr_stream *stream, const char *table,
                            const struct mr_toml_node *node, struct mr_problems *problems)
{
    if (stream_string(stream, table, node)) {
        return;
    }
    bool in_source = table != NULL && strcmp(table, "source") == 0;
    if (in_source && strcmp(node->key, "operations") == 0 &&
        read_strings(node, &stream->operations)) {
        return;
    }
    if (stream_columns(stream, table, node)) {
        return;
    }
    bool is_flow = table != NULL && strcmp(table, "flow") == 0 && strcmp(node->key, "format") == 0;
    if (is_flow && node->kind == MR_TOML_STRING && strcmp(node->string, "json") == 0) {
        return;
    }
    PROBLEM(problems, node->line,
            "streams%s%s.%s is unknown or of the wrong kind; a stream has name, source.resource, "
            "source.operations, columns.*, flow.format = \"json\", sink.destination and "
            "sink.routing_key",
            table == NULL ? "" : ".", table == NULL ? "" : table, node->key);
}

static void read_stream(struct mr_config_values *values, const struct mr_toml_node *node,
                        struct mr_problems *problems)
{
    struct mr_stream stream = {.line = node->line};
    for (uint32_t i = 0; i < node->count; i++) {
        const struct mr_toml_node *child = &node->children[i];
        if (strcmp(child->key, "tables") == 0) {
            continue; /* Outboxx parses and ignores it */
        }
        if (child->kind != MR_TOML_TABLE) {
            read_stream_key(&stream, NULL, child, problems);
            continue;
        }
        for (uint32_t k = 0; k < child->count; k++) {
            if (strcmp(child->children[k].key, "tables") != 0) {
                read_stream_key(&stream, child->key, &child->children[k], problems);
            }
        }
    }
    if (stream.resource == NULL || stream.destination == NULL) {
        PROBLEM(problems, node->line, "a stream needs source.resource and sink.destination");
    }
    values->streams =
        MR_REALLOC(values->streams, (values->stream_count + 1) * sizeof(*values->streams));
    values->streams[values->stream_count++] = stream;
}

static void read_streams(struct mr_config_values *values, const struct mr_toml_node *node,
                         struct mr_problems *problems)
{
    if (node->kind != MR_TOML_ARRAY) {
        PROBLEM(problems, node->line, "streams must be written as [[streams]]");
        return;
    }
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i].kind == MR_TOML_TABLE) {
            read_stream(values, &node->children[i], problems);
        } else {
            PROBLEM(problems, node->line, "streams must be written as [[streams]]");
        }
    }
}

/* ---- the tree ---- */

static void note_section(struct mr_config_values *values, const char *path, uint32_t line)
{
    if (strcmp(path, "sink.kafka") == 0) {
        values->kafka_section_line = line;
    } else if (strcmp(path, "sink.file") == 0) {
        values->file_section_line = line;
    }
}

static void read_table(struct mr_config_values *values, const char *prefix,
                       const struct mr_toml_node *table, struct mr_problems *problems)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct mr_toml_node *node = &table->children[i];
        char path[256];
        snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", node->key);
        uint32_t index;
        if (strcmp(path, "streams") == 0) {
            read_streams(values, node, problems);
        } else if (strcmp(path, "sink.kafka.properties") == 0 && node->kind == MR_TOML_TABLE) {
            read_properties(values, node, problems);
        } else if (mr_option_find(path, &index)) {
            read_option(values, index, node, problems);
        } else if (mr_option_is_section(path) && node->kind == MR_TOML_TABLE) {
            note_section(values, path, node->line == 0 ? 1 : node->line);
            read_table(values, path, node, problems);
        } else {
            mr_config_unknown(path, node, problems);
        }
    }
}

void mr_values_read(struct mr_config_values *values, const struct mr_toml_node *root,
                    struct mr_problems *problems)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        fill_default(values, i);
    }
    if (root != NULL) {
        read_table(values, "", root, problems);
    }
}

void mr_values_done(struct mr_config_values *values)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (options[i].kind == MR_KIND_STRING) {
            free(*(char **)value_at(values, i));
        } else if (options[i].kind == MR_KIND_STRINGS) {
            strings_free(value_at(values, i));
        }
    }
    for (uint32_t i = 0; i < values->property_count; i++) {
        free(values->properties[i].name);
        free(values->properties[i].value);
    }
    free(values->properties);
    for (uint32_t i = 0; i < values->stream_count; i++) {
        free(values->streams[i].name);
        free(values->streams[i].resource);
        free(values->streams[i].destination);
        free(values->streams[i].routing_key);
        strings_free(&values->streams[i].operations);
        for (uint32_t k = 0; k < MR_STREAM_COLUMNS; k++) {
            strings_free(&values->streams[i].columns[k]);
        }
    }
    free(values->streams);
}
