/* What is kept in Kafka of a fleet, made what its definition says: by a plan, in one transaction. */
#include <inttypes.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/object.h"
#include "fleet/store.h"

/* A plan is what is to be written, and upon which revision:
 *   {"version":1,"fleet":"shop","revision":7,"position":false,"pipelines":{"shop_a":{"config":…,"run":true,…}},"gone":["shop_b"]} */
static mr_status make_plan(const struct fleet_work *work, cJSON **ret, struct mr_error *ret_error)
{
    struct fleet fleet;
    mr_status status = mr_fleet_begin(work->options, &work->stored, &fleet, ret_error);
    if (status == MR_OK) {
        cJSON *plan = *ret = cJSON_CreateObject();
        cJSON_AddNumberToObject(plan, "version", FLEET_RECORD_VERSION);
        cJSON_AddStringToObject(plan, "fleet", fleet.name);
        cJSON_AddNumberToObject(plan, "revision", (double)work->stored.revision.number);
        cJSON_AddObjectToObject(plan, "pipelines");
        cJSON_AddArrayToObject(plan, "gone");
        int code = mr_fleet_print_plan(&fleet, work->to, plan);
        cJSON_AddBoolToObject(plan, "position", code == FLEET_POSITION_CHANGES);
    }
    mr_fleet_done(&fleet);
    return status;
}

static const cJSON *part(const cJSON *plan, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(plan, name);
}

static int code_of(const cJSON *plan)
{
    return cJSON_IsTrue(part(plan, "position")) ? FLEET_POSITION_CHANGES
           : cJSON_GetArraySize(part(plan, "pipelines")) + cJSON_GetArraySize(part(plan, "gone")) >
                   0
               ? FLEET_CHANGES
               : FLEET_NOTHING;
}

/* `millrace check` of a configuration, on this machine; its exit code. */
static mr_status check_one(const char *name, const char *config, int *ret_code,
                           struct mr_error *ret_error)
{
    char path[] = "/tmp/millrace-check-XXXXXX";
    int fd = mkstemp(path), wait_status = 0;
    pid_t pid;
    size_t len = strlen(config);
    const char *const arguments[] = {"millrace", "check", "--config", path, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    bool is_good = fd >= 0 && write(fd, config, len) == (ssize_t)len;
    fprintf(stderr, "%s:\n", name);
    is_good = is_good &&
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
                   : mr_fail(ret_error, MR_ERR_SYSTEM, "%s can't be checked: %s", name,
                             strerror(errno));
}

/* The first that fails ends it. */
static mr_status check_all(const cJSON *plan, int *ret_code, struct mr_error *ret_error)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, part(plan, "pipelines"))
    {
        const char *config = cJSON_GetStringValue(part(item, "config"));
        int code;
        MR_TRY(check_one(item->string, config == NULL ? "" : config, &code, ret_error));
        if (code != 0) {
            *ret_code = code;
            fprintf(stderr, "millrace: pipeline %s does not pass its check; nothing was written\n",
                    item->string);
            return MR_END;
        }
    }
    return MR_OK;
}

mr_status mr_fleet_plan_stored(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                               struct mr_error *ret_error)
{
    struct fleet_work work;
    MR_OBJECT cJSON *plan = NULL;
    mr_status status = mr_fleet_work_begin(&work, options, to, ret_error);
    status = MR_THEN(status, mr_fleet_stored_read(&work.store, false, &work.stored, ret_error));
    status = MR_THEN(status, make_plan(&work, &plan, ret_error));
    if (status == MR_OK) {
        *ret_code = code_of(plan);
    }
    if (status == MR_OK && !work.stored.is_whole) {
        fprintf(stderr,
                "millrace: what Kafka keeps is not what revision %" PRIu64
                " wrote; apply writes all of it again\n",
                work.stored.revision.number);
        *ret_code = *ret_code == FLEET_NOTHING ? FLEET_CHANGES : *ret_code;
    }
    if (status == MR_OK && options->checks) {
        status = check_all(plan, ret_code, ret_error);
    }
    if (status == MR_OK && options->plan != NULL) {
        MR_FREED char *json = cJSON_Print(plan);
        MR_TEXT(text);
        mr_text_format(&text, "%s\n", json);
        status = mr_fleet_write_file(options->plan, 0666, &text)
                     ? MR_OK
                     : mr_fail(ret_error, MR_ERR_USAGE, "the plan can't be written to %s: %s",
                               options->plan, strerror(errno));
    }
    mr_fleet_work_done(&work);
    return status == MR_END ? MR_OK : status;
}

