/* The copy-both stream of a connection. */
#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/pg_conn_internal.h"

enum { STATUS_UPDATE_LEN = 1 + 8 + 8 + 8 + 8 + 1 };

/* An identifier inside a literal inside the command: quoted twice. */
static char *quote_publication(struct mr_pg_conn *conn, const char *publication)
{
    char *identifier = mr_pg_quote_identifier(conn, publication);
    char *literal = mr_pg_quote_literal(conn, identifier);
    free(identifier);
    return literal;
}

mr_status mr_pg_start_replication(struct mr_pg_conn *conn, int stop_fd, const char *slot,
                                  const char *publication, mr_lsn start, struct mr_error *ret_error)
{
    char *slot_name = mr_pg_quote_identifier(conn, slot);
    char *publications = quote_publication(conn, publication);
    bool knows_messages = mr_pg_server_version(conn) >= 140000;
    size_t size = strlen(slot_name) + strlen(publications) + 160;
    char *command = MR_ALLOC(size);
    snprintf(command, size,
             "START_REPLICATION SLOT %s LOGICAL " MR_LSN_FORMAT
             " (proto_version '1', publication_names %s%s)",
             slot_name, MR_LSN_ARGS(start), publications,
             knows_messages ? ", messages 'true'" : "");
    PGresult *result;
    mr_status status = mr_pg_run(conn, stop_fd, command, &result, ret_error);
    free(command);
    free(publications);
    free(slot_name);
    MR_TRY(status);
    if (PQresultStatus(result) != PGRES_COPY_BOTH) {
        status = mr_pg_fail_result(conn->libpq, result, "replication slot", false, NULL, ret_error);
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

/* The stream ended: libpq has the reason as a result. */
static mr_status stream_end(struct mr_pg_conn *conn, struct mr_error *ret_error)
{
    PGresult *result = PQgetResult(conn->libpq);
    if (result == NULL) {
        return mr_pg_fail_broken(conn->libpq, ret_error);
    }
    mr_status status = MR_END;
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        status =
            mr_pg_fail_result(conn->libpq, result, "replication stream", true, NULL, ret_error);
    }
    PQclear(result);
    return status;
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
    int len = PQgetCopyData(conn->libpq, &conn->received, 1);
    if (len == 0) {
        if (conn->unsent) {
            MR_TRY(flush_some(conn, ret_error));
        }
        if (!PQconsumeInput(conn->libpq)) {
            return mr_pg_fail_broken(conn->libpq, ret_error);
        }
        if (ret_reads != NULL) {
            ++*ret_reads;
        }
        len = PQgetCopyData(conn->libpq, &conn->received, 1);
    }
    if (MR_LIKELY(len > 0)) {
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

/* Standby status update: Byte1('r') Int64(written) Int64(flushed) Int64(applied) Int64(client time, µs
 * since 2000) Byte1(reply now). PostgreSQL documentation, "Streaming Replication Protocol". */
mr_status mr_pg_send_status(struct mr_pg_conn *conn, mr_lsn flushed, bool reply_requested,
                            struct mr_error *ret_error)
{
    uint8_t message[STATUS_UPDATE_LEN] = {'r'};
    uint8_t *at = message + 1;
    at = put_u64(at, flushed);
    at = put_u64(at, flushed);
    at = put_u64(at, flushed);
    at = put_u64(at, (uint64_t)(mr_wall_ns() / 1000 - MR_PG_EPOCH_US));
    *at = reply_requested ? 1 : 0;
    if (PQputCopyData(conn->libpq, (const char *)message, STATUS_UPDATE_LEN) < 0) {
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
    for (;;) {
        mr_slice payload;
        mr_status status = mr_pg_receive(conn, &payload, NULL, NULL);
        if (status == MR_AGAIN) {
            MR_TRY(flush_some(conn, NULL));
            short events = (short)(POLLIN | (conn->unsent ? POLLOUT : 0));
            status = mr_pg_wait_socket(conn->libpq, events, -1, deadline_ns, NULL);
        }
        if (status != MR_OK) {
            return status == MR_END ? MR_OK : status;
        }
    }
}
