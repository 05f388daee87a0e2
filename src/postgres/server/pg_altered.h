/* Which memberships of the publication millrace itself sets anew (publication.alter): dropped and
 * added in one transaction, so that nothing is missing, with a new number in the catalog. One list
 * for the process, which has one stream. Any thread. */
#pragma once

#include "base/base.h"

/* Before it is done: the table has the number `oid` now. */
void mr_pg_altered_note(const char *schema, const char *table, uint32_t oid);

/* It is not done. */
void mr_pg_altered_forget(void);

/* The number that millrace replaced, once; 0: none. */
uint32_t mr_pg_altered_take(const char *schema, const char *table);
