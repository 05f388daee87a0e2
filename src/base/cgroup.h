/* Cgroups, version 2, of processes that this one starts: their memory and their share of the processors. Any thread. */
#pragma once

#include "base/base.h"

/* The folder of a cgroup that was delegated to this process, which goes into one below it, "agent"; the caller frees it. NULL: there is
 * none, or it can't limit memory and processors. */
char *mr_cgroup_take(void);

/* Makes the one of that path, or has it changed. 0: without a limit, an equal share. False: it can't be limited so. */
bool mr_cgroup_make(const char *path, uint64_t memory_max, uint64_t cpu_weight);

/* With what is left in it: it is killed. */
void mr_cgroup_remove(const char *path);
