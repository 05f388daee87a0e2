/* Connections to PostgreSQL: queries, COPY, and the replication stream. Only pg_conn* include
 * libpq-fe.h.
 *
 * A connection belongs to one thread. It knows a descriptor, its stop_fd, and every wait ends early
 * with MR_AGAIN once that is readable (-1: never). A connection attempt and a query have a time
 * limit, and libpq may hold 8 MiB for them; libpq does two things that no limit ends: it asks the
 * resolver for a host's address, and it iterates SCRAM as often as the server says. Every libpq and
 * server error is sorted here, once, into transient, authentication, configuration or history, and
 * gets a text that names thing, reason and remedy, without the server's DETAIL, HINT and CONTEXT,
 * which quote values of rows. */
#pragma once

#include "base/program.h"
#include "event/event.h"

struct mr_pg_conn;

/* Of the libpq that runs, counted like the server's (150018). Any thread. */
int mr_pg_library_version(void);

/* How to reach the server. `conninfo` is libpq's (URI or key=value list); a password may come
 * apart. All strings are the caller's and must outlive the connection attempt. */
struct mr_pg_options {
    const char *conninfo;
    struct mr_secret *password;                /* NULL: as conninfo and libpq's own sources say */
    const struct mr_program *password_program; /* prints it for each connection; NULL: none does */
    const char *application_name;
    uint32_t connect_max_ms; /* for each host, whatever conninfo says; 0: that counts, or 10 s */
    bool insecure_tls;       /* a server on another machine need not prove who it is */
};

/* Calls `take` with each file and folder that libpq may read for this connection string, be it
 * there or not. Any thread. */
void mr_pg_each_file(const char *conninfo, void (*take)(void *context, const char *path),
                     void *context);

/* Adds which server a connection string (NULL: an empty one) names, as it stands, each part ended
 * by a NUL; false: it can't be read. */
bool mr_pg_server_text(const char *conninfo, bool with_database, struct mr_text *ret);

/* Whether two connection strings (NULL: an empty one) name one server, and with `same_database` one
 * database of it, as they stand: a host that is called otherwise counts as another, and so does
 * what can't be read. Any thread. */
bool mr_pg_same_server(const char *a, const char *b, bool same_database);

/* Connects; with `replication`, as a walsender of the database. Settings that change output or end
 * a waiting session are pinned (pg_conn_open.c). Of several hosts each has the time-out for itself,
 * and a standby is passed over (target_session_attrs=read-write unless conninfo says otherwise). A
 * server on another machine must prove who it is before it gets a password (pg_conn_trust.c). */
mr_status mr_pg_connect(const struct mr_pg_options *options, bool replication, int stop_fd,
                        struct mr_pg_conn **ret_conn, struct mr_error *ret_error);

/* The name of one of several hosts of the connection string, counted from 0; the caller frees it.
 * NULL: there is none, or just one. */
char *mr_pg_host_name(const struct mr_pg_options *options, uint32_t host);

/* Connects to that host alone, whether it takes writes or not. */
mr_status mr_pg_connect_to(const struct mr_pg_options *options, uint32_t host, int stop_fd,
                           struct mr_pg_conn **ret_conn, struct mr_error *ret_error);

/* Whether the server runs on this machine: its socket, or its loopback, leads there (a port may be
 * forwarded elsewhere). */
bool mr_pg_is_local(const struct mr_pg_conn *conn);

/* What ends each wait on the connection early once it is readable; -1: nothing does. At first it is
 * what it was connected with. */
int mr_pg_stop_fd(const struct mr_pg_conn *conn);
void mr_pg_set_stop_fd(struct mr_pg_conn *conn, int stop_fd);

/* Closes and frees; NULL is fine. */
void mr_pg_close(struct mr_pg_conn *conn);

/* Of a connection that is closed at the end of its block: MR_PG_CLOSED struct mr_pg_conn *conn =
 * NULL; */
#define MR_PG_CLOSED __attribute__((cleanup(mr_pg_close_at)))
static inline void mr_pg_close_at(struct mr_pg_conn **conn)
{
    mr_pg_close(*conn);
}

/* What the answer to a query must look like: the server may be another one than we believe. */
struct mr_pg_shape {
    const char *about;   /* for errors: "the slot" */
    const char *columns; /* s text, i identifier, b boolean, n number, l LSN; a capital: or NULL */
    uint32_t rows_min;
    uint32_t rows_max;
};

/* A result of text values, every one as its shape says. Rows and columns count from 0; NULL is a
 * null. */
struct mr_pg_result;
uint32_t mr_pg_result_rows(const struct mr_pg_result *result);
const char *mr_pg_result_value(const struct mr_pg_result *result, uint32_t row, uint32_t column);
bool mr_pg_result_true(const struct mr_pg_result *result, uint32_t row, uint32_t column);
int64_t mr_pg_result_number(const struct mr_pg_result *result, uint32_t row, uint32_t column);
mr_lsn mr_pg_result_lsn(const struct mr_pg_result *result, uint32_t row, uint32_t column);
void mr_pg_result_free(struct mr_pg_result *result);

