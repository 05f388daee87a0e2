/* What agents say of a fleet's pipelines beside what is wanted of them, the worst first. */

#include "base/clock.h"
#include "fleet/store.h"

struct mr_fleet_view {
    struct fleet_own own; /* nothing, where another keeps it */
    struct fleet_store store;
};

struct mr_fleet_view *mr_fleet_view_of(const struct fleet_own *own)
{
    struct mr_fleet_view *view = MR_NEW(struct mr_fleet_view);
    *view = (struct mr_fleet_view){.store.own = own};
    return view;
}

mr_status mr_fleet_view_open(const char *path, struct mr_fleet_view **ret,
                             struct mr_error *ret_error)
{
    struct mr_fleet_view *view = *ret = mr_fleet_view_of(NULL);
    view->store.own = &view->own;
    MR_TRY(mr_fleet_own_read(path, &view->own, ret_error));
    return mr_programs_start(&view->own.config->programs, ret_error);
}

void mr_fleet_view_close(struct mr_fleet_view *view)
{
    if (view != NULL) {
        mr_fleet_store_close(&view->store);
        mr_fleet_own_done(&view->own);
        free(view);
    }
}

struct row {
    const struct fleet_definition *definition; /* NULL: it is gone, and its child has not ended */
    const struct fleet_status *status;         /* NULL: nothing is said */
    const char *name;
    enum { IS_SURPLUS, IS_HELD, IS_UNKNOWN, IS_NOT_READY, IS_AT_RISK, IS_WELL, IS_STOPPED } rank;
};

static bool is_old(int64_t at_ms)
{
    return mr_wall_ns() / 1000000 - at_ms > FLEET_UNKNOWN_MS;
}

static void rank(struct row *row)
{
    const struct fleet_status *status = row->status;
    bool is_wanted = row->definition != NULL && row->definition->terms.run;
    bool is_said = status != NULL && !is_old(status->at_ms);
    row->rank = is_said && status->is_surplus                                ? IS_SURPLUS
                : is_said && status->state == FLEET_HELD                     ? IS_HELD
                : !is_wanted && (!is_said || status->state == FLEET_STOPPED) ? IS_STOPPED
                : !is_said                                                   ? IS_UNKNOWN
                : status->state != FLEET_STREAMING                           ? IS_NOT_READY
                : mr_is_among("unreserved|lost", mr_slice_of(status->slot))  ? IS_AT_RISK
                                                                             : IS_WELL;
}

static int more_first(double a, double b)
{
    return a > b ? -1 : a < b;
}

/* Then by lag, kept WAL, the older program, and name. */
static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    int order = (int)one->rank - (int)other->rank;
    if (order == 0 && one->status != NULL && other->status != NULL) {
        order = more_first(one->status->lag_seconds, other->status->lag_seconds);
        order = order != 0 ? order
                           : more_first(one->status->retained_wal_bytes,
                                        other->status->retained_wal_bytes);
        order = order != 0 ? order : strverscmp(one->status->program, other->status->program);
    }
    return order != 0 ? order : strcmp(one->name, other->name);
}

static cJSON *show_row(const struct row *row)
{
    static const char *const billed[] = {"cpu_seconds", "rows", "bytes"};
    static const char *const words[] = {[IS_UNKNOWN] = "unknown", [IS_STOPPED] = "stopped"};
    struct fleet_record record = {.kind = FLEET_RECORD_STATUS};
    if (row->status != NULL) {
        record.status = *row->status;
    }
    cJSON *json = row->status != NULL ? mr_fleet_record_json(&record) : cJSON_CreateObject();
    cJSON_DeleteItemFromObject(json, "version");
    cJSON_AddStringToObject(json, "name", row->name);
    if (row->rank == IS_UNKNOWN || row->rank == IS_STOPPED) {
        cJSON_DeleteItemFromObject(json, "state");
        cJSON_AddStringToObject(json, "state", words[row->rank]);
    }
    if (row->definition != NULL) {
        cJSON *wanted = cJSON_AddObjectToObject(json, "wanted");
        cJSON_AddNumberToObject(wanted, "generation", (double)row->definition->generation);
        cJSON_AddBoolToObject(wanted, "run", row->definition->terms.run);
        cJSON_AddNumberToObject(wanted, "partition", row->definition->partition);
        cJSON_AddNumberToObject(wanted, "weight", (double)row->definition->terms.weight);
    }
    cJSON *bill = cJSON_AddObjectToObject(json, "bill");
    for (size_t i = 0; i < MR_ARRAY_LEN(billed); i++) {
        cJSON_AddItemToObject(bill, billed[i], cJSON_DetachItemFromObject(json, billed[i]));
    }
    return json;
}

