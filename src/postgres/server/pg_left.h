/* What a slot that gives way to a new one takes with it (docs/snapshots.md). */
#pragma once

#include "postgres/catalog/pg_options.h"

/* What is known of what was delivered: all that ends at or before `end`, of which `last` was the
 * last with rows. All zero: nothing is known. */
struct mr_pg_delivered {
    mr_lsn end;
    struct mr_commit last;
};

/* Whether options->slot, which has confirmed all before `confirmed` and which nobody reads, may
 * hold a change of a table that is streamed, before `until`, that was not delivered. True where
 * that can't be told. A slot that is behind what was delivered is moved on. */
bool mr_pg_slot_holds_changes(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                              const struct mr_pg_delivered *delivered, mr_lsn confirmed,
                              mr_lsn until);
