/* What a check found out, reported one by one. */
#ifndef MR_BASE_FINDING_H
#define MR_BASE_FINDING_H

#include "base/status.h"

enum mr_finding_level { MR_FINDING_OK, MR_FINDING_WARNING, MR_FINDING_ERROR };

/* Gets one finding of a check: what was looked at ("publication millrace"), what is true of it, and how
 * to mend it (NULL when there is nothing to mend). `status` counts for errors. */
typedef void (*mr_finding_fn)(void *context, enum mr_finding_level level, mr_status status,
                              const char *subject, const char *finding, const char *remedy);

#endif
