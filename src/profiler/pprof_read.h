/* Reads a pprof file back, ours or another's, as a flame graph. Any thread; needs no profiler and no symbols. */
#ifndef MR_PROF_PPROF_READ_H
#define MR_PROF_PPROF_READ_H

#include "base/status.h"
#include "profiler/draw/flame.h"

struct mr_pprof_about {
    char value[32]; /* what was added up: "cpu", "inuse_space" */
    char unit[32];
    int64_t duration_ns;
    uint64_t samples; /* entries of the file */
};

/* Adds the file's default value (else its last) to one side of `flame`: the label "thread" at the root, frames as
 * mr_profile_frame_name writes them. The file may be gzip'd. MR_ERR_USAGE: it is no pprof. */
mr_status mr_pprof_read(const void *bytes, size_t len, struct mr_flame *flame, mr_flame_side side,
                        struct mr_pprof_about *ret, struct mr_error *ret_error);

#endif
