/* The continuous profiler's files: one profile and one flame graph an interval, written whole, and the
 * oldest removed when there are too many. Inside profiler/ only; the profiler's thread. */
#ifndef MR_PROF_CONTINUOUS_H
#define MR_PROF_CONTINUOUS_H

#include "profiler/profiler.h"

/* Makes the folder if it is missing. MR_ERR_CONFIG: it can't be written. */
mr_status mr_continuous_check(const struct mr_profiler_options *options,
                              struct mr_error *ret_error);

/* An interval is over: writes profile-<time>.pb.gz and flamegraph-<time>.svg and applies the limits; logs what goes
 * wrong. Answers how the writing went. */
mr_status mr_continuous_end(const struct mr_profiler_options *options,
                            const struct mr_profile *profile);

#endif
