/* Where events go to: brokers, security, converters. The producer's options are those of Kafka's
 * documentation, "Producer Configs"; those of converters are Debezium's
 * (CloudEventsConverterConfig), Confluent's (AbstractKafkaSchemaSerDeConfig, AvroDataConfig) and
 * Apicurio's (SerdeConfig). */

#include "convert/convert_internal.h"

static void convert_brokers(struct mr_convert *c)
{
    const char *workers = mr_cv_value(c, "bootstrap.servers");
    const char *own = mr_cv_value(c, "producer.override.bootstrap.servers");
    struct mr_cv_list brokers = mr_cv_split(c, own != NULL ? own : workers, ',');
    if (brokers.count == 0) {
        mr_cv_add(c, &brokers, "localhost:9092");
        TO_DO(c, "bootstrap.servers",
              "is in the Connect worker's configuration; write the brokers into "
              "sink.kafka.brokers, and what it has of security.protocol, sasl.* and ssl.* into "
              "[sink.kafka] (docs/security.md)");
    }
    mr_cv_set(c, "sink.type", "kafka");
    mr_cv_set_list(c, "sink.kafka.brokers", &brokers);
}

/* What is in quotes after `name`= in a login of JAAS; NULL: nothing. */
static const char *jaas_part(struct mr_convert *c, const char *jaas, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = jaas; (at = strstr(at, name)) != NULL; at += len) {
        const char *from = at + len + strspn(at + len, " ");
        if (*from != '=') {
            continue;
        }
        from += 1 + strspn(from + 1, " ");
        const char *to = *from == '"' || *from == '\'' ? strchr(from + 1, *from) : NULL;
        if (to != NULL) {
            return mr_cv_part(c, from + 1, (size_t)(to - from - 1));
        }
    }
    return NULL;
}

/* A user, NULL where it is not known, and a variable for the password. */
static void convert_kafka_set_login(struct mr_convert *c, const char *section, const char *user,
                                    const char *variable, const char *given)
{
    mr_cv_set(c, mr_cv_text(c, "%s.username", section), user == NULL ? "name_the_user_here" : user);
    mr_cv_set(c, mr_cv_text(c, "%s.password", section), mr_cv_text(c, "env:%s", variable));
    TO_DO(c, given, "%sput the password into the environment variable %s",
          user == NULL ? mr_cv_text(c, "name the user in %s.username, and ", section) : "",
          variable);
}

static void convert_login(struct mr_convert *c)
{
    const struct mr_cv_line *mechanism = mr_cv_take(c, "producer.override.sasl.mechanism");
    const struct mr_cv_line *jaas = mr_cv_take(c, "producer.override.sasl.jaas.config");
    const char *kind = mechanism == NULL ? "" : mechanism->value;
    bool known = mr_is_among("PLAIN|SCRAM-SHA-256|SCRAM-SHA-512", mr_slice_of(kind));
    if (mechanism != NULL && !known) {
        LOST(c, mechanism->given, "docs/kafka.md says how to set it (OAUTHBEARER, GSSAPI)");
    }
    if (!known && jaas != NULL) {
        TO_DO(c, jaas->given, "logins of Java are not read; see [sink.kafka.sasl]");
    }
    if (!known) {
        return;
    }
    const char *user = jaas == NULL || mr_cv_is_expression(jaas->value)
                           ? NULL
                           : jaas_part(c, jaas->value, "username");
    mr_cv_set(c, "sink.kafka.sasl.mechanism", kind);
    convert_kafka_set_login(c, "sink.kafka.sasl", user, "MILLRACE_KAFKA_PASSWORD",
                            jaas != NULL ? jaas->given : mechanism->given);
}

/* An option of a converter; NULL: of another thing. */
static const char *convert_kafka_option_of(const struct mr_cv_line *line, const char *side)
{
    size_t len = strlen(side);
    bool is_of =
        strncmp(line->name, side, len) == 0 && strncmp(line->name + len, ".converter.", 11) == 0;
    return is_of ? line->name + len + 11 : NULL;
}

/* A converter's options, by the rows of its class; `otherwise` is said of those that have none.
 * NULL: no class has. */
static void convert_options(struct mr_convert *c, const char *side, const char *java,
                            const char *otherwise)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        const char *option = convert_kafka_option_of(line, side);
        if (option != NULL && !line->done) {
            line->done = true;
            if (java == NULL || !mr_cv_class_line(c, line, java, option)) {
                LOST(c, line->given, "%s", otherwise);
            }
        }
    }
}

