/* The flow's companions, all at once: each function calls the one of that name of each companion that has it, in their order. The
 * threads are those of ports/companion.h. Inside flow/ only. */
#ifndef MR_FLOW_COMPANIONS_H
#define MR_FLOW_COMPANIONS_H

#include "flow/lane.h"
#include "ports/companion.h"

struct mr_pipeline;

/* Each gets its port. Before the threads are started. */
void mr_companions_attach(struct mr_pipeline *pipeline);
bool mr_companions_hear_signals(const struct mr_pipeline *pipeline);

/* The companion of that index prepares. */
mr_status mr_companions_prepare(struct mr_pipeline *pipeline, uint32_t index,
                                struct mr_error *ret_error);
bool mr_companions_mend(struct mr_pipeline *pipeline);
bool mr_companions_are_busy(const struct mr_pipeline *pipeline);
mr_status mr_companions_signal(struct mr_pipeline *pipeline, const struct mr_change *change,
                               struct mr_error *ret_error);

/* Those that want it; MR_FULL: one has no room, and those after it wait. */
mr_status mr_companions_between(struct mr_pipeline *pipeline);

/* INT64_MAX: somebody wakes the thread. */
int64_t mr_companions_due_in(const struct mr_pipeline *pipeline, int64_t now_ns);

/* Those that watch. */
bool mr_companions_watch(const struct mr_pipeline *pipeline);
void mr_companions_change(struct mr_pipeline *pipeline, const struct mr_change *change,
                          bool is_new);
void mr_companions_commit(struct mr_pipeline *pipeline, const struct mr_transaction *transaction);
void mr_companions_sealed(struct mr_pipeline *pipeline, const struct mr_lane *lane);

void mr_companions_relation_end(struct mr_pipeline *pipeline, const struct mr_relation *relation);
void mr_companions_lost(struct mr_pipeline *pipeline, enum mr_loss loss);

void mr_companions_adopt(struct mr_pipeline *pipeline, const struct mr_checkpoint *stored);
void mr_companions_safe(struct mr_pipeline *pipeline, uint32_t lane, uint64_t step);
void mr_companions_section(struct mr_pipeline *pipeline, const struct mr_reach *reach,
                           struct mr_checkpoint *checkpoint);
void mr_companions_stored(struct mr_pipeline *pipeline);

#endif
