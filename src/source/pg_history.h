/* Whether a stream that is opened again goes on where it ended.
 *
 * A slot that was dropped, made again or moved, and a server that was restored or replaced, leave a gap that nobody
 * would notice: the server starts wherever the slot is and says nothing. So each open compares with what this process
 * has seen and confirmed; a difference that may hide rows is MR_ERR_HISTORY. Source thread.
 */
#ifndef MR_SOURCE_PG_HISTORY_H
#define MR_SOURCE_PG_HISTORY_H

#include "source/pg_conn.h"

/* Zeroed: nothing known yet, whatever comes is taken. */
struct mr_pg_history {
    char *system_id;   /* of the cluster; owned */
    uint32_t timeline; /* of the last open */
    mr_lsn confirmed;  /* the most that the slot can have been told; 0: nothing known */
    int backend;       /* process of the server that held the slot for us last */
};

void mr_pg_history_done(struct mr_pg_history *history);

/* Asks the server who it is. Another cluster, a log that ends before what was confirmed, or a timeline that branched
 * off before it, are gaps. `conn` is a replication connection; `slot` is for the message. */
mr_status mr_pg_history_check_server(struct mr_pg_history *history, struct mr_pg_conn *conn,
                                     int stop_fd, const char *slot, struct mr_error *ret_error);

/* The slot is missing: a gap when it has been there before. */
mr_status mr_pg_history_check_missing(const struct mr_pg_history *history, const char *slot,
                                      struct mr_error *ret_error);

/* The slot is free and stands at `confirmed` ("16/B374D848"): a gap when that is beyond what was confirmed. */
mr_status mr_pg_history_check_slot(struct mr_pg_history *history, struct mr_pg_conn *conn,
                                   const char *slot, const char *confirmed,
                                   struct mr_error *ret_error);

/* The slot is held by a process of the server. One that is not ours means that another millrace has taken over and
 * may move the slot, so what was known of its position is forgotten. */
void mr_pg_history_slot_held(struct mr_pg_history *history, int backend);

/* The server is told that everything before `lsn` is delivered. */
static inline void mr_pg_history_confirmed(struct mr_pg_history *history, mr_lsn lsn)
{
    if (lsn > history->confirmed) {
        history->confirmed = lsn;
    }
}

/* Where a timeline ended, by the text of the history file of a later one; 0 when it is not among its ancestors. */
mr_lsn mr_pg_timeline_end(const char *history_file, uint32_t timeline);

#endif
