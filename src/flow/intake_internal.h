/* The source thread's own state, and what its files do for each other. That thread alone calls and looks; inside
 * flow/intake*.c only.
 *
 *   intake.c          the loop, and the orderly stop
 *   intake_events.c   what the source calls: events become records of the batch at hand
 *   intake_confirm.c  positions: what a batch carries, what PostgreSQL is told, and when
 *   intake_session.c  the sink's sessions, PostgreSQL's connections, where the stream is opened
 *   intake_failure.c  what becomes of a failure; the transaction that is skipped
 *   intake_wait.c     how the thread waits
 *
 * A field belongs to the file it stands under: that file says what it means. A new session or connection
 * (intake_session.c) sets back what held for the old one only. */
#ifndef MR_PIPELINE_INTAKE_INTERNAL_H
#define MR_PIPELINE_INTAKE_INTERNAL_H

#include "flow/pipeline_internal.h"
#include "flow/poison.h"

/* A server that asks again and again at one position (it is shutting down) is answered no faster. */
#define MR_REPLY_INTERVAL_NS (INT64_C(100) * 1000000)
/* A question that comes so soon behind the one before is of that kind. */
#define MR_INSISTENCE_NS (4 * MR_REPLY_INTERVAL_NS)

struct mr_intake {
    struct mr_pipeline *pipeline;
    struct mr_lane *lane; /* of the stream */

    /* ---- intake_events.c ---- */
    struct mr_source_handler handler;
    struct mr_position
        appended;     /* of the change appended last: anything up to it is a repetition */
    bool counts;      /* transactions are told, */
    mr_lsn begun_lsn; /* and the BEGIN of the one that commits there is with the sink */
    bool in_transaction;
    bool appended_in_transaction; /* part of the running transaction is in a batch */
    bool hears_signals;           /* a companion does, */
    struct mr_position signalled; /* and this is the position of the last signal */
    mr_lsn transaction_lsn;       /* commit LSN of the running transaction */
    uint64_t changes_at_begin;    /* `changes` and bytes made when the running transaction began */
    uint64_t bytes_at_begin;
    mr_lsn received;  /* the furthest of this connection */
    mr_lsn asked_at;  /* position of the server's last question, */
    int64_t asked_ns; /* when it came, */
    uint32_t asked;   /* and how often it asked there, soon and with nothing in between */
    /* Own counts, published after each round. */
    uint64_t changes, skipped, transactions;

    /* ---- intake_confirm.c ---- */
    mr_lsn
        marked; /* the highest of this session: a repeated commit must not take a position back */
    mr_lsn carried; /* the highest that a batch carries; one above it waits for the next batch */
    bool ends_rows; /* what waits is the end of a transaction, whose rows are with the sink */
    int64_t position_ns;  /* when a batch without records carried a position last */
    mr_lsn confirmed;     /* what the server was told last on this connection, */
    int64_t confirmed_ns; /* and when */
    bool reply_wanted;    /* the server has asked since */
    int64_t question_ns;  /* when we asked, and nothing has come since; 0: not asked */
    uint64_t heard_bytes; /* received when something came last, */
    int64_t heard_ns;     /* and when that was */

    /* ---- intake_session.c ---- */
    uint32_t session;
    enum mr_handshake_state state; /* as it was last seen, of that session */
    mr_lsn last_row_before; /* of earlier sessions, the commit LSN of the last row handed over */
    mr_lsn told;            /* what the server was told last; 0 again once a connection was lost */
    bool was_lost; /* a connection was: a server that has crashed may know less than it was told */
    bool takes_over; /* options.handed_over counts: nothing was stored when this process began */
    mr_lsn
        delivered_below; /* of the running transaction, another program has delivered what lies there */
    uint32_t prepared; /* companions that have nothing more to prepare */
    bool is_mending;   /* they prepare again, because the stream could not be opened; until it is */

    /* ---- intake_failure.c ---- */
    uint32_t attempt;          /* failed connections in a row */
    struct mr_error lost_told; /* the failure that was logged last */
    struct mr_poison poison;
    struct mr_position failed_at; /* the item that failed; {0}: none at hand */
    bool skipping;                /* the running transaction, as it was asked for */
    bool skip_done;               /* and that was told, or that it is behind */
    mr_lsn start_behind; /* the server can't send what commits before; 0: nothing of the kind */

    /* ---- intake_wait.c ---- */
    int64_t pause_ns; /* the last wait left the socket alone for so long; 0: it did not */
    uint64_t received_at_wait, transactions_at_wait; /* bytes and transactions before it */
    bool was_in_transaction;

