#include "options/values.h"

#include "event/batch.h"
#include "options/unknown.h"

#define PROBLEM(problems, line, ...) mr_problem_add((problems), true, (line), __VA_ARGS__)

static void *options_value_at(struct mr_config_values *values, uint32_t index)
{
    static const size_t offsets[] = {
#define MR_OPTION(path, kind, field, ...) offsetof(struct mr_config_values, field),
#include "options/options.def"
#undef MR_OPTION
    };
    return (char *)values + offsets[index];
}

const void *mr_value_of(const struct mr_config_values *values, uint32_t index)
{
    return options_value_at((struct mr_config_values *)(uintptr_t)values, index);
}

void mr_strings_done(struct mr_strings *strings)
{
    mr_free_all(strings->items, strings->count);
    *strings = (struct mr_strings){0};
}

void mr_strings_add(struct mr_strings *strings, const char *text)
{
    MR_GROW(strings->items, strings->room, strings->count + 1);
    strings->items[strings->count++] = MR_STRDUP(text);
}

bool mr_strings_equal(const struct mr_strings *a, const struct mr_strings *b)
{
    bool equal = a->count == b->count;
    for (uint32_t i = 0; i < a->count && equal; i++) {
        equal = strcmp(a->items[i], b->items[i]) == 0;
    }
    return equal;
}

static bool read_string(const struct mr_toml_node *node, char **to)
{
    if (node->kind != MR_TOML_STRING) {
        return false;
    }
    free(*to);
    *to = MR_STRDUP(node->string);
    return true;
}

static bool read_strings(const struct mr_toml_node *node, struct mr_strings *to)
{
    if (node->kind != MR_TOML_ARRAY) {
        return false;
    }
    mr_strings_done(to);
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i].kind != MR_TOML_STRING) {
            return false;
        }
        mr_strings_add(to, node->children[i].string);
    }
    return true;
}

static bool read_rewrite(const struct mr_toml_node *node, struct mr_strings *to)
{
    if (node->kind == MR_TOML_STRING) {
        mr_strings_done(to);
        mr_strings_add(to, node->string);
    } else if (!read_strings(node, to) || to->count != 2) {
        return false;
    }
    return to->items[0][0] != '\0' && to->items[to->count - 1][0] != '\0';
}

bool mr_kind_is_list(enum mr_option_kind kind)
{
    return kind == MR_KIND_STRINGS || kind == MR_KIND_REWRITE || kind == MR_KIND_SECRET ||
           kind == MR_KIND_LOGIN;
}

const char *mr_text_after(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(text, prefix, len) == 0 && text[len] != '\0' ? text + len : NULL;
}

bool mr_text_is_reference(const char *text)
{
    return mr_text_after(text, "env:") != NULL || mr_text_after(text, "file:") != NULL;
}

/* `by_program`: a list is one, too. */
static bool read_secret(const struct mr_toml_node *node, bool by_program, struct mr_strings *to)
{
    if (node->kind == MR_TOML_ARRAY) {
        return by_program && read_strings(node, to);
    }
    const char *text = node->kind == MR_TOML_STRING ? node->string : NULL;
    bool is_none = text != NULL && text[0] == '\0';
    if (!is_none && (text == NULL || !mr_text_is_reference(text))) {
        return false;
    }
    mr_strings_done(to);
    if (!is_none) {
        mr_strings_add(to, text);
    }
    return true;
}

static bool read_number(const struct mr_option *option, const struct mr_toml_node *node,
                        int64_t *ret)
{
    bool takes_text = option->kind != MR_KIND_BOOL && option->kind != MR_KIND_COUNT;
    bool takes_number = option->kind == MR_KIND_COUNT || option->kind == MR_KIND_SIZE;
    if (node->kind == MR_TOML_BOOLEAN ? option->kind == MR_KIND_BOOL
                                      : takes_number && node->kind == MR_TOML_INTEGER) {
        *ret = node->integer;
        return true;
    }
    return takes_text && node->kind == MR_TOML_STRING && mr_option_parse(option, node->string, ret);
}

