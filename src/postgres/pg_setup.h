/* Publication, slot and server: what must be true before the stream starts, verified or made.
 *
 * The rules are in pg_rules.c. The start of the daemon stops at the first that is broken and makes what is missing;
 * `millrace check` lists every finding, looks at more, and changes nothing.
 */
#ifndef MR_POSTGRES_PG_SETUP_H
#define MR_POSTGRES_PG_SETUP_H

#include "base/finding.h"
#include "postgres/pg_options.h"

/* Makes or verifies what START_REPLICATION needs, in this order: server version, wal_level, tables,
 * publication (made before the slot, else the slot's first changes can't see it), slot. `conn` is a
 * replication connection. `is_known`: it is known where the stream goes on; else a slot that exists is adopted, which
 * `ret_adopted` says, or refused. The first thing that is wrong is the answer. */
mr_status mr_pg_setup(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      bool is_known, int stop_fd, bool *ret_adopted, struct mr_error *ret_error);

/* Looks at everything that could keep the stream from starting or from being complete and reports each
 * finding; connects by itself (ordinary and replication connection) and changes nothing. */
void mr_pg_check(const struct mr_pg_source_options *options, mr_finding_fn report, void *context);

#endif
