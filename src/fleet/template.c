/* From the template and a pipeline's own options to a configuration, an option a line. */
#include <inttypes.h>

#include "base/json.h"
#include "fleet/fleet_internal.h"

enum { WRONG_MAX = 5 }; /* pipelines */

/* Of a pipeline's own section, what is the fleet's and not an option. */
#define OWN_KEYS "database|server|template"

/* TOML's basic strings have JSON's escapes (toml.io, v1.0.0, "String"), and so do YAML's in double
 * quotes (YAML 1.2.2, 5.7). */
static void add_string(struct mr_text *to, const char *text)
{
    size_t len = strlen(text), size = 6 * len + 2;
    MR_FREED uint8_t *bytes = MR_ALLOC(size);
    struct mr_buffer out = mr_buffer_init(bytes, size);
    mr_json_string(&out, (const uint8_t *)text, len);
    mr_text_add(to, bytes, (size_t)(out.at - bytes));
}

static void template_add_key(struct mr_text *to, const char *key)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (key[strspn(key, bare)] == '\0') {
        mr_text_string(to, key);
    } else {
        add_string(to, key);
    }
}

/* What a word in braces stands for; NULL: it is not one of ours, "": it is not known of this
 * pipeline. */
static const char *template_variable(const struct fleet_pipeline *pipeline, mr_slice word)
{
    return mr_slice_equal(word, MR_SLICE("name"))       ? pipeline->name
           : mr_slice_equal(word, MR_SLICE("database")) ? pipeline->database
           : mr_slice_equal(word, MR_SLICE("server"))   ? pipeline->server
                                                        : NULL;
}

/* Of what looks like a word in braces, the characters within; 0: of anything else. Numbers are a
 * regular expression's, and lists SQL's. */
static size_t word_len(const char *text)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ";
    size_t len = text[0] == '{' ? strspn(text + 1, good) : 0;
    return len > 0 && text[len + 1] == '}' && strchr("0123456789", text[1]) == NULL ? len : 0;
}

bool mr_fleet_expand(struct fleet *fleet, const struct fleet_pipeline *pipeline, const char *text,
                     struct mr_text *to)
{
    mr_text_string(to, "");
    for (; *text != '\0'; text++) {
        size_t len = word_len(text);
        if (len == 0) {
            mr_text_add(to, text, 1);
            continue;
        }
        const char *value =
            template_variable(pipeline, (mr_slice){.data = (const uint8_t *)text + 1, .len = len});
        if (value == NULL || value[0] == '\0') {
            FLEET_PROBLEM(fleet, 0, "pipeline %s: {%.*s} is not known; %s", pipeline->name,
                          (int)len, text + 1,
                          value == NULL ? "{name}, {database} and {server} are"
                                        : "set it in the pipeline's section");
            return false;
        }
        mr_text_string(to, value);
        text += len + 1;
    }
    return true;
}

static bool template_add_value(struct fleet *fleet, const struct fleet_pipeline *pipeline,
                               const struct mr_toml_node *node, struct mr_text *to)
{
    MR_TEXT(text);
    bool good = true;
    switch (node->kind) {
    case MR_TOML_STRING:
        good = mr_fleet_expand(fleet, pipeline, node->string, &text);
        add_string(to, text.data);
        return good;
    case MR_TOML_INTEGER:
        mr_text_format(to, "%" PRId64, node->integer);
        return true;
    case MR_TOML_BOOLEAN:
        mr_text_string(to, node->integer != 0 ? "true" : "false");
        return true;
    case MR_TOML_ARRAY:
        mr_text_string(to, "[");
        for (uint32_t i = 0; i < node->count && good; i++) {
            mr_text_string(to, i == 0 ? "" : ", ");
            good = template_add_value(fleet, pipeline, &node->children[i], to);
        }
        mr_text_string(to, "]");
        return good;
    case MR_TOML_TABLE:
    case MR_TOML_FLOAT:
    case MR_TOML_OTHER:
        break;
    }
    FLEET_PROBLEM(fleet, node->line,
                  "pipeline %s: an option of a fleet is a text, a whole number, true, false, or a "
                  "list of these",
                  pipeline->name);
    return false;
}

static bool add_section(struct fleet *fleet, struct fleet_pipeline *pipeline, const char *prefix,
                        const struct fleet_layers *layers);

/* A value takes the place of all below it, a section that of what is none. */
static bool add_option(struct fleet *fleet, struct fleet_pipeline *pipeline, const char *prefix,
                       const struct fleet_layers *layers, const char *key)
{
    struct fleet_layers inner = {0};
    const struct mr_toml_node *value = NULL;
    for (uint32_t i = FLEET_LAYERS; i-- > 0;) {
        const struct mr_toml_node *node = mr_fleet_child(layers->at[i], key);
        value = value == NULL ? node : value;
        if (node != NULL && node->kind != MR_TOML_TABLE) {
            break;
        }
        inner.at[i] = node;
    }
    MR_TEXT(path);
    bool good;
    mr_text_string(&path, prefix);
    template_add_key(&path, key);
    if (value->kind == MR_TOML_TABLE) {
        mr_text_string(&path, ".");
        good = add_section(fleet, pipeline, path.data, &inner);
    } else {
        mr_text_format(&pipeline->text, "%s = ", path.data);
        good = template_add_value(fleet, pipeline, value, &pipeline->text);
        mr_text_string(&pipeline->text, "\n");
    }
    return good;
}

