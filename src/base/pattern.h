/* Names that are meant: one, all, or those that a regular expression matches as a whole. Made once
 * with the configuration and read by any thread; not for the hot path.
 *
 * Expressions are Perl's, as PCRE2 has them (man 3 pcre2pattern), which are Java's but for a few. A
 * dot is any character, a line break included, as for PostgreSQL's operator ~, which also judges
 * patterns of tables. A name that is not UTF-8 matches none. */
#pragma once

#include "base/base.h"

struct mr_regex;

struct mr_pattern {
    const char *text;             /* of a name or an expression; NULL: any name */
    const struct mr_regex *regex; /* NULL: `text` is the name itself */
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

/* An expression that takes too many steps ends the process, and says which: a table that was left
 * out would be lost. */
bool mr_pattern_matches(const struct mr_pattern *pattern, mr_slice name);
bool mr_table_pattern_matches(const struct mr_table_pattern *pattern, mr_slice schema,
                              mr_slice table);

/* Whether one of them does. */
bool mr_table_patterns_match(const struct mr_table_pattern *patterns, uint32_t count,
                             mr_slice schema, mr_slice table);

/* A table as commands, POST /api/snapshot and signals name it: in two parts, each bare or quoted,
 * split at the first dot outside quotes; a name alone is of schema public. As options have them
 * (config/names.h), and Debezium's signals. The parts are made in place, without their quotes.
 * False: it is none. */
bool mr_table_name_split(char *text, const char **ret_schema, const char **ret_table);

enum mr_regex_result {
    MR_REGEX_NO,
    MR_REGEX_YES,
    MR_REGEX_TOO_LONG, /* it takes more steps than MATCH_STEPS_MAX in pattern.c, and nobody knows */
};

enum { MR_REGEX_GROUPS_MAX = 9 };

/* Compiles `text` to match whole names. NULL, with the reason: it is no expression, or has more
 * than 2,000 bytes. mr_regex_free. */
struct mr_regex *mr_regex_new(const char *text, char *reason, size_t size);
void mr_regex_free(struct mr_regex *regex); /* NULL is fine */

/* The groups that an expression has, at most; and the number of the one with this name, or -1. */
uint32_t mr_regex_group_count(const struct mr_regex *regex);
int mr_regex_group_named(const struct mr_regex *regex, mr_slice name);

/* Whether it matches all of `name`. `ret_groups`, if not NULL, gets MR_REGEX_GROUPS_MAX + 1 parts
 * of `name`, the whole one first; `data` NULL: that group took no part. Asks for memory. */
enum mr_regex_result mr_regex_match(const struct mr_regex *regex, mr_slice name,
                                    mr_slice *ret_groups);
