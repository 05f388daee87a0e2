/* Sends the continuous profiler's profiles to a Pyroscope-compatible server, from a thread of its own: a server
 * that is slow or away costs neither samples nor the flow anything. One profile waits at most; a
 * newer one takes its place. Inside prof/ only. */
#ifndef MR_PROF_PUSH_H
#define MR_PROF_PUSH_H

#include "base/status.h"
#include "prof/profile.h"

struct mr_push_counts {
    uint64_t sent, failed;
};

/* MR_ERR_CONFIG: `url` is none, or holds a password. `url` and `name` are the caller's and stay. Once. */
mr_status mr_push_start(const char *url, const char *name, struct mr_error *ret_error);

/* Hands over a profile's gzip'd pprof, which is freed here. Returns at once. The profiler's thread; without a
 * start it is only freed. */
void mr_push(const struct mr_profile *profile, uint8_t *packed, size_t len);

/* Ends the thread; what is under way has a moment left. Without a start: no effect. */
void mr_push_stop(void);

/* Any thread. */
struct mr_push_counts mr_push_counts(void);

#endif
