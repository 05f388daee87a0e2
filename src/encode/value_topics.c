#include "encode/value_topics.h"

#include "base/hash.h"

enum {
    VALUE_BYTES = 64, /* that are kept of each, on average */
    NAME_BYTES = 1024,
    VALUES_MIN = 32,
};

struct mr_value_topic {
    const struct mr_topic *topic;
    uint32_t at, len; /* of the value's bytes */
};

static size_t bytes_max(const struct mr_value_topics *known)
{
    return (size_t)known->capacity * VALUE_BYTES;
}

static void value_topics_make_room(struct mr_value_topics *known, uint32_t topics_max)
{
    known->capacity = topics_max < VALUES_MIN ? VALUES_MIN : topics_max;
    known->entries = MR_NEW_ARRAY(struct mr_value_topic, known->capacity);
    known->bytes = MR_ALLOC(bytes_max(known));
    mr_index_reserve(&known->index, known->capacity);
}

static const struct mr_topic *value_topics_find(const struct mr_value_topics *known, mr_slice value,
                                                uint64_t hash)
{
    uint32_t at = 0;
    uint32_t number;
    while ((number = mr_index_next(&known->index, hash, &at)) != MR_INDEX_NONE) {
        const struct mr_value_topic *entry = &known->entries[number];
        mr_slice kept = {.data = known->bytes + entry->at, .len = entry->len};
        if (mr_slice_equal(kept, value)) {
            return entry->topic;
        }
    }
    return NULL;
}

static const struct mr_topic *name_topic(struct mr_topics *topics,
                                         const struct mr_value_route *route, mr_slice value,
                                         const char **ret_fault)
{
    uint8_t name[NAME_BYTES];
    struct mr_buffer out = mr_buffer_init(name, sizeof(name) - 1);
    const struct mr_topic *topic = NULL;
    bool can_be = mr_rewrite_apply(&route->rewrite, value, &out);
    *ret_fault = "is longer than the 249 characters of a topic's name, has a NUL, or takes "
                 "its expression too many steps";
    if (can_be) {
        *out.at = '\0';
        *ret_fault = mr_topic_fault((const char *)name);
        can_be = *ret_fault == NULL;
    }
    if (can_be) {
        topic = mr_topics_by_value(topics, (const char *)name, route->topics_max, ret_fault);
    }
    if (topic == NULL && route->fallback_topic != NULL) {
        topic = mr_topics_intern(topics, route->fallback_topic);
    }
    return topic;
}

const struct mr_topic *mr_value_topics_find(struct mr_value_topics *known, struct mr_topics *topics,
                                            const struct mr_value_route *route, mr_slice value,
                                            const char **ret_fault)
{
    if (MR_UNLIKELY(known->entries == NULL)) {
        value_topics_make_room(known, route->topics_max);
    }
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, value.data, value.len);
    const struct mr_topic *topic = value_topics_find(known, value, hash);
    if (MR_LIKELY(topic != NULL)) {
        return topic;
    }
    topic = name_topic(topics, route, value, ret_fault);
    if (topic == NULL || value.len > MR_REWRITE_BYTES_MAX) {
        return topic;
    }
    if (known->index.count == known->capacity || known->used + value.len > bytes_max(known)) {
        mr_index_clear(&known->index);
        known->used = 0;
    }
    known->entries[mr_index_add(&known->index, hash)] = (struct mr_value_topic){
        .topic = topic, .at = (uint32_t)known->used, .len = (uint32_t)value.len};
    if (value.len > 0) {
        memcpy(known->bytes + known->used, value.data, value.len);
    }
    known->used += value.len;
    return topic;
}

void mr_value_topics_done(struct mr_value_topics *known)
{
    free(known->entries);
    free(known->bytes);
    mr_index_done(&known->index);
    *known = (struct mr_value_topics){0};
}
