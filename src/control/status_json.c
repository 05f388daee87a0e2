/* The object of /status. Rates are of the last second; percentiles of the last second too (null
 * when nothing was delivered in it) and, under "run", of the whole run. Times are seconds unless
 * the name says else. */
#include <math.h>

#include "control/figures.h"
#include "control/pages.h"
#include "event/lsn.h"

/* JSON has no infinity and no NaN; both are shown as not known. */
static void status_json_add_number(cJSON *to, const char *name, double value)
{
    if (isfinite(value)) {
        cJSON_AddNumberToObject(to, name, value);
    } else {
        cJSON_AddNullToObject(to, name);
    }
}

static void add_count(cJSON *to, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(to, name, (double)value);
}

static cJSON *add_item(cJSON *list)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(list, item);
    return item;
}

static void add_percentiles(cJSON *to, const char *name, const struct mr_histogram_view *view)
{
    cJSON *object = cJSON_AddObjectToObject(to, name);
    status_json_add_number(object, "p50", mr_histogram_quantile(view, 0.5));
    status_json_add_number(object, "p95", mr_histogram_quantile(view, 0.95));
    status_json_add_number(object, "p99", mr_histogram_quantile(view, 0.99));
    add_count(object, "count", view->count);
}

static void add_figure(cJSON *to, const struct mr_monitor_snapshot *snapshot,
                       const struct mr_figure *figure)
{
    struct mr_figure_value value = mr_figure_value(figure, snapshot);
    if (figure->kind == MR_FIGURE_BOOL) {
        cJSON_AddBoolToObject(to, figure->name, value.whole != 0);
    } else if (figure->kind == MR_FIGURE_LSN) {
        mr_lsn_add(to, figure->name, value.whole);
    } else {
        status_json_add_number(to, figure->name, value.number);
    }
}

static cJSON *section_of(cJSON *root, const char *name)
{
    cJSON *section = cJSON_GetObjectItemCaseSensitive(root, name);
    return section != NULL ? section : cJSON_AddObjectToObject(root, name);
}

static void add_figures(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    for (size_t i = 0; i < mr_figure_count; i++) {
        const struct mr_figure *figure = &mr_figures[i];
        if (figure->name != NULL) {
            add_figure(figure->section == NULL ? root : section_of(root, figure->section), snapshot,
                       figure);
        }
    }
}

static void add_run(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    cJSON *run = cJSON_AddObjectToObject(root, "run");
    add_percentiles(run, "flush", &snapshot->times.flush);
    add_percentiles(run, "latency", &snapshot->times.latency);
    cJSON *path = cJSON_AddObjectToObject(run, "path");
    for (int i = 0; i < MR_PATH_COUNT; i++) {
        add_percentiles(path, mr_path_name((enum mr_path)i), &snapshot->times.path[i]);
    }
}

static void add_progress(cJSON *to, const char *state, uint32_t percent, uint64_t rows,
                         double seconds)
{
    cJSON_AddStringToObject(to, "state", state);
    add_count(to, "percent", percent);
    status_json_add_number(to, "rows_per_second", seconds > 0 ? (double)rows / seconds : 0);
}

static void status_json_add_copy(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    static const char *const states[] = {[MR_COPY_TABLE_WAITS] = "waits",
                                         [MR_COPY_TABLE_READ] = "read",
                                         [MR_COPY_TABLE_DONE] = "done"};
    const struct mr_copy_stats *copy = &snapshot->copies.snapshot;
    cJSON *item = section_of(root, "snapshot");
    add_progress(item, mr_copy_state_name(copy->state),
                 mr_copy_percent(copy->bytes, copy->bytes_total), copy->rows, copy->seconds);
    cJSON *tables = cJSON_AddArrayToObject(item, "progress");
    for (uint32_t i = 0; i < snapshot->copies.table_count; i++) {
        const struct mr_copy_table_stats *table = &snapshot->copies.tables[i];
        item = add_item(tables);
        cJSON_AddStringToObject(item, "table", table->table);
        add_progress(item, states[table->state], mr_copy_percent(table->bytes, table->bytes_total),
                     table->rows, table->seconds);
        add_count(item, "rows", table->rows);
        add_count(item, "rows_estimated", table->rows_estimated);
        add_count(item, "bytes", table->bytes);
        add_count(item, "bytes_total", table->bytes_total);
        status_json_add_number(item, "seconds_left", table->seconds_left);
    }
    const struct mr_held_up *held = &snapshot->copies.incremental.held;
    if (held->by[0] != '\0') {
        cJSON_AddStringToObject(section_of(root, "incremental"), "held_by", held->by);
        cJSON_AddStringToObject(section_of(root, "incremental"), "held_since", held->since);
    }
}

