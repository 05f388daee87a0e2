/* Names in parts, each a name or an expression: "schema\.table" and "schema\.table\.column"; filters and masks of columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

enum { PARTS_MAX = 3, LENGTH_DIGITS_MAX = 6 };

/* Where a part of an expression ends: at a dot that does not repeat and stands in no bracket, escaped or not. */
static const char *part_end(const char *at)
{
    int depth = 0;
    for (; *at != '\0'; at++) {
        bool escaped = *at == '\\' && at[1] != '\0';
        char sign = escaped ? at[1] : *at;
        if (sign == '.' && depth == 0 &&
            (escaped || at[1] == '\0' || strchr("*+?{", at[1]) == NULL)) {
            return at;
        }
        depth += !escaped && strchr("([{", sign) != NULL;
        depth -= !escaped && strchr(")]}", sign) != NULL;
        at += escaped;
    }
    return at;
}

/* A part as our options write it. False: it has what POSIX's expressions have not, or what only reads as one. */
static bool add_part(struct mr_text *out, const char *part, size_t len)
{
    if (len == 2 && strncmp(part, ".*", 2) == 0) {
        mr_text_string(out, "*");
        return true;
    }
    bool good = len > 0;
    int depth = 0; /* of brackets: a choice outside of them is one between whole names */
    bool has_dot = memchr(part, '.', len) != NULL;
    for (size_t i = 0; i < len; i++) {
        depth += part[i] == '(' || part[i] == '[';
        depth -= part[i] == ')' || part[i] == ']';
        good &= part[i] != '|' || depth > 0;
        /* Lazy and possessive repeats, (?…), classes by letter, quotes: none of them is POSIX's, or ours. */
        bool repeats =
            i > 0 && strchr("*+?}", part[i - 1]) != NULL && strchr("*+?{", part[i]) != NULL;
        good &= strchr("\\\":=^ ", part[i]) == NULL && !repeats &&
                !(i > 0 && part[i - 1] == '(' && part[i] == '?');
    }
    mr_text_string(out, has_dot ? "(" : "");
    mr_text_add(out, part, len);
    mr_text_string(out, has_dot ? ")" : "");
    return good;
}

char *mr_convert_pattern(const char *pattern, int parts)
{
    static const char *const separators[PARTS_MAX] = {"", ".", ":"};
    const char *at = pattern + (pattern[0] == '^');
    struct mr_text text = {0};
    char *whole = MR_STRDUP(at);
    size_t len = strlen(whole);
    if (len > 0 && whole[len - 1] == '$') {
        whole[len - 1] = '\0';
    }
    bool good = true;
    at = whole;
    for (int i = 0; i < parts && good; i++) {
        const char *end = part_end(at);
        mr_text_string(&text, separators[i]);
        good = add_part(&text, at, (size_t)(end - at)) && (*end == '\0') == (i == parts - 1);
        at = end + (*end == '\\') + (*end != '\0');
    }
    free(whole);
    if (!good) {
        mr_text_done(&text);
        return NULL;
    }
    return text.data;
}

static void add_columns(struct mr_convert *convert, const struct mr_convert_line *line,
                        const char *option, const char *length, size_t length_len,
                        struct mr_convert_list *columns)
{
    struct mr_convert_list patterns = {0};
    mr_convert_split(line->value, ',', &patterns);
    for (uint32_t i = 0; i < patterns.count; i++) {
        char *text = mr_convert_pattern(patterns.items[i], PARTS_MAX);
        if (text == NULL) {
            mr_convert_note(
                convert, MR_NOTE_LOST, line->given,
                "pattern %u is none of three parts that POSIX's expressions have; name its "
                "columns in %s before the first start",
                i + 1, option);
            continue;
        }
        if (text[strcspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0') {
            mr_convert_note(
                convert, MR_NOTE_TO_DO, line->given,
                "Debezium does not tell upper from lower case, PostgreSQL and %s do: see "
                "that pattern %u is written as its columns are",
                option, i + 1);
        }
        struct mr_text rule = {0};
        mr_text_format(&rule, "%s%s%.*s", text, length_len > 0 ? "=" : "", (int)length_len, length);
        free(text);
        mr_convert_list_add(columns, rule.data);
    }
    mr_convert_list_done(&patterns);
}

/* The number in "column.mask.with.10.chars"; 0 digits: it is not one. */
static size_t length_digits(const char *name, const char *prefix)
{
    size_t digits = strspn(name + strlen(prefix), "0123456789");
    return digits <= LENGTH_DIGITS_MAX && strcmp(name + strlen(prefix) + digits, ".chars") == 0
               ? digits
               : 0;
}

void mr_convert_columns(struct mr_convert *convert)
{
    static const struct {
        const char *name; /* begins so, when there is a length or a salt in it */
        const char *option;
        bool has_length;
        bool has_salt;
    } kinds[] = {
        {"column.include.list", "columns.include", false, false},
        {"column.exclude.list", "columns.exclude", false, false},
        {"column.mask.with.", "columns.mask", true, false},
        {"column.truncate.to.", "columns.truncate", true, false},
        {"column.mask.hash.v2.SHA-256.with.salt.", "columns.hash", false, true},
    };
    for (size_t k = 0; k < MR_ARRAY_LEN(kinds); k++) {
        struct mr_convert_list columns = {0};
        const char *salt = NULL;
        size_t len = strlen(kinds[k].name);
        for (uint32_t i = 0; i < convert->lines.count; i++) {
            struct mr_convert_line *line = &convert->lines.items[i];
            bool begins = strncmp(line->name, kinds[k].name, len) == 0;
            size_t digits =
                begins && kinds[k].has_length ? length_digits(line->name, kinds[k].name) : 0;
            bool fits = kinds[k].has_length ? digits > 0
                        : kinds[k].has_salt
                            ? begins && (salt == NULL || strcmp(salt, line->name) == 0)
                            : begins && line->name[len] == '\0';
            if (!fits || line->done || mr_convert_is_expression(line->value)) {
                continue;
            }
            line->done = true;
            add_columns(convert, line, kinds[k].option, line->name + len, digits, &columns);
            if (kinds[k].has_salt) {
                salt = line->name;
                mr_convert_set(convert, "columns.hash_salt_env", "MILLRACE_HASH_SALT");
                mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                                "put the salt into the environment variable MILLRACE_HASH_SALT");
            }
        }
        if (columns.count > 0 && k == 0) {
            mr_convert_note(convert, MR_NOTE_LOST, kinds[k].name,
                            "tables that none of its patterns names keep all their columns; name "
                            "those to leave out in columns.exclude");
        }
        if (columns.count > 0) {
            mr_convert_set_list(convert, kinds[k].option, &columns);
        }
        mr_convert_list_done(&columns);
    }
}
