/* What options alone say of names: of topics, outboxes and the fields around a row. For who makes
 * events, and for who only reads what the options mean (nothing else of this folder comes
 * along). */
#include "base/json.h"
#include "encode/forms/form.h"

/* One `_` for each of Java's characters, of which a sign above U+FFFF is two (Debezium's
 * AbstractTopicNamingStrategy, sanitizedTopicName; Kafka's own rule is
 * org.apache.kafka.common.internals.Topic). What is no UTF-8 is one a byte. */
static void topic_sanitize(char *name)
{
    char *to = name;
    size_t left = strlen(name);
    for (const char *c = name; left > 0;) {
        bool allowed = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                       (*c >= '0' && *c <= '9') || *c == '.' || *c == '_' || *c == '-';
        size_t len = mr_utf8_sequence((const uint8_t *)c, left);
        len = len == 0 ? 1 : len;
        *to++ = allowed ? *c : '_';
        if (len == 4) {
            *to++ = '_';
        }
        c += len;
        left -= len;
    }
    *to = '\0';
}

char *mr_topic_name(const char *prefix, const char *delimiter, const char *schema,
                    const char *table)
{
    delimiter = delimiter == NULL ? "." : delimiter;
    size_t size = strlen(prefix) + strlen(schema) + strlen(table) + 2 * strlen(delimiter) + 1;
    char *name = MR_ALLOC(size);
    snprintf(name, size, "%s%s%s%s%s", prefix, prefix[0] == '\0' ? "" : delimiter, schema,
             schema[0] == '\0' ? "" : delimiter, table);
    topic_sanitize(name);
    return name;
}

char *mr_name_rewritten(const struct mr_rewrite *rewrite, const char *name)
{
    uint8_t bytes[MR_REWRITE_BYTES_MAX + 1];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes) - 1);
    if (!mr_rewrite_apply(rewrite, mr_slice_of(name), &out)) {
        memset(out.at, '-', (size_t)(out.end - out.at));
        out.at = out.end;
    }
    *out.at = '\0';
    return MR_STRDUP((const char *)bytes);
}

char *mr_table_topic(const struct mr_encode_options *options, const char *schema, const char *table)
{
    char *name = mr_topic_name(options->topic_prefix, options->topic_delimiter, schema, table);
    if (options->routing == NULL || options->routing->topic.regex == NULL) {
        return name;
    }
    char *routed = mr_name_rewritten(&options->routing->topic, name);
    free(name);
    return routed;
}

bool mr_is_outbox(const struct mr_encode_options *options, const char *schema, const char *table)
{
    return options->outbox != NULL &&
           mr_table_patterns_match(options->outbox->tables, options->outbox->table_count,
                                   mr_slice_of(schema), mr_slice_of(table));
}

#define FIELD(part, name, attribute, is_text, nullable)                                            \
    {                                                                                              \
        part, name, ",\"" name "\":", "ce_iodebezium" attribute, is_text, nullable                 \
    }

/* The envelope's own, then the source block in Debezium's order (its SourceInfo and LegacyV1
 * makers; docs/events.md). */
const struct mr_source_field mr_source_fields[] = {
    [MR_FIELD_OP] = FIELD("", "op", "op", true, false),
    [MR_FIELD_TS_MS] = FIELD("", "ts_ms", "tsms", false, true),
    [MR_FIELD_TS_US] = FIELD("", "ts_us", "tsus", false, true),
    [MR_FIELD_TS_NS] = FIELD("", "ts_ns", "tsns", false, true),
    [MR_FIELD_SOURCE_VERSION] = FIELD("source", "version", "version", true, false),
    [MR_FIELD_SOURCE_CONNECTOR] = FIELD("source", "connector", "connector", true, false),
    [MR_FIELD_SOURCE_NAME] = FIELD("source", "name", "name", true, false),
    [MR_FIELD_SOURCE_TS_MS] = FIELD("source", "ts_ms", "tsms", false, false),
    [MR_FIELD_SOURCE_SNAPSHOT] = FIELD("source", "snapshot", "snapshot", true, true),
    [MR_FIELD_SOURCE_DB] = FIELD("source", "db", "db", true, false),
    [MR_FIELD_SOURCE_SEQUENCE] = FIELD("source", "sequence", "sequence", true, true),
    [MR_FIELD_SOURCE_TS_US] = FIELD("source", "ts_us", "tsus", false, true),
    [MR_FIELD_SOURCE_TS_NS] = FIELD("source", "ts_ns", "tsns", false, true),
    [MR_FIELD_SOURCE_SCHEMA] = FIELD("source", "schema", "schema", true, false),
    [MR_FIELD_SOURCE_TABLE] = FIELD("source", "table", "table", true, false),
    [MR_FIELD_SOURCE_TXID] = FIELD("source", "txId", "txid", false, true),
    [MR_FIELD_SOURCE_LSN] = FIELD("source", "lsn", "lsn", false, true),
    [MR_FIELD_SOURCE_XMIN] = FIELD("source", "xmin", "xmin", false, true),
    [MR_FIELD_SOURCE_ORIGIN] = FIELD("source", "origin", "origin", true, true),
    [MR_FIELD_SOURCE_ORIGIN_LSN] = FIELD("source", "origin_lsn", "originlsn", false, true),
};

bool mr_event_field_find(mr_slice text, enum mr_event_field *ret_field, bool *ret_has_part)
{
    const uint8_t *dot = memchr(text.data, '.', text.len);
    size_t part_len = dot == NULL ? 0 : (size_t)(dot - text.data);
    mr_slice part = {.data = text.data, .len = part_len};
    mr_slice name = {.data = text.data + part_len + (dot != NULL),
                     .len = text.len - part_len - (dot != NULL)};
    for (size_t i = 0; i < MR_ARRAY_LEN(mr_source_fields); i++) {
        const struct mr_source_field *field = &mr_source_fields[i];
        bool fits = dot == NULL || mr_slice_equal(part, mr_slice_of(field->part));
        if (fits && mr_slice_equal(name, mr_slice_of(field->name))) {
            *ret_field = (enum mr_event_field)i;
            *ret_has_part = dot != NULL;
            return true;
        }
    }
    return false;
}
