/* Debezium's transformation EventRouter as [outbox]: what takes more than another name (debezium.def has the rest). */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

static void convert_route(struct mr_convert *convert, const char *alias)
{
    const struct mr_convert_line *regex =
        mr_convert_take_option(convert, alias, "route.topic.regex");
    const struct mr_convert_line *replacement =
        mr_convert_take_option(convert, alias, "route.topic.replacement");
    if (!mr_convert_rewrite(convert, regex == NULL ? "(?<routedByValue>.*)" : regex->value,
                            replacement == NULL ? "outbox.event.${routedByValue}"
                                                : replacement->value,
                            "outbox.topic_regex", "outbox.topic")) {
        mr_convert_note(convert, MR_NOTE_TO_DO, (regex != NULL ? regex : replacement)->given,
                        "expression or replacement has what only Java knows; write "
                        "outbox.topic_regex and outbox.topic (docs/outbox.md)");
    }
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