    /* ---- intake.c ---- */
    int64_t stalled_ns;       /* since when there has been no room; 0: there is */
    bool resting;             /* PostgreSQL is left alone until there is */
    int64_t stop_deadline_ns; /* 0: not stopping */
};

/* The sink stores positions. */
static inline bool mr_intake_stores(const struct mr_intake *intake)
{
    return intake->pipeline->sink->storage != MR_STORES_NOTHING;
}

/* With nothing new to tell, a status update still goes out so often. */
static inline int64_t mr_intake_idle_ns(const struct mr_intake *intake)
{
    return (int64_t)intake->pipeline->options.idle_ms * 1000000;
}

static inline bool mr_intake_is_open(const struct mr_intake *intake)
{
    return intake->state == MR_HANDSHAKE_OPEN;
}

static inline bool mr_intake_has_records(const struct mr_intake *intake)
{
    return mr_lane_has_records(intake->lane);
}

/* All zero but for the pipeline, its lane and the handler. */
void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline);

/* From now on companions get what the stream brings, or no longer. Between two rounds. */
void mr_intake_watch(struct mr_intake *intake, bool watches);

/* Notes that everything before `lsn` is appended. The batch at hand carries it, or else the next one. */
void mr_intake_mark(struct mr_intake *intake, mr_lsn lsn);

/* The batch at hand has records: it carries what waits. */
void mr_intake_carry(struct mr_intake *intake);

/* A position waits, and there are no records that it could go with. */
bool mr_intake_position_waits(const struct mr_intake *intake);

/* Nanoseconds until it sets out alone; INT64_MAX: nothing waits, or there is no batch for it. */
int64_t mr_intake_position_due_in(const struct mr_intake *intake, int64_t now_ns);

/* Hands over a batch without records that carries it, if it is due. */
void mr_intake_send_position(struct mr_intake *intake, int64_t now_ns);

/* All that was handed over is published, and nothing is at hand. */
bool mr_intake_all_published(const struct mr_intake *intake);

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

/* Notes what was received: whatever comes is a sign of life. */
void mr_intake_heard(struct mr_intake *intake, int64_t now_ns);

/* The socket was read to its end, and there was nothing. MR_ERR_TRANSIENT: our question has stayed unanswered. */
mr_status mr_intake_silence(const struct mr_intake *intake, int64_t now_ns,
                            struct mr_error *ret_error);

/* Where the stream must go on, if that is known: where the sink has it stored, or what this process has seen since. */
bool mr_intake_known(const struct mr_intake *intake, struct mr_checkpoint *ret_known);

/* Begins anew when the sink has. */
void mr_intake_follow_session(struct mr_intake *intake);

/* What is streamed changes, as the source's `options` say. The stream begins anew where it is, on another connection. */
void mr_intake_change_source(struct mr_intake *intake, const void *options);

/* One step towards an open stream. */
mr_status mr_intake_connect(struct mr_intake *intake, struct mr_error *ret_error);

/* Ends the connection, and with it the claim; what was handed over stays in flight. */
void mr_intake_disconnect(struct mr_intake *intake, int64_t deadline_ns);

/* Sorts a failure, and waits before the next try. MR_OK: try again; else it is fatal. */
mr_status mr_intake_failed(struct mr_intake *intake, mr_status status, struct mr_error *error);

/* The place that failed is behind, if the transaction that has come to its end is at or after it. */
void mr_intake_forget_poison(struct mr_intake *intake, mr_lsn commit_lsn);

/* With --skip-commit-lsn: a transaction begins / the one that is skipped ends. */
/* At the beginning of a transaction: what another program has delivered of it. */
void mr_intake_take_over(struct mr_intake *intake, const struct mr_transaction *transaction);

void mr_intake_skip_begin(struct mr_intake *intake, mr_lsn commit_lsn);
void mr_intake_skip_end(struct mr_intake *intake, mr_lsn commit_lsn);

/* Tells once when the stream is at `lsn`, past the transaction that is to be skipped, and it was not there. */
void mr_intake_check_skip(struct mr_intake *intake, mr_lsn lsn);

/* For poll(), rounded up. */
int mr_intake_timeout_ms(int64_t wait_ns);

/* Waits until the source has something; a batch that is partly filled goes out first. */
void mr_intake_wait_for_source(struct mr_intake *intake);

/* Waits for the sink thread to give something back, for `limit_ns` at most. */
void mr_intake_wait_for_sink(struct mr_intake *intake, int64_t limit_ns);

/* There is a batch, and room for what is held back. */
bool mr_intake_has_room(const struct mr_intake *intake);

/* Waits for both. */
void mr_intake_wait_for_batch(struct mr_intake *intake);

#endif
