/* Tables that join the stream, while it runs or between two starts, because a pattern covers them
 * or because the publication or the configuration changed: their existing rows are asked for
 * (snapshot.added_tables). And partitions of tables that are sent by their roots, which move rows
 * without events (moved.h).
 *
 * A thread of its own looks every few seconds, on a connection that it closes again. The copies
 * know which tables are new, after a restart as well (mr_copies_streamed). */
#pragma once

#include "copy/copies.h"
#include "copy/moved.h"
#include "event/silence.h"
#include "flow/pipeline.h"
#include "stream/pg_source.h"

struct mr_added;

/* Who else gets all tables that are streamed, with each look. */
struct mr_added_listener {
    mr_streamed_fn take; /* NULL: nobody */
    void *context;
};

/* Before the pipeline is started. All are the caller's and outlive it. `asks`: rows of tables that
 * join are asked for. `moved` counts where the publication sends partitions by their roots, and for
 * good. */
struct mr_added *mr_added_new(struct mr_pipeline *pipeline, struct mr_copies *copies,
                              const struct mr_pg_source_options *source, bool asks,
                              enum mr_moved_policy moved, struct mr_added_listener listener,
                              struct mr_pg_form *form, struct mr_silence *silence);

/* Ends the copies of tables that are no longer streamed. `source` counts from now on, and its
 * memory is held as long. Where copies begin with this change, the former one's tables count as
 * known. One thread at a time, which is not the source thread. */
void mr_added_change(struct mr_added *added, const struct mr_pg_source_options *source, bool asks);

/* For the slot's watcher (mr_pg_slot_invite): whether what is listed is published, and as it was
 * when the stream was opened (`form`). What is not is a standstill of these tables. False: there is
 * no stream yet. */
bool mr_added_compare(void *added, struct mr_pg_conn *conn);

/* Before the pipeline is freed. Takes NULL. */
void mr_added_free(struct mr_added *added);
