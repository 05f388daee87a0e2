#include <dirent.h>
#include <sys/stat.h>

#include "base/file.h"
#include "fleet/fleet_internal.h"

enum { PER_SERVER_MAX = 50 };
#define MAIN_FILE "fleet.toml" /* of a folder */

/* Good for a file, for a unit of systemd, and within a connection string. */
static bool is_fleet_name(const char *text)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t len = strspn(text, good);
    return len > 0 && len <= FLEET_NAME_MAX && text[len] == '\0' && strchr("_.-", text[0]) == NULL;
}

const struct mr_toml_node *mr_fleet_child(const struct mr_toml_node *table, const char *key)
{
    return table == NULL
               ? NULL
               : MR_FIND(child, table->children, table->count, strcmp(child->key, key) == 0);
}

/* The value of that kind; NULL: there is none, or the problem is added. */
static const struct mr_toml_node *definition_value_of(struct fleet *fleet,
                                                      const struct mr_toml_node *table,
                                                      const char *key, enum mr_toml_kind kind)
{
    static const char *const kinds[] = {"a string", "a whole number", "true or false"};
    const struct mr_toml_node *node = mr_fleet_child(table, key);
    if (node != NULL && node->kind != kind) {
        FLEET_PROBLEM(fleet, node->line, "%s%s%s must be %s", table->key == NULL ? "" : table->key,
                      table->key == NULL ? "" : ".", key,
                      kind < MR_ARRAY_LEN(kinds) ? kinds[kind] : "a section");
        return NULL;
    }
    return node;
}

/* The text of a key, or `fallback`; of another kind: the problem is added. */
static const char *fleet_text(struct fleet *fleet, const struct mr_toml_node *table,
                              const char *key, const char *fallback)
{
    const struct mr_toml_node *node = definition_value_of(fleet, table, key, MR_TOML_STRING);
    return node == NULL ? fallback : node->string;
}

static void check_keys(struct fleet *fleet, const struct mr_toml_node *table, const char *where,
                       const char *known)
{
    for (uint32_t i = 0; table != NULL && i < table->count; i++) {
        const struct mr_toml_node *node = &table->children[i];
        if (!mr_is_among(known, mr_slice_of(node->key))) {
            FLEET_PROBLEM(fleet, node->line, "\"%s\" is unknown %s, which takes %s", node->key,
                          where, known);
        }
    }
}

static struct fleet_server read_server(struct fleet *fleet, const struct mr_toml_node *servers,
                                       const char *name)
{
    const struct mr_toml_node *table = definition_value_of(fleet, servers, name, MR_TOML_TABLE);
    const struct mr_toml_node *insecure =
        definition_value_of(fleet, table, "insecure_tls", MR_TOML_BOOLEAN);
    const char *gone = fleet_text(fleet, table, "gone", "keep");
    const struct fleet_server server = {
        .name = name,
        .connection_file = fleet_text(fleet, table, "connection_file", ""),
        .databases = fleet_text(fleet, table, "databases", ""),
        .pipelines = fleet_text(fleet, table, "name", "{database}"),
        .template = fleet_text(fleet, table, "template", NULL),
        .stops_gone = strcmp(gone, "stop") == 0,
        .insecure_tls = insecure != NULL && insecure->integer != 0,
    };
    uint32_t line = table == NULL ? 0 : table->line;
    check_keys(fleet, table, "in [discover.…]",
               "connection_file|databases|name|template|gone|insecure_tls");
    if (server.connection_file[0] == '\0') {
        FLEET_PROBLEM(fleet, line,
                      "[discover.%s] needs connection_file, a file with a connection string", name);
    }
    if (!server.stops_gone && strcmp(gone, "keep") != 0) {
        FLEET_PROBLEM(fleet, line, "gone must be \"keep\" or \"stop\"");
    }
    if (!is_fleet_name(name)) {
        FLEET_PROBLEM(fleet, line, "\"%s\" is not a name: letters, digits, _ . and -", name);
    }
    return server;
}

