/* Partitions that move rows without events: ATTACH, DETACH, DROP and TRUNCATE of a partition change
 * what its root holds, and where the publication sends partitions by their root, the stream tells
 * of none of these (pgoutput_truncate in replication/pgoutput/pgoutput.c passes over a partition
 * then). Each look compares the catalog with the look before, and logs and counts what moved.
 *
 *   attached   Where it is asked for, what is there comes by an incremental copy of the root's rows
 *              within the partition's bounds. That is sound whatever happens meanwhile: it is a
 *              copy of the root, and no row goes out that is older than the stream's. Which
 *              partitions are known, by root and links, is stored with the copies
 *              (mr_copies_streamed), so one that is attached between two starts is copied, too, and
 *              one that was detached in between. A partition that is new is copied also if it was
 *              made as one: what was filled and attached in the transaction that made it looks the
 *              same, and none of its rows were in the stream.
 *   detached,  Their keys are left to `millrace verify --repair`: of rows that were deleted, or
 *              whose table was dropped or emptied, after
 *   dropped,   they had left the root, nobody knows the key.
 *   truncated
 *
 * TRUNCATE of the root is an event: where all of its partitions have other files, it counts as
 * that. Not seen is TRUNCATE if the rows were never counted before (ANALYZE), or are counted again
 * before the next look. What was detached, dropped or truncated between two starts is not either:
 * files and names are known in memory only.
 *
 * The thread of copy/added.h. */
#pragma once

#include "copy/copies.h"
#include "postgres/catalog/pg_leaves.h"

enum mr_moved_policy { MR_MOVED_IGNORE, MR_MOVED_LOG, MR_MOVED_COPY /* attached ones */ };

/* What one look has found of a kind. */
struct mr_moved_kind {
    uint32_t count, last_root;
    struct mr_text partitions, roots; /* names, the first ten */
};

struct mr_moved_found {
    struct mr_streamed_table *tables; /* partitions and roots for mr_copies_streamed, in no order */
    uint32_t count;
    char **bounds; /* texts of these */
    uint32_t bounds_count;
    struct mr_moved_kind kinds[MR_MOVED_COUNT];
    bool is_unasked; /* one was attached that the copies do not lack */
};

struct mr_moved {
    struct mr_copies *copies;
    enum mr_moved_policy policy;
    bool has_looked;
    struct mr_leaves before; /* at the last look */
};

/* Compares what is there now with the last look, which it then is. What was found has names that
 * live until the next look. */
mr_status mr_moved_look(struct mr_moved *moved, struct mr_pg_conn *conn,
                        const struct mr_pg_source_options *options, struct mr_moved_found *ret,
                        struct mr_error *ret_error);

/* Logs and counts it, once the copies were told of it (mr_copies_streamed). */
void mr_moved_tell(const struct mr_moved *moved, const struct mr_moved_found *found);
void mr_moved_found_done(struct mr_moved_found *found);
void mr_moved_done(struct mr_moved *moved);
