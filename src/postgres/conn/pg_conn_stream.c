/* The copy-both stream of a connection. */
#include <endian.h>
#include <poll.h>

#include "base/clock.h"
#include "event/lsn.h"
#include "postgres/conn/pg_conn_internal.h"
#include "postgres/conn/pg_errors.h"
#include "postgres/conn/quote.h"

enum {
    /* A read that brought less has most likely emptied the socket: the next one is worth its system
     * call when the socket says that there is more. In a burst a read fills libpq's 16 KiB. */
    READ_BYTES_FEW = 8192,
};

mr_status mr_pg_start_replication(struct mr_pg_conn *conn, const char *slot,
                                  const char *publication, bool messages, mr_lsn start,
                                  struct mr_error *ret_error)
{
    /* An identifier inside a literal inside the command: quoted twice. */
    MR_TEXT(name);
    MR_TEXT(names);
    mr_sql_add_identifier(&name, publication);
    mr_sql_add_option(&names, name.data);
    char at[24];
    snprintf(at, sizeof(at), MR_LSN_FORMAT, MR_LSN_ARGS(mr_lsn_at_server(start)));
    MR_TEXT(command);
    mr_sql_format(
        &command,
        "START_REPLICATION SLOT %I LOGICAL %s (proto_version '1', publication_names %s%s)", slot,
        at, names.data, messages ? ", messages 'true'" : "");
    struct mr_pg_limit limit = mr_pg_limit_begin(conn->stop_fd, MR_PG_ANSWER_MS);
    PGresult *result;
    mr_status status = mr_pg_run(conn, &limit, command.data, MR_PG_WHOLE, &result, ret_error);
    if (status == MR_ERR_TRANSIENT && conn->broken && limit.deadline_ns <= mr_monotonic_ns()) {
        return mr_fail(ret_error, status,
                       "PostgreSQL does not answer in time that the stream begins; a pooler such "
                       "as Pgpool-II keeps that answer, so if there is one, connect to PostgreSQL "
                       "itself");
    }
    MR_TRY(status);
    ExecStatusType kind = PQresultStatus(result);
    if (kind == PGRES_FATAL_ERROR) {
        status = mr_pg_fail_result(conn->libpq, result, "replication slot", ret_error);
    } else if (kind != PGRES_COPY_BOTH) {
        status = mr_fail(ret_error, MR_ERR_PROTOCOL,
                         "the server was asked to stream and does something else; this is no "
                         "PostgreSQL, or one that this version does not know");
    }
    PQclear(result);
    return status;
}

static mr_status flush_some(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    int left = PQflush(conn->libpq);
    conn->unsent = left == 1;
    return left < 0 ? mr_pg_fail_broken(conn->libpq, ret_error) : MR_OK;
}

/* libpq ends the stream at any message that is none of a stream, and takes it for the beginning of
 * an answer (getCopyDataMessage in its fe-protocol3.c), whose end PQgetResult would wait for
 * without a limit. Only one who has said that he is leaving is owed an answer. MR_AGAIN: it is on
 * its way. */
static mr_status await_reason(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    if (!conn->ended) {
        conn->ended = true;
        conn->end_limit = mr_pg_limit_begin(-1, 0);
    }
    if (!PQisBusy(conn->libpq)) {
        return MR_OK;
    }
    if (!conn->leaving) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "replication stream: the server answers a question that was not asked; this "
                       "is no PostgreSQL, or one that this version does not know");
    }
    MR_TRY(mr_pg_consume(conn->libpq, &conn->end_limit, ret_error));
    return PQisBusy(conn->libpq) ? MR_AGAIN : MR_OK;
}

/* The stream ended: libpq has the reason as a result. */
static mr_status stream_end(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    MR_TRY(await_reason(conn, ret_error));
    PGresult *result = PQgetResult(conn->libpq);
    if (result == NULL) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    mr_status status = MR_END;
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        status = mr_pg_fail_stream(conn->libpq, result, &conn->failed_change, ret_error);
    }
    PQclear(result);
    return status;
}

/* As an older server says it with an error. */
static mr_status fail_publication(struct mr_error *ret_error)
{
    const char *remedy;
    mr_status status = mr_pg_error_classify("42704", "publication", &remedy);
    return mr_fail(ret_error, status,
                   "replication stream: the server passes over rows, for there was no publication "
                   "when they were written; %s",
                   remedy);
}

