/* Beats while a stream is open: a query of the user's, on a connection of its own, and then
 * whatever the owner does.
 *
 * A failure is counted and logged once, until a beat succeeds; the stream does not notice. The
 * connection lives for one beat, because one that is kept open would hold up a "smart" shutdown of
 * the server. */
#pragma once

#include "postgres/conn/pg_conn.h"

struct mr_pg_heartbeat_options {
    const struct mr_pg_options *connection;
    uint32_t interval_ms; /* 0: never */
    const char *query;    /* NULL: none */
    /* On the heart's thread: whether this process has the stream; and what a beat is besides the
     * query (NULL: nothing). */
    bool (*has_stream)(void *context);
    void (*beat)(void *context);
    void *context;
};

struct mr_heartbeat_counts {
    uint64_t queries; /* that were run */
    uint64_t errors;  /* that failed, or could not be sent */
};

struct mr_pg_heartbeat;

struct mr_pg_heartbeat *mr_pg_heartbeat_new(const struct mr_pg_heartbeat_options *options);
void mr_pg_heartbeat_free(struct mr_pg_heartbeat *heartbeat); /* after stop; NULL is fine */

/* Without an interval they do nothing. Stopping cuts a query short. */
mr_status mr_pg_heartbeat_start(struct mr_pg_heartbeat *heartbeat, struct mr_error *ret_error);
void mr_pg_heartbeat_stop(struct mr_pg_heartbeat *heartbeat);

/* Any thread; of NULL it is nothing. */
struct mr_heartbeat_counts mr_pg_heartbeat_counts(const struct mr_pg_heartbeat *heartbeat);
