#include "control/pages.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "control/live_page.h"

enum {
    STATUS_TABLES_DEFAULT = 500,
    STATUS_TABLES_MAX = 10000,
};

/* Above pipeline.status_interval's maximum, which is how long a thread may rest in peace. */
#define STUCK_NS (INT64_C(90) * 1000000000)

#define JSON_TYPE "application/json"

static void metrics(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    size_t len;
    char *text = mr_monitor_metrics(pages->monitor, &len);
    mr_http_take(request, "text/plain; version=0.0.4; charset=utf-8", text, len);
}

const char *mr_stuck_thread(const struct mr_pipeline_stats *stats, int64_t now_ns)
{
    /* Without a connection a thread may be in a long attempt to get one; that is readiness'
     * matter. */
    if (stats->source.connected && now_ns - stats->source.turn_ns > STUCK_NS) {
        return "source";
    }
    if (stats->sink.connected && now_ns - stats->sink.turn_ns > STUCK_NS) {
        return "sink";
    }
    return NULL;
}

static void healthz(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    struct mr_monitor_snapshot *snapshot = mr_monitor_snapshot_new(pages->monitor);
    const char *stuck = mr_stuck_thread(&snapshot->pipeline, mr_monotonic_ns());
    mr_monitor_snapshot_free(snapshot);
    if (stuck == NULL) {
        fprintf(mr_http_body(request, JSON_TYPE), "{\"alive\":true}\n");
    } else {
        mr_http_status(request, 503);
        fprintf(mr_http_body(request, JSON_TYPE), "{\"alive\":false,\"stuck\":\"%s\"}\n", stuck);
    }
}

static void readyz(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    struct mr_monitor_snapshot *snapshot = mr_monitor_snapshot_new(pages->monitor);
    FILE *out = mr_http_body(request, JSON_TYPE);
    mr_http_status(request, snapshot->ready ? 200 : 503);
    fprintf(out, "{\"ready\":%s,\"state\":\"%s\",\"cause\":\"%s\",\"reason\":",
            snapshot->ready ? "true" : "false", mr_state_name(snapshot->state),
            mr_cause_name(snapshot->standstill.cause));
    mr_http_print_string(out, snapshot->reason, strlen(snapshot->reason));
    fprintf(out, ",\"since_ms\":%" PRId64 "}\n", snapshot->state_since_ms);
    mr_monitor_snapshot_free(snapshot);
}

static void status(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    int64_t tables_max;
    if (!mr_http_number(request, "tables", STATUS_TABLES_DEFAULT, 0, STATUS_TABLES_MAX,
                        &tables_max)) {
        return;
    }
    struct mr_monitor_snapshot *snapshot = mr_monitor_snapshot_new(pages->monitor);
    const char *part = mr_http_parameter(request, "filter");
    mr_http_json(request,
                 mr_status_json(pages, snapshot, (uint32_t)tables_max, part == NULL ? "" : part));
    mr_monitor_snapshot_free(snapshot);
}

static void print_number(FILE *out, double value)
{
    if (isfinite(value)) {
        fprintf(out, ",%.9g", value);
    } else {
        fputs(",null", out);
    }
}

static void print_sample(FILE *out, const struct mr_monitor_sample *sample)
{
    fprintf(out, "[%" PRId64 ",\"%s\",\"%s\"", sample->time_ms,
            mr_state_name((enum mr_state)sample->state),
            mr_stage_name((enum mr_stage)sample->stage));
#define PRINT(type, column) print_number(out, (double)sample->column);
    MR_MONITOR_COLUMNS(PRINT)
#undef PRINT
    fputc(']', out);
}

static void history(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    int64_t after_ms;
    if (!mr_http_number(request, "after", 0, 0, INT64_MAX, &after_ms)) {
        return;
    }
    MR_FREED struct mr_monitor_sample *samples =
        MR_NEW_ARRAY(struct mr_monitor_sample, MR_MONITOR_SAMPLES);
    uint32_t count = mr_monitor_history(pages->monitor, after_ms, samples, MR_MONITOR_SAMPLES);
    FILE *out = mr_http_body(request, JSON_TYPE);
    fputs("{\"columns\":[\"time_ms\",\"state\",\"stage\"", out);
#define PRINT(type, column) fputs(",\"" #column "\"", out);
    MR_MONITOR_COLUMNS(PRINT)
#undef PRINT
    fputs("],\"rows\":[", out);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : ",\n", out);
        print_sample(out, &samples[i]);
    }
    fputs("]}\n", out);
}

static void last_event(void *context, struct mr_http_request *request)
{
    const struct mr_pages *pages = context;
    const char *table = mr_http_parameter(request, "table");
    MR_FREED struct mr_last_event *event = MR_NEW(struct mr_last_event);
    if (table == NULL || !mr_table_counts_last(pages->last_events, table, event)) {
        mr_http_status(request, 404);
        fprintf(mr_http_body(request, JSON_TYPE), "{\"event\":null}\n");
    } else {
        FILE *out = mr_http_body(request, JSON_TYPE);
        fprintf(out, "{\"event\":{\"time_ms\":%" PRId64 ",\"bytes\":%zu,\"key\":",
                event->time_ns / 1000000, event->value_len);
        mr_http_print_string(out, (const char *)event->key, event->key_kept);
        fputs(",\"value\":", out);
        mr_http_print_string(out, (const char *)event->value, event->value_kept);
        fprintf(out, ",\"cut\":%s}}\n",
                event->key_kept < event->key_len || event->value_kept < event->value_len ? "true"
                                                                                         : "false");
    }
}

/* A file of the live page, which is in the program. */
struct page_file {
    const char *path, *type;
    mr_slice (*bytes)(void);
};

static void answer_file(void *context, struct mr_http_request *request)
{
    const struct page_file *file = context;
    mr_slice bytes = file->bytes();
    /* Nothing from elsewhere, nothing inline, in no frame. */
    mr_http_header(
        request, "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    fwrite(bytes.data, 1, bytes.len, mr_http_body(request, file->type));
}

void mr_pages_add(struct mr_http *http, const struct mr_pages *pages)
{
    static const struct mr_http_route routes[] = {
        {.path = "/metrics", .title = "Metrics", .handler = metrics},
        {.path = "/status", .title = "Status", .handler = status},
        {.path = "/api/history", .handler = history},
        {.path = "/healthz", .title = "Alive", .handler = healthz, .open = true},
        {.path = "/readyz", .title = "Ready", .handler = readyz, .open = true},
        {.path = "/api/last-event", .handler = last_event},
    };
    static const struct page_file files[] = {
        {"/", "text/html; charset=utf-8", mr_live_page_html},
        {"/live_page.css", "text/css; charset=utf-8", mr_live_page_css},
        {"/live_page.js", "text/javascript; charset=utf-8", mr_live_page_js},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(files); i++) {
        mr_http_add(http, &(struct mr_http_route){.path = files[i].path,
                                                  .handler = answer_file,
                                                  .context = (void *)(uintptr_t)&files[i]});
    }
    size_t count = MR_ARRAY_LEN(routes) - (pages->last_events == NULL);
    mr_http_add_all(http, routes, count, (void *)(uintptr_t)pages);
}
