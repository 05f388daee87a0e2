/* Where events go to: brokers, security, converters. The producer's options are those of Kafka's documentation, "Producer Configs". */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

static void convert_brokers(struct mr_convert *convert)
{
    static const char *const names[] = {"bootstrap.servers", "producer.override.bootstrap.servers"};
    struct mr_convert_list brokers = {0};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        const char *value = mr_convert_value(convert, names[i]);
        if (value != NULL) {
            mr_convert_list_done(&brokers);
            mr_convert_split(value, ',', &brokers);
        }
    }
    if (brokers.count == 0) {
        mr_convert_list_add(&brokers, MR_STRDUP("localhost:9092"));
        mr_convert_note(
            convert, MR_NOTE_TO_DO, "bootstrap.servers",
            "stands in the Connect worker's configuration; write the brokers into "
            "sink.kafka.brokers, and what it has of security.protocol, sasl.* and ssl.* into "
            "[sink.kafka] (docs/security.md)");
    }
    mr_convert_set(convert, "sink.type", "kafka");
    mr_convert_set_list(convert, "sink.kafka.brokers", &brokers);
    mr_convert_list_done(&brokers);
}

/* What stands in quotes behind `name`= in a login of JAAS; NULL: nothing. The caller frees it. */
static char *jaas_part(const char *jaas, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = jaas; (at = strstr(at, name)) != NULL; at += len) {
        const char *from = at + len + strspn(at + len, " ");
        if (*from != '=') {
            continue;
        }
        from += 1 + strspn(from + 1, " ");
        char quote = *from;
        const char *to = quote == '"' || quote == '\'' ? strchr(from + 1, quote) : NULL;
        if (to != NULL) {
            return MR_STRNDUP(from + 1, (size_t)(to - from - 1));
        }
    }
    return NULL;
}

static void convert_login(struct mr_convert *convert)
{
    const struct mr_convert_line *mechanism =
        mr_convert_take(convert, "producer.override.sasl.mechanism");
    const struct mr_convert_line *jaas =
        mr_convert_take(convert, "producer.override.sasl.jaas.config");
    const char *kind = mechanism == NULL ? "" : mechanism->value;
    bool known = strcmp(kind, "PLAIN") == 0 || strcmp(kind, "SCRAM-SHA-256") == 0 ||
                 strcmp(kind, "SCRAM-SHA-512") == 0;
    if (mechanism != NULL && !known) {
        mr_convert_note(
            convert, MR_NOTE_LOST, mechanism->given,
            "this mechanism is set by [sink.kafka.properties] (docs/configuration.md), if "
            "librdkafka has it");
    }
    if (jaas == NULL && !known) {
        return;
    }
    char *user = jaas == NULL || mr_convert_is_expression(jaas->value)
                     ? NULL
                     : jaas_part(jaas->value, "username");
    if (known) {
        mr_convert_set(convert, "sink.kafka.sasl.mechanism", kind);
        mr_convert_set(convert, "sink.kafka.sasl.username",
                       user == NULL ? "name_the_user_here" : user);
        mr_convert_set(convert, "sink.kafka.sasl.password_env", "MILLRACE_KAFKA_PASSWORD");
    }
    const char *given = jaas != NULL ? jaas->given : mechanism->given;
    mr_convert_note(convert, MR_NOTE_TO_DO, given,
                    known ? "%sput the password into the environment variable "
                            "MILLRACE_KAFKA_PASSWORD"
                          : "%slogins of Java are not read; see [sink.kafka.sasl]",
                    known && user == NULL ? "name the user in sink.kafka.sasl.username, and " : "");
    free(user);
}

