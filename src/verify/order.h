/* Whether a partition's records came in the order of their positions. A record at or before the
 * highest position is a repeat: at least once may send one after a failure, as it was, and goes on
 * with each that came after it until the highest is passed. A run may end before that only by
 * another one, which begins at or before the place that is due. Copied rows, which come again at
 * other places, are not due (docs/dev/proofs.md, "Why it is sound"). One thread. */
#pragma once

#include "verify/fold.h"

struct mr_order;

struct mr_order_counts {
    uint64_t repeats;
    uint64_t unlike;    /* of them, those that do not equal the record that they repeat */
    uint64_t backwards; /* of them, those that repeat none */
    uint64_t forgotten; /* of them, those of a record that is remembered no more */
    uint64_t elsewhere; /* of them, those of a record of another partition */
    /* runs of repeats that leave out a record, or end before the highest position */
    uint64_t broken;
};

/* The first record that is found to be out of order, or at which a run of repeats leaves others
 * out. */
struct mr_order_fault {
    const char *what; /* NULL: there is none */
    struct mr_fold_record record;
};

struct mr_order *mr_order_new(uint32_t partitions);
void mr_order_free(struct mr_order *order); /* NULL is fine */

/* `digest`: of what must be equal. */
void mr_order_take(struct mr_order *order, const struct mr_fold_record *record,
                   struct mr_digest digest);

/* Whether the partition has had a record. */
bool mr_order_has_begun(const struct mr_order *order, int32_t partition);

/* After the last record. `moment`: a run of repeats of what was sent after it may be under way
 * still. */
struct mr_order_counts mr_order_end(struct mr_order *order, mr_lsn moment);

/* After mr_order_end. */
struct mr_order_fault mr_order_first_fault(const struct mr_order *order);

/* If there is a repeat. */
struct mr_fold_record mr_order_first_repeat(const struct mr_order *order);
