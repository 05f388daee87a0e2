#include "base/nearest.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t mr_edit_distance(const char *a, const char *b)
{
    size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len >= MR_NEAREST_FAR || b_len >= MR_NEAREST_FAR) {
        return MR_NEAREST_FAR;
    }
    uint32_t rows[3][MR_NEAREST_FAR];
    uint32_t *two_ago = rows[0], *ago = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_len; j++) {
        row[j] = (uint32_t)j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        uint32_t *oldest = two_ago;
        two_ago = ago;
        ago = row;
        row = oldest;
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_len; j++) {
            uint32_t change = ago[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(change, least(row[j - 1], ago[j]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], two_ago[j - 2] + 1);
            }
        }
    }
    return row[b_len];
}

uint32_t mr_slip_max(const char *typed)
{
    return least((uint32_t)strlen(typed) / 3, 3);
}

const char *mr_nearest(const char *typed, const char *const *names)
{
    const char *best = NULL;
    uint32_t best_distance = mr_slip_max(typed) + 1;
    for (; *names != NULL; names++) {
        uint32_t distance = mr_edit_distance(typed, *names);
        if (distance < best_distance) {
            best = *names;
            best_distance = distance;
        }
    }
    return best;
}
