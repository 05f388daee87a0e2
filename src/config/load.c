/* From a file, or the environment alone, to a configuration. */

#include "base/file.h"
#include "config/build.h"
#include "options/secrets.h"
#include "options/unknown.h"

/* What a file of Outboxx's form means without saying it. */
static void imply(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    bool is_outboxx = values->outboxx_line != 0;
    if (LINE(config, format) == 0 && (is_outboxx || values->stream_count > 0)) {
        values->format = MR_FORMAT_FLAT;
    }
    /* As Outboxx has it: a file that says nothing must not come to send a password in the clear. */
    if (is_outboxx && LINE(config, tls) == 0) {
        values->tls = 1;
    }
}

void mr_config_place_values(const struct mr_config_values *values,
                            const struct mr_config_place *places, void *to_struct)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        void *to = (char *)to_struct + places[i].offset;
        const void *value = mr_value_of(values, i);
        enum mr_option_kind kind = mr_option_at(i)->kind;
        if (places[i].size == 0) {
            continue;
        }
        if (kind == MR_KIND_STRING) {
            *(const char **)to = *(char *const *)value;
        } else if (kind == MR_KIND_TOPIC) {
            *(const char **)to = mr_config_or_null(*(char *const *)value);
        } else if (places[i].size == sizeof(bool)) {
            *(bool *)to = *(const int64_t *)value != 0;
        } else if (places[i].size == sizeof(uint32_t)) {
            *(uint32_t *)to = (uint32_t) * (const int64_t *)value;
        } else {
            MR_ASSERT(places[i].size == sizeof(uint64_t));
            *(uint64_t *)to = (uint64_t) * (const int64_t *)value;
        }
    }
}

#define NOWHERE                                                                                    \
    {                                                                                              \
        0                                                                                          \
    }
#define DAEMON(place) NOWHERE
#define AT(place)                                                                                  \
    {                                                                                              \
        offsetof(struct mr_config, place), sizeof(((struct mr_config *)NULL)->place)               \
    }
static const struct mr_config_place places[] = {
#define MR_OPTION(path, kind, field, place, ...) place,
#include "options/options.def"
#undef MR_OPTION
};

static void build(struct mr_config *config, const struct mr_config_reading *reading)
{
    if (reading->snapshot_mode != 0) {
        config->values.snapshot_mode = reading->snapshot_mode;
    }
    imply(config);
    mr_config_place_values(&config->values, places, config);
    mr_values_check_needs(&config->values, &config->problems);
    mr_config_build_encode(config);
    mr_config_build_tables(config);
    mr_config_build_columns(config);
    mr_config_build_outbox(config);
    mr_config_build_routing(config);
    mr_config_build_topics(config);
    mr_config_build_publication(config);
    mr_config_build_source(config);
    mr_config_build_sink(config);
    mr_config_build_context(config);
    mr_config_build_registry(config);
    mr_config_build_http(config);
    if (reading->build != NULL) {
        reading->build(config);
    }
    mr_config_name_pipeline(config);
}

static void load_read_text(struct mr_config *config, const char *text, size_t len)
{
    uint32_t line = 0;
    char reason[512];
    struct mr_toml_node *root = mr_toml_parse(text, len, &line, reason, sizeof(reason));
    mr_values_read(&config->values, root, &config->problems);
    if (root == NULL) {
        mr_config_not_toml(text, len, line, reason, &config->problems);
    }
    mr_toml_free(root);
}

static void read_environment(struct mr_config *config)
{
    const char *names = getenv("MILLRACE_TABLES");
    MR_FREED char *list = MR_STRDUP(names == NULL ? "" : names);
    char *rest = NULL;
    mr_values_read(&config->values, NULL, &config->problems);
    struct mr_strings *tables = &config->values.tables;
    for (char *name = strtok_r(list, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        mr_strings_add(tables, name);
    }
    if (tables->count == 0) {
        PROBLEM(config, 0,
                "no configuration file is given and MILLRACE_TABLES is not set; run millrace "
                "--config FILE, or set MILLRACE_TABLES=public.orders and DATABASE_URL");
    }
}

static void load_read_file(struct mr_config *config, const char *path)
{
    size_t len;
    const char *reason;
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    config->path = path;
    if (text == NULL) {
        mr_values_read(&config->values, NULL, &config->problems);
        PROBLEM(config, 0, "the file can't be read: %s; give the path of a TOML file to --config",
                reason);
        return;
    }
    config->digest = mr_sha256_short((mr_slice){.data = (const uint8_t *)text, .len = len});
    load_read_text(config, text, len);
}

/* Nothing is made of values of which one is of the wrong kind: that has been said, and what follows
 * from it would only be noise. */
mr_status mr_config_read(const struct mr_config_reading *reading, struct mr_config **ret_config)
{
    const char *name = reading->path != NULL   ? reading->path
                       : reading->text != NULL ? reading->name
                                               : "environment";
    struct mr_config *config = mr_config_new(name);
    *ret_config = config;
    config->problems.without_secrets = reading->is_reload || reading->elsewhere;
    config->problems.elsewhere = reading->elsewhere;
    if (reading->path != NULL) {
        load_read_file(config, reading->path);
    } else if (reading->text != NULL) {
        load_read_text(config, reading->text, reading->len);
    } else {
        read_environment(config);
    }
    if (config->problems.errors == 0) {
        build(config, reading);
        if (!config->problems.without_secrets) {
            mr_secrets_empty_variables(&config->values);
        }
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

mr_status mr_config_load(const char *path, struct mr_config **ret_config)
{
    return mr_config_read(&(struct mr_config_reading){.path = path}, ret_config);
}

mr_status mr_config_load_http(const char *path, struct mr_config **ret_config)
{
    struct mr_config *config = mr_config_new(path == NULL ? "defaults" : path);
    *ret_config = config;
    if (path == NULL) {
        mr_values_read(&config->values, NULL, &config->problems);
    } else {
        load_read_file(config, path);
    }
    if (config->problems.errors == 0) {
        mr_config_place_values(&config->values, places, config);
        mr_config_build_http(config);
        mr_secrets_empty_variables(&config->values);
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

void mr_config_print_problems(const struct mr_config *config, FILE *to)
{
    mr_problems_print(&config->problems, to);
}
