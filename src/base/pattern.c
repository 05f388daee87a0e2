#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/pattern.h"

#include <pcre2.h>

/* What an expression may take. It may come from people who may write no more than a row
 * (copy/signals.h), so nothing is left to the library's defaults, which allow seconds and 20 MB. */
enum {
    TEXT_BYTES_MAX = 2000,
    COMPILED_BYTES_MAX = 256 * 1024,
    NESTED_MAX = 32,
    MATCH_STEPS_MAX = 100000, /* some milliseconds */
    MATCH_KIB_MAX = 1024,
};

struct mr_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

bool mr_pattern_matches(const struct mr_pattern *pattern, mr_slice name)
{
    if (pattern->text == NULL) {
        return true;
    }
    if (pattern->regex == NULL) {
        return mr_slice_equal(mr_slice_of(pattern->text), name);
    }
    enum mr_regex_result result = mr_regex_match(pattern->regex, name, NULL);
    if (result == MR_REGEX_TOO_LONG) {
        mr_give_up(
            "the configuration's expression \"%.200s\" takes too many steps to compare with a "
            "name; write it without a repeat in a repeat",
            pattern->text);
    }
    return result == MR_REGEX_YES;
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
    return MR_ANY(pattern, patterns, count, mr_table_pattern_matches(pattern, schema, table));
}

static pcre2_code *compile(const char *text, char *reason, size_t size)
{
    int fault;
    size_t at, bytes = 0;
    pcre2_compile_context *limits = pcre2_compile_context_create(NULL);
    MR_ASSERT(limits != NULL);
    pcre2_set_max_pattern_length(limits, TEXT_BYTES_MAX);
    pcre2_set_parens_nest_limit(limits, NESTED_MAX);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                     PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL | PCRE2_UTF |
                                         PCRE2_NEVER_BACKSLASH_C,
                                     &fault, &at, limits);
    pcre2_compile_context_free(limits);
    if (code == NULL) {
        PCRE2_UCHAR sentence[120];
        pcre2_get_error_message(fault, sentence, sizeof(sentence));
        snprintf(reason, size, "%s, at character %zu", (const char *)sentence, at);
        return NULL;
    }
    pcre2_pattern_info(code, PCRE2_INFO_SIZE, &bytes);
    if (bytes > COMPILED_BYTES_MAX) {
        snprintf(reason, size, "its repeats multiply too far");
        pcre2_code_free(code);
        return NULL;
    }
    return code;
}

struct mr_regex *mr_regex_new(const char *text, char *reason, size_t size)
{
    pcre2_code *code = compile(text, reason, size);
    if (code == NULL) {
        return NULL;
    }
    struct mr_regex *regex = MR_NEW(struct mr_regex);
    *regex = (struct mr_regex){.code = code, .limits = pcre2_match_context_create(NULL)};
    MR_ASSERT(regex->limits != NULL);
    pcre2_set_match_limit(regex->limits, MATCH_STEPS_MAX);
    pcre2_set_depth_limit(regex->limits, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(regex->limits, MATCH_KIB_MAX);
    return regex;
}

void mr_regex_free(struct mr_regex *regex)
{
    if (regex == NULL) {
        return;
    }
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->limits);
    free(regex);
}

uint32_t mr_regex_group_count(const struct mr_regex *regex)
{
    uint32_t count = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &count);
    return count < MR_REGEX_GROUPS_MAX ? count : MR_REGEX_GROUPS_MAX;
}

int mr_regex_group_named(const struct mr_regex *regex, mr_slice name)
{
    char text[64];
    if (name.len >= sizeof(text)) {
        return -1;
    }
    snprintf(text, sizeof(text), "%.*s", (int)name.len, (const char *)name.data);
    int number = pcre2_substring_number_from_name(regex->code, (PCRE2_SPTR)text);
    return number > 0 && number <= MR_REGEX_GROUPS_MAX ? number : -1;
}

enum mr_regex_result mr_regex_match(const struct mr_regex *regex, mr_slice name,
                                    mr_slice *ret_groups)
{
    pcre2_match_data *found = pcre2_match_data_create(MR_REGEX_GROUPS_MAX + 1, NULL);
    MR_ASSERT(found != NULL);
    const uint8_t *data = name.data == NULL ? (const uint8_t *)"" : name.data;
    int count = pcre2_match(regex->code, data, name.len, 0, 0, found, regex->limits);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(found);
    for (uint32_t i = 0; ret_groups != NULL && count >= 0 && i <= MR_REGEX_GROUPS_MAX; i++) {
        bool is_there = (count == 0 || i < (uint32_t)count) && ends[2 * i] != PCRE2_UNSET;
        ret_groups[i] =
            is_there ? (mr_slice){.data = data + ends[2 * i], .len = ends[2 * i + 1] - ends[2 * i]}
                     : (mr_slice){0};
    }
    pcre2_match_data_free(found);
    bool is_text = count > PCRE2_ERROR_UTF8_ERR1 || count < PCRE2_ERROR_UTF8_ERR21;
    /* 0: it has more groups than were asked for. What else is below "no match" is a limit. */
    return count >= 0                                 ? MR_REGEX_YES
           : count == PCRE2_ERROR_NOMATCH || !is_text ? MR_REGEX_NO
                                                      : MR_REGEX_TOO_LONG;
}

bool mr_table_name_split(char *text, const char **ret_schema, const char **ret_table)
{
    char *to = text;
    char *table = NULL;
    bool quoted = false;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' && quoted && at[1] == '"') {
            *to++ = *at++;
        } else if (*at == '"') {
            quoted = !quoted;
        } else if (*at == '.' && !quoted && table == NULL) {
            *to++ = '\0';
            table = to;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    *ret_schema = table == NULL ? "public" : text;
    *ret_table = table == NULL ? text : table;
    return !quoted && text[0] != '\0' && **ret_table != '\0';
}
