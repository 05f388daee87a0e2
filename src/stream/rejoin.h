/* Where a server goes on with a stream that was delivered up to some place: is it still the stream
 * that was delivered?
 *
 * A volume that was put back without a recovery has the cluster's identifier, its timeline and its
 * slots, at an earlier moment. Once it has been written to past the place at which the stream is to
 * go on, nothing else tells it from the server that it was. So where the slot stands before that
 * place, the stream begins earlier: at the last transaction with rows that was delivered, which the
 * stored position names (struct mr_commit), or where the slot stands, if that is later. Up to the
 * place just that transaction may come again, and nothing else with rows; it is not handed on. A
 * slot that stands at the place needs no comparison: our confirmation has brought it there, in this
 * history (or somebody has made it by hand: docs/upgrading-postgresql.md).
 *
 * Of a transaction that was delivered in part (exactly once), what lies before it may not have rows
 * either.
 *
 * What was sent is sent again in the same order and form: the server reads its log and the catalog
 * as it was then (PostgreSQL documentation, "Logical Decoding Concepts"; SnapBuildXactNeedsSkip in
 * snapbuild.c: a transaction comes if its commit record does not begin before the start). Another
 * publication has other transactions: then nothing is compared.
 *
 * The source's thread; the source owns it. */
#pragma once

#include "ports/source.h"

enum mr_rejoin_state {
    MR_REJOIN_NONE,
    MR_REJOIN_COMPARES,
    MR_REJOIN_REFUSED, /* it is another one; stays until another place is to be joined */
};

struct mr_rejoin {
    enum mr_rejoin_state state;
    struct mr_commit last;
    mr_lsn start; /* the place */
    mr_lsn end;   /* so far is compared: that, or the commit of what was delivered in part */
    mr_lsn slot_confirmed; /* where the slot stands, and is to stay until all is compared */
    bool has_last;         /* it came, or lies before the slot */
    bool passes_last;      /* it came, and can't be read: the next connection begins after it */
    mr_lsn running;        /* where the transaction commits that is being compared; 0: none is */
    struct mr_source_handler handler;     /* compares */
    const struct mr_source_handler *next; /* gets all that comes after that */
};

/* Whether the stream that would go on at `stored` (NULL: none) was seen to be another one at this
 * slot. */
bool mr_rejoin_refuses(const struct mr_rejoin *rejoin, const struct mr_checkpoint *stored,
                       const struct mr_server_position *server);

/* A stream is to go on at `start`, which is not refused; `stored` may be NULL. `is_first`: this
 * process has handed on nothing, so stored->position is what an earlier one has delivered. The
 * result is where it is to begin. */
mr_lsn mr_rejoin_begin(struct mr_rejoin *rejoin, const struct mr_checkpoint *stored,
                       const struct mr_server_position *server, mr_lsn start, bool is_first);

/* Who is to take what comes next, in the end `handler`. */
const struct mr_source_handler *mr_rejoin_handler(struct mr_rejoin *rejoin,
                                                  const struct mr_source_handler *handler);

/* What came with that handler. MR_ERR_TRANSIENT: it is another stream. That is no MR_ERR_HISTORY
 * before the stream is to begin again (mr_rejoin_refuses), where a copy may mend it. */
mr_status mr_rejoin_look(const struct mr_rejoin *rejoin, struct mr_error *ret_error);

/* A change can't be read (MR_ERR_POISON). True: it was delivered before, and need not be: key and
 * settings may be others by now. What follows its transaction is compared with the next
 * connection. */
bool mr_rejoin_passes(struct mr_rejoin *rejoin);

/* What may be confirmed now, where `flushed` is delivered. */
mr_lsn mr_rejoin_confirms(const struct mr_rejoin *rejoin, mr_lsn flushed);

/* The connection ended. */
void mr_rejoin_end(struct mr_rejoin *rejoin);
