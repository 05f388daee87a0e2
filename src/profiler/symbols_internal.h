/* Shared by objects.c (what this process is made of, stacks) and symbols.c (locations and names). All want the lock of
 * symbols.h. */
#pragma once

#include <elfutils/libdwfl.h>

#include "profiler/symbols.h"

/* The object that holds the address, or NULL. Finds the objects of this process at the first call. */
Dwfl_Module *mr_objects_find(uint64_t address);
