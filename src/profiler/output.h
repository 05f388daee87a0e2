/* Profiles as bytes for files and answers, with what a reader of them wants to know beside. Any thread. */
#ifndef MR_PROF_OUTPUT_H
#define MR_PROF_OUTPUT_H

#include "profiler/profile.h"

struct mr_flame_drawing;

/* gzip'd pprof. The caller frees it. */
uint8_t *mr_output_pprof(const struct mr_profile *profile, size_t *ret_len);

/* Any bytes, gzip'd. The caller frees them. */
uint8_t *mr_output_gzip(const uint8_t *bytes, size_t len, size_t *ret_len);

/* SVG of one value. The subtitle and unit of `drawing` are filled in here. The caller frees it. */
char *mr_output_flamegraph(const struct mr_profile *profile, uint32_t value,
                           enum mr_profile_root root, const struct mr_flame_drawing *drawing,
                           size_t *ret_len);

/* Lines of "root;outer;inner 12". The caller frees it. */
char *mr_output_folded(const struct mr_profile *profile, uint32_t value, enum mr_profile_root root,
                       size_t *ret_len);

#endif
