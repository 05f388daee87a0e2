/* Where a pipeline stands, as a sink stores it with the events, and what that says of a server and a slot that are
 * about to be read on from there. Values only. Any thread.
 */
#ifndef MR_EVENT_CHECKPOINT_H
#define MR_EVENT_CHECKPOINT_H

#include "base/status.h"
#include "event/asked_stored.h"
#include "event/copy_stored.h"
#include "event/event.h"

/* Whose stream it is. */
struct mr_identity {
    char system_id[24]; /* of the cluster, decimal */
    uint32_t timeline;
    char slot[64];
    char publication[256]; /* 63 characters in the database's encoding */
};

struct mr_checkpoint {
    struct mr_identity identity;
    /* Every transaction that ends at or before this is with the sink as a whole. */
    mr_lsn end_lsn;
    /* The last change that is with the sink; {0} when only whole transactions are told of. */
    struct mr_position position;
    /* Existing rows are being copied, and nothing else is told of yet; NULL: they are not. Of whoever made it. */
    struct mr_copy_stored *copy;
    /* Existing rows are asked for while the stream runs, or were; NULL: not yet. Of whoever made it. */
    struct mr_asked_stored *asked;
};

/* Frees what it has, and not itself. */
void mr_checkpoint_done(struct mr_checkpoint *state);

/* Whether `next`, which was stored after `known`, says less. Each says of a stream what is with the sink, and that stays
 * true; so of all that is stored the furthest counts, and not what was stored last: an instance that was frozen, and
 * has lost the stream meanwhile, may store once more when it wakes up. */
bool mr_checkpoint_is_behind(const struct mr_checkpoint *next, const struct mr_checkpoint *known);

/* What the server says before the stream begins. */
struct mr_server_position {
    struct mr_identity identity;
    bool slot_exists;
    mr_lsn slot_confirmed; /* confirmed_flush_lsn; 0: not known */
    mr_lsn flushed;        /* end of the server's log */
    mr_lsn switched_at;    /* where the server left `stored.identity.timeline`; 0: it is on it */
};

/* MR_OK when the stream may go on at `stored`; MR_ERR_HISTORY, with what happened and what to do, when rows may be
 * missing or may have been told of that the server does not have. */
mr_status mr_checkpoint_verify(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, struct mr_error *ret_error);

#endif
