/* The object of /status. Rates are of the last second; percentiles of the last second too (null when nothing
 * was delivered in it) and, under "run", of the whole run. Times are seconds unless the name says else. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control/pages.h"

static void add_lsn(cJSON *to, const char *name, mr_lsn lsn)
{
    char text[24];
    snprintf(text, sizeof(text), "%X/%X", (unsigned)(lsn >> 32), (unsigned)lsn);
    cJSON_AddStringToObject(to, name, text);
}

/* JSON has no infinity and no NaN; both are "not known" to whoever reads. */
static void add_number(cJSON *to, const char *name, double value)
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

static void add_percentiles(cJSON *to, const char *name, const struct mr_histogram_view *view)
{
    cJSON *object = cJSON_AddObjectToObject(to, name);
    add_number(object, "p50", mr_histogram_quantile(view, 0.5));
    add_number(object, "p95", mr_histogram_quantile(view, 0.95));
    add_number(object, "p99", mr_histogram_quantile(view, 0.99));
    add_count(object, "count", view->count);
}

static void add_positions(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    cJSON *positions = cJSON_AddObjectToObject(root, "positions");
    add_lsn(positions, "received", snapshot->pipeline.received_lsn);
    add_lsn(positions, "confirmed", snapshot->pipeline.confirmed_lsn);
    add_lsn(positions, "server", snapshot->server_lsn);
    cJSON *lag = cJSON_AddObjectToObject(root, "lag");
    add_count(lag, "bytes", snapshot->lag_bytes);
    add_number(lag, "seconds", snapshot->lag_seconds);
    add_number(lag, "stalled_seconds", snapshot->stalled_seconds);
}

static void add_rates(cJSON *root, const struct mr_monitor_sample *sample)
{
    cJSON *rates = cJSON_AddObjectToObject(root, "rates");
    add_number(rates, "changes", sample->changes_rate);
    add_number(rates, "records", sample->records_rate);
    add_number(rates, "bytes", sample->bytes_rate);
    add_number(rates, "transactions", sample->transactions_rate);
    add_number(rates, "backpressure", sample->backpressure);
    add_number(rates, "cpu", sample->cpu);
    add_number(rates, "flush_p50", sample->flush_p50);
    add_number(rates, "flush_p99", sample->flush_p99);
    add_number(rates, "latency_p50", sample->latency_p50);
    add_number(rates, "latency_p95", sample->latency_p95);
    add_number(rates, "latency_p99", sample->latency_p99);
}

static void add_totals(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    const struct mr_pipeline_stats *stats = &snapshot->pipeline;
    cJSON *totals = cJSON_AddObjectToObject(root, "totals");
    add_count(totals, "changes", stats->changes);
    add_count(totals, "skipped", stats->skipped);
    add_count(totals, "transactions", stats->transactions);
    add_count(totals, "records", stats->records);
    add_count(totals, "acknowledged", stats->records_acked);
    add_count(totals, "bytes", stats->bytes);
    add_count(totals, "bytes_acknowledged", stats->bytes_acked);
    add_count(totals, "received_bytes", stats->received_bytes);
    add_count(totals, "reconnects", stats->reconnects);
    add_count(totals, "rebuilds", stats->rebuilds);
    add_number(totals, "backpressure_seconds", (double)stats->backpressure_ns / 1e9);
    cJSON *run = cJSON_AddObjectToObject(root, "run");
    add_percentiles(run, "flush", &snapshot->flush);
    add_percentiles(run, "latency", &snapshot->latency);
    cJSON *path = cJSON_AddObjectToObject(run, "path");
    for (int i = 0; i < MR_PATH_COUNT; i++) {
        add_percentiles(path, mr_path_name((enum mr_path)i), &snapshot->path[i]);
    }
}

