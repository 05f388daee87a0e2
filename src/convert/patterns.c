/* Lists, names in parts ("schema\.table\.column", each a name or an expression), and regular
 * expressions of Java's. */

#include "convert/convert_internal.h"

enum { TEXTS_MAX = 1000, PATTERN_MAX = 4096, PARTS_MAX = 3 };

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

/* Without "^" and "$" around it. */
static const char *without_anchors(struct mr_convert *c, const char *pattern)
{
    const char *from = pattern + (pattern[0] == '^');
    size_t len = strlen(from);
    bool ends = len > 0 && from[len - 1] == '$' && (len == 1 || from[len - 2] != '\\');
    return mr_cv_part(c, from, len - ends);
}

/* An expression that is a name: a dot counts as a dot, escaped or not. NULL: it is more. */
static const char *patterns_plain_name(struct mr_convert *c, const char *pattern)
{
    char *name = mr_cv_keep(c, MR_STRDUP(pattern));
    char *to = name;
    for (const char *at = pattern; *at != '\0'; at++) {
        at += at[0] == '\\' && at[1] != '\0' && strchr(".-$\"", at[1]) != NULL;
        if (strchr("\\*+?()[]{}|^", *at) != NULL) {
            return NULL;
        }
        *to++ = *at;
    }
    *to = '\0';
    return name;
}

/* Where an alternative ends: at a bar, or a bracket that it does not open. */
static const char *alternative_end(const char *at)
{
    for (int depth = 0; *at != '\0' && (depth > 0 || strchr("|)", *at) == NULL); at++) {
        depth += (*at == '(') - (*at == ')');
        at += *at == '\\' && at[1] != '\0';
    }
    return at;
}

/* Takes one choice apart, and what comes of it again. */
static bool patterns_expand(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret)
{
    const char *end = alternative_end(pattern);
    if (*end == '|') {
        return patterns_expand(c, mr_cv_part(c, pattern, (size_t)(end - pattern)), ret) &&
               patterns_expand(c, end + 1, ret);
    }
    const char *group = strchr(pattern, '(');
    if (group == NULL || (group > pattern && group[-1] == '\\')) {
        const char *name = patterns_plain_name(c, pattern);
        mr_cv_add(c, ret, name);
        return name != NULL && ret->count <= TEXTS_MAX;
    }
    const char *first = group + (strncmp(group, "(?:", 3) == 0 ? 3 : 1);
    const char *close = first;
    while (*(close = alternative_end(close)) == '|') {
        close++;
    }
    bool good = *close == ')';
    for (const char *from = first; good && from <= close; from = end + 1) {
        end = alternative_end(from);
        good = patterns_expand(c,
                               mr_cv_text(c, "%.*s%.*s%s", (int)(group - pattern), pattern,
                                          (int)(end - from), from, close + 1),
                               ret);
    }
    return good;
}

bool mr_cv_expand(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret)
{
    struct mr_cv_list before = *ret;
    bool good =
        strlen(pattern) <= PATTERN_MAX && patterns_expand(c, without_anchors(c, pattern), ret);
    *ret = good ? *ret : before;
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
static bool patterns_add_part(struct mr_text *out, const char *part, size_t len)
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
        good =
            patterns_add_part(&text, at, (size_t)(end - at)) && (*end == '\0') == (i == parts - 1);
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
