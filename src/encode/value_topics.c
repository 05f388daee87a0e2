#include "encode/value_topics.h"

#include <stdlib.h>

#include "base/hash.h"

enum {
    VALUE_BYTES = 64, /* that are kept of each, on average */
    NAME_BYTES = 1024,
    TOPICS_MIN = 64,
};

struct mr_value_topic {
    const struct mr_value_route *route;
    const struct mr_topic *topic; /* NULL: the place is free */
    uint64_t hash;
    uint32_t at, len; /* of the value's bytes */
};

static size_t bytes_max(const struct mr_value_topics *known)
{
    return (size_t)known->capacity / 2 * VALUE_BYTES;
}

static void make_room(struct mr_value_topics *known, uint32_t topics_max)
{
    known->capacity = TOPICS_MIN;
    while (known->capacity < 2 * topics_max) {
        known->capacity *= 2;
    }
    known->entries = MR_NEW_ARRAY(struct mr_value_topic, known->capacity);
    known->bytes = MR_ALLOC(bytes_max(known));
}

static void forget_all(struct mr_value_topics *known)
{
    memset(known->entries, 0, known->capacity * sizeof(*known->entries));
    known->count = 0;
    known->used = 0;
}

/* The value's place, or the free one where it belongs. */
static struct mr_value_topic *place_of(const struct mr_value_topics *known,
                                       const struct mr_value_route *route, mr_slice value,
                                       uint64_t hash)
{
    for (uint32_t i = (uint32_t)hash;; i++) {
        struct mr_value_topic *entry = &known->entries[i & (known->capacity - 1)];
        if (entry->topic == NULL ||
            (entry->hash == hash && entry->route == route && entry->len == value.len &&
             memcmp(known->bytes + entry->at, value.data, value.len) == 0)) {
            return entry;
        }
    }
}

/* False: it is too long, or has a NUL. */
static bool make_name(const struct mr_value_route *route, mr_slice value, struct mr_buffer *out)
{
    if (route->rewrite.regex != NULL) {
        return mr_rewrite_apply(&route->rewrite, value, out);
    }
    mr_buffer_slice(out, route->before);
    mr_buffer_slice(out, value);
    mr_buffer_slice(out, route->behind);
    return !out->full && (value.len == 0 || memchr(value.data, '\0', value.len) == NULL);
}

static const struct mr_topic *name_topic(struct mr_topics *topics,
                                         const struct mr_value_route *route, mr_slice value,
                                         const char **ret_fault)
{
    uint8_t name[NAME_BYTES];
    struct mr_buffer out = mr_buffer_init(name, sizeof(name) - 1);
    const struct mr_topic *topic = NULL;
    bool can_be = make_name(route, value, &out);
    *ret_fault = "is longer than the 249 characters of a topic's name, or has a NUL";
    if (can_be) {
        *out.at = '\0';
        *ret_fault = mr_topic_fault((const char *)name);
        can_be = *ret_fault == NULL;
    }
    if (can_be) {
        topic = mr_topics_by_value(topics, route->owner, (const char *)name, route->topics_max,
                                   ret_fault);
    }
    if (topic == NULL && route->fallback_topic != NULL && !(can_be && route->falls_back_by_name)) {
        topic = mr_topics_intern(topics, route->fallback_topic);
    }
    return topic;
}

const struct mr_topic *mr_value_topics_find(struct mr_value_topics *known, struct mr_topics *topics,
                                            const struct mr_value_route *route, mr_slice value,
                                            const char **ret_fault)
{
    if (MR_UNLIKELY(known->entries == NULL)) {
        make_room(known, route->topics_max);
    }
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, value.data, value.len);
    struct mr_value_topic *entry = place_of(known, route, value, hash);
    if (MR_LIKELY(entry->topic != NULL)) {
        return entry->topic;
    }
    const struct mr_topic *topic = name_topic(topics, route, value, ret_fault);
    if (topic == NULL || value.len > MR_REWRITE_BYTES_MAX) {
        return topic;
    }
    if (known->count == known->capacity / 2 || known->used + value.len > bytes_max(known)) {
        forget_all(known);
        entry = place_of(known, route, value, hash);
    }
    *entry = (struct mr_value_topic){.route = route,
                                     .topic = topic,
                                     .hash = hash,
                                     .at = (uint32_t)known->used,
                                     .len = (uint32_t)value.len};
    if (value.len > 0) {
        memcpy(known->bytes + known->used, value.data, value.len);
    }
    known->used += value.len;
    known->count++;
    return topic;
}

void mr_value_topics_forget(struct mr_value_topics *known)
{
    if (known->entries != NULL) {
        forget_all(known);
    }
}

void mr_value_topics_done(struct mr_value_topics *known)
{
    free(known->entries);
    free(known->bytes);
    *known = (struct mr_value_topics){0};
}
