/* Queries: a command sent, and an answer that is what was expected, or none. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include "base/wake.h"
#include "event/lsn.h"
#include "postgres/conn/pg_conn_internal.h"
#include "postgres/conn/quote.h"

enum {
    /* Of all values that are kept together, and of their places. */
    ANSWER_BYTES_MAX = 8 << 20,
    CANCEL_WAIT_MS = 2000,
};

struct mr_pg_result {
    uint32_t columns;
    uint32_t rows;
    char *bytes; /* all values, each with a NUL */
    size_t len;
    uint32_t size;
    uint32_t *at; /* of each value, + 1; 0: null */
    uint32_t values_size;
    mr_pg_row_fn take; /* NULL: all rows are kept */
    void *context;
    uint64_t taken; /* rows */
};

uint32_t mr_pg_result_rows(const struct mr_pg_result *result)
{
    return result->rows;
}

const char *mr_pg_result_value(const struct mr_pg_result *result, uint32_t row, uint32_t column)
{
    MR_ASSERT(row < result->rows && column < result->columns);
    uint32_t at = result->at[(size_t)row * result->columns + column];
    return at == 0 ? NULL : result->bytes + at - 1;
}

bool mr_pg_result_true(const struct mr_pg_result *result, uint32_t row, uint32_t column)
{
    const char *value = mr_pg_result_value(result, row, column);
    return value != NULL && value[0] == 't';
}

int64_t mr_pg_result_number(const struct mr_pg_result *result, uint32_t row, uint32_t column)
{
    const char *value = mr_pg_result_value(result, row, column);
    return value == NULL ? 0 : strtoll(value, NULL, 10);
}

mr_lsn mr_pg_result_lsn(const struct mr_pg_result *result, uint32_t row, uint32_t column)
{
    mr_lsn lsn = 0;
    (void)mr_lsn_parse(mr_pg_result_value(result, row, column), &lsn, NULL);
    return mr_lsn_of_server(lsn);
}

void mr_pg_result_free(struct mr_pg_result *result)
{
    if (result != NULL) {
        free(result->bytes);
        free(result->at);
        free(result);
    }
}

static mr_status wrong_answer(const struct mr_pg_shape *shape, const char *what,
                              struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_PROTOCOL,
                   "the server was asked for %s and answers with %s; this is no PostgreSQL, or one "
                   "that this version does not know",
                   shape->about, what);
}

static bool pg_conn_query_is_number(const char *text)
{
    text += *text == '-';
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 19 && text[digits] == '\0';
}

static bool value_fits(char kind, const char *text)
{
    mr_lsn lsn;
    switch (kind) {
    case 'b':
        return strcmp(text, "t") == 0 || strcmp(text, "f") == 0;
    case 'n':
        return pg_conn_query_is_number(text);
    case 'i':
        return text[0] != '\0' && strlen(text) <= MR_IDENTIFIER_MAX;
    case 'l':
        return mr_lsn_parse(text, &lsn, NULL);
    default:
        return true;
    }
}

static size_t bytes_with(const struct mr_pg_result *result, size_t len)
{
    size_t values = ((size_t)result->rows + 1) * result->columns;
    return result->len + len + values * sizeof(*result->at);
}

static void keep_value(struct mr_pg_result *result, uint32_t *at, const char *text, size_t len)
{
    MR_GROW(result->bytes, result->size, result->len + len + 1);
    memcpy(result->bytes + result->len, text, len + 1);
    *at = (uint32_t)result->len + 1;
    result->len += len + 1;
}

static mr_status pg_conn_query_take_row(struct mr_pg_result *result, const PGresult *libpq,
                                        const struct mr_pg_shape *shape, struct mr_error *ret_error)
{
    if (result->taken == shape->rows_max) {
        return wrong_answer(shape, "more rows than there can be", ret_error);
    }
    MR_GROW(result->at, result->values_size, (result->rows + 1) * result->columns);
    for (uint32_t i = 0; i < result->columns; i++) {
        uint32_t *at = &result->at[(size_t)result->rows * result->columns + i];
        char kind = shape->columns[i];
        bool may_be_null = kind >= 'A' && kind <= 'Z';
        size_t len = (size_t)PQgetlength(libpq, 0, (int)i);
        *at = 0;
        if (bytes_with(result, len) > ANSWER_BYTES_MAX) {
            return wrong_answer(shape, "more than 8 MiB", ret_error);
        }
        if (PQgetisnull(libpq, 0, (int)i)) {
            if (!may_be_null) {
                return wrong_answer(shape, "a null where a value must be", ret_error);
            }
            continue;
        }
        const char *text = PQgetvalue(libpq, 0, (int)i);
        if (PQfformat(libpq, (int)i) != 0 || strlen(text) != len ||
            !value_fits((char)(kind | 0x20), text)) {
            return wrong_answer(shape, "a value of another type", ret_error);
        }
        keep_value(result, at, text, len);
    }
    result->rows++;
    result->taken++;
    return MR_OK;
}