static void convert_cloud_events(struct mr_convert *c)
{
    /* JsonConverter's default. */
    bool has_schemas = mr_cv_find(c, "value.converter.json.schemas.enable") == NULL;
    mr_cv_set(c, "format", "cloudevents");
    convert_options(
        c, "value", "CloudEventsConverter",
        "CloudEvents are JSON without schemas, made of the event itself (docs/formats.md)");
    if (has_schemas) {
        LOST(c, "value.converter.json.schemas.enable",
             "is true there unless it is set: consumers find at the top of \"data\" what stood in "
             "its \"payload\"");
    }
}

/* Characters that Avro does not take in a name become underscores (docs/formats.md). */
static void convert_names(struct mr_convert *c, const char *option)
{
    const struct mr_cv_line *line = mr_cv_take(c, option);
    if (line != NULL && !mr_is_among("avro|none", mr_slice_of(line->value))) {
        LOST(c, line->given,
             "names are written as with \"avro\": other characters become underscores");
    }
}

static void convert_registry_login(struct mr_convert *c, const char *option)
{
    const struct mr_cv_line *line = mr_cv_take(c, mr_cv_text(c, "value.converter.%s", option));
    if (line == NULL) {
        return;
    }
    const char *colon = strchr(line->value, ':');
    bool known = colon != NULL && !mr_cv_is_expression(line->value);
    convert_kafka_set_login(c, "schema_registry",
                            known ? mr_cv_part(c, line->value, (size_t)(colon - line->value))
                                  : NULL,
                            "MILLRACE_REGISTRY_PASSWORD", line->given);
}

/* Keys and values have one registry: what the file says of keys it must say of values. */
static void convert_key_options(struct mr_convert *c)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        struct mr_cv_line *line = &c->lines[i];
        const char *option = convert_kafka_option_of(line, "key");
        const struct mr_cv_line *other =
            option == NULL ? NULL : mr_cv_find(c, mr_cv_text(c, "value.converter.%s", option));
        line->done |= option != NULL;
        if (option != NULL && (other == NULL || strcmp(other->value, line->value) != 0)) {
            LOST(c, line->given, "keys have the values' registry and options");
        }
    }
}

static void convert_avro(struct mr_convert *c, const char *java)
{
    static const char apicurio[] = "value.converter.apicurio.registry.url";
    const struct mr_cv_line *own_api = mr_cv_take(c, apicurio);
    const struct mr_cv_line *keys = mr_cv_take(c, "key.converter");
    mr_cv_take(c, "value.converter");
    mr_cv_set(c, "format", "avro");
    if (keys == NULL || strcmp(keys->value, java) != 0) {
        LOST(c, "key.converter", "keys are Avro where values are");
    }
    convert_key_options(c);
    convert_registry_login(c, "basic.auth.user.info");
    convert_registry_login(c, "schema.registry.basic.auth.user.info");
    if (own_api != NULL) {
        mr_cv_set(c, "schema_registry.url", "http://name_the_registry_here");
        TO_DO(c, own_api->given,
              "set schema_registry.url to Apicurio's API for Confluent's clients, whose path is "
              "/apis/ccompat/v7");
    }
    convert_options(c, "value", "AvroConverter", "see [schema_registry] in docs/configuration.md");
    convert_names(c, "schema.name.adjustment.mode");
    convert_names(c, "field.name.adjustment.mode");
}

/* JsonConverter has schemas unless it is told otherwise (its JsonConverterConfig). */
static void take_schemas(struct mr_convert *c, const char *side, const char *given)
{
    const struct mr_cv_line *values = mr_cv_find(c, "value.converter");
    bool is_cloud = values != NULL && mr_cv_is_class(values->value, "CloudEventsConverter");
    if (c->has_outbox || is_cloud) {
        LOST(c, given,
             "%s have no schema around them: consumers find what stood in \"payload\" at the top",
             c->has_outbox ? "events of an outbox" : "keys of CloudEvents");
        return;
    }
    c->schemas |=
        strcmp(side, "key") == 0 ? (uint32_t)MR_JSON_KEY_SCHEMA : (uint32_t)MR_JSON_VALUE_SCHEMA;
}