/* The status that can be read; NULL: there is none. */
static const struct fleet_status *status_of(const struct fleet_stored_item *item)
{
    return item == NULL || item->is_wrong ? NULL : &item->record.status;
}

static cJSON *show_pipelines(const struct fleet_stored *stored, const struct fleet_stored *seen)
{
    struct row *rows = MR_NEW_ARRAY(struct row, stored->count + seen->count + 1);
    uint32_t count = 0;
    cJSON *json = cJSON_CreateArray();
    for (uint32_t i = 0; i < stored->count; i++) {
        const struct fleet_record *record = &stored->items[i].record;
        const char *name = record->definition.name;
        if (record->kind == FLEET_RECORD_DEFINITION) {
            rows[count++] = (struct row){
                &record->definition,
                status_of(mr_fleet_stored_find(seen, FLEET_RECORD_STATUS, name)), name, 0};
        }
    }
    for (uint32_t i = 0; i < seen->count; i++) {
        const char *name = seen->items[i].record.status.name;
        if (seen->items[i].record.kind == FLEET_RECORD_STATUS && !seen->items[i].is_wrong &&
            !is_old(seen->items[i].record.status.at_ms) && /* no agent was left to take it back */
            mr_fleet_stored_find(stored, FLEET_RECORD_DEFINITION, name) == NULL) {
            rows[count++] = (struct row){NULL, status_of(&seen->items[i]), name, 0};
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        rank(&rows[i]);
    }
    qsort(rows, count, sizeof(*rows), compare_rows);
    for (uint32_t i = 0; i < count; i++) {
        cJSON_AddItemToArray(json, show_row(&rows[i]));
    }
    free(rows);
    return json;
}

static cJSON *show_nodes(const struct fleet_stored *stored, const struct fleet_stored *seen)
{
    cJSON *json = cJSON_CreateArray();
    for (uint32_t i = 0; i < seen->count; i++) {
        const struct fleet_record *record = &seen->items[i].record;
        if (record->kind == FLEET_RECORD_NODE_STATUS && !seen->items[i].is_wrong) {
            const char *name = record->node_status.name;
            const struct fleet_stored_item *item =
                mr_fleet_stored_find(stored, FLEET_RECORD_NODE, name);
            cJSON *node = mr_fleet_record_json(record);
            cJSON_DeleteItemFromObject(node, "version");
            cJSON_AddStringToObject(node, "name", name);
            cJSON_AddBoolToObject(node, "drain", item != NULL && item->record.node.drains);
            cJSON_AddBoolToObject(node, "unknown", is_old(record->node_status.at_ms));
            cJSON_AddItemToArray(json, node);
        }
    }
    return json;
}

mr_status mr_fleet_view_look(struct mr_fleet_view *view, cJSON **ret, struct mr_error *ret_error)
{
    struct fleet_stored stored, seen;
    MR_TRY(mr_fleet_stored_read(&view->store, false, &stored, ret_error));
    mr_status status = mr_fleet_stored_read(&view->store, true, &seen, ret_error);
    if (status == MR_OK) {
        cJSON *json = *ret = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "fleet", view->store.own->name);
        cJSON_AddNumberToObject(json, "revision", (double)stored.revision.number);
        cJSON_AddBoolToObject(json, "whole", stored.is_whole && stored.partitions > 0);
        const int64_t at_ms = mr_wall_ns() / 1000000;
        cJSON_AddNumberToObject(json, "at_ms", (double)at_ms);
        cJSON_AddItemToObject(json, "pipelines", show_pipelines(&stored, &seen));
        cJSON_AddItemToObject(json, "nodes", show_nodes(&stored, &seen));
        mr_fleet_stored_done(&seen);
    }
    mr_fleet_stored_done(&stored);
    return status;
}
