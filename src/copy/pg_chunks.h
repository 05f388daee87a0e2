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
void mr_pg_chunks_free(struct mr_chunk_reader *reader);

mr_status mr_pg_chunks_find(struct mr_chunk_reader *reader, const char *schema, const char *table,
                            const char *key, struct mr_chunk_table **ret_tables,
                            uint32_t *ret_count, struct mr_error *ret_error);
mr_status mr_pg_chunks_number(struct mr_chunk_reader *reader, uint32_t *ret_xid,
                              struct mr_error *ret_error);
mr_status mr_pg_chunks_holder(struct mr_chunk_reader *reader, uint32_t xid,
                              struct mr_chunk_holder *ret_holder, struct mr_error *ret_error);
mr_status mr_pg_chunks_read(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                            struct mr_chunk *chunk, struct mr_error *ret_error);
void mr_pg_chunks_rest(struct mr_chunk_reader *reader);

#endif
