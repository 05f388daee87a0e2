/* [routing]: topics of tables. */
#include <string.h>

#include "config/names.h"

static void build_rewrite(struct mr_config *config, struct mr_rewrite *rewrite, uint32_t line,
                          const char *names, const char *expression, const char *replacement)
{
    char reason[256];
    if (expression[0] == '\0' && replacement[0] == '\0') {
        return;
    }
    if (expression[0] == '\0' || replacement[0] == '\0') {
        PROBLEM(config, line, "%s belong together, and one of them is empty", names);
    } else if (!mr_rewrite_init(rewrite, expression, replacement, reason, sizeof(reason))) {
        PROBLEM(config, line, "%s: %s", names, reason);
    }
}

/* ---- by a column's value ---- */

/* What stands around {topic} and {value} must be good for a name, and each value have one of its own. */
static void check_template(struct mr_config *config, const char *text, const char *template)
{
    static const struct {
        const char *word;
        const char *stands_for;
    } words[] = {{"{topic}", "t"}, {"{value}", "v"}};
    char fixed[512];
    size_t len = 0;
    unsigned values = 0;
    for (const char *at = template; *at != '\0' && len < sizeof(fixed) - 1;) {
        size_t skip = 0;
        for (size_t i = 0; i < MR_ARRAY_LEN(words); i++) {
            size_t word_len = strlen(words[i].word);
            if (strncmp(at, words[i].word, word_len) == 0) {
                values += i == 1;
                skip = word_len;
                fixed[len++] = words[i].stands_for[0];
            }
        }
        if (skip == 0) {
            fixed[len++] = *at;
            skip = 1;
        }
        at += skip;
    }
    fixed[len] = '\0';
    const char *fault = mr_topic_fault(fixed);
    if (values != 1) {
        PROBLEM(config, LINE(config, routing_by_column),
                "routing.by_column: the topic in \"%s\" must have {value} in it, once", text);
    } else if (fault != NULL) {
        PROBLEM(config, LINE(config, routing_by_column),
                "routing.by_column: the topic in \"%s\" %s", text, fault);
    }
}

/* "schema.table:column", and a topic after =. */
static bool take_column(struct mr_config *config, const char *text, struct mr_column_route *ret,
                        struct mr_reason *reason)
{
    const char *colon = mr_names_end(text, ":");
    if (*colon != ':' || !mr_names_table_pattern(config, text, colon, &ret->table, reason)) {
        return false;
    }
    const char *end = mr_names_end(colon + 1, "=");
    ret->column = mr_names_name(config, colon + 1, end, "", false);
    ret->topic = *end == '=' ? end + 1 : NULL;
    return ret->column != NULL;
}

static void build_by_column(struct mr_config *config)
{
    const struct mr_strings *texts = &config->values.routing_by_column;
    struct mr_column_route *routes =
        mr_config_keep(config, MR_NEW_ARRAY(struct mr_column_route, texts->count));
    uint32_t count = 0;
    for (uint32_t i = 0; i < texts->count; i++) {
        struct mr_column_route *route = &routes[count];
        struct mr_reason reason = {
            "write \"schema.table:column\" or \"schema.table:column=topic\""};
        if (!take_column(config, texts->items[i], route, &reason)) {
            PROBLEM(config, LINE(config, routing_by_column),
                    "routing.by_column: \"%s\" names no column: %s", texts->items[i], reason.text);
            continue;
        }
        if (route->topic == NULL) {
            route->topic = "{topic}.{value}";
        }
        check_template(config, texts->items[i], route->topic);
        if (mr_pattern_is_name(&route->table.schema) && mr_pattern_is_name(&route->table.table)) {
            mr_config_check_streamed(config, MR_INDEX_routing_by_column, route->table.schema.text,
                                     route->table.table.text);
        } else {
            struct mr_pattern *column = mr_config_keep(config, MR_NEW(struct mr_pattern));
            *column = (struct mr_pattern){.text = route->column};
            mr_config_add_rule(config, &(struct mr_pattern_rule){.option = "routing.by_column",
                                                                 .text = texts->items[i],
                                                                 .table = route->table,
                                                                 .column = column});
        }
        count++;
    }
    config->routing.by_column = routes;
    config->routing.by_column_count = count;
    config->routing.falls_back = config->values.routing_fallback != 0;
    config->routing.topics_max = (uint32_t)config->values.routing_topics_max;
}

static void check_by_column(struct mr_config *config)
{
    const struct mr_encode_options *encode = &config->encode;
    for (uint32_t i = 0; i < encode->route_count; i++) {
        const struct mr_route *table = &encode->routes[i];
        const struct mr_column_route *route =
            mr_column_route_of(encode, table->schema, table->table);
        bool is_outbox = mr_is_outbox(encode, table->schema, table->table);
        if (route == NULL) {
            continue;
        }
        if (table->topic != NULL || is_outbox) {
            PROBLEM(config, LINE(config, routing_by_column),
                    "routing.by_column: table %s.%s %s; keep one of the two", table->schema,
                    table->table,
                    is_outbox ? "is an outbox, whose rows have topics already (outbox.route_by)"
                              : "has a destination of its own");
            continue;
        }
        /* Of tables by pattern the first row tells (encode/place.c). */
        mr_config_want_held(config, "routing.by_column", table, route->column);
    }
    if (encode->format == MR_FORMAT_AVRO && config->values.registry_subjects != MR_SUBJECT_RECORD) {
        PROBLEM(config, LINE(config, routing_by_column),
                "routing.by_column: a table's topics have one schema, and its subject can't be "
                "named after one of them; set schema_registry.subject_strategy = \"record\"");
    }
}

void mr_config_build_routing(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct mr_routing *routing = &config->routing;
    build_rewrite(config, &routing->topic, LINE_OF(config, routing_regex, routing_topic),
                  "routing.topic_regex and routing.topic", values->routing_regex,
                  values->routing_topic);
    mr_names_check_topic(config, MR_INDEX_routing_topic, values->routing_topic,
                         LINE(config, routing_topic));
    build_rewrite(config, &routing->key, LINE_OF(config, routing_key_regex, routing_key_value),
                  "routing.key_regex and routing.key_value", values->routing_key_regex,
                  values->routing_key_value);
    routing->sharing = (enum mr_sharing)values->routing_sharing;
    routing->key_field = values->routing_key_field;
    if (routing->sharing == MR_SHARING_IN_KEY &&
        (routing->topic.regex == NULL || routing->key_field[0] == '\0')) {
        PROBLEM(config, LINE(config, routing_sharing),
                "routing.sharing = \"key\" is for topics that routing.topic_regex matches, and "
                "needs a routing.key_field; set both");
    }
    build_by_column(config);
    if (routing->topic.regex != NULL || routing->sharing != MR_SHARING_REFUSED ||
        routing->by_column_count > 0) {
        config->encode.routing = routing;
    }
    if (routing->by_column_count > 0) {
        check_by_column(config);
    }
}
