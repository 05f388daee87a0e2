/* By how many partitions the records of a topic are placed, where what comes again must go where it
 * went before: consumers know a repeat by the highest position of its partition. Partitions that
 * were added count from a position on that is stored before a record uses it, so that the next
 * process knows it, too, however this one ends.
 *
 *   SETTLED --(is about to be stored)--> ASKED --(is stored)--> CHANGED --(the stored position has
 *   passed it)--> SETTLED
 *
 * What a session finds stored takes the place of what was asked. Sink thread; the object outlives
 * its sessions. */
#pragma once

#include "base/index.h"
#include "event/batch.h"

enum mr_placing_state {
    MR_PLACING_SETTLED,
    MR_PLACING_ASKED,   /* what is after `until` waits */
    MR_PLACING_CHANGED, /* it is placed by `count` */
};

struct mr_placing {
    uint64_t hash; /* of the topic's name */
    enum mr_placing_state state;
    int32_t count, before; /* `before` up to `until`, unless settled */
    struct mr_position until;
    int32_t present;              /* partitions that there are */
    const struct mr_topic *topic; /* NULL: this process has sent it nothing */
};

struct mr_placings {
    bool is_stored; /* false: only this process knows it */
    bool owes;      /* there is something to be stored */
    struct mr_position sent;
    struct mr_placing **items;
    uint32_t capacity;
    struct mr_index by_hash; /* of them */
};

struct mr_placings *mr_placings_new(bool is_stored);
void mr_placings_free(struct mr_placings *placings); /* takes NULL */

/* The topic has so many partitions by now. Good until the end; the topic learns by how many its
 * records are placed. */
const struct mr_placing *mr_placings_see(struct mr_placings *placings, const struct mr_topic *topic,
                                         int32_t partitions);

/* Records up to this position are about to be placed. */
void mr_placings_note_sent(struct mr_placings *placings, struct mr_position position);

/* The number to place by; 0: not yet. */
static inline int32_t mr_placing_count(const struct mr_placing *placing,
                                       struct mr_position position)
{
    if (MR_LIKELY(placing->state == MR_PLACING_SETTLED)) {
        return placing->count;
    }
    if (mr_position_compare(position, placing->until) <= 0) {
        return placing->before;
    }
    return placing->state == MR_PLACING_CHANGED ? placing->count : 0;
}

/* What is stored with `end_lsn`, as JSON, the caller's; NULL: nothing, or too much. No process has
 * sent more than this one, or what is before `server_end` (0: that is not known). */
char *mr_placings_format(struct mr_placings *placings, mr_lsn end_lsn, mr_lsn server_end);

/* What `format` said last is stored. */
void mr_placings_settle(struct mr_placings *placings);

/* A session begins with what `format` said for what it found; NULL: nothing. */
void mr_placings_take(struct mr_placings *placings, const char *json);
