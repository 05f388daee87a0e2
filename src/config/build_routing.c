/* [routing]: topics of tables. */

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
    if (routing->sharing == MR_SHARING_IN_KEY &&
        (routing->topic.regex == NULL || routing->key_field[0] == '\0')) {
        PROBLEM(config, LINE(config, routing_sharing),
                "routing.sharing = \"key\" is for topics that routing.topic_regex matches, and "
                "needs a routing.key_field; set both");
    }
    if (routing->topic.regex != NULL || routing->sharing != MR_SHARING_REFUSED) {
        config->encode.routing = routing;
    }
}
