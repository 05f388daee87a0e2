/* The door to the profiler: all that the daemon calls of it, from the configuration. A build without the profiler links
 * profiling_absent.c in place of the rest of this folder. */
#pragma once

#include "config/config.h"
#include "control/http.h"

/* What the start would refuse; `millrace check` asks too. Changes nothing. */
mr_status mr_profiling_check(const struct mr_config *config, struct mr_error *ret_error);

/* Starts what the configuration asks for and adds the routes, before the server's start. `http` may be NULL. MR_ERR_CONFIG:
 * something is asked for that can't be. Main thread, before others start. */
mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_error *ret_error);

/* Writes what is being collected, and ends. After the server's end. Without a begin: no effect. */
void mr_profiling_end(void);

/* CPU time that sampling has taken of all threads, the profiler's own included; seconds. Any thread. */
double mr_profiling_seconds(void);

/* The profiler's part of /metrics. Any thread. */
void mr_profiling_metrics(struct mr_buffer *out);