static void convert_tls(struct mr_convert *convert)
{
    const struct mr_convert_line *protocol =
        mr_convert_take(convert, "producer.override.security.protocol");
    const struct mr_convert_line *store =
        mr_convert_take(convert, "producer.override.ssl.truststore.location");
    const struct mr_convert_line *type =
        mr_convert_take(convert, "producer.override.ssl.truststore.type");
    bool tls = protocol != NULL && strstr(protocol->value, "SSL") != NULL;
    if (protocol != NULL) {
        mr_convert_set(convert, "sink.kafka.tls", tls ? "true" : "false");
    }
    if (store == NULL) {
        if (type != NULL) {
            mr_convert_note(convert, MR_NOTE_IDLE, type->given, "there is no location to it");
        }
        return;
    }
    if (tls && type != NULL && strcmp(type->value, "PEM") == 0 &&
        !mr_convert_is_expression(store->value)) {
        mr_convert_set(convert, "sink.kafka.tls_ca_location", store->value);
        return;
    }
    mr_convert_note(
        convert, tls ? MR_NOTE_TO_DO : MR_NOTE_IDLE, store->given,
        tls ? "Java's stores are not read; export the certificates as PEM (keytool -exportcert "
              "-rfc) and set sink.kafka.tls_ca_location"
            : "there is no TLS");
    if (type != NULL) {
        mr_convert_note(convert, MR_NOTE_IDLE, type->given, "see ssl.truststore.location");
    }
}

static void convert_delivery(struct mr_convert *convert)
{
    const struct mr_convert_line *line = mr_convert_take(convert, "exactly.once.support");
    if (line == NULL) {
        return;
    }
    if (strcasecmp(line->value, "required") == 0) {
        mr_convert_set(convert, "sink.kafka.delivery", "exactly-once");
    } else if (strcasecmp(line->value, "requested") != 0) {
        mr_convert_note(convert, MR_NOTE_LOST, line->given, "is requested or required");
    }
}

/* ---- converters ---- */

static bool is_class(const char *value, const char *name)
{
    const char *dot = strrchr(value, '.');
    return strcmp(dot == NULL ? value : dot + 1, name) == 0;
}

/* Options of Debezium's CloudEventsConverter (its CloudEventsConverterConfig) that may be as they are there, and what they
 * must be; "": anything. */
static const struct {
    const char *name;
    const char *value;
} cloud_options[] = {
    {"serializer.type", "json"},
    {"data.serializer.type", "json"},
    {"json.schemas.enable", "false"},
    {"json.schemas.cache.size", ""},
    {"schemas.enable", ""}, /* not looked at there */
    {"opentelemetry.tracing.attributes.enable", "false"},
    {"extension.attributes.enable", ""},
    {"schema.name.adjustment.mode", ""}, /* of schemas, which JSON does not have */
    {"schema.cloudevents.name", ""},
    {"schema.data.name.source.header.enable", "false"},
    {"metadata.source",
     "value,id:generate,type:generate,traceparent:header,dataSchemaName:generate"},
};

static void convert_cloud_option(struct mr_convert *convert, const struct mr_convert_line *line,
                                 const char *option)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(cloud_options); i++) {
        const char *value = cloud_options[i].value;
        if (strcmp(option, cloud_options[i].name) == 0 &&
            (value[0] == '\0' || strcmp(line->value, value) == 0)) {
            return;
        }
    }
    mr_convert_note(convert, MR_NOTE_LOST, line->given,
                    "CloudEvents are JSON without schemas, made of the event itself "
                    "(docs/formats.md)");
}

static void convert_cloud_events(struct mr_convert *convert)
{
    static const char prefix[] = "value.converter.";
    bool has_schemas = true; /* JsonConverter's default */
    mr_convert_set(convert, "format", "cloudevents");
    mr_convert_set(convert, "cloudevents.id", "debezium");
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        struct mr_convert_line *line = &convert->lines.items[i];
        if (strncmp(line->name, prefix, sizeof(prefix) - 1) != 0) {
            continue;
        }
        const char *option = line->name + sizeof(prefix) - 1;
        line->done = true;
        has_schemas &= strcmp(option, "json.schemas.enable") != 0;
        if (strcmp(option, "extension.attributes.enable") == 0) {
            mr_convert_set(convert, "cloudevents.extensions", line->value);
        }
        convert_cloud_option(convert, line, option);
    }
    if (has_schemas) {
        mr_convert_note(
            convert, MR_NOTE_LOST, "value.converter.json.schemas.enable",
            "is true there unless it is set: consumers find at the top of \"data\" what "
            "stood in its \"payload\"");
    }
}

