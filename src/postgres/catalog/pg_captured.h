/* Which relations of the stream are wanted: the configured tables, by the name they had, and their partitions.
 *
 * A publication may send more than `tables` says. A name is known from the stream itself; that a table is a partition only the
 * catalog knows, so the OIDs are read when the stream is opened. When one comes that is not among them, or that may have become
 * a partition since, the catalog is asked for that one, and all are read again only if it is a partition.
 * Source thread.
 */
#pragma once

#include "postgres/catalog/pg_keys.h"
#include "postgres/catalog/pg_options.h"

enum mr_pg_capture {
    MR_PG_UNLISTED,   /* published, and that is all */
    MR_PG_PARTITION,  /* of a configured table */
    MR_PG_CONFIGURED, /* had the name of a configured table when this was read */
    MR_PG_UNKNOWN,    /* was not there */
};

struct mr_captured_table {
    uint32_t oid;
    enum mr_pg_capture kind;
};

struct mr_pg_captured {
    struct mr_by_oid tables;      /* all that is published */
    struct mr_pg_horizon horizon; /* before they were read */
};

/* Reads all of them; the horizon was read before. What was a partition and still is published stays one. */
mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options,
                              const struct mr_pg_horizon *horizon, struct mr_error *ret_error);

/* All of them, as numbers with commas between. */
void mr_pg_captured_add_oids(const struct mr_pg_captured *captured, struct mr_text *text);
void mr_pg_captured_done(struct mr_pg_captured *captured);

/* True when the list says nothing certain of the table, which the stream has just described for that transaction: it was not
 * there, or was no partition and may have become one since. */
bool mr_pg_captured_is_stale(const struct mr_pg_captured *captured, uint32_t oid,
                             const struct mr_transaction *transaction);

/* Makes it say so, once questions see the transaction (mr_pg_sees_end). */
mr_status mr_pg_captured_ask(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options, uint32_t oid,
                             struct mr_error *ret_error);

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid);
