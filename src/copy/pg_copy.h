/* Existing rows: which tables are copied, how each is asked for, and the connections that read them. Inside copy/ only.
 *
 * One transaction, the keeper's, has the snapshot and hands it to the readers (pg_export_snapshot; SET TRANSACTION
 * SNAPSHOT). Tables are read as the publication sends them: its columns in its order, its filter, a partition under its
 * root's name where it says so. The values are the texts that the stream has, for both come from the types' output
 * functions under the same settings.
 */
#ifndef MR_COPY_PG_COPY_H
#define MR_COPY_PG_COPY_H

#include "copy/readers.h"
#include "ports/source.h"
#include "postgres/catalog/describe.h"
#include "postgres/server/pg_copying.h"

struct mr_pg_copy;

/* Begins a transaction that reads and changes nothing, in the snapshot of that name ("": in one of its own). MR_ERR_TRANSIENT:
 * the snapshot is not there any more, for it goes with the transaction, or with the walsender, that has it. */
mr_status mr_pg_begin_in_snapshot(struct mr_pg_conn *conn, const char *snapshot,
                                  struct mr_error *ret_error);

/* Which copy it is: struct mr_copy says what the fields mean. */
struct mr_copy_moment {
    mr_lsn lsn;
    uint32_t attempt;
    const struct mr_copy_stored *resumed;
};

/* Reads the tables through `keeper`, whose transaction has begun, and exports its snapshot; `catalog` is read in it.
 * Source thread. */
mr_status mr_pg_copy_new(struct mr_pg_conn *keeper, struct mr_pg_catalog *catalog,
                         const struct mr_copy_moment *moment, struct mr_pg_copy **ret_copy,
                         struct mr_error *ret_error);
void mr_pg_copy_free(struct mr_pg_copy *copy); /* NULL is fine */

/* Once all rows are read: logs partitions that were attached meanwhile, if they can be asked for. Ends `keeper`'s transaction. Source
 * thread. */
void mr_pg_copy_tell_attached(const struct mr_pg_copy *copy, struct mr_pg_conn *keeper,
                              const struct mr_pg_source_options *options);

const struct mr_copy *mr_pg_copy_view(const struct mr_pg_copy *copy);

/* A connection that reads in the copy's snapshot, of which at most one table is locked (ACCESS SHARE). Any thread; the reader is
 * that thread's. `options` and `home` outlive it. */
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

#endif