static void add_copied(cJSON *copy, const struct mr_monitor_snapshot *snapshot)
{
    static const char *const states[] = {[MR_COPY_TABLE_WAITS] = "waits",
                                         [MR_COPY_TABLE_READ] = "read",
                                         [MR_COPY_TABLE_DONE] = "done"};
    cJSON *tables = cJSON_AddArrayToObject(copy, "progress");
    for (uint32_t i = 0; i < snapshot->copied_count; i++) {
        const struct mr_copy_table_stats *table = &snapshot->copied[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "table", table->table);
        cJSON_AddStringToObject(item, "state", states[table->state]);
        add_count(item, "rows", table->rows);
        add_count(item, "rows_estimated", table->rows_estimated);
        add_count(item, "bytes", table->bytes);
        add_count(item, "bytes_total", table->bytes_total);
        add_count(item, "percent", mr_copy_percent(table->bytes, table->bytes_total));
        add_number(item, "rows_per_second",
                   table->seconds > 0 ? (double)table->rows / table->seconds : 0);
        add_number(item, "seconds_left", table->seconds_left);
        cJSON_AddItemToArray(tables, item);
    }
}

static void add_copy(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    const struct mr_copy_stats *copy = &snapshot->pipeline.copy;
    cJSON *item = cJSON_AddObjectToObject(root, "snapshot");
    cJSON_AddStringToObject(item, "state", mr_copy_state_name(copy->state));
    add_count(item, "tables", copy->tables);
    add_count(item, "tables_done", copy->tables_done);
    add_count(item, "rows", copy->rows);
    add_count(item, "rows_estimated", copy->rows_estimated);
    add_count(item, "bytes", copy->bytes);
    add_count(item, "bytes_total", copy->bytes_total);
    add_number(item, "seconds", copy->seconds);
    double rate = copy->seconds > 0 ? (double)copy->rows / copy->seconds : 0;
    add_count(item, "percent", mr_copy_percent(copy->bytes, copy->bytes_total));
    add_number(item, "rows_per_second", rate);
    add_number(item, "seconds_left", copy->seconds_left);
    cJSON_AddBoolToObject(item, "slot_is_short", snapshot->slot_is_short);
    add_copied(item, snapshot);
}

static void add_incremental(cJSON *root, const struct mr_incremental_stats *stats)
{
    cJSON *item = cJSON_AddObjectToObject(root, "incremental");
    cJSON_AddBoolToObject(item, "paused", stats->paused);
    add_count(item, "tables", stats->tables);
    add_count(item, "rows", stats->rows);
    add_count(item, "passed_over", stats->passed_over);
    add_count(item, "chunks", stats->chunks);
    add_count(item, "repeated", stats->repeated);
    if (stats->held.by[0] != '\0') {
        cJSON_AddStringToObject(item, "held_by", stats->held.by);
        cJSON_AddStringToObject(item, "held_since", stats->held.since);
    }
}

static void add_in_flight(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    enum { PARTITIONS_SHOWN = 64 };
    cJSON *in_flight = cJSON_AddObjectToObject(root, "in_flight");
    add_count(in_flight, "messages", snapshot->sink.records_in_flight);
    add_count(in_flight, "bytes", snapshot->sink.bytes_in_flight);
    add_count(in_flight, "batches", snapshot->pipeline.in_flight_batches);
    cJSON *list = cJSON_AddArrayToObject(in_flight, "partitions");
    uint32_t shown = 0;
    for (uint32_t i = 0; i < snapshot->sink.partition_count && shown < PARTITIONS_SHOWN; i++) {
        const struct mr_sink_partition *partition = &snapshot->sink.partitions[i];
        if (partition->records == 0) {
            continue;
        }
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "topic", partition->topic);
        cJSON_AddNumberToObject(item, "partition", partition->partition);
        cJSON_AddNumberToObject(item, "messages", (double)partition->records);
        cJSON_AddNumberToObject(item, "bytes", (double)partition->bytes);
        cJSON_AddItemToArray(list, item);
        shown++;
    }
    cJSON *pool = cJSON_AddObjectToObject(root, "pool");
    add_count(pool, "batches", snapshot->pipeline.pool_batches);
    add_count(pool, "free", snapshot->pipeline.pool_free);
    add_count(pool, "bytes", snapshot->pipeline.arena_bytes);
    add_count(pool, "high_water_bytes", snapshot->pipeline.arena_high_water_bytes);
    cJSON *memory = cJSON_AddObjectToObject(root, "memory");
    add_count(memory, "limit_bytes", snapshot->pipeline.memory_limit_bytes);
    add_count(memory, "used_bytes", snapshot->pipeline.memory_used_bytes);
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
    add_number(slot, "age_seconds", view->age_seconds);
    /* Both mean something only where max_slot_wal_keep_size sets a limit. */
    if (view->has_limit) {
        cJSON_AddNumberToObject(slot, "safe_bytes", (double)view->safe_bytes);
        add_number(slot, "forecast_seconds", view->forecast_seconds);
    }
}

