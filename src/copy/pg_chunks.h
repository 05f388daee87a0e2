/* Reads existing rows in chunks, each in a transaction and under a snapshot of its own, in the order of the table's key.
 * Inside copy/ only; the thread that reads.
 *
 * What a chunk needs of a table is asked of the catalog once, and again when a catalog row of it has changed: the table is
 * locked (ACCESS SHARE) before the snapshot is taken, so what the snapshot sees of the catalog is what the rows are of
 * (manual, LOCK: in REPEATABLE READ it is to come before the first SELECT).
 */
#ifndef MR_COPY_PG_CHUNKS_H
#define MR_COPY_PG_CHUNKS_H

#include "copy/readers.h"
#include "postgres/server/pg_copying.h"

/* The options are copied; the texts that they point to outlive the reader, and so does `home`. */
struct mr_chunk_reader *mr_pg_chunks_new(const struct mr_pg_source_options *options,
                                         struct mr_pg_home *home, int stop_fd);

/* All but `new`. */
extern const struct mr_chunk_ops mr_pg_chunk_ops;

#endif
