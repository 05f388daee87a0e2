/* Who is in the way of what waits for another transaction's end: whose it is, since when, and how
 * it may end. When a transaction of another role has begun only some may see. Any thread. */
#pragma once

#include "postgres/catalog/pg_options.h"

struct mr_pg_holder {
    char who[256];    /* "the transaction of role x in database y, process 17"; "": nobody */
    char since[48];   /* as the server writes a time; "": not known */
    char remedy[320]; /* with the global id of a prepared one, of 200 bytes */
};

/* Who has one of the configured tables, or what inherits from it, locked, or waits for such a lock;
 * `ret_table` gets its name. */
mr_status mr_pg_holder_of_tables(struct mr_pg_conn *conn,
                                 const struct mr_pg_source_options *options,
                                 struct mr_pg_holder *ret_holder, struct mr_text *ret_table,
                                 struct mr_error *ret_error);

/* What the making of that slot waits for. */
mr_status mr_pg_holder_of_slot(struct mr_pg_conn *conn, const char *slot,
                               struct mr_pg_holder *ret_holder, struct mr_error *ret_error);

/* Whose transaction has that number, in whatever database, and a snapshot's text of that moment,
 * the caller's. */
mr_status mr_pg_holder_of_number(struct mr_pg_conn *conn, uint32_t xid,
                                 struct mr_pg_holder *ret_holder, char **ret_snapshot,
                                 struct mr_error *ret_error);