/* What the converter's class says of the events; `schemas` is its schemas.enable. */
static void note_converter(struct mr_convert *c, const char *side, const struct mr_cv_line *line,
                           const struct mr_cv_line *schemas)
{
    bool is_json = line == NULL || mr_cv_is_class(line->value, "JsonConverter");
    bool is_bare = !is_json && c->has_outbox &&
                   (mr_cv_is_class(line->value, "StringConverter") ||
                    mr_cv_is_class(line->value, "ByteArrayConverter") ||
                    mr_cv_is_class(line->value, "BinaryDataConverter"));
    if (c->has_outbox) {
        mr_cv_set(c, strcmp(side, "key") == 0 ? "outbox.key_format" : "outbox.value_format",
                  is_bare ? "text" : "json");
    }
    if (line == NULL) {
        TO_DO(c, mr_cv_text(c, "%s.converter", side),
              "is in the Connect worker's configuration; %s",
              c->has_outbox
                  ? "where it is StringConverter, take outbox.key_format or outbox.value_format out"
                  : "see that it is JsonConverter; where its schemas.enable is not false, set "
                    "json.schemas (docs/formats.md)");
    } else if (is_json && (schemas == NULL || strcmp(schemas->value, "false") != 0)) {
        take_schemas(c, side, schemas != NULL ? schemas->given : line->given);
    } else if (!is_json && !is_bare) {
        LOST(c, line->given,
             "events are JSON, as JsonConverter writes it; let consumers read that");
    } else if (is_bare && c->outboxes.count > 0 && c->outboxes.count < c->tables.count) {
        LOST(c, line->given,
             "holds for events of the outbox; those of other tables are JSON, which this converter "
             "does not write");
    }
}

/* JsonConverter writes a column's default in place of null unless it is told otherwise (its
 * JsonConverterConfig). A key has no null. */
static void note_defaults(struct mr_convert *c, const char *side, bool is_json)
{
    const char *option = mr_cv_text(c, "%s.converter.replace.null.with.default", side);
    const struct mr_cv_line *line = mr_cv_take(c, option);
    bool is_value = is_json && strcmp(side, "value") == 0;
    if (is_value && (line == NULL || strcmp(line->value, "false") != 0)) {
        LOST(c, line != NULL ? line->given : option,
             "is true there unless it is set: consumers find null, not the default, in a column "
             "that has one (docs/types.md)");
    }
}

/* What belongs to a converter is said once, by the converter, unless it is JSON. */
static void convert_side(struct mr_convert *c, const char *side)
{
    const struct mr_cv_line *line = mr_cv_take(c, mr_cv_text(c, "%s.converter", side));
    if (line != NULL && strcmp(side, "value") == 0 &&
        mr_cv_is_class(line->value, "CloudEventsConverter")) {
        convert_cloud_events(c);
        return;
    }
    const struct mr_cv_line *schemas =
        mr_cv_take(c, mr_cv_text(c, "%s.converter.schemas.enable", side));
    bool is_json = line == NULL || mr_cv_is_class(line->value, "JsonConverter");
    note_defaults(c, side, line != NULL && is_json);
    convert_options(c, side, is_json ? "JsonConverter" : NULL,
                    mr_cv_text(c, "see %s.converter", side));
    note_converter(c, side, line, schemas);
}

/* Rows without an envelope are JSON: another converter's format has replaced that. */
static void note_unwrapped(struct mr_convert *c)
{
    if (c->unwraps == NULL || strcmp(c->options[MR_INDEX_format], "\"row\"") == 0) {
        return;
    }
    LOST(c, c->unwraps,
         "with value.converter's format events keep their envelope; take the row from \"after\" "
         "where they are read, or set format = \"row\", which is JSON");
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        if (strncmp(mr_option_at(i)->path, "row.", 4) == 0) {
            c->options[i] = NULL;
        }
    }
    c->unwraps = NULL;
}

void mr_cv_kafka(struct mr_convert *c)
{
    convert_brokers(c);
    convert_login(c);
    const struct mr_cv_line *values = mr_cv_find(c, "value.converter");
    if (values != NULL && !c->has_outbox && mr_cv_is_class(values->value, "AvroConverter")) {
        convert_avro(c, values->value);
    } else {
        convert_side(c, "key");
        convert_side(c, "value");
        if (c->schemas != MR_JSON_BARE) {
            static const char *const words[] = {"none", "key", "value", "both"};
            mr_cv_set(c, "json.schemas", words[c->schemas]);
        }
    }
    note_unwrapped(c);
}
