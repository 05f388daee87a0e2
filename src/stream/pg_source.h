/* The PostgreSQL source: the stream loop over pg_conn and pgoutput. Source thread. */
#pragma once

#include "ports/source.h"
#include "postgres/catalog/describe.h"
#include "postgres/server/pg_form.h"
#include "postgres/server/pg_slot.h"

/* Makes the source; `close` of its ops ends a stream, mr_pg_source_free frees it. */
struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options);
void mr_pg_source_free(struct mr_source *source);

/* What the slot's watcher sees, which outlives the stream. A server that shuts down is left in a
 * moment, so that it can; where a standby was promoted, the stream is begun again, so that what is
 * stored is of its new timeline. Before the first claim. */
void mr_pg_source_heed(struct mr_source *source, const struct mr_pg_seen *seen);

/* Values of these columns (options.reselect) are read again where an update does not send them;
 * `shows`: whether events show a column. Before the first claim. */
void mr_pg_source_reselect(struct mr_source *source,
                           bool (*shows)(void *context, const struct mr_relation *relation,
                                         uint32_t column),
                           void *context);

/* What the publication sent when the stream was opened first; the source's. */
struct mr_pg_form *mr_pg_source_form(const struct mr_source *source);

/* Name of the database the stream comes from (for the events' source block); "" before the first
 * open. */
const char *mr_pg_source_database(const struct mr_source *source);

/* Names of the tables that are streamed, as the publication sends them: roots of partitioned ones
 * or their leaves. */
struct mr_pg_tables {
    char **names; /* schema, table, schema, table … */
    uint32_t count;
};

/* Asks the server. The caller's: mr_pg_tables_done. MR_AGAIN: a stop. Source thread. */
mr_status mr_pg_source_tables(struct mr_source *base, struct mr_pg_tables *ret_tables,
                              struct mr_error *ret_error);
void mr_pg_tables_done(struct mr_pg_tables *tables);

/* The claimed connection; NULL: there is none. */
struct mr_pg_conn *mr_pg_source_conn(const struct mr_source *source);

/* What mr_pg_identify says on that connection, and what this process has seen of the stream
 * (stream/rejoin.h). */
mr_status mr_pg_source_identify(const struct mr_source *source, const struct mr_checkpoint *stored,
                                mr_lsn start, struct mr_server_position *ret_server,
                                struct mr_error *ret_error);

/* As they are now: a reload changes them. */
const struct mr_pg_source_options *mr_pg_source_options(const struct mr_source *source);
struct mr_pg_home *mr_pg_source_home(struct mr_source *source);
struct mr_pg_stream_state mr_pg_source_state(const struct mr_source *source,
                                             const struct mr_checkpoint *stored);

/* A copy has its slot: reads the catalog in the snapshot of `keeper`, which is that of the rows.
 * `*ret_catalog` is the source's. */
mr_status mr_pg_source_read_catalog(struct mr_source *source, struct mr_pg_conn *keeper,
                                    int stop_fd, struct mr_pg_catalog **ret_catalog,
                                    struct mr_error *ret_error);
