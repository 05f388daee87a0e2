/* `millrace record`: writes what the server sends on a replication slot, and what is sent to it, to
 * a file.
 *
 * It confirms nothing, so that the slot's real reader misses nothing, and makes nothing that
 * outlives it: without a slot's name it reads a temporary slot of its own. Main thread. */
#pragma once

#include "stream/pg_source.h"

struct mr_record_options {
    const char *path;   /* must not exist yet */
    const char *slot;   /* one that exists and nobody reads; NULL: a temporary one */
    mr_lsn start;       /* as of START_REPLICATION; 0: where the slot stands */
    mr_lsn end;         /* stop between transactions once the stream is there; 0: never */
    uint32_t seconds;   /* stop after so long; 0: never */
    uint32_t megabytes; /* stop when the file is so large; 0: MR_RECORD_MEGABYTES */
    bool blank;         /* no values of rows and messages */
    bool blank_names;   /* nor names, nor prefixes of messages */
};

enum { MR_RECORD_MEGABYTES = 100 };

/* Of the source's options the connection and the publication are used. Ends in order once `stop_fd`
 * is readable. Prints to `to` where it begins and how it ended. */
mr_status mr_record_stream(const struct mr_pg_source_options *source,
                           const struct mr_record_options *options, int stop_fd, FILE *to,
                           struct mr_error *ret_error);
