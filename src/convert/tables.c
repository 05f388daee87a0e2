/* Which tables, their keys and their topics. */
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "encode/encode.h"

/* Nobody's table: millrace does not start before it is replaced. */
#define PLACEHOLDER "public.name_your_tables_here"

static const char list_tables[] =
    "in psql: SELECT format('%I.%I', schemaname, tablename) FROM pg_publication_tables WHERE "
    "pubname = '…'";

/* "schema.table" for the option "tables", whose parts with other characters than these are quoted. NULL: it has not two parts. */
static char *table_name(const char *text)
{
    const char *dot = strchr(text, '.');
    if (dot == NULL || dot == text || dot[1] == '\0' || strchr(dot + 1, '.') != NULL ||
        strchr(text, '"') != NULL) {
        return NULL;
    }
    return MR_STRDUP(text);
}

static bool holds(const struct mr_convert_list *list, const char *text)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_upper(const char *text)
{
    return text[strcspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0';
}

/* The tables of one pattern; false: they can't be told from it. */
static bool add_tables(struct mr_convert_list *tables, const char *pattern)
{
    struct mr_convert_list texts = {0};
    bool good = mr_convert_expand(pattern, &texts);
    for (uint32_t i = 0; i < texts.count; i++) {
        char *name = table_name(texts.items[i]);
        good &= name != NULL;
        if (name != NULL && !holds(tables, name)) {
            mr_convert_list_add(tables, name);
        } else {
            free(name);
        }
    }
    mr_convert_list_done(&texts);
    return good;
}

static void forget_from(struct mr_convert_list *list, uint32_t count)
{
    while (list->count > count) {
        free(list->items[--list->count]);
    }
}

/* The pattern itself, where its tables are not told by it. */
static void add_pattern(struct mr_convert *convert, const struct mr_convert_line *line,
                        const char *pattern, uint32_t nth)
{
    char *text = mr_convert_pattern(pattern, 2);
    if (text == NULL) {
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "pattern %u does not name its tables one by one; add them, or a pattern as "
                        "docs/configuration.md writes it, to \"tables\" (%s)",
                        nth, list_tables);
        return;
    }
    if (has_upper(text)) {
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "Debezium does not tell upper from lower case, PostgreSQL and \"tables\" "
                        "do: see that pattern %u is written as its tables are",
                        nth);
    }
    mr_convert_list_add(&convert->patterns, text);
}

/* All tables but those that table.exclude.list leaves out; false: there is none, or one of its patterns can't be told. */
static bool convert_all_but(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_find(convert, "table.exclude.list");
    struct mr_convert_list patterns = {0};
    struct mr_convert_list excluded = {0};
    mr_convert_split(line == NULL ? "" : line->value, ',', &patterns);
    bool good = patterns.count > 0 && mr_convert_find(convert, "schema.include.list") == NULL &&
                mr_convert_find(convert, "schema.exclude.list") == NULL;
    for (uint32_t i = 0; i < patterns.count; i++) {
        char *text = mr_convert_pattern(patterns.items[i], 2);
        good &= text != NULL && !has_upper(text);
        if (text != NULL) {
            mr_convert_list_add(&excluded, text);
        }
    }
    if (good) {
        mr_convert_take(convert, "table.exclude.list");
        mr_convert_list_add(&convert->patterns, MR_STRDUP("*.*"));
        mr_convert_set_list(convert, "excluded_tables", &excluded);
    }
    mr_convert_list_done(&patterns);
    mr_convert_list_done(&excluded);
    return good;
}

static void convert_list(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "table.include.list");
    const char *value = line == NULL || mr_convert_is_expression(line->value) ? "" : line->value;
    struct mr_convert_list patterns = {0};
    mr_convert_split(value, ',', &patterns);
    convert->tables_known = patterns.count > 0;
    for (uint32_t i = 0; i < patterns.count; i++) {
        uint32_t known = convert->tables.count;
        if (!add_tables(&convert->tables, patterns.items[i])) {
            convert->tables_known = false;
            forget_from(&convert->tables, known);
            add_pattern(convert, line, patterns.items[i], i + 1);
        }
    }
    if (patterns.count == 0 && !convert_all_but(convert)) {
        mr_convert_note(convert, MR_NOTE_TO_DO, "table.include.list",
                        "the tables are not named in it; name them in \"tables\" (%s)",
                        list_tables);
    }
    for (uint32_t i = 0; i < convert->tables.count; i++) {
        if (has_upper(convert->tables.items[i])) {
            mr_convert_note(
                convert, MR_NOTE_TO_DO, line->given,
                "Debezium does not tell upper from lower case, PostgreSQL and \"tables\" "
                "do: see that %s is written as its table is",
                convert->tables.items[i]);
        }
    }
    mr_convert_list_done(&patterns);
}

