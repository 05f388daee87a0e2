/* Existing rows while the stream runs, as chunk_requests.h has them. The source thread; inside pipeline/ only.
 *
 * A table's rows come in chunks in the order of its key. The thread of chunk_thread.h reads one; chunk_window.h says which of its
 * rows go out, and when; the source thread puts them into the stream's own lane, between two transactions, a few at a time.
 * Their positions lie right below the place that the stream has come to (MR_CHUNK_ORDINAL and up), so that the rule "drop what
 * is not above" holds.
 *
 * While nothing is copied, the stream's handlers are the plain ones, and the source thread looks at one atomic a round. */
#ifndef MR_PIPELINE_CHUNKS_H
#define MR_PIPELINE_CHUNKS_H

#include "flow/pipeline.h"

struct mr_chunks;
struct mr_intake;

struct mr_chunks *mr_chunks_new(struct mr_pipeline *pipeline);
void mr_chunks_free(struct mr_chunks *chunks); /* NULL is fine */

/* Somebody wants something, or something is under way. */
bool mr_chunks_wanted(const struct mr_chunks *chunks);

/* Between two transactions: goes on with whatever is there to go on with. MR_FULL: there is no room for a row. */
mr_status mr_chunks_step(struct mr_intake *intake);

/* The next batch tells of all that was asked or done so far; a step does so, too. */
void mr_chunks_follow_step(const struct mr_chunks *chunks);

/* Nanoseconds until the next step is due; INT64_MAX: somebody wakes the thread. */
int64_t mr_chunks_due_in(const struct mr_chunks *chunks, int64_t now_ns);

/* What the stream brings, while something is copied. `is_new`: it is in a batch now. */
void mr_chunks_change(struct mr_chunks *chunks, const struct mr_change *change, bool is_new);
void mr_chunks_commit(struct mr_chunks *chunks, const struct mr_transaction *transaction);
void mr_chunks_relation_end(struct mr_chunks *chunks, const struct mr_relation *relation);

/* The stream's batch at hand is about to be handed over: it tells how far the rows in it are. */
void mr_chunks_hand_over(struct mr_chunks *chunks);

/* The connection has ended: the chunk at hand is read anew behind it. */
void mr_chunks_interrupt(struct mr_chunks *chunks);

/* The sink's session has ended: what it may not have is sent again. */
void mr_chunks_begin_anew(struct mr_chunks *chunks);

/* The source's options change, or the thread ends. */
void mr_chunks_rest(struct mr_chunks *chunks);

#endif