static bool read_value(const struct mr_option *option, const struct mr_toml_node *node, void *to)
{
    switch (option->kind) {
    case MR_KIND_STRING:
    case MR_KIND_TOPIC:
        return read_string(node, to);
    case MR_KIND_STRINGS:
        return read_strings(node, to);
    case MR_KIND_REWRITE:
        return read_rewrite(node, to);
    case MR_KIND_SECRET:
    case MR_KIND_LOGIN:
        return read_secret(node, option->kind == MR_KIND_LOGIN, to);
    default:
        return read_number(option, node, to);
    }
}

static void check_value(const struct mr_option *option, const void *value, uint32_t line,
                        struct mr_problems *problems)
{
    if (option->kind == MR_KIND_TOPIC) {
        const char *topic = *(char *const *)value;
        const char *fault = topic[0] == '\0' ? NULL : mr_topic_fault(topic);
        if (fault != NULL) {
            PROBLEM(problems, line, "%s: \"%s\" %s", option->path, topic, fault);
        }
    } else if (option->high != 0) {
        int64_t number = *(const int64_t *)value;
        if (number < option->low || number > option->high) {
            PROBLEM(problems, line, "%s is out of range: it goes from %s to %s", option->path,
                    mr_option_write(option, option->low).text,
                    mr_option_write(option, option->high).text);
        }
    }
}

static void read_option(struct mr_config_values *values, uint32_t index,
                        const struct mr_toml_node *node, struct mr_problems *problems)
{
    const struct mr_option *option = mr_option_at(index);
    void *to = options_value_at(values, index);
    values->lines[index] = node->line == 0 ? 1 : node->line;
    if (read_value(option, node, to)) {
        check_value(option, to, node->line, problems);
    } else if (option->kind == MR_KIND_CHOICE) {
        PROBLEM(problems, node->line, "%s must be one of %s", option->path, option->choices);
    } else {
        PROBLEM(problems, node->line, "%s must be %s", option->path,
                mr_kinds[option->kind].example);
    }
}

static void fill_default(struct mr_config_values *values, uint32_t index)
{
    const struct mr_option *option = mr_option_at(index);
    void *to = options_value_at(values, index);
    if (option->kind == MR_KIND_STRING || option->kind == MR_KIND_TOPIC) {
        *(char **)to = MR_STRDUP(option->fallback);
    } else if (!mr_kind_is_list(option->kind)) {
        MR_ASSERT(mr_option_parse(option, option->fallback, to));
    } else if (option->fallback[0] != '\0') {
        mr_strings_add(to, option->fallback);
    }
}

bool mr_value_is_set(const struct mr_config_values *values, uint32_t index)
{
    const void *value = mr_value_of(values, index);
    enum mr_option_kind kind = mr_option_at(index)->kind;
    return kind == MR_KIND_STRING || kind == MR_KIND_TOPIC ? (*(char *const *)value)[0] != '\0'
           : mr_kind_is_list(kind) ? ((const struct mr_strings *)value)->count > 0
                                   : *(const int64_t *)value != 0;
}

/* One of "a|b", or of "path=a|b". */
static bool has_needed(const struct mr_config_values *values, const char *needs)
{
    const char *equals = strchr(needs, '=');
    const char *words = equals == NULL ? needs : equals + 1;
    bool found = false;
    mr_slice one;
    while (!found && mr_next_word(&words, &one)) {
        char path[64];
        char word[64];
        uint32_t index;
        int64_t wanted;
        snprintf(word, sizeof(word), "%.*s", MR_SLICE_ARGS(one));
        snprintf(path, sizeof(path), "%.*s", (int)(equals == NULL ? 0 : equals - needs), needs);
        MR_ASSERT(mr_option_find(equals == NULL ? word : path, &index));
        MR_ASSERT(equals == NULL || mr_option_parse(mr_option_at(index), word, &wanted));
        found = equals == NULL ? mr_value_is_set(values, index)
                               : *(const int64_t *)mr_value_of(values, index) == wanted;
    }
    return found;
}

void mr_values_check_needs(const struct mr_config_values *values, struct mr_problems *problems)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        bool is_off = option->kind == MR_KIND_BOOL && !mr_value_is_set(values, i);
        if (values->lines[i] == 0 || is_off || option->needs == NULL ||
            has_needed(values, option->needs)) {
            continue;
        }
        MR_FREED char *needs = mr_option_needs(option);
        mr_problem_add(problems, option->is_refused, values->lines[i],
                       "%s has no effect without %s; set that, or take this out", option->path,
                       needs);
    }
}

