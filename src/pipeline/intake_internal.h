/* The source thread's own state, and what its files do for each other. That thread alone calls and looks; inside
 * pipeline/intake*.c only.
 *
 *   intake.c          the loop, and the orderly stop
 *   intake_events.c   what the source calls: events become records of the batch at hand
 *   intake_confirm.c  what PostgreSQL may be told, and when; markers
 *   intake_session.c  the sink's sessions, PostgreSQL's connections, where the stream is opened
 *   intake_failure.c  what becomes of a failure; the transaction that is skipped
 *   intake_wait.c     how the thread waits
 *
 * A field belongs to the file it stands under: that file says what it means. A new session or connection
 * (intake_session.c) sets back what held for the old one only. */
#ifndef MR_PIPELINE_INTAKE_INTERNAL_H
#define MR_PIPELINE_INTAKE_INTERNAL_H

#include "pipeline/pipeline_internal.h"
#include "pipeline/poison.h"

/* With nothing new to tell, a status update still goes out so often: well below any sane
 * wal_sender_timeout, and the server's own question is answered anyway. */
#define MR_STATUS_IDLE_NS (INT64_C(10) * 1000000000)
/* A server that asks again and again at one position (it is shutting down) is answered no faster. */
#define MR_REPLY_INTERVAL_NS (INT64_C(100) * 1000000)

struct mr_intake {
    struct mr_pipeline *pipeline;

    /* ---- intake_events.c ---- */
    struct mr_source_handler handler;
    struct mr_batch *filling;
    size_t wanted; /* with `handler.hold`: the block that there was no room for; 0: any */
    struct mr_oversizer oversizer;
    uint64_t sequence; /* of the batch handed over last in this session */
    struct mr_position
        appended; /* of the change appended last: anything up to it is a repetition */
    bool in_transaction;
    bool appended_in_transaction;            /* part of the running transaction is in a batch */
    mr_lsn transaction_lsn;                  /* commit LSN of the running transaction */
    const struct mr_relation *last_relation; /* of the last change of it; NULL: none yet */
    uint64_t changes_at_begin; /* `changes` and bytes made when the running transaction began */
    uint64_t bytes_at_begin;
    mr_lsn asked_at; /* position of the server's last question, */
    uint32_t asked;  /* and how often it asked there with nothing in between */
    /* Own counts, published after each round. */
    uint64_t changes, records, bytes, skipped, transactions;

    /* ---- intake_confirm.c ---- */
    /* A position that may be confirmed once all batches up to `marker_sequence` are delivered. */
    mr_lsn marker_lsn;
    uint64_t marker_sequence;
    mr_lsn
        marked; /* the highest of this session: a repeated commit must not take a position back */
    mr_lsn
        marker_sent; /* the highest that a batch carries; a marker above it needs one of its own */
    int64_t marker_sent_ns;
    bool marker_ends_rows; /* of a transaction, which are with the sink already */
    mr_lsn confirmed;      /* the most we may tell */
    mr_lsn told;           /* what the server was told last on this connection */
    int64_t told_ns;
    bool reply_wanted; /* the server has asked since */

    /* ---- intake_session.c ---- */
    uint32_t session;
    bool claimed;         /* the stream is ours, whether it is open or not */
    uint32_t claimed_in;  /* the session of the last claim, plus one */
    bool stored_is_stale; /* the claim may be younger than what the sink has told */
    bool connected;
    bool ever_connected;

    /* ---- intake_failure.c ---- */
    uint32_t attempt;          /* failed connections in a row */
    struct mr_error lost_told; /* the failure that was logged last */
    struct mr_poison poison;
    struct mr_position failed_at; /* the item that failed; {0}: none at hand */
    bool skipping;                /* the running transaction, as it was asked for */
    bool skip_done;               /* and that was told, or that it is behind */
    mr_lsn start_behind; /* the server can't send what commits before; 0: nothing of the kind */

    /* ---- intake_wait.c ---- */
    uint64_t changes_at_wait; /* `changes` when the thread last waited */

    /* ---- intake.c ---- */
    int64_t heard_ns;
    int64_t stalled_ns;       /* since when there has been no room; 0: there is */
    int64_t round_ns;         /* when this round of receiving began, */
    int64_t round_wall_ns;    /* also by the wall clock */
    int64_t stop_deadline_ns; /* 0: not stopping */
};

/* The sink stores positions. */
static inline bool mr_intake_stores(const struct mr_intake *intake)
{
    return intake->pipeline->sink->storage != MR_STORES_NOTHING;
}

static inline bool mr_intake_has_records(const struct mr_intake *intake)
{
    return intake->filling != NULL && intake->filling->record_count > 0;
}

/* All zero but for the pipeline, the handler and the policy for oversize. */
void mr_intake_init(struct mr_intake *intake, struct mr_pipeline *pipeline);

/* The batch at hand, which holds records or a position, is the sink thread's from now on. */
void mr_intake_hand_over(struct mr_intake *intake);

/* Whether what was held back may go on. */
bool mr_intake_may_go_on(const struct mr_intake *intake);

/* Notes that everything before `lsn` is appended; once that is delivered, `lsn` may be confirmed. */
void mr_intake_mark(struct mr_intake *intake, mr_lsn lsn);

/* A position that no batch carries waits to be stored by the sink. */
bool mr_intake_marker_pending(const struct mr_intake *intake);

/* Nanoseconds until it is due; INT64_MAX: there is none. */
int64_t mr_intake_marker_due_in(const struct mr_intake *intake, int64_t now_ns);

/* Hands over an empty batch that carries it, if it is due and a batch is free. */
void mr_intake_send_marker(struct mr_intake *intake, int64_t now_ns);

bool mr_intake_all_delivered(const struct mr_intake *intake);

/* Works out what may be confirmed now. */
void mr_intake_update_confirmed(struct mr_intake *intake);

/* Tells the server what is confirmed. */
mr_status mr_intake_tell(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error);

/* Nanoseconds until a status update is due; 0 or less: now. */
int64_t mr_intake_feedback_due_in(const struct mr_intake *intake, int64_t now_ns);

/* Tells the server what is confirmed, if that is due. MR_ERR_TRANSIENT: the connection is dead. */
mr_status mr_intake_feedback(struct mr_intake *intake, int64_t now_ns, struct mr_error *ret_error);

/* Begins anew when the sink has. */
void mr_intake_follow_session(struct mr_intake *intake);

/* One step towards an open stream: `connected` says whether that was the last. */
mr_status mr_intake_connect(struct mr_intake *intake, struct mr_error *ret_error);

/* Ends the connection, and with it the claim; what was handed over stays in flight. */
void mr_intake_disconnect(struct mr_intake *intake, int64_t deadline_ns);

/* Sorts a failure, and waits before the next try. MR_OK: try again; else it is fatal. */
mr_status mr_intake_failed(struct mr_intake *intake, mr_status status, struct mr_error *error);

/* The place that failed is behind, if the transaction that has come to its end is at or after it. */
void mr_intake_forget_poison(struct mr_intake *intake, mr_lsn commit_lsn);

/* With --skip-commit-lsn: a transaction begins / the one that is skipped ends. */
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

/* Waits for a batch, or for room for what is held back. */
void mr_intake_wait_for_batch(struct mr_intake *intake);

#endif
