/* Heap profiles from jemalloc's own sampling, which heap_conf.c allows at the start and these
 * functions switch. Any thread. */
#pragma once

#include "profiler/profile.h"

/* MR_OK: it can be asked. MR_ERR_CONFIG: no, and why. */
mr_status mr_heap_available(struct mr_error *ret_error);

/* Whether allocations are sampled now. */
bool mr_heap_is_active(void);
mr_status mr_heap_set_active(bool active, struct mr_error *ret_error);

/* Forgets all samples. `lg_sample` is the new mean distance of samples, 2 to that power in bytes;
 * 0: as it is. */
mr_status mr_heap_reset(uint32_t lg_sample, struct mr_error *ret_error);

/* What is allocated now and what was since sampling began, un-biased; the caller's. */
mr_status mr_heap_profile(struct mr_profile *ret, struct mr_error *ret_error);

/* The same from a dump. */
mr_status mr_heap_parse(FILE *from, struct mr_profile *ret, struct mr_error *ret_error);

/* The calling thread's name in heap profiles. */
void mr_heap_name_thread(const char *name);
