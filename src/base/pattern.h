/* Names that are meant: one, all, or those that a regular expression matches as a whole (POSIX, extended). Made once with the
 * configuration and read by any thread; not for the hot path. */
#ifndef MR_BASE_PATTERN_H
#define MR_BASE_PATTERN_H

#include <regex.h>

#include "base/base.h"

struct mr_pattern {
    const char *text;     /* of a name or an expression; NULL: any name */
    const regex_t *regex; /* NULL: `text` is the name itself */
};

/* Whether it can fit one name only. */
static inline bool mr_pattern_is_name(const struct mr_pattern *pattern)
{
    return pattern->text != NULL && pattern->regex == NULL;
}

struct mr_table_pattern {
    struct mr_pattern schema;
    struct mr_pattern table;
};

bool mr_pattern_matches(const struct mr_pattern *pattern, mr_slice name);
bool mr_table_pattern_matches(const struct mr_table_pattern *pattern, mr_slice schema,
                              mr_slice table);

/* Whether one of them does. */
bool mr_table_patterns_match(const struct mr_table_pattern *patterns, uint32_t count,
                             mr_slice schema, mr_slice table);

/* Compiles `text` to match whole names. NULL, and the reason in `reason`, if it is not an expression, or one that would take
 * more memory, stack or time than any name is worth: parentheses more than 32 deep, more than 2,000 characters once each repeat
 * is written out or more than 500 by repeats, repeats of what can be nothing, references back. Else the caller's: mr_regex_free. */
regex_t *mr_regex_new(const char *text, char *reason, size_t size);
void mr_regex_free(regex_t *regex);

#endif