mr_status mr_pg_sees_publication(const struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    return conn->publication_skipped ? fail_publication(ret_error) : MR_OK;
}

mr_lsn mr_pg_failed_change(const struct mr_pg_conn *conn)
{
    return conn->failed_change;
}

void mr_pg_forget(struct mr_pg_conn *conn)
{
    if (conn->received != NULL) {
        PQfreemem(conn->received);
        conn->received = NULL;
    }
}

mr_status mr_pg_receive(struct mr_pg_conn *conn, mr_slice *ret_payload, uint64_t *ret_reads,
                        struct mr_error *ret_error)
{
    mr_pg_forget(conn);
    if (MR_UNLIKELY(conn->ended)) {
        return stream_end(conn, ret_error);
    }
    int len = PQgetCopyData(conn->libpq, &conn->received, 1);
    if (len == 0) {
        if (conn->unsent) {
            MR_TRY(flush_some(conn, ret_error));
        }
        size_t brought = conn->brought;
        conn->brought = 0;
        if (brought > 0 && brought < READ_BYTES_FEW) {
            return MR_AGAIN;
        }
        static const struct mr_pg_limit none = {.stop_fd = -1};
        MR_TRY(mr_pg_consume(conn->libpq, &none, ret_error));
        if (ret_reads != NULL) {
            ++*ret_reads;
        }
        len = PQgetCopyData(conn->libpq, &conn->received, 1);
    }
    /* What comes after the warning may be confirmed, and is after the row. */
    if (MR_UNLIKELY(conn->publication_skipped)) {
        return fail_publication(ret_error);
    }
    if (MR_LIKELY(len > 0)) {
        conn->brought += (size_t)len;
        *ret_payload = (mr_slice){.data = (const uint8_t *)conn->received, .len = (size_t)len};
        return MR_OK;
    }
    return len == 0 ? MR_AGAIN : stream_end(conn, ret_error);
}

static uint8_t *put_u64(uint8_t *to, uint64_t value)
{
    uint64_t big = htobe64(value);
    memcpy(to, &big, sizeof(big));
    return to + sizeof(big);
}

/* Standby status update: Byte1('r') Int64(written) Int64(flushed) Int64(applied) Int64(client time,
 * µs since 2000) Byte1(reply now). PostgreSQL documentation, "Streaming Replication Protocol". */
mr_status mr_pg_send_status(struct mr_pg_conn *conn, mr_lsn written, mr_lsn flushed,
                            bool reply_requested, uint8_t *ret_sent, struct mr_error *ret_error)
{
    uint8_t message[MR_PG_STATUS_LEN] = {'r'};
    uint8_t *at = message + 1;
    at = put_u64(at, mr_lsn_at_server(written));
    at = put_u64(at, mr_lsn_at_server(flushed));
    at = put_u64(at, mr_lsn_at_server(flushed));
    at = put_u64(at, (uint64_t)(mr_wall_ns() / 1000 - MR_PG_EPOCH_US));
    *at = reply_requested ? 1 : 0;
    if (ret_sent != NULL) {
        memcpy(ret_sent, message, sizeof(message));
    }
    if (PQputCopyData(conn->libpq, (const char *)message, sizeof(message)) < 0) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    return flush_some(conn, ret_error);
}

int mr_pg_socket(const struct mr_pg_conn *conn)
{
    return PQsocket(conn->libpq);
}

mr_status mr_pg_end_replication(struct mr_pg_conn *conn, int64_t deadline_ns)
{
    if (PQputCopyEnd(conn->libpq, NULL) < 0) {
        return MR_ERR_TRANSIENT;
    }
    conn->leaving = true;
    struct mr_pg_limit limit = {.stop_fd = -1, .deadline_ns = deadline_ns};
    for (;;) {
        mr_slice payload;
        mr_status status = mr_pg_receive(conn, &payload, NULL, NULL);
        if (status == MR_AGAIN) {
            MR_TRY(flush_some(conn, NULL));
            short events = (short)(POLLIN | (conn->unsent ? POLLOUT : 0));
            status = mr_pg_wait_socket(conn->libpq, events, &limit, NULL);
        } else if (mr_monotonic_ns() > deadline_ns) {
            status = MR_ERR_TRANSIENT; /* a server may talk on for ever */
        }
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
    }
}
