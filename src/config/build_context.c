/* context.headers: which members of what transactions say of themselves become headers. */

#include "config/names.h"
#include "event/context.h"

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_outbox_header(const struct mr_outbox_options *outbox, const char *name)
{
    return strcmp(name, "id") == 0 ||
           MR_ANY(field, outbox->fields, outbox->field_count,
                  field->placement == MR_OUTBOX_HEADER && strcmp(field->name, name) == 0);
}

static bool is_row_header(const struct mr_bare_options *bare, const char *name)
{
    uint32_t i = 0;
    while (i < bare->header_count && strcmp(bare->headers[i].name, name) != 0) {
        i++;
    }
    return i < bare->header_count;
}

/* Names of attributes: spec.md, "Naming Conventions", and what an event has already. */
static const char *attribute_fault(const char *name)
{
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789")] != '\0') {
        return "is to be an attribute of a CloudEvent, whose names are made of a-z and 0-9";
    }
    return mr_is_among("id|source|specversion|type|time|datacontenttype|dataschema|subject|data|"
                       "iodebezium*",
                       mr_slice_of(name))
               ? "is an attribute of CloudEvents already"
               : NULL;
}

static const char *header_fault(const struct mr_config *config, const char *name)
{
    const struct mr_encode_options *encode = &config->encode;
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (len == 0 || len > MR_CONTEXT_NAME_MAX || name[len] != '\0') {
        return "is not made of 1 to 64 letters, digits, dots, hyphens and underscores";
    }
    if (begins_with(name, "mr-") || begins_with(name, "ce_") || begins_with(name, "__debezium") ||
        strcmp(name, "content-type") == 0) {
        return "is a header that millrace itself may write";
    }
    if (encode->outbox != NULL && is_outbox_header(encode->outbox, name)) {
        return "is a header of the outbox already";
    }
    if (is_row_header(&encode->bare, name)) {
        return "is a header of row.add_headers already";
    }
    return encode->format == MR_FORMAT_CLOUDEVENTS ? attribute_fault(name) : NULL;
}

void mr_config_build_context(struct mr_config *config)
{
    const struct mr_strings *names = &config->values.context_headers;
    bool is_structured = config->encode.format == MR_FORMAT_CLOUDEVENTS &&
                         config->encode.cloud_mode == MR_CLOUD_STRUCTURED;
    bool is_written = config->sink_kind == MR_SINK_FILE || config->sink_kind == MR_SINK_STDOUT;
    for (uint32_t i = 0; i < names->count; i++) {
        const char *fault = header_fault(config, names->items[i]);
        for (uint32_t k = 0; k < i && fault == NULL; k++) {
            fault = strcmp(names->items[k], names->items[i]) == 0 ? "is there twice" : NULL;
        }
        if (fault != NULL) {
            REFUSE(config, context_headers, ": \"%s\" %s; take another name, or take it out",
                   names->items[i], fault);
        }
    }
    if (names->count > MR_CONTEXT_NAMES_MAX) {
        REFUSE(config, context_headers, " has more than %d names; keep those that consumers read",
               MR_CONTEXT_NAMES_MAX);
    }
    if (names->count > 0 && is_written && !is_structured) {
        REFUSE(config, context_headers,
               " needs headers, which only Kafka's records have; take it out, or set [sink.kafka]");
    }
    config->source.captured.context_names = (const char *const *)names->items;
    config->source.captured.context_count = names->count;
}
