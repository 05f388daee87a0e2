#include "flow/companions.h"

#include "flow/pipeline_internal.h"

/* Calls `op` of each companion that has it and for which `when` holds; `companion` is the one. */
#define FOR_EACH(pipeline, op, when)                                                               \
    for (uint32_t i_ = 0; i_ < (pipeline)->options.companion_count; i_++)                          \
        for (struct mr_companion *companion = (pipeline)->options.companions[i_];                  \
             companion != NULL && companion->ops->op != NULL && (when); companion = NULL)

void mr_companions_attach(struct mr_pipeline *pipeline)
{
    for (uint32_t i = 0; i < pipeline->options.companion_count; i++) {
        pipeline->options.companions[i]->port = (struct mr_port *)pipeline;
    }
    FOR_EACH(pipeline, attach, true)
    {
        companion->ops->attach(companion);
    }
}

bool mr_companions_hear_signals(const struct mr_pipeline *pipeline)
{
    bool hears = false;
    FOR_EACH(pipeline, signal, true)
    {
        hears = hears || companion->hears_signals;
    }
    return hears;
}

/* ---- source thread ---- */

mr_status mr_companions_prepare(struct mr_pipeline *pipeline, uint32_t index,
                                struct mr_error *ret_error)
{
    struct mr_companion *companion = pipeline->options.companions[index];
    return companion->ops->prepare == NULL ? MR_OK : companion->ops->prepare(companion, ret_error);
}

bool mr_companions_mend(struct mr_pipeline *pipeline)
{
    bool mends = false;
    FOR_EACH(pipeline, mends, true)
    {
        mends = mends || companion->ops->mends(companion);
    }
    return mends;
}

bool mr_companions_are_busy(const struct mr_pipeline *pipeline)
{
    bool is_busy = false;
    FOR_EACH(pipeline, is_busy, true)
    {
        is_busy = is_busy || companion->ops->is_busy(companion);
    }
    return is_busy;
}

mr_status mr_companions_signal(struct mr_pipeline *pipeline, const struct mr_change *change,
                               struct mr_error *ret_error)
{
    FOR_EACH(pipeline, signal, companion->hears_signals)
    {
        MR_TRY(companion->ops->signal(companion, change, ret_error));
    }
    return MR_OK;
}

static bool wants(const struct mr_companion *companion)
{
    return MR_UNLIKELY(atomic_load_explicit(&companion->wants, memory_order_acquire));
}

mr_status mr_companions_between(struct mr_pipeline *pipeline)
{
    FOR_EACH(pipeline, between, wants(companion))
    {
        MR_TRY(companion->ops->between(companion));
    }
    return MR_OK;
}

int64_t mr_companions_due_in(const struct mr_pipeline *pipeline, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    FOR_EACH(pipeline, due_in, wants(companion))
    {
        int64_t one_ns = companion->ops->due_in(companion, now_ns);
        due_ns = one_ns < due_ns ? one_ns : due_ns;
    }
    return due_ns;
}

bool mr_companions_watch(const struct mr_pipeline *pipeline)
{
    bool watches = false;
    for (uint32_t i = 0; i < pipeline->options.companion_count; i++) {
        watches = watches || pipeline->options.companions[i]->watches;
    }
    return watches;
}

void mr_companions_change(struct mr_pipeline *pipeline, const struct mr_change *change, bool is_new)
{
    FOR_EACH(pipeline, change, companion->watches)
    {
        companion->ops->change(companion, change, is_new);
    }
}

void mr_companions_commit(struct mr_pipeline *pipeline, const struct mr_transaction *transaction)
{
    FOR_EACH(pipeline, commit, companion->watches)
    {
        companion->ops->commit(companion, transaction);
    }
}

void mr_companions_sealed(struct mr_pipeline *pipeline, const struct mr_lane *lane)
{
    FOR_EACH(pipeline, sealed, companion->watches)
    {
        companion->ops->sealed(companion, lane->index, lane->has_item);
    }
}

void mr_companions_relation_end(struct mr_pipeline *pipeline, const struct mr_relation *relation)
{
    FOR_EACH(pipeline, relation_end, true)
    {
        companion->ops->relation_end(companion, relation);
    }
}

void mr_companions_lost(struct mr_pipeline *pipeline, enum mr_loss loss)
{
    FOR_EACH(pipeline, lost, true)
    {
        companion->ops->lost(companion, loss);
    }
}

/* ---- sink thread ---- */

void mr_companions_adopt(struct mr_pipeline *pipeline, const struct mr_checkpoint *stored)
{
    FOR_EACH(pipeline, adopt, true)
    {
        companion->ops->adopt(companion, stored);
    }
}

void mr_companions_safe(struct mr_pipeline *pipeline, uint32_t lane, uint64_t step)
{
    FOR_EACH(pipeline, safe, true)
    {
        companion->ops->safe(companion, lane, step);
    }
}

void mr_companions_section(struct mr_pipeline *pipeline, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint)
{
    FOR_EACH(pipeline, section, true)
    {
        companion->ops->section(companion, reach, checkpoint);
    }
}

void mr_companions_stored(struct mr_pipeline *pipeline)
{
    FOR_EACH(pipeline, stored, true)
    {
        companion->ops->stored(companion);
    }
}
