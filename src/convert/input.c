/* The two forms of a connector's configuration. The properties are java.util.Properties' (its load
 * method), the object is what Connect's REST interface takes and answers (its documentation, "REST
 * API"). */
#include <malloc.h>

#include "base/json.h"
#include "base/object.h"
#include "convert/convert_internal.h"

void *mr_cv_keep(struct mr_convert *c, void *memory)
{
    MR_GROW(c->memory, c->memory_room, (size_t)c->memory_count + 1);
    c->memory[c->memory_count++] = memory;
    return memory;
}

const char *mr_cv_part(struct mr_convert *c, const char *text, size_t len)
{
    return mr_cv_keep(c, MR_STRNDUP(text, len));
}

const char *mr_cv_text(struct mr_convert *c, const char *format, ...)
{
    struct mr_text text = {0};
    va_list arguments;
    va_start(arguments, format);
    mr_text_vformat(&text, format, arguments);
    va_end(arguments);
    return mr_cv_keep(c, text.data);
}

void mr_cv_done(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->memory_count; i++) {
        explicit_bzero(c->memory[i], malloc_usable_size(c->memory[i]));
        free(c->memory[i]);
    }
    free(c->memory);
    free(c->lines);
    mr_text_done(&c->properties);
    mr_text_done(&c->notes);
}

/* A list's room is the power of two from its count on. */
void mr_cv_add(struct mr_convert *c, struct mr_cv_list *list, const char *text)
{
    if ((list->count & (list->count - 1)) == 0) {
        const char **items = mr_cv_keep(c, MR_NEW_ARRAY(const char *, 2 * (size_t)list->count + 1));
        memcpy(items, list->items == NULL ? items : list->items, list->count * sizeof(*items));
        list->items = items;
    }
    list->items[list->count++] = text;
}

bool mr_cv_holds(const struct mr_cv_list *list, const char *text)
{
    return MR_ANY(item, list->items, list->count, strcmp(*item, text) == 0);
}

/* Debezium Server's names are the connector's after a prefix; those of its Kafka producer are
 * Connect's overrides. A worker's file has the producer's without "override". */
static const char *input_plain_name(struct mr_convert *c, const char *given)
{
    static const char *const prefixes[][2] = {
        {"debezium.source.", ""},
        {"debezium.transforms", "transforms"},
        {"debezium.predicates", "predicates"},
        {"debezium.sink.kafka.producer.", "producer.override."},
        {"producer.override.", "producer.override."},
        {"producer.", "producer.override."},
        {"", ""},
    };
    size_t i = 0;
    while (strncmp(given, prefixes[i][0], strlen(prefixes[i][0])) != 0) {
        i++;
    }
    return mr_cv_text(c, "%s%s", prefixes[i][1], given + strlen(prefixes[i][0]));
}

struct mr_cv_line *mr_cv_find(struct mr_convert *c, const char *name)
{
    return MR_FIND(line, c->lines, c->line_count, strcmp(line->name, name) == 0);
}

void mr_cv_line_add(struct mr_convert *c, const char *name, const char *value)
{
    struct mr_cv_line line = {.given = mr_cv_text(c, "%s", name),
                              .name = input_plain_name(c, name),
                              .value = mr_cv_text(c, "%s", value)};
    struct mr_cv_line *earlier = mr_cv_find(c, line.name);
    if (earlier == NULL) {
        c->lines = MR_REALLOC(c->lines, (c->line_count + 1) * sizeof(*c->lines));
        earlier = &c->lines[c->line_count++];
    }
    *earlier = line;
}

struct mr_cv_line *mr_cv_take(struct mr_convert *c, const char *name)
{
    struct mr_cv_line *line = mr_cv_find(c, name);
    if (line != NULL) {
        line->done = true;
    }
    return line;
}

/* "${provider:…}", which a worker replaces. "${routedByValue}" of a transformation is another
 * thing. */
bool mr_cv_is_expression(const char *value)
{
    for (const char *at = value; (at = strstr(at, "${")) != NULL; at++) {
        if (at[strcspn(at, ":}")] == ':') {
            return true;
        }
    }
    return false;
}

const char *mr_cv_value(struct mr_convert *c, const char *name)
{
    const struct mr_cv_line *line = mr_cv_take(c, name);
    if (line != NULL && mr_cv_is_expression(line->value)) {
        TO_DO(c, line->given,
              "its value comes from a config provider of Connect; write it in yourself");
        return NULL;
    }
    return line == NULL ? NULL : line->value;
}

mr_slice mr_cv_class(const char *java)
{
    const char *dot = strrchr(java, '.');
    const char *last = dot == NULL ? java : dot + 1;
    return (mr_slice){(const uint8_t *)last, strcspn(last, "$")};
}

bool mr_cv_is_class(const char *java, const char *name)
{
    return mr_slice_equal(mr_cv_class(java), mr_slice_of(name));
}

#define BLANKS " \t\f"
#define ENDS   "\n\r" /* of lines, each alone or both */

/* What \uXXXX can say, as UTF-8; half of a pair stands for nothing. */
static void add_code_point(struct mr_text *out, unsigned code)
{
    code = code >= 0xD800 && code < 0xE000 ? 0xFFFD : code;
    if (code < 0x80) {
        mr_text_format(out, "%c", (int)code);
    } else if (code < 0x800) {
        mr_text_format(out, "%c%c", (int)(0xC0 | code >> 6), (int)(0x80 | (code & 0x3F)));
    } else {
        mr_text_format(out, "%c%c%c", (int)(0xE0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3F)),
                       (int)(0x80 | (code & 0x3F)));
    }
}

