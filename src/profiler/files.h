/* Files of profiles: written whole, into a folder to which others may write; and those of the
 * continuous profiler, a profile and a flame graph for each interval, of which the oldest are
 * removed. */
#pragma once

#include "profiler/profile.h"

struct mr_profiler_options;

/* Writes a file under another name and renames it: a reader sees all of it or nothing. Any
 * thread. */
mr_status mr_file_write_whole(const char *folder, const char *name, const void *bytes, size_t len,
                              struct mr_error *ret_error);

/* Whether the folder can be written, or made ("" is fine); makes nothing. MR_ERR_CONFIG: it can't.
 * Any thread. */
mr_status mr_file_check_folder(const char *folder, struct mr_error *ret_error);

/* Makes the folder if it is missing, and removes what a killed process left half written in it.
 * MR_ERR_CONFIG: it can't be made or written. */
mr_status mr_files_begin(const char *folder, struct mr_error *ret_error);

/* Writes an interval's profile-<time>.pb.gz and flamegraph-<time>.svg, and removes old ones; logs
 * what goes wrong, and answers how the writing went. The profiler's thread. */
mr_status mr_files_add(const struct mr_profiler_options *options, const struct mr_profile *profile);
