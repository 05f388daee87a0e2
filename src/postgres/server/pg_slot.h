/* The slot as the server sees it, looked at now and then on ordinary connections of its own.
 *
 * Never touches the streaming connection; each failure is counted, the second in a row is logged
 * (`slot_unseen`), and the next look tries again. What the stream itself would not notice, the
 * source reads here (struct mr_pg_seen). */
#pragma once

#include <stdatomic.h>

#include "postgres/conn/pg_conn.h"

enum mr_wal_status {
    MR_WAL_UNKNOWN, /* no look succeeded yet */
    MR_WAL_RESERVED,
    MR_WAL_EXTENDED,
    MR_WAL_UNRESERVED,
    MR_WAL_LOST,
    MR_WAL_STATUS_COUNT
};
const char *mr_wal_status_name(enum mr_wal_status status); /* "reserved", … */

/* Why a slot can't be read any more, as PostgreSQL 17 and later say it. */
enum mr_invalidation {
    MR_INVALIDATION_NONE,
    MR_INVALIDATION_WAL_REMOVED,
    MR_INVALIDATION_ROWS_REMOVED,
    MR_INVALIDATION_WAL_LEVEL,
    MR_INVALIDATION_IDLE_TIMEOUT,
    MR_INVALIDATION_OTHER, /* of a later version */
    MR_INVALIDATION_COUNT
};
const char *mr_invalidation_name(enum mr_invalidation invalidation); /* "none", "wal_removed", … */

enum { MR_SLOT_HOLDER_MAX = 256, MR_SLOT_WAIT_MAX = 48, MR_SLOT_TABLES_MAX = 512 };

/* What the slot costs the server, and what its walsender does. */
struct mr_slot_cost {
    mr_lsn sent_lsn; /* by the walsender; 0: nobody streams */
    /* Transactions since the one for whose sake VACUUM keeps old rows of the catalog. */
    uint64_t catalog_xmin_age;
    uint64_t held_bytes;                  /* WAL that is kept although all of it is confirmed, */
    char holder[MR_SLOT_HOLDER_MAX + 64]; /* and whose open transaction for; "": none is known */
    /* Since the server's statistics of the slot began. */
    uint64_t decoded_bytes, spilled_bytes, spilled_transactions;
    /* What a walsender that is far behind waited for in most of the last looks, "IO/WALRead", or
     * "CPU"; "": it is not behind. */
    char wait[MR_SLOT_WAIT_MAX];
    uint32_t wait_percent; /* of the looks */
    bool has_cpu;          /* the walsender is a process of this machine: what it has used, */
    double cpu_seconds;
    double cpu_cores; /* and between the last two looks; NaN: there was one */
    /* Names, three at most, looked for while the walsender is far behind or the catalog's age is
     * high: of tables that are not published and changed most, and of catalogs with rows that
     * VACUUM did not remove. */
    char others[MR_SLOT_TABLES_MAX], dead_catalogs[MR_SLOT_TABLES_MAX];
};

/* The slot's copy on a standby, which a promotion needs (manual, "Logical Replication
 * Failover"). */
enum mr_slot_copy_state {
    MR_SLOT_COPY_READY,
    MR_SLOT_COPY_ABSENT,
    /* there, but only until the standby has seen as much of the log as it needs */
    MR_SLOT_COPY_UNFINISHED,
    MR_SLOT_COPY_INVALID,
    MR_SLOT_COPY_UNREACHED, /* the host does not answer, or refuses */
};
const char *mr_slot_copy_state_name(enum mr_slot_copy_state state); /* "ready", … */

enum { MR_SLOT_COPIES_MAX = 4 };

struct mr_slot_copy {
    char host[80];
    enum mr_slot_copy_state state;
    char reason[48]; /* as PostgreSQL says it, from 17 or 19 on; "": nothing */
};

struct mr_slot_view {
    bool known; /* at least one look succeeded */
    bool exists;
    bool active;    /* somebody streams from it */
    bool has_limit; /* max_slot_wal_keep_size is set: safe_bytes and forecast mean something */
    enum mr_wal_status wal_status;
    bool failover;   /* made for standbys to copy (PostgreSQL 17 and later) */
    bool synced;     /* is, or was before a promotion, such a copy */
    bool is_standby; /* the server */
    enum mr_invalidation invalidation;
    char held_by[MR_SLOT_HOLDER_MAX]; /* what the making of the slot waits for; "": nothing */
    mr_lsn server_lsn;                /* 0: not known */
    mr_lsn confirmed_lsn;
    uint64_t retained_bytes;
    int64_t safe_bytes;
    int64_t limit_bytes;     /* max_slot_wal_keep_size; -1: there is none */
    double forecast_seconds; /* until it is lost; infinite: not at the current rate */
    double age_seconds;      /* since the last good look; NaN: none yet */
    uint64_t errors;
    struct mr_slot_cost cost;
    struct mr_slot_copy copies[MR_SLOT_COPIES_MAX];
    uint32_t copy_count;
};

/* The statements that raise the limit; "": there is none to raise. */
struct mr_slot_raise {
    char text[128];
};
struct mr_slot_raise mr_slot_raise(int64_t limit_bytes, uint64_t retained_bytes);

/* More than three quarters of what the limit allows wait to be confirmed: in danger, though nobody
 * writes for now. */
bool mr_slot_is_near(const struct mr_slot_view *view);

