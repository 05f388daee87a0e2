#include "control/ladder.h"

#include <math.h>

#define MARK_NS INT64_C(1000000000)

static const struct mr_ladder_mark *mark_at(const struct mr_ladder *ladder, uint32_t number)
{
    return &ladder->marks[number % MR_LADDER_MARKS];
}

void mr_ladder_add(struct mr_ladder *ladder, int64_t time_ns, mr_lsn end)
{
    const struct mr_ladder_mark *last = mark_at(ladder, ladder->count - 1);
    if (ladder->count > 0 && (end <= last->end || time_ns - last->time_ns < MARK_NS)) {
        return;
    }
    ladder->marks[ladder->count++ % MR_LADDER_MARKS] = (struct mr_ladder_mark){time_ns, end};
}

double mr_ladder_seconds(const struct mr_ladder *ladder, int64_t now_ns, mr_lsn place)
{
    uint32_t first = ladder->count < MR_LADDER_MARKS ? 0 : ladder->count - MR_LADDER_MARKS;
    uint32_t beyond = ladder->count;
    if (place == 0) {
        return NAN;
    }
    while (beyond > first && mark_at(ladder, beyond - 1)->end > place) {
        beyond--;
    }
    return beyond == ladder->count ? 0 : (double)(now_ns - mark_at(ladder, beyond)->time_ns) / 1e9;
}
