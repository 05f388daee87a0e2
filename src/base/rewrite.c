#include "base/rewrite.h"

#include <stdio.h>

#include "base/pattern.h"

/* The expression's own first group is the one that anchors it (mr_regex_new): it is $0, and $1 is the next. */
enum { GROUPS_MAX = 11 };

/* The number of the group behind a dollar sign, or what is wrong with it: -1. */
static int group_of(char digit, size_t groups)
{
    bool good = digit >= '0' && digit <= '9' && (size_t)(digit - '0') < groups;
    return good ? digit - '0' : -1;
}

bool mr_rewrite_init(struct mr_rewrite *rewrite, const char *expression, const char *replacement,
                     char *reason, size_t size)
{
    regex_t *regex = mr_regex_new(expression, reason, size);
    if (regex == NULL) {
        return false;
    }
    for (const char *at = replacement; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
        } else if (*at == '$' && group_of(*++at, regex->re_nsub) < 0) {
            snprintf(reason, size,
                     "\"%s\" has a $ without the number of a group behind it; the expression has "
                     "$0 to $%zu, and \\$ is the sign itself",
                     replacement, regex->re_nsub < 10 ? regex->re_nsub - 1 : 9);
            mr_regex_free(regex);
            return false;
        }
    }
    *rewrite = (struct mr_rewrite){.regex = regex, .replacement = replacement};
    return true;
}

void mr_rewrite_done(struct mr_rewrite *rewrite)
{
    if (rewrite->regex != NULL) {
        mr_regex_free(rewrite->regex);
    }
    *rewrite = (struct mr_rewrite){0};
}

bool mr_rewrite_matches(const struct mr_rewrite *rewrite, const char *name)
{
    return regexec(rewrite->regex, name, 0, NULL, 0) == 0;
}

bool mr_rewrite_apply(const struct mr_rewrite *rewrite, mr_slice name, struct mr_buffer *out)
{
    char text[MR_REWRITE_BYTES_MAX + 1];
    if (name.len > MR_REWRITE_BYTES_MAX ||
        (name.len > 0 && memchr(name.data, '\0', name.len) != NULL)) {
        return false;
    }
    if (name.len > 0) {
        memcpy(text, name.data, name.len);
    }
    text[name.len] = '\0';
    regmatch_t groups[GROUPS_MAX];
    if (regexec(rewrite->regex, text, GROUPS_MAX, groups, 0) != 0) {
        mr_buffer_slice(out, name);
        return !out->full;
    }
    for (const char *at = rewrite->replacement; *at != '\0'; at++) {
        if (*at == '$') {
            const regmatch_t *group = &groups[group_of(*++at, rewrite->regex->re_nsub) + 1];
            if (group->rm_so >= 0) {
                mr_buffer_append(out, text + group->rm_so, (size_t)(group->rm_eo - group->rm_so));
            }
            continue;
        }
        at += *at == '\\' && at[1] != '\0';
        mr_buffer_append(out, at, 1);
    }
    return !out->full;
}
