#include "base/rewrite.h"

/* The number of the group that stands after a dollar sign; `*at` moves to its last character. -1:
 * there is none. */
static int group_at(const struct mr_regex *regex, const char **at)
{
    if (**at == '{') {
        const char *name = *at + 1;
        size_t len = strcspn(name, "}");
        if (name[len] == '\0') {
            return -1;
        }
        *at = name + len;
        return mr_regex_group_named(regex, (mr_slice){.data = (const uint8_t *)name, .len = len});
    }
    bool good = **at >= '0' && **at <= '9' && (uint32_t)(**at - '0') <= mr_regex_group_count(regex);
    return good ? **at - '0' : -1;
}

bool mr_rewrite_init(struct mr_rewrite *rewrite, const char *expression, const char *replacement,
                     char *reason, size_t size)
{
    struct mr_regex *regex = mr_regex_new(expression, reason, size);
    if (regex == NULL) {
        return false;
    }
    for (const char *at = replacement; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
        } else if (*at == '$' && (at++, group_at(regex, &at) < 0)) {
            snprintf(
                reason, size,
                "\"%s\" has a $ without a group of the expression after it, which has $0 to $%u "
                "and ${name} of those with names; \\$ is the sign itself",
                replacement, mr_regex_group_count(regex));
            mr_regex_free(regex);
            return false;
        }
    }
    *rewrite = (struct mr_rewrite){.regex = regex, .replacement = replacement};
    return true;
}

void mr_rewrite_done(struct mr_rewrite *rewrite)
{
    mr_regex_free(rewrite->regex);
    *rewrite = (struct mr_rewrite){0};
}

bool mr_rewrite_apply(const struct mr_rewrite *rewrite, mr_slice name, struct mr_buffer *out)
{
    mr_slice groups[MR_REGEX_GROUPS_MAX + 1];
    if (name.len > MR_REWRITE_BYTES_MAX ||
        (name.len > 0 && memchr(name.data, '\0', name.len) != NULL)) {
        return false;
    }
    enum mr_regex_result result = mr_regex_match(rewrite->regex, name, groups);
    if (result == MR_REGEX_NO) {
        mr_buffer_slice(out, name);
    }
    for (const char *at = rewrite->replacement; result == MR_REGEX_YES && *at != '\0'; at++) {
        if (*at == '$') {
            at++;
            mr_buffer_slice(out, groups[group_at(rewrite->regex, &at)]);
            continue;
        }
        at += *at == '\\' && at[1] != '\0';
        mr_buffer_append(out, at, 1);
    }
    return result != MR_REGEX_TOO_LONG && !out->full;
}