static void values_read_properties(struct mr_config_values *values,
                                   const struct mr_toml_node *table, struct mr_problems *problems)
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

#define PLACE(field) offsetof(struct mr_stream, field)

static const struct {
    const char *path;
    size_t offset;
    bool is_list;
} stream_keys[] = {
    {"name", PLACE(name), false},
    {"source.resource", PLACE(resource), false},
    {"sink.destination", PLACE(destination), false},
    {"sink.routing_key", PLACE(routing_key), false},
    {"source.operations", PLACE(operations), true},
    {"columns.include", PLACE(columns[0]), true},
    {"columns.exclude", PLACE(columns[1]), true},
    {"columns.mask", PLACE(columns[2]), true},
    {"columns.truncate", PLACE(columns[3]), true},
    {"columns.hash", PLACE(columns[4]), true},
};

static bool stream_equal(const struct mr_stream *one, const struct mr_stream *other)
{
    bool equal = true;
    for (size_t i = 1; i < MR_ARRAY_LEN(stream_keys) && equal; i++) { /* 0: the name */
        const void *a = (const char *)one + stream_keys[i].offset;
        const void *b = (const char *)other + stream_keys[i].offset;
        const char *left = stream_keys[i].is_list ? NULL : *(char *const *)a;
        const char *right = stream_keys[i].is_list ? NULL : *(char *const *)b;
        equal = stream_keys[i].is_list          ? mr_strings_equal(a, b)
                : left == NULL || right == NULL ? left == right
                                                : strcmp(left, right) == 0;
    }
    return equal;
}

bool mr_streams_equal(const struct mr_config_values *a, const struct mr_config_values *b)
{
    bool equal = a->stream_count == b->stream_count;
    for (uint32_t i = 0; i < a->stream_count && equal; i++) {
        equal = stream_equal(&a->streams[i], &b->streams[i]);
    }
    return equal;
}

static void read_stream_key(struct mr_stream *stream, const char *path,
                            const struct mr_toml_node *node, struct mr_problems *problems)
{
    bool good = strcmp(path, "flow.format") == 0 && node->kind == MR_TOML_STRING &&
                strcmp(node->string, "json") == 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(stream_keys); i++) {
        void *to = (char *)stream + stream_keys[i].offset;
        if (strcmp(path, stream_keys[i].path) == 0) {
            good = stream_keys[i].is_list ? read_strings(node, to) : read_string(node, to);
        }
    }
    if (!good) {
        PROBLEM(problems, node->line,
                "streams.%s is unknown or of the wrong kind; a stream has name, source.resource, "
                "source.operations, columns.*, flow.format = \"json\", sink.destination and "
                "sink.routing_key",
                path);
    }
}

/* Outboxx parses "tables" and ignores them. */
static void read_stream_table(struct mr_stream *stream, const char *prefix,
                              const struct mr_toml_node *table, struct mr_problems *problems)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct mr_toml_node *node = &table->children[i];
        char path[256];
        snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", node->key);
        if (strcmp(node->key, "tables") == 0) {
            continue;
        }
        if (node->kind == MR_TOML_TABLE && prefix[0] == '\0') {
            read_stream_table(stream, path, node, problems);
        } else {
            read_stream_key(stream, path, node, problems);
        }
    }
}

static void read_streams(struct mr_config_values *values, const struct mr_toml_node *node,
                         struct mr_problems *problems)
{
    bool good = node->kind == MR_TOML_ARRAY;
    for (uint32_t i = 0; good && i < node->count; i++) {
        const struct mr_toml_node *table = &node->children[i];
        struct mr_stream stream = {.line = table->line};
        good = table->kind == MR_TOML_TABLE;
        if (!good) {
            break;
        }
        read_stream_table(&stream, "", table, problems);
        if (stream.resource == NULL || stream.destination == NULL) {
            PROBLEM(problems, table->line, "a stream needs source.resource and sink.destination");
        }
        values->streams =
            MR_REALLOC(values->streams, (values->stream_count + 1) * sizeof(*values->streams));
        values->streams[values->stream_count++] = stream;
    }
    if (!good) {
        PROBLEM(problems, node->line, "streams must be written as [[streams]]");
    }
}

#define IS_TEXT(node, text) ((node)->kind == MR_TOML_STRING && strcmp((node)->string, (text)) == 0)

