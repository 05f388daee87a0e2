#include "flow/poison.h"

enum { PAUSE_FIRST_MS = 1000 };

void mr_poison_count(struct mr_poison *poison, struct mr_position position, mr_status status)
{
    if (poison->failures > 0 && poison->status == status &&
        mr_position_compare(poison->position, position) == 0) {
        poison->failures++;
    } else {
        *poison = (struct mr_poison){.position = position, .status = status, .failures = 1};
    }
}

uint32_t mr_poison_pause_ms(const struct mr_poison *poison, uint32_t max_ms)
{
    uint32_t pause_ms = PAUSE_FIRST_MS << (poison->failures - 1);
    return pause_ms < max_ms ? pause_ms : max_ms;
}
