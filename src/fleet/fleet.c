#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

#include "fleet/fleet_internal.h"

enum { NOTHING = 0, CHANGES = 2, POSITION_CHANGES = 4 }; /* exit codes of plan */

/* What says where a pipeline is: with another one it begins anew, or is refused (docs/position.md). */
static const char positions[] =
    "source.postgres.slot_name|source.postgres.publication_name|sink.kafka.state_name|"
    "sink.kafka.state_topic|sink.kafka.brokers|topic_prefix";

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct fleet_pipeline *)a)->name,
                  ((const struct fleet_pipeline *)b)->name);
}

/* From the definition to a configuration for each pipeline. */
static mr_status make(struct fleet *fleet, const struct fleet_folder *folder,
                      struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_discover(fleet, ret_error));
    mr_fleet_add_gone(fleet, folder);
    mr_fleet_add_by_hand(fleet, folder);
    if (fleet->pipeline_count > 0) {
        qsort(fleet->pipelines, fleet->pipeline_count, sizeof(*fleet->pipelines), compare_names);
    }
    if (fleet->problems.errors == 0) {
        mr_fleet_make(fleet);
    }
    return fleet->problems.errors == 0 ? mr_fleet_check_room(fleet, ret_error) : MR_OK;
}

static mr_status begin(const struct mr_fleet_options *options, struct fleet *fleet,
                       struct fleet_folder *folder, struct mr_error *ret_error)
{
    mr_status status = MR_OK;
    mr_fleet_read(options->path, fleet);
    if (fleet->problems.errors == 0) {
        status = mr_fleet_folder_read(fleet, options->folder, folder, ret_error);
        status = status == MR_OK ? make(fleet, folder, ret_error) : status;
    }
    mr_problems_print(&fleet->problems, stderr);
    return status != MR_OK || fleet->problems.errors == 0
               ? status
               : mr_fail(ret_error, MR_ERR_CONFIG, "errors are above; nothing was done");
}

/* Without the folder, a database that is gone would be left out of the values, and its pipeline removed. */
static mr_status check_folder(const struct fleet *fleet, const struct mr_fleet_options *options,
                              struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < fleet->server_count && options->folder == NULL; i++) {
        if (!fleet->servers[i].stops_gone) {
            return mr_fail(ret_error, MR_ERR_USAGE,
                           "[discover.%s] keeps pipelines of databases that are gone, which are "
                           "known by the folder alone: give --out DIR, too",
                           fleet->servers[i].name);
        }
    }
    return MR_OK;
}

mr_status mr_fleet_render(const struct mr_fleet_options *options, FILE *to,
                          struct mr_error *ret_error)
{
    struct fleet fleet;
    struct fleet_folder folder = {0};
    mr_status status = begin(options, &fleet, &folder, ret_error);
    if (status == MR_OK && options->helm) {
        status = check_folder(&fleet, options, ret_error);
    }
    if (status == MR_OK && options->folder != NULL) {
        status = mr_fleet_folder_write(&fleet, &folder, options->folder, ret_error);
    }
    if (status == MR_OK && options->helm) {
        mr_fleet_print_values(&fleet, to);
    }
    mr_fleet_folder_done(&folder);
    mr_fleet_done(&fleet);
    return status;
}

struct difference {
    struct mr_text paths;
    bool restarts, moves;
};

/* mr_config_difference_fn */
static void take_difference(void *context, const struct mr_option *option)
{
    struct difference *difference = context;
    mr_text_format(&difference->paths, "%s%s", difference->paths.data == NULL ? "" : ", ",
                   option->path);
    difference->restarts |= !mr_option_is_live(option);
    difference->moves |= mr_is_among(positions, mr_slice_of(option->path));
}

/* The code that it makes of the plan. */
static int compare(const struct fleet_pipeline *pipeline, const struct fleet_made *made, FILE *to)
{
    struct difference difference = {0};
    struct mr_config *before = NULL;
    mr_status status =
        mr_config_load_elsewhere(made->name, made->text, strlen(made->text), &before);
    if (status != MR_OK) {
        difference.restarts = true;
        mr_text_string(&difference.paths, "the file of before is wrong");
    } else {
        mr_config_differences(before, NULL, pipeline->config, take_difference, &difference);
        difference.restarts |= mr_config_reload_fault(before, pipeline->config) != NULL;
    }
    int code = difference.paths.data == NULL ? NOTHING
               : difference.moves            ? POSITION_CHANGES
                                             : CHANGES;
    if (code != NOTHING) {
        fprintf(to, "%s %s: %s\n",
                difference.moves      ? "!position"
                : difference.restarts ? "~restart"
                                      : "~reload",
                pipeline->name, difference.paths.data);
    }
    mr_text_done(&difference.paths);
    mr_config_free(before);
    return code;
}

static int print_plan(const struct fleet *fleet, const struct fleet_folder *folder, FILE *to)
{
    int code = NOTHING;
    for (uint32_t i = 0; i < fleet->pipeline_count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines[i];
        const struct fleet_made *made = mr_fleet_made(folder, pipeline->name);
        if (pipeline->is_gone) {
            fprintf(to, "  %s: its database is gone; it stays, for gone = \"keep\"\n",
                    pipeline->name);
        }
        if (made == NULL) {
            fprintf(to, "+ %s\n", pipeline->name);
        }
        int own = made == NULL ? CHANGES : compare(pipeline, made, to);
        code = own > code ? own : code;
    }
    for (uint32_t i = 0; i < folder->count; i++) {
        if (mr_fleet_find(fleet, folder->items[i].name, NULL, NULL) == NULL) {
            fprintf(to, "- %s: its slot stays, and keeps WAL until somebody drops it\n",
                    folder->items[i].name);
            code = code == NOTHING ? CHANGES : code;
        }
    }
    return code;
}

mr_status mr_fleet_plan(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                        struct mr_error *ret_error)
{
    struct fleet fleet;
    struct fleet_folder folder = {0};
    mr_status status = begin(options, &fleet, &folder, ret_error);
    if (status == MR_OK) {
        *ret_code = print_plan(&fleet, &folder, to);
    }
    mr_fleet_folder_done(&folder);
    mr_fleet_done(&fleet);
    return status;
}
