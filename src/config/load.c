/* From a file, or the environment alone, to a configuration. */

#include "base/file.h"
#include "config/build.h"
#include "config/unknown.h"

/* What a file of an older form, or of Outboxx's, means without saying it. */
static void imply(struct mr_config *config)
{
    struct mr_config_values *values = &config->values;
    bool is_outboxx = LINE(config, metadata_version) != 0;
    if (LINE(config, format) == 0 && (is_outboxx || values->stream_count > 0)) {
        values->format = MR_FORMAT_FLAT;
    }
    /* As Outboxx has it: a file that says nothing must not come to send a password in the clear. */
    if (is_outboxx && LINE(config, tls) == 0) {
        values->tls = 1;
    }
    if (LINE(config, coalesce) != 0 && LINE(config, latency) == 0) {
        values->latency = 2 * values->coalesce;
        WARNING(config, LINE(config, coalesce),
                "pipeline.coalesce is pipeline.latency now, twice as long: write latency = "
                "\"%lldus\"",
                (long long)values->latency);
    }
}

static struct mr_config *defaults_new(const char *name)
{
    struct mr_config *config = mr_config_new(name);
    mr_values_read(&config->values, NULL, &config->problems);
    return config;
}

#define AT(place)                                                                                  \
    {                                                                                              \
        offsetof(struct mr_config, place), sizeof(((struct mr_config *)NULL)->place)               \
    }
#define NOWHERE                                                                                    \
    {                                                                                              \
        0                                                                                          \
    }

static void place_values(struct mr_config *config)
{
    static const struct {
        size_t offset, size;
    } places[] = {
#define MR_OPTION(path, kind, field, place, ...) place,
#include "config/options.def"
#undef MR_OPTION
    };
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        void *to = (char *)config + places[i].offset;
        const void *value = mr_value_of(&config->values, i);
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

static mr_status build(struct mr_config *config)
{
    /* A value of the wrong kind has been told; what follows from it would only be noise. */
    if (config->problems.errors == 0) {
        imply(config);
        place_values(config);
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
        mr_config_build_registry(config);
        mr_config_build_http(config);
        mr_config_build_pipeline(config);
        mr_config_name_pipeline(config);
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

typedef mr_status (*build_fn)(struct mr_config *config);

static mr_status read_text(struct mr_config *config, const char *text, size_t len, build_fn finish)
{
    uint32_t line = 0;
    char reason[512];
    struct mr_toml_node *root = mr_toml_parse(text, len, &line, reason, sizeof(reason));
    if (root == NULL) {
        mr_values_read(&config->values, NULL, &config->problems);
        mr_config_not_toml(text, len, line, reason, &config->problems);
        return MR_ERR_CONFIG;
    }
    mr_values_read(&config->values, root, &config->problems);
    mr_toml_free(root);
    return finish(config);
}

mr_status mr_config_load_text(const char *name, const char *text, size_t len,
                              struct mr_config **ret_config)
{
    *ret_config = mr_config_new(name);
    return read_text(*ret_config, text, len, build);
}

mr_status mr_config_load_elsewhere(const char *name, const char *text, size_t len,
                                   struct mr_config **ret_config)
{
    *ret_config = mr_config_new(name);
    (*ret_config)->problems.without_secrets = (*ret_config)->problems.elsewhere = true;
    return read_text(*ret_config, text, len, build);
}

static mr_status load_environment(struct mr_config **ret_config)
{
    struct mr_config *config = defaults_new("environment");
    *ret_config = config;
    const char *names = getenv("MILLRACE_TABLES");
    MR_FREED char *list = MR_STRDUP(names == NULL ? "" : names);
    char *rest = NULL;
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
    return build(config);
}

struct mr_sha256_short mr_config_digest(const char *path)
{
    size_t len;
    const char *reason;
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    return text == NULL ? (struct mr_sha256_short){""}
                        : mr_sha256_short((mr_slice){(const uint8_t *)text, len});
}

static mr_status load_file(const char *path, build_fn finish, bool without_secrets,
                           struct mr_config **ret_config)
{
    struct mr_config *config = mr_config_new(path);
    *ret_config = config;
    config->path = path;
    config->problems.without_secrets = without_secrets;
    size_t len;
    const char *reason;
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    if (text == NULL) {
        mr_values_read(&config->values, NULL, &config->problems);
        PROBLEM(config, 0, "the file can't be read: %s; give the path of a TOML file to --config",
                reason);
        return MR_ERR_CONFIG;
    }
    config->digest = mr_sha256_short((mr_slice){.data = (const uint8_t *)text, .len = len});
    return read_text(config, text, len, finish);
}

mr_status mr_config_load(const char *path, struct mr_config **ret_config)
{
    return path == NULL ? load_environment(ret_config) : load_file(path, build, false, ret_config);
}

/* It takes commands by HTTP: without a password from this machine alone. */
static mr_status build_mending(struct mr_config *config, int64_t mode)
{
    config->values.snapshot_mode = mode;
    mr_status status = build(config);
    if (config->http.username == NULL && mr_address_is_any(&config->http.address)) {
        snprintf(config->http.address.host, sizeof(config->http.address.host), "127.0.0.1");
    }
    return status;
}

static mr_status build_copying(struct mr_config *config)
{
    return build_mending(config, MR_MODE_WHEN_NEEDED);
}

static mr_status build_leaving_gap(struct mr_config *config)
{
    return build_mending(config, MR_MODE_ACCEPT_GAP);
}

mr_status mr_config_load_mending(const char *path, bool copies, struct mr_config **ret_config)
{
    return load_file(path, copies ? build_copying : build_leaving_gap, false, ret_config);
}

mr_status mr_config_reload(const struct mr_config *running, struct mr_config **ret_config)
{
    if (running->path != NULL) {
        return load_file(running->path, build, true, ret_config);
    }
    *ret_config = defaults_new("environment");
    PROBLEM(*ret_config, 0,
            "there is no file to read again, for millrace was started without one; start it with "
            "--config FILE");
    return MR_ERR_CONFIG;
}

static mr_status build_http_alone(struct mr_config *config)
{
    if (config->problems.errors == 0) {
        place_values(config);
        mr_config_build_http(config);
    }
    return config->problems.errors == 0 ? MR_OK : MR_ERR_CONFIG;
}

mr_status mr_config_load_http(const char *path, struct mr_config **ret_config)
{
    if (path != NULL) {
        return load_file(path, build_http_alone, false, ret_config);
    }
    *ret_config = defaults_new("defaults");
    return build_http_alone(*ret_config);
}

void mr_config_print_problems(const struct mr_config *config, FILE *to)
{
    mr_problems_print(&config->problems, to);
}
