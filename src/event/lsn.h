/* Reading an LSN as PostgreSQL writes it ("16/B374D848"). Any thread. */
#ifndef MR_EVENT_LSN_H
#define MR_EVENT_LSN_H

#include "event/event.h"

/* Takes two hexadecimal numbers of 1 to 8 digits with a slash between them, and nothing else: no blank, no sign
 * (pg_lsn_in_internal in src/backend/utils/adt/pg_lsn.c). `ret_rest` gets what stands after them; where it is NULL,
 * nothing may. False, with the results untouched, for any other text and for NULL. */
bool mr_lsn_parse(const char *text, mr_lsn *ret_lsn, const char **ret_rest);

#endif
