/* Rows of PostgreSQL that copies read: inside copy/ only, and the thread of the connection where
 * nothing else is said.
 *
 * pg_copy.c    which tables are copied before the stream, how each is asked for, and the
 *              connections that read them. One transaction, the keeper's, has the snapshot and
 *              hands it to the readers (pg_export_snapshot; SET TRANSACTION SNAPSHOT).
 * pg_chunks.c  rows in chunks, each in a transaction and under a snapshot of its own, in the order
 *              of the table's key. What a chunk needs of a table is asked of the catalog once, and
 *              again when a catalog row of it has changed: the table is locked (ACCESS SHARE)
 *              before the snapshot is taken, so what the snapshot sees of the catalog is what the
 *              rows are of (manual, LOCK: in REPEATABLE READ it is to come before the first
 *              SELECT).
 * pg_columns.c columns as the stream's Relation messages have them.
 *
 * Tables are read as the publication sends them: its columns in its order, its filter, a partition
 * under its root's name where it says so. The values are the texts that the stream has, for both
 * come from the types' output functions under the same settings. */
#pragma once

#include "copy/readers.h"
#include "ports/source.h"
#include "postgres/catalog/describe.h"
#include "postgres/server/pg_copying.h"

struct mr_pg_copy;

/* Begins a transaction that reads and changes nothing, in the snapshot of that name ("": in one of
 * its own). MR_ERR_TRANSIENT: the snapshot is not there any more, for it goes with the transaction,
 * or with the walsender, that has it. */
mr_status mr_pg_begin_in_snapshot(struct mr_pg_conn *conn, const char *snapshot,
                                  struct mr_error *ret_error);

/* Reads the tables through `keeper`, whose transaction has begun, and exports its snapshot;
 * `catalog` is read in it. `moment` says where the stream begins, which attempt it is and what is
 * resumed; `*ret_view`, the copy's, says the rest. Source thread. */
mr_status mr_pg_copy_new(struct mr_pg_conn *keeper, struct mr_pg_catalog *catalog,
                         const struct mr_copy *moment, struct mr_pg_copy **ret_copy,
                         const struct mr_copy **ret_view, struct mr_error *ret_error);
void mr_pg_copy_free(struct mr_pg_copy *copy); /* NULL is fine */

/* Once all rows are read: logs partitions that were attached meanwhile, and ends `keeper`'s
 * transaction. Source thread. */
void mr_pg_copy_tell_attached(const struct mr_pg_copy *copy, struct mr_pg_conn *keeper,
                              const struct mr_pg_source_options *options);

/* A connection that reads in the copy's snapshot, of which at most one table is locked (ACCESS
 * SHARE). Any thread; the reader is that thread's. `options` and `home` outlive it. */
mr_status mr_pg_reader_new(const struct mr_pg_copy *copy,
                           const struct mr_pg_source_options *options, struct mr_pg_home *home,
                           int stop_fd, struct mr_copy_reader **ret_reader,
                           struct mr_error *ret_error);
mr_status mr_pg_reader_begin(struct mr_copy_reader *reader, uint32_t table,
                             const struct mr_copy_range *range, struct mr_error *ret_error);
mr_status mr_pg_reader_next(struct mr_copy_reader *reader, struct mr_tuple *ret_row,
                            uint64_t *ret_place, struct mr_error *ret_error);
void mr_pg_reader_rest(struct mr_copy_reader *reader);
void mr_pg_reader_free(struct mr_copy_reader *reader);

/* The options are copied, and what a reload may change of them is held; the other texts that they
 * point to outlive the reader, and so does `home`. */
struct mr_chunk_reader *mr_pg_chunks_new(const struct mr_pg_source_options *options,
                                         struct mr_pg_home *home, int stop_fd);

/* All but `new`. */
extern const struct mr_chunk_ops mr_pg_chunk_ops;

/* The columns of one table, with their names. */
struct mr_pg_columns {
    uint32_t oid; /* 0: no table has come */
    uint32_t count;
    /* Is called with each table that has columns, by ascending OIDs; NULL: the last one stays. Does
     * not use the connection. */
    mr_status (*take)(struct mr_pg_columns *columns, struct mr_error *ret_error);
    void *context;
    struct mr_column columns[MR_COLUMNS_MAX];
    struct mr_attribute attributes[MR_COLUMNS_MAX];
    char names[MR_COLUMNS_MAX][MR_IDENTIFIER_MAX + 1];
};

/* Of the table of that OID, or (0) of all that the publication sends. */
mr_status mr_pg_columns_read(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             uint32_t oid, struct mr_pg_columns *columns,
                             struct mr_error *ret_error);

/* "COPY (SELECT a, b FROM ONLY t WHERE (filter)", so that a condition or what ends the command may
 * follow. `first`: is read before the columns; NULL: nothing. NULL of a filter: all rows. */
void mr_pg_columns_add_select(struct mr_text *sql, const struct mr_relation *relation,
                              const char *first, const struct mr_table_name *from, bool with_parts,
                              const char *filter);
