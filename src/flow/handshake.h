/* Who may do what with the stream: the two threads' steps from a claim to an open stream, and back.
 *
 *     claim -> load -> open
 *
 * The source thread claims the stream at the server, the sink thread then loads how far the sink
 * is, the source thread opens the stream there. A session is the sink's; its end is the end of
 * everything, a lost connection only of the claim. handshake.c holds the table of transitions. One
 * word in memory: a state is never seen with another session's number. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

enum mr_handshake_state {
    MR_HANDSHAKE_NONE,      /* the stream is not claimed, and how far the sink is is not known */
    MR_HANDSHAKE_CLAIMED,   /* the stream is ours */
    MR_HANDSHAKE_LOADING,   /* the sink reads how far it is */
    MR_HANDSHAKE_READY,     /* that is known */
    MR_HANDSHAKE_OPEN,      /* the stream runs */
    MR_HANDSHAKE_DETACHED,  /* how far the sink is is known, but the claim is lost */
    MR_HANDSHAKE_RECLAIMED, /* ours again; another instance may have had it in between */
    MR_HANDSHAKE_OUTDATED,  /* what was loaded may not be true any more: the session is to end */
    MR_HANDSHAKE_STATES
};

enum mr_handshake_event {
    /* The source thread's. */
    MR_HANDSHAKE_CLAIM,
    MR_HANDSHAKE_OPENED,
    MR_HANDSHAKE_LOSE,    /* the connection ends, and with it the claim */
    MR_HANDSHAKE_OUTDATE, /* the same, because the server is ahead of what was loaded */
    /* The sink thread's. */
    MR_HANDSHAKE_LOAD,
    MR_HANDSHAKE_LOADED, /* a sink that stores nothing needs no claim for it */
    MR_HANDSHAKE_END,    /* of the session */
    MR_HANDSHAKE_EVENTS
};

struct mr_handshake {
    /* session and state; all zero is the first session, in MR_HANDSHAKE_NONE */
    _Atomic uint64_t word;
};

struct mr_handshake_view {
    uint32_t session; /* 0, 1, 2 … */
    enum mr_handshake_state state;
};

/* The session and its state. A thread that sees a state sees all that was written before the step
 * to it. Any thread. */
struct mr_handshake_view mr_handshake_look(const struct mr_handshake *handshake);

/* One step, by the thread whose event it is; END begins the next session. False, and nothing has
 * happened, when `session` is over; the sink thread's never is. A step that the table does not have
 * is a bug. */
bool mr_handshake_step(struct mr_handshake *handshake, uint32_t session,
                       enum mr_handshake_event event);

/* The source thread has a connection that holds the claim. */
static inline bool mr_handshake_is_claimed(enum mr_handshake_state state)
{
    return state != MR_HANDSHAKE_NONE && state != MR_HANDSHAKE_DETACHED &&
           state != MR_HANDSHAKE_OUTDATED;
}

/* What the table says; MR_HANDSHAKE_STATES: there is no such step. */
enum mr_handshake_state mr_handshake_next(enum mr_handshake_state state,
                                          enum mr_handshake_event event);
