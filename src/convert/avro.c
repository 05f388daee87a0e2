/* AvroConverter, Confluent's (AbstractKafkaSchemaSerDeConfig, KafkaAvroSerializerConfig, AvroDataConfig) and Apicurio's (SerdeConfig). */
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"

enum role {
    ROLE_URL,
    ROLE_REGISTER,
    ROLE_STRATEGY,
    ROLE_LOGIN,    /* user:password */
    ROLE_APICURIO, /* its own API's address */
    ROLE_FALSE,    /* as it is there, if it is false */
    ROLE_TRUE,
    ROLE_IDLE,  /* nothing of what is sent hangs on it */
    ROLE_OTHER, /* JsonConverter's, not looked at there */
};

/* Behind "key.converter." and "value.converter.". */
static const struct {
    const char *name;
    enum role role;
} avro_options[] = {
    {"schema.registry.url", ROLE_URL},
    {"auto.register.schemas", ROLE_REGISTER},
    {"key.subject.name.strategy", ROLE_STRATEGY},
    {"value.subject.name.strategy", ROLE_STRATEGY},
    {"basic.auth.user.info", ROLE_LOGIN},
    {"schema.registry.basic.auth.user.info", ROLE_LOGIN},
    {"basic.auth.credentials.source", ROLE_IDLE},
    {"use.latest.version", ROLE_FALSE},
    {"connect.meta.data", ROLE_TRUE},
    {"enhanced.avro.schema.support", ROLE_IDLE},
    {"scrub.invalid.names", ROLE_IDLE},
    {"schemas.cache.config", ROLE_IDLE},
    {"max.schemas.per.subject", ROLE_IDLE},
    {"schemas.enable", ROLE_OTHER},
    {"apicurio.registry.url", ROLE_APICURIO},
    {"apicurio.registry.auto-register", ROLE_REGISTER},
    {"apicurio.registry.find-latest", ROLE_FALSE},
    {"apicurio.registry.as-confluent", ROLE_TRUE},
    {"apicurio.registry.headers.enabled", ROLE_FALSE},
    {"apicurio.registry.check-period-ms", ROLE_IDLE},
};

static void set_urls(struct mr_convert *convert, const struct mr_convert_line *line)
{
    struct mr_convert_list urls = {0};
    if (mr_convert_is_expression(line->value)) {
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "name the registry in schema_registry.url");
        return;
    }
    mr_convert_split(line->value, ',', &urls);
    mr_convert_set_list(convert, "schema_registry.url", &urls);
    mr_convert_list_done(&urls);
}

static void set_strategy(struct mr_convert *convert, const struct mr_convert_line *line)
{
    static const char *const strategies[][2] = {
        {"TopicNameStrategy", "topic"},
        {"RecordNameStrategy", "record"},
        {"TopicRecordNameStrategy", "topic_record"},
    };
    const char *dot = strrchr(line->value, '.');
    for (size_t i = 0; i < MR_ARRAY_LEN(strategies); i++) {
        if (strcmp(dot == NULL ? line->value : dot + 1, strategies[i][0]) == 0) {
            mr_convert_set(convert, "schema_registry.subject_strategy", strategies[i][1]);
            return;
        }
    }
    mr_convert_note(convert, MR_NOTE_LOST, line->given,
                    "subjects are named by topic, record, or both (docs/formats.md)");
}

static void set_login(struct mr_convert *convert, const struct mr_convert_line *line)
{
    const char *colon = strchr(line->value, ':');
    bool known = colon != NULL && !mr_convert_is_expression(line->value);
    char *user = known ? MR_STRNDUP(line->value, (size_t)(colon - line->value))
                       : MR_STRDUP("name_the_user_here");
    mr_convert_set(convert, "schema_registry.username", user);
    mr_convert_set(convert, "schema_registry.password_env", "MILLRACE_REGISTRY_PASSWORD");
    mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                    "%sput the password into the environment variable MILLRACE_REGISTRY_PASSWORD",
                    known ? "" : "name the user in schema_registry.username, and ");
    free(user);
}

