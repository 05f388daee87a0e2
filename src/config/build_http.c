/* The options of the control plane: the HTTP server, and the configuration as it shows it. */
#include <cjson/cJSON.h>

#include "config/build.h"

enum { CONNECTIONS = 64 };

static void build_tls(struct mr_config *config)
{
    if (mr_config_pair(config, MR_INDEX_http_tls_certificate, MR_INDEX_http_tls_key)) {
        config->http.certificate =
            mr_config_public_file(config, "certificate", MR_INDEX_http_tls_certificate);
        config->http.key = mr_config_secret(config, "certificate's key", MR_INDEX_http_tls_key);
    }
}

static void build_password(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    config->http.username = mr_config_or_null(values->http_username);
    config->http.password = mr_config_watched(config, "HTTP password", MR_INDEX_http_password);
    mr_config_pair(config, MR_INDEX_http_username, MR_INDEX_http_password);
    if (values->http_last_events != 0 && values->http_password.count == 0) {
        REFUSE(config, http_last_events,
               " shows rows to anybody who can connect; set http.username and http.password");
    }
}

/* The NUL belongs to it, so that "a", "b" is not "ab". */
static void build_http_add_part(struct mr_text *text, const char *part)
{
    mr_text_add(text, part, strlen(part) + 1);
}

/* Of what the file says alone: who asks a running one need not have its variables. */
static void name_pipeline(struct mr_config *config)
{
    const struct mr_config_values *values = &config->values;
    struct mr_pipeline_name *name = &config->http.pipeline;
    MR_TEXT(stream);
    bool is_elsewhere = mr_text_is_reference(values->connection);
    build_http_add_part(&stream, values->slot_name);
    build_http_add_part(&stream, values->topic_prefix);
    build_http_add_part(&stream, values->state_name);
    mr_pg_server_text(is_elsewhere ? "" : values->connection, true, &stream);
    name->stream = mr_sha256_short((mr_slice){(const uint8_t *)stream.data, stream.len});
    name->path = config->path;
    name->words = mr_config_text(config, "its file is %s, its slot \"%s\", its topics \"%s.…\"",
                                 config->path == NULL ? "none" : config->path, values->slot_name,
                                 values->topic_prefix);
}

void mr_config_build_http(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    struct mr_http_options *http = &config->http;
    struct mr_error error = {0};
    name_pipeline(config);
    http->enabled = values->http_address[0] != '\0' || LINE(config, http_address) == 0;
    http->connections = CONNECTIONS;
    http->host_names = (const char *const *)values->http_host_names.items;
    http->host_name_count = values->http_host_names.count;
    if (http->enabled && mr_address_parse(values->http_address, &http->address, &error) != MR_OK) {
        REFUSE(config, http_address, ": %s", error.text);
    }
    if (http->enabled) {
        build_tls(config);
        build_password(config);
    }
}

/* Values of options are no secrets: those come from variables and files, and the texts that might
 * hold one are refused when the file is read (build_source.c, build_sink.c). */
static cJSON *json_of_strings(const struct mr_strings *strings)
{
    cJSON *array = cJSON_CreateArray();
    for (uint32_t i = 0; i < strings->count; i++) {
        cJSON_AddItemToArray(array, cJSON_CreateString(strings->items[i]));
    }
    return array;
}

/* Where it is, as a file writes it. */
static cJSON *json_of_secret(const struct mr_strings *words)
{
    bool is_program = words->count > 0 && words->items[0][0] == '/';
    return is_program ? json_of_strings(words)
                      : cJSON_CreateString(words->count == 0 ? "" : words->items[0]);
}

static cJSON *json_of_value(const struct mr_option *option, const void *field)
{
    switch (option->kind) {
    case MR_KIND_STRING:
    case MR_KIND_TOPIC:
        return cJSON_CreateString(*(char *const *)field);
    case MR_KIND_STRINGS:
    case MR_KIND_REWRITE:
        return json_of_strings(field);
    case MR_KIND_LOGIN:
    case MR_KIND_SECRET:
        return json_of_secret(field);
    case MR_KIND_CHOICE:
        return cJSON_CreateString(mr_option_write(option, *(const int64_t *)field).text);
    case MR_KIND_BOOL:
        return cJSON_CreateBool(*(const int64_t *)field != 0);
    default:
        return cJSON_CreateNumber((double)*(const int64_t *)field);
    }
}

static void add_origin(cJSON *origins, const struct mr_config *config, uint32_t index,
                       uint32_t line)
{
    char origin[320];
    snprintf(origin, sizeof(origin), "line %u of %s", line, config->problems.name);
    if (line != 0) {
        cJSON_AddStringToObject(origins, mr_option_at(index)->path, origin);
    } else if (index == MR_INDEX_tables && config->values.tables.count > 0) {
        cJSON_AddStringToObject(origins, mr_option_at(index)->path, "MILLRACE_TABLES");
    }
}

void mr_config_show(const struct mr_config *config, const struct mr_config *reloaded, cJSON *to)
{
    const struct mr_config_values *values = &config->values;
    cJSON *configuration = cJSON_AddObjectToObject(to, "configuration");
    cJSON *origins = cJSON_AddObjectToObject(to, "configuration_origins");
    cJSON *units = cJSON_AddObjectToObject(to, "configuration_units");
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        const struct mr_option *option = mr_option_at(i);
        const struct mr_config_values *held =
            reloaded != NULL && mr_option_is_live(option) ? &reloaded->values : values;
        const char *unit = mr_kinds[option->kind].unit;
        cJSON_AddItemToObject(configuration, option->path,
                              json_of_value(option, mr_value_of(held, i)));
        add_origin(origins, config, i, held->lines[i]);
        if (unit != NULL) {
            cJSON_AddStringToObject(units, option->path, unit);
        }
    }
    cJSON *properties = cJSON_AddObjectToObject(configuration, "sink.kafka.properties");
    for (uint32_t i = 0; i < values->property_count; i++) {
        cJSON_AddStringToObject(properties, values->properties[i].name,
                                values->properties[i].value);
    }
}
