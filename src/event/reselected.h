/* Values that were read again (columns.reselect): the outcomes, as the reader, the stream and
 * metrics call them. */
#pragma once

#include "base/base.h"

/* What became of an update with values that it did not touch, and that were to be read again
 * (columns.reselect). */
enum mr_reselected {
    MR_RESELECTED_EXACT,   /* they are what the row had after its transaction */
    MR_RESELECTED_LATER,   /* what the row has now, which a later change may have made */
    MR_RESELECTED_GONE,    /* there is no such row, or not surely such columns, any more */
    MR_RESELECTED_LARGE,   /* one is too large */
    MR_RESELECTED_LATE,    /* no answer came in time */
    MR_RESELECTED_REFUSED, /* the table or the server could not be asked */
    /* not asked: the table or the server was refused, or late, a moment before */
    MR_RESELECTED_PASSED,
};
enum { MR_RESELECTED_COUNT = MR_RESELECTED_PASSED + 1 };

/* As metrics call it. */
static inline const char *mr_reselected_name(enum mr_reselected outcome)
{
    static const char *const names[] = {
        [MR_RESELECTED_EXACT] = "exact",   [MR_RESELECTED_LATER] = "later",
        [MR_RESELECTED_GONE] = "gone",     [MR_RESELECTED_LARGE] = "large",
        [MR_RESELECTED_LATE] = "late",     [MR_RESELECTED_REFUSED] = "refused",
        [MR_RESELECTED_PASSED] = "passed",
    };
    return names[outcome];
}
