#include "base/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 255, /* 63 bytes in a stock server; what is longer matches nothing */
    NESTED_MAX = 32,
    PARTS_MAX = 2000,
    REPEATED_MAX = 500,  /* of them by repeats: what they take grows with the square */
    REPEATS_MAX = 32767, /* RE_DUP_MAX of the C library */
};

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

/* ---- what an expression costs ----
 *
 * glibc's regcomp copies whatever is repeated, so that nested repeats multiply, and goes down into parentheses by recursion: some
 * thirty characters can take gigabytes, and some twenty thousand the stack. Where it repeats what may be nothing, as in
 * ((a?)+){9}, the time that it takes doubles with each of them. Expressions also come from people who may write no more than a
 * row (cli/signals.h). */

struct group {
    size_t parts;
    bool is_empty;    /* what stands since the last bar can be nothing */
    bool was_empty;   /* likewise, but for the last part */
    bool other_empty; /* one of the alternatives before can */
};

struct cost {
    struct group open[NESTED_MAX + 1];
    unsigned depth;
    size_t last;     /* what stands before, which a repeat repeats, */
    bool last_empty; /* and whether it can be nothing */
    size_t repeated;
};

static void add_part(struct cost *cost, size_t parts, bool can_be_empty)
{
    struct group *group = &cost->open[cost->depth];
    cost->last = parts;
    cost->last_empty = can_be_empty;
    group->parts += parts;
    group->was_empty = group->is_empty;
    group->is_empty = group->is_empty && can_be_empty;
}

static void open_group(struct cost *cost)
{
    cost->open[++cost->depth] = (struct group){.parts = 1, .is_empty = true};
}

static void close_group(struct cost *cost)
{
    const struct group *closed = &cost->open[cost->depth--];
    add_part(cost, closed->parts, closed->is_empty || closed->other_empty);
}

/* False: what it repeats can be nothing. */
static bool repeat_part(struct cost *cost, size_t times, bool may_be_none)
{
    struct group *group = &cost->open[cost->depth];
    size_t more = times > 1 ? cost->last * (times - 1) : 0;
    bool good = !cost->last_empty;
    cost->last += more;
    cost->repeated += more;
    group->parts += more;
    if (may_be_none) {
        cost->last_empty = true;
        group->is_empty = group->was_empty;
    }
    return good;
}

/* Behind "[": the end of that list. A bracket that comes first is one of its characters, and so is one within [: :]. */
static const char *skip_list(const char *at)
{
    at += *at == '^';
    at += *at == ']';
    while (*at != '\0' && *at != ']') {
        bool is_class = *at == '[' && (at[1] == ':' || at[1] == '.' || at[1] == '=');
        const char end[] = {at[1], ']', '\0'};
        const char *closed = is_class ? strstr(at + 2, end) : NULL;
        at = closed == NULL ? at + 1 : closed + 2;
    }
    return at;
}

/* The most repeats that an interval asks for; behind "{". */
static size_t repeats(const char *at)
{
    size_t most = 1, number = 0;
    for (; *at != '\0' && *at != '}'; at++) {
        bool is_digit = *at >= '0' && *at <= '9';
        number = is_digit ? 10 * number + (size_t)(*at - '0') : 0;
        number = number > REPEATS_MAX ? REPEATS_MAX : number;
        most = number > most ? number : most;
    }
    return most;
}

/* NULL: it may be compiled. */
static const char *excess(const char *text)
{
    struct cost cost = {.open = {{.is_empty = true}}};
    for (const char *at = text; *at != '\0'; at++) {
        bool good = true;
        switch (*at) {
        case '(':
            if (cost.depth == NESTED_MAX) {
                return "its parentheses are nested too deeply";
            }
            open_group(&cost);
            break;
        case ')':
            if (cost.depth > 0) {
                close_group(&cost);
            }
            break;
        case '|':
            cost.open[cost.depth].other_empty |= cost.open[cost.depth].is_empty;
            cost.open[cost.depth].is_empty = true;
            cost.open[cost.depth].parts++;
            break;
        case '{':
            good = repeat_part(&cost, repeats(at + 1), at[1] == '0' || at[1] == ',');
            at += strcspn(at, "}");
            at -= *at == '\0';
            break;
        case '*':
        case '?':
            good = repeat_part(&cost, 1, true);
            break;
        case '+': /* one, and any number */
            good = repeat_part(&cost, 2, false);
            break;
        case '\\':
            if (at[1] >= '1' && at[1] <= '9') {
                return "it refers back to a group";
            }
            at += at[1] != '\0';
            add_part(&cost, 1, strchr("bB<>`'", *at) != NULL); /* places, not characters */
            break;
        case '[':
            at = skip_list(at + 1);
            at -= *at == '\0';
            add_part(&cost, 1, false);
            break;
        default:
            add_part(&cost, 1, *at == '^' || *at == '$');
            break;
        }
        if (!good) {
            return "it repeats what can be nothing";
        }
        if (cost.open[cost.depth].parts > PARTS_MAX || cost.repeated > REPEATED_MAX) {
            return "it is too long, or its repeats multiply too far";
        }
    }
    return NULL;
}

/* ---- expressions ---- */

regex_t *mr_regex_new(const char *text, char *reason, size_t size)
{
    const char *too_much = excess(text);
    if (too_much != NULL) {
        snprintf(reason, size, "%s", too_much);
        return NULL;
    }
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
