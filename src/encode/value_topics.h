/* Topics that values in an outbox's rows name: which value has which topic is worked out once and looked up from then on. An encoder's own, so
 * one thread; the topics themselves are everybody's. Inside encode/ only. */
#ifndef MR_ENCODE_VALUE_TOPICS_H
#define MR_ENCODE_VALUE_TOPICS_H

#include "base/index.h"
#include "encode/encode.h"

/* Values and their topics, in memory that is asked for with the first value. When it is full, it begins again. */
struct mr_value_topics {
    struct mr_value_topic *entries; /* NULL: nothing was asked yet */
    struct mr_index index;          /* and how many */
    uint32_t capacity;
    uint8_t *bytes; /* of the values */
    size_t used;
};

/* The topic of a value by the route, which is always the same one; NULL: it has none, and `ret_fault` says why. */
const struct mr_topic *mr_value_topics_find(struct mr_value_topics *known, struct mr_topics *topics,
                                            const struct mr_value_route *route, mr_slice value,
                                            const char **ret_fault);

void mr_value_topics_done(struct mr_value_topics *known);

#endif
