#include <spawn.h>
#include <sys/wait.h>

#include "fleet/fleet_internal.h"

enum { FLEET_NOTHING = 0, FLEET_CHANGES = 2, FLEET_POSITION_CHANGES = 4 }; /* exit codes */

/* What says where a pipeline is: with another one it begins anew, or is refused
 * (docs/reliability.md). */
static const char positions[] =
    "source.postgres.slot_name|source.postgres.publication_name|sink.kafka.state_name|"
    "sink.kafka.state_topic|sink.kafka.brokers|topic_prefix";

static int fleet_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct fleet_pipeline *)a)->name,
                  ((const struct fleet_pipeline *)b)->name);
}

/* From the definition to a configuration for each pipeline. */
static mr_status fleet_make_all(struct fleet *fleet, struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_discover(fleet, ret_error));
    MR_TRY(mr_fleet_add_gone(fleet, ret_error));
    mr_fleet_add_by_hand(fleet);
    struct fleet_list *list = &fleet->pipelines;
    mr_sort(list->items, list->count, sizeof(*list->items), fleet_compare_names);
    if (fleet->problems.errors == 0) {
        mr_fleet_make(fleet);
        mr_fleet_folder_check(fleet);
    }
    return fleet->problems.errors == 0 ? mr_fleet_check_room(fleet, ret_error) : MR_OK;
}

/* From the file to configurations, beside what was made before. What is wrong is printed. To be
 * ended by mr_fleet_done in any case. */
static mr_status fleet_begin(const struct mr_fleet_options *options, struct fleet *fleet,
                             struct mr_error *ret_error)
{
    mr_status status = MR_OK;
    mr_fleet_read(options->path, fleet);
    fleet->asked = options;
    fleet->folder = options->folder;
    if (fleet->problems.errors == 0) {
        status = mr_fleet_folder_read(fleet, ret_error);
        status = status == MR_OK ? fleet_make_all(fleet, ret_error) : status;
    }
    mr_problems_print(&fleet->problems, stderr);
    return status != MR_OK || fleet->problems.errors == 0
               ? status
               : mr_fail(ret_error, MR_ERR_CONFIG, "errors are above; nothing was done");
}

/* Without the folder, a database that is gone would be left out of the values, and its pipeline
 * removed. */
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
    mr_status status = fleet_begin(options, &fleet, ret_error);
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

static void fleet_take_word(struct difference *difference, const char *word)
{
    mr_text_format(&difference->paths, "%s%s", difference->paths.data == NULL ? "" : ", ", word);
}

/* mr_config_difference_fn */
static void fleet_take_difference(void *context, const struct mr_option *option)
{
    struct difference *difference = context;
    fleet_take_word(difference, option->path);
    difference->restarts |= !mr_option_is_live(option);
    difference->moves |= mr_is_among(positions, mr_slice_of(option->path));
}

/* Whether a word of the second line is another one. */
static bool fleet_take_place(struct difference *difference, const char *word, const char *a,
                             const char *b)
{
    bool moves = a[0] != '\0' && b[0] != '\0' && strcmp(a, b) != 0;
    if (moves) {
        fleet_take_word(difference, word);
    }
    return moves;
}

static void take_all(struct difference *difference, const struct fleet_pipeline *pipeline,
                     const struct fleet_pipeline *made)
{
    if (made->config == NULL) {
        difference->moves = true;
        fleet_take_word(difference, "what was made before is wrong");
        return;
    }
    mr_config_differences(made->config, NULL, pipeline->config, fleet_take_difference, difference);
    difference->restarts |= mr_config_reload_fault(made->config, pipeline->config) != NULL;
    const char *before = made->config->values.connection;
    const char *now = pipeline->config->values.connection;
    bool is_said = !mr_text_is_reference(before) && !mr_text_is_reference(now);
    difference->moves |= difference->paths.data != NULL && strcmp(before, now) != 0 &&
                         !(is_said && mr_pg_same_server(before, now, true));
    difference->moves |= fleet_take_place(difference, "its server", made->server, pipeline->server);
    difference->moves |=
        fleet_take_place(difference, "its database", made->database, pipeline->database);
}

/* Where lines and commands go; NULL: nowhere. */
struct tellers {
    FILE *plan, *commands;
};

static void tell_command(const struct tellers *to, const char *verb, const char *name)
{
    if (to->commands != NULL) {
        fprintf(to->commands, "systemctl %s millrace@%s\n", verb, name);
    }
}

/* The code that it makes of the plan. */
static int fleet_compare(const struct fleet_pipeline *pipeline, const struct fleet_pipeline *made,
                         const struct tellers *to)
{
    struct difference difference = {0};
    take_all(&difference, pipeline, made);
    int code = difference.paths.data == NULL ? FLEET_NOTHING
               : difference.moves            ? FLEET_POSITION_CHANGES
                                             : FLEET_CHANGES;
    if (code != FLEET_NOTHING) {
        bool restarts = difference.moves || difference.restarts;
        fprintf(to->plan, "%s %s: %s\n",
                difference.moves ? "!position"
                : restarts       ? "~restart"
                                 : "~reload",
                pipeline->name, difference.paths.data);
        tell_command(to, restarts ? "restart" : "reload", pipeline->name);
    }
    mr_text_done(&difference.paths);
    return code;
}

/* One that has what this one may not share: under another name, for a pipeline that is renamed.
 * NULL: none. */
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

