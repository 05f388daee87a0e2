/* Our options as they are gathered, the notes about those that did not become any, and the file
 * made of both. */
#include <ctype.h>
#include <stdarg.h>

#include "base/json.h"
#include "convert/convert_internal.h"

/* A line break in a name must not end the comment, and a name may have been cut. */
static void output_make_printable(struct mr_text *text)
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

void mr_cv_note(struct mr_convert *c, enum mr_cv_kind kind, const char *option, const char *format,
                ...)
{
    static const char *const marks[] = {
        [MR_CV_TO_DO] = "to do",
        [MR_CV_LOST] = "not carried over",
        [MR_CV_IDLE] = "needs nothing",
        [MR_CV_UNKNOWN] = "unknown",
    };
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* The salt of a hash is in the option's name. */
    const char *salt = strstr(option, ".with.salt.");
    int len = salt == NULL ? (int)strlen(option) : (int)(salt - option) + 11;
    MR_TEXT(note);
    mr_text_format(&note, "%.*s%s: %s: %s", len, option, salt == NULL ? "" : "…", marks[kind],
                   text);
    output_make_printable(&note);
    fprintf(c->told, "%s: %s\n", c->file, note.data);
    mr_text_format(&c->notes, "# %s\n", note.data);
}

static void output_add_quoted(struct mr_text *out, const char *text)
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

/* Debezium's words are taken in any case. */
static bool write_choice(struct mr_text *out, const struct mr_option *option, const char *word)
{
    struct mr_option_value lower = {0};
    for (size_t i = 0; i < sizeof(lower.text) - 1 && word[i] != '\0'; i++) {
        lower.text[i] = (char)tolower((unsigned char)word[i]);
    }
    int64_t value;
    mr_text_format(out, "\"%s\"", lower.text);
    return mr_option_parse(option, lower.text, &value);
}

/* Numbers are in the unit that Debezium's options have: milliseconds, bytes. */
static bool output_write_value(struct mr_text *out, const struct mr_option *option,
                               const char *value)
{
    char *end;
    long long number = strtoll(value, &end, 10);
    bool in_range = end != value && *end == '\0' && number >= option->low && number <= option->high;
    switch (option->kind) {
    case MR_KIND_BOOL:
        mr_text_string(out, value);
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    case MR_KIND_COUNT:
        mr_text_format(out, "%lld", number);
        return in_range;
    case MR_KIND_SIZE:
        mr_text_format(out, "\"%lld\"", number);
        return in_range;
    case MR_KIND_DURATION:
        mr_text_format(out, "\"%lldms\"", number);
        return in_range;
    case MR_KIND_CHOICE:
        return write_choice(out, option, value);
    case MR_KIND_STRING:
    case MR_KIND_TOPIC:
    case MR_KIND_SECRET:
    case MR_KIND_LOGIN:
        output_add_quoted(out, value);
        return true;
    default:
        return false;
    }
}

bool mr_cv_set(struct mr_convert *c, const char *path, const char *value)
{
    uint32_t index;
    struct mr_text text = {0};
    if (!mr_option_find(path, &index) || !output_write_value(&text, mr_option_at(index), value)) {
        mr_text_done(&text);
        return false;
    }
    c->options[index] = mr_cv_keep(c, text.data);
    return true;
}

void mr_cv_set_list(struct mr_convert *c, const char *path, const struct mr_cv_list *list)
{
    uint32_t index;
    MR_ASSERT(mr_option_find(path, &index));
    struct mr_text text = {0};
    mr_text_string(&text, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        mr_text_string(&text, i == 0 ? "" : ", ");
        output_add_quoted(&text, list->items[i]);
    }
    mr_text_string(&text, "]");
    c->options[index] = mr_cv_keep(c, text.data);
}

static const char *placeholder_of(const char *path)
{
    static const char *const forms[][2] = {
        {"tables", MR_CONVERT_TABLE},
        {"messages.prefixes", MR_CONVERT_PLACEHOLDER},
        {"snapshot.where", MR_CONVERT_TABLE ": true"},
        {"columns.mask", MR_CONVERT_TABLE ":name=1"},
        {"columns.truncate", MR_CONVERT_TABLE ":name=1"},
    };
    size_t i = 0;
    while (i < MR_ARRAY_LEN(forms) && strcmp(forms[i][0], path) != 0) {
        i++;
    }
    return i < MR_ARRAY_LEN(forms) ? forms[i][1] : MR_CONVERT_TABLE ":name";
}

void mr_cv_hold(struct mr_convert *c, const char *given, const char *path, const char *reason)
{
    LOST(c, given,
         "%s; what it hides would be shown, so \"%s\" in %s keeps the file from starting: write "
         "there what is to be hidden",
         reason, placeholder_of(path), path);
    uint32_t index;
    MR_ASSERT(mr_option_find(path, &index));
    const char *now = c->options[index] == NULL ? "[]" : c->options[index];
    if (strstr(now, MR_CONVERT_PLACEHOLDER) == NULL) {
        c->options[index] = mr_cv_text(c, "%.*s%s\"%s\"]", (int)strlen(now) - 1, now,
                                       now[1] == ']' ? "" : ", ", placeholder_of(path));
    }
}

void mr_cv_set_property(struct mr_convert *c, const char *name, const char *value)
{
    output_add_quoted(&c->properties, name);
    mr_text_string(&c->properties, " = ");
    output_add_quoted(&c->properties, value);
    mr_text_string(&c->properties, "\n");
}

/* Length of "source.postgres" in "source.postgres.slot_name"; 0: no section. */
static size_t section_len(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? 0 : (size_t)(dot - path);
}

static bool same_section(uint32_t left, uint32_t right)
{
    const char *a = mr_option_at(left)->path;
    const char *b = mr_option_at(right)->path;
    return section_len(a) == section_len(b) && strncmp(a, b, section_len(a)) == 0;
}

static void write_section(const struct mr_convert *c, uint32_t first, FILE *to)
{
    const char *path = mr_option_at(first)->path;
    size_t len = section_len(path);
    if (len > 0) {
        fprintf(to, "\n[%.*s]\n", (int)len, path);
    }
    for (uint32_t i = first; i < MR_OPTION_COUNT; i++) {
        if (c->options[i] != NULL && same_section(first, i)) {
            fprintf(to, "%s = %s\n", mr_option_at(i)->path + (len == 0 ? 0 : len + 1),
                    c->options[i]);
        }
    }
}

void mr_cv_write(const struct mr_convert *c, FILE *to)
{
    fputs("# Made by `millrace convert`. docs/migrating-from-debezium.md says how to go on.\n", to);
    if (c->notes.len > 0) {
        fprintf(to, "#\n%s", c->notes.data);
    }
    fputs("\n", to);
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        bool is_first = c->options[i] != NULL;
        for (uint32_t k = 0; k < i; k++) {
            is_first &= c->options[k] == NULL || !same_section(i, k);
        }
        if (is_first) {
            write_section(c, i, to);
        }
    }
    if (c->properties.len > 0) {
        fprintf(to, "\n[sink.kafka.properties]\n%s", c->properties.data);
    }
}
