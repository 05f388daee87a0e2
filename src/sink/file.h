/* The sinks without a server: a file or standard output, and one that drops what it gets. */
#pragma once

#include "ports/sink.h"

/* JSON lines, one a record: `{"topic":…,"key":…,"value":…}`. */
struct mr_file_options {
    const char *path; /* NULL or "-": standard output */
    bool sync;        /* fdatasync before records count as safe */
};

struct mr_sink *mr_file_sink_new(const struct mr_file_options *options);

/* Drops what it gets: a benchmark of everything before the sink. */
struct mr_sink *mr_discard_sink_new(void);
