#define PCRE2_CODE_UNIT_WIDTH 8
#include "terminal/runbook.h"

#include <ctype.h>
#include <pcre2.h>

char *mr_plain(char *markdown)
{
    static const char marks[] = "^(?:```|<!--).*\\n|`([^`]+)`|\\[([^]\\[]+)\\]\\([^)]+\\)|\\*\\*";
    size_t size = strlen(markdown) + 1;
    char *plain = MR_ALLOC(size);
    int error;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)marks, PCRE2_ZERO_TERMINATED, PCRE2_MULTILINE,
                                     &error, &(size_t){0}, NULL);
    int found = pcre2_substitute(code, (PCRE2_SPTR)markdown, size - 1, 0,
                                 PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_UNSET_EMPTY, NULL, NULL,
                                 (PCRE2_SPTR) "$1$2", 4, (PCRE2_UCHAR *)plain, &size);
    MR_ASSERT(found >= 0);
    pcre2_code_free(code);
    free(markdown);
    return plain;
}

char *mr_runbook_section(const char *name)
{
    char heading[80];
    snprintf(heading, sizeof(heading), "\n### %s\n", name);
    const char *begin = strcasestr((const char *)mr_runbook_md().data, heading);
    if (begin == NULL) {
        return NULL;
    }
    begin += strlen(heading) + 1;
    const char *end = strstr(begin, "\n##");
    return mr_plain(MR_STRNDUP(begin, end == NULL ? strlen(begin) : (size_t)(end - begin)));
}

char *mr_runbook_item(const char *section, const char *word)
{
    char begin[64] = "";
    if (word != NULL) {
        snprintf(begin, sizeof(begin), "\n- %s: ", word);
    }
    MR_FREED char *text = mr_runbook_section(section);
    char *at = text == NULL ? NULL : strstr(text, begin);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(begin);
    const char *next = strstr(at, "\n- ");
    const char *end = strstr(at, "\n\n");
    end = end == NULL ? at + strlen(at) : end;
    return MR_STRNDUP(at, (size_t)((next != NULL && next < end ? next : end) - at));
}

void mr_runbook_print_names(FILE *to)
{
    const char *at = (const char *)mr_runbook_md().data;
    while ((at = strstr(at, "\n### ")) != NULL) {
        at += strlen("\n### ");
        fprintf(to, "  %.*s\n", (int)strcspn(at, "\n"), at);
    }
}

/* Walks the lines "- seen as `…`": `*at` is behind the last one. False: there is no more. */
static bool next_seen(const char **at, mr_slice *ret_heading, mr_slice *ret_part)
{
    static const char mark[] = "- seen as `";
    for (const char *line = *at; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, "### ", 4) == 0) {
            *ret_heading = (mr_slice){(const uint8_t *)line + 4, strcspn(line + 4, "\n")};
        }
        if (strncmp(line, mark, strlen(mark)) == 0) {
            const char *part = line + strlen(mark);
            *ret_part = (mr_slice){(const uint8_t *)part, strcspn(part, "`")};
            *at = line + strcspn(line, "\n") + 1;
            return true;
        }
    }
    return false;
}

void mr_runbook_see(mr_slice said, char ret_see[MR_LOG_SEE_MAX])
{
    const char *at = (const char *)mr_runbook_md().data;
    mr_slice heading = {0};
    mr_slice part;
    size_t longest = 0;
    ret_see[0] = '\0';
    while (next_seen(&at, &heading, &part)) {
        if (part.len > longest && memmem(said.data, said.len, part.data, part.len) != NULL) {
            longest = part.len;
            snprintf(ret_see, MR_LOG_SEE_MAX, "millrace help %.*s", (int)heading.len,
                     (const char *)heading.data);
        }
    }
}

/* Whether it is there as whole words. */
static bool has_words(mr_slice part, mr_slice words)
{
    const uint8_t *end = part.data + part.len;
    for (const uint8_t *at = part.data; at < end; at++) {
        at = memmem(at, (size_t)(end - at), words.data, words.len);
        if (at == NULL) {
            return false;
        }
        const uint8_t *after = at + words.len;
        if ((at == part.data || !isalnum(at[-1])) && (after == end || !isalnum(*after))) {
            return true;
        }
    }
    return false;
}

char *mr_runbook_seen_as(const char *text)
{
    enum { PART_MIN = 5 };
    char see[MR_LOG_SEE_MAX];
    const char *at = (const char *)mr_runbook_md().data;
    mr_slice said = mr_slice_of(text);
    mr_slice heading = {0};
    mr_slice part;
    mr_runbook_see(said, see);
    while (see[0] == '\0' && said.len >= PART_MIN && next_seen(&at, &heading, &part)) {
        if (has_words(part, said)) {
            snprintf(see, sizeof(see), "millrace help %.*s", (int)heading.len,
                     (const char *)heading.data);
        }
    }
    return see[0] == '\0' ? NULL : mr_runbook_section(strrchr(see, ' ') + 1);
}

void mr_runbook_print_see(FILE *to, const char *lead, const char *text, mr_status status)
{
    char said[MR_ERROR_TEXT_MAX + 32];
    char see[MR_LOG_SEE_MAX];
    int len = snprintf(said, sizeof(said), "exit_code=%d %.*s", mr_status_exit_code(status),
                       MR_ERROR_TEXT_MAX, text);
    mr_runbook_see((mr_slice){(const uint8_t *)said, (size_t)len}, see);
    fprintf(to, "%s%s\n", lead, see);
}