static void add_partitions(cJSON *root, const struct mr_sink_view *sink)
{
    enum { PARTITIONS_SHOWN = 64 };
    cJSON *list = cJSON_AddArrayToObject(section_of(root, "in_flight"), "partitions");
    uint32_t shown = 0;
    for (uint32_t i = 0; i < sink->partition_count && shown < PARTITIONS_SHOWN; i++) {
        const struct mr_sink_partition *partition = &sink->partitions[i];
        if (partition->records == 0) {
            continue;
        }
        cJSON *item = add_item(list);
        cJSON_AddStringToObject(item, "topic", partition->topic);
        cJSON_AddNumberToObject(item, "partition", partition->partition);
        cJSON_AddNumberToObject(item, "messages", (double)partition->records);
        cJSON_AddNumberToObject(item, "bytes", (double)partition->bytes);
        shown++;
    }
}

static void add_cost(cJSON *slot, const struct mr_slot_cost *cost)
{
    cJSON *to = cJSON_AddObjectToObject(slot, "cost");
    add_count(to, "held_bytes", cost->held_bytes);
    cJSON_AddStringToObject(to, "holder", cost->holder);
    add_count(to, "catalog_xmin_age", cost->catalog_xmin_age);
    add_count(to, "decoded_bytes", cost->decoded_bytes);
    add_count(to, "spilled_bytes", cost->spilled_bytes);
    add_count(to, "spilled_transactions", cost->spilled_transactions);
    cJSON_AddStringToObject(to, "wait", cost->wait);
    add_count(to, "wait_percent", cost->wait_percent);
    cJSON_AddStringToObject(to, "others", cost->others);
    cJSON_AddStringToObject(to, "dead_catalogs", cost->dead_catalogs);
    if (cost->has_cpu) {
        status_json_add_number(to, "cpu_cores", cost->cpu_cores);
    }
}

static void add_slot(cJSON *root, const struct mr_pages *pages, const struct mr_slot_view *view)
{
    cJSON *slot = cJSON_AddObjectToObject(root, "slot");
    cJSON_AddStringToObject(slot, "name", pages->slot);
    cJSON_AddBoolToObject(slot, "known", view->known);
    if (!view->known) {
        return;
    }
    cJSON_AddBoolToObject(slot, "exists", view->exists);
    cJSON_AddBoolToObject(slot, "active", view->active);
    cJSON_AddStringToObject(slot, "wal_status", mr_wal_status_name(view->wal_status));
    cJSON_AddBoolToObject(slot, "failover", view->failover);
    cJSON_AddBoolToObject(slot, "synced", view->synced);
    cJSON_AddStringToObject(slot, "invalidation", mr_invalidation_name(view->invalidation));
    if (view->held_by[0] != '\0') {
        cJSON_AddStringToObject(slot, "held_by", view->held_by);
    }
    add_count(slot, "retained_bytes", view->retained_bytes);
    status_json_add_number(slot, "age_seconds", view->age_seconds);
    add_cost(slot, &view->cost);
    cJSON *copies = cJSON_AddArrayToObject(slot, "copies");
    for (uint32_t i = 0; i < view->copy_count; i++) {
        cJSON *item = add_item(copies);
        cJSON_AddStringToObject(item, "host", view->copies[i].host);
        cJSON_AddStringToObject(item, "state", mr_slot_copy_state_name(view->copies[i].state));
        cJSON_AddStringToObject(item, "reason", view->copies[i].reason);
    }
    if (view->limit_bytes >= 0) {
        cJSON_AddNumberToObject(slot, "limit_bytes", (double)view->limit_bytes);
        cJSON_AddStringToObject(slot, "raise",
                                mr_slot_raise(view->limit_bytes, view->retained_bytes).text);
    }
    /* Only where max_slot_wal_keep_size sets a limit, and the slot is not lost. */
    if (view->has_limit) {
        cJSON_AddNumberToObject(slot, "safe_bytes", (double)view->safe_bytes);
        status_json_add_number(slot, "forecast_seconds", view->forecast_seconds);
    }
}