/* What follows a backslash; answers where that ends. */
static const char *input_add_escaped(const char *at, struct mr_text *out)
{
    static const char letters[] = "tnrf";
    const char *letter = strchr(letters, *at);
    if (*at == '\0') {
        return at;
    }
    if (strchr(ENDS, *at) != NULL) {
        at += at[0] == '\r' && at[1] == '\n' ? 2 : 1;
        return at + strspn(at, BLANKS);
    }
    if (*at != 'u' || strnlen(at, 5) < 5) {
        mr_text_add(out, letter == NULL ? at : &"\t\n\r\f"[letter - letters], 1);
        return at + 1;
    }
    char digits[5] = {at[1], at[2], at[3], at[4]};
    char *rest;
    unsigned code = (unsigned)strtoul(digits, &rest, 16);
    if (*rest != '\0' || code == 0) {
        return at + 1;
    }
    add_code_point(out, code);
    return at + 5;
}

/* Up to the end of the line, or of the name; answers where that is. */
static const char *input_read_part(const char *at, bool is_name, struct mr_text *out)
{
    while (*at != '\0' && strchr(is_name ? ENDS BLANKS "=:" : ENDS, *at) == NULL) {
        if (*at == '\\') {
            at = input_add_escaped(at + 1, out);
        } else {
            mr_text_add(out, at++, 1);
        }
    }
    return at;
}

static const char *read_property(struct mr_convert *c, const char *at)
{
    MR_TEXT(name);
    MR_TEXT(value);
    at = input_read_part(at, true, &name);
    at += strspn(at, BLANKS);
    if (*at == '=' || *at == ':') {
        at++;
        at += strspn(at, BLANKS);
    }
    at = input_read_part(at, false, &value);
    if (name.len > 0) {
        mr_cv_line_add(c, name.data, value.data == NULL ? "" : value.data);
    }
    if (value.data != NULL) {
        explicit_bzero(value.data, value.size);
    }
    return at;
}

static void input_read_properties(struct mr_convert *c, const char *text, size_t len)
{
    char *copy = mr_cv_keep(c, MR_ALLOC(len + 1));
    char *to = copy;
    for (size_t i = 0; i < len; i++) {
        *to = text[i];
        to += text[i] != '\0';
    }
    *to = '\0';
    for (const char *at = copy; *(at += strspn(at, ENDS BLANKS)) != '\0';) {
        at = *at == '#' || *at == '!' ? at + strcspn(at, ENDS) : read_property(c, at);
    }
}

/* False: it is nothing that an option has. */
static bool read_member(const cJSON *member, struct mr_convert *c)
{
    char number[32];
    if (cJSON_IsNull(member)) {
        return true;
    }
    if (cJSON_IsNumber(member)) {
        snprintf(number, sizeof(number), "%.15g", member->valuedouble);
    } else if (!cJSON_IsString(member) && !cJSON_IsBool(member)) {
        return false;
    }
    mr_cv_line_add(c, member->string,
                   cJSON_IsString(member)   ? member->valuestring
                   : cJSON_IsNumber(member) ? number
                   : cJSON_IsTrue(member)   ? "true"
                                            : "false");
    return true;
}

static bool read_json(const char *text, size_t len, struct mr_convert *c, char *ret_reason,
                      size_t reason_size)
{
    const char *end = NULL;
    MR_OBJECT cJSON *root = cJSON_ParseWithLengthOpts(text, len, &end, false);
    bool good = cJSON_IsObject(root);
    if (!good) {
        unsigned line = 1;
        for (const char *at = text; at < end; at++) {
            line += *at == '\n';
        }
        snprintf(ret_reason, reason_size, "not a JSON object: line %u can't be read", line);
    }
    const cJSON *wrapped = cJSON_GetObjectItemCaseSensitive(root, "config");
    const cJSON *config = cJSON_IsObject(wrapped) ? wrapped : root;
    for (const cJSON *member = good ? config->child : NULL; good && member != NULL;
         member = member->next) {
        good = read_member(member, c);
        if (!good) {
            snprintf(ret_reason, reason_size,
                     "\"%.100s\" is not a string, a number or a boolean; give the object that is "
                     "posted to Connect",
                     member->string);
        }
    }
    return good;
}

bool mr_cv_read(struct mr_convert *c, const char *text, size_t len, char *ret_reason,
                size_t reason_size)
{
    if (!mr_is_utf8((const uint8_t *)text, len)) {
        snprintf(ret_reason, reason_size, "not a text in UTF-8");
        return false;
    }
    size_t first = 0;
    while (first < len && strchr(" \t\r\n", text[first]) != NULL && text[first] != '\0') {
        first++;
    }
    if (first < len && (text[first] == '{' || text[first] == '[')) {
        if (!read_json(text, len, c, ret_reason, reason_size)) {
            return false;
        }
    } else {
        input_read_properties(c, text, len);
    }
    if (c->line_count == 0) {
        snprintf(ret_reason, reason_size, "there is no option in it");
    }
    return c->line_count > 0;
}
