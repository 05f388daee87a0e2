#include "base/stage.h"

const char *mr_stage_name(enum mr_stage stage)
{
    static const char *const names[MR_STAGES] = {
        [MR_STAGE_NONE] = "none",
        [MR_STAGE_RECEIVE] = "receive",
        [MR_STAGE_DECODE] = "decode",
        [MR_STAGE_ENCODE] = "encode",
        [MR_STAGE_PRODUCE] = "produce",
        [MR_STAGE_FLUSH] = "flush",
        [MR_STAGE_ACKNOWLEDGE] = "acknowledge",
        [MR_STAGE_MALLOC] = "malloc",
        [MR_STAGE_HTTP] = "http",
        [MR_STAGE_PROFILER] = "profiler",
        [MR_STAGE_OTHER] = "other",
    };
    return names[stage];
}
