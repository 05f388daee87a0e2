#include "postgres/server/pg_unsent.h"

#include <endian.h>

#include "base/clock.h"
#include "base/wake.h"
#include "event/lsn.h"

/* Records begin at multiples of it (MAXALIGN in xlogrecord.h). */
enum { RECORD_ALIGN = 8, FIRST_STEP = 256 };
enum { PAGE = 8192, PAGE_HEADER_MAX = 40 }; /* SizeOfXLogLongPHD */
enum { ASK_EVERY_MS = 500, SLOT_PAUSE_MS = 20 };

#define FIND_LIMIT_NS                                                                              \
    (INT64_C(30) * 1000000000) /* below that after which the thread counts as stuck */

struct search {
    const struct mr_pg_source_options *options;
    mr_lsn change;
    int stop_fd;
    int64_t deadline_ns;
};

static mr_status pause_for(const struct search *search, int fd, int ms, struct mr_error *ret_error)
{
    if (mr_monotonic_ns() > search->deadline_ns) {
        return mr_fail(ret_error, MR_ERR_TRANSIENT, "it took too long");
    }
    return mr_wait_either(search->stop_fd, fd, ms) ? MR_AGAIN : MR_OK;
}

/* The end of the last record is sent as the end of its page, or as where the next begins after the
 * page's header. */
static mr_status read_end(struct mr_pg_conn *conn, mr_lsn *ret_end, struct mr_error *ret_error)
{
    int64_t lsn;
    MR_TRY(mr_pg_ask_number(conn, "the end of the WAL", 'l', &lsn, ret_error,
                            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
                            " ELSE pg_current_wal_flush_lsn() END"));
    mr_lsn end = (mr_lsn)lsn;
    *ret_end = end % PAGE <= PAGE_HEADER_MAX ? end - end % PAGE : end;
    return MR_OK;
}

/* A stream from `start`. The slot may still be that of the one before. */
static mr_status pg_unsent_begin_stream(const struct search *search, mr_lsn start, mr_lsn *ret_end,
                                        struct mr_pg_conn **ret_conn, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = search->options;
    for (;;) {
        MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
        MR_TRY(mr_pg_connect(&options->connection, true, search->stop_fd, &conn, ret_error));
        mr_status status = read_end(conn, ret_end, ret_error);
        status = MR_THEN(status, mr_pg_start_replication(conn, options->slot, options->publication,
                                                         false, start, ret_error));
        if (status == MR_OK) {
            *ret_conn = conn;
            conn = NULL;
        }
        if (status != MR_ERR_TRANSIENT) {
            return status;
        }
        MR_TRY(pause_for(search, -1, SLOT_PAUSE_MS, ret_error));
    }
}

/* Keepalive: Byte1('k') Int64(end of WAL) …; data is of a transaction that commits later. */
static bool is_past(mr_slice payload, mr_lsn end)
{
    uint64_t at;
    if (payload.len < 1 + sizeof(at) || payload.data[0] != 'k') {
        return payload.len > 0 && payload.data[0] == 'w';
    }
    memcpy(&at, payload.data + 1, sizeof(at));
    return mr_lsn_of_server(be64toh(at)) >= end;
}

/* MR_OK: the stream gets past the transaction; MR_END: it fails at it. */
static mr_status follow_stream(const struct search *search, struct mr_pg_conn *conn, mr_lsn end,
                               struct mr_error *ret_error)
{
    for (;;) {
        mr_slice payload;
        mr_status status = mr_pg_receive(conn, &payload, NULL, ret_error);
        if (status == MR_ERR_POISON) {
            return mr_pg_failed_change(conn) == search->change ? MR_END : MR_OK;
        }
        if (status == MR_OK) {
            if (is_past(payload, end)) {
                return MR_OK;
            }
            MR_TRY(pause_for(search, -1, 0, ret_error));
        }
        if (status == MR_AGAIN) {
            MR_TRY(pause_for(search, mr_pg_socket(conn), ASK_EVERY_MS, ret_error));
            status = mr_pg_send_status(conn, 0, 0, true, NULL, ret_error);
        }
        if (status == MR_END) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT, "the stream ended");
        }
        MR_TRY(status);
    }
}

static mr_status try_from(const struct search *search, mr_lsn start, bool *ret_fails,
                          mr_lsn *ret_end, struct mr_error *ret_error)
{
    MR_PG_CLOSED struct mr_pg_conn *conn = NULL;
    MR_TRY(pg_unsent_begin_stream(search, start, ret_end, &conn, ret_error));
    mr_status status = follow_stream(search, conn, *ret_end, ret_error);
    *ret_fails = status == MR_END;
    return status == MR_END ? MR_OK : status;
}

mr_status mr_pg_unsent_find(const struct mr_pg_source_options *options, mr_lsn change, mr_lsn from,
                            int stop_fd, mr_lsn *ret_commit_lsn, struct mr_error *ret_error)
{
    const struct search search = {.options = options,
                                  .change = change,
                                  .stop_fd = stop_fd,
                                  .deadline_ns = mr_monotonic_ns() + FIND_LIMIT_NS};
    /* It commits at `low` or later, and before `high` (0: not known yet). */
    mr_lsn low = change > from ? change : from;
    low -= low % RECORD_ALIGN;
    mr_lsn high = 0;
    mr_lsn step = FIRST_STEP;
    while (high == 0 || high - low > RECORD_ALIGN) {
        mr_lsn middle = high == 0 ? low + step : low + (high - low) / 2;
        middle -= middle % RECORD_ALIGN;
        bool fails;
        mr_lsn end;
        MR_TRY(try_from(&search, middle, &fails, &end, ret_error));
        if (fails && (middle > end || middle <= low)) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT, "it fails wherever the stream begins");
        }
        *(fails ? &low : &high) = middle;
        step *= 2;
    }
    *ret_commit_lsn = low;
    return MR_OK;
}
