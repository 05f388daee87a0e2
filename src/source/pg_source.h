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

/* What tells a table's rows apart, as the user says. */
struct mr_table_key {
    struct mr_table_name table;
    const char *const *columns;
    uint32_t column_count;
};

/* All strings are the caller's and outlive the source. */
struct mr_pg_source_options {
    struct mr_pg_options connection;
    const char *slot;
    const char
        *pipeline; /* what this pipeline is, in hexadecimal: equal for the instances of a pair */
    const char *publication;
    const struct mr_table_name *tables; /* the publication is made for these only */
    uint32_t table_count;
    const struct mr_table_key *keys;
    uint32_t key_count;
    bool create_slot;
    bool create_publication;
    bool messages;           /* logical messages are asked for, too */
    bool failover;           /* FAILOVER slot on 17 and later */
    bool position_is_stored; /* by the sink: a slot that exists without one is suspicious, */
    bool adopt_slot;         /* and read on from nevertheless */
};

/* Makes the source; `close` of its ops ends a stream, mr_pg_source_free frees it. */
struct mr_source *mr_pg_source_new(const struct mr_pg_source_options *options);
void mr_pg_source_free(struct mr_source *source);

/* Name of the database the stream comes from (for the events' source block); "" before the first open. */
const char *mr_pg_source_database(const struct mr_source *source);

#endif
