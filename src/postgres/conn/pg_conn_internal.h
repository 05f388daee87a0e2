/* What the files of pg_conn share: waiting and errors (pg_conn.c), queries (pg_conn_query.c),
 * connecting (pg_conn_open.c), whom to trust (pg_conn_trust.c), the stream (pg_conn_stream.c), rows
 * (pg_conn_copy.c). */
#pragma once

#include <libpq-fe.h>

#include "postgres/conn/pg_conn.h"

/* How long the server may be listened to, and how much memory libpq may take for what it says.
 *
 * libpq reads a message in one call for as long as bytes of it are there, but it makes room for all
 * of it first: as soon as it has the length (pqParseInput3 and pqReadData in src/interfaces/libpq).
 * So what it holds is looked at before each read. Without jemalloc nothing can be seen of that, and
 * only the deadline is left. */
struct mr_pg_limit {
    int stop_fd;
    int64_t deadline_ns; /* monotonic; 0: none */
    int64_t held_max;    /* bytes, as mr_pg_held counts them; 0: no limit */
};

struct mr_pg_conn {
    PGconn *libpq;
    int stop_fd;
    char *received; /* the message handed out last; libpq's memory */
    bool unsent;    /* output that the socket did not take yet */
    bool broken;    /* a query was left in the middle: nothing more can be asked */
    bool leaving;   /* the server was told that we want no more of its stream */
    bool ended;     /* the stream; within this limit the reason may come: */
    struct mr_pg_limit end_limit;
    size_t brought;           /* bytes of messages since the last read */
    bool publication_skipped; /* the server warned that it streams without it */
    mr_lsn failed_change;     /* at which the output plugin failed; 0: it did not */
    struct mr_pg_refusal refusal;
    uint64_t copied;             /* rows of the COPY at hand, or of the last one, that have come */
    struct mr_pg_result *answer; /* of mr_pg_ask */
};

/* From now on: for so long (0: without a deadline), and for what a login, an answer or a stream's
 * end may take. */
struct mr_pg_limit mr_pg_limit_begin(int stop_fd, uint32_t limit_ms);

/* Bytes that this thread has from the allocator; only the difference of two calls says something. 0
 * without jemalloc. */
int64_t mr_pg_held(void);

/* MR_ERR_PROTOCOL: libpq holds more than it may. */
mr_status mr_pg_check_held(const struct mr_pg_limit *limit, struct mr_error *ret_error);

/* Waits for poll()'s `events` on the connection's socket. MR_OK: the socket is ready; MR_AGAIN:
 * asked to stop; MR_ERR_TRANSIENT: the deadline has passed, ready or not. */
mr_status mr_pg_wait_socket(PGconn *libpq, short events, const struct mr_pg_limit *limit,
                            struct mr_error *ret_error);

/* Reads what is there, within the limit, and drops what nobody asked for. */
mr_status mr_pg_consume(PGconn *libpq, const struct mr_pg_limit *limit, struct mr_error *ret_error);

/* Waits until libpq has a result, or knows that there is none. */
mr_status mr_pg_wait_result(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                            struct mr_error *ret_error);

enum mr_pg_form {
    MR_PG_WHOLE,
    MR_PG_BY_ROW, /* its rows come one by one */
    /* The server refuses more than one statement (the manual, "Extended Query"): part of it is a
     * user's. Not for a walsender. */
    MR_PG_ONE_STATEMENT,
};

/* Sends a command and waits for its first result, which is the caller's. */
mr_status mr_pg_run(struct mr_pg_conn *conn, const struct mr_pg_limit *limit, const char *command,
                    enum mr_pg_form form, PGresult **ret_result, struct mr_error *ret_error);

/* The connection was not made. */
mr_status mr_pg_fail_connect(PGconn *libpq, struct mr_error *ret_error);

/* The connection broke: there is a text but no code. */
mr_status mr_pg_fail_broken(PGconn *libpq, struct mr_error *ret_error);

/* The server refused. */
mr_status mr_pg_fail_result(PGconn *libpq, const PGresult *result, const char *subject,
                            struct mr_error *ret_error);

/* The same, where rows of tables are read, or conditions on them run. */
mr_status mr_pg_fail_rows(PGconn *libpq, const PGresult *result, const char *subject,
                          struct mr_error *ret_error);

/* The same in the stream. `*ret_change`: where the change begins at which the output plugin failed;
 * 0: it did not. */
mr_status mr_pg_fail_stream(PGconn *libpq, const PGresult *result, mr_lsn *ret_change,
                            struct mr_error *ret_error);

/* What a connection is asked for so that nobody can pass for the server (pg_conn_trust.c). NULL: as
 * the user says. */
struct mr_pg_trust {
    const char *sslmode;
    const char *sslrootcert;
    const char *channel_binding;
};

/* `parsed`: the user's connection string; `host`, `hostaddr`: the one of its hosts that is at hand
 * (NULL: none named). MR_ERR_CONFIG when what the user says lets anybody in between have the
 * password. */
mr_status mr_pg_trust_choose(const PQconninfoOption *parsed, const char *host, const char *hostaddr,
                             bool insecure_tls, struct mr_pg_trust *ret_trust,
                             struct mr_error *ret_error);

/* What the user said of an option in the connection string, or NULL. */
const char *mr_pg_conninfo_value(const PQconninfoOption *parsed, const char *name);
