#include "source/pg_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/pg_conn_internal.h"
#include "source/pg_errors.h"

enum { SQLSTATE_SIZE = 6 };

/* ---- waiting ---- */

mr_status mr_pg_wait_socket(PGconn *libpq, short events, int stop_fd, int64_t deadline_ns,
                            struct mr_error *ret_error)
{
    struct pollfd fds[2] = {
        {.fd = PQsocket(libpq), .events = events},
        {.fd = stop_fd, .events = POLLIN},
    };
    for (;;) {
        int timeout_ms = -1;
        if (deadline_ns != 0) {
            int64_t left_ns = deadline_ns - mr_monotonic_ns();
            if (left_ns <= 0) {
                return mr_fail(ret_error, MR_ERR_TRANSIENT, "PostgreSQL does not answer in time");
            }
            timeout_ms = (int)(left_ns / 1000000) + 1;
        }
        int ready = poll(fds, 2, timeout_ms);
        if (ready < 0 && errno != EINTR) {
            return mr_fail(ret_error, MR_ERR_SYSTEM, "poll: %s", strerror(errno));
        }
        if (ready > 0 && fds[1].revents != 0) {
            return MR_AGAIN;
        }
        if (ready > 0) {
            return MR_OK;
        }
    }
}

/* ---- errors ---- */

/* One line without libpq's or the server's decoration. */
static void clean_text(const char *text, char *to, size_t size)
{
    size_t len = 0;
    for (; *text != '\0' && len + 1 < size; text++) {
        bool space = *text == '\n' || *text == '\r' || *text == '\t' || *text == ' ';
        if (!space) {
            to[len++] = *text;
        } else if (len > 0 && to[len - 1] != ' ') {
            to[len++] = ' ';
        }
    }
    while (len > 0 && to[len - 1] == ' ') {
        len--;
    }
    to[len] = '\0';
}

static mr_status fail_with(struct mr_error *ret_error, mr_status status, const char *subject,
                           const char *text, const char *sqlstate, const char *remedy)
{
    return mr_fail(ret_error, status, "%s: %s%s%s%s%s%s", subject, text,
                   sqlstate[0] == '\0' ? "" : " (", sqlstate, sqlstate[0] == '\0' ? "" : ")",
                   remedy[0] == '\0' ? "" : "; ", remedy);
}

mr_status mr_pg_fail_connect(PGconn *libpq, struct mr_error *ret_error)
{
    char text[512];
    clean_text(PQerrorMessage(libpq), text, sizeof(text));
    const char *remedy;
    mr_status status = mr_pg_connect_error_classify(text, &remedy);
    return fail_with(ret_error, status, "PostgreSQL connection", text, "", remedy);
}

mr_status mr_pg_fail_broken(PGconn *libpq, struct mr_error *ret_error)
{
    char text[512];
    clean_text(PQerrorMessage(libpq), text, sizeof(text));
    return fail_with(ret_error, MR_ERR_TRANSIENT, "PostgreSQL connection",
                     text[0] == '\0' ? "it was closed" : text, "", "");
}

/* Only the primary message: detail, hint and context quote values of rows. What ends the stream may be about a value
 * too (class 22: the function of a row filter refused it), and then the primary message quotes it. */
mr_status mr_pg_fail_result(PGconn *libpq, const PGresult *result, const char *subject,
                            bool streams, char *ret_sqlstate, struct mr_error *ret_error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (sqlstate == NULL || message == NULL) {
        return mr_pg_fail_broken(libpq, ret_error);
    }
    if (ret_sqlstate != NULL) {
        snprintf(ret_sqlstate, SQLSTATE_SIZE, "%s", sqlstate);
    }
    char text[512];
    clean_text(message, text, sizeof(text));
    const char *remedy;
    mr_status status = mr_pg_error_classify(sqlstate, message, &remedy);
    /* The message quotes bytes of the row. */
    if (streams && strncmp(sqlstate, "22", 2) == 0) {
        status = MR_ERR_POISON;
    }
    return fail_with(ret_error, status, subject,
                     status == MR_ERR_POISON ? "it can't send a row" : text, sqlstate, remedy);
}

/* ---- commands ---- */

struct mr_pg_result {
    PGresult *libpq;
};

int mr_pg_result_rows(const struct mr_pg_result *result)
{
    return PQntuples(result->libpq);
}

const char *mr_pg_result_value(const struct mr_pg_result *result, int row, int column)
{
    return PQgetisnull(result->libpq, row, column) ? NULL : PQgetvalue(result->libpq, row, column);
}

