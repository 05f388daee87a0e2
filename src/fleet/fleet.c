#include "fleet/fleet.h"

#include "fleet/store.h"

/* What says where a pipeline is: with another one it begins anew, or is refused (docs/position.md). */
static const char positions[] =
    "source.postgres.slot_name|source.postgres.publication_name|source.postgres.connection_env|"
    "sink.kafka.state_name|sink.kafka.state_topic|sink.kafka.brokers|topic_prefix";

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct fleet_pipeline *)a)->name,
                  ((const struct fleet_pipeline *)b)->name);
}

/* From the definition to a configuration for each pipeline. */
static mr_status make(struct fleet *fleet, struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_discover(fleet, ret_error));
    MR_TRY(mr_fleet_add_gone(fleet, ret_error));
    mr_fleet_add_by_hand(fleet);
    struct fleet_list *list = &fleet->pipelines;
    if (list->count > 0) {
        qsort(list->items, list->count, sizeof(*list->items), compare_names);
    }
    if (fleet->problems.errors == 0) {
        mr_fleet_make(fleet);
        mr_fleet_folder_check(fleet);
    }
    return fleet->problems.errors == 0 ? mr_fleet_check_room(fleet, ret_error) : MR_OK;
}

/* What is in Kafka as a folder would have it. */
static void take_stored(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->stored->count; i++) {
        const struct fleet_stored_item *item = &fleet->stored->items[i];
        const struct fleet_definition *definition = &item->record.definition;
        const char *text = item->is_wrong ? "" : definition->config;
        if (item->record.kind == FLEET_RECORD_DEFINITION &&
            !mr_fleet_take_made(fleet, definition->name, text, strlen(text), &definition->terms)) {
            mr_fleet_append(&fleet->before,
                            &(struct fleet_pipeline){.name = MR_STRDUP(definition->name),
                                                     .server = MR_STRDUP(""),
                                                     .database = MR_STRDUP("")});
        }
    }
}

mr_status mr_fleet_begin(const struct mr_fleet_options *options, const struct fleet_stored *stored,
                         struct fleet *fleet, struct mr_error *ret_error)
{
    mr_status status = MR_OK;
    mr_fleet_read(options->path, fleet);
    fleet->stored = stored;
    fleet->folder = stored == NULL ? options->folder : NULL;
    if (fleet->problems.errors == 0) {
        if (stored != NULL) {
            take_stored(fleet);
        } else {
            status = mr_fleet_folder_read(fleet, ret_error);
        }
        status = status == MR_OK ? make(fleet, ret_error) : status;
    }
    mr_problems_print(&fleet->problems, stderr);
    return status != MR_OK || fleet->problems.errors == 0
               ? status
               : mr_fail(ret_error, MR_ERR_CONFIG, "errors are above; nothing was done");
}

/* Without the folder, a database that is gone would be left out of the values, and its pipeline removed. */
static mr_status check_folder(const struct fleet *fleet, struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < fleet->server_count && fleet->folder == NULL; i++) {
        if (!fleet->servers[i].stops_gone) {
            return mr_fail(ret_error, MR_ERR_USAGE,
                           "[discover.%s] keeps pipelines of databases that are gone, which are "
                           "known by the folder alone: give --out DIR, too",
                           fleet->servers[i].name);
        }
    }
    return MR_OK;
}

mr_status mr_fleet_render(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                          struct mr_error *ret_error)
{
    struct fleet fleet;
    *ret_code = 0;
    mr_status status = mr_fleet_begin(options, NULL, &fleet, ret_error);
    if (status == MR_OK && options->helm) {
        status = check_folder(&fleet, ret_error);
    }
    if (status == MR_OK && options->folder != NULL) {
        status = mr_fleet_folder_write(&fleet, ret_error);
    }
    if (status == MR_OK && options->helm) {
        mr_fleet_print_values(&fleet, to);
        if (fflush(to) != 0 || ferror(to) != 0) { /* fewer pipelines, which Helm would remove */
            status = mr_fail(ret_error, MR_ERR_USAGE,
                             "the values can't be written: %s; do not use them", strerror(errno));
        }
    }
    mr_fleet_done(&fleet);
    return status;
}

struct difference {
    struct mr_text paths;
    bool restarts, moves;
};

static void take_word(struct difference *difference, const char *word)
{
    mr_text_format(&difference->paths, "%s%s", difference->paths.data == NULL ? "" : ", ", word);
}

/* mr_config_difference_fn */
static void take_difference(void *context, const struct mr_option *option)
{
    struct difference *difference = context;
    take_word(difference, option->path);
    difference->restarts |= !mr_option_is_live(option);
    difference->moves |= mr_is_among(positions, mr_slice_of(option->path));
}

/* Whether a word of the second line is another one. */
static bool take_place(struct difference *difference, const char *word, const char *a,
                       const char *b)
{
    bool moves = a[0] != '\0' && b[0] != '\0' && strcmp(a, b) != 0;
    if (moves) {
        take_word(difference, word);
    }
    return moves;
}

static void take_terms(struct difference *difference, const struct fleet_terms *a,
                       const struct fleet_terms *b)
{
    if (a->run != b->run) {
        take_word(difference, "run");
        difference->restarts = true;
    }
    if (a->weight != b->weight) {
        take_word(difference, "weight");
    }
    if (a->memory_max != b->memory_max || a->cpu_weight != b->cpu_weight) {
        take_word(difference, "limits");
    }
}

