/* Which function belongs to which stage of the flow. Any thread. */
#ifndef MR_STAGE_H
#define MR_STAGE_H

#include "base/base.h"
#include "base/stage.h"

/* The colour of its frames, "rgb(…)". */
const char *mr_flame_stage_colour(enum mr_stage stage);

/* The stage a frame names, or `inherited` (that of the frame below it) when it names none. */
enum mr_stage mr_flame_stage_of(mr_slice frame, enum mr_stage inherited);

#endif
