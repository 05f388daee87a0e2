/* What [fleet] says of the fleet itself: its name, and the options of millrace's by which its agents and commands reach Kafka, listen and
 * log. The file may be the whole definition, or on an agent's host [fleet] alone. */

#include "base/file.h"
#include "fleet/fleet_internal.h"

enum {
    SESSION_MS_MIN = 1000,
    SESSION_MS_MAX = 600000,
    FOLDER_MAX = 80, /* with sockets in it, which have paths of 107 bytes at most */
};

/* Of [sink.kafka], what says how a cluster is reached. */
static const char reaches[] =
    "brokers|tls|tls_ca_location|tls_certificate_location|tls_key_location|tls_key_password_env|"
    "sasl|properties";

/* A tree of options: nodes and texts are those of the file, the arrays are here. */
struct parts {
    struct mr_toml_node top[3], kafka, *of_kafka;
};

/* [sink.kafka] of a table without what is a pipeline's, as [sink]; false: there is none. */
static bool take_sink(const struct mr_toml_node *table, struct parts *parts,
                      struct mr_toml_node *to)
{
    const struct mr_toml_node *sink = mr_fleet_child(table, "sink");
    const struct mr_toml_node *kafka = mr_fleet_child(sink, "kafka");
    if (kafka == NULL || kafka->kind != MR_TOML_TABLE) {
        return false;
    }
    parts->kafka = *kafka;
    parts->kafka.count = 0;
    parts->kafka.children = parts->of_kafka = MR_NEW_ARRAY(struct mr_toml_node, kafka->count + 1);
    for (uint32_t i = 0; i < kafka->count; i++) {
        if (mr_is_among(reaches, mr_slice_of(kafka->children[i].key))) {
            parts->kafka.children[parts->kafka.count++] = kafka->children[i];
        }
    }
    *to = *sink;
    to->children = &parts->kafka;
    to->count = 1;
    return true;
}

static void load_options(struct fleet *fleet, const char *path, struct fleet_own *own)
{
    const struct mr_toml_node *about = mr_fleet_child(fleet->root, "fleet");
    struct parts parts = {0};
    struct mr_toml_node options = {.kind = MR_TOML_TABLE, .children = parts.top};
    options.count = take_sink(about, &parts, &parts.top[0]) ||
                    take_sink(mr_fleet_child(fleet->root, "template"), &parts, &parts.top[0]);
    static const char *const sections[] = {"http", "log"};
    for (size_t i = 0; i < MR_ARRAY_LEN(sections); i++) {
        const struct mr_toml_node *section = mr_fleet_child(about, sections[i]);
        if (section != NULL) {
            parts.top[options.count++] = *section;
        }
    }
    mr_status status = mr_config_load_clients(path, &options, &own->config);
    free(parts.of_kafka);
    mr_config_print_problems(own->config, stderr);
    fleet->problems.errors += own->config->problems.errors;
    if (status == MR_OK && own->config->kafka.brokers == NULL) {
        FLEET_PROBLEM(fleet, 0,
                      "the fleet has no Kafka: set sink.kafka.brokers in [fleet] or in [template]");
    }
}

static void read_keys(struct fleet *fleet, struct fleet_own *own)
{
    const struct mr_toml_node *about = mr_fleet_child(fleet->root, "fleet");
    const char *session = mr_fleet_text(fleet, about, "session_timeout", "30s");
    const char *metrics = mr_fleet_text(fleet, about, "metrics", "all");
    const struct mr_option *duration = mr_option_at(MR_INDEX_handover); /* how one is written */
    own->name = MR_STRDUP(fleet->name);
    own->folder = MR_STRDUP(mr_fleet_text(fleet, about, "folder", "/run/millrace/fleet"));
    own->summary = strcmp(metrics, "summary") == 0;
    if (own->folder[0] != '/' || strlen(own->folder) > FOLDER_MAX) {
        FLEET_PROBLEM(fleet, about->line, "folder must be an absolute path of at most %d bytes",
                      FOLDER_MAX);
    }
    mr_fleet_number(fleet, about, "max_pipelines", INT32_MAX, &own->pipelines_max);
    mr_fleet_size(fleet, about, "max_memory", &own->memory_max);
    if (!mr_option_parse(duration, session, &own->session_ms) || own->session_ms < SESSION_MS_MIN ||
        own->session_ms > SESSION_MS_MAX) {
        FLEET_PROBLEM(fleet, about->line,
                      "session_timeout must be a duration from 1s to 10m, such as \"30s\"");
    }
    if (!own->summary && strcmp(metrics, "all") != 0) {
        FLEET_PROBLEM(fleet, about->line, "metrics must be \"all\" or \"summary\"");
    }
}

mr_status mr_fleet_own_read(const char *path, struct fleet_own *ret, struct mr_error *ret_error)
{
    struct fleet fleet;
    *ret = (struct fleet_own){0};
    mr_fleet_read(path, &fleet);
    if (fleet.problems.errors == 0) {
        read_keys(&fleet, ret);
    }
    if (fleet.problems.errors == 0) {
        load_options(&fleet, path, ret);
    }
    mr_problems_print(&fleet.problems, stderr);
    mr_status status = fleet.problems.errors == 0 ? MR_OK
                                                  : mr_fail(ret_error, MR_ERR_CONFIG,
                                                            "errors are above; nothing was done");
    mr_fleet_done(&fleet);
    return status;
}

void mr_fleet_own_done(struct fleet_own *own)
{
    free(own->name);
    free(own->folder);
    mr_config_free(own->config);
    *own = (struct fleet_own){0};
}
