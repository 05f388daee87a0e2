/* The stages of the flow. Metrics, labels of samples, flame graphs, the bottleneck and the
 * documents use these words. */
#pragma once

#include "base/base.h"

enum mr_stage {
    MR_STAGE_NONE,
    /* In the order of the flow. */
    MR_STAGE_RECEIVE, /* PostgreSQL, the socket, libpq */
    MR_STAGE_DECODE,  /* pgoutput, relations */
    MR_STAGE_ENCODE,  /* keys and values as JSON */
    MR_STAGE_PRODUCE, /* from a full batch to librdkafka's queue; record headers */
    MR_STAGE_FLUSH, /* from that queue to the broker's answer: requests, compression, the socket */
    MR_STAGE_ACKNOWLEDGE, /* delivery reports, the window, what is confirmed */
    /* Beside the flow. */
    MR_STAGE_MALLOC, /* of CPU time: the allocator, for any caller */
    MR_STAGE_HTTP,
    MR_STAGE_PROFILER,
    MR_STAGE_OTHER,
    MR_STAGES
};

const char *mr_stage_name(enum mr_stage stage); /* "none", "receive", "decode", … */
