/* What is read of a copy, and by whom: tables in their order, a large one in pieces of as many pages each, so that several
 * workers read it at once; and which row of a table is its first and its last, whoever reads it. Inside pipeline/ only.
 *
 * A worker that has read a row holds it until it has read the next. When that is another table's, no piece of the first one is
 * left to take. Its row is then the table's last if nobody else holds one and all pieces are read to their ends. Who is
 * not the last hands over first, and lets go then: so the marked row is the last in the sink, too.
 */
#ifndef MR_PIPELINE_COPY_PLAN_H
#define MR_PIPELINE_COPY_PLAN_H

#include <pthread.h>
#include <stdatomic.h>

#include "source/source.h"

struct mr_copy_piece {
    uint32_t table; /* of copy->tables */
    struct mr_copy_range range;
    uint64_t bytes;
};

struct mr_plan_table {
    uint32_t pieces, taken; /* how many it has, and those of them that somebody has begun */
    uint32_t piece_pages;
    /* Under `rows`. */
    uint32_t unread;  /* pieces that are not read to their end */
    uint32_t holders; /* workers that hold a row of it */
    uint64_t row_count;
    _Atomic int64_t begun_ns;
    _Atomic bool began; /* its first row is with the sink, or on its way there */
};

struct mr_copy_plan {
    const struct mr_copy *copy;
    struct mr_plan_table *tables; /* as copy->tables; no pieces: nobody wants it */
    uint32_t *order;              /* of the tables that are read */
    uint32_t count;
    pthread_mutex_t lock; /* over `taken` and `at` */
    uint32_t at;          /* in `order`: the table whose pieces are handed out */
    /* Held while a row that has a mark is on its way, which may last; the sink thread never waits for it. */
    pthread_mutex_t rows;
    pthread_cond_t change; /* of `unread` or `holders` */
    _Atomic bool began;    /* the first row of all is handed over */
};

/* `order`: `count` indexes of copy->tables, the plan's from now on. `workers` will share the pieces. */
void mr_copy_plan_init(struct mr_copy_plan *plan, const struct mr_copy *copy, uint32_t *order,
                       uint32_t count, uint32_t workers);
void mr_copy_plan_done(struct mr_copy_plan *plan);

/* The next piece; false: there is none left. Of one table all are handed out before the next one's. Any worker. */
bool mr_copy_plan_take(struct mr_copy_plan *plan, struct mr_copy_piece *ret_piece);

/* The caller has read the first row of a table since it came to it; it holds one of that table until mr_copy_plan_let_go. */
void mr_copy_plan_hold(struct mr_copy_plan *plan, uint32_t table);

/* A piece is read to its end, and had so many rows; true: it was the last of the table, which had `*ret_rows`. */
bool mr_copy_plan_piece_read(struct mr_copy_plan *plan, uint32_t table, uint64_t rows,
                             uint64_t *ret_rows);

/* For the next three the caller has `rows` locked. Waits a moment for what others read; true: they don't matter any more,
 * the mark of the row that the caller holds is known. */
bool mr_copy_plan_settled(struct mr_copy_plan *plan, uint32_t table);
bool mr_copy_plan_is_last(const struct mr_copy_plan *plan, uint32_t table);
void mr_copy_plan_let_go(struct mr_copy_plan *plan, uint32_t table);

#endif
