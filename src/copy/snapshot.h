/* The copy of existing rows before the stream begins, a companion of the flow: workers with a lane each read tables and append their
 * rows; the source thread starts them, waits until all of it is with the sink, and ends the copy at the server. Inside copy/ only.
 *
 * Rows get their positions in the order in which batches are handed over (flow/lane.c), so within a partition they grow, whoever
 * reads which part of which table (copy_plan.h). All positions of a
 * copy lie right below the place where the stream begins (struct mr_copy), and those of a later attempt above those of an
 * earlier one, so a consumer that drops what is not above keeps what counts. An attempt that fails is given up; what is stored
 * as copied is not copied again.
 */
#ifndef MR_COPY_SNAPSHOT_H
#define MR_COPY_SNAPSHOT_H

#include "copy/copies.h"

struct mr_snapshot;

struct mr_snapshot *mr_snapshot_new(const struct mr_copies_options *options);
void mr_snapshot_free(struct mr_snapshot *snapshot); /* NULL is fine */
struct mr_companion *mr_snapshot_companion(struct mr_snapshot *snapshot);

/* Any thread. */
struct mr_copy_stats mr_snapshot_stats(const struct mr_snapshot *snapshot);
uint32_t mr_snapshot_tables(struct mr_snapshot *snapshot, struct mr_copy_table_stats *ret_tables,
                            uint32_t capacity);

#endif