void mr_pg_result_free(struct mr_pg_result *result)
{
    if (result != NULL) {
        PQclear(result->libpq);
        free(result);
    }
}

/* Sends what is queued; the caller waits for the socket between calls. */
static mr_status flush_output(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    int left;
    while ((left = PQflush(conn->libpq)) == 1) {
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLOUT, stop_fd, 0, ret_error));
    }
    return left == 0 ? MR_OK : mr_pg_fail_broken(conn->libpq, ret_error);
}

static mr_status wait_result(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    while (PQisBusy(conn->libpq)) {
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLIN, stop_fd, 0, ret_error));
        if (!PQconsumeInput(conn->libpq)) {
            return mr_pg_fail_broken(conn->libpq, ret_error);
        }
    }
    return MR_OK;
}

/* A command that still runs when we leave (a slot that waits for old transactions) must end with us. */
static void cancel_command(struct mr_pg_conn *conn)
{
    char reason[256];
    PGcancel *cancel = PQgetCancel(conn->libpq);
    if (cancel != NULL) {
        PQcancel(cancel, reason, sizeof(reason));
        PQfreeCancel(cancel);
    }
}

mr_status mr_pg_run(struct mr_pg_conn *conn, int stop_fd, const char *command,
                    PGresult **ret_result, struct mr_error *ret_error)
{
    if (!PQsendQuery(conn->libpq, command)) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    mr_status status = flush_output(conn, stop_fd, ret_error);
    if (status == MR_OK) {
        status = wait_result(conn, stop_fd, ret_error);
    }
    if (status == MR_AGAIN) {
        cancel_command(conn);
    }
    MR_TRY(status);
    *ret_result = PQgetResult(conn->libpq);
    return *ret_result == NULL ? mr_pg_fail_broken(conn->libpq, ret_error) : MR_OK;
}

static mr_status drop_results(struct mr_pg_conn *conn, int stop_fd, struct mr_error *ret_error)
{
    for (;;) {
        MR_TRY(wait_result(conn, stop_fd, ret_error));
        PGresult *more = PQgetResult(conn->libpq);
        if (more == NULL) {
            return MR_OK;
        }
        PQclear(more);
    }
}

mr_status mr_pg_exec(struct mr_pg_conn *conn, int stop_fd, const char *command,
                     struct mr_pg_result **ret_result, char *ret_sqlstate,
                     struct mr_error *ret_error)
{
    PGresult *result;
    MR_TRY(mr_pg_run(conn, stop_fd, command, &result, ret_error));
    ExecStatusType kind = PQresultStatus(result);
    mr_status status = MR_OK;
    if (kind != PGRES_TUPLES_OK && kind != PGRES_COMMAND_OK) {
        status =
            mr_pg_fail_result(conn->libpq, result, "PostgreSQL", false, ret_sqlstate, ret_error);
    }
    mr_status rest = drop_results(conn, stop_fd, status == MR_OK ? ret_error : NULL);
    if (status == MR_OK) {
        status = rest;
    }
    if (status == MR_OK && ret_result != NULL) {
        *ret_result = MR_NEW(struct mr_pg_result);
        (*ret_result)->libpq = result;
        return MR_OK;
    }
    PQclear(result);
    return status;
}

static char *own_copy(char *libpq_text)
{
    MR_ASSERT(libpq_text != NULL); /* fails only on text that is no valid UTF-8, refused earlier */
    char *copy = MR_STRDUP(libpq_text);
    PQfreemem(libpq_text);
    return copy;
}

char *mr_pg_quote_identifier(struct mr_pg_conn *conn, const char *text)
{
    return own_copy(PQescapeIdentifier(conn->libpq, text, strlen(text)));
}

char *mr_pg_quote_literal(struct mr_pg_conn *conn, const char *text)
{
    return own_copy(PQescapeLiteral(conn->libpq, text, strlen(text)));
}

int mr_pg_library_version(void)
{
    return PQlibVersion();
}

int mr_pg_server_version(const struct mr_pg_conn *conn)
{
    return PQserverVersion(conn->libpq);
}

const char *mr_pg_database(const struct mr_pg_conn *conn)
{
    return PQdb(conn->libpq);
}

const char *mr_pg_user(const struct mr_pg_conn *conn)
{
    return PQuser(conn->libpq);
}

int mr_pg_backend(const struct mr_pg_conn *conn)
{
    return PQbackendPID(conn->libpq);
}

bool mr_pg_uses_tls(const struct mr_pg_conn *conn)
{
    return PQsslInUse(conn->libpq) == 1;
}
