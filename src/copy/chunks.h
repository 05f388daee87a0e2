/* Existing rows while the stream runs, as chunk_requests.h has them: a companion of the flow. The source thread; inside copy/ only.
 *
 * A table's rows come in chunks in the order of its key. The thread of chunk_thread.h reads one; chunk_window.h says which of its
 * rows go out, and when; the source thread puts them into the stream's own lane, between two transactions, a few at a time.
 * Their positions lie right below the place that the stream has come to (MR_CHUNK_ORDINAL and up), so that the rule "drop what
 * is not above" holds.
 *
 * While nothing is copied, the companion neither watches the stream nor wants anything. */
#ifndef MR_COPY_CHUNKS_H
#define MR_COPY_CHUNKS_H

#include "copy/chunk_requests.h"

/* `*ret_requests`: what is asked of it, for any thread; the companion's. */
struct mr_companion *mr_chunks_new(const struct mr_copies_options *options,
                                   struct mr_chunk_requests **ret_requests);
void mr_chunks_free(struct mr_companion *companion);

#endif