struct mr_pg_slot_options {
    const struct mr_pg_options *connection;
    const char *slot;
    const char *publication;
    uint32_t interval_ms; /* 0: never look */
};

/* When the last look began (monotonic; 0: never) that found so. The watcher writes, anybody reads:
 * news that nobody can miss. */
struct mr_pg_seen {
    _Atomic int64_t stops_ns;   /* the server refuses connections, because it shuts down */
    _Atomic int64_t primary_ns; /* the slot is streamed from, and the server is no standby */
};

struct mr_pg_slot;

struct mr_pg_slot *mr_pg_slot_new(const struct mr_pg_slot_options *options);
void mr_pg_slot_free(struct mr_pg_slot *slot); /* after stop; NULL is fine */

/* Has another one look, too, on the connection of each look; before the start. False: it was too
 * early for it. */
typedef bool (*mr_pg_slot_guest_fn)(void *context, struct mr_pg_conn *conn);
void mr_pg_slot_invite(struct mr_pg_slot *slot, mr_pg_slot_guest_fn guest, void *context);

mr_status mr_pg_slot_start(struct mr_pg_slot *slot, struct mr_error *ret_error);
void mr_pg_slot_stop(struct mr_pg_slot *slot);

/* Any thread. */
void mr_pg_slot_view(struct mr_pg_slot *slot, struct mr_slot_view *ret_view);

/* Lives as long as the slot. */
const struct mr_pg_seen *mr_pg_slot_seen(const struct mr_pg_slot *slot);

/* How far the stream has come, and whether there is one, here or of the instance that this one
 * stands by: said each second or so. A slot at rest is looked at once the stream goes on, or
 * breaks, though not within the interval after the last look. Where nobody says anything, no slot
 * rests. Any thread. */
void mr_pg_slot_follow(struct mr_pg_slot *slot, mr_lsn received, bool is_streamed);

/* Until the next look, after so many in a row that found all confirmed, and no more WAL than
 * before. */
uint32_t mr_slot_pause_ms(uint32_t interval_ms, uint32_t still);

/* Whether one at rest is looked at before that. */
bool mr_slot_is_due(int64_t rested_ns, uint32_t interval_ms, bool has_moved, bool is_streamed);

enum { MR_FORECAST_SAMPLES = 64 };

/* One look at the slot. */
struct mr_forecast_sample {
    int64_t time_ns;
    int64_t safe_bytes;
    int64_t retained_bytes; /* from the server's position back to restart_lsn */
    mr_lsn server_lsn;
    mr_lsn confirmed_lsn;
};

/* The last minute. */
struct mr_forecast {
    struct mr_forecast_sample samples[MR_FORECAST_SAMPLES];
    uint32_t count; /* ever added */
};

void mr_forecast_add(struct mr_forecast *forecast, const struct mr_forecast_sample *sample);

/* Seconds from `now_ns` until safe bytes reach 0 at the rate of the last minute; infinite when
 * nothing keeps the slot back or fewer than two samples are there; 0 when they are used up.
 *
 * Safe bytes alone do not tell: restart_lsn moves only when the stream meets a record of running
 * transactions, which the server writes every 15 s at most and not while it is idle (bgwriter.c,
 * LOG_SNAPSHOT_INTERVAL_MS), so after a burst that is delivered they stay low for a while. What
 * counts is what is not confirmed, if there is more of it than before; and, where all is confirmed,
 * that the slot has not moved for most of a minute while WAL was written, which is an old
 * transaction that holds it. */
double mr_forecast_seconds(const struct mr_forecast *forecast, int64_t now_ns);

/* Looks at the hosts of a connection string that names several: a copy for each that is a standby,
 * or does not answer; at most MR_SLOT_COPIES_MAX. MR_AGAIN: a stop. Any thread. */
mr_status mr_pg_look_at_copies(const struct mr_pg_options *connection, const char *slot,
                               int stop_fd, struct mr_slot_copy *ret_copies, uint32_t *ret_count);

/* For the one who makes a slot on a standby: what that waits for, and what ends it. */
#define MR_STANDBY_SLOT_WAITS                                                                      \
    "the primary, which is quiet: a standby makes a slot at its next record of running "           \
    "transactions"
#define MR_STANDBY_SLOT_REMEDY "SELECT pg_log_standby_snapshot() on the primary"

/* pg_walsender.c */

/* Seconds that a process of this machine has used, which began at `began` (since 1970); NaN: it is
 * none. Any thread. */
double mr_pg_cpu_seconds(const struct mr_pg_conn *conn, pid_t pid, double began);

/* The same of the text of /proc/<pid>/stat, for a machine that was started at `boot`. */
double mr_pg_cpu_of_stat(const char *stat, double boot, double began);

/* cost->others and cost->dead_catalogs, by the server's statistics since those began. */
mr_status mr_pg_costly_tables(struct mr_pg_conn *conn, const char *publication,
                              struct mr_slot_cost *cost, struct mr_error *ret_error);

/* What the process waits for most, in ten looks within a fifth of a second (manual, "Wait Event"):
 * type and event; "CPU": for nothing; "": there is no such process. MR_AGAIN: `stop_fd` (-1: none)
 * ended it. */
mr_status mr_pg_look_at_waits(struct mr_pg_conn *conn, int64_t pid, int stop_fd,
                              char ret_wait[MR_SLOT_WAIT_MAX], uint32_t *ret_percent,
                              struct mr_error *ret_error);
