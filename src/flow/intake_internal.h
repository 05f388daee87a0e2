/* The source thread's own state, and what its files do for each other. Only that thread calls and
 * reads; only flow/intake*.c and flow/port.c include it.
 *
 *   intake.c          the loop, and the orderly stop
 *   intake_events.c   what the source calls: events become records of the batch at hand
 *   intake_confirm.c  positions: what a batch carries, what is confirmed to PostgreSQL, and when
 *   intake_session.c  the sink's sessions, PostgreSQL's connections, where the stream is opened
 *   intake_failure.c  what becomes of a failure; the transaction that is skipped
 *   intake_wait.c     how the thread waits
 *
 * A new session or connection (intake_session.c) resets what held for the old one only. */
#pragma once

#include "flow/pipeline_internal.h"
#include "flow/poison.h"

/* A server that asks again and again at one position (it is shutting down) is answered no
 * faster. */
#define MR_REPLY_INTERVAL_NS (INT64_C(100) * 1000000)
/* A question that comes so soon after the one before is of that kind. */
#define MR_INSISTENCE_NS (4 * MR_REPLY_INTERVAL_NS)

/* Positions on their way to the sink. appended grows within a session; carried <= marked. */
struct mr_carry {
    struct mr_position appended; /* of what was appended last: anything up to it is a repetition */
    mr_lsn marked;    /* all before it is appended; a repeated commit does not take it back */
    mr_lsn carried;   /* the highest that a batch carries; one above it waits for the next batch */
    bool ends_rows;   /* what waits is the end of a transaction whose rows are with the sink */
    int64_t alone_ns; /* when a batch without records carried a position last */
    struct mr_commit last;  /* the last transaction with rows that is appended as a whole */
    mr_lsn last_row_before; /* of earlier sessions, the commit LSN of the last row handed over */
};

/* Status updates. */
struct mr_feedback {
    mr_lsn confirmed;     /* what was confirmed last on this connection, */
    int64_t confirmed_ns; /* and when */
    mr_lsn known;         /* what was confirmed last; 0 again once a connection was lost */
    bool was_lost;        /* a connection was: a server that crashed may know less than that */
    bool reply_wanted;    /* the server has asked since */
    mr_lsn asked_at;      /* position of its last question, */
    int64_t asked_ns;     /* when it came, */
    uint32_t asked;       /* and how often it asked there, soon and with nothing in between */
    int64_t question_ns;  /* when we asked, and nothing has come since; 0: not asked */
    uint64_t heard_bytes; /* received when something came last, */
    int64_t heard_ns;     /* and when that was */
};

/* The transaction that is being received. */
enum mr_running_state {
    MR_RUNNING_NONE,
    MR_RUNNING_BEGUN,    /* nothing of it is in a batch */
    MR_RUNNING_APPENDED, /* part of it is */
    MR_RUNNING_SKIPPED,  /* --skip-commit-lsn names it: all of it counts as a repetition */
};

struct mr_running {
    enum mr_running_state state;
    mr_lsn commit_lsn;
    uint64_t changes_at_begin; /* changes and bytes made when it began */
    uint64_t bytes_at_begin;
};

/* Of the transaction that is skipped: a person has to look at its other rows, too. */
struct mr_skipped {
    struct {
        char name[2 * 64 + 1]; /* "schema.table" */
        uint64_t changes;
    } tables[8]; /* the first ones; `name` "": free */
    uint64_t others;
};

/* What the stream is not to bring. */
struct mr_exceptions {
    bool takes_over; /* options.handed_over counts: nothing was stored when this process began */
    mr_lsn delivered_below; /* of the running transaction, another program has delivered this */
    bool skip_settled;  /* the transaction to be skipped was skipped, or can't come; it is logged */
    mr_lsn start_after; /* the server can't send what commits before; 0: it can */
    struct mr_skipped skipped;
};

struct mr_failure {
    uint32_t attempt;       /* failed connections in a row */
    struct mr_error logged; /* the failure that was logged last */
    struct mr_poison poison;
    struct mr_position at; /* the item that failed; {0}: none at hand */
};

/* What lies between the server and us. */
enum mr_socket {
    MR_SOCKET_LARGE, /* megabytes, and it can wait for so many (SO_RCVLOWAT) */
    MR_SOCKET_SMALL, /* some fifty kilobytes of small messages */
};

struct mr_wait {
    enum mr_socket socket; /* of the stream that is open */
    int64_t pause_ns;      /* the last wait left the socket alone for so long; 0: it did not */
    uint64_t bytes, transactions; /* received before that wait */
    bool in_transaction;          /* then */
    int64_t stalled_ns;           /* since when there has been no room; 0: there is */
    bool resting;                 /* PostgreSQL is left alone until there is */
};

/* A topic of transactions. */
struct mr_metadata {
    bool is_sent;
    mr_lsn begun_lsn; /* the BEGIN of the transaction that commits there is with the sink */
};

/* What companions (flow/companions.h) have to do with the stream. */
struct mr_accompanied {
    uint32_t prepared; /* so many have nothing more to prepare */
    bool are_mending;  /* they prepare again, because the stream could not be opened; until it is */
    struct mr_position signalled; /* of the last signal that they have heard */
};

struct mr_intake {
    struct mr_pipeline *pipeline;
    struct mr_lane *lane;        /* of the stream */
    struct mr_by_source *counts; /* the pipeline's, which this thread writes */
    struct mr_source_handler handler;
    uint32_t session;
    enum mr_handshake_state state; /* as it was last seen, of that session */
    mr_lsn received;               /* the furthest of this connection */
    uint64_t asked;                /* mr_identity_asked of it */
    struct mr_running running;
    struct mr_carry carry;
    struct mr_feedback feedback;
    struct mr_exceptions exceptions;
    struct mr_failure failure;
    struct mr_wait wait;
    struct mr_metadata metadata;
    struct mr_accompanied companions;
    int64_t stop_deadline_ns; /* 0: not stopping */
};

