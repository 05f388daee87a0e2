/* How events look: format, values, operations, topics of their own, what is added to rows without
 * an envelope. */

#include "config/names.h"

/* Two names of 63 bytes and two dots must still fit after it. */
static void check_prefix(struct mr_config *config)
{
    enum { PREFIX_MAX = 249 - 2 * (MR_NAME_MAX + 1) };
    const char *prefix = config->values.topic_prefix;
    const char *fault = mr_topic_fault(prefix);
    if (fault == NULL && strlen(prefix) > PREFIX_MAX) {
        fault = "is longer than 121 characters, and schema and table must fit after it";
    }
    if (fault != NULL) {
        REFUSE(config, topic_prefix, ": \"%s\" %s", prefix, fault);
    }
}

/* Its content goes out in base64, and its prefix twice. */
size_t mr_config_message_max(uint64_t record_bytes)
{
    enum { FORM_MAX = 8192 /* of an event that holds a message, without its content */ };
    return record_bytes <= FORM_MAX ? 0 : (record_bytes - FORM_MAX) / 4 * 3;
}

uint32_t mr_config_operations(struct mr_config *config, const struct mr_strings *names,
                              uint32_t line, bool outboxx)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t op = MR_OP_INSERT;
        while (op < MR_OP_COUNT && strcmp(names->items[i], mr_op_name((enum mr_op)op)) != 0) {
            op++;
        }
        if (op == MR_OP_COUNT || (op == MR_OP_READ && !outboxx)) {
            PROBLEM(config, line,
                    "\"%s\" is not an operation; known are insert, update, delete, truncate%s",
                    names->items[i], outboxx ? " and read" : " and message");
        } else {
            bits |= 1u << op;
        }
    }
    return bits;
}

static void check_delimiter(struct mr_config *config)
{
    const char *delimiter = config->values.topic_delimiter;
    if (delimiter[0] == '\0' || delimiter[strspn(delimiter, "._-")] != '\0') {
        REFUSE(config, topic_delimiter, ": \"%s\" is not made of dots, underscores and hyphens",
               delimiter);
    }
}

static void build_transactions(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    if (values->transaction_metadata != 0) {
        config->encode.transaction_topic =
            mr_config_keep(config, mr_topic_name(values->topic_prefix, values->topic_delimiter, "",
                                                 "transaction"));
    }
}

static void build_heartbeat(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    bool has_topic = values->heartbeat_prefix[0] != '\0';
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

/* "source.ts_ms", "lsn" or "lsn:name": the field is called "<prefix>source_ts_ms", "<prefix>lsn" or
 * "<prefix>name" (AbstractExtractNewRecordState.FieldReference). */
static bool build_encode_take_field(struct mr_config *config, const char *text, const char *prefix,
                                    struct mr_added_field *ret)
{
    size_t len = strcspn(text, ":");
    const char *alias = text[len] == ':' ? text + len + 1 : NULL;
    bool has_part;
    if (!mr_event_field_find((mr_slice){.data = (const uint8_t *)text, .len = len}, &ret->field,
                             &has_part) ||
        (alias != NULL && (alias[0] == '\0' || strchr(alias, ':') != NULL))) {
        return false;
    }
    char *name = mr_config_text(config, "%s%s", prefix, alias == NULL ? text : alias);
    if (alias == NULL && has_part) {
        *strchr(name + strlen(prefix), '.') = '_';
    }
    ret->name = name;
    return true;
}

static const struct mr_added_field *build_encode_build_fields(struct mr_config *config,
                                                              uint32_t option, uint32_t *ret_count)
{
    const struct mr_strings *texts = mr_value_of(&config->values, option);
    struct mr_added_field *fields = KEPT_ARRAY(config, struct mr_added_field, texts->count);
    const char *prefix = "__";
    for (uint32_t i = 0; i < texts->count; i++) {
        if (texts->items[i][0] == '=') {
            prefix = texts->items[i] + 1;
            continue;
        }
        if (!build_encode_take_field(config, texts->items[i], prefix, &fields[*ret_count])) {
            REFUSE_AT(config, option,
                      ": \"%s\" is not a field of the envelope; write \"op\", \"ts_ms\", "
                      "\"source.lsn\" or another of docs/formats.md, with a name of its own after "
                      "a colon",
                      texts->items[i]);
            return fields;
        }
        const char *name = fields[*ret_count].name;
        for (uint32_t k = 0; k < *ret_count; k++) {
            if (strcmp(fields[k].name, name) == 0) {
                REFUSE_AT(config, option, ": \"%s\" is there twice; give one a name of its own",
                          name);
            }
        }
        (*ret_count)++;
    }
    return fields;
}

static void build_bare(struct mr_config *config)
{
    struct mr_bare_options *bare = &config->encode.bare;
    bare->fields = build_encode_build_fields(config, MR_INDEX_row_fields, &bare->field_count);
    bare->headers = build_encode_build_fields(config, MR_INDEX_row_headers, &bare->header_count);
}

/* A reader that wants schemas ends at a record without one: what has none is refused where it would
 * read it. */
static void build_schemas(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    const struct mr_encode_options *encode = &config->encode;
    bool has_key = (encode->json_schemas & MR_JSON_KEY_SCHEMA) != 0;
    bool has_value = (encode->json_schemas & MR_JSON_VALUE_SCHEMA) != 0;
    if (encode->json_schemas == MR_JSON_BARE) {
        return;
    }
    if (encode->format != MR_FORMAT_DEBEZIUM && encode->format != MR_FORMAT_ROW) {
        REFUSE(config, json_schemas,
               ": this format has no such schemas; set format = \"debezium\" or \"row\", or "
               "\"none\" here");
    }
    if (values->schema_topic[0] != '\0') {
        REFUSE(config, schema_topic,
               ": its records have no schema around them; take it out, or set json.schemas = "
               "\"none\"");
    }
    if (has_key && values->resolved_interval != 0) {
        REFUSE(config, resolved_interval,
               ": keys of markers have no schema around them; take it out, or set json.schemas = "
               "\"value\"");
    }
    if ((has_key && values->outbox_key_format != 0) ||
        (has_value && values->outbox_value_format != 0)) {
        REFUSE(config, json_schemas,
               ": JSON of an outbox has no schema around it; set outbox.key_format and "
               "outbox.value_format to \"text\", or \"none\" here");
    }
}

void mr_config_build_encode(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_encode_options *encode = &config->encode;
    if (LINE(config, unavailable_value) != 0) {
        encode->unavailable_value = values->unavailable_value;
    } else {
        encode->unavailable_value = encode->format == MR_FORMAT_FLAT
                                        ? "__outboxx_unknown_value__"
                                        : "__debezium_unavailable_value";
    }
    encode->skipped_operations = mr_config_operations(config, &values->skipped_operations,
                                                      LINE(config, skipped_operations), false);
    encode->message_prefixes = (const char *const *)values->message_prefixes.items;
    encode->message_prefix_count = values->message_prefixes.count;
    encode->message_bytes_max = mr_config_message_max((uint64_t)values->message_max);
    check_delimiter(config);
    build_transactions(config);
    build_heartbeat(config);
    build_schemas(config);
    build_bare(config);
    check_prefix(config);
    encode->kept_topic = mr_config_or_null(values->state_topic);
}