/* Longest wait for the answer to a question, and for the end of something that waits for other
 * transactions. */
enum { MR_PG_ANSWER_MS = 30 * 1000, MR_PG_CHANGE_MS = 24 * 3600 * 1000 };

/* Runs one SQL or replication command that answers rows of that shape, within MR_PG_ANSWER_MS, and
 * frees the command. Any other answer is MR_ERR_PROTOCOL; after that, MR_AGAIN and a time limit,
 * the connection is of no use but to be closed. */
mr_status mr_pg_query(struct mr_pg_conn *conn, struct mr_text *command,
                      const struct mr_pg_shape *shape, struct mr_pg_result **ret_result,
                      struct mr_error *ret_error);

/* The same, within so many milliseconds. */
mr_status mr_pg_query_within(struct mr_pg_conn *conn, struct mr_text *command,
                             const struct mr_pg_shape *shape, uint32_t limit_ms,
                             struct mr_pg_result **ret_result, struct mr_error *ret_error);

/* The same as mr_pg_query; but the answer, and every text in it, is the connection's until
 * mr_pg_ask, _askf or _ask_number is called on it again, or it is closed; mr_pg_query and
 * mr_pg_command leave it. */
mr_status mr_pg_ask(struct mr_pg_conn *conn, struct mr_text *command,
                    const struct mr_pg_shape *shape, const struct mr_pg_result **ret_result,
                    struct mr_error *ret_error);

/* The same, of a command that mr_sql_format puts together (quote.h). */
mr_status mr_pg_askf(struct mr_pg_conn *conn, const struct mr_pg_shape *shape,
                     const struct mr_pg_result **ret_result, struct mr_error *ret_error,
                     const char *format, ...);

/* The same, of one value: its `kind` is a letter of mr_pg_shape, b (0 or 1), n or l. */
mr_status mr_pg_ask_number(struct mr_pg_conn *conn, const char *about, char kind,
                           int64_t *ret_number, struct mr_error *ret_error, const char *format,
                           ...);

/* The same; but each row goes to `take` alone, as row 0, so that the answer may have any length:
 * what is kept of it is `take`'s to bound. That does not use the connection, and its error is the
 * answer, after which the connection is of no use. */
typedef mr_status (*mr_pg_row_fn)(void *context, const struct mr_pg_result *row,
                                  struct mr_error *ret_error);
mr_status mr_pg_ask_rows(struct mr_pg_conn *conn, struct mr_text *command,
                         const struct mr_pg_shape *shape, mr_pg_row_fn take, void *context,
                         struct mr_error *ret_error);

/* Runs one that changes something; what it answers is of no interest. */
mr_status mr_pg_command(struct mr_pg_conn *conn, const char *command, uint32_t limit_ms,
                        struct mr_error *ret_error);
mr_status mr_pg_commandf(struct mr_pg_conn *conn, uint32_t limit_ms, struct mr_error *ret_error,
                         const char *format, ...);

/* Prepares a statement whose parameters have the types that the server finds for them. After a
 * refusal the connection may be asked again. */
mr_status mr_pg_prepare(struct mr_pg_conn *conn, const char *name, const char *command,
                        struct mr_error *ret_error);

/* One of several that are sent together: a command, or a prepared statement with its parameters as
 * text. */
struct mr_pg_call {
    const char *command;
    const char *statement; /* NULL: the command */
    const char *const *values;
    uint32_t value_count;
};

enum { MR_PG_CALL_COLUMNS = MR_COLUMNS_MAX };

/* What it answers: how many rows, and the values of the first one, until `take` returns; `data`
 * NULL: a null. */
struct mr_pg_call_answer {
    uint32_t rows, columns;
    const mr_slice *first;
};
typedef void (*mr_pg_call_fn)(void *context, uint32_t call, const struct mr_pg_call_answer *answer);

/* Sends them at once, and hands each answer that has rows, or could have had some, to `take`. The
 * first one that the server refuses is `*ret_failed`, and the server passes over those after it;
 * the connection may be asked again if that is not 0. */
mr_status mr_pg_pipeline(struct mr_pg_conn *conn, const struct mr_pg_call *calls, uint32_t count,
                         uint32_t limit_ms, mr_pg_call_fn take, void *context, uint32_t *ret_failed,
                         struct mr_error *ret_error);

/* PG version as libpq counts it (150018), database connected to, role. */
int mr_pg_server_version(const struct mr_pg_conn *conn);

/* Of the server's process, as it was told at the login: a pooler names what it likes. */
int mr_pg_process(const struct mr_pg_conn *conn);

