#include "config/names.h"

size_t mr_names_characters(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80; /* not the rest of a character */
    }
    return count;
}

#define EXPRESSION_SIGNS "*+?[({|\\^"

const char *mr_names_end(const char *at, const char *ends)
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
    return mr_config_keep(config, MR_STRNDUP(begin, (size_t)(end - begin)));
}

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

static void free_regex(void *regex)
{
    mr_regex_free(regex);
}

bool mr_names_pattern(struct mr_config *config, const char *begin, const char *end,
                      struct mr_pattern *ret, struct mr_reason *reason)
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
    struct mr_regex *regex = mr_regex_new(text, reason->text, sizeof(reason->text));
    ret->regex = mr_config_keep_until(config, regex, free_regex);
    return regex != NULL;
}

bool mr_names_table_pattern(struct mr_config *config, const char *text, const char *end,
                            struct mr_table_pattern *ret, struct mr_reason *reason)
{
    const char *dot = mr_names_end(text, ".:");
    dot = dot > end ? end : dot;
    if (dot == end || *dot != '.') {
        ret->schema = (struct mr_pattern){.text = "public"};
        return mr_names_pattern(config, text, end, &ret->table, reason);
    }
    return mr_names_pattern(config, text, dot, &ret->schema, reason) &&
           mr_names_pattern(config, dot + 1, end, &ret->table, reason);
}

bool mr_names_is_pattern(const char *text)
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

/* PostgreSQL compares such a pattern, too, and it has \b for a backspace and \B for a backslash
 * (manual, "Regular Expression Escapes"): the two would mean other tables. */
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

bool mr_names_take_pattern(struct mr_config *config, uint32_t option, const char *text,
                           struct mr_table_pattern *ret)
{
    struct mr_reason reason = {"write \"schema.table\", and quote parts that hold dots"};
    if (has_word_edge(text)) {
        reason = (struct mr_reason){
            "PostgreSQL, which reads it too, has \\b and \\B for something else"};
    } else if (mr_names_table_pattern(config, text, text + strlen(text), ret, &reason)) {
        return true;
    }
    REFUSE_AT(config, option, ": \"%s\" names no table: %s", text, reason.text);
    return false;
}

/* It has none of `apart` in it unless it is quoted. NULL: it is no name. */
static const char *take_name(struct mr_config *config, const char *begin, const char *end,
                             const char *apart, bool fold)
{
    char *text = copy_part(config, begin, end);
    bool is_quoted = text[0] == '"';
    struct mr_pattern name;
    struct mr_reason reason;
    for (char *at = text; fold && !is_quoted && *at != '\0'; at++) {
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at + ('a' - 'A') : *at);
    }
    bool good = mr_names_pattern(config, text, text + (end - begin), &name, &reason) &&
                mr_pattern_is_name(&name) && mr_names_characters(name.text) <= MR_NAME_MAX &&
                (is_quoted || strpbrk(name.text, apart) == NULL);
    return good ? name.text : NULL;
}

bool mr_names_table(struct mr_config *config, const char *text, const char *end, bool fold,
                    struct mr_table_name *ret)
{
    const char *dot = mr_names_end(text, ".");
    bool has_schema = dot < end;
    const char *schema = has_schema ? take_name(config, text, dot, ".", fold) : "public";
    const char *table = take_name(config, has_schema ? dot + 1 : text, end, ".", fold);
    *ret = (struct mr_table_name){.schema = schema, .table = table};
    return schema != NULL && table != NULL;
}

static bool take_list(struct mr_config *config, const char *text, struct mr_table_key *ret)
{
    const char *at = mr_names_end(text, ":");
    const char **columns = KEPT_ARRAY(config, const char *, strlen(text));
    bool good = *at == ':' && mr_names_table(config, text, at, false, &ret->table);
    ret->columns = columns;
    while (good && *at != '\0') {
        const char *end = mr_names_end(at + 1, ",");
        columns[ret->column_count] = take_name(config, at + 1, end, "", false);
        good = columns[ret->column_count++] != NULL;
        at = end;
    }
    return good;
}

static void check_list(struct mr_config *config, uint32_t option, const struct mr_table_key *lists,
                       uint32_t i)
{
    const struct mr_table_key *list = &lists[i];
    for (uint32_t k = 1; k < list->column_count; k++) {
        for (uint32_t before = 0; before < k; before++) {
            if (strcmp(list->columns[k], list->columns[before]) == 0) {
                REFUSE_AT(config, option, ": column \"%s\" of table %s.%s is listed twice",
                          list->columns[k], list->table.schema, list->table.table);
            }
        }
    }
    for (uint32_t k = 0; k < i; k++) {
        if (mr_table_name_equal(&list->table, &lists[k].table)) {
            REFUSE_AT(config, option, ": table %s.%s is listed twice", list->table.schema,
                      list->table.table);
        }
    }
}