/* Filters that only say what to leave out, which a list of tables does by itself. */
static void convert_filters(struct mr_convert *convert)
{
    static const char *const names[] = {"table.exclude.list", "schema.include.list",
                                        "schema.exclude.list"};
    bool all_but = convert->patterns.count == 1 && strcmp(convert->patterns.items[0], "*.*") == 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        const struct mr_convert_line *line = mr_convert_take(convert, names[i]);
        if (line != NULL && line->value[0] != '\0' && !(i == 0 && all_but)) {
            mr_convert_note(
                convert, convert->tables_known ? MR_NOTE_IDLE : MR_NOTE_TO_DO, line->given,
                convert->tables_known
                    ? "\"tables\" names all tables; see that it has none that this leaves out"
                    : "leave out of \"tables\" what this leaves out");
        }
    }
}

/* "schema.table:a,b;…" to key_columns. */
static void convert_keys(struct mr_convert *convert)
{
    const char *value = mr_convert_value(convert, "message.key.columns");
    struct mr_convert_list rules = {0};
    struct mr_convert_list keys = {0};
    mr_convert_split(value == NULL ? "" : value, ';', &rules);
    bool good = true;
    for (uint32_t i = 0; i < rules.count; i++) {
        char *colon = strchr(rules.items[i], ':');
        struct mr_convert_list tables = {0};
        struct mr_convert_list columns = {0};
        if (colon != NULL) {
            *colon = '\0';
            good &= add_tables(&tables, rules.items[i]);
            mr_convert_split(colon + 1, ',', &columns);
        }
        good &= tables.count > 0 && columns.count > 0;
        for (uint32_t k = 0; k < tables.count && columns.count > 0; k++) {
            struct mr_text key = {0};
            mr_text_string(&key, tables.items[k]);
            for (uint32_t c = 0; c < columns.count; c++) {
                mr_text_format(&key, "%s%s", c == 0 ? ":" : ",", columns.items[c]);
            }
            mr_convert_list_add(&keys, key.data);
        }
        mr_convert_list_done(&tables);
        mr_convert_list_done(&columns);
    }
    if (!good) {
        mr_convert_note(convert, MR_NOTE_LOST, "message.key.columns",
                        "holds a pattern that does not name its tables one by one; name them in "
                        "key_columns");
    }
    if (keys.count > 0) {
        mr_convert_set_list(convert, "key_columns", &keys);
    }
    mr_convert_list_done(&rules);
    mr_convert_list_done(&keys);
}

void mr_convert_tables(struct mr_convert *convert)
{
    convert_list(convert);
    convert_filters(convert);
    convert_keys(convert);
}

/* ---- topics ---- */

/* A regular expression of Java's as one of POSIX, anchored. NULL: it has what POSIX has not. */
static char *posix_pattern(const char *java)
{
    struct mr_text out = {0};
    mr_text_string(&out, "^(");
    for (const char *at = java; *at != '\0'; at++) {
        bool lazy = (*at == '?' || *at == '+') && at > java && strchr("*+?}", at[-1]) != NULL &&
                    (at < java + 2 || at[-2] != '\\');
        if (lazy || (*at == '(' && at[1] == '?')) {
            mr_text_done(&out);
            return NULL;
        }
        if (*at != '\\') {
            mr_text_add(&out, at, 1);
            continue;
        }
        at++;
        const char *class = *at == 'd' ? "[0-9]" : *at == 'w' ? "[A-Za-z0-9_]" : NULL;
        bool is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                         (*at >= '0' && *at <= '9') || *at == '\0';
        if (class == NULL && is_letter) {
            mr_text_done(&out);
            return NULL;
        }
        if (class != NULL) {
            mr_text_string(&out, class);
        } else {
            mr_text_format(&out, strchr("\\^]", *at) != NULL ? "\\%c" : "[%c]", *at);
        }
    }
    mr_text_string(&out, ")$");
    return out.data;
}

