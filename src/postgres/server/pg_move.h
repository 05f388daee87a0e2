/* What a move to another cluster asks of the old one and of the new one
 * (docs/upgrading-postgresql.md). Main thread; nobody streams. */
#pragma once

#include "event/checkpoint.h"
#include "postgres/catalog/pg_options.h"

/* Positions of a new cluster whose transactions have nothing to do with the old one's begin so far
 * above (verify/cut.c tells transactions apart by their numbers only where less WAL lies between),
 * and shifts are multiples of it: the lower digits stay. */
#define MR_MOVE_GAP (UINT64_C(1) << 40)

/* A cluster, looked at. */
struct mr_pg_move_view {
    struct mr_server_position server;
    int version;
    bool holds_writes;      /* default_transaction_read_only is on for new sessions of every role */
    uint64_t writers;       /* open transactions of this database that have written */
    uint64_t next_xid;      /* of 64 bits */
    uint64_t changed_rows;  /* of published tables, but inserts, by the server's statistics */
    uint64_t subscriptions; /* that are enabled in this database */
    bool slot_is_carried;   /* pg_upgrade took it along from the fence */
};

/* `conn`: also made fit to write in a database whose writes are held back; `stream`: a replication
 * connection. */
mr_status mr_pg_move_look(struct mr_pg_conn *conn, struct mr_pg_conn *stream,
                          const struct mr_pg_source_options *options,
                          const struct mr_checkpoint *stored, struct mr_pg_move_view *ret_view,
                          struct mr_error *ret_error);

/* Writes a message, the fence, behind all that was written to the database, and has the server
 * decode up to it: nothing that is published may come that is not confirmed. The slot then stands
 * behind it. MR_ERR_HISTORY: there is something. */
mr_status mr_pg_move_fence(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           mr_lsn *ret_fence, uint64_t *ret_next_xid, struct mr_error *ret_error);
mr_status mr_pg_move_advance(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             mr_lsn fence, struct mr_error *ret_error);

/* Drops what the fence left beside the slot, if it is there: it would keep WAL for nobody.
 * `stored`: NULL is fine. */
mr_status mr_pg_move_forget(struct mr_pg_conn *conn, const struct mr_checkpoint *stored,
                            struct mr_error *ret_error);

/* Whether the stream that `stored` tells of may go on at the cluster, at a slot that is there, or
 * one to be made. */
mr_status mr_pg_move_verify(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view,
                            struct mr_error *ret_error);

/* The shift of the new cluster's positions. `place`: its LSN where the stream is to begin. */
mr_lsn mr_pg_move_shift(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view,
                        uint64_t place);

/* Makes what the stream needs, if it is not there, and says where its slot stands. */
mr_status mr_pg_move_slot(struct mr_pg_conn *conn, struct mr_pg_conn *stream,
                          const struct mr_pg_source_options *options, mr_lsn *ret_place,
                          struct mr_error *ret_error);
