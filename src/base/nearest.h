/* What somebody may have meant who typed a name that is not known. Values only. */
#pragma once

#include "base/base.h"

enum { MR_NEAREST_FAR = 64 }; /* also of names that are longer than this */

/* How many letters are added, left out, changed or swapped with their neighbour between two
 * names. */
uint32_t mr_edit_distance(const char *a, const char *b);

/* The most of them that is a slip of the pen: one in three letters, three at most. */
uint32_t mr_slip_max(const char *typed);

/* The one of `names` that `typed` is a slip of; NULL: none. `names` ends with NULL. */
const char *mr_nearest(const char *typed, const char *const *names);
