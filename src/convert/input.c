/* The two forms of a connector's configuration. The properties are java.util.Properties' (its load method), the object is what
 * Connect's REST interface takes and answers (its documentation, "REST API"). */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "convert/convert_internal.h"

void mr_convert_list_add(struct mr_convert_list *list, char *text)
{
    list->items = MR_REALLOC(list->items, (list->count + 1) * sizeof(*list->items));
    list->items[list->count++] = text;
}

void mr_convert_list_done(struct mr_convert_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (struct mr_convert_list){0};
}

static void line_done(struct mr_convert_line *line)
{
    free(line->given);
    free(line->name);
    explicit_bzero(line->value, strlen(line->value));
    free(line->value);
}

void mr_convert_lines_done(struct mr_convert_lines *lines)
{
    for (uint32_t i = 0; i < lines->count; i++) {
        line_done(&lines->items[i]);
    }
    free(lines->items);
    *lines = (struct mr_convert_lines){0};
}

/* Debezium Server's names are the connector's behind a prefix; those of its Kafka producer are Connect's overrides. A worker's
 * file has the producer's without "override". */
static char *plain_name(const char *given)
{
    static const struct {
        const char *prefix, *to;
    } prefixes[] = {{"debezium.source.", ""},
                    {"debezium.transforms", "transforms"},
                    {"debezium.predicates", "predicates"},
                    {"debezium.sink.kafka.producer.", "producer.override."},
                    {"producer.override.", "producer.override."},
                    {"producer.", "producer.override."}};
    for (size_t i = 0; i < MR_ARRAY_LEN(prefixes); i++) {
        size_t len = strlen(prefixes[i].prefix);
        if (strncmp(given, prefixes[i].prefix, len) == 0) {
            struct mr_text name = {0};
            mr_text_string(&name, prefixes[i].to);
            mr_text_string(&name, given + len);
            return name.data;
        }
    }
    return MR_STRDUP(given);
}

void mr_convert_lines_add(struct mr_convert_lines *lines, const char *name, const char *value)
{
    struct mr_convert_line line = {
        .given = MR_STRDUP(name), .name = plain_name(name), .value = MR_STRDUP(value)};
    for (uint32_t i = 0; i < lines->count; i++) {
        if (strcmp(lines->items[i].name, line.name) == 0) {
            line_done(&lines->items[i]);
            lines->items[i] = line;
            return;
        }
    }
    lines->items = MR_REALLOC(lines->items, (lines->count + 1) * sizeof(*lines->items));
    lines->items[lines->count++] = line;
}

/* ---- properties ---- */

struct reader {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && is_blank(*reader->at)) {
        reader->at++;
    }
}

/* Behind the end of a line, which is \n, \r or both. */
static void skip_newline(struct reader *reader)
{
    bool both = reader->end - reader->at > 1 && reader->at[0] == '\r' && reader->at[1] == '\n';
    reader->at += both ? 2 : 1;
}

static bool at_newline(const struct reader *reader)
{
    return reader->at < reader->end && (*reader->at == '\n' || *reader->at == '\r');
}

/* What \uXXXX can say, as UTF-8; half of a pair stands for nothing. */
static void add_code_point(struct mr_text *out, unsigned code)
{
    char bytes[3];
    size_t len = 0;
    code = code >= 0xD800 && code < 0xE000 ? 0xFFFD : code;
    if (code < 0x80) {
        bytes[len++] = (char)code;
    } else if (code < 0x800) {
        bytes[len++] = (char)(0xC0 | code >> 6);
        bytes[len++] = (char)(0x80 | (code & 0x3F));
    } else {
        bytes[len++] = (char)(0xE0 | code >> 12);
        bytes[len++] = (char)(0x80 | (code >> 6 & 0x3F));
        bytes[len++] = (char)(0x80 | (code & 0x3F));
    }
    mr_text_add(out, bytes, len);
}

/* What is behind a backslash. */
static void add_escaped(struct reader *reader, struct mr_text *out)
{
    if (reader->at == reader->end) {
        return;
    }
    if (at_newline(reader)) {
        skip_newline(reader);
        skip_blanks(reader);
        return;
    }
    char c = *reader->at++;
    static const char letters[] = "tnrf";
    static const char meant[] = "\t\n\r\f";
    const char *letter = strchr(letters, c);
    if (c == 'u' && reader->end - reader->at >= 4) {
        char digits[5] = {0};
        memcpy(digits, reader->at, 4);
        char *rest;
        unsigned code = (unsigned)strtoul(digits, &rest, 16);
        if (*rest == '\0' && code != 0) {
            reader->at += 4;
            add_code_point(out, code);
        }
    } else if (letter != NULL && c != '\0') {
        mr_text_add(out, &meant[letter - letters], 1);
    } else {
        mr_text_add(out, &c, 1);
    }
}

