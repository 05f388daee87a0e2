/* Tables, columns and conditions on rows by pattern. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"
#include "config/secrets.h"

/* What makes a name that is not quoted an expression. */
#define EXPRESSION_SIGNS "*+?[({|\\^"

/* Up to one of `ends` outside quotes, brackets and braces, or the end. */
static const char *part_end(const char *at, const char *ends)
{
    char closes = '\0';
    for (; *at != '\0'; at++) {
        if (closes != '\0') {
            closes = *at == closes ? '\0' : closes;
        } else if (strchr(ends, *at) != NULL) {
            return at;
        } else if (*at == '\\' && at[1] != '\0') {
            at++;
        } else if (*at == '"' || *at == '[' || *at == '{' || *at == '(') {
            closes = *at == '"' ? '"' : *at == '[' ? ']' : *at == '{' ? '}' : ')';
        }
    }
    return at;
}

static char *copy_part(struct mr_config *config, const char *begin, const char *end)
{
    size_t len = (size_t)(end - begin);
    char *copy = mr_config_keep(config, MR_ALLOC(len + 1));
    memcpy(copy, begin, len);
    copy[len] = '\0';
    return copy;
}

/* A name without its quotes; false when they don't belong together. */
static bool unquote(char *name)
{
    char *to = name;
    const char *from = name + 1;
    for (; *from != '\0' && (*from != '"' || from[1] == '"'); from++) {
        from += *from == '"';
        *to++ = *from;
    }
    bool good = from[0] == '"' && from[1] == '\0';
    *to = '\0';
    return good;
}

/* One part. False, with `*ret_reason` filled: it is neither a name nor an expression. */
static bool take_pattern(struct mr_config *config, const char *begin, const char *end,
                         struct mr_pattern *ret, char *reason, size_t size)
{
    char *text = copy_part(config, begin, end);
    *ret = (struct mr_pattern){.text = text};
    if (text[0] == '"') {
        return unquote(text) && text[0] != '\0';
    }
    if (strcmp(text, "*") == 0) {
        ret->text = NULL;
        return true;
    }
    if (strpbrk(text, EXPRESSION_SIGNS) == NULL) {
        return text[0] != '\0' && strchr(text, '"') == NULL;
    }
    struct mr_regex *regex = mr_regex_new(text, reason, size);
    if (regex != NULL) {
        config->regexes =
            MR_REALLOC(config->regexes, (config->regex_count + 1) * sizeof(*config->regexes));
        config->regexes[config->regex_count++] = regex;
        ret->regex = regex;
    }
    return regex != NULL;
}

/* schema.table up to `end`; a bare one is in public. */
static bool take_table(struct mr_config *config, const char *text, const char *end,
                       struct mr_table_pattern *ret, char *reason, size_t size)
{
    const char *dot = part_end(text, ".:");
    dot = dot > end ? end : dot;
    if (dot == end || *dot != '.') {
        ret->schema = (struct mr_pattern){.text = "public"};
        return take_pattern(config, text, end, &ret->table, reason, size);
    }
    return take_pattern(config, text, dot, &ret->schema, reason, size) &&
           take_pattern(config, dot + 1, end, &ret->table, reason, size);
}

bool mr_config_take_column(struct mr_config *config, const char *text,
                           struct mr_table_pattern *ret_table, const char **ret_column,
                           const char **ret_rest, char *reason, size_t size)
{
    const char *colon = part_end(text, ":");
    if (*colon != ':' || !take_table(config, text, colon, ret_table, reason, size)) {
        return false;
    }
    const char *end = part_end(colon + 1, "=");
    char *column = copy_part(config, colon + 1, end);
    *ret_column = column;
    *ret_rest = *end == '=' ? end + 1 : NULL;
    return column[0] == '"' ? unquote(column) && column[0] != '\0' : column[0] != '\0';
}

