/* Lists, names in parts ("schema\.table\.column", each a name or an expression), and regular
 * expressions of Java's. */

#include "convert/convert_internal.h"

enum { TEXTS_MAX = 1000, PATTERN_MAX = 4096, PARTS_MAX = 3 };

#define ANY_CASE     "(?i)"
#define ANY_CASE_LEN 4

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

/* RegExSplitter of Debezium's Strings: a comma after a backslash is one, and belongs to its
 * expression. Case never counts there (Predicates.includes), so "(?i)" says nothing. */
struct mr_cv_list mr_cv_patterns(struct mr_convert *c, const char *text)
{
    struct mr_cv_list ret = mr_cv_split(c, text, ',');
    for (uint32_t i = 0; i < ret.count; i++) {
        char *item = mr_cv_keep(c, MR_STRDUP(ret.items[i]));
        char *to = item;
        for (const char *at = item; *at != '\0'; at++) {
            at += at[0] == '\\' && at[1] == ',';
            *to++ = *at;
        }
        *to = '\0';
        ret.items[i] = item + (strncmp(item, ANY_CASE, ANY_CASE_LEN) == 0 ? ANY_CASE_LEN : 0);
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

/* Its parts, at most PARTS_MAX; 0: it has more. */
static int pattern_split(struct mr_convert *c, const char *pattern,
                         const char *ret_parts[PARTS_MAX])
{
    const char *at = without_anchors(c, pattern);
    for (int i = 0; i < PARTS_MAX; i++) {
        const char *end = part_end(at);
        ret_parts[i] = mr_cv_part(c, at, (size_t)(end - at));
        if (*end == '\0') {
            return i + 1;
        }
        at = end + (*end == '\\') + 1;
    }
    return 0;
}

static const char *const part_separators[PARTS_MAX] = {"", ".", ":"};

static bool is_plain_part(const char *part)
{
    return part[strcspn(part, "\\*+?()[]{}|^.")] == '\0';
}

/* One part of a rule, in any case of letters unless it is to be that name. */
static bool add_rule_part(struct mr_text *out, const char *part, bool is_name)
{
    bool is_any = strcmp(part, ".*") == 0;
    mr_text_string(out, is_name || is_any ? "" : ANY_CASE);
    /* A dollar sign is one in a name only. */
    return patterns_add_part(out, part, strlen(part)) && (is_name || strchr(part, '$') == NULL);
}

const char *mr_cv_pattern(struct mr_convert *c, const char *pattern, int parts, bool hides)
{
    const char *items[PARTS_MAX];
    struct mr_text text = {0};
    bool good = pattern_split(c, pattern, items) == parts;
    for (int i = 0; i < parts && good; i++) {
        bool is_schema = i == 0 && parts > 1;
        mr_text_string(&text, part_separators[i]);
        good = add_rule_part(&text, items[i],
                             is_schema && !hides && is_plain_part(items[i]) &&
                                 !mr_cv_has_upper(items[i]));
    }
    const char *ret = text.data == NULL ? NULL : mr_cv_keep(c, text.data);
    return good ? ret : NULL;
}

bool mr_cv_fits(struct mr_convert *c, const char *pattern, const char *table)
{
    const char *parts[PARTS_MAX];
    char reason[128];
    struct mr_regex *regex =
        pattern_split(c, pattern, parts) == PARTS_MAX
            ? mr_regex_new(mr_cv_text(c, ANY_CASE "%s\\.%s", parts[0], parts[1]), reason,
                           sizeof(reason))
            : NULL;
    bool fits = regex != NULL && mr_regex_match(regex, mr_slice_of(table), NULL) == MR_REGEX_YES;
    mr_regex_free(regex);
    return fits;
}

static bool add_hiding_rule(struct mr_convert *c, const char *const parts[PARTS_MAX],
                            bool is_listed, struct mr_cv_list *ret)
{
    struct mr_text text = {0};
    bool good = true;
    for (int i = 0; i < PARTS_MAX && good; i++) {
        mr_text_string(&text, part_separators[i]);
        good = add_rule_part(&text, parts[i], is_listed && i < PARTS_MAX - 1);
    }
    const char *rule = text.data == NULL ? "" : mr_cv_keep(c, text.data);
    if (good && !mr_cv_holds(ret, rule)) {
        mr_cv_add(c, ret, rule);
    }
    return good && ret->count <= TEXTS_MAX;
}

/* A listed table has the name that the list has. */
static bool add_hiding(struct mr_convert *c, const char *const parts[PARTS_MAX],
                       struct mr_cv_list *ret)
{
    const char *table = mr_cv_text(c, "%s.%s", parts[0], parts[1]);
    bool is_listed = false;
    for (uint32_t i = 0; i < c->tables.count; i++) {
        const char *name = c->tables.items[i];
        if (strcasecmp(table, name) == 0) {
            const char *dot = strchr(name, '.');
            const char *listed[PARTS_MAX] = {mr_cv_part(c, name, (size_t)(dot - name)), dot + 1,
                                             parts[2]};
            is_listed = true;
            if (!add_hiding_rule(c, listed, true, ret)) {
                return false;
            }
        }
    }
    return is_listed || add_hiding_rule(c, parts, false, ret);
}

/* No sign of it can stand for a dot but its ".*"; in a set or a group one may. */
static bool is_cut_at_dots(const char *part)
{
    for (; *part != '\0'; part++) {
        if (strchr("([{\\", *part) != NULL || (*part == '.' && strchr("*+", part[1]) == NULL)) {
            return false;
        }
    }
    return true;
}

#define ANY_LEN 2 /* of ".*" */

/* Fewer parts than three: any of their ".*" may stand for the dots that are missing. All ways to
 * see it; false: there is one that can't be said, or none at all. */
static bool cut_parts(struct mr_convert *c, const char *const parts[PARTS_MAX], int count,
                      struct mr_cv_list *ret)
{
    if (count == PARTS_MAX) {
        return add_hiding(c, parts, ret);
    }
    bool is_cut = false;
    for (int i = 0; i < count; i++) {
        if (!is_cut_at_dots(parts[i])) {
            return false;
        }
        for (const char *at = parts[i]; (at = strchr(at, '.')) != NULL; at += ANY_LEN) {
            const char *more[PARTS_MAX] = {NULL};
            for (int k = 0; k < count; k++) {
                more[k + (k > i)] = parts[k];
            }
            more[i] = mr_cv_text(c, "%.*s.*", (int)(at - parts[i]), parts[i]);
            more[i + 1] = mr_cv_text(c, ".*%s", at + ANY_LEN);
            if (!cut_parts(c, more, count + 1, ret)) {
                return false;
            }
            is_cut = true;
        }
    }
    return is_cut;
}

/* To Java the second dot of ".*.name" is any character: "x_name" fits, too. */
static const char *without_any_dots(struct mr_convert *c, const char *pattern)
{
    char *ret = mr_cv_keep(c, MR_STRDUP(pattern));
    char *to = ret;
    for (const char *at = pattern; *at != '\0'; at++) {
        bool is_any = *at == '.' && (at[1] == '\0' || strchr("*+?{", at[1]) == NULL);
        if (!is_any || to - ret < ANY_LEN || strncmp(to - ANY_LEN, ".*", ANY_LEN) != 0) {
            *to++ = *at;
        }
        if (*at == '\\' && at[1] != '\0') {
            *to++ = *++at;
        }
    }
    *to = '\0';
    return ret;
}

bool mr_cv_hiding(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret)
{
    const char *parts[PARTS_MAX];
    struct mr_cv_list before = *ret;
    int count =
        strlen(pattern) <= PATTERN_MAX ? pattern_split(c, without_any_dots(c, pattern), parts) : 0;
    bool good = count > 0 && cut_parts(c, parts, count, ret);
    *ret = good ? *ret : before;
    return good;
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
                   const char *option)
{
    struct mr_rewrite rewrite;
    char reason[256];
    bool good = !mr_cv_is_expression(java) && !mr_cv_is_expression(replacement) &&
                mr_cv_same_regex(java) &&
                mr_rewrite_init(&rewrite, java, replacement, reason, sizeof(reason));
    if (good) {
        mr_rewrite_done(&rewrite);
        struct mr_cv_list pair = {0};
        mr_cv_add(c, &pair, java);
        mr_cv_add(c, &pair, replacement);
        mr_cv_set_list(c, option, &pair);
    }
    return good;
}