static void convert_role(struct mr_convert *convert, enum role role,
                         const struct mr_convert_line *line)
{
    switch (role) {
    case ROLE_URL:
        set_urls(convert, line);
        return;
    case ROLE_REGISTER:
        if (!mr_convert_set(convert, "schema_registry.register", line->value)) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given, "is true or false");
        }
        return;
    case ROLE_STRATEGY:
        set_strategy(convert, line);
        return;
    case ROLE_LOGIN:
        set_login(convert, line);
        return;
    case ROLE_APICURIO:
        mr_convert_set(convert, "schema_registry.url", "http://name_the_registry_here");
        mr_convert_note(convert, MR_NOTE_TO_DO, line->given,
                        "set schema_registry.url to Apicurio's API for Confluent's clients, whose "
                        "path is /apis/ccompat/v7");
        return;
    case ROLE_FALSE:
    case ROLE_TRUE:
        if (strcmp(line->value, role == ROLE_TRUE ? "true" : "false") != 0) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given,
                            "schemas are made of the tables, and a record begins with the four "
                            "bytes of Confluent's number (docs/formats.md)");
        }
        return;
    case ROLE_OTHER:
        return;
    case ROLE_IDLE:
        mr_convert_note(convert, MR_NOTE_IDLE, line->given,
                        "a schema is asked for once for each form of a table");
        return;
    }
}

/* Keys and values have one registry: what is said of keys must be what is said of values. */
static bool is_said_of_values(struct mr_convert *convert, const char *option, const char *value)
{
    struct mr_text name = {0};
    mr_text_format(&name, "value.converter.%s%s", strncmp(option, "key.", 4) == 0 ? "value." : "",
                   strncmp(option, "key.", 4) == 0 ? option + 4 : option);
    const struct mr_convert_line *other = mr_convert_find(convert, name.data);
    mr_text_done(&name);
    return other != NULL && strcmp(other->value, value) == 0;
}

static void convert_option(struct mr_convert *convert, const struct mr_convert_line *line,
                           const char *option, bool is_key)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(avro_options); i++) {
        if (strcmp(option, avro_options[i].name) != 0) {
            continue;
        }
        if (!is_key) {
            convert_role(convert, avro_options[i].role, line);
        } else if (avro_options[i].role != ROLE_OTHER &&
                   !is_said_of_values(convert, option, line->value)) {
            mr_convert_note(convert, MR_NOTE_LOST, line->given,
                            "keys have the values' registry and options");
        }
        return;
    }
    mr_convert_note(convert, MR_NOTE_LOST, line->given,
                    "see [schema_registry] in docs/configuration.md");
}

/* Characters that Avro does not take in a name become underscores (docs/formats.md). */
static void convert_names(struct mr_convert *convert, const char *option)
{
    const struct mr_convert_line *line = mr_convert_take(convert, option);
    if (line != NULL && strcmp(line->value, "avro") != 0 && strcmp(line->value, "none") != 0) {
        mr_convert_note(convert, MR_NOTE_LOST, line->given,
                        "names are written as with \"avro\": other characters become underscores");
    }
}

bool mr_convert_avro(struct mr_convert *convert, const char *side)
{
    const struct mr_convert_line *values = mr_convert_find(convert, "value.converter");
    const char *class = values == NULL ? "" : values->value;
    const char *dot = strrchr(class, '.');
    if (strcmp(dot == NULL ? class : dot + 1, "AvroConverter") != 0 || convert->has_outbox) {
        return false;
    }
    bool is_key = strcmp(side, "key") == 0;
    struct mr_text name = {0};
    mr_text_format(&name, "%s.converter", side);
    const struct mr_convert_line *converter = mr_convert_take(convert, name.data);
    if (converter == NULL || strcmp(converter->value, values->value) != 0) {
        mr_convert_note(convert, MR_NOTE_LOST, name.data, "keys are Avro where values are");
    }
    mr_text_string(&name, ".");
    for (uint32_t i = 0; i < convert->lines.count; i++) {
        struct mr_convert_line *line = &convert->lines.items[i];
        if (strncmp(line->name, name.data, name.len) == 0) {
            line->done = true;
            convert_option(convert, line, line->name + name.len, is_key);
        }
    }
    if (!is_key) {
        mr_convert_set(convert, "format", "avro");
        convert_names(convert, "schema.name.adjustment.mode");
        convert_names(convert, "field.name.adjustment.mode");
    }
    mr_text_done(&name);
    return true;
}
