/* The acknowledgement window: batches come home in any order, the acknowledged position moves only
 * over the oldest complete ones.
 *
 * Pure bookkeeping of one thread (the sink's). Sequences are 1, 2, 3 … without gaps. */
#pragma once

#include "event/event.h"

struct mr_ack_entry {
    mr_lsn confirm_lsn;
    struct mr_commit last;
    uint64_t step;
    bool done;
};

struct mr_ack {
    struct mr_ack_entry *entries; /* by sequence modulo capacity */
    uint32_t capacity;
    uint64_t next;         /* the sequence that is added next */
    uint64_t oldest;       /* the oldest that is not done, or `next` */
    mr_lsn acknowledged;   /* all that ends at or before it is, */
    struct mr_commit last; /* with this one as the last that has rows */
    uint64_t step;         /* of the last of these; */
    uint64_t step_sent;    /* and of the last that has set out */
};

void mr_ack_init(struct mr_ack *ack, uint32_t capacity);
void mr_ack_done(struct mr_ack *ack);

/* Forgets what is open (the session failed), and steps; `first` is the sequence that comes next.
 * What was acknowledged stays. */
void mr_ack_reset(struct mr_ack *ack, uint64_t first);

/* No further batch may set out: one of long ago is still on its way. */
bool mr_ack_full(const struct mr_ack *ack);

/* A batch sets out. `confirm_lsn` 0: it ends no transaction, and there is no `last`. Its step is
 * not below the last one's. The window is not full. */
void mr_ack_add(struct mr_ack *ack, uint64_t sequence, mr_lsn confirm_lsn,
                const struct mr_commit *last, uint64_t step);

/* A batch is delivered. True when the prefix moved: `acknowledged` and `oldest` then tell how
 * far. */
bool mr_ack_complete(struct mr_ack *ack, uint64_t sequence);
