/* The PostgreSQL source: slot and publication made or verified, and the stream loop over pg_conn and
 * pgoutput. Source thread. */
#ifndef MR_SOURCE_PG_SOURCE_H
#define MR_SOURCE_PG_SOURCE_H

#include "source/pg_conn.h"
#include "source/source.h"

struct mr_table_name {
    const char *schema;
    const char *table;
};

/* All strings are the caller's and outlive the source. */
struct mr_pg_source_options {
    struct mr_pg_options connection;
    const char *slot;
    const char *publication;
    const struct mr_table_name *tables; /* the publication is made for these only */
    uint32_t table_count;
    bool create_slot;
    bool create_publication;
    bool failover;           /* FAILOVER slot on 17 and later */
    bool position_is_stored; /* by the sink: a slot that exists without one is suspicious, */
    bool adopt_slot;         /* and read on from nevertheless */
};

/* Makes the source; `close` of its ops ends a stream, mr_pg_source_free frees it. */
struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options);
void mr_pg_source_free(struct mr_source *source);

/* The primary key of a relation version as the server's catalog has it: from the list read when the stream was
 * opened, else looked up on a connection of its own. Asked once a version, for the encoder's plan; valid
 * until the next call or open. */
struct mr_key_columns mr_pg_source_key_columns(struct mr_source *source,
                                               const struct mr_relation *relation);

/* Name of the database the stream comes from (for the events' source block); "" before the first open. */
const char *mr_pg_source_database(const struct mr_source *source);

#endif