static int tell_new(const struct fleet *fleet, const struct fleet_pipeline *pipeline,
                    const struct tellers *to)
{
    const char *what;
    const struct fleet_pipeline *sharer = find_sharer(&fleet->before, pipeline, &what);
    tell_command(to, "enable --now", pipeline->name);
    if (sharer != NULL) {
        fprintf(to->plan, "!position %s: new, with the %s of %s\n", pipeline->name, what,
                sharer->name);
        return FLEET_POSITION_CHANGES;
    }
    fprintf(to->plan, "+ %s\n", pipeline->name);
    return FLEET_CHANGES;
}

static void tell_removed(const struct fleet *fleet, const struct fleet_pipeline *made,
                         const struct tellers *to)
{
    const char *what;
    const struct fleet_pipeline *sharer = find_sharer(&fleet->pipelines, made, &what);
    if (sharer != NULL) {
        fprintf(to->plan, "- %s: its %s is that of %s now; drop nothing\n", made->name, what,
                sharer->name);
    } else {
        fprintf(to->plan, "- %s: its slot stays, and keeps WAL until somebody drops it\n",
                made->name);
    }
    tell_command(to, "disable --now", made->name);
}

/* A line for each pipeline that differs from what was made before; the code of it. Those that go
 * are first: another may be about to have their slot. */
static int tell_plan(const struct fleet *fleet, const struct tellers *to)
{
    int code = FLEET_NOTHING;
    for (uint32_t i = 0; i < fleet->before.count; i++) {
        const struct fleet_pipeline *made = &fleet->before.items[i];
        if (mr_fleet_find(&fleet->pipelines, made->name) == NULL) {
            tell_removed(fleet, made, to);
            code = FLEET_CHANGES;
        }
    }
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines.items[i];
        const struct fleet_pipeline *made = mr_fleet_find(&fleet->before, pipeline->name);
        if (pipeline->is_gone) {
            fprintf(to->plan, "  %s: its %s\n", pipeline->name,
                    mr_fleet_server(fleet, pipeline->server) != NULL
                        ? "database is gone; it stays, for gone = \"keep\""
                        : "server is in no [discover.…]; it stays until its file is removed");
        }
        int own = made == NULL ? tell_new(fleet, pipeline, to) : fleet_compare(pipeline, made, to);
        code = own > code ? own : code;
    }
    return code;
}

mr_status mr_fleet_plan(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                        struct mr_error *ret_error)
{
    struct fleet fleet;
    mr_status status = fleet_begin(options, &fleet, ret_error);
    if (status == MR_OK) {
        *ret_code = tell_plan(&fleet, &(struct tellers){.plan = to});
    }
    mr_fleet_done(&fleet);
    return status;
}

/* `millrace check` of a configuration, on this machine; its exit code. What it prints goes to
 * standard error. */
static mr_status check_one(const struct fleet_pipeline *pipeline, int *ret_code,
                           struct mr_error *ret_error)
{
    char path[] = "/tmp/millrace-check-XXXXXX";
    int fd = mkstemp(path), wait_status = 0;
    pid_t pid;
    const struct mr_text *text = &pipeline->text;
    const char *const arguments[] = {"millrace", "check", "--config", path, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    fprintf(stderr, "%s:\n", pipeline->name);
    bool is_good = fd >= 0 && write(fd, text->data, text->len) == (ssize_t)text->len &&
                   posix_spawn(&pid, "/proc/self/exe", &actions, NULL,
                               (char *const *)(uintptr_t)arguments, environ) == 0 &&
                   waitpid(pid, &wait_status, 0) == pid;
    posix_spawn_file_actions_destroy(&actions);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    *ret_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128;
    return is_good ? MR_OK
                   : mr_fail(ret_error, MR_ERR_SYSTEM, "%s can't be checked: %s", pipeline->name,
                             strerror(errno));
}

/* New and changed ones; the first that fails ends it. */
static mr_status fleet_check_all(const struct fleet *fleet, int *ret_code,
                                 struct mr_error *ret_error)
{
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines.items[i];
        if (mr_fleet_is_as_before(fleet, pipeline)) {
            continue;
        }
        MR_TRY(check_one(pipeline, ret_code, ret_error));
        if (*ret_code != 0) {
            fprintf(stderr, "millrace: pipeline %s does not pass its check; nothing was written\n",
                    pipeline->name);
            return MR_END;
        }
    }
    return MR_OK;
}

/* MR_END: `*ret_code` says why nothing was written. */
static mr_status apply_to_folder(const struct fleet *fleet, const struct mr_fleet_options *options,
                                 FILE *to, int *ret_code, struct mr_error *ret_error)
{
    MR_FREED char *commands = NULL;
    size_t len;
    FILE *memory = open_memstream(&commands, &len);
    MR_ASSERT(memory != NULL);
    *ret_code = tell_plan(fleet, &(struct tellers){.plan = stderr, .commands = memory});
    fclose(memory);
    mr_status status = MR_OK;
    if (*ret_code == FLEET_POSITION_CHANGES && !options->accepts) {
        fputs("millrace: a position is at stake, and nothing was written; look at it, and give "
              "--accept-position\n",
              stderr);
        status = MR_END;
    } else {
        *ret_code = 0;
        status = options->checks ? fleet_check_all(fleet, ret_code, ret_error) : MR_OK;
        status = MR_THEN(status, mr_fleet_folder_write(fleet, ret_error));
    }
    if (status == MR_OK) {
        fputs(commands, to);
    }
    return status;
}

mr_status mr_fleet_apply(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                         struct mr_error *ret_error)
{
    struct fleet fleet;
    mr_status status = fleet_begin(options, &fleet, ret_error);
    status = MR_THEN(status, apply_to_folder(&fleet, options, to, ret_code, ret_error));
    mr_fleet_done(&fleet);
    return status == MR_END ? MR_OK : status;
}
