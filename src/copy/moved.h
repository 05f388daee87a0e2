/* Partitions that move rows without events: ATTACH, DETACH, DROP and TRUNCATE of a partition change what its root holds, and where the
 * publication sends partitions by their root, the stream tells of none of these (pgoutput_truncate in replication/pgoutput/pgoutput.c
 * passes over a partition then). Each look compares the catalog with the look before, logs and counts what moved, and as far as it is
 * asked to has the topic follow:
 *
 *   attached   What is there comes by an incremental copy of the root's rows within the partition's bounds. That is sound whatever
 *              happens meanwhile: it is a copy of the root, and no row goes out that is older than the stream's. Which partitions are
 *              known is stored with the copies (mr_copies_streamed), so one that is attached between two starts is copied, too. A
 *              partition that is new is copied also if it was made as one: what was filled and attached in the transaction that made it
 *              looks the same, and none of its rows were in the stream.
 *   detached   Each key of the table that was a partition is looked for in the root, under a chunk's snapshot, and is deleted where it
 *              is not there. That is sound for each key: DETACH waits for all who write to the partition, so their changes are
 *              in the stream before the chunk's place, and what comes to the root later is noted by the chunk's window. It is complete
 *              only as long as the table keeps its rows: of one that was deleted there after DETACH nobody knows the key.
 *   dropped,   The keys are nowhere. They are logged and counted, and left to `millrace verify --repair`.
 *   truncated
 *
 * What was detached and attached again between two looks is not seen, nor is TRUNCATE if the rows are counted again (ANALYZE) before
 * the next look, or in the transaction that made the partition. What was detached, dropped or truncated between two starts is not
 * either: files and names are known in memory only.
 *
 * The thread of copy/added.h. */
#ifndef MR_COPY_MOVED_H
#define MR_COPY_MOVED_H

#include "copy/copies.h"
#include "postgres/catalog/pg_leaves.h"

enum mr_moved_policy {
    MR_MOVED_IGNORE,
    MR_MOVED_LOG,
    MR_MOVED_COPY,   /* attached ones */
    MR_MOVED_FOLLOW, /* and deletes what detached ones took away */
    MR_MOVED_POLICIES,
};

/* For mr_copies_streamed. `bounds` are the texts that are not of `before`. */
struct mr_moved_leaves {
    struct mr_streamed_table *tables;
    uint32_t count;
    char **bounds;
    uint32_t bounds_count;
};
void mr_moved_leaves_done(struct mr_moved_leaves *leaves);

struct mr_moved {
    struct mr_copies *copies;
    enum mr_moved_policy policy;
    bool has_looked;
    struct mr_leaves before; /* at the last look */
};

/* Compares what is there now with the last look, which it then is. `*ret_streamed`: partitions and roots for mr_copies_streamed, the
 * caller's, with texts that live until the next look or mr_moved_done; in no order. */
mr_status mr_moved_look(struct mr_moved *moved, struct mr_pg_conn *conn,
                        const struct mr_pg_source_options *options, struct mr_moved_leaves *ret,
                        struct mr_error *ret_error);
void mr_moved_done(struct mr_moved *moved);

#endif