static void add_ends(cJSON *root, const struct mr_pages *pages,
                     const struct mr_monitor_snapshot *snapshot)
{
    cJSON *source = cJSON_AddObjectToObject(root, "source");
    cJSON_AddBoolToObject(source, "connected", snapshot->pipeline.source_connected);
    cJSON_AddBoolToObject(source, "left_alone", snapshot->source_left_alone);
    cJSON_AddStringToObject(source, "publication", pages->publication);
    cJSON *sink = cJSON_AddObjectToObject(root, "sink");
    cJSON_AddStringToObject(sink, "type", pages->sink);
    cJSON_AddBoolToObject(sink, "connected", snapshot->sink.connected);
    cJSON *errors = cJSON_AddArrayToObject(sink, "errors");
    for (uint32_t i = 0; i < snapshot->sink.error_count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "code", snapshot->sink.errors[i].code);
        add_count(item, "count", snapshot->sink.errors[i].count);
        cJSON_AddItemToArray(errors, item);
    }
    cJSON *brokers = cJSON_AddArrayToObject(sink, "brokers");
    for (uint32_t i = 0; i < snapshot->sink.client.broker_count; i++) {
        const struct mr_sink_broker *broker = &snapshot->sink.client.brokers[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", broker->name);
        cJSON_AddBoolToObject(item, "up", broker->up);
        add_number(item, "rtt_avg", broker->rtt_avg);
        add_number(item, "rtt_p99", broker->rtt_p99);
        cJSON_AddItemToArray(brokers, item);
    }
}

/* ---- tables ---- */

static uint64_t events_of(const struct mr_table_count *table)
{
    uint64_t sum = 0;
    for (int i = 0; i < MR_OP_COUNT; i++) {
        sum += table->events[i];
    }
    return sum;
}

static int by_events(const void *a, const void *b)
{
    uint64_t first = events_of(a);
    uint64_t second = events_of(b);
    return first < second ? 1 : -(first > second);
}

static void add_tables(cJSON *root, const struct mr_monitor_snapshot *snapshot, uint32_t tables_max,
                       const char *part)
{
    add_count(root, "table_count", snapshot->table_count);
    uint32_t found = 0;
    cJSON *tables = cJSON_AddArrayToObject(root, "tables");
    if (snapshot->table_count > 0) { /* qsort takes no null, not even for nothing */
        qsort(snapshot->tables, snapshot->table_count, sizeof(*snapshot->tables), by_events);
    }
    for (uint32_t i = 0; i < snapshot->table_count; i++) {
        const struct mr_table_count *table = &snapshot->tables[i];
        if (strcasestr(table->table, part) == NULL || ++found > tables_max) {
            continue;
        }
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "table", table->table);
        for (int op = 0; op < MR_OP_COUNT; op++) {
            add_count(item, mr_op_name((enum mr_op)op), table->events[op]);
        }
        cJSON_AddItemToArray(tables, item);
    }
    add_count(root, "table_found", found);
}

/* ---- what happened, and the process ---- */

static void add_events(cJSON *root, const struct mr_monitor_snapshot *snapshot)
{
    static const char *const levels[] = {[MR_LOG_DEBUG] = "debug",
                                         [MR_LOG_INFO] = "info",
                                         [MR_LOG_WARN] = "warn",
                                         [MR_LOG_ERROR] = "error"};
    cJSON *events = cJSON_AddArrayToObject(root, "events");
    for (uint32_t i = 0; i < snapshot->event_count; i++) {
        const struct mr_monitor_event *event = &snapshot->events[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "time_ms", (double)event->time_ms);
        cJSON_AddStringToObject(item, "level", levels[event->level]);
        cJSON_AddStringToObject(item, "event", event->event);
        cJSON_AddStringToObject(item, "text", event->text);
        cJSON_AddStringToObject(item, "about", event->about);
        cJSON_AddItemToArray(events, item);
    }
}

