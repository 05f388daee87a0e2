/* Copies of existing rows while the stream runs, over HTTP:
 *
 *   POST /api/snapshot
 *          {"type":"start","tables":["public.orders"],"where":"id > 5","key":"seq"}, or "stop"
 *          (tables, or all), "pause", "resume"; answers with the numbers of what was asked for.
 *          "repair": rows that a topic has wrong, by their keys (copy/chunk_keys.h)
 *   GET /api/snapshot/outcome
 *          how far all are */
#pragma once

#include "control/http.h"
#include "copy/copies.h"
#include "flow/pipeline.h"

/* The caller's; outlives the server. */
struct mr_snapshot_routes {
    struct mr_pipeline *pipeline;
    struct mr_copies *copies;
};

void mr_snapshot_routes_add(struct mr_http *http, struct mr_snapshot_routes *context);
