#include "flow/bottleneck.h"

/* Parts of the time, in hundredths. */
enum {
    BUSY = 80, /* a thread that is at its limit; the rest is waiting that can't be avoided */
    HELD = 20, /* waiting for batches that the sink has */
};

static bool at_least(uint64_t part_ns, const struct mr_flow *flow, uint64_t hundredths)
{
    return part_ns * 100 >= flow->elapsed_ns * hundredths;
}

enum mr_stage mr_bottleneck(const struct mr_flow *flow)
{
    if (!flow->source_connected) {
        return MR_STAGE_RECEIVE;
    }
    if (at_least(flow->backpressure_ns, flow, HELD) || (flow->in_flight && !flow->sink_connected)) {
        return at_least(flow->sink_cpu_ns, flow, BUSY) ? MR_STAGE_PRODUCE : MR_STAGE_FLUSH;
    }
    if (at_least(flow->source_cpu_ns, flow, BUSY)) {
        return flow->encode_ns * 2 >= flow->source_cpu_ns ? MR_STAGE_ENCODE : MR_STAGE_DECODE;
    }
    return flow->behind ? MR_STAGE_RECEIVE : MR_STAGE_NONE;
}

enum mr_stage mr_bottleneck_of(enum mr_cause cause)
{
    switch (cause) {
    case MR_CAUSE_POSTGRESQL_AWAY:
        return MR_STAGE_RECEIVE;
    case MR_CAUSE_POISON:
        return MR_STAGE_ENCODE;
    case MR_CAUSE_REGISTRY_AWAY:
        return MR_STAGE_PRODUCE;
    case MR_CAUSE_NONE:
    case MR_CAUSE_TABLE_UNPUBLISHED:
    case MR_CAUSE_PUBLICATION_CHANGED:
    case MR_CAUSE_ENDED:
    case MR_CAUSE_COUNT:
        return MR_STAGE_NONE;
    default:
        return MR_STAGE_FLUSH;
    }
}
