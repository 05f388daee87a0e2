/* Lists and the simple ones among regular expressions. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

enum { TEXTS_MAX = 1000, DEPTH_MAX = 20 };

void mr_convert_split(const char *text, char separator, struct mr_convert_list *ret)
{
    const char *from = text;
    for (const char *at = text;; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
            continue;
        }
        if (*at != separator && *at != '\0') {
            continue;
        }
        const char *to = at;
        while (from < to && strchr(" \t\r\n", *from) != NULL) {
            from++;
        }
        while (to > from && strchr(" \t\r\n", to[-1]) != NULL) {
            to--;
        }
        if (to > from) {
            mr_convert_list_add(ret, MR_STRNDUP(from, (size_t)(to - from)));
        }
        if (*at == '\0') {
            return;
        }
        from = at + 1;
    }
}

/* Each text of `left` with each of `right` behind it, in the place of `left`. */
static bool join(struct mr_convert_list *left, const struct mr_convert_list *right)
{
    struct mr_convert_list joined = {0};
    if ((size_t)left->count * right->count > TEXTS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < left->count; i++) {
        for (uint32_t k = 0; k < right->count; k++) {
            struct mr_text text = {0};
            mr_text_string(&text, left->items[i]);
            mr_text_string(&text, right->items[k]);
            mr_convert_list_add(&joined, text.data == NULL ? MR_STRDUP("") : text.data);
        }
    }
    mr_convert_list_done(left);
    *left = joined;
    return true;
}

static bool expand_choice(const char **at, unsigned depth, struct mr_convert_list *ret);

/* [abc], without ranges and without those that negate. */
static bool expand_class(const char **at, struct mr_convert_list *ret)
{
    const char *c = *at + 1;
    for (; *c != ']'; c++) {
        if (*c == '\0' || strchr("-^\\[&", *c) != NULL) {
            return false;
        }
        mr_convert_list_add(ret, MR_STRNDUP(c, 1));
    }
    *at = c + 1;
    return ret->count > 0;
}

static bool expand_group(const char **at, unsigned depth, struct mr_convert_list *ret)
{
    (*at)++;
    if (strncmp(*at, "?:", 2) == 0) {
        *at += 2;
    }
    if (depth == DEPTH_MAX || !expand_choice(at, depth + 1, ret) || **at != ')') {
        return false;
    }
    (*at)++;
    return true;
}

/* One character, class or group. */
static bool expand_atom(const char **at, unsigned depth, struct mr_convert_list *ret)
{
    const char *c = *at;
    if (*c == '(') {
        return expand_group(at, depth, ret);
    }
    if (*c == '[') {
        return expand_class(at, ret);
    }
    if (*c == '\\') {
        bool is_letter = (c[1] >= 'a' && c[1] <= 'z') || (c[1] >= 'A' && c[1] <= 'Z') ||
                         (c[1] >= '0' && c[1] <= '9');
        if (c[1] == '\0' || is_letter) {
            return false;
        }
        c++;
    } else if (strchr("*+?{", *c) != NULL) {
        return false;
    }
    mr_convert_list_add(ret, MR_STRNDUP(c, 1));
    *at = c + 1;
    return true;
}

/* Atoms one after the other. What repeats is not simple. */
static bool expand_sequence(const char **at, unsigned depth, struct mr_convert_list *ret)
{
    mr_convert_list_add(ret, MR_STRDUP(""));
    while (**at != '\0' && **at != '|' && **at != ')') {
        struct mr_convert_list atom = {0};
        bool good = expand_atom(at, depth, &atom) && (**at == '\0' || strchr("*+{", **at) == NULL);
        if (good && **at == '?') {
            mr_convert_list_add(&atom, MR_STRDUP(""));
            (*at)++;
            good = **at == '\0' || strchr("*+?{", **at) == NULL;
        }
        good = good && join(ret, &atom);
        mr_convert_list_done(&atom);
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool expand_choice(const char **at, unsigned depth, struct mr_convert_list *ret)
{
    for (;;) {
        struct mr_convert_list texts = {0};
        bool good = expand_sequence(at, depth, &texts) && ret->count + texts.count <= TEXTS_MAX;
        for (uint32_t i = 0; i < texts.count; i++) {
            mr_convert_list_add(ret, texts.items[i]);
        }
        free(texts.items);
        if (!good || **at != '|') {
            return good;
        }
        (*at)++;
    }
}

bool mr_convert_expand(const char *pattern, struct mr_convert_list *ret)
{
    char *whole = MR_STRDUP(pattern[0] == '^' ? pattern + 1 : pattern);
    size_t len = strlen(whole);
    if (len > 0 && whole[len - 1] == '$' && (len == 1 || whole[len - 2] != '\\')) {
        whole[len - 1] = '\0';
    }
    const char *at = whole;
    struct mr_convert_list texts = {0};
    bool good = expand_choice(&at, 0, &texts) && *at == '\0';
    for (uint32_t i = 0; good && i < texts.count; i++) {
        mr_convert_list_add(ret, MR_STRDUP(texts.items[i]));
    }
    mr_convert_list_done(&texts);
    free(whole);
    return good;
}