static mr_status pass_row(struct mr_pg_conn *conn, struct mr_pg_result *result,
                          struct mr_error *ret_error)
{
    mr_status status = result->take(result->context, result, ret_error);
    conn->broken = conn->broken || status != MR_OK; /* more rows may come */
    result->rows = 0;
    result->len = 0;
    return status;
}

static mr_status pg_conn_query_take_result(struct mr_pg_conn *conn, struct mr_pg_result *result,
                                           const PGresult *libpq, const struct mr_pg_shape *shape,
                                           struct mr_error *ret_error)
{
    ExecStatusType kind = PQresultStatus(libpq);
    if (kind == PGRES_FATAL_ERROR) {
        return mr_pg_fail_result(conn->libpq, libpq, "PostgreSQL", ret_error);
    }
    if (shape->columns == NULL &&
        (kind == PGRES_COMMAND_OK || kind == PGRES_TUPLES_OK || kind == PGRES_SINGLE_TUPLE)) {
        return MR_OK;
    }
    if (kind != PGRES_SINGLE_TUPLE && kind != PGRES_TUPLES_OK) {
        conn->broken = true;
        return wrong_answer(shape, "something else than rows", ret_error);
    }
    if (PQnfields(libpq) != (int)result->columns) {
        conn->broken = true;
        return wrong_answer(shape, "another number of columns", ret_error);
    }
    if (kind == PGRES_TUPLES_OK) {
        return MR_OK;
    }
    MR_TRY(pg_conn_query_take_row(result, libpq, shape, ret_error));
    return result->take == NULL ? MR_OK : pass_row(conn, result, ret_error);
}

static mr_status flush_output(struct mr_pg_conn *conn, const struct mr_pg_limit *limit,
                              struct mr_error *ret_error)
{
    int left;
    while ((left = PQflush(conn->libpq)) == 1) {
        MR_TRY(mr_pg_wait_socket(conn->libpq, POLLOUT, limit, ret_error));
    }
    return left == 0 ? MR_OK : mr_pg_fail_broken(conn->libpq, ret_error);
}

struct cancelling {
    PGcancel *cancel;
    int done_fd;
};

static void *cancel_main(void *context)
{
    struct cancelling *cancelling = context;
    char reason[256];
    PQcancel(cancelling->cancel, reason, sizeof(reason));
    PQfreeCancel(cancelling->cancel);
    close(cancelling->done_fd);
    free(cancelling);
    return NULL;
}

/* A command that still runs when we leave (a slot that waits for old transactions) must end with
 * us. PQcancel waits for the server without a limit, so it has a thread of its own, which is left
 * behind where the server is silent. */
static void cancel_command(struct mr_pg_conn *conn)
{
    int fds[2];
    PGcancel *cancel = PQgetCancel(conn->libpq);
    if (cancel == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        PQfreeCancel(cancel);
        return;
    }
    struct cancelling *cancelling = MR_NEW(struct cancelling);
    *cancelling = (struct cancelling){.cancel = cancel, .done_fd = fds[1]};
    pthread_t thread;
    if (pthread_create(&thread, NULL, cancel_main, cancelling) != 0) {
        PQfreeCancel(cancel);
        close(fds[1]);
        free(cancelling);
    } else {
        pthread_detach(thread);
        mr_wait_readable(fds[0], CANCEL_WAIT_MS);
    }
    close(fds[0]);
}

mr_status mr_pg_run(struct mr_pg_conn *conn, const struct mr_pg_limit *limit, const char *command,
                    enum mr_pg_form form, PGresult **ret_result, struct mr_error *ret_error)
{
    if (conn->broken) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT,
                       "the connection was left in the middle of an answer");
    }
    bool sent = form == MR_PG_ONE_STATEMENT
                    ? PQsendQueryParams(conn->libpq, command, 0, NULL, NULL, NULL, NULL, 0)
                    : PQsendQuery(conn->libpq, command);
    if (!sent) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    if (form == MR_PG_BY_ROW) {
        PQsetSingleRowMode(conn->libpq);
    }
    mr_status status = flush_output(conn, limit, ret_error);
    status = MR_THEN(status, mr_pg_wait_result(conn, limit, ret_error));
    if (status != MR_OK) {
        conn->broken = true;
        if (status == MR_AGAIN) {
            cancel_command(conn);
        }
        return status;
    }
    *ret_result = PQgetResult(conn->libpq);
    return *ret_result == NULL ? mr_pg_fail_broken(conn->libpq, ret_error) : MR_OK;
}

/* Takes `libpq` and all that follows it. The first failure is the answer; what the server has to
 * say besides is read to its end, so that it may be asked again. */
static mr_status pg_conn_query_take_answer(struct mr_pg_conn *conn, struct mr_pg_limit *limit,
                                           struct mr_pg_result *result, PGresult *libpq,
                                           const struct mr_pg_shape *shape,
                                           struct mr_error *ret_error)
{
    mr_status answer = MR_OK;
    while (libpq != NULL) {
        int64_t held = mr_pg_held();
        mr_status status = pg_conn_query_take_result(conn, result, libpq, shape, ret_error);
        limit->held_max += mr_pg_held() - held; /* ours, which has its own limit */
        PQclear(libpq);
        if (status == MR_ERR_PROTOCOL || conn->broken) {
            conn->broken = true;
            return status;
        }
        if (answer == MR_OK && status != MR_OK) {
            answer = status;
            ret_error = NULL;
        }
        status = mr_pg_wait_result(conn, limit, ret_error);
        if (status != MR_OK) {
            conn->broken = true;
            return answer == MR_OK ? status : answer;
        }
        libpq = PQgetResult(conn->libpq);
    }
    if (answer == MR_OK && result->taken < shape->rows_min) {
        return wrong_answer(shape, "fewer rows than there must be", ret_error);
    }
    return answer;
}