/* What belongs to a converter is said once, by the converter, unless it is JSON. */
static void convert_converter(struct mr_convert *convert, const char *side)
{
    struct mr_text name = {0};
    mr_text_format(&name, "%s.converter", side);
    const struct mr_convert_line *line = mr_convert_take(convert, name.data);
    mr_text_string(&name, ".");
    if (line != NULL && is_class(line->value, "CloudEventsConverter") &&
        strcmp(side, "value") == 0) {
        convert_cloud_events(convert);
        mr_text_done(&name);
        return;
    }
    bool is_json = line == NULL || is_class(line->value, "JsonConverter");
    bool is_bare =
        convert->has_outbox && line != NULL &&
        (is_class(line->value, "StringConverter") || is_class(line->value, "ByteArrayConverter") ||
         is_class(line->value, "BinaryDataConverter"));
    if (convert->has_outbox) {
        bool is_key = strcmp(side, "key") == 0;
        mr_convert_set(convert, is_key ? "outbox.key_format" : "outbox.value_format",
                       is_bare ? "text" : "json");
    }
    const struct mr_convert_line *schemas = NULL;
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        struct mr_convert_line *part = &convert->lines.items[i];
        if (strncmp(part->name, name.data, name.len) != 0) {
            continue;
        }
        const char *option = part->name + name.len;
        part->done = true;
        if (strcmp(option, "schemas.enable") == 0) {
            schemas = part;
        } else if (is_json && strcmp(option, "replace.null.with.default") == 0 &&
                   strcmp(part->value, "false") != 0) {
            mr_convert_note(convert, MR_NOTE_LOST, part->given,
                            "null stays null in a column with a default (docs/events.md)");
        } else if (!is_json || (strcmp(option, "replace.null.with.default") != 0 &&
                                strcmp(option, "schemas.cache.size") != 0)) {
            mr_convert_note(convert, MR_NOTE_LOST, part->given, "see %s.converter", side);
        }
    }
    if (is_bare && convert->outboxes.count > 0 && !convert->only_outboxes) {
        mr_convert_note(convert, MR_NOTE_LOST, line->given,
                        "holds for events of the outbox; those of other tables are JSON, which "
                        "this converter does not write");
    } else if (is_bare) {
        /* what an outbox with "text" writes */
    } else if (!is_json) {
        mr_convert_note(
            convert, MR_NOTE_LOST, line->given,
            "events are JSON without schemas, as JsonConverter with schemas.enable = false "
            "writes them; let consumers read that");
    } else if (line != NULL && (schemas == NULL || strcmp(schemas->value, "false") != 0)) {
        mr_convert_note(
            convert, MR_NOTE_LOST, schemas != NULL ? schemas->given : line->given,
            "events have no schema around them: consumers find what stood in \"payload\" "
            "at the top");
    } else if (line == NULL) {
        struct mr_text missing = {0};
        mr_text_format(&missing, "%s.converter", side);
        mr_convert_note(
            convert, MR_NOTE_TO_DO, missing.data,
            convert->has_outbox
                ? "stands in the Connect worker's configuration; where it is StringConverter, take "
                  "outbox.key_format or outbox.value_format out"
                : "stands in the Connect worker's configuration; see that it is JsonConverter with "
                  "schemas.enable = false, which is what millrace writes");
        mr_text_done(&missing);
    }
    mr_text_done(&name);
}

/* Rows without an envelope are JSON: another converter's format has taken the place of that. */
static void tell_unwrapped(struct mr_convert *convert)
{
    const char *format = convert->options[MR_INDEX_format];
    if (convert->unwraps == NULL || strcmp(format, "\"row\"") == 0) {
        return;
    }
    mr_convert_note(convert, MR_NOTE_LOST, convert->unwraps,
                    "with value.converter's format events keep their envelope; take the row from "
                    "\"after\" where they are read, or set format = \"row\", which is JSON");
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (strncmp(mr_option_at(i)->path, "row.", 4) == 0) {
            free(convert->options[i]);
            convert->options[i] = NULL;
        }
    }
}

void mr_convert_kafka(struct mr_convert *convert)
{
    convert_brokers(convert);
    convert_login(convert);
    convert_tls(convert);
    convert_delivery(convert);
    static const char *const sides[] = {"key", "value"};
    for (size_t i = 0; i < MR_ARRAY_LEN(sides); i++) {
        if (!mr_convert_avro(convert, sides[i])) {
            convert_converter(convert, sides[i]);
        }
    }
    tell_unwrapped(convert);
}
