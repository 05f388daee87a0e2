/* Prepared statements that are sent together, so that all of them take one round trip (the manual,
 * "Pipeline Mode"). */
#include <poll.h>

#include "postgres/conn/pg_conn_internal.h"

mr_status mr_pg_prepare(struct mr_pg_conn *conn, const char *name, const char *command,
                        struct mr_error *ret_error)
{
    struct mr_pg_limit limit = mr_pg_limit_begin(conn->stop_fd, MR_PG_ANSWER_MS);
    if (conn->broken || !PQsendPrepare(conn->libpq, name, command, 0, NULL)) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    mr_status answer = MR_OK;
    for (;;) {
        mr_status status = mr_pg_wait_result(conn, &limit, ret_error);
        PGresult *result = status == MR_OK ? PQgetResult(conn->libpq) : NULL;
        if (result == NULL) {
            conn->broken = conn->broken || status != MR_OK;
            return status == MR_OK ? answer : status;
        }
        if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
            answer = mr_pg_fail_result(conn->libpq, result, "PostgreSQL", ret_error);
        }
        PQclear(result);
    }
}

/* All of them, and the end of the pipeline; what the socket does not take while the server waits
 * for us to read is read meanwhile. */
static mr_status send_calls(struct mr_pg_conn *conn, const struct mr_pg_call *calls, uint32_t count,
                            const struct mr_pg_limit *limit, struct mr_error *ret_error)
{
    bool sent = PQenterPipelineMode(conn->libpq) == 1;
    for (uint32_t i = 0; i < count && sent; i++) {
        const struct mr_pg_call *call = &calls[i];
        sent = call->statement == NULL
                   ? PQsendQueryParams(conn->libpq, call->command, 0, NULL, NULL, NULL, NULL, 0)
                   : PQsendQueryPrepared(conn->libpq, call->statement, (int)call->value_count,
                                         call->values, NULL, NULL, 0);
    }
    if (!sent || PQpipelineSync(conn->libpq) != 1) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    int left;
    while ((left = PQflush(conn->libpq)) == 1) {
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLIN | POLLOUT, limit, ret_error));
        MR_TRY(mr_pg_consume(conn->libpq, limit, ret_error));
    }
    return left == 0 ? MR_OK : mr_pg_fail_broken(conn->libpq, ret_error);
}

static mr_status pg_conn_pipeline_take_rows(const PGresult *result, uint32_t call,
                                            mr_pg_call_fn take, void *context,
                                            struct mr_error *ret_error)
{
    uint32_t columns = (uint32_t)PQnfields(result);
    struct mr_pg_call_answer answer = {.rows = (uint32_t)PQntuples(result), .columns = columns};
    mr_slice values[MR_PG_CALL_COLUMNS];
    if (columns > MR_PG_CALL_COLUMNS) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL, "the server answers with too many columns");
    }
    for (uint32_t i = 0; i < columns && answer.rows > 0; i++) {
        bool is_null = PQgetisnull(result, 0, (int)i) == 1;
        values[i] =
            (mr_slice){.data = is_null ? NULL : (const uint8_t *)PQgetvalue(result, 0, (int)i),
                       .len = (size_t)PQgetlength(result, 0, (int)i)};
    }
    answer.first = values;
    take(context, call, &answer);
    return MR_OK;
}

static mr_status read_answers(struct mr_pg_conn *conn, uint32_t count, struct mr_pg_limit *limit,
                              mr_pg_call_fn take, void *context, uint32_t *ret_failed,
                              struct mr_error *ret_error)
{
    mr_status answer = MR_OK;
    for (uint32_t call = 0; call <= count;) {
        MR_TRY(mr_pg_wait_result(conn, limit, ret_error));
        PGresult *result = PQgetResult(conn->libpq);
        if (result == NULL) { /* the end of one call's results */
            call++;
            continue;
        }
        ExecStatusType kind = PQresultStatus(result);
        if (kind == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return answer;
        }
        if (kind == PGRES_FATAL_ERROR && answer == MR_OK) {
            answer = mr_pg_fail_result(conn->libpq, result, "PostgreSQL", ret_error);
            *ret_failed = call;
        } else if (kind == PGRES_TUPLES_OK && answer == MR_OK) {
            int64_t held = mr_pg_held();
            answer = pg_conn_pipeline_take_rows(result, call, take, context, ret_error);
            limit->held_max += mr_pg_held() - held; /* the caller's, who has a limit of its own */
            *ret_failed = call;
        }
        PQclear(result);
    }
    return answer == MR_OK ? mr_pg_fail_broken(conn->libpq, ret_error) : answer;
}

mr_status mr_pg_pipeline(struct mr_pg_conn *conn, const struct mr_pg_call *calls, uint32_t count,
                         uint32_t limit_ms, mr_pg_call_fn take, void *context, uint32_t *ret_failed,
                         struct mr_error *ret_error)
{
    struct mr_pg_limit limit = mr_pg_limit_begin(conn->stop_fd, limit_ms);
    *ret_failed = 0;
    if (conn->broken) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "the connection was left in the middle of an answer");
    }
    mr_status status = send_calls(conn, calls, count, &limit, ret_error);
    status =
        MR_THEN(status, read_answers(conn, count, &limit, take, context, ret_failed, ret_error));
    conn->broken = PQexitPipelineMode(conn->libpq) != 1;
    return status;
}
