/* What the files of pg_conn share: commands (pg_conn.c), connecting (pg_conn_open.c), the stream (pg_conn_stream.c). */
#ifndef MR_SOURCE_PG_CONN_INTERNAL_H
#define MR_SOURCE_PG_CONN_INTERNAL_H

#include <libpq-fe.h>

#include "source/pg_conn.h"

struct mr_pg_conn {
    PGconn *libpq;
    char *received; /* the message handed out last; libpq's memory */
    bool unsent;    /* output that the socket did not take yet */
};

/* Waits for poll()'s `events` on the connection's socket. MR_OK: the socket is ready; MR_AGAIN: asked to stop;
 * MR_ERR_TRANSIENT: the deadline (monotonic; 0: none) has passed. */
mr_status mr_pg_wait_socket(PGconn *libpq, short events, int stop_fd, int64_t deadline_ns,
                            struct mr_error *ret_error);

/* Sends a command and waits for its first result, which is the caller's. */
mr_status mr_pg_run(struct mr_pg_conn *conn, int stop_fd, const char *command,
                    PGresult **ret_result, struct mr_error *ret_error);

/* The connection was not made. */
mr_status mr_pg_fail_connect(PGconn *libpq, struct mr_error *ret_error);

/* The connection broke: there is a text but no code. */
mr_status mr_pg_fail_broken(PGconn *libpq, struct mr_error *ret_error);

/* The server refused; with `streams`, in the stream. `ret_sqlstate` as for mr_pg_exec. */
mr_status mr_pg_fail_result(PGconn *libpq, const PGresult *result, const char *subject,
                            bool streams, char *ret_sqlstate, struct mr_error *ret_error);

#endif
