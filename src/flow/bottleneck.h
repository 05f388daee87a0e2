/* Which stage holds the flow, judged from what happened in some seconds. */
#pragma once

#include "base/base.h"
#include "base/stage.h"
#include "base/standstill.h"

/* MR_STAGE_NONE: the flow keeps up. What holds it is one of the stages up to MR_STAGE_FLUSH:
 * MR_STAGE_RECEIVE is PostgreSQL's part too, and MR_STAGE_FLUSH that of the brokers. */
enum { MR_BOTTLENECKS = MR_STAGE_FLUSH + 1 };

/* What happened in `elapsed_ns`. */
struct mr_flow {
    uint64_t elapsed_ns;
    uint64_t backpressure_ns; /* the source thread waited for a batch */
    uint64_t source_cpu_ns;   /* the source thread ran, or was ready to */
    uint64_t sink_cpu_ns;
    uint64_t encode_ns; /* part of source_cpu_ns */
    bool source_connected;
    bool sink_connected;
    bool behind; /* PostgreSQL has written more than a moment's worth that was not received */
    bool in_flight;
};

enum mr_stage mr_bottleneck(const struct mr_flow *flow);

/* Where the flow stands still with that cause, which is the bottleneck then. */
enum mr_stage mr_bottleneck_of(enum mr_cause cause);
