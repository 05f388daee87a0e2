/* The stages of the flow, and which function belongs to which. Any thread. */
#ifndef MR_FLAME_STAGE_H
#define MR_FLAME_STAGE_H

#include "base/base.h"

enum mr_flame_stage {
    MR_FLAME_STAGE_OTHER,
    MR_FLAME_STAGE_RECEIVE, /* libpq, the socket of the replication connection */
    MR_FLAME_STAGE_DECODE,  /* pgoutput, relations */
    MR_FLAME_STAGE_ENCODE,  /* keys and values as JSON */
    MR_FLAME_STAGE_PRODUCE, /* hand-over to librdkafka, record headers */
    MR_FLAME_STAGE_FLUSH,   /* librdkafka's broker threads: requests, compression, the socket */
    MR_FLAME_STAGE_ACK,     /* delivery reports and the acknowledgement window */
    MR_FLAME_STAGE_MALLOC,  /* the allocator, whoever calls it */
    MR_FLAME_STAGES,
};

const char *mr_flame_stage_name(enum mr_flame_stage stage);

/* The colour of its frames, "rgb(…)". */
const char *mr_flame_stage_colour(enum mr_flame_stage stage);

/* The stage a frame names, or `inherited` (that of the frame below it) when it names none. */
enum mr_flame_stage mr_flame_stage_of(mr_slice frame, enum mr_flame_stage inherited);

#endif