enum { GROUPS_MAX = 10 };

/* Puts groups into "$1". False: it has what is no group. */
static bool replace(struct mr_text *out, const char *replacement, const char *topic,
                    const regmatch_t *groups)
{
    for (const char *at = replacement; *at != '\0'; at++) {
        if (*at == '$') {
            at++;
            if (*at < '0' || *at > '8') {
                return false;
            }
            /* The first group is the one that anchors. */
            const regmatch_t *group = &groups[*at - '0' + 1];
            if (group->rm_so >= 0) {
                mr_text_add(out, topic + group->rm_so, (size_t)(group->rm_eo - group->rm_so));
            }
        } else if (*at == '\\' && at[1] != '\0') {
            at++;
            mr_text_add(out, at, 1);
        } else {
            mr_text_add(out, at, 1);
        }
    }
    return out->len > 0;
}

/* The topic that a router makes of another; topics that do not match stay. NULL: it can't be told. */
static char *routed(const char *topic, const regex_t *pattern, const char *replacement)
{
    regmatch_t groups[GROUPS_MAX];
    if (regexec(pattern, topic, GROUPS_MAX, groups, 0) != 0) {
        return MR_STRDUP(topic);
    }
    struct mr_text out = {0};
    if (!replace(&out, replacement, topic, groups)) {
        mr_text_done(&out);
        return NULL;
    }
    return out.data;
}

/* True when all topics could be routed; then `topics` holds the new ones. */
static bool route_all(struct mr_convert_list *topics, const char *java, const char *replacement)
{
    char *posix = posix_pattern(java);
    regex_t pattern;
    if (posix == NULL || regcomp(&pattern, posix, REG_EXTENDED) != 0) {
        free(posix);
        return false;
    }
    bool good = true;
    for (uint32_t i = 0; i < topics->count; i++) {
        char *topic = routed(topics->items[i], &pattern, replacement);
        good &= topic != NULL;
        if (topic != NULL) {
            free(topics->items[i]);
            topics->items[i] = topic;
        }
    }
    regfree(&pattern);
    free(posix);
    return good;
}

/* ---- transformations ---- */

struct mr_convert_line *mr_convert_take_option(struct mr_convert *convert, const char *alias,
                                               const char *option)
{
    struct mr_text name = {0};
    mr_text_format(&name, "transforms.%s.%s", alias, option);
    struct mr_convert_line *line = mr_convert_take(convert, name.data);
    mr_text_done(&name);
    return line;
}

/* False: the router is not carried over, and has said so. */
static bool convert_router(struct mr_convert *convert, const char *alias, const char *given,
                           bool logical, struct mr_convert_list *topics)
{
    const struct mr_convert_line *regex =
        mr_convert_take_option(convert, alias, logical ? "topic.regex" : "regex");
    const struct mr_convert_line *replacement =
        mr_convert_take_option(convert, alias, logical ? "topic.replacement" : "replacement");
    const char *what = NULL;
    if (regex == NULL || replacement == NULL) {
        what = "has no regular expression or no replacement";
    } else if (!convert->tables_known) {
        what = "which tables there are is not known; give each a [[streams]] with its topic";
    } else if (!route_all(topics, regex->value, replacement->value)) {
        what = "its regular expression is beyond POSIX's; give each table a [[streams]] with its "
               "topic";
    }
    if (what != NULL) {
        mr_convert_note(convert, MR_NOTE_LOST, given, "%s (docs/configuration.md)", what);
    }
    bool keeps_keys = true;
    const struct mr_convert_line *unique =
        logical ? mr_convert_take_option(convert, alias, "key.enforce.uniqueness") : NULL;
    keeps_keys = !logical || (unique != NULL && strcmp(unique->value, "false") == 0);
    if (!keeps_keys) {
        mr_convert_note(
            convert, MR_NOTE_LOST, unique != NULL ? unique->given : given,
            "keys don't get the field __dbz__physicalTableIdentifier that tells tables of one "
            "topic apart; let tables share a topic only where their keys differ");
    }
    return what == NULL;
}

