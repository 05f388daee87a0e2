/* Whose stream it is: one instance at a time, of one cluster, one timeline, one slot. Source
 * thread. */
#pragma once

#include "event/checkpoint.h"
#include "postgres/catalog/pg_options.h"

/* Who streams from a slot. */
struct mr_pg_owner {
    bool exists;
    bool is_same_pipeline;
    bool may_replicate; /* else it is no instance of anything: every role may take the lock */
    uint32_t pid;
    char role[64];
    char who[256]; /* "millrace host:process prefix at 10.0.0.7, process 4711 of the server" */
};

mr_status mr_pg_find_owner(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           struct mr_pg_owner *ret_owner, struct mr_error *ret_error);

/* Whether more than one instance of the pipeline is there. */
mr_status mr_pg_has_standby(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                            bool *ret_standby, struct mr_error *ret_error);

/* Waits until no other instance holds the slot's name: an advisory lock in the connection that
 * streams, which dies with it, so that a standby takes over within a tenth of a second. A second
 * lock, shared, says which pipeline it is: beside another pipeline's instance it is refused
 * (MR_ERR_CONFIG) after `handover_ms`, at least two seconds. `stands_by` is true while it waits. */
mr_status mr_pg_claim(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      _Atomic bool *stands_by, struct mr_error *ret_error);

/* Reads the server's identity. */
mr_status mr_pg_identity(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         struct mr_identity *ret_identity, struct mr_error *ret_error);

/* Reads where the server and its slot stand. */
mr_status mr_pg_where(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                      struct mr_server_position *ret_server, struct mr_error *ret_error);

/* Where the server left the timeline of what is stored; 0: it is on it. */
mr_status mr_pg_left_at(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                        const struct mr_checkpoint *stored, mr_lsn *ret_lsn,
                        struct mr_error *ret_error);

/* As mr_pg_where, and verifies that the stream may go on where `stored` says (NULL: nothing is
 * stored), or begin, at `start` where another program's ends; where a slot is, also that its
 * publication was there in time. MR_ERR_HISTORY when rows may be missing. */
mr_status mr_pg_identify(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                         const struct mr_checkpoint *stored, mr_lsn start,
                         struct mr_server_position *ret_server, struct mr_error *ret_error);
