/* CPU time by table, of as many tables as there is room for; what the rest use goes to the last, "other", so that the
 * times add up. One thread at a time. */
#pragma once

#include "profiler/sampler.h"

enum { MR_TABLE_TIMES_MAX = 64 };

struct mr_table_times {
    struct {
        char name[MR_SAMPLE_TABLE_MAX];
        uint64_t cpu_ns;
    } tables[MR_TABLE_TIMES_MAX];
    uint32_t count;
};

void mr_table_times_add(struct mr_table_times *times, const char *name, uint64_t cpu_ns);