static bool template_is_before(const struct fleet_layers *layers, uint32_t layer, const char *key)
{
    while (layer-- > 0) {
        if (mr_fleet_child(layers->at[layer], key) != NULL) {
            return true;
        }
    }
    return false;
}

/* Each key once, where the first layer has it. */
static bool add_section(struct fleet *fleet, struct fleet_pipeline *pipeline, const char *prefix,
                        const struct fleet_layers *layers)
{
    bool good = true;
    for (uint32_t layer = 0; layer < FLEET_LAYERS; layer++) {
        const struct mr_toml_node *section = layers->at[layer];
        const char *fleets = prefix[0] == '\0' && layer + 1 == FLEET_LAYERS ? OWN_KEYS : "";
        for (uint32_t i = 0; section != NULL && i < section->count && good; i++) {
            const char *key = section->children[i].key;
            good = mr_is_among(fleets, mr_slice_of(key)) ||
                   template_is_before(layers, layer, key) ||
                   add_option(fleet, pipeline, prefix, layers, key);
        }
    }
    return good;
}

/* millrace's own parser has the last word. Lines are of a text that nobody sees. */
static bool make_one(struct fleet *fleet, struct fleet_pipeline *pipeline)
{
    uint32_t errors = fleet->problems.errors;
    mr_fleet_mark(fleet, pipeline, &pipeline->text);
    struct fleet_layers layers = mr_fleet_layers(fleet, pipeline);
    if (fleet->problems.errors > errors || !add_section(fleet, pipeline, "", &layers)) {
        return false;
    }
    mr_status status = fleet->asked->load(pipeline->name, pipeline->text.data, pipeline->text.len,
                                          &pipeline->config);
    const struct mr_problems *problems = &pipeline->config->problems;
    for (uint32_t i = 0; i < problems->count; i++) {
        if (problems->items[i].is_error) {
            FLEET_PROBLEM(fleet, 0, "pipeline %s: %s", pipeline->name, problems->items[i].text);
        }
    }
    return status == MR_OK;
}

static bool template_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && a[0] != '\0' && strcmp(a, b) == 0;
}

/* By name or by connection string. Where neither is said (it is in the environment), there is but
 * one. */
static bool one_server(const struct fleet_pipeline *a, const struct fleet_pipeline *b)
{
    const char *one = a->config->source.connection.conninfo;
    const char *other = b->config->source.connection.conninfo;
    bool are_named = a->server[0] != '\0' && b->server[0] != '\0';
    bool is_said = (one != NULL && one[0] != '\0') || (other != NULL && other[0] != '\0');
    return template_same(a->server, b->server) ||
           ((is_said || !are_named) && mr_pg_same_server(one, other, false));
}

/* A slot's name is one of its server (the manual, "Replication Slots": across all databases). Two
 * with one transactional id would end each other's session for ever, whatever topic their positions
 * are in; of two with one slot one ends with exit code 78. */
const char *mr_fleet_shared(const struct fleet_pipeline *a, const struct fleet_pipeline *b)
{
    if (a->config == NULL || b->config == NULL) {
        return NULL;
    }
    const struct mr_kafka_options *one = &a->config->kafka, *other = &b->config->kafka;
    if (template_same(a->config->source.slot, b->config->source.slot) && one_server(a, b)) {
        return "slot";
    }
    if (!template_same(one->brokers, other->brokers) ||
        !template_same(one->state_name, other->state_name)) {
        return NULL;
    }
    if (one->exactly_once || other->exactly_once) {
        return "transactional id";
    }
    return template_same(one->state_topic, other->state_topic) ? "stored position" : NULL;
}

static void check_pair(struct fleet *fleet, const struct fleet_pipeline *a,
                       const struct fleet_pipeline *b)
{
    const char *shared = mr_fleet_shared(a, b);
    if (shared != NULL) {
        FLEET_PROBLEM(fleet, 0, "pipelines %s and %s have one %s; put {name} into %s", a->name,
                      b->name, shared,
                      strcmp(shared, "slot") == 0 ? "source.postgres.slot_name"
                                                  : "sink.kafka.state_name");
    }
}

void mr_fleet_make(struct fleet *fleet)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < fleet->pipelines.count && wrong < WRONG_MAX; i++) {
        wrong += !make_one(fleet, &fleet->pipelines.items[i]);
    }
    if (wrong == WRONG_MAX) {
        FLEET_PROBLEM(fleet, 0, "%u pipelines are wrong; the others were not looked at", wrong);
    }
    for (uint32_t i = 0; i < fleet->pipelines.count && wrong == 0; i++) {
        for (uint32_t k = i + 1; k < fleet->pipelines.count; k++) {
            check_pair(fleet, &fleet->pipelines.items[i], &fleet->pipelines.items[k]);
        }
    }
}

/* A path has no " = " and no single quote: they are options, or properties of librdkafka's. */
void mr_fleet_print_values(const struct fleet *fleet, FILE *to)
{
    fprintf(to, "# Made by millrace fleet render --helm of fleet %s.\npipelines:%s\n", fleet->name,
            fleet->pipelines.count == 0 ? " {}" : "");
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        fprintf(to, "  \"%s\":\n    config:\n", fleet->pipelines.items[i].name);
        char *rest = fleet->pipelines.items[i].text.data;
        for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
            const char *value = strstr(line, " = ");
            if (line[0] != '#' && value != NULL) {
                fprintf(to, "      '%.*s': %s\n", (int)(value - line), line, value + 3);
            }
        }
    }
}
