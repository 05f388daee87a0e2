/* The sinks without a server: a file or standard output, and one that drops what it gets. */
#pragma once

#include "ports/sink.h"

/* JSON lines, one a record: `{"topic":…,"key":…,"value":…}`. `path` (the caller's, who keeps it):
 * NULL or "-" is standard output. */
struct mr_sink *mr_file_sink_new(const char *path);

/* Drops what it gets: a benchmark of everything before the sink. */
struct mr_sink *mr_discard_sink_new(void);