bool mr_config_is_pattern(const char *text)
{
    bool quoted = false;
    for (; *text != '\0'; text++) {
        quoted ^= *text == '"';
        if (!quoted && strchr(EXPRESSION_SIGNS, *text) != NULL) {
            return true;
        }
    }
    return false;
}

void mr_config_add_rule(struct mr_config *config, const struct mr_pattern_rule *rule)
{
    struct mr_pg_source_options *source = &config->source;
    struct mr_pattern_rule *rules = mr_config_keep(
        config, MR_NEW_ARRAY(struct mr_pattern_rule, source->checked.rule_count + 1));
    for (uint32_t i = 0; i < source->checked.rule_count; i++) {
        rules[i] = source->checked.rules[i];
    }
    rules[source->checked.rule_count++] = *rule;
    source->checked.rules = rules;
}

/* PostgreSQL compares such a pattern, too, and it has \b for a backspace and \B for a backslash (manual, "Regular Expression
 * Escapes"): the two would mean other tables. */
static bool has_word_edge(const char *text)
{
    bool quoted = false; /* a name, which may have them */
    for (; *text != '\0'; text++) {
        quoted ^= *text == '"';
        if (!quoted && *text == '\\' && text[1] != '\0' && (*++text == 'b' || *text == 'B')) {
            return true;
        }
    }
    return false;
}

bool mr_config_take_table(struct mr_config *config, const char *option, uint32_t line,
                          const char *text, struct mr_table_pattern *ret)
{
    char reason[128] = "write \"schema.table\", and quote parts that hold dots";
    if (has_word_edge(text)) {
        snprintf(reason, sizeof(reason),
                 "PostgreSQL, which reads it too, has \\b and \\B for something else");
    } else if (take_table(config, text, text + strlen(text), ret, reason, sizeof(reason))) {
        return true;
    }
    PROBLEM(config, line, "%s: \"%s\" names no table: %s", option, text, reason);
    return false;
}

/* ---- columns ---- */

struct columns {
    const char *option;
    enum mr_column_action action;
    const struct mr_strings *texts;
    uint32_t line;
    const struct mr_route *stream; /* whose columns they are; NULL: each text names the table */
};

/* `column,column` behind the colon, each with its number where the action has one. */
static bool take_columns(struct mr_config *config, const struct columns *columns, const char *at,
                         const struct mr_table_pattern *table, struct mr_column_rule *rules,
                         uint32_t *count, char *reason, size_t size)
{
    bool has_length = columns->action == MR_COLUMN_MASK || columns->action == MR_COLUMN_TRUNCATE;
    for (;; at++) {
        const char *end = part_end(at, ",");
        const char *name_end = has_length ? part_end(at, "=,") : end;
        struct mr_column_rule *rule = &rules[*count];
        *rule = (struct mr_column_rule){
            .action = columns->action,
            .table = *table,
            .topic = columns->stream == NULL ? NULL : columns->stream->topic,
        };
        if (!take_pattern(config, at, name_end, &rule->column, reason, size)) {
            return false;
        }
        if (has_length) {
            enum { LENGTH_DIGITS_MAX = 6 };
            size_t digits = strspn(name_end + (*name_end == '='), "0123456789");
            if (*name_end != '=' || digits == 0 || digits > LENGTH_DIGITS_MAX ||
                name_end + 1 + digits != end) {
                return false;
            }
            rule->length = (uint32_t)strtoul(name_end + 1, NULL, 10);
        }
        (*count)++;
        at = end;
        if (*at == '\0') {
            return true;
        }
    }
}

static bool names_one(const struct mr_column_rule *rule)
{
    return mr_pattern_is_name(&rule->table.schema) && mr_pattern_is_name(&rule->table.table) &&
           mr_pattern_is_name(&rule->column);
}

