#include "verify/cut.h"

/* The lower half of a number comes again after 2^32 transactions, which write more WAL than
 * this. */
#define LONG_AGO (UINT64_C(64) << 30)

static bool cut_take_number(const char **at, char end, uint64_t *ret)
{
    char *rest;
    errno = 0;
    *ret = strtoull(*at, &rest, 10);
    if (rest == *at || errno != 0 || (*rest != end && !(end == ',' && *rest == '\0'))) {
        return false;
    }
    *at = *rest == '\0' ? rest : rest + 1;
    return true;
}

bool mr_cut_parse(const char *text, struct mr_cut *ret)
{
    struct mr_cut cut = {0};
    uint32_t room = 0;
    bool good = cut_take_number(&text, ':', &cut.xmin) && cut_take_number(&text, ':', &cut.xmax);
    while (good && *text != '\0') {
        MR_GROW(cut.running, room, (size_t)cut.running_count + 1);
        uint64_t *next = &cut.running[cut.running_count];
        good = cut_take_number(&text, ',', next) && (cut.running_count == 0 || *next > next[-1]) &&
               (*text != '\0' || text[-1] != ',');
        cut.running_count++;
    }
    if (!good) {
        free(cut.running);
        return false;
    }
    *ret = cut;
    return true;
}

void mr_cut_done(struct mr_cut *cut)
{
    free(cut->running);
    *cut = (struct mr_cut){0};
}

/* The number of 64 bits that is the nearest to xmax and has these lower ones. */
static uint64_t widen(const struct mr_cut *cut, uint32_t xid)
{
    return cut->xmax + (uint64_t)(int64_t)(int32_t)(xid - (uint32_t)cut->xmax);
}

bool mr_cut_sees(const struct mr_cut *cut, uint32_t xid, mr_lsn commit_lsn)
{
    if (cut->replayed != 0) {
        return commit_lsn < cut->replayed;
    }
    uint64_t full = widen(cut, xid);
    if (commit_lsn + LONG_AGO < cut->before) {
        return true;
    }
    if (full >= cut->next) {
        /* Such a transaction began after the snapshot was taken, and so commits after `before`; one
         * that commits earlier is two billion transactions old. */
        return commit_lsn <= cut->before;
    }
    return full < cut->xmin ||
           (full < cut->xmax && mr_search(&full, cut->running, cut->running_count,
                                          sizeof(*cut->running), mr_u64_compare) == NULL);
}
