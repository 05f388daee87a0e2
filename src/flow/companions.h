/* The flow's companions, in their order. The threads are those of ports/companion.h. Inside flow/
 * only. */
#pragma once

#include "flow/pipeline_internal.h"

/* Runs the block that follows for each companion that has `op`; `companion` is the one. */
#define MR_EACH_COMPANION(pipeline, op)                                                            \
    for (uint32_t i_ = 0; i_ < (pipeline)->options.companion_count; i_++)                          \
        for (struct mr_companion *companion = (pipeline)->options.companions[i_];                  \
             companion != NULL && companion->ops->op != NULL; companion = NULL)

static inline bool mr_companion_wants(const struct mr_companion *companion)
{
    return MR_UNLIKELY(atomic_load_explicit(&companion->wants, memory_order_acquire));
}

/* Those that want it append. MR_FULL: one has no room, and those after it wait. */
static inline mr_status mr_companions_between(const struct mr_pipeline *pipeline)
{
    MR_EACH_COMPANION(pipeline, between)
    {
        if (mr_companion_wants(companion)) {
            MR_TRY(companion->ops->between(companion));
        }
    }
    return MR_OK;
}

static inline void mr_companions_lost(const struct mr_pipeline *pipeline, enum mr_loss loss)
{
    MR_EACH_COMPANION(pipeline, lost)
    {
        companion->ops->lost(companion, loss);
    }
}

static inline void mr_companions_stored(const struct mr_pipeline *pipeline)
{
    MR_EACH_COMPANION(pipeline, stored)
    {
        companion->ops->stored(companion);
    }
}
