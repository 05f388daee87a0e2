/* The schema registry of format = "avro". */

#include "config/names.h"

static const char *host_fault(const char *rest)
{
    char host[300];
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(rest, "/?#"), rest);
    return mr_names_host_fault(host);
}

static void check_url(struct mr_config *config, const char *url)
{
    const char *host = strstr(url, "://");
    bool is_http = strncmp(url, "http://", 7) == 0;
    const char *fault;
    if (host == NULL || (!is_http && strncmp(url, "https://", 8) != 0)) {
        REFUSE(config, registry_url, ": \"%s\" does not begin with http:// or https://", url);
    } else if (strchr(host, '@') != NULL) {
        REFUSE(config, registry_url,
               " has a user name in it; set schema_registry.username and password");
    } else if ((fault = host_fault(host + 3)) != NULL) {
        REFUSE(config, registry_url, ": \"%s\" %s", url, fault);
    } else if (config->registry.username != NULL && mr_names_in_clear(url)) {
        REFUSE(config, registry_url, ": the password would go to \"%s\" in the clear; set https://",
               url);
    }
}

static void build_login(struct mr_config *config)
{
    if (mr_config_pair(config, MR_INDEX_registry_username, MR_INDEX_registry_password)) {
        config->registry.username = config->values.registry_username;
        config->registry.password =
            mr_config_watched(config, "schema registry's password", MR_INDEX_registry_password);
    }
}

void mr_config_build_registry(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    if (config->encode.format != MR_FORMAT_AVRO) {
        return;
    }
    build_login(config);
    config->registry.urls = (const char *const *)values->registry_url.items;
    config->registry.url_count = values->registry_url.count;
    config->registry.backoff_max_ms = (uint32_t)values->reconnect_max;
    if (values->registry_ca[0] != '\0') {
        config->registry.authority =
            mr_config_public_file(config, "registry's certificates", MR_INDEX_registry_ca);
    }
    if (config->encode.types != MR_TYPES_DEBEZIUM) {
        REFUSE(config, format, " = \"avro\" has Debezium's types; set types = \"debezium\"");
    }
    if (values->registry_url.count == 0) {
        REFUSE(config, format,
               " = \"avro\" needs a schema registry; set [schema_registry] url = [\"http://…\"]");
    }
    for (uint32_t i = 0; i < values->registry_url.count; i++) {
        check_url(config, values->registry_url.items[i]);
    }
}
