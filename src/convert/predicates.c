/* Predicates of transformations: which tables' events a transformation is for. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "encode/encode.h"

/* The option "<section>.<name>.<option>"; NULL: it is not there. `takes` marks it as done. */
static const struct mr_convert_line *option_of(struct mr_convert *convert, const char *section,
                                               const char *name, const char *option, bool takes)
{
    struct mr_text text = {0};
    mr_text_format(&text, "%s.%s.%s", section, name, option);
    const struct mr_convert_line *line =
        takes ? mr_convert_take(convert, text.data) : mr_convert_find(convert, text.data);
    mr_text_done(&text);
    return line;
}

static bool is_class(const char *type, const char *class)
{
    const char *dot = strrchr(type, '.');
    return strcmp(dot == NULL ? type : dot + 1, class) == 0;
}

/* The first part of topics; NULL: it is not known here. */
static const char *prefix_of(const struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_find(convert, "topic.prefix");
    return line == NULL || line->value[0] == '\0' || mr_convert_is_expression(line->value)
               ? NULL
               : line->value;
}

static const char *delimiter_of(const struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_find(convert, "topic.delimiter");
    return line == NULL || line->value[0] == '\0' ? "." : line->value;
}

/* The topic of a table, "schema.table"; the caller's. */
static char *topic_of(const struct mr_convert *convert, const char *table)
{
    const char *dot = strchr(table, '.');
    struct mr_text schema = {0};
    mr_text_add(&schema, table, (size_t)(dot - table));
    char *topic = mr_topic_name(prefix_of(convert), delimiter_of(convert), schema.data, dot + 1);
    mr_text_done(&schema);
    return topic;
}

/* Kafka Connect: TopicNameMatches, whose pattern fits the whole name. */
static struct mr_regex *compile(const char *java)
{
    char reason[128];
    return mr_convert_same_regex(java) ? mr_regex_new(java, reason, sizeof(reason)) : NULL;
}

static bool matches(const struct mr_regex *regex, const char *topic)
{
    return mr_regex_match(regex, mr_slice_of(topic), NULL) == MR_REGEX_YES;
}

/* The tables that the pattern itself spells out, behind the prefix, for those of "tables" that are patterns; false: it does not. */
static bool spell_out(const struct mr_convert *convert, const char *java,
                      struct mr_convert_list *ret)
{
    struct mr_convert_list topics = {0};
    size_t len = strlen(prefix_of(convert));
    bool good = strcmp(delimiter_of(convert), ".") == 0 && mr_convert_expand(java, &topics);
    for (uint32_t i = 0; i < topics.count && good; i++) {
        const char *topic = topics.items[i];
        good = strncmp(topic, prefix_of(convert), len) == 0 && topic[len] == '.';
        const char *dot = good ? strchr(topic + len + 1, '.') : NULL;
        good = dot != NULL && dot[1] != '\0' && strchr(dot + 1, '.') == NULL &&
               strpbrk(topic, "\"*+?[({|\\^") == NULL;
        if (good) {
            mr_convert_list_add(ret, MR_STRDUP(topic + len + 1));
        }
    }
    mr_convert_list_done(&topics);
    return good;
}

/* Whether messages may be events of an outbox: what decodes them is there (Debezium, "Outbox event router", logical decoding
 * messages). */
static bool decodes_messages(const struct mr_convert *convert)
{
    static const char class[] = "DecodeLogicalDecodingMessageContent";
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        const struct mr_convert_line *line = &convert->lines.items[i];
        if (strncmp(line->name, "transforms.", 11) == 0 && is_class(line->value, class)) {
            return true;
        }
    }
    return false;
}

static bool tables_of(const struct mr_convert *convert, const char *java, bool negate,
                      struct mr_convert_list *ret)
{
    struct mr_regex *regex = prefix_of(convert) == NULL ? NULL : compile(java);
    if (regex == NULL) {
        return false;
    }
    struct mr_text messages = {0};
    mr_text_format(&messages, "%s.message", prefix_of(convert));
    bool good = !decodes_messages(convert) || matches(regex, messages.data) == negate;
    mr_text_done(&messages);
    for (uint32_t i = 0; i < convert->tables.count; i++) {
        char *topic = topic_of(convert, convert->tables.items[i]);
        if (matches(regex, topic) != negate) {
            mr_convert_list_add(ret, MR_STRDUP(convert->tables.items[i]));
        }
        free(topic);
    }
    mr_regex_free(regex);
    return good && (convert->patterns.count == 0 ? convert->tables_known
                                                 : !negate && spell_out(convert, java, ret));
}

/* Connect knows those that "predicates" lists. */
static bool is_listed(const struct mr_convert *convert, const char *name)
{
    const struct mr_convert_line *line = mr_convert_find(convert, "predicates");
    struct mr_convert_list names = {0};
    mr_convert_split(line == NULL ? "" : line->value, ',', &names);
    bool found = false;
    for (uint32_t i = 0; i < names.count; i++) {
        found |= strcmp(names.items[i], name) == 0;
    }
    mr_convert_list_done(&names);
    return found;
}

enum mr_convert_scope mr_convert_scope(struct mr_convert *convert, const char *alias, bool takes,
                                       struct mr_convert_list *ret)
{
    const struct mr_convert_line *predicate =
        option_of(convert, "transforms", alias, "predicate", takes);
    const struct mr_convert_line *negate = option_of(convert, "transforms", alias, "negate", takes);
    if (predicate == NULL || predicate->value[0] == '\0') {
        return MR_SCOPE_ALL;
    }
    const char *name = predicate->value;
    const struct mr_convert_line *type = option_of(convert, "predicates", name, "type", false);
    const struct mr_convert_line *pattern =
        option_of(convert, "predicates", name, "pattern", false);
    bool negates = negate != NULL && strcasecmp(negate->value, "true") == 0;
    if (type == NULL || pattern == NULL || !is_listed(convert, name) ||
        !is_class(type->value, "TopicNameMatches") || convert->has_router ||
        !tables_of(convert, pattern->value, negates, ret)) {
        if (takes) {
            mr_convert_note(convert, MR_NOTE_LOST, predicate->given,
                            "which tables it means can't be told from it, so the transformation is "
                            "left out; outbox.tables and outbox.messages say which rows and "
                            "messages are events of an outbox");
        }
        return MR_SCOPE_UNKNOWN;
    }
    if (takes) {
        mr_convert_take(convert, "predicates");
        option_of(convert, "predicates", name, "type", true);
        option_of(convert, "predicates", name, "pattern", true);
    }
    return MR_SCOPE_TABLES;
}