static void add_process(cJSON *root, const struct mr_process *process)
{
    cJSON *object = cJSON_AddObjectToObject(root, "process");
    add_number(object, "start_time", process->start_time);
    add_number(object, "cpu_seconds", process->cpu_seconds);
    add_count(object, "resident_bytes", process->resident_bytes);
    add_count(object, "resident_peak_bytes", process->resident_peak_bytes);
    add_count(object, "open_fds", process->open_fds);
    add_count(object, "threads", process->threads);
}

static void add_links(cJSON *root, const struct mr_http *http)
{
    cJSON *links = cJSON_AddArrayToObject(root, "links");
    const struct mr_http_route *route;
    for (size_t i = 0; http != NULL && (route = mr_http_route_at(http, i)) != NULL; i++) {
        if (route->title != NULL) {
            cJSON *item = cJSON_CreateObject();
            cJSON_AddStringToObject(item, "path", route->path);
            cJSON_AddStringToObject(item, "title", route->title);
            cJSON_AddItemToArray(links, item);
        }
    }
}

static void add_configuration(cJSON *root, const struct mr_pages *pages)
{
    if (pages->lock != NULL) {
        pthread_mutex_lock(pages->lock);
    }
    cJSON_AddItemToObject(root, "configuration", cJSON_CreateRaw(pages->configuration));
    cJSON_AddItemToObject(root, "configuration_origins", cJSON_CreateRaw(pages->origins));
    cJSON_AddItemToObject(root, "configuration_units", cJSON_CreateRaw(pages->units));
    if (pages->lock != NULL) {
        pthread_mutex_unlock(pages->lock);
    }
}

char *mr_status_json(const struct mr_pages *pages, const struct mr_monitor_snapshot *snapshot,
                     uint32_t tables_max, const char *part, size_t *ret_len)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", MR_VERSION);
    cJSON_AddNumberToObject(root, "time_ms", (double)snapshot->time_ms);
    add_number(root, "uptime", (double)snapshot->uptime_ms / 1e3);
    cJSON_AddStringToObject(root, "state", mr_state_name(snapshot->state));
    cJSON_AddNumberToObject(root, "state_since_ms", (double)snapshot->state_since_ms);
    cJSON_AddBoolToObject(root, "ready", snapshot->ready);
    cJSON_AddStringToObject(root, "reason", snapshot->reason);
    cJSON *standstill = cJSON_AddObjectToObject(root, "standstill");
    cJSON_AddStringToObject(standstill, "cause", mr_cause_name(snapshot->standstill.cause));
    cJSON_AddStringToObject(standstill, "text", snapshot->standstill.text);
    add_number(standstill, "seconds", snapshot->standstill_seconds);
    cJSON_AddStringToObject(root, "bottleneck", mr_stage_name(snapshot->bottleneck));
    add_ends(root, pages, snapshot);
    add_positions(root, snapshot);
    add_rates(root, &snapshot->rates);
    add_in_flight(root, snapshot);
    add_totals(root, snapshot);
    add_copy(root, snapshot);
    add_incremental(root, &snapshot->pipeline.incremental);
    add_slot(root, pages, &snapshot->slot);
    add_tables(root, snapshot, tables_max, part);
    add_events(root, snapshot);
    add_process(root, &snapshot->process);
    add_links(root, pages->http);
    add_configuration(root, pages);
    cJSON_AddBoolToObject(root, "last_events", pages->last_events != NULL);
    if (pages->profiler_seconds != NULL) {
        add_number(root, "profiler_seconds", pages->profiler_seconds());
    }
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    MR_ASSERT(text != NULL);
    *ret_len = strlen(text);
    return text;
}
