/* What is kept in Kafka of a fleet, changed: by its definition, or by a word about one pipeline or node. Each change is one transaction, and
 * whoever has begun one before is told. */
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "fleet/fleet_internal.h"
#include "fleet/store.h"

enum { RESTART_MS = 120000, LOOK_MS = 500 };

struct work {
    const struct mr_fleet_options *options;
    struct fleet_own own;
    struct fleet_store store;
    struct fleet_stored stored;
    FILE *to;
};

static mr_status work_begin(struct work *work, const struct mr_fleet_options *options, FILE *to,
                            struct mr_error *ret_error)
{
    *work = (struct work){.options = options, .to = to};
    work->store.own = &work->own;
    MR_TRY(mr_fleet_own_read(options->path, &work->own, ret_error));
    return mr_programs_start(&work->own.config->programs, ret_error);
}

static void work_done(struct work *work)
{
    mr_fleet_stored_done(&work->stored);
    mr_fleet_store_close(&work->store);
    mr_fleet_own_done(&work->own);
}

/* What another has done meanwhile is an exit code, not an error. */
static mr_status outcome(mr_status status, const struct mr_error *error, int *ret_code)
{
    if (status != MR_AGAIN) {
        return status;
    }
    fprintf(stderr, "millrace: nothing was written: %s; plan again\n", error->text);
    *ret_code = FLEET_CHANGES;
    return MR_OK;
}

/* ---- plans ---- */

/* A plan is what is to be written, and upon which revision:
 *   {"version":1,"fleet":"shop","revision":7,"position":false,"pipelines":{"shop_a":{"config":…,"run":true,…}},"gone":["shop_b"]} */
static mr_status make_plan(const struct work *work, cJSON **ret, struct mr_error *ret_error)
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

mr_status mr_fleet_plan_stored(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                               struct mr_error *ret_error)
{
    struct work work;
    cJSON *plan = NULL;
    mr_status status = work_begin(&work, options, to, ret_error);
    if (status == MR_OK) {
        status = mr_fleet_stored_read(&work.store, false, &work.stored, ret_error);
    }
    if (status == MR_OK) {
        status = make_plan(&work, &plan, ret_error);
    }
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
    if (status == MR_OK && options->plan != NULL) {
        char *json = cJSON_Print(plan);
        struct mr_text text = {0};
        mr_text_format(&text, "%s\n", json);
        free(json);
        status = mr_fleet_write_file(options->plan, &text)
                     ? MR_OK
                     : mr_fail(ret_error, MR_ERR_USAGE, "the plan can't be written to %s: %s",
                               options->plan, strerror(errno));
        mr_text_done(&text);
    }
    cJSON_Delete(plan);
    work_done(&work);
    return status;
}

static mr_status read_plan(const struct work *work, cJSON **ret, struct mr_error *ret_error)
{
    size_t len;
    const char *path = work->options->name, *reason = "it is not a plan of this fleet";
    char *text = mr_file_read(path, &len, &reason);
    cJSON *plan = text == NULL ? NULL : cJSON_ParseWithLength(text, len);
    const char *fleet = cJSON_GetStringValue(part(plan, "fleet"));
    double revision = cJSON_GetNumberValue(part(plan, "revision"));
    bool is_good = fleet != NULL && strcmp(fleet, work->own.name) == 0 &&
                   cJSON_GetNumberValue(part(plan, "version")) == FLEET_RECORD_VERSION &&
                   cJSON_IsObject(part(plan, "pipelines")) && cJSON_IsArray(part(plan, "gone"));
    free(text);
    mr_status status = MR_OK;
    if (!is_good) {
        status = mr_fail(ret_error, MR_ERR_USAGE, "%s can't be applied: %s", path,
                         text == NULL ? reason : "it is not a plan of this fleet");
    } else if (revision != (double)work->stored.revision.number) {
        status = mr_fail(ret_error, MR_AGAIN,
                         "%s is upon revision %.0f, and Kafka has %" PRIu64 " of %s", path,
                         revision, work->stored.revision.number,
                         work->stored.revision.by == NULL ? "nobody" : work->stored.revision.by);
    }
    if (status == MR_OK) {
        *ret = plan;
    } else {
        cJSON_Delete(plan);
    }
    return status;
}

