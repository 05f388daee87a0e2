/* Our options, as they are gathered, and what is said of those that did not become any. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "convert/convert_internal.h"

/* A line break in a name must not end the comment, and a name may have been cut. */
static void make_printable(struct mr_text *text)
{
    for (size_t at = 0; at < text->len;) {
        size_t len = mr_utf8_sequence((const uint8_t *)text->data + at, text->len - at);
        if (len == 0 || (unsigned char)text->data[at] < 0x20 || text->data[at] == 0x7F) {
            text->data[at] = '?';
            len = 1;
        }
        at += len;
    }
}

static void write_note(struct mr_convert *convert, enum mr_convert_note kind, const char *option,
                       const char *text)
{
    static const char *const marks[] = {
        [MR_NOTE_TO_DO] = "to do",
        [MR_NOTE_LOST] = "not carried over",
        [MR_NOTE_IDLE] = "needs nothing",
        [MR_NOTE_UNKNOWN] = "unknown",
    };
    /* The salt of a hash stands in the option's name. */
    const char *salt = strstr(option, ".with.salt.");
    int len = salt == NULL ? (int)strlen(option) : (int)(salt - option) + 11;
    struct mr_text note = {0};
    mr_text_format(&note, "%.*s%s: %s: %s", len, option, salt == NULL ? "" : "…", marks[kind],
                   text);
    make_printable(&note);
    fprintf(convert->told, "%s: %s\n", convert->file, note.data);
    mr_text_format(&convert->notes, "# %s\n", note.data);
    mr_text_done(&note);
}

void mr_convert_note(struct mr_convert *convert, enum mr_convert_note kind, const char *option,
                     const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    write_note(convert, kind, option, text);
}

const struct mr_convert_line *mr_convert_find(const struct mr_convert *convert, const char *name)
{
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        if (strcmp(convert->lines.items[i].name, name) == 0) {
            return &convert->lines.items[i];
        }
    }
    return NULL;
}

struct mr_convert_line *mr_convert_take(struct mr_convert *convert, const char *name)
{
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        if (strcmp(convert->lines.items[i].name, name) == 0) {
            convert->lines.items[i].done = true;
            return &convert->lines.items[i];
        }
    }
    return NULL;
}

/* "${provider:…}", which a worker replaces. "${routedByValue}" of a transformation is another thing. */
bool mr_convert_is_expression(const char *value)
{
    for (const char *at = value; (at = strstr(at, "${")) != NULL; at++) {
        const char *end = at + strcspn(at, ":}");
        if (*end == ':') {
            return true;
        }
    }
    return false;
}

const char *mr_convert_value(struct mr_convert *convert, const char *name)
{
    const struct mr_convert_line *line = mr_convert_take(convert, name);
    if (line != NULL && mr_convert_is_expression(line->value)) {
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "its value comes from a config provider of Connect; write it in yourself");
        return NULL;
    }
    return line == NULL ? NULL : line->value;
}

void mr_convert_quote(struct mr_text *out, const char *text)
{
    mr_text_string(out, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            mr_text_format(out, "\\%c", c);
        } else if (c < 0x20 || c == 0x7F) {
            mr_text_format(out, "\\u%04X", c);
        } else {
            mr_text_add(out, text, 1);
        }
    }
    mr_text_string(out, "\"");
}

static bool is_whole_number(const char *text, int64_t *ret)
{
    char *end;
    *ret = strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

/* Debezium's words are taken in any case. */
static bool write_choice(struct mr_text *out, const char *choices, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = choices; len > 0; at++) {
        size_t size = strcspn(at, "|");
        if (size == len && strncasecmp(at, word, len) == 0) {
            mr_text_format(out, "\"%.*s\"", (int)len, at);
            return true;
        }
        at += size;
        if (*at == '\0') {
            break;
        }
    }
    return false;
}

/* Numbers are in the unit that Debezium's options have: milliseconds, bytes. */
static bool write_value(struct mr_text *out, const struct mr_option *option, const char *value)
{
    int64_t number = 0;
    bool in_range =
        is_whole_number(value, &number) && number >= option->low && number <= option->high;
    switch (option->kind) {
    case MR_KIND_BOOL:
        mr_text_string(out, value);
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    case MR_KIND_COUNT:
    case MR_KIND_SIZE:
        mr_text_format(out, option->kind == MR_KIND_SIZE ? "\"%lld\"" : "%lld", (long long)number);
        return in_range;
    case MR_KIND_DURATION:
        mr_text_format(out, "\"%lldms\"", (long long)number);
        return in_range;
    case MR_KIND_CHOICE:
        return write_choice(out, option->choices, value);
    case MR_KIND_STRING:
        mr_convert_quote(out, value);
        return true;
    default:
        return false;
    }
}

static uint32_t option_index(const char *path)
{
    uint32_t index = 0;
    while (index < MR_OPTION_COUNT && strcmp(mr_option_at(index)->path, path) != 0) {
        index++;
    }
    return index;
}

bool mr_convert_set(struct mr_convert *convert, const char *path, const char *value)
{
    uint32_t index = option_index(path);
    struct mr_text text = {0};
    if (index == MR_OPTION_COUNT || !write_value(&text, mr_option_at(index), value)) {
        mr_text_done(&text);
        return false;
    }
    free(convert->options[index]);
    convert->options[index] = text.data;
    return true;
}

void mr_convert_set_list(struct mr_convert *convert, const char *path,
                         const struct mr_convert_list *list)
{
    uint32_t index = option_index(path);
    MR_ASSERT(index < MR_OPTION_COUNT);
    struct mr_text text = {0};
    mr_text_string(&text, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        mr_text_string(&text, i == 0 ? "" : ", ");
        mr_convert_quote(&text, list->items[i]);
    }
    mr_text_string(&text, "]");
    free(convert->options[index]);
    convert->options[index] = text.data;
}

void mr_convert_set_property(struct mr_convert *convert, const char *name, const char *value)
{
    mr_convert_quote(&convert->properties, name);
    mr_text_string(&convert->properties, " = ");
    mr_convert_quote(&convert->properties, value);
    mr_text_string(&convert->properties, "\n");
}