static inline bool mr_intake_in_transaction(const struct mr_intake *intake)
{
    return intake->running.state != MR_RUNNING_NONE;
}

/* Something at `position` is in a batch now. */
static inline void mr_intake_appended(struct mr_intake *intake, struct mr_position position)
{
    MR_ASSERT(mr_position_compare(position, intake->carry.appended) > 0);
    intake->carry.appended = position;
}

/* The same, of the running transaction. */
static inline void mr_intake_appended_of_running(struct mr_intake *intake,
                                                 struct mr_position position)
{
    mr_intake_appended(intake, position);
    MR_ASSERT(intake->running.state != MR_RUNNING_SKIPPED);
    intake->running.state = MR_RUNNING_APPENDED;
}

/* With nothing new to confirm, a status update still goes out so often. */
static inline int64_t mr_intake_idle_ns(const struct mr_intake *intake)
{
    return (int64_t)intake->pipeline->options.idle_ms * 1000000;
}

static inline bool mr_intake_is_open(const struct mr_intake *intake)
{
    return intake->state == MR_HANDSHAKE_OPEN;
}

/* All zero but for the pipeline, its lane and the handler. */
void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline);

/* Commit LSN of the last row handed over, in any session; 0: none was. */
static inline mr_lsn mr_intake_last_row(const struct mr_intake *intake)
{
    mr_lsn last = intake->carry.appended.commit_lsn;
    return last > intake->carry.last_row_before ? last : intake->carry.last_row_before;
}

/* Appends a record that is made already, between two transactions; sets its position. MR_AGAIN:
 * there is no place for it now. */
mr_status mr_intake_append_record(struct mr_intake *intake, struct mr_record *record,
                                  struct mr_error *ret_error);

/* Notes that everything before `lsn` is appended. The batch at hand carries it, or else the next
 * one. */
void mr_intake_mark(struct mr_intake *intake, mr_lsn lsn);

/* A position waits, and there are no records that it could go with. */
bool mr_intake_position_waits(const struct mr_intake *intake);

/* Nanoseconds until it sets out alone; INT64_MAX: nothing waits, or there is no batch for it. */
int64_t mr_intake_position_due_in(const struct mr_intake *intake, int64_t now_ns);

/* Hands over a batch without records that carries it. */
void mr_intake_send_position(struct mr_intake *intake, int64_t now_ns);

static inline mr_lsn mr_intake_published(const struct mr_intake *intake)
{
    return atomic_load(&intake->pipeline->published);
}

/* Confirms to the server what is published. */
mr_status mr_intake_confirm(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error);

/* Nanoseconds until a status update is due; 0 or less: now. */
int64_t mr_intake_feedback_due_in(const struct mr_intake *intake, int64_t now_ns);

/* Does so if it is due. */
mr_status mr_intake_feedback(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error);

/* Where the stream must go on, if that is known: where the sink has it stored, or what this process
 * has seen since. */
bool mr_intake_known(const struct mr_intake *intake, struct mr_checkpoint *ret_known);

/* Begins again when the sink has begun another session. */
void mr_intake_follow_session(struct mr_intake *intake);

/* What is streamed changes, as the source's `options` say. The stream begins again where it is, on
 * another connection. */
void mr_intake_change_source(struct mr_intake *intake, const void *options);

/* One step towards an open stream. */
mr_status mr_intake_connect(struct mr_intake *intake, struct mr_error *ret_error);

/* Ends the connection, and with it the claim; what was handed over stays in flight. */
void mr_intake_disconnect(struct mr_intake *intake, int64_t deadline_ns);

/* Sorts a failure, and waits before the next try. MR_OK: try again; else it is fatal. */
mr_status mr_intake_failed(struct mr_intake *intake, mr_status status, struct mr_error *error);

/* The place that failed is passed, if the transaction that has ended is at or after it. */
void mr_intake_forget_poison(struct mr_intake *intake, mr_lsn commit_lsn);

/* With --skip-commit-lsn: a transaction has begun / a change of the one that is skipped has come /
 * that one has ended. */
void mr_intake_skip_begin(struct mr_intake *intake, mr_lsn commit_lsn);
void mr_intake_skip_change(struct mr_intake *intake, const struct mr_relation *table);
void mr_intake_skip_end(struct mr_intake *intake, mr_lsn commit_lsn);

/* Logs once when the stream is at `lsn`, past the transaction that is to be skipped, and it was not
 * there. */
void mr_intake_check_skip(struct mr_intake *intake, mr_lsn lsn);

/* Sleeps until the thread is woken (by the sink thread, or for a stop), one of the events of `fd`
 * comes (-1: of none), or time is up. True: one has come. */
bool mr_intake_sleep(struct mr_intake *intake, int fd, short events, int timeout_ms);

/* Waits until the source has something; a batch that is partly filled goes out first. */
void mr_intake_wait_for_source(struct mr_intake *intake);

/* Waits for the sink thread to give something back, for `limit_ns` at most. */
void mr_intake_wait_for_sink(struct mr_intake *intake, int64_t limit_ns);

/* There is a batch, and room for what is held back. */
bool mr_intake_has_room(const struct mr_intake *intake);

/* Waits for both. */
void mr_intake_wait_for_batch(struct mr_intake *intake);