/* The port of this end; 0: it has none. */
int mr_pg_local_port(const struct mr_pg_conn *conn);

/* Whether the server was a standby when it answered last, or, of a stream, when it was connected
 * to: in_hot_standby is reported before each ReadyForQuery (guc.c, ReportChangedGUCOptions). */
bool mr_pg_is_standby(const struct mr_pg_conn *conn);

/* What goes before a command so that from then on the session reads no view but the system's; ""
 * where the server can't. A view calls its functions with the rights of the role that reads it, and
 * may have taken the place of a table. */
const char *mr_pg_without_views(const struct mr_pg_conn *conn);

/* Before rows of a table are read: after `before`, commands or "", all settings are what they were
 * once connected, views are forbidden, and `settings` are made. What the planner calls while rows
 * are read may have changed them for the session. A transaction keeps its isolation and goes on
 * only to read (GUC_NO_RESET_ALL in utils/misc/guc.c). */
mr_status mr_pg_set_for_rows(struct mr_pg_conn *conn, const char *before, const char *settings,
                             struct mr_error *ret_error);

const char *mr_pg_database(const struct mr_pg_conn *conn);
const char *mr_pg_user(const struct mr_pg_conn *conn);
bool mr_pg_uses_tls(const struct mr_pg_conn *conn);

/* Begins COPY … TO STDOUT; `command` is that, and nothing after it. Waits for as long as the server
 * needs. */
mr_status mr_pg_copy_start(struct mr_pg_conn *conn, const char *command,
                           struct mr_error *ret_error);

/* What the server said of a COPY that it refused, besides the message. A place in the command's
 * text: it read that text and did not find what stands there (parser_errposition in
 * src/backend/parser/parse_node.c). A context: a function that it ran met the error
 * (error_context_stack: of PL/pgSQL, of SQL functions, of whatever asks by SPI). The values of both
 * are not kept. */
struct mr_pg_refusal {
    char sqlstate[MR_SQLSTATE_SIZE]; /* "": none */
    bool has_place;
    bool has_context;
};

/* Of the last COPY; lives as long as the connection. */
const struct mr_pg_refusal *mr_pg_copy_refusal(const struct mr_pg_conn *conn);

/* Waits for its next row; MR_END: there is none, as many came as the server says that it sent, and
 * the connection may be asked again. The row is the caller's, to be freed by mr_pg_copy_row_free
 * (NULL is fine). After an error the connection is of no use. */
mr_status mr_pg_copy_next(struct mr_pg_conn *conn, uint8_t **ret_row, size_t *ret_len,
                          struct mr_error *ret_error);
void mr_pg_copy_row_free(uint8_t *row);

/* START_REPLICATION SLOT … LOGICAL … with proto_version 1, the publication, and logical messages if
 * wanted. From here on only the functions below are of use. */
mr_status mr_pg_start_replication(struct mr_pg_conn *conn, const char *slot,
                                  const char *publication, bool messages, mr_lsn start,
                                  struct mr_error *ret_error);

/* One CopyData payload without waiting, which lives until the next call. MR_AGAIN: none is
 * complete, and the socket was read to its end; MR_END: the server ended the stream in order.
 * `ret_reads` (may be NULL) is counted up at each read of the socket. */
mr_status mr_pg_receive(struct mr_pg_conn *conn, mr_slice *ret_payload, uint64_t *ret_reads,
                        struct mr_error *ret_error);

/* Whether what was decoded on this connection had its publication. MR_ERR_HISTORY: not, and the
 * server passed rows over. */
mr_status mr_pg_sees_publication(const struct mr_pg_conn *conn, struct mr_error *ret_error);

/* The stream ended with MR_ERR_POISON: where the record of the change begins that the server can't
 * send; 0: it does not say. */
mr_lsn mr_pg_failed_change(const struct mr_pg_conn *conn);

/* Gives up the message that was received last before the next call would. */
void mr_pg_forget(struct mr_pg_conn *conn);

enum { MR_PG_STATUS_LEN = 1 + 8 + 8 + 8 + 8 + 1 };

/* Sends a standby status update with apply = `flushed`. Does not wait: what the socket does not
 * take now goes out with a later call. `ret_sent` (may be NULL) gets its MR_PG_STATUS_LEN bytes. */
mr_status mr_pg_send_status(struct mr_pg_conn *conn, mr_lsn written, mr_lsn flushed,
                            bool reply_requested, uint8_t *ret_sent, struct mr_error *ret_error);

int mr_pg_socket(const struct mr_pg_conn *conn);

/* Ends the stream with CopyDone and reads on, dropping data, until the server answers or the
 * deadline (monotonic) passes. The answer proves that the server has taken every status update sent
 * before. */
mr_status mr_pg_end_replication(struct mr_pg_conn *conn, int64_t deadline_ns);
