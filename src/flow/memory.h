/* The memory budget: what the flow may need at most, worked out before it starts.
 *
 * The sum is of the worst moments, each counted as what is really resident then:
 *
 *   own      the program, its libraries, plans of tables, metrics, HTTP; what is held back while
 *            values are read again. Each table counts as one that sends rows, up to a quarter of
 *            the budget in all; or as one that sends none, where that is more
 *   profiler where profiles may be taken: rings, names, profiles
 *   pool     all batches full, librdkafka's bookkeeping for their records, their compressed
 *            requests
 *   input    libpq's buffer for one row of `change_bytes_max`. It doubles, and never shrinks while
 *            the connection lasts. While existing rows are copied each reader has one, and two
 *            rows: one waits for the next (copy/copy)
 *   copied   existing rows that are copied while the stream runs: a chunk, the keys of its window
 *            and the connection's buffer; of a row that is larger than a chunk, the buffer and the
 *            row
 *   relations
 *            what the stream and the catalog tell of tables, beyond those that are configured
 *            (partitions, wide tables, new versions, keys): a sixty-fourth of the budget, a
 *            sixteenth where tables are named by a pattern, and of what the others leave up to an
 *            eighth
 *   large    changes that fit no standard batch: first the message and its records, then the
 *            records and their compressed request. The rest of the budget; at least two of
 *            `change_bytes_max`
 *
 * The pool keeps to `large` (mr_pool_admits); the rest follows from the options. Pure functions. */
#pragma once

#include "base/base.h"

struct mr_memory {
    uint64_t own;
    uint64_t profiler;
    uint64_t pool;
    uint64_t input;
    uint64_t copied;
    uint64_t relations;
    uint64_t large; /* the least it takes */
};

/* What the options come from. */
struct mr_memory_needs {
    uint64_t limit;  /* the budget */
    uint64_t tables; /* that are configured by name */
    uint64_t batches;
    uint64_t batch_bytes;
    uint64_t readers; /* that copy existing rows; 0: none are copied */
    bool patterns;    /* name tables, too: how many is not known here */
    bool profiles;    /* may be taken */
    bool reselects;   /* values are read again */
};

/* What these and a change of at most `change_bytes_max` need. */
struct mr_memory mr_memory_of(const struct mr_memory_needs *needs, uint64_t change_bytes_max);

uint64_t mr_memory_sum(const struct mr_memory *memory);

/* The largest change, in powers of two as libpq's buffer grows, from 64 KiB to 64 MiB, that leaves
 * the sum within the limit; the least also when that does not fit either. */
uint64_t mr_memory_change_max(const struct mr_memory_needs *needs);

/* Bytes of a chunk of existing rows, its last row not counted. */
size_t mr_memory_chunk(uint64_t change_bytes_max);

/* The largest row that may be copied while the stream runs, as COPY writes it: not above a change,
 * and within `limit`. What it takes is added to `memory`. Where tables are named by a pattern, what
 * their descriptions may have is added before. */
size_t mr_memory_take_row(struct mr_memory *memory, const struct mr_memory_needs *needs,
                          uint64_t change_bytes_max);

/* What descriptions of tables may take, the encoder's plans for them and their keys included. What
 * of it was not in `memory` is added. */
size_t mr_memory_take_relations(struct mr_memory *memory, const struct mr_memory_needs *needs);

/* What is left of `limit` for large changes. */
uint64_t mr_memory_large(const struct mr_memory *memory, uint64_t limit);

/* What libpq's buffer takes once a message of so many bytes has come. */
uint64_t mr_memory_input(uint64_t message_bytes);
