/* Which tables and columns, and what keys are. */

#include "convert/convert_internal.h"

static const char list_tables[] = "in psql: SELECT format('%I.%I', schemaname, tablename) FROM "
                                  "pg_publication_tables WHERE pubname = '…'";

static void note_case(struct mr_convert *c, const struct mr_cv_line *line, const char *table)
{
    if (mr_cv_has_upper(table)) {
        TO_DO(c, line->given,
              "Debezium does not tell upper from lower case, PostgreSQL and \"tables\" do: see "
              "that %s is written as its table is",
              table);
    }
}

/* Whether it is "schema.table" as the option "tables" has it. */
static bool tables_is_table(const char *text)
{
    const char *dot = strchr(text, '.');
    return dot != NULL && dot != text && dot[1] != '\0' && strpbrk(dot + 1, ".\"") == NULL &&
           strchr(text, '"') == NULL;
}

/* The tables that a pattern names one by one; false: it does not. */
static bool spell_out(struct mr_convert *c, const char *pattern, struct mr_cv_list *ret)
{
    return mr_cv_expand(c, pattern, ret) &&
           MR_ALL(item, ret->items, ret->count, tables_is_table(*item));
}

#define WORD_SIGNS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* The pattern itself, where its tables can't be told from it. */
static void tables_add_pattern(struct mr_convert *c, const struct mr_cv_line *line,
                               const char *pattern, uint32_t nth)
{
    const char *text = mr_cv_pattern(c, pattern, 2, false);
    size_t word = strspn(pattern + (pattern[0] == '^'), WORD_SIGNS);
    const char *rest = pattern + (pattern[0] == '^') + word;
    /* "public.*", the common way to say all tables of a schema: to Java, any name that begins with
     * public. */
    if (text == NULL && word > 0 && (strcmp(rest, ".*") == 0 || strcmp(rest, ".*$") == 0)) {
        const char *schema = mr_cv_part(c, rest - word, word);
        text = mr_cv_text(c, "%s%s.*", mr_cv_has_upper(schema) ? "(?i)" : "", schema);
        TO_DO(c, line->given,
              "pattern %u, %s, is taken for all tables of that schema; to Java its dot is any "
              "character: if other schemas' names begin so, add their tables to \"tables\"",
              nth, pattern);
    }
    if (text == NULL) {
        TO_DO(c, line->given,
              "pattern %u does not name its tables one by one; add them, or a pattern as "
              "docs/configuration.md writes it, to \"tables\" (%s)",
              nth, list_tables);
    }
    mr_cv_add(c, &c->patterns, text == NULL ? MR_CONVERT_TABLE : text);
}

/* All tables but those that table.exclude.list leaves out; false: there is none, or one of its
 * patterns can't be told. */
static bool convert_all_but(struct mr_convert *c)
{
    struct mr_cv_line *line = mr_cv_find(c, "table.exclude.list");
    struct mr_cv_list patterns = mr_cv_patterns(c, line == NULL ? NULL : line->value);
    struct mr_cv_list excluded = {0};
    bool good = patterns.count > 0 && mr_cv_find(c, "schema.include.list") == NULL &&
                mr_cv_find(c, "schema.exclude.list") == NULL;
    for (uint32_t i = 0; i < patterns.count; i++) {
        const char *text = mr_cv_pattern(c, patterns.items[i], 2, true);
        good = good && text != NULL;
        mr_cv_add(c, &excluded, text);
    }
    if (good) {
        line->done = true;
        mr_cv_add(c, &c->patterns, "*.*");
        mr_cv_set_list(c, "excluded_tables", &excluded);
    }
    return good;
}

static void convert_list(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_take(c, "table.include.list");
    const char *value = line == NULL || mr_cv_is_expression(line->value) ? NULL : line->value;
    struct mr_cv_list patterns = mr_cv_patterns(c, value);
    c->tables_known = patterns.count > 0;
    for (uint32_t i = 0; i < patterns.count; i++) {
        struct mr_cv_list tables = {0};
        bool good = spell_out(c, patterns.items[i], &tables);
        for (uint32_t k = 0; good && k < tables.count; k++) {
            if (!mr_cv_holds(&c->tables, tables.items[k])) {
                mr_cv_add(c, &c->tables, tables.items[k]);
            }
        }
        if (!good) {
            c->tables_known = false;
            tables_add_pattern(c, line, patterns.items[i], i + 1);
        }
    }
    if (patterns.count == 0 && !convert_all_but(c)) {
        TO_DO(c, "table.include.list",
              "the tables are not named in it; name them in \"tables\" (%s)", list_tables);
    }
    for (uint32_t i = 0; i < c->tables.count; i++) {
        note_case(c, line, c->tables.items[i]);
    }
}