static void read_sections(struct fleet *fleet)
{
    const struct mr_toml_node *root = fleet->root;
    const struct mr_toml_node *about = definition_value_of(fleet, root, "fleet", MR_TOML_TABLE);
    const struct mr_toml_node *most =
        definition_value_of(fleet, about, "max_per_server", MR_TOML_INTEGER);
    const struct mr_toml_node *servers =
        definition_value_of(fleet, root, "discover", MR_TOML_TABLE);
    check_keys(fleet, root, "in a fleet", "fleet|template|templates|discover|pipeline");
    check_keys(fleet, about, "in [fleet]", "name|max_per_server");
    fleet->name = fleet_text(fleet, about, "name", "");
    fleet->per_server_max = most == NULL ? PER_SERVER_MAX : most->integer;
    fleet->options = definition_value_of(fleet, root, "template", MR_TOML_TABLE);
    fleet->templates = definition_value_of(fleet, root, "templates", MR_TOML_TABLE);
    for (uint32_t i = 0; fleet->templates != NULL && i < fleet->templates->count; i++) {
        definition_value_of(fleet, fleet->templates, fleet->templates->children[i].key,
                            MR_TOML_TABLE);
    }
    fleet->own = definition_value_of(fleet, root, "pipeline", MR_TOML_TABLE);
    if (!is_fleet_name(fleet->name)) {
        FLEET_PROBLEM(fleet, about == NULL ? 0 : about->line,
                      "the fleet needs a name: set [fleet] name, of letters, digits, _ . and -");
    }
    fleet->server_count = servers == NULL ? 0 : servers->count;
    fleet->servers = MR_NEW_ARRAY(struct fleet_server, fleet->server_count + 1);
    for (uint32_t i = 0; i < fleet->server_count; i++) {
        fleet->servers[i] = read_server(fleet, servers, servers->children[i].key);
    }
}

/* The tree of a file; NULL: the problem is added. */
static struct mr_toml_node *parse_file(struct fleet *fleet, const char *path)
{
    size_t len;
    const char *fault;
    char reason[512];
    uint32_t line = 0;
    MR_FREED char *text = mr_file_read(path, &len, &fault);
    if (text == NULL) {
        FLEET_PROBLEM(fleet, 0, "%s can't be read: %s; name the definition by --config", path,
                      fault);
        return NULL;
    }
    struct mr_toml_node *root = mr_toml_parse(text, len, &line, reason, sizeof(reason));
    if (root == NULL) {
        FLEET_PROBLEM(fleet, 0, "%s is not TOML: line %u: %s", path, line, reason);
    }
    return root;
}

/* The new last one, of that name. */
static struct mr_toml_node *append_child(struct mr_toml_node *table, const char *key,
                                         const struct mr_toml_node *child)
{
    table->children = MR_REALLOC(table->children, (table->count + 1) * sizeof(*table->children));
    table->children[table->count] = *child;
    table->children[table->count].key = MR_STRDUP(key);
    return &table->children[table->count++];
}

/* Lines of another file than the one that problems are told of. */
static void forget_lines(struct mr_toml_node *node)
{
    node->line = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        forget_lines(&node->children[i]);
    }
}

static int is_of_a_pipeline(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end != NULL && strcmp(end, ".toml") == 0 && strcmp(entry->d_name, MAIN_FILE) != 0;
}

/* Each file beside it is the section [pipeline.NAME] of the name that it has. */
static void read_files(struct fleet *fleet, const char *folder)
{
    static const struct mr_toml_node none = {.kind = MR_TOML_TABLE};
    struct mr_toml_node *own =
        (struct mr_toml_node *)(uintptr_t)mr_fleet_child(fleet->root, "pipeline");
    MR_FREED struct dirent **files = NULL;
    int count = scandir(folder, &files, is_of_a_pipeline, alphasort);
    own = own == NULL ? append_child(fleet->root, "pipeline", &none) : own;
    for (int i = 0; i < count; i++) {
        MR_FREED struct dirent *file = files[i];
        MR_FREED char *path = mr_formatted("%s/%s", folder, file->d_name);
        MR_FREED struct mr_toml_node *read = parse_file(fleet, path);
        *strrchr(file->d_name, '.') = '\0';
        if (read != NULL && mr_fleet_child(own, file->d_name) != NULL) {
            FLEET_PROBLEM(fleet, 0, "%s is beside [pipeline.%s]; keep one of them", path,
                          file->d_name);
        }
        if (read != NULL) {
            forget_lines(read);
            append_child(own, file->d_name, read);
        }
    }
}

void mr_fleet_read(const char *path, struct fleet *fleet)
{
    struct stat seen;
    bool is_folder = stat(path, &seen) == 0 && S_ISDIR(seen.st_mode);
    char *file = is_folder ? mr_formatted("%s/%s", path, MAIN_FILE) : MR_STRDUP(path);
    *fleet = (struct fleet){.problems.name = file};
    fleet->root = parse_file(fleet, file);
    if (fleet->root != NULL && is_folder) {
        read_files(fleet, path);
    }
    if (fleet->root != NULL) {
        read_sections(fleet);
    }
}

struct fleet_layers mr_fleet_layers(struct fleet *fleet, const struct fleet_pipeline *pipeline)
{
    const struct mr_toml_node *own = mr_fleet_child(fleet->own, pipeline->name);
    const struct fleet_server *server = mr_fleet_server(fleet, pipeline->server);
    const char *name = fleet_text(fleet, own, "template", server == NULL ? NULL : server->template);
    const struct mr_toml_node *named = name == NULL ? NULL : mr_fleet_child(fleet->templates, name);
    if (name != NULL && named == NULL) {
        FLEET_PROBLEM(fleet, 0, "pipeline %s: there is no [templates.%s]", pipeline->name, name);
    }
    return (struct fleet_layers){{fleet->options, named, own}};
}

