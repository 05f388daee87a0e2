/* Reading an LSN as PostgreSQL writes it ("16/B374D848"), and what places of the server's WAL are
 * called here. Any thread. */
#pragma once

#include <stdatomic.h>

#include "event/event.h"

struct cJSON;

/* Takes two hexadecimal numbers of 1 to 8 digits with a slash between them, and nothing else: no
 * blank, no sign (pg_lsn_in_internal in src/backend/utils/adt/pg_lsn.c). `ret_rest` gets what
 * stands after them; where it is NULL, nothing may. False, with the results untouched, for any
 * other text and for NULL. */
bool mr_lsn_parse(const char *text, mr_lsn *ret_lsn, const char **ret_rest);

/* Adds one to an object, as PostgreSQL writes it. */
void mr_lsn_add(struct cJSON *object, const char *name, mr_lsn lsn);

/* A stream that has moved to a cluster whose WAL lies below what was delivered goes on above it:
 * every place of the new cluster is here called by its LSN plus a shift, which the stored position
 * keeps (docs/upgrading-postgresql.md, "Positions"). Those who read the server's answers add it and
 * those who write to the server take it off (src/postgres, src/stream); nobody else knows. One for
 * the process, which has one stream; set before the server is first asked where it is. 0: nothing
 * is known, and stays 0. */
extern _Atomic mr_lsn mr_lsn_shift;

static inline mr_lsn mr_lsn_of_server(uint64_t place)
{
    return place == 0 ? 0 : place + atomic_load_explicit(&mr_lsn_shift, memory_order_relaxed);
}

static inline uint64_t mr_lsn_at_server(mr_lsn lsn)
{
    mr_lsn shift = atomic_load_explicit(&mr_lsn_shift, memory_order_relaxed);
    return lsn > shift ? lsn - shift : 0;
}
