/* Which tables, their keys and their topics. */
#include <stdlib.h>
#include <string.h>

#include "base/rewrite.h"
#include "convert/convert_internal.h"

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

/* A set, from its bracket on; `*at` comes to stand on the last one. False: it is an intersection or a set in a set. */
static bool is_plain_set(const char **at)
{
    const char *c = *at + 1;
    c += *c == '^';
    for (bool is_first = true; *c != ']' || is_first; c++, is_first = false) {
        if (*c == '\0' || *c == '[' || strncmp(c, "&&", 2) == 0) {
            return false;
        }
        c += *c == '\\' && c[1] != '\0';
    }
    *at = c;
    return true;
}

bool mr_convert_same_regex(const char *java)
{
    char reason[128];
    struct mr_regex *regex = mr_regex_new(java, reason, sizeof(reason));
    bool good = regex != NULL;
    mr_regex_free(regex);
    for (const char *at = java; good && *at != '\0'; at++) {
        if (*at == '\\') {
            at++;
            good = strchr("pPNuxh", *at) == NULL;
        } else if (*at == '[') {
            good = is_plain_set(&at);
        } else if (strncmp(at, "(?", 2) == 0) {
            good = at[2] != '\0' && strchr(":=!<>i", at[2]) != NULL;
        }
    }
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

/* An expression and its replacement as two of ours; false: they mean something else here. */
bool mr_convert_rewrite(struct mr_convert *convert, const char *java, const char *replacement,
                        const char *regex_option, const char *option)
{
    struct mr_rewrite rewrite;
    char reason[256];
    bool good = mr_convert_same_regex(java) &&
                mr_rewrite_init(&rewrite, java, replacement, reason, sizeof(reason));
    if (good) {
        mr_rewrite_done(&rewrite);
        mr_convert_set(convert, regex_option, java);
        mr_convert_set(convert, option, replacement);
    }
    return good;
}

/* Debezium's ByLogicalTableRouter adds a field to keys unless it is told not to. */
static void convert_uniqueness(struct mr_convert *convert, const char *alias, const char *given)
{
    const struct mr_convert_line *unique =
        mr_convert_take_option(convert, alias, "key.enforce.uniqueness");
    bool enforces = unique == NULL || strcasecmp(unique->value, "false") != 0;
    mr_convert_set(convert, "routing.sharing", enforces ? "key" : "allow");
    const struct mr_convert_line *regex = mr_convert_take_option(convert, alias, "key.field.regex");
    const struct mr_convert_line *value =
        mr_convert_take_option(convert, alias, "key.field.replacement");
    if (enforces && regex != NULL && value != NULL &&
        !mr_convert_rewrite(convert, regex->value, value->value, "routing.key_regex",
                            "routing.key_value")) {
        mr_convert_note(
            convert, MR_NOTE_TO_DO, given,
            "key.field.regex and key.field.replacement have what only Java knows; write "
            "routing.key_regex and routing.key_value");
    } else if ((regex != NULL || value != NULL) && (!enforces || regex == NULL || value == NULL)) {
        mr_convert_note(convert, MR_NOTE_IDLE, (regex != NULL ? regex : value)->given,
                        "has no effect without the other, and key.enforce.uniqueness");
    }
}

static void convert_router(struct mr_convert *convert, const char *alias, const char *given,
                           bool logical)
{
    const struct mr_convert_line *regex =
        mr_convert_take_option(convert, alias, logical ? "topic.regex" : "regex");
    const struct mr_convert_line *replacement =
        mr_convert_take_option(convert, alias, logical ? "topic.replacement" : "replacement");
    if (regex == NULL || replacement == NULL) {
        mr_convert_note(convert, MR_NOTE_LOST, given,
                        "has no regular expression or no replacement");
    } else if (convert->has_router) {
        mr_convert_note(convert, MR_NOTE_LOST, given,
                        "there is one routing.topic_regex: write what both do as one");
    } else if (!mr_convert_rewrite(convert, regex->value, replacement->value, "routing.topic_regex",
                                   "routing.topic")) {
        mr_convert_note(convert, MR_NOTE_TO_DO, given,
                        "its regular expression or replacement has what only Java knows; write "
                        "routing.topic_regex and "
                        "routing.topic (docs/configuration.md)");
    } else {
        convert->has_router = true;
    }
    if (logical && convert->has_router) {
        convert_uniqueness(convert, alias, given);
    }
}

static void unknown_transform(struct mr_convert *convert, const char *given, const char *class,
                              size_t len)
{
    bool routes =
        len == sizeof("ContentBasedRouter") - 1 && strncmp(class, "ContentBasedRouter", len) == 0;
    mr_convert_note(convert, MR_NOTE_LOST, given, "%.*s is a Java class, which is not loaded; %s",
                    (int)len, class,
                    routes ? "topics that a column's value names are routing.by_column "
                             "(docs/events.md)"
                           : "do what it does where events are read");
}

/* Whether the transformation is for all tables whose rows are no events of an outbox: what it becomes is. `in` says which it is for. */
static bool is_for_others(const struct mr_convert *convert, const struct mr_convert_list *in)
{
    bool all = convert->patterns.count == 0;
    for (uint32_t i = 0; i < convert->tables.count; i++) {
        const char *table = convert->tables.items[i];
        all &= holds(in, table) != holds(&convert->outboxes, table);
    }
    return all;
}

/* Behind ExtractNewRecordState no event has the envelope that EventRouter looks for (both: SmtManager.isValidEnvelope). */
static void convert_event_router(struct mr_convert *convert, const char *alias, const char *given,
                                 const struct mr_convert_list *in)
{
    if (in != NULL && in->count == 0) {
        mr_convert_note(convert, MR_NOTE_IDLE, given, "its predicate means none of the tables");
    } else if (convert->unwraps_outboxes) {
        mr_convert_note(convert, MR_NOTE_LOST, given,
                        "behind ExtractNewRecordState it finds no events to route; put it before");
    } else {
        mr_convert_outbox(convert, alias, given);
    }
}

/* A transformation for the tables of `in`; NULL: for all. */
static void convert_known(struct mr_convert *convert, const char *alias,
                          const struct mr_convert_line *type, const struct mr_convert_list *in)
{
    const char *dot = strrchr(type->value, '.');
    const char *class = dot == NULL ? type->value : dot + 1;
    size_t len = strcspn(class, "$");
    bool logical = strcmp(class, "ByLogicalTableRouter") == 0;
    if (strcmp(class, "EventRouter") == 0) {
        convert_event_router(convert, alias, type->given, in);
        return;
    }
    bool unwraps = strcmp(class, "ExtractNewRecordState") == 0;
    if (in != NULL && !is_for_others(convert, in)) {
        mr_convert_note(convert, MR_NOTE_LOST, type->given,
                        "its predicate means some of the tables, and %s would hold for all; make "
                        "it a pipeline of its own",
                        unwraps ? "format" : "what it does");
        return;
    }
    if (convert->has_outbox && unwraps && convert->outboxes.count == 0) {
        mr_convert_note(convert, MR_NOTE_IDLE, type->given, "events of an outbox have no envelope");
        return;
    }
    if (convert->has_outbox && !unwraps) {
        mr_convert_note(convert, MR_NOTE_LOST, type->given,
                        "it works on the topics that values name; say it in outbox.topic_regex "
                        "and outbox.topic");
        return;
    }
    if (logical || strcmp(class, "RegexRouter") == 0) {
        convert_router(convert, alias, type->given, logical);
        return;
    }
    if (unwraps) {
        convert->unwraps = type->given;
        convert->unwraps_outboxes = in == NULL || convert->outboxes.count == 0;
        mr_convert_unwrap(convert, alias);
        return;
    }
    unknown_transform(convert, type->given, class, len);
}

static void convert_transform(struct mr_convert *convert, const char *alias)
{
    const struct mr_convert_line *type = mr_convert_take_option(convert, alias, "type");
    if (type == NULL) {
        return;
    }
    struct mr_convert_list in = {0};
    switch (mr_convert_scope(convert, alias, true, &in)) {
    case MR_SCOPE_ALL:
        convert_known(convert, alias, type, NULL);
        break;
    case MR_SCOPE_TABLES:
        convert_known(convert, alias, type, &in);
        break;
    case MR_SCOPE_UNKNOWN:
        mr_convert_note(convert, MR_NOTE_LOST, type->given, "see its predicate");
        break;
    }
    mr_convert_list_done(&in);
}

/* Which tables are outboxes, if the first EventRouter has a predicate that says so. What stands before it needs to know. */
static void find_outboxes(struct mr_convert *convert, const struct mr_convert_list *aliases)
{
    for (uint32_t i = 0; i < aliases->count; i++) {
        struct mr_text name = {0};
        mr_text_format(&name, "transforms.%s.type", aliases->items[i]);
        const struct mr_convert_line *type = mr_convert_find(convert, name.data);
        mr_text_done(&name);
        const char *dot = type == NULL ? NULL : strrchr(type->value, '.');
        if (dot == NULL || strcmp(dot, ".EventRouter") != 0) {
            continue;
        }
        struct mr_convert_list in = {0};
        if (mr_convert_scope(convert, aliases->items[i], false, &in) == MR_SCOPE_TABLES) {
            convert->outboxes = in;
        } else {
            mr_convert_list_done(&in);
        }
        return;
    }
}

void mr_convert_transforms(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "transforms");
    const struct mr_convert_line *prefix = mr_convert_take(convert, "topic.prefix");
    struct mr_convert_list aliases = {0};
    mr_convert_split(line == NULL ? "" : line->value, ',', &aliases);
    find_outboxes(convert, &aliases);
    for (uint32_t i = 0; i < aliases.count; i++) {
        convert_transform(convert, aliases.items[i]);
    }
    for (uint32_t i = 0; i < convert->patterns.count; i++) {
        mr_convert_list_add(&convert->tables, MR_STRDUP(convert->patterns.items[i]));
    }
    if (convert->tables.count == 0) {
        mr_convert_list_add(&convert->tables, MR_STRDUP("public." MR_CONVERT_PLACEHOLDER));
    }
    mr_convert_set_list(convert, "tables", &convert->tables);
    convert->only_outboxes =
        convert->patterns.count == 0 && convert->outboxes.count == convert->tables.count;
    if (convert->has_outbox) {
        mr_convert_set_list(convert, "outbox.tables",
                            convert->outboxes.count > 0 ? &convert->outboxes : &convert->tables);
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
}
