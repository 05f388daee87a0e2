#include "profiler/table_time.h"

void mr_table_times_add(struct mr_table_times *times, const char *name, uint64_t cpu_ns)
{
    uint32_t i = 0;
    while (i < times->count && strcmp(times->tables[i].name, name) != 0) {
        i++;
    }
    if (i == MR_TABLE_TIMES_MAX) {
        i--;
    } else if (i == times->count) {
        snprintf(times->tables[i].name, sizeof(times->tables[i].name), "%s",
                 i == MR_TABLE_TIMES_MAX - 1 ? "other" : name);
        times->count++;
    }
    times->tables[i].cpu_ns += cpu_ns;
}