static void take_all(struct difference *difference, const struct fleet_pipeline *pipeline,
                     const struct fleet_pipeline *made, bool is_folder)
{
    if (made->config == NULL) {
        difference->moves = true;
        take_word(difference, "what was made before is wrong");
        return;
    }
    mr_config_differences(made->config, NULL, pipeline->config, take_difference, difference);
    difference->restarts |= mr_config_reload_fault(made->config, pipeline->config) != NULL;
    const char *before = made->config->source.connection.conninfo;
    const char *now = pipeline->config->source.connection.conninfo;
    difference->moves |= difference->paths.data != NULL && !mr_pg_same_server(before, now, true);
    difference->moves |= take_place(difference, "its server", made->server, pipeline->server);
    difference->moves |= take_place(difference, "its database", made->database, pipeline->database);
    if (!is_folder) {
        take_terms(difference, &made->terms, &pipeline->terms);
    }
}

/* The code that it makes of the plan. */
static int compare(const struct fleet_pipeline *pipeline, const struct fleet_pipeline *made,
                   bool is_folder, FILE *to)
{
    struct difference difference = {0};
    take_all(&difference, pipeline, made, is_folder);
    int code = difference.paths.data == NULL ? FLEET_NOTHING
               : difference.moves            ? FLEET_POSITION_CHANGES
                                             : FLEET_CHANGES;
    if (code != FLEET_NOTHING) {
        fprintf(to, "%s %s: %s\n",
                difference.moves      ? "!position"
                : difference.restarts ? "~restart"
                                      : "~reload",
                pipeline->name, difference.paths.data);
    }
    mr_text_done(&difference.paths);
    return code;
}

/* One that has what this one may not share: under another name, for a pipeline that is renamed. NULL: none. */
static const struct fleet_pipeline *find_sharer(const struct fleet_list *list,
                                                const struct fleet_pipeline *pipeline,
                                                const char **ret_what)
{
    const struct fleet_pipeline *found = NULL;
    for (uint32_t i = 0; i < list->count && found == NULL; i++) {
        *ret_what = mr_fleet_shared(&list->items[i], pipeline);
        found = *ret_what == NULL ? NULL : &list->items[i];
    }
    return found;
}

static int print_new(const struct fleet *fleet, const struct fleet_pipeline *pipeline, FILE *to)
{
    const char *what;
    const struct fleet_pipeline *sharer = find_sharer(&fleet->before, pipeline, &what);
    if (sharer != NULL) {
        fprintf(to, "!position %s: new, with the %s of %s\n", pipeline->name, what, sharer->name);
        return FLEET_POSITION_CHANGES;
    }
    fprintf(to, "+ %s\n", pipeline->name);
    return FLEET_CHANGES;
}

static void print_removed(const struct fleet *fleet, const struct fleet_pipeline *made, FILE *to)
{
    const char *what;
    const struct fleet_pipeline *sharer = find_sharer(&fleet->pipelines, made, &what);
    if (sharer != NULL) {
        fprintf(to, "- %s: its %s is that of %s now; drop nothing\n", made->name, what,
                sharer->name);
    } else {
        fprintf(to, "- %s: its slot stays, and keeps WAL until somebody drops it\n", made->name);
    }
}

/* Has the pipeline set as it is wanted. */
static void add_wanted(const struct fleet_pipeline *pipeline, cJSON *change)
{
    const struct fleet_record record = {
        .kind = FLEET_RECORD_DEFINITION,
        .definition = {.config = pipeline->text.data, .terms = pipeline->terms}};
    cJSON_AddItemToObject(cJSON_GetObjectItem(change, "pipelines"), pipeline->name,
                          mr_fleet_record_json(&record));
}

int mr_fleet_print_plan(const struct fleet *fleet, FILE *to, cJSON *change)
{
    int code = FLEET_NOTHING;
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines.items[i];
        const struct fleet_pipeline *made = mr_fleet_find(&fleet->before, pipeline->name);
        if (pipeline->is_gone) {
            fprintf(to, "  %s: its %s\n", pipeline->name,
                    mr_fleet_server(fleet, pipeline->server) != NULL
                        ? "database is gone; it stays, for gone = \"keep\""
                    : fleet->stored != NULL
                        ? "server is in no [discover.…]; it stays: run = false stops it"
                        : "server is in no [discover.…]; it stays until its file is removed");
        }
        int own = made == NULL ? print_new(fleet, pipeline, to)
                               : compare(pipeline, made, fleet->stored == NULL, to);
        code = own > code ? own : code;
        if (own != FLEET_NOTHING && change != NULL) {
            add_wanted(pipeline, change);
        }
    }
    for (uint32_t i = 0; i < fleet->before.count; i++) {
        const struct fleet_pipeline *made = &fleet->before.items[i];
        if (mr_fleet_find(&fleet->pipelines, made->name) == NULL) {
            print_removed(fleet, made, to);
            code = code == FLEET_NOTHING ? FLEET_CHANGES : code;
            if (change != NULL) {
                cJSON_AddItemToArray(cJSON_GetObjectItem(change, "gone"),
                                     cJSON_CreateString(made->name));
            }
        }
    }
    return code;
}

mr_status mr_fleet_plan(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                        struct mr_error *ret_error)
{
    struct fleet fleet;
    if (options->folder == NULL) {
        return mr_fleet_plan_stored(options, to, ret_code, ret_error);
    }
    mr_status status = mr_fleet_begin(options, NULL, &fleet, ret_error);
    if (status == MR_OK) {
        *ret_code = mr_fleet_print_plan(&fleet, to, NULL);
    }
    mr_fleet_done(&fleet);
    return status;
}