/* Up to the end of the line, or of the name. */
static void read_part(struct reader *reader, bool is_name, struct mr_text *out)
{
    while (reader->at < reader->end && !at_newline(reader)) {
        char c = *reader->at;
        if (is_name && (c == '=' || c == ':' || is_blank(c))) {
            return;
        }
        reader->at++;
        if (c == '\\') {
            add_escaped(reader, out);
        } else if (c != '\0') {
            mr_text_add(out, &c, 1);
        }
    }
}

static void read_properties(const char *text, size_t len, struct mr_convert_lines *ret)
{
    struct reader reader = {.at = text, .end = text + len};
    while (reader.at < reader.end) {
        skip_blanks(&reader);
        if (at_newline(&reader)) {
            skip_newline(&reader);
            continue;
        }
        if (reader.at < reader.end && (*reader.at == '#' || *reader.at == '!')) {
            while (reader.at < reader.end && !at_newline(&reader)) {
                reader.at++;
            }
            continue;
        }
        struct mr_text name = {0};
        struct mr_text value = {0};
        read_part(&reader, true, &name);
        skip_blanks(&reader);
        if (reader.at < reader.end && (*reader.at == '=' || *reader.at == ':')) {
            reader.at++;
            skip_blanks(&reader);
        }
        read_part(&reader, false, &value);
        if (name.len > 0) {
            mr_convert_lines_add(ret, name.data, value.data == NULL ? "" : value.data);
        }
        if (value.data != NULL) {
            explicit_bzero(value.data, value.size);
        }
        mr_text_done(&name);
        mr_text_done(&value);
    }
}

/* ---- JSON ---- */

static bool read_member(const cJSON *member, struct mr_convert_lines *ret, char *ret_reason,
                        size_t reason_size)
{
    char number[32];
    const char *value = number;
    if (cJSON_IsString(member)) {
        value = member->valuestring;
    } else if (cJSON_IsBool(member)) {
        value = cJSON_IsTrue(member) ? "true" : "false";
    } else if (cJSON_IsNumber(member)) {
        snprintf(number, sizeof(number), "%.15g", member->valuedouble);
    } else if (cJSON_IsNull(member)) {
        return true;
    } else {
        snprintf(
            ret_reason, reason_size,
            "\"%.100s\" is not a string, a number or a boolean; give the object that is posted "
            "to Connect",
            member->string);
        return false;
    }
    mr_convert_lines_add(ret, member->string, value);
    return true;
}

static bool read_json(const char *text, size_t len, struct mr_convert_lines *ret, char *ret_reason,
                      size_t reason_size)
{
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, len, &end, false);
    if (!cJSON_IsObject(root)) {
        unsigned line = 1;
        for (const char *at = text; at < end; at++) {
            line += *at == '\n';
        }
        snprintf(ret_reason, reason_size, "not a JSON object: line %u can't be read", line);
        cJSON_Delete(root);
        return false;
    }
    const cJSON *wrapped = cJSON_GetObjectItemCaseSensitive(root, "config");
    const cJSON *config = cJSON_IsObject(wrapped) ? wrapped : root;
    bool good = true;
    for (const cJSON *member = config->child; good && member != NULL; member = member->next) {
        good = read_member(member, ret, ret_reason, reason_size);
    }
    cJSON_Delete(root);
    return good;
}

bool mr_convert_read(const char *text, size_t len, struct mr_convert_lines *ret, char *ret_reason,
                     size_t reason_size)
{
    *ret = (struct mr_convert_lines){0};
    size_t first = 0;
    while (first < len && strchr(" \t\r\n", text[first]) != NULL && text[first] != '\0') {
        first++;
    }
    if (!mr_is_utf8((const uint8_t *)text, len)) {
        snprintf(ret_reason, reason_size, "not a text in UTF-8");
        return false;
    }
    bool good = true;
    if (first < len && (text[first] == '{' || text[first] == '[')) {
        good = read_json(text, len, ret, ret_reason, reason_size);
    } else {
        read_properties(text, len, ret);
    }
    if (good && ret->count == 0) {
        snprintf(ret_reason, reason_size, "there is no option in it");
        good = false;
    }
    if (!good) {
        mr_convert_lines_done(ret);
    }
    return good;
}
