/* The copy of existing rows, before the stream begins: workers with a lane each read tables and append their rows; the source
 * thread starts them, waits until all of it is with the sink, and ends the copy at the source. Inside pipeline/ only.
 *
 * Rows get their positions in the order in which batches are handed over (lane.c), so within a partition they grow, whoever
 * reads which part of which table (copy_plan.h). All positions of a
 * copy lie right below the place where the stream begins (struct mr_copy), and those of a later attempt above those of an
 * earlier one, so whoever drops what is not above keeps what counts. An attempt that fails is given up; what is stored
 * as copied is not copied again.
 */
#ifndef MR_PIPELINE_COPY_H
#define MR_PIPELINE_COPY_H

#include "flow/intake_internal.h"

/* Copies what the source says is to be copied, if anything. MR_OK: it is done and safe (intake->copy_done), or was
 * broken off, because the sink's session has ended or the thread is to stop. Source thread, with the claim. */
mr_status mr_intake_copy(struct mr_intake *intake, struct mr_error *ret_error);

#endif