static mr_status read_plan(const struct fleet_work *work, cJSON **ret, struct mr_error *ret_error)
{
    size_t len;
    const char *path = work->options->name, *reason;
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    cJSON *plan = text == NULL ? NULL : cJSON_ParseWithLength(text, len);
    const char *fleet = cJSON_GetStringValue(part(plan, "fleet"));
    double revision = cJSON_GetNumberValue(part(plan, "revision"));
    bool is_good = fleet != NULL && strcmp(fleet, work->own.name) == 0 &&
                   cJSON_GetNumberValue(part(plan, "version")) == FLEET_RECORD_VERSION &&
                   cJSON_IsObject(part(plan, "pipelines")) && cJSON_IsArray(part(plan, "gone"));
    *ret = plan;
    if (!is_good) {
        return mr_fail(ret_error, MR_ERR_USAGE, "%s can't be applied: %s", path,
                       text == NULL ? reason : "it is not a plan of this fleet");
    }
    return revision == (double)work->stored.revision.number
               ? MR_OK
               : mr_fail(ret_error, MR_AGAIN,
                         "%s is upon revision %.0f, and Kafka has %" PRIu64 " of %s", path,
                         revision, work->stored.revision.number,
                         work->stored.revision.by == NULL ? "-" : work->stored.revision.by);
}

/* One pipeline of a plan, which somebody may have edited. */
static mr_status take_wanted(struct fleet_stored *stored, const char *name, cJSON *wanted,
                             struct mr_error *ret_error)
{
    struct fleet_record record;
    struct mr_config *config = NULL;
    MR_FREED char *text = cJSON_PrintUnformatted(wanted);
    const struct mr_kafka_read read = {
        .partition = 1, .key = mr_slice_of(name), .value = mr_slice_of(text)};
    mr_status status = mr_fleet_record_read(false, &read, &record, ret_error);
    if (status == MR_OK && record.kind != FLEET_RECORD_DEFINITION) {
        status = mr_fail(ret_error, MR_ERR_CONFIG, "\"%s\" is not a pipeline's name", name);
    }
    if (status == MR_OK) {
        const char *new = record.definition.config;
        status = mr_config_load_elsewhere(name, new, strlen(new), &config);
        mr_config_print_problems(config, stderr);
        mr_config_free(config);
        if (status != MR_OK) {
            mr_error_set(ret_error, status, "errors are above; nothing was done");
        }
    }
    if (status == MR_OK) {
        struct fleet_stored_item *item =
            mr_fleet_stored_change(stored, FLEET_RECORD_DEFINITION, name);
        record.definition.partition = item->record.definition.partition;
        record.definition.retry = item->record.definition.retry;
        record.definition.generation = stored->next;
        mr_fleet_record_done(&item->record);
        item->record = record;
        item->is_wrong = false;
    } else {
        mr_fleet_record_done(&record);
    }
    return status;
}

static mr_status take_plan(struct fleet_stored *stored, const cJSON *plan,
                           struct mr_error *ret_error)
{
    cJSON *item;
    for (uint32_t i = 0; i < stored->count; i++) {
        stored->items[i].is_changed |= !stored->is_whole;
    }
    cJSON_ArrayForEach(item, part(plan, "pipelines"))
    {
        MR_TRY(take_wanted(stored, item->string, item, ret_error));
    }
    cJSON_ArrayForEach(item, part(plan, "gone"))
    {
        const char *name = cJSON_GetStringValue(item);
        if (name != NULL && mr_fleet_stored_find(stored, FLEET_RECORD_DEFINITION, name) != NULL) {
            mr_fleet_stored_change(stored, FLEET_RECORD_DEFINITION, name)->record.is_gone = true;
        }
    }
    return MR_OK;
}

/* MR_END: `*ret_code` says why nothing was written. */
static mr_status apply(struct fleet_work *work, cJSON **ret_plan, int *ret_code,
                       struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_change_begin(&work->store, &work->stored, ret_error));
    MR_TRY(work->options->name != NULL ? read_plan(work, ret_plan, ret_error)
                                       : make_plan(work, ret_plan, ret_error));
    int code = code_of(*ret_plan);
    if (code == FLEET_POSITION_CHANGES && !work->options->accepts) {
        fputs("millrace: a position is at stake, and nothing was written; look at it, and give "
              "--accept-position\n",
              stderr);
        *ret_code = code;
        return MR_END;
    }
    if (code == FLEET_NOTHING && work->stored.is_whole) {
        fprintf(stderr, "fleet %s: nothing to change in revision %" PRIu64 "\n", work->own.name,
                work->stored.revision.number);
        return MR_END;
    }
    MR_TRY(work->options->checks ? check_all(*ret_plan, ret_code, ret_error) : MR_OK);
    MR_TRY(take_plan(&work->stored, *ret_plan, ret_error));
    return mr_fleet_change_commit(&work->store, &work->stored, ret_error);
}

mr_status mr_fleet_apply(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                         struct mr_error *ret_error)
{
    struct fleet_work work;
    MR_OBJECT cJSON *plan = NULL;
    *ret_code = 0;
    mr_status status = mr_fleet_work_begin(&work, options, to, ret_error);
    status = MR_THEN(status, apply(&work, &plan, ret_code, ret_error));
    mr_fleet_work_done(&work);
    return status == MR_END ? MR_OK : mr_fleet_outcome(status, ret_error, ret_code);
}