static void build_columns(struct mr_config *config, const struct columns *columns,
                          struct mr_column_rule *rules, uint32_t *count)
{
    for (uint32_t i = 0; i < columns->texts->count; i++) {
        const char *text = columns->texts->items[i];
        const char *colon = columns->stream != NULL ? text : part_end(text, ":");
        char reason[128] = "write \"schema.table:column,column\"";
        if (columns->action == MR_COLUMN_MASK || columns->action == MR_COLUMN_TRUNCATE) {
            memcpy(reason, "write \"schema.table:column=8\"",
                   sizeof("write \"schema.table:column=8\""));
        }
        struct mr_table_pattern table;
        uint32_t before = *count;
        bool good = columns->stream != NULL;
        if (good) {
            table = (struct mr_table_pattern){.schema = {.text = columns->stream->schema},
                                              .table = {.text = columns->stream->table}};
        } else {
            good =
                *colon == ':' && take_table(config, text, colon++, &table, reason, sizeof(reason));
        }
        if (!good ||
            !take_columns(config, columns, colon, &table, rules, count, reason, sizeof(reason))) {
            PROBLEM(config, columns->line, "%s: \"%s\" names no columns: %s", columns->option, text,
                    reason);
        }
        for (uint32_t k = before; k < *count; k++) {
            if (names_one(&rules[k])) {
                continue; /* name_columns */
            }
            mr_config_add_rule(config, &(struct mr_pattern_rule){.option = columns->option,
                                                                 .text = text,
                                                                 .table = rules[k].table,
                                                                 .column = &rules[k].column});
        }
    }
}

/* The rules of a stream, which each name columns alone. */
static void build_stream_columns(struct mr_config *config, const struct mr_stream *stream,
                                 const struct mr_route *route, struct mr_column_rule *rules,
                                 uint32_t *count)
{
    for (uint32_t i = 0; i < MR_STREAM_COLUMNS; i++) {
        enum { OPTION_SIZE = 32 };
        char *option = mr_config_keep(config, MR_ALLOC(OPTION_SIZE));
        snprintf(option, OPTION_SIZE, "streams.%s",
                 mr_option_at(MR_INDEX_columns_include + i)->path);
        const struct columns columns = {option, (enum mr_column_action)i, &stream->columns[i],
                                        stream->line, route};
        build_columns(config, &columns, rules, count);
    }
}

/* No text names more columns than it has bytes. */
static size_t columns_max(const struct mr_strings *texts)
{
    size_t most = 0;
    for (uint32_t i = 0; i < texts->count; i++) {
        most += strlen(texts->items[i]);
    }
    return most;
}

void mr_config_check_streamed(struct mr_config *config, const char *option, uint32_t line,
                              const char *schema, const char *table)
{
    const struct mr_pg_source_options *source = &config->source;
    const struct mr_table_name name = {.schema = schema, .table = table};
    for (uint32_t i = 0; i < source->captured.table_count; i++) {
        if (mr_table_name_equal(&source->captured.tables[i], &name)) {
            return;
        }
    }
    if (!mr_table_patterns_match(source->captured.patterns, source->captured.pattern_count,
                                 mr_slice_of(schema), mr_slice_of(table))) {
        WARNING(config, line,
                "%s: %s.%s is none of the tables that \"tables\" names; correct it, or take it out",
                option, schema, table);
    }
}

/* Rules that name one column of one table can be compared with what there is, and so can the tables of streams. */
static void name_columns(struct mr_config *config, const struct columns *all,
                         const struct mr_column_rule *rules, uint32_t count)
{
    uint32_t streams = config->encode.routes_only ? config->encode.route_count : 0;
    struct mr_named_column *named =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_named_column, count + streams));
    config->source.checked.named = named;
    for (uint32_t i = 0; i < streams; i++) {
        const struct mr_route *route = &config->encode.routes[i];
        named[config->source.checked.named_count++] =
            (struct mr_named_column){.option = "streams.source.resource",
                                     .table = {.schema = route->schema, .table = route->table},
                                     .column = "",
                                     .must_fit = true};
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_column_rule *rule = &rules[i];
        const struct columns *columns = &all[rule->action];
        if (!mr_pattern_is_name(&rule->table.schema) || !mr_pattern_is_name(&rule->table.table)) {
            continue;
        }
        if (i == 0 || rules[i - 1].table.table.text != rule->table.table.text) {
            mr_config_check_streamed(config, columns->option, columns->line,
                                     rule->table.schema.text, rule->table.table.text);
        }
        named[config->source.checked.named_count++] = (struct mr_named_column){
            .option = columns->option,
            .table = {.schema = rule->table.schema.text, .table = rule->table.table.text},
            .column = mr_pattern_is_name(&rule->column) ? rule->column.text : "",
            .must_fit = true,
        };
    }
}

