/* SQL texts put together. Inside source/ only. */
#ifndef MR_SOURCE_PG_SQL_H
#define MR_SOURCE_PG_SQL_H

#include "base/text.h"
#include "source/pg_setup.h"

void mr_sql_add_literal(struct mr_text *sql, struct mr_pg_conn *conn, const char *value);
void mr_sql_add_identifier(struct mr_text *sql, struct mr_pg_conn *conn, const char *name);

/* "schema"."table" */
void mr_sql_add_table(struct mr_text *sql, struct mr_pg_conn *conn,
                      const struct mr_table_name *table);

/* ARRAY['"schema"."table"',…]::text[] of all configured tables. */
void mr_sql_add_tables(struct mr_text *sql, struct mr_pg_conn *conn,
                       const struct mr_pg_source_options *options);

/* One row a configured table, in the order of configuration; columns as enum mr_table_column. */
void mr_sql_add_table_states(struct mr_text *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options);

enum mr_table_column {
    MR_TABLE_NAME,        /* quoted */
    MR_TABLE_KIND,        /* pg_class.relkind, NULL when the table does not exist */
    MR_TABLE_PERSISTENCE, /* pg_class.relpersistence */
    MR_TABLE_IDENTITY,    /* pg_class.relreplident */
    MR_TABLE_HAS_KEY,     /* t, f: a primary key */
    MR_TABLE_PUBLISHED,   /* t, f: in the publication, or by its partitions or root */
    MR_TABLE_READABLE,    /* t, f: SELECT granted */
};

/* One row about server, slot and publication; columns as enum mr_server_column. */
void mr_sql_add_server_state(struct mr_text *sql, struct mr_pg_conn *conn,
                             const struct mr_pg_source_options *options);

enum mr_server_column {
    MR_SERVER_WAL_LEVEL,
    MR_SERVER_ENCODING,
    MR_SLOT_PLUGIN, /* NULL when there is no slot; also that of a physical one: see type */
    MR_SLOT_TYPE,
    MR_SLOT_DATABASE,
    MR_SLOT_PID,
    MR_SLOT_WAL_STATUS,
    MR_SLOT_SAFE_BYTES,
    MR_SLOT_RETAINED_BYTES,
    MR_SLOT_TWO_PHASE,
    MR_SLOT_CONFIRMED,
    MR_PUBLICATION_OWNER, /* NULL when there is no publication */
    MR_PUBLICATION_ALL_TABLES,
    MR_PUBLICATION_INSERT,
    MR_PUBLICATION_UPDATE,
    MR_PUBLICATION_DELETE,
    MR_PUBLICATION_TRUNCATE,
    MR_PUBLICATION_VIA_ROOT,
    MR_SLOT_FAILOVER, /* true, false, or NULL where the server does not know it */
    MR_SLOT_SYNCED,   /* likewise: a copy that a standby keeps (or kept, before it was promoted) */
    MR_SLOT_INVALIDATION,    /* why it is lost, where the server says it */
    MR_SERVER_STANDBY_SLOTS, /* physical slots whose standbys must be ahead of us; NULL likewise */
};

static inline bool mr_sql_true(const char *value)
{
    return value != NULL && value[0] == 't';
}

#endif