/* One pipeline of a plan, which somebody may have edited. */
static mr_status take_wanted(struct fleet_stored *stored, const char *name, cJSON *wanted,
                             struct mr_error *ret_error)
{
    struct fleet_record record;
    struct mr_config *config = NULL;
    char *text = cJSON_PrintUnformatted(wanted);
    const struct mr_kafka_read read = {
        .partition = 1, .key = mr_slice_of(name), .value = mr_slice_of(text)};
    mr_status status = mr_fleet_record_read(false, &read, &record, ret_error);
    free(text);
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

/* `millrace check` of a configuration, on this machine; its exit code. */
static mr_status check_one(const char *name, const char *config, int *ret_code,
                           struct mr_error *ret_error)
{
    char path[] = "/tmp/millrace-check-XXXXXX";
    int fd = mkstemp(path), wait_status = 0;
    pid_t pid;
    size_t len = strlen(config);
    char *const arguments[] = {"millrace", "check", "--config", path, NULL};
    bool is_good = fd >= 0 && write(fd, config, len) == (ssize_t)len;
    fprintf(stderr, "%s:\n", name);
    is_good = is_good && posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0 &&
              waitpid(pid, &wait_status, 0) == pid;
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
        MR_TRY(check_one(item->string, config == NULL ? "" : config, ret_code, ret_error));
        if (*ret_code != 0) {
            fprintf(stderr, "millrace: pipeline %s does not pass its check; nothing was written\n",
                    item->string);
            return MR_END;
        }
    }
    return MR_OK;
}

static mr_status commit(struct work *work, struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_change_commit(&work->store, &work->stored, ret_error));
    fprintf(stderr, "fleet %s: revision %" PRIu64 "\n", work->own.name, work->stored.next);
    return MR_OK;
}

/* MR_END: `*ret_code` says why nothing was written. */
static mr_status apply(struct work *work, cJSON **ret_plan, int *ret_code,
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
    return commit(work, ret_error);
}

mr_status mr_fleet_apply(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                         struct mr_error *ret_error)
{
    struct work work;
    cJSON *plan = NULL;
    *ret_code = 0;
    mr_status status = work_begin(&work, options, to, ret_error);
    status = status == MR_OK ? apply(&work, &plan, ret_code, ret_error) : status;
    cJSON_Delete(plan);
    work_done(&work);
    return status == MR_END ? MR_OK : outcome(status, ret_error, ret_code);
}

/* ---- changes of one pipeline or node ---- */

typedef mr_status (*change_fn)(struct work *work, const char *name, struct mr_error *ret_error);

/* Begins, changes, and commits. */
static mr_status change(struct work *work, change_fn fn, const char *name,
                        struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_change_begin(&work->store, &work->stored, ret_error));
    MR_TRY(fn(work, name, ret_error));
    return commit(work, ret_error);
}

static mr_status set_drain(struct work *work, const char *name, bool drains,
                           struct mr_error *ret_error)
{
    if (!mr_fleet_is_name(name)) {
        return mr_fail(ret_error, MR_ERR_USAGE, "\"%s\" is not a node's name", name);
    }
    struct fleet_record *record =
        &mr_fleet_stored_change(&work->stored, FLEET_RECORD_NODE, name)->record;
    record->node.drains = drains;
    record->is_gone = !drains;
    return MR_OK;
}

/* A definition that is to be changed; NULL: there is none. */
static struct fleet_definition *definition_of(struct work *work, const char *name,
                                              struct mr_error *ret_error)
{
    const struct fleet_stored_item *item =
        mr_fleet_stored_find(&work->stored, FLEET_RECORD_DEFINITION, name);
    if (item == NULL || item->is_wrong) {
        mr_error_set(ret_error, MR_ERR_USAGE, "fleet %s has no pipeline %s%s", work->own.name, name,
                     item == NULL ? "" : " that can be read; apply writes it again");
        return NULL;
    }
    return &mr_fleet_stored_change(&work->stored, FLEET_RECORD_DEFINITION, name)->record.definition;
}

static mr_status retry(struct work *work, const char *name, struct mr_error *ret_error)
{
    struct fleet_definition *definition = definition_of(work, name, ret_error);
    if (definition == NULL) {
        return MR_ERR_USAGE;
    }
    definition->retry = work->stored.next;
    return MR_OK;
}

static bool owns(const struct fleet_record *record, int32_t partition)
{
    const char *owned = record->node_status.owned;
    return owned != NULL && strlen(owned) == FLEET_PARTITIONS && owned[partition] == '1';
}

/* Which partitions a pipeline may move to: those of the node, or (NULL) those of another than the one that it is at. False: none. */
static bool find_places(struct work *work, const struct fleet_stored *seen, int32_t from,
                        bool ret[FLEET_PARTITIONS])
{
    const char *node = work->options->node;
    bool found = false;
    for (uint32_t i = 0; i < seen->count; i++) {
        const struct fleet_record *record = &seen->items[i].record;
        bool is_wanted =
            record->kind == FLEET_RECORD_NODE_STATUS && !seen->items[i].is_wrong &&
            (node != NULL ? strcmp(record->node_status.name, node) == 0 : !owns(record, from));
        for (int32_t k = 1; k < FLEET_PARTITIONS && is_wanted; k++) {
            ret[k] |= k != from && owns(record, k);
            found |= ret[k];
        }
    }
    return found;
}

