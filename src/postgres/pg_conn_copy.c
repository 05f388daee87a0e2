/* COPY … TO STDOUT on an ordinary connection. */
#include <poll.h>

#include "postgres/pg_conn_internal.h"

mr_status mr_pg_copy_start(struct mr_pg_conn *conn, int stop_fd, const char *command,
                           struct mr_error *ret_error)
{
    size_t left = MR_PG_BEGIN_BYTES_MAX;
    struct mr_pg_limit limit = {.stop_fd = stop_fd, .left = &left};
    PGresult *result;
    MR_TRY(mr_pg_run(conn, &limit, command, MR_PG_ONE_STATEMENT, &result, ret_error));
    mr_status status = MR_OK;
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        status = mr_pg_fail_result(conn->libpq, result, "PostgreSQL", false, ret_error);
    } else if (PQresultStatus(result) != PGRES_COPY_OUT) {
        status = mr_fail(ret_error, MR_ERR_PROTOCOL,
                         "the server was asked to copy rows and does something else; this is no "
                         "PostgreSQL, or one that this version does not know");
    }
    conn->broken = conn->broken || status != MR_OK;
    PQclear(result);
    return status;
}

/* The rows are at their end, or the server has broken off. */
static mr_status copy_end(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                          struct mr_error *ret_error)
{
    mr_status answer = MR_END;
    for (;;) {
        while (PQisBusy(conn->libpq)) {
            MR_TRY(mr_pg_wait_socket(conn->libpq, POLLIN, limit, ret_error));
            MR_TRY(mr_pg_consume(conn->libpq, limit, ret_error));
        }
        PGresult *result = PQgetResult(conn->libpq);
        if (result == NULL) {
            return answer;
        }
        if (answer == MR_END && PQresultStatus(result) != PGRES_COMMAND_OK) {
            answer = mr_pg_fail_result(conn->libpq, result, "PostgreSQL", false, ret_error);
        }
        PQclear(result);
    }
}

mr_status mr_pg_copy_next(struct mr_pg_conn *conn, int stop_fd, uint8_t **ret_row, size_t *ret_len,
                          struct mr_error *ret_error)
{
    struct mr_pg_limit limit = {.stop_fd = stop_fd};
    for (;;) {
        char *row = NULL;
        int len = PQgetCopyData(conn->libpq, &row, 1);
        if (MR_LIKELY(len > 0)) {
            *ret_row = (uint8_t *)row;
            *ret_len = (size_t)len;
            return MR_OK;
        }
        if (len == -2) {
            return mr_pg_fail_broken(conn->libpq, ret_error);
        }
        if (len == -1) {
            return copy_end(conn, &limit, ret_error);
        }
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLIN, &limit, ret_error));
        MR_TRY(mr_pg_consume(conn->libpq, &limit, ret_error));
    }
}

void mr_pg_copy_row_free(uint8_t *row)
{
    PQfreemem(row);
}
