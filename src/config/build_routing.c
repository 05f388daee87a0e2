/* [routing]: topics of tables. */

#include "config/names.h"

void mr_config_build_routing(struct mr_config *config)
{
    struct mr_routing *routing = &config->routing;
    if (config->values.routing_topic.count > 0) {
        mr_names_rewrite(config, MR_INDEX_routing_topic, &routing->topic);
        mr_names_check_topic(config, MR_INDEX_routing_topic);
    }
    if (config->values.routing_key_value.count > 0) {
        mr_names_rewrite(config, MR_INDEX_routing_key_value, &routing->key);
    }
    if (routing->sharing == MR_SHARING_IN_KEY &&
        (routing->topic.regex == NULL || routing->key_field[0] == '\0')) {
        PROBLEM(config, LINE(config, routing_sharing),
                "routing.sharing = \"key\" is for topics that routing.topic names, and needs a "
                "routing.key_field; set both");
    }
    if (routing->topic.regex != NULL || routing->sharing != MR_SHARING_REFUSED) {
        config->encode.routing = routing;
    }
}
