/* jemalloc's door: NULL unless it is linked or preloaded. See mallctl(3) of jemalloc. Any thread. */
#ifndef MR_BASE_JEMALLOC_H
#define MR_BASE_JEMALLOC_H

#include <stddef.h>

extern int mallctl(const char *name, void *old, size_t *old_len, void *wanted, size_t wanted_len)
    __attribute__((weak));

#endif
