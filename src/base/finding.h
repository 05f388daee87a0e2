/* What a check found out, reported one by one. */
#pragma once

#include "base/base.h"

enum mr_finding_level { MR_FINDING_OK, MR_FINDING_WARNING, MR_FINDING_ERROR };

/* Gets one finding: what was looked at, what is true of it, how to mend it (NULL: nothing to mend).
 * `status` counts for errors. */
typedef void (*mr_finding_fn)(void *context, enum mr_finding_level level, mr_status status,
                              const char *subject, const char *finding, const char *remedy);