/* [observability], which names the parts of http.address. */
static void read_observability(struct mr_config_values *values, const struct mr_toml_node *table,
                               struct mr_problems *problems)
{
    const char *host = "";
    int64_t port = 9464;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct mr_toml_node *node = &table->children[i];
        if (strcmp(node->key, "address") == 0 && node->kind == MR_TOML_STRING) {
            host = node->string;
        } else if (strcmp(node->key, "port") == 0 && node->kind == MR_TOML_INTEGER) {
            port = node->integer;
        } else {
            PROBLEM(problems, node->line, "observability has an address, a text, and a port");
        }
    }
    if (MR_VALUE_LINE(values, http_address) == 0) {
        free(values->http_address);
        values->http_address = mr_formatted(strchr(host, ':') != NULL ? "[%s]:%lld" : "%s:%lld",
                                            host[0] == '\0' ? "127.0.0.1" : host, (long long)port);
        MR_VALUE_LINE(values, http_address) = table->line;
    }
}

/* What a file of Outboxx's form has in place of options, or beside them. False: it is nothing of
 * that. */
static bool read_outboxx(struct mr_config_values *values, const char *path,
                         const struct mr_toml_node *node, struct mr_problems *problems)
{
    uint32_t index;
    if (strcmp(path, "observability") == 0 && node->kind == MR_TOML_TABLE) {
        read_observability(values, node, problems);
    } else if (strcmp(path, "metadata") == 0 && node->kind == MR_TOML_TABLE) {
        const struct mr_toml_node *version = node->children;
        if (node->count != 1 || strcmp(version->key, "version") != 0 || !IS_TEXT(version, "v0")) {
            PROBLEM(problems, node->line, "metadata has version = \"v0\", and nothing else");
        }
    } else if (values->outboxx_line != 0 && node->kind == MR_TOML_STRING &&
               mr_option_find_before(path, "_env", &index)) {
        MR_FREED char *text = mr_formatted("env:%s", node->string);
        struct mr_toml_node meant = *node;
        meant.string = text;
        read_option(values, index, &meant, problems);
    } else if (strcmp(path, "source.type") != 0) {
        return false;
    } else if (!IS_TEXT(node, "postgres")) {
        PROBLEM(problems, node->line, "source.type must be postgres");
    }
    return true;
}

static void note_section(struct mr_config_values *values, const char *path, uint32_t line)
{
    if (strcmp(path, "sink.kafka") == 0) {
        values->kafka_section_line = line;
    } else if (strcmp(path, "sink.file") == 0) {
        values->file_section_line = line;
    }
}

static void values_read_table(struct mr_config_values *values, const char *prefix,
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
            values_read_properties(values, node, problems);
        } else if (mr_option_find(path, &index)) {
            read_option(values, index, node, problems);
        } else if (mr_option_is_section(path) && node->kind == MR_TOML_TABLE) {
            note_section(values, path, node->line == 0 ? 1 : node->line);
            values_read_table(values, path, node, problems);
        } else if (!read_outboxx(values, path, node, problems)) {
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
    for (uint32_t i = 0; root != NULL && i < root->count; i++) {
        if (strcmp(root->children[i].key, "metadata") == 0) {
            values->outboxx_line = root->children[i].line == 0 ? 1 : root->children[i].line;
        }
    }
    if (root != NULL) {
        values_read_table(values, "", root, problems);
    }
}

static void stream_done(struct mr_stream *stream)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(stream_keys); i++) {
        void *value = (char *)stream + stream_keys[i].offset;
        if (stream_keys[i].is_list) {
            mr_strings_done(value);
        } else {
            free(*(char **)value);
        }
    }
}

void mr_values_done(struct mr_config_values *values)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        enum mr_option_kind kind = mr_option_at(i)->kind;
        if (kind == MR_KIND_STRING || kind == MR_KIND_TOPIC) {
            free(*(char **)options_value_at(values, i));
        } else if (mr_kind_is_list(kind)) {
            mr_strings_done(options_value_at(values, i));
        }
    }
    for (uint32_t i = 0; i < values->property_count; i++) {
        free(values->properties[i].name);
        free(values->properties[i].value);
    }
    free(values->properties);
    for (uint32_t i = 0; i < values->stream_count; i++) {
        stream_done(&values->streams[i]);
    }
    free(values->streams);
}