/* "schema.table:a,b;…" to key_columns. */
static void convert_keys(struct mr_convert *c)
{
    struct mr_cv_list rules = mr_cv_split(c, mr_cv_value(c, "message.key.columns"), ';');
    struct mr_cv_list keys = {0};
    for (uint32_t i = 0; i < rules.count; i++) {
        struct mr_cv_list tables = {0};
        const char *rule = rules.items[i];
        const char *columns = rule + strcspn(rule, ":");
        struct mr_cv_list names = mr_cv_split(c, columns + (*columns == ':'), ',');
        bool good =
            names.count > 0 && spell_out(c, mr_cv_part(c, rule, (size_t)(columns - rule)), &tables);
        if (!good) {
            LOST(c, "message.key.columns",
                 "part %u does not name its tables one by one; name them in key_columns", i + 1);
        }
        for (uint32_t k = 0; good && k < tables.count; k++) {
            const char *key = tables.items[k];
            for (uint32_t n = 0; n < names.count; n++) {
                key = mr_cv_text(c, "%s%s%s", key, n == 0 ? ":" : ",", names.items[n]);
            }
            mr_cv_add(c, &keys, key);
        }
    }
    if (keys.count > 0) {
        mr_cv_set_list(c, "key_columns", &keys);
    }
}

void mr_cv_tables(struct mr_convert *c)
{
    convert_list(c);
    convert_keys(c);
}

/* The rules of one option; false: they are fewer than it has. */
static bool tables_add_columns(struct mr_convert *c, const struct mr_cv_line *line,
                               const char *option, const char *length, struct mr_cv_list *columns)
{
    bool includes = strcmp(option, "columns.include") == 0;
    struct mr_cv_list patterns = mr_cv_patterns(c, line->value);
    struct mr_cv_list rules = {0};
    bool good = true;
    for (uint32_t i = 0; i < patterns.count; i++) {
        if (includes) {
            const char *text = mr_cv_pattern(c, patterns.items[i], 3, true);
            good &= text != NULL;
            if (text != NULL) {
                mr_cv_add(c, &rules, text);
            }
        } else {
            good &= mr_cv_hiding(c, patterns.items[i], &rules);
        }
    }
    for (uint32_t i = 0; i < rules.count; i++) {
        mr_cv_add(c, columns, mr_cv_text(c, "%s%s", rules.items[i], length));
    }
    return good;
}

/* "=10" of "column.mask.with.10.chars"; NULL: it has no such number. */
static const char *length_in(struct mr_convert *c, const char *rest)
{
    enum { DIGITS_MAX = 6 };
    size_t digits = strspn(rest, "0123456789");
    return digits > 0 && digits <= DIGITS_MAX && strcmp(rest + digits, ".chars") == 0
               ? mr_cv_text(c, "=%.*s", (int)digits, rest)
               : NULL;
}

enum column_kind { COLUMN_PLAIN, COLUMN_LENGTH, COLUMN_SALT };

/* Whether each table has a pattern, beyond whose columns it shows none. */
static bool name_each_table(struct mr_convert *c, const char *value)
{
    struct mr_cv_list patterns = mr_cv_patterns(c, value);
    bool good = c->tables_known;
    for (uint32_t i = 0; good && i < c->tables.count; i++) {
        uint32_t k = 0;
        while (k < patterns.count && !mr_cv_fits(c, patterns.items[k], c->tables.items[i])) {
            k++;
        }
        good = k < patterns.count;
    }
    return good;
}

/* Options whose names begin so; a length or a salt is the rest of the name. What it can't say of
 * them holds the file back. */
static void convert_columns(struct mr_convert *c, const char *name, const char *option,
                            enum column_kind kind)
{
    struct mr_cv_list columns = {0};
    const char *salt = NULL;
    size_t len = strlen(name);
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        if (line->done || strncmp(line->name, name, len) != 0 || mr_cv_is_expression(line->value)) {
            continue;
        }
        const char *rest = line->name + len;
        const char *length = kind == COLUMN_LENGTH ? length_in(c, rest) : "";
        bool fits = kind == COLUMN_PLAIN  ? rest[0] == '\0'
                    : kind == COLUMN_SALT ? salt == NULL || strcmp(salt, rest) == 0
                                          : length != NULL;
        if (!fits || !tables_add_columns(c, line, option, length, &columns)) {
            continue; /* hold_columns says so */
        }
        line->done = true;
        if (kind == COLUMN_SALT) {
            salt = rest;
            TO_DO(c, line->given, "put the salt into the environment variable MILLRACE_HASH_SALT");
        }
    }
    if (columns.count > 0) {
        mr_cv_set_list(c, option, &columns);
    }
    const struct mr_cv_line *include = mr_cv_find(c, name);
    if (include != NULL && include->done && strcmp(option, "columns.include") == 0 &&
        !name_each_table(c, include->value)) {
        mr_cv_hold(c, name, option,
                   "tables that none of its patterns names keep all their columns");
    }
}

