/* How events look: format, values, operations, topics of their own. */
#include <stdlib.h>
#include <string.h>

#include "config/names.h"

/* ---- topics ---- */

/* Two names of 63 bytes and two dots must still fit behind it. */
static void check_prefix(struct mr_config *config)
{
    enum { PREFIX_MAX = 249 - 2 * (MR_NAME_MAX + 1) };
    const char *prefix = config->values.topic_prefix;
    const char *fault = mr_topic_fault(prefix);
    if (fault == NULL && strlen(prefix) > PREFIX_MAX) {
        fault = "is longer than 121 characters, and schema and table must fit behind it";
    }
    if (fault != NULL) {
        REFUSE(config, topic_prefix, ": \"%s\" %s", prefix, fault);
    }
}

/* ---- operations ---- */

static const struct {
    const char *name;
    uint32_t bits;
} operations[] = {
    {"insert", 1u << MR_OP_INSERT},   {"update", 1u << MR_OP_UPDATE},
    {"delete", 1u << MR_OP_DELETE},   {"truncate", 1u << MR_OP_TRUNCATE},
    {"message", 1u << MR_OP_MESSAGE},
};

uint32_t mr_config_operations(struct mr_config *config, const struct mr_strings *names,
                              uint32_t line, bool outboxx)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t found = 0;
        for (size_t k = 0; k < MR_ARRAY_LEN(operations); k++) {
            if (strcmp(names->items[i], operations[k].name) == 0) {
                found = operations[k].bits;
            }
        }
        if (outboxx && strcmp(names->items[i], "read") == 0) {
            found = 1u << MR_OP_READ;
        }
        if (found == 0) {
            PROBLEM(config, line,
                    "\"%s\" is not an operation; known are insert, update, delete, truncate%s",
                    names->items[i], outboxx ? " and read" : " and message");
        }
        bits |= found;
    }
    return bits;
}

/* ---- modes ---- */

static void build_modes(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.modes = (struct mr_value_modes){
        .decimal = (enum mr_decimal_mode)values->decimal_mode,
        .time = (enum mr_time_mode)values->time_mode,
        .binary = (enum mr_binary_mode)values->binary_mode,
        .interval = (enum mr_interval_mode)values->interval_mode,
        .hstore = (enum mr_hstore_mode)values->hstore_mode,
    };
    config->encode.topic_delimiter = values->topic_delimiter;
    config->encode.schema_topic = mr_config_or_null(values->schema_topic);
    if (values->topic_delimiter[0] == '\0' ||
        values->topic_delimiter[strspn(values->topic_delimiter, "._-")] != '\0') {
        REFUSE(config, topic_delimiter, ": \"%s\" is not made of dots, underscores and hyphens",
               values->topic_delimiter);
    }
}

static void build_transactions(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct mr_encode_options *encode = &config->encode;
    if (values->transaction_metadata == 0) {
        return;
    }
    char *name = mr_config_keep(config, mr_topic_name(values->topic_prefix, values->topic_delimiter,
                                                      "", values->topic_transaction));
    const char *fault = mr_topic_fault(name);
    if (fault != NULL || values->topic_transaction[0] == '\0') {
        REFUSE(config, topic_transaction, ": the topic \"%s\" %s", name,
               fault == NULL ? "needs a last part" : fault);
    }
    encode->transaction_topic = name;
}

static void build_heartbeat(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    bool has_topic = values->heartbeat_prefix[0] != '\0';
    config->heartbeat_ms = (uint32_t)values->heartbeat_interval;
    if ((values->heartbeat_interval != 0) != (has_topic || values->heartbeat_query[0] != '\0')) {
        PROBLEM(config,
                LINE(config, heartbeat_interval) != 0
                    ? LINE(config, heartbeat_interval)
                    : LINE_OF(config, heartbeat_query, heartbeat_prefix),
                "heartbeat.interval says how often, heartbeat.query and heartbeat.topic_prefix "
                "what; set both, or none");
    }
    if (!has_topic) {
        return;
    }
    if (config->encode.format == MR_FORMAT_AVRO || config->encode.format == MR_FORMAT_CLOUDEVENTS) {
        REFUSE(config, heartbeat_prefix,
               ": records of heartbeats are plain JSON, which format = \"avro\" and "
               "\"cloudevents\" don't mix with; a heartbeat.query that updates a captured table "
               "does");
    }
    char *name =
        mr_config_keep(config, mr_topic_name(values->heartbeat_prefix, values->topic_delimiter, "",
                                             values->topic_prefix));
    const char *of_prefix = mr_topic_fault(values->heartbeat_prefix);
    const char *fault = of_prefix == NULL ? mr_topic_fault(name) : of_prefix;
    if (fault != NULL) {
        REFUSE(config, heartbeat_prefix, ": the topic \"%s\" %s",
               of_prefix == NULL ? name : values->heartbeat_prefix, fault);
    }
    config->encode.heartbeat_topic = name;
}

void mr_config_build_encode(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->encode.format = (enum mr_format)values->format;
    bool flat = config->encode.format == MR_FORMAT_FLAT;
    config->encode.cloud = (struct mr_cloud_options){
        .mode = (enum mr_cloud_mode)values->cloud_mode,
        .id = (enum mr_cloud_id)values->cloud_id,
        .extensions = values->cloud_extensions != 0,
    };
    config->encode.types = (enum mr_types)values->types;
    config->encode.invalid_utf8 = (enum mr_invalid_utf8)values->invalid_utf8;
    config->encode.topic_prefix = values->topic_prefix;
    config->encode.tombstones = values->tombstones != 0;
    const char *fallback = flat ? "__outboxx_unknown_value__" : "__debezium_unavailable_value";
    config->encode.unavailable_value =
        LINE(config, unavailable_value) == 0 ? fallback : values->unavailable_value;
    config->encode.skipped_operations = mr_config_operations(
        config, &values->skipped_operations, LINE(config, skipped_operations), false);
    config->encode.message_prefixes = (const char *const *)values->message_prefixes.items;
    config->encode.message_prefix_count = values->message_prefixes.count;
    config->encode.message_bytes_max = (size_t)values->message_size_max;
    config->encode.message_excluded = (const char *const *)values->message_excluded.items;
    config->encode.message_excluded_count = values->message_excluded.count;
    config->encode.skip_unchanged = values->skip_unchanged != 0;
    build_modes(config);
    build_transactions(config);
    build_heartbeat(config);
    check_prefix(config);
    config->encode.kept_topic = mr_config_or_null(values->state_topic);
}
