/* What millrace serves by itself: metrics, health, status, history, and the live page. */
#pragma once

#include <cjson/cJSON.h>

#include "control/http.h"
#include "control/monitor.h"

/* All strings are the caller's and outlive the server. */
struct mr_pages {
    struct mr_monitor *monitor;
    struct mr_http *http;
    const char *slot;
    const char *publication;
    const char *sink;                                /* "kafka" */
    void (*show_more)(void *context, cJSON *status); /* adds what others know */
    void *context;
    const struct mr_table_counts *last_events; /* NULL: events are not shown */
    double (*profiler_seconds)(
        void); /* CPU time that the profiler has taken; NULL: there is none */
};

/* Adds the routes. `pages` stays the caller's and outlives the server. */
void mr_pages_add(struct mr_http *http, const struct mr_pages *pages);

/* "source" or "sink" when that thread is connected and its loop has not come round for 90 seconds,
 * else NULL. */
const char *mr_stuck_thread(const struct mr_pipeline_stats *stats, int64_t now_ns);

/* The object of /status, with the `tables_max` busiest of the tables whose name contains `part`
 * (ASCII letters of either case). */
cJSON *mr_status_json(const struct mr_pages *pages, const struct mr_monitor_snapshot *snapshot,
                      uint32_t tables_max, const char *part);