const struct mr_table_key *mr_names_lists(struct mr_config *config, uint32_t option)
{
    const struct mr_strings *texts = mr_value_of(&config->values, option);
    struct mr_table_key *lists = KEPT_ARRAY(config, struct mr_table_key, texts->count);
    for (uint32_t i = 0; i < texts->count; i++) {
        lists[i].option = mr_option_at(option)->path;
        if (!take_list(config, texts->items[i], &lists[i])) {
            REFUSE_AT(
                config, option,
                ": \"%s\" does not name columns of a table; write "
                "\"schema.table:column,column\", and quote parts that hold dots, colons or commas",
                texts->items[i]);
            return NULL;
        }
        check_list(config, option, lists, i);
    }
    return lists;
}

const char *mr_names_condition(struct mr_config *config, uint32_t option, const char *text,
                               const char **ret_table_end)
{
    const char *colon = mr_names_end(text, ":");
    const char *condition = *colon == ':' ? colon + 1 : "";
    const char *fault = mr_sql_condition_fault(condition);
    if (fault != NULL) {
        REFUSE_AT(config, option, ": \"%s\": " MR_SQL_CONDITION_REFUSED "%s", text, fault);
    }
    *ret_table_end = colon;
    return condition + strspn(condition, " \t\r\n");
}

const char *mr_names_host_fault(const char *broker)
{
    if (strstr(broker, "://") != NULL) {
        return "has a scheme; write host:port, and set sink.kafka.tls for TLS";
    }
    if (broker[0] == '\0' || strpbrk(broker, " /@") != NULL) {
        return "is not host:port";
    }
    const char *bracket = broker[0] == '[' ? strchr(broker, ']') : broker;
    const char *colon = bracket == NULL ? NULL : strchr(bracket, ':');
    if (bracket == NULL || (bracket != broker && bracket[1] != ':' && bracket[1] != '\0')) {
        return "is not [address]:port";
    }
    if (colon == NULL) {
        return NULL; /* 9092 */
    }
    if (bracket == broker && strchr(colon + 1, ':') != NULL) {
        return "has several colons; write an IPv6 address as [address]:port";
    }
    char *end;
    long port = strtol(colon + 1, &end, 10);
    if (colon == broker || end == colon + 1 || *end != '\0' || port < 1 || port > 65535) {
        return "has no port between 1 and 65535 after its colon";
    }
    return NULL;
}

bool mr_names_in_clear(const char *url)
{
    static const char scheme[] = "http://";
    return strncmp(url, scheme, sizeof(scheme) - 1) == 0 &&
           !mr_is_among("localhost|localhost:*|localhost/*|127.0.0.1|127.0.0.1:*|127.0.0.1/*|"
                        "[::1]|[::1]:*|[::1]/*",
                        mr_slice_of(url + sizeof(scheme) - 1));
}

void mr_names_rewrite(struct mr_config *config, uint32_t option, struct mr_rewrite *ret)
{
    const struct mr_strings *given = mr_value_of(&config->values, option);
    const char *expression = given->count == 1 ? "(.*)" : given->items[0];
    char reason[256];
    if (!mr_rewrite_init(ret, expression, given->items[given->count - 1], reason, sizeof(reason))) {
        REFUSE_AT(config, option, ": %s", reason);
    }
}

void mr_names_check_topic(struct mr_config *config, uint32_t option)
{
    const struct mr_strings *given = mr_value_of(&config->values, option);
    const char *replacement = given->items[given->count - 1];
    char fixed[2] = {0};
    for (const char *at = replacement; *at != '\0'; at++) {
        if (*at == '$' && at[1] != '\0') {
            const char *named = at[1] == '{' ? strchr(at, '}') : NULL;
            at = named != NULL ? named : at + 1;
            continue;
        }
        at += *at == '\\' && at[1] != '\0';
        fixed[0] = *at == '.' ? '_' : *at; /* a name of one dot is bad, one with a dot is not */
        const char *fault = mr_topic_fault(fixed);
        if (fault != NULL) {
            REFUSE_AT(config, option, ": \"%s\" %s", replacement, fault);
            return;
        }
    }
}
