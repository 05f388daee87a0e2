/* Which stream is wanted of which server. */
#ifndef MR_POSTGRES_PG_OPTIONS_H
#define MR_POSTGRES_PG_OPTIONS_H

#include "base/pattern.h"
#include "postgres/pg_conn.h"

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
    const struct mr_table_pattern *patterns; /* and those that one of these fits, …  */
    uint32_t pattern_count;
    const struct mr_table_pattern *excluded; /* … but none of these */
    uint32_t excluded_count;
    const struct mr_table_key *keys;
    uint32_t key_count;
    size_t relation_bytes_max; /* that descriptions of tables may take; 0: no limit */
    bool create_slot;
    bool create_publication;
    bool messages;           /* logical messages are asked for, too */
    bool failover;           /* FAILOVER slot on 17 and later */
    bool position_is_stored; /* by the sink: a slot that exists without one is suspicious, */
    bool adopt_slot;         /* and read on from nevertheless */
    bool copies_only;        /* existing rows, and no stream behind them */
};

#endif
