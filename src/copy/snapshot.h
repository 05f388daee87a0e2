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

struct mr_companion *mr_snapshot_new(const struct mr_copies_options *options);
void mr_snapshot_free(struct mr_companion *companion);

#endif
