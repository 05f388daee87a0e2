#include "postgres/conn/condition.h"

enum { DEPTH_MAX = 256 };

/* What the server's scanner would do (src/backend/parser/scan.l), with standard_conforming_strings
 * = on, which each session of ours has. Where its versions differ, or the order of its rules
 * decides, the text is refused: nobody writes that. */
struct scan {
    const char *at;
    bool has_token;
    /* the last token: a text behind it and a newline has escapes, too (quotecontinue) */
    bool was_escape_text;
    uint32_t depth;
    char closing[DEPTH_MAX];
};

#define OPEN_END "it has a text, a name or a comment without an end; close it"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ident_start; the bytes of all that is not ASCII are letters. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (uint8_t)c >= 0x80;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *scan_quoted(struct scan *scan, char quote, bool has_escapes)
{
    for (scan->at++; *scan->at != '\0'; scan->at++) {
        if (has_escapes && *scan->at == '\\' && scan->at[1] != '\0') {
            scan->at++;
        } else if (*scan->at == quote && scan->at[1] == quote) {
            scan->at++;
        } else if (*scan->at == quote) {
            scan->at++;
            return NULL;
        }
    }
    return OPEN_END;
}

/* Comments nest. */
static const char *scan_comment(struct scan *scan)
{
    uint32_t depth = 0;
    while (*scan->at != '\0') {
        bool opens = scan->at[0] == '/' && scan->at[1] == '*';
        bool closes = scan->at[0] == '*' && scan->at[1] == '/';
        scan->at += opens || closes ? 2 : 1;
        depth = opens ? depth + 1 : closes ? depth - 1 : depth;
        if (depth == 0) {
            return NULL;
        }
    }
    return OPEN_END;
}

/* $tag$ … $tag$ */
static const char *scan_dollar(struct scan *scan)
{
    char tag[66];
    size_t len = 1;
    while (is_letter(scan->at[len]) || (len > 1 && is_digit(scan->at[len]))) {
        len++;
    }
    if (scan->at[len] != '$' || ++len >= sizeof(tag)) {
        return "it has a $ that begins no text ($$…$$); parameters have no values here";
    }
    memcpy(tag, scan->at, len);
    tag[len] = '\0';
    const char *end = strstr(scan->at + len, tag);
    if (end == NULL) {
        return OPEN_END;
    }
    scan->at = end + len;
    return NULL;
}

/* Before 15 letters behind a number were a word of their own, which with a quote or a $ begins
 * another text. */
static const char *scan_number(struct scan *scan)
{
    while (is_letter(*scan->at) || is_digit(*scan->at) || *scan->at == '.') {
        scan->at++;
    }
    return *scan->at == '\'' || *scan->at == '$'
               ? "it has a text right behind a number; put a space between them"
               : NULL;
}

static const char *scan_word(struct scan *scan)
{
    const char *begin = scan->at;
    while (is_letter(*scan->at) || is_digit(*scan->at) || *scan->at == '$') {
        scan->at++;
    }
    bool is_escape = scan->at - begin == 1 && (*begin == 'e' || *begin == 'E');
    if (!is_escape || *scan->at != '\'') {
        return NULL;
    }
    scan->was_escape_text = true;
    return scan_quoted(scan, '\'', true);
}

static const char *scan_sign(struct scan *scan)
{
    char c = *scan->at++;
    switch (c) {
    case '(':
    case '[':
        if (scan->depth == DEPTH_MAX) {
            return "it has more than 256 parentheses within each other; write it shorter";
        }
        scan->closing[scan->depth++] = c == '(' ? ')' : ']';
        return NULL;
    case ')':
    case ']':
        if (scan->depth == 0 || scan->closing[--scan->depth] != c) {
            return "it closes a parenthesis that it has not opened; take that out, or open it "
                   "within the condition";
        }
        return NULL;
    case ';':
        return "it has a semicolon; write one condition, and no statements";
    case '\\':
        return "it has a backslash outside a text; take it out";
    default:
        return NULL;
    }
}

static const char *scan_token(struct scan *scan)
{
    char c = *scan->at;
    bool follows_escape_text = scan->was_escape_text;
    scan->has_token = true;
    scan->was_escape_text = false;
    if (c == '\'') {
        return follows_escape_text ? "it has a text in several pieces, with escapes (E'…'); write "
                                     "it in one"
                                   : scan_quoted(scan, '\'', false);
    }
    return c == '"'       ? scan_quoted(scan, '"', false)
           : c == '$'     ? scan_dollar(scan)
           : is_digit(c)  ? scan_number(scan)
           : is_letter(c) ? scan_word(scan)
                          : scan_sign(scan);
}

const char *mr_sql_condition_fault(const char *condition)
{
    if (condition == NULL || condition[0] == '\0') {
        return NULL;
    }
    struct scan scan = {.at = condition};
    while (*scan.at != '\0') {
        const char *fault = NULL;
        if (is_space(*scan.at)) {
            scan.at++;
        } else if (scan.at[0] == '-' && scan.at[1] == '-') {
            scan.at += strcspn(scan.at, "\n\r");
        } else if (scan.at[0] == '/' && scan.at[1] == '*') {
            fault = scan_comment(&scan);
        } else {
            fault = scan_token(&scan);
        }
        if (fault != NULL) {
            return fault;
        }
    }
    return scan.depth > 0    ? "it opens a parenthesis that it does not close; close it"
           : !scan.has_token ? MR_SQL_CONDITION_EMPTY
                             : NULL;
}

void mr_sql_add_condition(struct mr_text *sql, const char *condition)
{
    MR_ASSERT(condition[0] != '\0');
    MR_ASSERT(mr_sql_condition_fault(condition) == NULL);
    mr_text_string(sql, "(");
    mr_text_string(sql, condition);
    mr_text_string(sql, "\n)"); /* a comment at its end ends there, too */
}