static mr_status pg_conn_query_ask(struct mr_pg_conn *conn, const char *command,
                                   const struct mr_pg_shape *shape, uint32_t limit_ms,
                                   struct mr_pg_result *result, struct mr_error *ret_error)
{
    struct mr_pg_limit limit = mr_pg_limit_begin(conn->stop_fd, limit_ms);
    PGresult *libpq;
    MR_TRY(mr_pg_run(conn, &limit, command, MR_PG_BY_ROW, &libpq, ret_error));
    return pg_conn_query_take_answer(conn, &limit, result, libpq, shape, ret_error);
}

mr_status mr_pg_query(struct mr_pg_conn *conn, struct mr_text *command,
                      const struct mr_pg_shape *shape, struct mr_pg_result **ret_result,
                      struct mr_error *ret_error)
{
    return mr_pg_query_within(conn, command, shape, MR_PG_ANSWER_MS, ret_result, ret_error);
}

mr_status mr_pg_query_within(struct mr_pg_conn *conn, struct mr_text *command,
                             const struct mr_pg_shape *shape, uint32_t limit_ms,
                             struct mr_pg_result **ret_result, struct mr_error *ret_error)
{
    struct mr_pg_result *result = MR_NEW(struct mr_pg_result);
    result->columns = (uint32_t)strlen(shape->columns);
    mr_status status = pg_conn_query_ask(conn, command->data, shape, limit_ms, result, ret_error);
    mr_text_done(command);
    if (status != MR_OK) {
        mr_pg_result_free(result);
        return status;
    }
    *ret_result = result;
    return MR_OK;
}

mr_status mr_pg_command(struct mr_pg_conn *conn, const char *command, uint32_t limit_ms,
                        struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {.about = "a change"};
    struct mr_pg_result none = {0};
    return pg_conn_query_ask(conn, command, &shape, limit_ms, &none, ret_error);
}

mr_status mr_pg_ask(struct mr_pg_conn *conn, struct mr_text *command,
                    const struct mr_pg_shape *shape, const struct mr_pg_result **ret_result,
                    struct mr_error *ret_error)
{
    mr_pg_result_free(conn->answer);
    conn->answer = NULL;
    MR_TRY(mr_pg_query(conn, command, shape, &conn->answer, ret_error));
    *ret_result = conn->answer;
    return MR_OK;
}

mr_status mr_pg_ask_rows(struct mr_pg_conn *conn, struct mr_text *command,
                         const struct mr_pg_shape *shape, mr_pg_row_fn take, void *context,
                         struct mr_error *ret_error)
{
    struct mr_pg_result row = {
        .columns = (uint32_t)strlen(shape->columns), .take = take, .context = context};
    mr_status status =
        pg_conn_query_ask(conn, command->data, shape, MR_PG_ANSWER_MS, &row, ret_error);
    mr_text_done(command);
    free(row.bytes);
    free(row.at);
    return status;
}

static struct mr_text command_of(const char *format, va_list arguments)
{
    struct mr_text command = {0};
    mr_sql_vformat(&command, format, arguments);
    return command;
}

mr_status mr_pg_askf(struct mr_pg_conn *conn, const struct mr_pg_shape *shape,
                     const struct mr_pg_result **ret_result, struct mr_error *ret_error,
                     const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct mr_text command = command_of(format, arguments);
    va_end(arguments);
    return mr_pg_ask(conn, &command, shape, ret_result, ret_error);
}

mr_status mr_pg_ask_number(struct mr_pg_conn *conn, const char *about, char kind,
                           int64_t *ret_number, struct mr_error *ret_error, const char *format, ...)
{
    const struct mr_pg_shape shape = {about, (const char[]){kind, '\0'}, 1, 1};
    const struct mr_pg_result *result;
    va_list arguments;
    va_start(arguments, format);
    struct mr_text command = command_of(format, arguments);
    va_end(arguments);
    MR_TRY(mr_pg_ask(conn, &command, &shape, &result, ret_error));
    *ret_number = kind == 'b'   ? mr_pg_result_true(result, 0, 0)
                  : kind == 'l' ? (int64_t)mr_pg_result_lsn(result, 0, 0)
                                : mr_pg_result_number(result, 0, 0);
    return MR_OK;
}

mr_status mr_pg_commandf(struct mr_pg_conn *conn, uint32_t limit_ms, struct mr_error *ret_error,
                         const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct mr_text command = command_of(format, arguments);
    va_end(arguments);
    mr_status status = mr_pg_command(conn, command.data, limit_ms, ret_error);
    mr_text_done(&command);
    return status;
}