void mr_config_build_columns(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct columns all[MR_STREAM_COLUMNS];
    for (uint32_t i = 0; i < MR_STREAM_COLUMNS; i++) {
        const uint32_t index =
            MR_INDEX_columns_include + i; /* in the order of enum mr_column_action */
        all[i] = (struct columns){.option = mr_option_at(index)->path,
                                  .action = (enum mr_column_action)i,
                                  .texts = mr_value_of(values, index),
                                  .line = values->lines[index]};
    }
    size_t most = 0;
    uint32_t hash_line = values->columns_hash.count == 0 ? 0 : LINE(config, columns_hash);
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        most += columns_max(all[i].texts);
    }
    for (uint32_t i = 0; i < values->stream_count; i++) {
        for (uint32_t k = 0; k < MR_STREAM_COLUMNS; k++) {
            most += columns_max(&values->streams[i].columns[k]);
        }
        if (values->streams[i].columns[MR_COLUMN_HASH].count > 0) {
            hash_line = values->streams[i].line;
        }
    }
    struct mr_column_rule *rules =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_column_rule, most));
    uint32_t count = 0;
    /* A stream's own rule comes before one for all. Where a stream makes no route, the file is refused. */
    uint32_t streams =
        config->encode.route_count == values->stream_count ? values->stream_count : 0;
    for (uint32_t i = 0; i < streams; i++) {
        build_stream_columns(config, &values->streams[i], &config->encode.routes[i], rules, &count);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        build_columns(config, &all[i], rules, &count);
    }
    config->encode.column_rules = rules;
    config->encode.column_rule_count = count;
    name_columns(config, all, rules, count);
    if (hash_line == 0) {
        return;
    }
    if (values->columns_hash_salt_env[0] == '\0') {
        PROBLEM(
            config, hash_line,
            "columns.hash needs a salt, or whoever reads the topics finds values by trying; set "
            "columns.hash_salt_env");
        return;
    }
    config->encode.hash_salt = mr_config_keep_secret(
        config, mr_secret_read("salt", values->columns_hash_salt_env, "",
                               LINE(config, columns_hash_salt_env), &config->problems));
}

const char *mr_config_split_condition(const char *text, const char **ret_table_end)
{
    const char *colon = part_end(text, ":");
    const char *condition = *colon == ':' ? colon + 1 : "";
    *ret_table_end = colon;
    return condition + strspn(condition, " \t\r\n");
}

void mr_config_build_wheres(struct mr_config *config)
{
    const struct mr_strings *texts = &config->values.snapshot_where;
    struct mr_copy_where *wheres =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_copy_where, texts->count));
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];
        const char *colon;
        const char *condition = mr_config_split_condition(text, &colon);
        char reason[128] = "write \"schema.table: condition\"";
        if (condition[0] == '\0' ||
            !take_table(config, text, colon, &wheres[i].table, reason, sizeof(reason))) {
            PROBLEM(config, LINE(config, snapshot_where),
                    "snapshot.where: \"%s\" is no condition on a table's rows: %s", text, reason);
        }
        wheres[i].condition = condition;
        mr_config_add_rule(config, &(struct mr_pattern_rule){.option = "snapshot.where",
                                                             .text = text,
                                                             .table = wheres[i].table});
    }
    config->source.wheres = wheres;
    config->source.where_count = texts->count;
}
