/* The PostgreSQL source: the stream loop over pg_conn and pgoutput. Source thread. */
#ifndef MR_SOURCE_PG_SOURCE_H
#define MR_SOURCE_PG_SOURCE_H

#include "ports/source.h"
#include "postgres/catalog/pg_options.h"
#include "stream/relation_cache.h"

/* Makes the source; `close` of its ops ends a stream, mr_pg_source_free frees it. */
struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options);
void mr_pg_source_free(struct mr_source *source);

/* The server refuses connections because it shuts down: the stream is left in a moment, so that it can. Source thread. */
void mr_pg_source_server_stops(struct mr_source *source);

/* The key that key_columns chooses for the relation, into `columns` and the view; `*ret_found`: there is one. MR_ERR_POISON: it
 * does not fit. Any thread. */
mr_status mr_pg_chosen_key(const struct mr_pg_source_options *options,
                           struct mr_relation_view *view, uint32_t *columns, bool *ret_found,
                           struct mr_error *ret_error);

/* Name of the database the stream comes from (for the events' source block); "" before the first open. */
const char *mr_pg_source_database(const struct mr_source *source);

/* Names of the tables that are streamed, as the publication sends them: roots of partitioned ones or their leaves. */
struct mr_pg_tables {
    char **names; /* schema, table, schema, table … */
    uint32_t count;
};

/* Asks the server. The caller's: mr_pg_tables_done. MR_AGAIN: a stop. Source thread. */
mr_status mr_pg_source_tables(struct mr_source *base, struct mr_pg_tables *ret_tables,
                              struct mr_error *ret_error);
void mr_pg_tables_done(struct mr_pg_tables *tables);

/* ---- for copies of existing rows; source thread ---- */

/* The claimed connection; NULL: there is none. */
struct mr_pg_conn *mr_pg_source_conn(const struct mr_source *source);

/* As they are now: a reload changes them. */
const struct mr_pg_source_options *mr_pg_source_options(const struct mr_source *source);
struct mr_pg_home *mr_pg_source_home(struct mr_source *source);
struct mr_pg_stream_state mr_pg_source_state(const struct mr_source *source,
                                             const struct mr_checkpoint *stored);

/* A copy has its slot. Until the connection ends, or `keeper` is NULL, the catalog is asked in `keeper`'s snapshot, which is that of
 * the rows; it stays the caller's. */
mr_status mr_pg_source_lend(struct mr_source *source, struct mr_pg_conn *keeper, int stop_fd,
                            struct mr_error *ret_error);

/* As mr_pgoutput_keys_fn and mr_pgoutput_types_fn, of the source. */
mr_status mr_pg_source_find_key(void *source, const struct mr_transaction *transaction,
                                struct mr_relation_view *view, uint32_t *columns,
                                struct mr_error *ret_error);
mr_status mr_pg_source_find_types(void *source, const struct mr_transaction *transaction,
                                  const struct mr_relation_view *view,
                                  struct mr_column_view *columns, struct mr_error *ret_error);

#endif
