/* Which columns are hidden (encode/hidden.h), in the stored position, so that the next process knows what this one has seen. A companion of
 * the flow (ports/companion.h).
 */
#pragma once

#include "encode/hidden.h"
#include "ports/companion.h"

struct mr_kept_columns {
    struct mr_companion base;
    struct mr_hidden *hidden; /* the caller's */
};

extern const struct mr_section_kind mr_kept_columns_section_kind;

void mr_kept_columns_init(struct mr_kept_columns *kept, struct mr_hidden *hidden);
