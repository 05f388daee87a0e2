/* The topics that values in rows of an outbox name. Each is computed once and looked up after that.
 * An encoder has a table of its own, which its thread uses; all encoders share the topics. Inside
 * encode/ only. */
#pragma once

#include "base/index.h"
#include "encode/encode.h"

/* Values and their topics. The first value allocates the memory; when it is full, the table starts
 * empty again. */
struct mr_value_topics {
    struct mr_value_topic *entries; /* NULL: no value yet */
    struct mr_index index;          /* and how many */
    uint32_t capacity;
    uint8_t *bytes; /* of the values */
    size_t used;
};

/* The topic of a value; `route` is the same in every call. NULL: the value has none, and
 * `ret_fault` says why. */
const struct mr_topic *mr_value_topics_find(struct mr_value_topics *known, struct mr_topics *topics,
                                            const struct mr_value_route *route, mr_slice value,
                                            const char **ret_fault);

void mr_value_topics_done(struct mr_value_topics *known);
