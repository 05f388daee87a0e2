/* Predicates of transformations: which tables' events a transformation is for. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "encode/encode.h"

/* The first part of topics; NULL: it is not known here. */
static const char *prefix_of(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_find(c, "topic.prefix");
    bool known = line != NULL && line->value[0] != '\0' && !mr_cv_is_expression(line->value);
    return known ? line->value : NULL;
}

static const char *delimiter_of(struct mr_convert *c)
{
    const struct mr_cv_line *line = mr_cv_find(c, "topic.delimiter");
    return line == NULL || line->value[0] == '\0' ? "." : line->value;
}

static bool table_matches(struct mr_convert *c, const struct mr_regex *regex, const char *table)
{
    const char *dot = strchr(table, '.');
    const char *schema = mr_cv_part(c, table, (size_t)(dot - table));
    char *topic = mr_topic_name(prefix_of(c), delimiter_of(c), schema, dot + 1);
    bool matches = mr_regex_match(regex, mr_slice_of(topic), NULL) == MR_REGEX_YES;
    free(topic);
    return matches;
}

/* The tables that the pattern itself spells out, after the prefix, for those of "tables" that are
 * patterns; false: it does not. */
static bool spell_out(struct mr_convert *c, const char *java, struct mr_cv_list *ret)
{
    struct mr_cv_list topics = {0};
    size_t len = strlen(prefix_of(c));
    bool good = strcmp(delimiter_of(c), ".") == 0 && mr_cv_expand(c, java, &topics);
    for (uint32_t i = 0; i < topics.count && good; i++) {
        const char *topic = topics.items[i];
        good = strncmp(topic, prefix_of(c), len) == 0 && topic[len] == '.';
        const char *dot = good ? strchr(topic + len + 1, '.') : NULL;
        good = dot != NULL && dot[1] != '\0' && strchr(dot + 1, '.') == NULL &&
               strpbrk(topic, "\"*+?[({|\\^") == NULL;
        if (good) {
            mr_cv_add(c, ret, topic + len + 1);
        }
    }
    return good;
}

/* Whether messages may be events of an outbox: what decodes them is there (Debezium, "Outbox event
 * router", logical decoding messages). */
static bool decodes_messages(const struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        if (strncmp(c->lines[i].name, "transforms.", 11) == 0 &&
            mr_cv_is_class(c->lines[i].value, "DecodeLogicalDecodingMessageContent")) {
            return true;
        }
    }
    return false;
}

/* Kafka Connect: TopicNameMatches, whose pattern fits the whole name. */
static bool tables_of(struct mr_convert *c, const char *java, bool negate, struct mr_cv_list *ret)
{
    char reason[128];
    struct mr_regex *regex = prefix_of(c) != NULL && mr_cv_same_regex(java)
                                 ? mr_regex_new(java, reason, sizeof(reason))
                                 : NULL;
    if (regex == NULL) {
        return false;
    }
    mr_slice messages = mr_slice_of(mr_cv_text(c, "%s.message", prefix_of(c)));
    bool means_messages = (mr_regex_match(regex, messages, NULL) == MR_REGEX_YES) != negate;
    for (uint32_t i = 0; i < c->tables.count; i++) {
        if (table_matches(c, regex, c->tables.items[i]) != negate) {
            mr_cv_add(c, ret, c->tables.items[i]);
        }
    }
    mr_regex_free(regex);
    return !(decodes_messages(c) && means_messages) &&
           (c->patterns.count == 0 ? c->tables_known : !negate && spell_out(c, java, ret));
}

enum mr_cv_scope mr_cv_scope_of(struct mr_convert *c, const char *alias, bool takes,
                                struct mr_cv_list *ret)
{
    struct mr_cv_line *predicate = mr_cv_find(c, mr_cv_text(c, "transforms.%s.predicate", alias));
    struct mr_cv_line *negate = mr_cv_find(c, mr_cv_text(c, "transforms.%s.negate", alias));
    const char *name = predicate == NULL ? "" : predicate->value;
    struct mr_cv_line *type = mr_cv_find(c, mr_cv_text(c, "predicates.%s.type", name));
    struct mr_cv_line *pattern = mr_cv_find(c, mr_cv_text(c, "predicates.%s.pattern", name));
    struct mr_cv_line *listed = mr_cv_find(c, "predicates"); /* Connect knows those */
    struct mr_cv_list names = mr_cv_split(c, listed == NULL ? NULL : listed->value, ',');
    bool negates = negate != NULL && strcasecmp(negate->value, "true") == 0;
    if (takes && predicate != NULL) {
        predicate->done = true;
    }
    if (takes && negate != NULL) {
        negate->done = true;
    }
    if (name[0] == '\0') {
        return MR_CV_ALL;
    }
    bool known = type != NULL && pattern != NULL && mr_cv_holds(&names, name) &&
                 mr_cv_is_class(type->value, "TopicNameMatches") && !c->has_router &&
                 tables_of(c, pattern->value, negates, ret);
    if (takes && known) {
        type->done = pattern->done = listed->done = true;
    }
    if (takes && !known) {
        LOST(c, predicate->given,
             "which tables it means can't be told from it, so the transformation is left out; "
             "outbox.tables and outbox.messages say which rows and messages are events of an "
             "outbox");
    }
    return known ? MR_CV_TABLES : MR_CV_SCOPE_UNKNOWN;
}
