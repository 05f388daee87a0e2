/* jemalloc's door: NULL unless it is linked or preloaded. See mallctl(3) of jemalloc. Any
 * thread. */
#pragma once

#include "base/base.h"

extern int mallctl(const char *name, void *old, size_t *old_len, void *wanted, size_t wanted_len)
    __attribute__((weak));
