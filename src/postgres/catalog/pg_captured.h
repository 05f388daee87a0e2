/* Which relations of the stream are wanted: the configured tables, by the name they had, and their
 * partitions.
 *
 * A publication may send more than `tables` says. A name is known from the stream itself; that a
 * table is a partition only the catalog knows, so the OIDs are read when the stream is opened. When
 * one comes that is not among them, or that may have become a partition since, the catalog is asked
 * for that one, and all are read again only if it is a partition.
 *
 * The catalog tells of now, and rows are of then. So what was a partition at an earlier look counts
 * as one until it is seen to be none; and of what never was seen as one, but is gone, or may have
 * been detached since, the columns decide: those of a partition are its table's. ATTACH and DETACH
 * write the description of each column again (MergeAttributesIntoExisting, RemoveInheritance in
 * commands/tablecmds.c). So a column that is as it was made, or was written by a transaction that
 * had ended before what the slot still holds (catalog_xmin), proves that there was neither since.
 * Source thread. */
#pragma once

#include "postgres/catalog/pg_keys.h"
#include "postgres/catalog/pg_options.h"

enum mr_pg_capture {
    MR_PG_UNLISTED,   /* published, and that is all */
    MR_PG_PARTITION,  /* of a configured table */
    MR_PG_CONFIGURED, /* had the name of a configured table when this was read */
    MR_PG_FORMER,     /* was a partition of one */
    MR_PG_UNKNOWN,    /* was not there */
};

struct mr_captured_table {
    uint32_t oid;
    enum mr_pg_capture kind;
    bool is_alone;   /* the publication sends it whether it is a partition or not */
    bool is_settled; /* what is not a partition now was none before, as far back as the slot goes */
    uint32_t written; /* who wrote the description of its first column last; 0: not looked at */
    uint32_t root; /* of a partition, the configured table; 0: one of several, or it is not known */
    mr_lsn until; /* of a former one: what commits there or later is no partition's; 0: not asked */
};

/* The name that it had when it was configured. */
struct mr_captured_root {
    uint32_t oid;
    char *schema, *table;
};

struct mr_pg_captured {
    struct mr_by_oid tables;      /* all that is published */
    struct mr_by_oid roots;       /* partitioned tables of ours, now or before */
    struct mr_pg_horizon horizon; /* before they were read */
};

/* Reads all of them; the horizon was read before. What was a partition before, and is none now, is
 * a former one. */
mr_status mr_pg_captured_read(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                              const struct mr_pg_source_options *options,
                              const struct mr_pg_horizon *horizon, struct mr_error *ret_error);

/* All of them, as numbers with commas between. */
void mr_pg_captured_add_oids(const struct mr_pg_captured *captured, struct mr_text *text);

/* Whether a table whose own name is not configured is surely no partition of one of ours, and was
 * none since the place of options->slot. False also where the server does not say. */
bool mr_pg_captured_is_foreign(const struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                               const struct mr_pg_source_options *options, uint32_t oid);
void mr_pg_captured_done(struct mr_pg_captured *captured);

/* True when the list says nothing certain of the table, which the stream has just described for
 * that transaction: it was not there, or may have become a partition since, or may have been one
 * until then. */
bool mr_pg_captured_is_stale(const struct mr_pg_captured *captured, uint32_t oid,
                             const struct mr_transaction *transaction);

/* What the stream says of a table that is asked for. */
struct mr_pg_described {
    uint32_t oid;
    const char *schema, *table;
    const char *columns; /* rows of SQL, (name, type, modifier), with commas between; "": none */
};

/* Adds those of a relation. */
void mr_pg_captured_add_columns(const struct mr_relation *view, struct mr_text *text);

/* Makes it say so, once questions see the transaction (mr_pg_sees_end). */
mr_status mr_pg_captured_ask(struct mr_pg_captured *captured, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options,
                             const struct mr_pg_described *described, struct mr_error *ret_error);

/* Of one table (0: all that are listed) as the connection sees it, before its rows are copied: what
 * it may have been a partition of is known from now on. */
mr_status mr_pg_captured_guess(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                               uint32_t oid, struct mr_error *ret_error);

enum mr_pg_capture mr_pg_captured_find(const struct mr_pg_captured *captured, uint32_t oid);

/* Whether rows of that transaction are a partition's of a table of ours. `ret_until`: what commits
 * there or later is not; 0: there is no such place. */
bool mr_pg_captured_takes(const struct mr_pg_captured *captured, uint32_t oid,
                          const struct mr_transaction *transaction, mr_lsn *ret_until);
