/* Topics that records were sent to, by the ids that brokers give them (KIP-516): one that was
 * deleted and made again has another, whoever made it, and what was in it is gone. The stored
 * position has them, so that the next process notices it, too, with the first record that it sends
 * there. What is noticed is told, and shown until the table was copied since, or the process ends.
 * Another cluster's ids say nothing about that: with it all of them are forgotten.
 *
 * Sink thread, but for what is noted as made again; the object outlives sessions. */
#pragma once

#include <pthread.h>

#include "base/index.h"
#include "event/batch.h"

struct mr_known_topic {
    uint64_t hash; /* of its name */
    uint64_t id;   /* 0: not known */
    /* that it had before: a broker that is behind the others may say so for a while */
    uint64_t before;
    const struct mr_topic *topic; /* NULL: this process has sent it nothing */
    bool due;                     /* to be asked for */
    bool gone;                    /* it is being made again, and that was told */
};

struct mr_again {
    const struct mr_topic *topic;
    int64_t at_ns; /* noticed then (monotonic) */
};

struct mr_known_topics {
    bool owes;  /* there is something to be stored */
    bool wants; /* some are due */
    struct mr_known_topic *items;
    uint32_t capacity;
    struct mr_index by_hash; /* of them */
    const char **names;      /* the last answer of mr_known_topics_names */
    uint32_t name_capacity;
    uint64_t cluster; /* whose ids these are, a hash; 0: not known */
    char *text;       /* as it is stored; NULL: that has changed */

    pthread_mutex_t lock; /* of the next three */
    struct mr_again *again;
    uint32_t again_count, again_capacity;
};

/* What was made again: how many, and a sentence that names the first and the remedy. */
struct mr_again_view {
    uint32_t count;
    char text[512];
};

struct mr_known_topics *mr_known_topics_new(void);
void mr_known_topics_free(struct mr_known_topics *known); /* takes NULL */

/* Records are about to be sent to it. */
void mr_known_topics_add(struct mr_known_topics *known, const struct mr_topic *topic);

/* It is missing, and about to be made. True: it was sent records before, which is told. */
bool mr_known_topics_miss(struct mr_known_topics *known, const struct mr_topic *topic);

/* Of those that this process has sent to, all or the ones that are due. Good until the next
 * call. */
const char **mr_known_topics_names(struct mr_known_topics *known, bool all, uint32_t *ret_count);

/* The cluster that answers, before its answers are compared. */
void mr_known_topics_cluster(struct mr_known_topics *known, const char *cluster);

/* A broker says that the topic has this id; 0: none. True: it had another, which is told. */
bool mr_known_topics_compare(struct mr_known_topics *known, const char *name, uint64_t id);

/* What is stored, as JSON, the caller's; as many as there is room for. */
char *mr_known_topics_format(struct mr_known_topics *known);

/* A session begins with what `format` said for what it found. */
void mr_known_topics_take(struct mr_known_topics *known, const char *json);

/* Any thread: all rows of the table were sent again since `begun_ns` (monotonic). `known` may be
 * NULL. */
void mr_known_topics_copied(struct mr_known_topics *known, const char *schema, const char *table,
                            int64_t begun_ns);

/* Any thread. `known` may be NULL. */
struct mr_again_view mr_known_topics_view(struct mr_known_topics *known);
