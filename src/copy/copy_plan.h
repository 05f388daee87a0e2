/* What is read of a copy, and by whom: tables in their order, a large one in pieces of as many
 * pages each, so that several workers read it at once; and which row of a table is its first and
 * its last, whichever worker reads it. Inside copy/ only.
 *
 * It also knows how far the copy is with the sink: each lane's pieces are open until all their rows
 * are.
 *
 * A worker that has read a row holds it until it has read the next. When that is another table's,
 * no piece of the first one is left to take. Its row is then the table's last if nobody else holds
 * one and all pieces are read to their ends. Who is not the last hands over first, and lets go
 * then: so the marked row is the last in the sink, too. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "copy/copies.h"
#include "copy/readers.h"

struct mr_copy_piece {
    uint32_t table; /* of copy->tables */
    uint32_t head;  /* the first of those whose rows the stream has as the same relation's */
    struct mr_copy_range range;
    uint64_t bytes;
};

/* How far a lane is: so many of its pieces are complete, and the next one is up to that place (0:
 * nothing of it is). */
struct mr_copied {
    uint64_t step; /* of the lane, that says so */
    uint64_t pieces;
    uint64_t place;
};

struct mr_plan_table {
    uint32_t oid, filenode;
    struct mr_copy_range *ranges; /* of its pieces */
    uint32_t pieces;
    /* Under `lock`. */
    uint32_t taken; /* by somebody, */
    uint32_t safe;  /* and with the sink as a whole */
    bool was_begun; /* by an earlier attempt */
    /* Under `rows`. */
    uint32_t unread; /* pieces that are not read to their end */
    uint64_t row_count;
    _Atomic int64_t begun_ns, ended_ns;
    /* Partitions may have one relation: what follows is of all of them, and in the first. */
    uint32_t head;
    uint32_t all_pieces;
    uint32_t all_unread; /* under `rows`, and */
    uint32_t holders;    /* workers that hold a row */
    _Atomic bool began;  /* the first row is with the sink, or on its way there */
    /* For those who look; the plan outlives the copy. */
    char name[MR_COPY_TABLE_NAME_SIZE];
    _Atomic uint64_t rows_read,
        bytes_read;        /* with those of earlier attempts, as far as they count */
    uint64_t bytes_before; /* of these, what those have done */
    uint64_t rows_estimated, bytes;
};

/* A lane's pieces that are not with the sink as a whole, in the order in which it took them. */
struct mr_plan_lane {
    struct mr_copy_piece *open;
    uint32_t count, capacity;
    uint64_t done; /* pieces before them */
    /* By their steps: what the sink does not have yet. */
    struct mr_copied *notes;
    uint32_t note_count, note_capacity;
};

struct mr_copy_plan {
    const struct mr_copy *copy;   /* as long as somebody takes pieces */
    bool counts;                  /* the sink's session, that it is made for, goes on */
    bool is_told, is_stored;      /* the stored record was to say how far it is, and says it */
    struct mr_plan_table *tables; /* as copy->tables; no pieces: it is not wanted, or it is done */
    uint32_t table_count;
    uint32_t *order; /* of the tables that are read; those of one relation follow each other */
    uint32_t count;
    pthread_mutex_t lock; /* a short one: the sink thread takes it for each batch */
    uint32_t at;          /* in `order`: the table whose pieces are handed out */
    struct mr_plan_lane lanes[MR_COPY_LANES_MAX];
    struct mr_copy_stored state; /* without parts and the tables that this attempt ends */
    /* Held while a row that has a mark is on its way, which may last; the sink thread never waits
     * for it. */
    pthread_mutex_t rows;
    pthread_cond_t change; /* of `unread` or `holders` */
    _Atomic bool began;    /* the first row of all is handed over */
};

/* `order`: `count` indexes of copy->tables, those of one relation (which follow each other there,
 * too) in a row; the plan's from now on. `workers` will share the pieces. What copy->resumed says
 * is done is left out. */
struct mr_copy_plan *mr_copy_plan_new(const struct mr_copy *copy, uint32_t *order, uint32_t count,
                                      uint32_t workers);
void mr_copy_plan_free(struct mr_copy_plan *plan); /* NULL is fine */

/* The next piece, of `lane` (0, 1, …) from now on; false: there is none left. Of one table all are
 * handed out before the next one's. Any worker. */
bool mr_copy_plan_take(struct mr_copy_plan *plan, uint32_t lane, struct mr_copy_piece *ret_piece);

/* That lane's next batch carries `copied.step`. Its thread. */
void mr_copy_plan_note(struct mr_copy_plan *plan, uint32_t lane, struct mr_copied copied);

/* All of that lane up to the step is with the sink. Steps of an earlier plan say nothing of this
 * one. Sink thread. */
void mr_copy_plan_safe(struct mr_copy_plan *plan, uint32_t lane, uint64_t step);

/* How far it is by that; `rows`: handed over in this attempt. The caller frees it. */
struct mr_copy_stored *mr_copy_plan_state(struct mr_copy_plan *plan, uint64_t rows);

/* The caller has read the first row of a relation since it came to it; it holds one of it until
 * mr_copy_plan_let_go. */
void mr_copy_plan_hold(struct mr_copy_plan *plan, uint32_t head);

/* A piece is read to its end, and had so many rows; true: it was the last of the table, which had
 * `*ret_rows`. */
bool mr_copy_plan_piece_read(struct mr_copy_plan *plan, uint32_t table, uint64_t rows,
                             uint64_t *ret_rows);

/* So many more rows were read, and about so many bytes of the table's file. Any worker. */
void mr_copy_plan_told(struct mr_copy_plan *plan, uint32_t table, uint64_t rows, uint64_t bytes);

/* By the rate so far; NaN: there is none yet. */
double mr_copy_seconds_left(uint64_t done, uint64_t before, uint64_t total, double seconds);

/* How far all of it is, after so many seconds; without its state, and the rows that were sent. */
struct mr_copy_stats mr_copy_plan_totals(const struct mr_copy_plan *plan, double seconds);

/* How far tables are: those under way first, then those that wait, then the others. Returns how
 * many. */
uint32_t mr_copy_plan_progress(const struct mr_copy_plan *plan,
                               struct mr_copy_table_stats *ret_tables, uint32_t capacity);

/* For the next three the caller has `rows` locked. Waits a moment; true: the mark of the row that
 * the caller holds is known. */
bool mr_copy_plan_settled(struct mr_copy_plan *plan, uint32_t head);
bool mr_copy_plan_is_last(const struct mr_copy_plan *plan, uint32_t head);
void mr_copy_plan_let_go(struct mr_copy_plan *plan, uint32_t head);