static const char cannot_say[] = "has what columns.* can't say: the version or the number in its "
                                 "name, a second salt, a pattern, or a value from elsewhere";

/* The options that hide and were not carried over, or not all of what they name. */
static void hold_columns(struct mr_convert *c)
{
    static const char *const kinds[][2] = {
        {"column.include.list", "columns.include"}, {"column.exclude.list", "columns.exclude"},
        {"column.mask.hash.", "columns.hash"},      {"column.mask.", "columns.mask"},
        {"column.truncate.", "columns.truncate"},
    };
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        for (size_t k = 0; k < MR_ARRAY_LEN(kinds); k++) {
            bool is_of = !line->done && strncmp(line->name, kinds[k][0], strlen(kinds[k][0])) == 0;
            if (is_of && line->value[0] != '\0') {
                mr_cv_hold(c, line->given, kinds[k][1], cannot_say);
            }
            line->done |= is_of;
        }
    }
}

void mr_cv_columns(struct mr_convert *c)
{
    convert_columns(c, "column.include.list", "columns.include", COLUMN_PLAIN);
    convert_columns(c, "column.exclude.list", "columns.exclude", COLUMN_PLAIN);
    convert_columns(c, "column.mask.with.", "columns.mask", COLUMN_LENGTH);
    convert_columns(c, "column.truncate.to.", "columns.truncate", COLUMN_LENGTH);
    convert_columns(c, "column.mask.hash.v2.SHA-256.with.salt.", "columns.hash", COLUMN_SALT);
    hold_columns(c);
    uint32_t hash;
    if (mr_option_find("columns.hash", &hash) && c->options[hash] != NULL) {
        mr_cv_set(c, "columns.hash_salt", "env:MILLRACE_HASH_SALT");
    }
}

/* Whether an option that takes tables away, by their schemas or their names, takes none of those
 * that are listed. */
static bool takes_none(struct mr_convert *c, const struct mr_cv_line *line)
{
    bool of_schemas = strncmp(line->name, "schema.", 7) == 0;
    bool includes = strcmp(line->name, "schema.include.list") == 0;
    struct mr_cv_list patterns = mr_cv_patterns(c, line->value);
    bool good = !mr_cv_is_expression(line->value) && (of_schemas || c->tables_known);
    for (uint32_t i = 0; good && i < c->tables.count; i++) {
        const char *table = c->tables.items[i]; /* or a pattern */
        table += strncmp(table, "(?i)", 4) == 0 ? 4 : 0;
        size_t schema = strspn(table, WORD_SIGNS "-$");
        const char *name = of_schemas ? mr_cv_part(c, table, schema) : table;
        bool fits = false;
        for (uint32_t k = 0; k < patterns.count; k++) {
            char reason[128];
            struct mr_regex *regex =
                mr_regex_new(mr_cv_text(c, "(?i)%s", patterns.items[k]), reason, sizeof(reason));
            good &= regex != NULL && mr_cv_same_regex(patterns.items[k]);
            fits |= regex != NULL && mr_regex_match(regex, mr_slice_of(name), NULL) != MR_REGEX_NO;
            mr_regex_free(regex);
        }
        good &= table[schema] == '.' && fits == includes && strcmp(table, MR_CONVERT_TABLE) != 0;
    }
    return good;
}

void mr_cv_hidden(struct mr_convert *c)
{
    static const char *const away[] = {"schema.include.list", "schema.exclude.list",
                                       "table.exclude.list"};
    static const char *const others[][3] = {
        {"snapshot.select.statement.overrides", "snapshot.where",
         "statements are not taken over, but a condition for each table"},
        {"converters", "columns.exclude",
         "Java classes are not loaded, and values are what \"types\" says"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(away); i++) {
        struct mr_cv_line *line = mr_cv_find(c, away[i]);
        if (line == NULL || line->done || line->value[0] == '\0') {
            continue;
        }
        line->done = true;
        if (takes_none(c, line)) {
            IDLE(c, line->given, "leaves out none of the listed tables");
        } else {
            mr_cv_hold(c, line->given, "tables", "may leave out some of the listed tables");
        }
    }
    const struct mr_cv_line *skipped = mr_cv_find(c, "skipped.operations");
    if (skipped != NULL && mr_cv_is_expression(skipped->value)) {
        mr_cv_hold(c, skipped->given, "tables", "comes from a config provider of Connect");
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(others); i++) {
        struct mr_cv_line *line = mr_cv_find(c, others[i][0]);
        if (line != NULL && line->value[0] != '\0') {
            line->done = true;
            mr_cv_hold(c, line->given, others[i][1], others[i][2]);
        }
    }
}
