#include "base/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 63 bytes in a stock server; what is longer matches nothing. */
enum { NAME_MAX_BYTES = 255 };

bool mr_pattern_matches(const struct mr_pattern *pattern, mr_slice name)
{
    if (pattern->text == NULL) {
        return true;
    }
    if (pattern->regex == NULL) {
        return mr_slice_equal(mr_slice_of(pattern->text), name);
    }
    char copy[NAME_MAX_BYTES + 1];
    if (name.len > NAME_MAX_BYTES) {
        return false;
    }
    memcpy(copy, name.data, name.len);
    copy[name.len] = '\0';
    return regexec(pattern->regex, copy, 0, NULL, 0) == 0;
}

bool mr_table_pattern_matches(const struct mr_table_pattern *pattern, mr_slice schema,
                              mr_slice table)
{
    return mr_pattern_matches(&pattern->schema, schema) &&
           mr_pattern_matches(&pattern->table, table);
}

bool mr_table_patterns_match(const struct mr_table_pattern *patterns, uint32_t count,
                             mr_slice schema, mr_slice table)
{
    for (uint32_t i = 0; i < count; i++) {
        if (mr_table_pattern_matches(&patterns[i], schema, table)) {
            return true;
        }
    }
    return false;
}

regex_t *mr_regex_new(const char *text, char *reason, size_t size)
{
    size_t len = strlen(text) + sizeof("^()$");
    char *whole = MR_ALLOC(len);
    snprintf(whole, len, "^(%s)$", text);
    regex_t *regex = MR_NEW(regex_t);
    int code = regcomp(regex, whole, REG_EXTENDED);
    free(whole);
    if (code != 0) {
        regerror(code, regex, reason, size);
        free(regex);
        return NULL;
    }
    return regex;
}

void mr_regex_free(regex_t *regex)
{
    regfree(regex);
    free(regex);
}
