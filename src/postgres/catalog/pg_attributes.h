/* Which columns a table may have had at a place of the stream, by the numbers that they keep
 * (pg_attribute.attnum).
 *
 * Names don't tell: one column may take another's. The stream has names alone, in the order of the
 * numbers (logicalrep_write_attrs in replication/logical/proto.c). The catalog tells of now, rows
 * are of then, and each row of the catalog says who wrote it (xmin). What was written by an older
 * transaction was so then, as for keys (pg_keys.h); of what was written since, or by the
 * transaction itself, the number alone is known. Source thread. */
#pragma once

#include "event/event.h"
#include "postgres/catalog/pg_captured.h"
#include "postgres/conn/pg_conn.h"

/* All zero is one that knows nothing. */
struct mr_pg_attributes {
    uint32_t oid;               /* of the table */
    mr_lsn lsn;                 /* of the transaction's commit */
    uint32_t count, room;       /* 0: the table is gone */
    struct mr_attribute *items; /* by their numbers, with names of their own */
};

/* Reads those of one table for that transaction, whose end the connection sees. */
mr_status mr_pg_attributes_ask(struct mr_pg_attributes *attributes, struct mr_pg_conn *conn,
                               uint32_t oid, const struct mr_transaction *transaction,
                               struct mr_error *ret_error);

/* Tells `options->columns_at_start` of captured tables that rules for columns name (of a million
 * columns at most), but for those of which something was written since: what the stream has of them
 * first is not known. */
mr_status mr_pg_attributes_tell(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                                const struct mr_pg_captured *captured, struct mr_error *ret_error);

/* Tells of the tables of these numbers, and of those of `parts` that are no partitions now; each
 * number has a comma before it. */
mr_status mr_pg_attributes_tell_parts(struct mr_pg_conn *conn, const char *oids, const char *parts,
                                      struct mr_kin *kin,
                                      const struct mr_columns_listener *listener,
                                      struct mr_error *ret_error);

/* Tells of the tables that are named so ("schema.table") now. */
mr_status mr_pg_attributes_tell_named(struct mr_pg_conn *conn, char *const *names, uint32_t count,
                                      const struct mr_columns_listener *listener,
                                      struct mr_error *ret_error);

void mr_pg_attributes_done(struct mr_pg_attributes *attributes);
