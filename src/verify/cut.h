/* A moment of the database: which transactions a snapshot sees. Values only. Any thread.
 *
 * A commit is in the WAL before sessions see it, so no position says which transactions a snapshot
 * sees; its list of running ones does (manual, "Transaction ID and Snapshot Information Functions":
 * pg_current_snapshot). It has numbers of 64 bits and of top transactions alone, and so have
 * records. xmax is after the last one that has ended: one from there on may have begun, and
 * committed in the WAL. A standby's snapshot has no such list, but a place. */
#pragma once

#include "event/event.h"

struct mr_cut {
    uint64_t xmin, xmax;
    uint64_t next;     /* transactions from this number on began after it */
    uint64_t *running; /* in ascending order */
    uint32_t running_count;
    mr_lsn before;   /* end of the WAL when the snapshot was not taken yet */
    mr_lsn after;    /* what the snapshot sees is before it */
    mr_lsn replayed; /* of a standby: it sees what commits before that; 0: numbers tell */
};

/* "xmin:xmax:xip,xip,…" */
MR_MUST_USE bool mr_cut_parse(const char *text, struct mr_cut *ret);
void mr_cut_done(struct mr_cut *cut);

/* Whether the snapshot sees the transaction, by the lower 32 bits of its number, and where it
 * commits. */
bool mr_cut_sees(const struct mr_cut *cut, uint32_t xid, mr_lsn commit_lsn);
