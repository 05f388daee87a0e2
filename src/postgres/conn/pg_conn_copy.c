/* COPY … TO STDOUT on an ordinary connection. */
#include <poll.h>
#include <sys/socket.h>

#include "base/wake.h"
#include "postgres/conn/pg_conn_internal.h"

enum { GATHER_BYTES = 65536, GATHER_MS = 1 };

static mr_status fail_answer(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_PROTOCOL,
                   "the server was asked to copy rows and does something else; this is no "
                   "PostgreSQL, or one that this version does not know");
}

static mr_status pg_conn_copy_refused(struct mr_pg_conn *conn, const PGresult *result,
                                      struct mr_error *ret_error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    struct mr_pg_refusal *refusal = &conn->refusal;
    snprintf(refusal->sqlstate, sizeof(refusal->sqlstate), "%s", sqlstate == NULL ? "" : sqlstate);
    refusal->has_place = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION) != NULL;
    refusal->has_context = PQresultErrorField(result, PG_DIAG_CONTEXT) != NULL;
    return mr_pg_fail_rows(conn->libpq, result, "PostgreSQL", ret_error);
}

const struct mr_pg_refusal *mr_pg_copy_refusal(const struct mr_pg_conn *conn)
{
    return &conn->refusal;
}

mr_status mr_pg_copy_start(struct mr_pg_conn *conn, const char *command, struct mr_error *ret_error)
{
    struct mr_pg_limit limit = mr_pg_limit_begin(conn->stop_fd, 0);
    PGresult *result;
    conn->refusal = (struct mr_pg_refusal){0};
    conn->copied = 0;
    MR_TRY(mr_pg_run(conn, &limit, command, MR_PG_ONE_STATEMENT, &result, ret_error));
    mr_status status = MR_OK;
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        status = pg_conn_copy_refused(conn, result, ret_error);
    } else if (PQresultStatus(result) != PGRES_COPY_OUT) {
        status = fail_answer(ret_error);
    }
    conn->broken = conn->broken || status != MR_OK;
    PQclear(result);
    return status;
}

static mr_status next_result(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                             PGresult **ret_result, struct mr_error *ret_error)
{
    MR_TRY(mr_pg_wait_result(conn, limit, ret_error));
    *ret_result = PQgetResult(conn->libpq);
    return MR_OK;
}

/* The server says how many rows it has sent (manual, "Message Formats", CommandComplete), one a
 * message ("Message Flow", COPY Operations). libpq drops those that come when it takes the copy for
 * ended (pqParseInput3 in fe-protocol3.c). */
static mr_status check_count(const struct mr_pg_conn *conn, PGresult *result,
                             struct mr_error *ret_error)
{
    char came[24];
    snprintf(came, sizeof(came), "%llu", (unsigned long long)conn->copied);
    if (strcmp(PQcmdTuples(result), came) == 0) {
        return MR_END;
    }
    return mr_fail(
        ret_error, MR_ERR_PROTOCOL,
        "the server says that it has sent %.20s rows of the copy, and %s came; this is no "
        "PostgreSQL, or something between has dropped some",
        PQcmdTuples(result), came);
}

/* The rows are at their end, or the server has broken off. One that says more than that (a copy
 * within the copy, of which libpq tells again and again) is none that can be asked again. */
static mr_status copy_end(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                          struct mr_error *ret_error)
{
    PGresult *result;
    MR_TRY(next_result(conn, limit, &result, ret_error));
    mr_status answer = MR_END;
    if (result != NULL && PQresultStatus(result) == PGRES_FATAL_ERROR) {
        answer = pg_conn_copy_refused(conn, result, ret_error);
    } else if (result == NULL || PQresultStatus(result) != PGRES_COMMAND_OK) {
        answer = fail_answer(ret_error);
    } else {
        answer = check_count(conn, result, ret_error);
    }
    PQclear(result);
    struct mr_error error = {0};
    mr_status more = next_result(conn, limit, &result, &error);
    if (more == MR_OK && result != NULL) {
        more = fail_answer(&error);
        PQclear(result);
    }
    conn->broken = conn->broken || more != MR_OK;
    if (answer == MR_END && more != MR_OK) { /* what was said first counts */
        *ret_error = error;
        answer = more;
    }
    return answer;
}

static void wake_from(int socket, int bytes)
{
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

/* The server sends 8 KiB at a time (PQ_SEND_BUFFER_SIZE in pqcomm.c), and each wakes who waits. So
 * for a moment the thread is woken by many only (socket(7), SO_RCVLOWAT; without effect on a Unix
 * socket). */
static mr_status wait_for_rows(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                               struct mr_error *ret_error)
{
    int socket = PQsocket(conn->libpq);
    wake_from(socket, GATHER_BYTES);
    mr_wait_either(limit->stop_fd, socket, GATHER_MS);
    wake_from(socket, 1);
    return mr_pg_wait_socket(conn->libpq, POLLIN, limit, ret_error);
}

mr_status mr_pg_copy_next(struct mr_pg_conn *conn, uint8_t **ret_row, size_t *ret_len,
                          struct mr_error *ret_error)
{
    struct mr_pg_limit limit = {.stop_fd = conn->stop_fd};
    for (bool is_dry = false;; is_dry = true) {
        char *row = NULL;
        int len = PQgetCopyData(conn->libpq, &row, 1);
        if (MR_LIKELY(len > 0)) {
            *ret_row = (uint8_t *)row;
            *ret_len = (size_t)len;
            conn->copied++;
            return MR_OK;
        }
        if (len == -2) {
            return mr_pg_fail_broken(conn->libpq, ret_error);
        }
        if (len == -1) {
            return copy_end(conn, &limit, ret_error);
        }
        if (is_dry) {
            MR_TRY(wait_for_rows(conn, &limit, ret_error));
        }
        MR_TRY(mr_pg_consume(conn->libpq, &limit, ret_error));
    }
}

void mr_pg_copy_row_free(uint8_t *row)
{
    PQfreemem(row);
}
