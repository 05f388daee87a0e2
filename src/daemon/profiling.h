/* The profiler in the daemon: started from the configuration, its routes, its metrics. A build
 * without the profiler has profiling_absent.c in place of profiling.c and profile_routes.c. */
#pragma once

#include "control/http.h"
#include "daemon/daemon.h"

/* What the start would refuse; `millrace check` asks too. Changes nothing. */
mr_status mr_profiling_check(const struct mr_config *config, struct mr_error *ret_error);

/* Starts what the configuration asks for and adds the routes, before the server's start. `http` may
 * be NULL. MR_ERR_CONFIG: something is asked for that can't be. Main thread, before others
 * start. */
mr_status mr_profiling_begin(const struct mr_config *config, struct mr_http *http,
                             struct mr_error *ret_error);

/* Writes what is being collected, and ends. After the server's end. Without a begin: no effect. */
void mr_profiling_end(void);

/* CPU time that sampling has taken of all threads, the profiler's own included; seconds. Any
 * thread. */
double mr_profiling_seconds(void);

/* The profiler's part of /metrics. Any thread. */
void mr_profiling_metrics(struct mr_buffer *out);

/* Adds the routes of profiles; the configuration has made sure that nobody reaches them from
 * another machine without a password. `has_last_minute`: the profiler runs when nobody
 * asks, and the live page shows what it sees. profile_routes.c. */
void mr_pprof_add(struct mr_http *http, const struct mr_http_options *options,
                  bool has_last_minute);