void mr_fleet_pipeline_done(struct fleet_pipeline *pipeline)
{
    free(pipeline->name);
    free(pipeline->database);
    free(pipeline->server);
    mr_text_done(&pipeline->text);
    mr_config_free(pipeline->config);
}

static void list_done(struct fleet_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        mr_fleet_pipeline_done(&list->items[i]);
    }
    free(list->items);
}

void mr_fleet_done(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->server_count; i++) {
        mr_pg_close(fleet->servers[i].conn);
    }
    list_done(&fleet->pipelines);
    list_done(&fleet->before);
    free(fleet->servers);
    mr_toml_free(fleet->root);
    mr_problems_done(&fleet->problems);
}

const struct fleet_server *mr_fleet_server(const struct fleet *fleet, const char *name)
{
    return MR_FIND(server, fleet->servers, fleet->server_count, strcmp(server->name, name) == 0);
}

struct fleet_pipeline *mr_fleet_append(struct fleet_list *list,
                                       const struct fleet_pipeline *pipeline)
{
    MR_GROW(list->items, list->room, list->count + 1);
    list->items[list->count] = *pipeline;
    return &list->items[list->count++];
}

const struct fleet_pipeline *mr_fleet_find(const struct fleet_list *list, const char *name)
{
    return MR_FIND(item, list->items, list->count, strcmp(item->name, name) == 0);
}

struct fleet_pipeline *mr_fleet_add(struct fleet *fleet, const char *name, const char *server,
                                    const char *database)
{
    struct fleet_pipeline added = {
        .name = MR_STRDUP(""), .server = MR_STRDUP(server), .database = MR_STRDUP(database)};
    struct mr_text expanded = {0};
    bool good = mr_fleet_expand(fleet, &added, name, &expanded);
    free(added.name);
    added.name = expanded.data;
    const struct fleet_pipeline *other = mr_fleet_find(&fleet->pipelines, added.name);
    if (good && (!is_fleet_name(added.name) || (database[0] != '\0' && !is_fleet_name(database)))) {
        FLEET_PROBLEM(fleet, 0,
                      "pipeline \"%s\", database \"%s\": names have letters, digits, _ . and -, 63 "
                      "at most; leave the database out by `databases`, or rename it",
                      added.name, database);
        good = false;
    } else if (good && other != NULL) {
        FLEET_PROBLEM(fleet, 0,
                      "two pipelines are called %s: of database %s on %s, and of %s on %s; set "
                      "name = \"{server}_{database}\" in [discover]",
                      other->name, other->database, other->server, database, server);
        good = false;
    }
    if (!good) {
        mr_fleet_pipeline_done(&added);
        return NULL;
    }
    return mr_fleet_append(&fleet->pipelines, &added);
}

/* A section that says where its database is, be it in a fleet that looks none up. Others are what
 * differs from the template. */
static bool is_by_hand(const struct fleet *fleet, const struct mr_toml_node *section)
{
    const struct mr_toml_node *postgres =
        mr_fleet_child(mr_fleet_child(section, "source"), "postgres");
    return fleet->server_count == 0 || mr_fleet_child(section, "server") != NULL ||
           mr_fleet_child(section, "database") != NULL ||
           mr_fleet_child(postgres, "connection") != NULL;
}

void mr_fleet_add_by_hand(struct fleet *fleet)
{
    for (uint32_t i = 0; fleet->own != NULL && i < fleet->own->count; i++) {
        const char *key = fleet->own->children[i].key;
        const struct mr_toml_node *table =
            definition_value_of(fleet, fleet->own, key, MR_TOML_TABLE);
        const char *server = fleet_text(fleet, table, "server", "");
        const char *database = fleet_text(fleet, table, "database", "");
        bool is_known = mr_fleet_find(&fleet->pipelines, key) != NULL;
        if (is_known && (server[0] != '\0' || database[0] != '\0')) {
            FLEET_PROBLEM(fleet, table->line,
                          "[pipeline.%s] was found by discovery, which knows its server and its "
                          "database; take those out",
                          key);
        } else if (!is_known && table != NULL && is_by_hand(fleet, table)) {
            mr_fleet_add(fleet, key, server, database);
        } else if (!is_known && table != NULL) {
            mr_problem_add(&fleet->problems, false, table->line,
                           "[pipeline.%s] is left out: no database that was found is called so; "
                           "take the section out, or set server and database in it",
                           key);
        }
    }
}
