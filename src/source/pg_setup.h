/* Publication, slot and server: what must be true before the stream starts, verified or made.
 *
 * The same rules serve the start of the daemon, which stops at the first failure, and `millrace check`,
 * which lists every finding and changes nothing.
 */
#ifndef MR_SOURCE_PG_SETUP_H
#define MR_SOURCE_PG_SETUP_H

#include "base/finding.h"
#include "source/pg_source.h"

/* Makes or verifies what START_REPLICATION needs, in this order: server version, wal_level, tables,
 * publication (made before the slot, else the slot's first changes can't see it), slot. `conn` is a
 * replication connection. `is_known`: it is known where the stream goes on; else a slot that exists is adopted, which
 * `ret_adopted` says, or refused. The first thing that is wrong is the answer. */
mr_status mr_pg_setup(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      bool is_known, int stop_fd, bool *ret_adopted, struct mr_error *ret_error);

/* Primary keys by table, as the catalog has them. */
struct mr_table_keys {
    uint32_t oid;
    uint32_t count;
    char **names; /* in key order */
    bool asked;   /* for a version of the relation; the next version may have another key */
};

struct mr_key_list {
    struct mr_table_keys *tables;
    uint32_t count;
};

/* Reads the keys of all tables of the publication, or of the one table with that OID if `oid` is not 0, and
 * adds them to the list. */
mr_status mr_pg_read_keys(struct mr_pg_conn *conn, int stop_fd, const char *publication,
                          uint32_t oid, struct mr_key_list *list, struct mr_error *ret_error);
void mr_key_list_done(struct mr_key_list *list);

/* The keys of a table in the list, or NULL. */
struct mr_table_keys *mr_key_list_find(struct mr_key_list *list, uint32_t oid);

/* Takes a table out of the list. */
void mr_key_list_forget(struct mr_key_list *list, struct mr_table_keys *table);

/* Looks at everything that could keep the stream from starting or from being complete and reports each
 * finding; connects by itself (ordinary and replication connection) and changes nothing. */
void mr_pg_check(const struct mr_pg_source_options *options, mr_finding_fn report, void *context);

#endif
