/* Lists, names in parts ("schema\.table\.column", each a name or an expression), and regular
 * expressions of Java's. */
#include <stdlib.h>
#include <string.h>

#include "base/rewrite.h"
#include "convert/convert_internal.h"

enum { TEXTS_MAX = 1000, DEPTH_MAX = 20, PARTS_MAX = 3 };

struct mr_cv_list mr_cv_split(struct mr_convert *c, const char *text, char separator)
{
    static const char space[] = " \t\r\n";
    struct mr_cv_list ret = {0};
    for (const char *at = text; at != NULL;) {
        const char *from = at + strspn(at, space);
        for (; *at != '\0' && *at != separator; at++) {
            at += *at == '\\' && at[1] != '\0';
        }
        const char *to = at;
        while (to > from && strchr(space, to[-1]) != NULL) {
            to--;
        }
        if (to > from) {
            mr_cv_add(c, &ret, mr_cv_part(c, from, (size_t)(to - from)));
        }
        at = *at == '\0' ? NULL : at + 1;
    }
    return ret;
}

static void add_all(struct mr_convert *c, struct mr_cv_list *list, const struct mr_cv_list *more)
{
    for (uint32_t i = 0; i < more->count; i++) {
        mr_cv_add(c, list, more->items[i]);
    }
}

/* Without "^" and "$" around it. */
static const char *without_anchors(struct mr_convert *c, const char *pattern)
{
    const char *from = pattern + (pattern[0] == '^');
    size_t len = strlen(from);
    bool ends = len > 0 && from[len - 1] == '$' && (len == 1 || from[len - 2] != '\\');
    return mr_cv_part(c, from, len - ends);
}

/* Each text of `left` with each of `right` after it, in the place of `left`. */
static bool join(struct mr_convert *c, struct mr_cv_list *left, const struct mr_cv_list *right)
{
    struct mr_cv_list joined = {0};
    if ((size_t)left->count * right->count > TEXTS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < left->count; i++) {
        for (uint32_t k = 0; k < right->count; k++) {
            mr_cv_add(c, &joined, mr_cv_text(c, "%s%s", left->items[i], right->items[k]));
        }
    }
    *left = joined;
    return true;
}

static bool expand_choice(struct mr_convert *c, const char **at, unsigned depth,
                          struct mr_cv_list *ret);

/* [abc], without ranges and without those that negate. */
static bool expand_class(struct mr_convert *c, const char **at, struct mr_cv_list *ret)
{
    const char *from = *at + 1;
    for (; *from != ']'; from++) {
        if (*from == '\0' || strchr("-^\\[&", *from) != NULL) {
            return false;
        }
        mr_cv_add(c, ret, mr_cv_part(c, from, 1));
    }
    *at = from + 1;
    return ret->count > 0;
}

static bool expand_group(struct mr_convert *c, const char **at, unsigned depth,
                         struct mr_cv_list *ret)
{
    (*at)++;
    if (strncmp(*at, "?:", 2) == 0) {
        *at += 2;
    }
    if (depth == DEPTH_MAX || !expand_choice(c, at, depth + 1, ret) || **at != ')') {
        return false;
    }
    (*at)++;
    return true;
}

/* One character, class or group. */
static bool expand_atom(struct mr_convert *c, const char **at, unsigned depth,
                        struct mr_cv_list *ret)
{
    const char *from = *at;
    if (*from == '(') {
        return expand_group(c, at, depth, ret);
    }
    if (*from == '[') {
        return expand_class(c, at, ret);
    }
    if (*from == '\\') {
        bool is_letter = (from[1] >= 'a' && from[1] <= 'z') || (from[1] >= 'A' && from[1] <= 'Z') ||
                         (from[1] >= '0' && from[1] <= '9');
        if (from[1] == '\0' || is_letter) {
            return false;
        }
        from++;
    } else if (strchr("*+?{", *from) != NULL) {
        return false;
    }
    mr_cv_add(c, ret, mr_cv_part(c, from, 1));
    *at = from + 1;
    return true;
}

