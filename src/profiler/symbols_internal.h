/* Shared by objects.c (what this process is made of), unwind.c (stacks) and symbols.c (locations and names). All want
 * the lock of symbols.h. */
#ifndef MR_PROF_SYMBOLS_INTERNAL_H
#define MR_PROF_SYMBOLS_INTERNAL_H

#include <elfutils/libdwfl.h>

#include "profiler/symbols.h"

/* The objects of this process, found at the first call; NULL: they can't be. */
Dwfl *mr_objects_dwfl(void);

/* The object that holds the address, or NULL. */
Dwfl_Module *mr_objects_find(uint64_t address);

/* How libdw reads the thread and the stack of the sample that is unwound. */
extern const Dwfl_Thread_Callbacks mr_unwind_callbacks;

#endif
