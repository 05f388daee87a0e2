/* Tables that come to the stream while it runs or between two starts, because a pattern means them, or the publication or the
 * configuration was changed: their existing rows are asked for (snapshot.added_tables). A thread looks now and then, on a
 * connection that it closes again; the pipeline knows which tables are new, also behind a restart (mr_pipeline_copy_streamed). */
#ifndef MR_CLI_ADDED_H
#define MR_CLI_ADDED_H

#include "config/config.h"

struct mr_added;

/* Before the pipeline is started. Both are the caller's and outlive it. */
struct mr_added *mr_added_new(const struct mr_config *config, struct mr_pipeline *pipeline);

/* Copies of tables that it does not have any more end. `config` counts from now on, and is the caller's until another one does. Returns once no look by the former one is under
 * way. If it wants tables to be copied and the former did not: those of the former are taken for known before. One thread at a
 * time, which is not the source thread. */
void mr_added_change(struct mr_added *added, const struct mr_config *config);

/* Before the pipeline is freed. Takes NULL. */
void mr_added_free(struct mr_added *added);

#endif