static mr_status move(struct work *work, const char *name, struct mr_error *ret_error)
{
    struct fleet_stored seen;
    bool places[FLEET_PARTITIONS] = {false};
    struct fleet_definition *definition = definition_of(work, name, ret_error);
    if (definition == NULL) {
        return MR_ERR_USAGE;
    }
    MR_TRY(mr_fleet_stored_read(&work->store, true, &seen, ret_error));
    bool found = find_places(work, &seen, definition->partition, places);
    mr_fleet_stored_done(&seen);
    if (!found) {
        return mr_fail(ret_error, MR_ERR_USAGE, "no agent%s%s has a partition to move %s to",
                       work->options->node == NULL ? " of another node" : " on ",
                       work->options->node == NULL ? "" : work->options->node, name);
    }
    definition->partition = mr_fleet_place(&work->stored, places);
    return MR_OK;
}

static mr_status change_one(struct work *work, const char *name, struct mr_error *ret_error)
{
    switch (work->options->change) {
    case MR_FLEET_DRAIN:
    case MR_FLEET_UNDRAIN:
        return set_drain(work, name, work->options->change == MR_FLEET_DRAIN, ret_error);
    case MR_FLEET_MOVE:
        return move(work, name, ret_error);
    case MR_FLEET_RETRY:
        break;
    }
    return retry(work, name, ret_error);
}

mr_status mr_fleet_change(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                          struct mr_error *ret_error)
{
    struct work work;
    *ret_code = 0;
    mr_status status = work_begin(&work, options, to, ret_error);
    status = status == MR_OK ? change(&work, change_one, options->name, ret_error) : status;
    work_done(&work);
    return outcome(status, ret_error, ret_code);
}

/* ---- one after another ---- */

/* Until it streams again; MR_END: it is held, or takes too long. */
static mr_status await(struct work *work, const char *name, uint64_t retry_wanted,
                       struct mr_error *ret_error)
{
    int64_t begin_ns = mr_monotonic_ns(), age_ms = 0;
    for (; age_ms < RESTART_MS; age_ms = (mr_monotonic_ns() - begin_ns) / 1000000) {
        struct fleet_stored seen;
        MR_TRY(mr_fleet_stored_read(&work->store, true, &seen, ret_error));
        const struct fleet_stored_item *item =
            mr_fleet_stored_find(&seen, FLEET_RECORD_STATUS, name);
        const struct fleet_status *status = item == NULL ? NULL : &item->record.status;
        bool is_new = item != NULL && !item->is_wrong && status->retry >= retry_wanted;
        bool streams = is_new && status->state == FLEET_STREAMING;
        bool is_held = is_new && status->state == FLEET_HELD;
        if (is_held) {
            fprintf(stderr, "millrace: %s is held: %s\n", name, status->error);
        }
        mr_fleet_stored_done(&seen);
        if (streams) {
            fprintf(work->to, "%s streams again after %.1f s\n", name,
                    (double)(mr_monotonic_ns() - begin_ns) / 1e9);
            fflush(work->to);
        }
        if (streams || is_held) {
            return streams ? MR_OK : MR_END;
        }
        usleep(LOOK_MS * 1000);
    }
    fprintf(stderr, "millrace: %s does not stream after %d s\n", name, RESTART_MS / 1000);
    return MR_END;
}

static mr_status restart_one(struct work *work, const char *name, struct mr_error *ret_error)
{
    struct work own = {.options = work->options, .to = work->to};
    own.store.own = &work->own;
    mr_status status = change(&own, retry, name, ret_error);
    uint64_t wanted = own.stored.next;
    mr_fleet_stored_done(&own.stored);
    mr_fleet_store_close(&own.store);
    return status == MR_OK ? await(work, name, wanted, ret_error) : status;
}

mr_status mr_fleet_restart(const struct mr_fleet_options *options, FILE *to, int *ret_code,
                           struct mr_error *ret_error)
{
    struct work work;
    struct fleet_stored seen = {0};
    *ret_code = 0;
    mr_status status = work_begin(&work, options, to, ret_error);
    status = status == MR_OK ? mr_fleet_stored_read(&work.store, true, &seen, ret_error) : status;
    for (uint32_t i = 0; i < seen.count && status == MR_OK; i++) {
        const struct fleet_record *record = &seen.items[i].record;
        if (record->kind == FLEET_RECORD_STATUS && record->status.state == FLEET_STREAMING &&
            (options->name == NULL || strcmp(options->name, record->status.name) == 0)) {
            status = restart_one(&work, record->status.name, ret_error);
        }
    }
    mr_fleet_stored_done(&seen);
    work_done(&work);
    if (status == MR_END) {
        *ret_code = 1;
        return MR_OK;
    }
    return outcome(status, ret_error, ret_code);
}