static void add_ends(cJSON *root, const struct mr_pages *pages,
                     const struct mr_monitor_snapshot *snapshot)
{
    cJSON_AddStringToObject(section_of(root, "source"), "publication", pages->publication);
    cJSON *sink = section_of(root, "sink");
    cJSON_AddStringToObject(sink, "type", pages->sink);
    cJSON *errors = cJSON_AddArrayToObject(sink, "errors");
    for (uint32_t i = 0; i < snapshot->sink.error_count; i++) {
        cJSON *item = add_item(errors);
        cJSON_AddStringToObject(item, "code", snapshot->sink.errors[i].code);
        add_count(item, "count", snapshot->sink.errors[i].count);
    }
    cJSON *brokers = cJSON_AddArrayToObject(sink, "brokers");
    for (uint32_t i = 0; i < snapshot->sink.client.broker_count; i++) {
        const struct mr_sink_broker *broker = &snapshot->sink.client.brokers[i];
        cJSON *item = add_item(brokers);
        cJSON_AddStringToObject(item, "name", broker->name);
        cJSON_AddBoolToObject(item, "up", broker->up);
        status_json_add_number(item, "rtt_avg", broker->rtt_avg);
        status_json_add_number(item, "rtt_p99", broker->rtt_p99);
    }
}

static int by_events(const void *a, const void *b)
{
    uint64_t first = mr_table_count_sum(a);
    uint64_t second = mr_table_count_sum(b);
    return first < second ? 1 : -(first > second);
}

static void status_json_add_tables(cJSON *root, const struct mr_monitor_snapshot *snapshot,
                                   uint32_t tables_max, const char *part)
{
    add_count(root, "table_count", snapshot->tables.count);
    uint32_t found = 0;
    cJSON *tables = cJSON_AddArrayToObject(root, "tables");
    mr_sort(snapshot->tables.items, snapshot->tables.count, sizeof(*snapshot->tables.items),
            by_events);
    for (uint32_t i = 0; i < snapshot->tables.count; i++) {
        const struct mr_table_count *table = &snapshot->tables.items[i];
        if (strcasestr(table->table, part) == NULL || ++found > tables_max) {
            continue;
        }
        cJSON *item = add_item(tables);
        cJSON_AddStringToObject(item, "table", table->table);
        for (int op = 0; op < MR_OP_COUNT; op++) {
            add_count(item, mr_op_name((enum mr_op)op), table->events[op]);
        }
    }
    add_count(root, "table_found", found);
}

static void status_json_add_events(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    cJSON *events = cJSON_AddArrayToObject(root, "events");
    for (uint32_t i = 0; i < snapshot->events.count; i++) {
        const struct mr_monitor_event *event = &snapshot->events.items[i];
        cJSON *item = add_item(events);
        cJSON_AddNumberToObject(item, "time_ms", (double)event->time_ms);
        cJSON_AddStringToObject(item, "level", mr_log_level_name(event->level));
        cJSON_AddStringToObject(item, "event", event->event);
        cJSON_AddStringToObject(item, "text", event->text);
        cJSON_AddStringToObject(item, "about", event->about);
    }
}

static void add_links(cJSON *root, const struct mr_http *http)
{
    cJSON *links = cJSON_AddArrayToObject(root, "links");
    const struct mr_http_route *route;
    for (size_t i = 0; http != NULL && (route = mr_http_route_at(http, i)) != NULL; i++) {
        if (route->title != NULL) {
            cJSON *item = add_item(links);
            cJSON_AddStringToObject(item, "path", route->path);
            cJSON_AddStringToObject(item, "title", route->title);
        }
    }
}

cJSON *mr_status_json(const struct mr_pages *pages, const struct mr_monitor_snapshot *snapshot,
                      uint32_t tables_max, const char *part)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", MR_VERSION);
    status_json_add_number(root, "uptime", (double)snapshot->uptime_ms / 1e3);
    cJSON_AddStringToObject(root, "state", mr_state_name(snapshot->state));
    cJSON_AddStringToObject(root, "reason", snapshot->reason);
    cJSON_AddStringToObject(root, "bottleneck", mr_stage_name(snapshot->bottleneck));
    cJSON_AddStringToObject(root, "why", snapshot->why);
    add_figures(root, snapshot);
    cJSON *standstill = section_of(root, "standstill");
    cJSON_AddStringToObject(standstill, "cause", mr_cause_name(snapshot->standstill.cause));
    cJSON_AddStringToObject(standstill, "text", snapshot->standstill.text);
    add_ends(root, pages, snapshot);
    add_partitions(root, &snapshot->sink);
    add_run(root, snapshot);
    status_json_add_copy(root, snapshot);
    add_slot(root, pages, &snapshot->slot);
    status_json_add_tables(root, snapshot, tables_max, part);
    status_json_add_events(root, snapshot);
    add_links(root, pages->http);
    pages->show_more(pages->context, root);
    cJSON_AddBoolToObject(root, "last_events", pages->last_events != NULL);
    if (pages->profiler_seconds != NULL) {
        status_json_add_number(root, "profiler_seconds", pages->profiler_seconds());
    }
    return root;
}