/* Atoms one after the other. What repeats is not simple. */
static bool expand_sequence(struct mr_convert *c, const char **at, unsigned depth,
                            struct mr_cv_list *ret)
{
    mr_cv_add(c, ret, "");
    while (**at != '\0' && **at != '|' && **at != ')') {
        struct mr_cv_list atom = {0};
        bool good = expand_atom(c, at, depth, &atom);
        if (good && **at == '?') {
            mr_cv_add(c, &atom, "");
            (*at)++;
        }
        if (!good || (**at != '\0' && strchr("*+?{", **at) != NULL) || !join(c, ret, &atom)) {
            return false;
        }
    }
    return true;
}

static bool expand_choice(struct mr_convert *c, const char **at, unsigned depth,
                          struct mr_cv_list *ret)
{
    for (;;) {
        struct mr_cv_list texts = {0};
        bool good = expand_sequence(c, at, depth, &texts) && ret->count + texts.count <= TEXTS_MAX;
        add_all(c, ret, &texts);
        if (!good || **at != '|') {
            return good;
        }
        (*at)++;
    }
}

bool mr_cv_expand(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret)
{
    const char *at = without_anchors(c, pattern);
    struct mr_cv_list texts = {0};
    bool good = expand_choice(c, &at, 0, &texts) && *at == '\0';
    if (good) {
        add_all(c, ret, &texts);
    }
    return good;
}

/* Where a part of an expression ends: at a dot that does not repeat and stands in no bracket,
 * escaped or not. */
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

/* A part as our options write it. False: it has what POSIX's expressions have not, or what only
 * reads as one. */
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
        /* Lazy and possessive repeats, (?…), classes by letter, quotes: none of them is POSIX's, or
         * ours. */
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

const char *mr_cv_pattern(struct mr_convert *c, const char *pattern, int parts)
{
    static const char *const separators[PARTS_MAX] = {"", ".", ":"};
    struct mr_text text = {0};
    const char *at = without_anchors(c, pattern);
    bool good = true;
    for (int i = 0; i < parts && good; i++) {
        const char *end = part_end(at);
        mr_text_string(&text, separators[i]);
        good = add_part(&text, at, (size_t)(end - at)) && (*end == '\0') == (i == parts - 1);
        at = end + (*end == '\\') + (*end != '\0');
    }
    const char *ret = mr_cv_keep(c, text.data);
    return good ? ret : NULL;
}

bool mr_cv_has_upper(const char *text)
{
    return text[strcspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0';
}

/* A set, from its bracket on; `*at` comes to stand on the last one. False: it is an intersection or
 * a set in a set. */
static bool is_plain_set(const char **at)
{
    const char *c = *at + 1;
    c += *c == '^';
    for (bool is_first = true; *c != ']' || is_first; c++, is_first = false) {
        if (*c == '\0' || *c == '[' || strncmp(c, "&&", 2) == 0) {
            return false;
        }
        c += *c == '\\' && c[1] != '\0';
    }
    *at = c;
    return true;
}

bool mr_cv_same_regex(const char *java)
{
    char reason[128];
    struct mr_regex *regex = mr_regex_new(java, reason, sizeof(reason));
    bool good = regex != NULL;
    mr_regex_free(regex);
    for (const char *at = java; good && *at != '\0'; at++) {
        if (*at == '\\') {
            at++;
            good = strchr("pPNuxh", *at) == NULL;
        } else if (*at == '[') {
            good = is_plain_set(&at);
        } else if (strncmp(at, "(?", 2) == 0) {
            good = at[2] != '\0' && strchr(":=!<>i", at[2]) != NULL;
        }
    }
    return good;
}

bool mr_cv_rewrite(struct mr_convert *c, const char *java, const char *replacement,
                   const char *regex_option, const char *option)
{
    struct mr_rewrite rewrite;
    char reason[256];
    bool good = mr_cv_same_regex(java) &&
                mr_rewrite_init(&rewrite, java, replacement, reason, sizeof(reason));
    if (good) {
        mr_rewrite_done(&rewrite);
        mr_cv_set(c, regex_option, java);
        mr_cv_set(c, option, replacement);
    }
    return good;
}
