/* What is kept in Kafka of a fleet, changed by a word about one pipeline or node; each change is one transaction. */

#include "base/clock.h"
#include "fleet/store.h"

enum { RESTART_MS = 120000, LOOK_MS = 500 };

typedef mr_status (*change_fn)(struct fleet_work *work, const char *name,
                               struct mr_error *ret_error);

/* Begins, changes, and commits. */
static mr_status change(struct fleet_work *work, change_fn fn, const char *name,
                        struct mr_error *ret_error)
{
    MR_TRY(mr_fleet_change_begin(&work->store, &work->stored, ret_error));
    MR_TRY(fn(work, name, ret_error));
    return mr_fleet_change_commit(&work->store, &work->stored, ret_error);
}

static mr_status set_drain(struct fleet_work *work, const char *name, bool drains,
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
static struct fleet_definition *definition_of(struct fleet_work *work, const char *name,
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

static mr_status retry(struct fleet_work *work, const char *name, struct mr_error *ret_error)
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
static bool find_places(struct fleet_work *work, const struct fleet_stored *seen, int32_t from,
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

static mr_status move(struct fleet_work *work, const char *name, struct mr_error *ret_error)
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

static mr_status change_one(struct fleet_work *work, const char *name, struct mr_error *ret_error)
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
    struct fleet_work work;
    *ret_code = 0;
    mr_status status = mr_fleet_work_begin(&work, options, to, ret_error);
    status = status == MR_OK ? change(&work, change_one, options->name, ret_error) : status;
    mr_fleet_work_done(&work);
    return mr_fleet_outcome(status, ret_error, ret_code);
}

/* ---- one after another ---- */

/* Until it streams again; MR_END: it is held, or takes too long. */
static mr_status await(struct fleet_work *work, const char *name, uint64_t retry_wanted,
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

static mr_status restart_one(struct fleet_work *work, const char *name, struct mr_error *ret_error)
{
    struct fleet_work own = {.options = work->options, .to = work->to};
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
    struct fleet_work work;
    struct fleet_stored seen = {0};
    *ret_code = 0;
    mr_status status = mr_fleet_work_begin(&work, options, to, ret_error);
    status = status == MR_OK ? mr_fleet_stored_read(&work.store, true, &seen, ret_error) : status;
    for (uint32_t i = 0; i < seen.count && status == MR_OK; i++) {
        const struct fleet_record *record = &seen.items[i].record;
        if (record->kind == FLEET_RECORD_STATUS && record->status.state == FLEET_STREAMING &&
            (options->name == NULL || strcmp(options->name, record->status.name) == 0)) {
            status = restart_one(&work, record->status.name, ret_error);
        }
    }
    mr_fleet_stored_done(&seen);
    mr_fleet_work_done(&work);
    if (status == MR_END) {
        *ret_code = 1;
        return MR_OK;
    }
    return mr_fleet_outcome(status, ret_error, ret_code);
}
