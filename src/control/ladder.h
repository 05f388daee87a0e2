/* How long ago the server's WAL ended where one of its readers stands now: what was seen of its
 * end, and when. Values only. */
#pragma once

#include "event/event.h"

enum { MR_LADDER_MARKS = 512 };

struct mr_ladder {
    struct mr_ladder_mark {
        int64_t time_ns;
        mr_lsn end;
    } marks[MR_LADDER_MARKS];
    uint32_t count; /* ever */
};

/* The server's WAL was seen to end there. What is not further than before says nothing; marks that
 * are less than a second apart are one. */
void mr_ladder_add(struct mr_ladder *ladder, int64_t time_ns, mr_lsn end);

/* Seconds since the WAL was first seen to end beyond that place; 0: it was not; NaN: the place is
 * not known (0). What is older than all marks is at least as old as the first of them. */
double mr_ladder_seconds(const struct mr_ladder *ladder, int64_t now_ns, mr_lsn place);
