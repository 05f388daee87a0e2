/* The profiler over HTTP: /pprof/… for people, /debug/pprof/… for `go tool pprof` and what scrapes like it.
 *
 * Every GET is a reading; POST switches heap profiling. A CPU profile runs in the handler's own
 * thread for as long as it was asked for, one at a time, and ends when the client leaves. */
#pragma once

#include "control/http.h"

/* Adds the routes; before the server's start. `options` are the server's: the configuration has made sure that nobody
 * reaches it from another machine without a password. `name` (the title of flame graphs) outlives the server.
 * `has_last_minute`: the profiler runs when nobody asks, and the live page shows what it sees. */
void mr_pprof_add(struct mr_http *http, const struct mr_http_options *options, const char *name,
                  bool has_last_minute);
