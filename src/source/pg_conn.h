/* The libpq edge: connections, commands, and the copy-both stream. Only pg_conn* include libpq-fe.h.
 *
 * Every wait ends early with MR_AGAIN once `stop_fd` is readable (-1: never), and nothing here waits
 * without a limit that the caller gave or that is named below. Every libpq and server error is sorted
 * here, once, into transient, authentication, configuration or history, and gets a text that names thing,
 * reason and remedy; DETAIL, HINT and CONTEXT of the server are left out because they quote row values.
 * A connection belongs to one thread.
 */
#ifndef MR_SOURCE_PG_CONN_H
#define MR_SOURCE_PG_CONN_H

#include "base/status.h"
#include "event/event.h"

struct mr_pg_conn;

/* Of the libpq that runs, counted like the server's (150018). Any thread. */
int mr_pg_library_version(void);

/* How to reach the server. `conninfo` is libpq's (URI or key=value list); a password may come apart. All
 * strings are the caller's and must outlive the connection attempt. */
struct mr_pg_options {
    const char *conninfo;
    const char *password; /* NULL: as conninfo and libpq's own sources say */
    const char *application_name;
    uint32_t connect_timeout_ms;
};

/* Connects; with `replication`, as a walsender of the database (`replication=database`). Settings that
 * change output are pinned (client_encoding UTF8, DateStyle ISO, IntervalStyle, TimeZone UTC,
 * extra_float_digits, bytea_output hex, search_path '', statement and idle time-outs 0, …), TCP keepalive
 * and tcp_user_timeout are set, gssencmode is off unless conninfo says otherwise. Of several hosts each has the
 * time-out for itself, and a standby is passed over (target_session_attrs=read-write unless conninfo says
 * otherwise). */
mr_status mr_pg_connect(const struct mr_pg_options *options, bool replication, int stop_fd,
                        struct mr_pg_conn **ret_conn, struct mr_error *ret_error);

/* Closes and frees; NULL is fine. */
void mr_pg_close(struct mr_pg_conn *conn);

/* A result of text values. Rows and columns count from 0; NULL is a null. */
struct mr_pg_result;
int mr_pg_result_rows(const struct mr_pg_result *result);
const char *mr_pg_result_value(const struct mr_pg_result *result, int row, int column);
void mr_pg_result_free(struct mr_pg_result *result);

/* Runs one SQL or replication command and waits for its result. `ret_result` may be NULL. On a server
 * error `ret_sqlstate` (6 bytes, may be NULL) gets its SQLSTATE. */
mr_status mr_pg_exec(struct mr_pg_conn *conn, int stop_fd, const char *command,
                     struct mr_pg_result **ret_result, char *ret_sqlstate,
                     struct mr_error *ret_error);

/* `text` quoted as an identifier or a literal, for commands; the caller frees it with free(). */
char *mr_pg_quote_identifier(struct mr_pg_conn *conn, const char *text);
char *mr_pg_quote_literal(struct mr_pg_conn *conn, const char *text);

/* PG version as libpq counts it (150018), database connected to, role. */
int mr_pg_server_version(const struct mr_pg_conn *conn);
const char *mr_pg_database(const struct mr_pg_conn *conn);
const char *mr_pg_user(const struct mr_pg_conn *conn);
int mr_pg_backend(const struct mr_pg_conn *conn); /* process number of the server's side */
bool mr_pg_uses_tls(const struct mr_pg_conn *conn);

/* START_REPLICATION SLOT … LOGICAL … with proto_version 1, the publications, and messages on servers
 * that know them (14 on). From here on only the functions below are of use. */
mr_status mr_pg_start_replication(struct mr_pg_conn *conn, int stop_fd, const char *slot,
                                  const char *publication, mr_lsn start,
                                  struct mr_error *ret_error);

/* One CopyData payload without waiting: MR_OK with a slice that lives until the next call on this
 * connection; MR_AGAIN when none is complete (the socket was read to its end); MR_END when the server
 * ended the stream in order; or an error. `ret_reads` (may be NULL) is counted up at each read of the
 * socket. */
mr_status mr_pg_receive(struct mr_pg_conn *conn, mr_slice *ret_payload, uint64_t *ret_reads,
                        struct mr_error *ret_error);

/* Gives up the message that was received last before the next call would. */
void mr_pg_forget(struct mr_pg_conn *conn);

/* Sends a standby status update with write = flush = apply = `flushed`. Does not wait: what the socket
 * does not take now goes out with a later call. */
mr_status mr_pg_send_status(struct mr_pg_conn *conn, mr_lsn flushed, bool reply_requested,
                            struct mr_error *ret_error);

int mr_pg_socket(const struct mr_pg_conn *conn);

/* Ends the stream with CopyDone and reads on, dropping data, until the server answers or the deadline
 * (monotonic) passes. The answer proves that the server has taken every status update sent before. */
mr_status mr_pg_end_replication(struct mr_pg_conn *conn, int64_t deadline_ns);

#endif