static void unknown_transform(struct mr_convert *convert, const char *given, const char *class,
                              size_t len)
{
    mr_convert_note(
        convert, MR_NOTE_LOST, given,
        "%.*s is a Java class, which is not loaded; do what it does where events are read",
        (int)len, class);
}

static void write_streams(struct mr_convert *convert, const struct mr_convert_list *topics)
{
    for (uint32_t i = 0; i < topics->count; i++) {
        mr_text_string(&convert->streams, "\n[[streams]]\nsource.resource = ");
        mr_convert_quote(&convert->streams, convert->tables.items[i]);
        mr_text_string(&convert->streams,
                       "\nsource.operations = [\"insert\", \"update\", \"delete\", \"truncate\", "
                       "\"read\"]\nsink.destination = ");
        mr_convert_quote(&convert->streams, topics->items[i]);
        mr_text_string(&convert->streams, "\n");
    }
}

/* One transformation; true when topics changed. */
static bool convert_transform(struct mr_convert *convert, const char *alias,
                              struct mr_convert_list *topics)
{
    const struct mr_convert_line *type = mr_convert_take_option(convert, alias, "type");
    if (type == NULL) {
        return false;
    }
    const char *dot = strrchr(type->value, '.');
    const char *class = dot == NULL ? type->value : dot + 1;
    size_t len = strcspn(class, "$");
    bool logical = strcmp(class, "ByLogicalTableRouter") == 0;
    const struct mr_convert_line *predicate = mr_convert_take_option(convert, alias, "predicate");
    if (predicate != NULL) {
        mr_convert_note(convert, MR_NOTE_LOST, predicate->given,
                        "predicates are not known, so the transformation is left out");
        mr_convert_note(convert, MR_NOTE_LOST, type->given, "see its predicate");
        return false;
    }
    if (logical || strcmp(class, "RegexRouter") == 0) {
        return convert_router(convert, alias, type->given, logical, topics);
    }
    if (strncmp(class, "ExtractNewRecordState", len) == 0) {
        mr_convert_unwrap(convert, alias);
        convert->is_bare = true;
        return false;
    }
    unknown_transform(convert, type->given, class, len);
    return false;
}

void mr_convert_transforms(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "transforms");
    const struct mr_convert_line *prefix = mr_convert_take(convert, "topic.prefix");
    const struct mr_convert_line *delimiter = mr_convert_find(convert, "topic.delimiter");
    struct mr_convert_list topics = {0};
    struct mr_convert_list aliases = {0};
    for (uint32_t i = 0; i < convert->tables.count; i++) {
        char *schema = MR_STRDUP(convert->tables.items[i]);
        char *dot = strchr(schema, '.');
        *dot = '\0';
        mr_convert_list_add(&topics, mr_topic_name(prefix == NULL ? "millrace" : prefix->value,
                                                   delimiter == NULL ? NULL : delimiter->value,
                                                   schema, dot + 1));
        free(schema);
    }
    mr_convert_split(line == NULL ? "" : line->value, ',', &aliases);
    bool changed = false;
    for (uint32_t i = 0; i < aliases.count; i++) {
        changed |= convert_transform(convert, aliases.items[i], &topics);
    }
    if (changed) {
        mr_convert_set(convert, "format", convert->is_bare ? "row" : "debezium");
        write_streams(convert, &topics);
    } else {
        for (uint32_t i = 0; i < convert->patterns.count; i++) {
            mr_convert_list_add(&convert->tables, MR_STRDUP(convert->patterns.items[i]));
        }
        if (convert->tables.count == 0) {
            mr_convert_list_add(&convert->tables, MR_STRDUP(PLACEHOLDER));
        }
        mr_convert_set_list(convert, "tables", &convert->tables);
    }
    if (prefix != NULL) {
        if (mr_convert_is_expression(prefix->value)) {
            mr_convert_note(convert, MR_NOTE_TO_DO, prefix->given,
                            "its value comes from a config provider of Connect; write it into "
                            "topic_prefix");
        } else {
            mr_convert_set(convert, "topic_prefix", prefix->value);
        }
    } else {
        mr_convert_note(convert, MR_NOTE_TO_DO, "topic.prefix",
                        "is not there, and the connector must have one; set topic_prefix");
    }
    mr_convert_list_done(&aliases);
    mr_convert_list_done(&topics);
}
