/* Debezium's transformation EventRouter as [outbox]: what takes more than another name (debezium.def has the rest). */
#include <stdlib.h>
#include <string.h>

#include "base/rewrite.h"
#include "convert/convert_internal.h"

enum { GROUPS_MAX = 9 };

/* Names of a Java expression's groups, in order; "" where one has none. */
struct groups {
    struct mr_convert_list names;
};

/* The expression with groups that have no names. */
static char *without_names(const char *java, struct groups *ret)
{
    struct mr_text out = {0};
    mr_text_string(&out, "");
    for (const char *at = java; *at != '\0'; at++) {
        mr_text_add(&out, at, 1);
        if (*at == '\\' && at[1] != '\0') {
            mr_text_add(&out, ++at, 1);
        } else if (*at == '(') {
            const char *end = strncmp(at, "(?<", 3) == 0 ? strchr(at, '>') : NULL;
            struct mr_text name = {0};
            mr_text_string(&name, "");
            if (end != NULL) {
                mr_text_add(&name, at + 3, (size_t)(end - at) - 3);
                at = end;
            }
            mr_convert_list_add(&ret->names, name.data);
        }
    }
    return out.data;
}

/* The replacement with "$1" for "${name}". NULL: it has a name that is no group's. */
static char *with_numbers(const char *replacement, const struct groups *groups)
{
    struct mr_text out = {0};
    mr_text_string(&out, "");
    for (const char *at = replacement; *at != '\0'; at++) {
        const char *end = strncmp(at, "${", 2) == 0 ? strchr(at, '}') : NULL;
        if (end == NULL) {
            mr_text_add(&out, at, 1);
            continue;
        }
        size_t len = (size_t)(end - at) - 2;
        uint32_t group = 0;
        while (group < groups->names.count &&
               (strlen(groups->names.items[group]) != len ||
                strncmp(groups->names.items[group], at + 2, len) != 0)) {
            group++;
        }
        if (group == groups->names.count || group >= GROUPS_MAX) {
            mr_text_done(&out);
            return NULL;
        }
        mr_text_format(&out, "$%u", group + 1);
        at = end;
    }
    return out.data;
}

static void convert_route(struct mr_convert *convert, const char *alias)
{
    const struct mr_convert_line *regex =
        mr_convert_take_option(convert, alias, "route.topic.regex");
    const struct mr_convert_line *replacement =
        mr_convert_take_option(convert, alias, "route.topic.replacement");
    struct groups groups = {0};
    char *bare = without_names(regex == NULL ? "(?<routedByValue>.*)" : regex->value, &groups);
    char *posix = mr_convert_posix(bare);
    char *topic = with_numbers(
        replacement == NULL ? "outbox.event.${routedByValue}" : replacement->value, &groups);
    struct mr_rewrite rewrite;
    char reason[128];
    if (posix != NULL && topic != NULL &&
        mr_rewrite_init(&rewrite, posix, topic, reason, sizeof(reason))) {
        mr_rewrite_done(&rewrite);
        mr_convert_set(convert, "outbox.topic_regex", posix);
        mr_convert_set(convert, "outbox.topic", topic);
    } else {
        const struct mr_convert_line *told = regex != NULL ? regex : replacement;
        mr_convert_note(convert, MR_NOTE_TO_DO, told->given,
                        "expression and replacement are beyond POSIX's; write outbox.topic_regex "
                        "and outbox.topic (docs/outbox.md)");
    }
    free(bare);
    free(posix);
    free(topic);
    mr_convert_list_done(&groups.names);
}

void mr_convert_outbox(struct mr_convert *convert, const char *alias, const char *given)
{
    if (convert->has_outbox) {
        mr_convert_note(convert, MR_NOTE_LOST, given,
                        "there is one [outbox]; another pipeline has another");
        return;
    }
    convert->has_outbox = true;
    convert_route(convert, alias);
    const struct mr_convert_line *placement =
        mr_convert_take_option(convert, alias, "table.fields.additional.placement");
    if (placement != NULL) {
        struct mr_convert_list fields = {0};
        mr_convert_split(placement->value, ',', &fields);
        mr_convert_set_list(convert, "outbox.fields", &fields);
        mr_convert_list_done(&fields);
    }
}
