/* A chunk of a table that is read while the stream runs: which of its rows go out, and when. Keys
 * and numbers only; the reader of the chunk has the rows. Nobody writes to the server for it, but
 * for one transaction number in the beginning. Source thread; inside pipeline/ only.
 *
 * A chunk is read in one transaction, with one snapshot S, which pg_current_snapshot tells whole.
 * Let V be the transactions that S sees. S sees one if its number is below S.xmax and not in S.xip
 * (pg_visible_in_snapshot). The chunk is the table after all of V and nothing else. The stream has
 * transactions in the order of their commit records, and V is in general not a beginning of that
 * order: a commit is in the WAL, and perhaps in the stream, before others see it (xact.c,
 * CommitTransaction: RecordTransactionCommit, which waits for synchronous standbys, too, then
 * ProcArrayEndTransaction). But of those that changed one row it is: a transaction that changes a
 * row waits until all who changed it before are seen to have ended (heapam.c, XactLockTableWait;
 * the same for a key in a unique index).
 *
 * Four moments: A, from which on the stream's transactions are noted; R, before the chunk is asked
 * for, from which on the stream's keys are noted; S; and p, when the stream has come to L, the
 * WAL's end as read after S, or later: each row may have a p of its own. A row goes out at p,
 * between two transactions, unless the stream had its key between R and p.
 *
 * That is right: its value is the row's in the stream at p, and none older.
 *   1. All of V is in the stream before p: S saw it, so its commit record lies before L.
 *   2. All that is in the stream before R is in V. What came before A: N is a transaction number
 *      taken after A. Numbers are given in order, so what came before A is below N, and S counts
 *      only if S.xmin >= N: all below have ended, and are seen. What came between A and R was
 *      noted: where S does not see one of them, the chunk is read again.
 *   3. The row's key was not in the stream between R and p. So those that changed the row and are
 *      in the stream before p are there before R, and in V by 2; and those of V are before p by 1.
 *      The two sets are the same one.
 * A row that does not go out is not needed: the stream had its key after R, and by 1 it has at p
 * what the chunk has, or something newer. But an update's event lacks large values that it did not
 * touch, and the topic may not have them: then the row is read again, and goes out where the stream
 * leaves it alone for so long.
 *
 * A transaction that S sees is seen by every later snapshot, and needs no note any more. What is
 * noted is bounded. Where there is no more room, the chunk is read again; where that is the room
 * for transactions, from a new A on. */
#pragma once

#include "event/event.h"

/* As pg_current_snapshot tells it; of each number the lower 32 bits, which is what the stream
 * has. */
struct mr_chunk_snapshot {
    uint32_t xmin, xmax;
    uint32_t *xip; /* malloc'ed; in order */
    uint32_t xip_count;
};

/* From its text, "10:20:10,14,15"; false: it is none. */
bool mr_chunk_snapshot_parse(const char *text, struct mr_chunk_snapshot *ret);
void mr_chunk_snapshot_done(struct mr_chunk_snapshot *snapshot);

struct mr_chunk_window;

/* Moment A. `transactions_max` of them and `bytes_max` of keys are noted; `seed`: nobody outside
 * should know it. */
struct mr_chunk_window *mr_chunk_window_new(uint32_t transactions_max, size_t bytes_max,
                                            uint64_t seed);
void mr_chunk_window_free(struct mr_chunk_window *window); /* NULL is fine */

/* The number N of a transaction that began after A, if one is wanted: in the beginning, and when
 * there was no room. */
bool mr_chunk_window_wants_number(const struct mr_chunk_window *window);
void mr_chunk_window_take_number(struct mr_chunk_window *window, uint32_t xid);

/* A row with that key was inserted, changed or deleted. `lacks`: its event lacks a value that the
 * update did not touch (TOAST). */
void mr_chunk_window_change(struct mr_chunk_window *window, mr_slice key, bool lacks);

/* All rows went (TRUNCATE). None that was read goes out: those that S saw beside it were inserted
 * after it, so the stream has their keys after it, too. */
void mr_chunk_window_truncate(struct mr_chunk_window *window);

/* The table has other columns: what was read is of no use. */
void mr_chunk_window_reshape(struct mr_chunk_window *window);

/* A transaction that changed the table, or another one, is in the stream whole; all calls for it
 * came before. */
void mr_chunk_window_commit(struct mr_chunk_window *window, uint32_t xid);

/* Moment R, between two transactions. */
void mr_chunk_window_open(struct mr_chunk_window *window);

enum mr_chunk_verdict {
    MR_CHUNK_GOOD,  /* its rows may be added */
    MR_CHUNK_HELD,  /* a transaction must be seen that is not yet: mr_chunk_window_is_held */
    MR_CHUNK_AGAIN, /* read it again */
    /* the stream had more keys meanwhile than there is room for: again, and a smaller one */
    MR_CHUNK_TOO_MUCH,
};

/* The chunk was read with that snapshot, after which the WAL ended at `wal_end`. Between two
 * transactions. Whatever is answered but MR_CHUNK_GOOD: the window is closed. */
enum mr_chunk_verdict mr_chunk_window_judge(struct mr_chunk_window *window,
                                            const struct mr_chunk_snapshot *snapshot,
                                            mr_lsn wal_end);

/* After MR_CHUNK_HELD, with any later snapshot: whether a chunk of that one would be held up,
 * too. */
bool mr_chunk_window_is_held(struct mr_chunk_window *window,
                             const struct mr_chunk_snapshot *snapshot);

/* The transaction that has held up the last snapshot: from before A, or of the stream and not yet
 * seen to have ended. */
uint32_t mr_chunk_window_holder(const struct mr_chunk_window *window);

/* Its rows in their order, the first is 0. False: it had the key already, so this is no table in
 * the order of its key. */
MR_MUST_USE bool mr_chunk_window_add(struct mr_chunk_window *window, mr_slice key);

/* Between two transactions: the stream has come to `reached`. True from moment p on, as long as the
 * chunk is good for anything: mr_chunk_window_goes_out tells of each row as of now.
 * mr_chunk_window_close ends it. */
bool mr_chunk_window_is_due(const struct mr_chunk_window *window, mr_lsn reached);

/* What was judged good has become of no use: it is to be closed, and read again. */
bool mr_chunk_window_is_void(const struct mr_chunk_window *window);

bool mr_chunk_window_goes_out(const struct mr_chunk_window *window, uint32_t row);

/* Of a row that does not go out: the stream's events of it, since R, lack a value. It is to be read
 * again. */
bool mr_chunk_window_lacks(const struct mr_chunk_window *window, uint32_t row);
void mr_chunk_window_close(struct mr_chunk_window *window);
