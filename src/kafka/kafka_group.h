/* Consumers that go on: a member of a group, which is given partitions of a topic, or one that follows the first partition of topics. Both
 * read each partition from its beginning, committed records only, say when they have read it to its end, and store no offset. For agents
 * of a fleet. One thread, which owns the consumer and never waits for it. */
#pragma once

#include "kafka/kafka_reader.h"

struct mr_kafka_group;

/* Texts outlive the consumer. */
struct mr_kafka_group_options {
    const struct mr_kafka_options *kafka;
    const char *topics[2]; /* a member has one */
    const char *group;     /* NULL: none, it follows */
    const char *member;    /* group.instance.id: of two of one name the older is fenced */
    int64_t session_ms; /* without a sign of life for so long, its partitions are given to others */
    int64_t poll_ms;    /* longest between two calls of next, and a rebalance's wait for a member */
    int wake_fd;        /* an eventfd, written when there may be news */
};

enum mr_kafka_news {
    MR_NEWS_RECORD,
    MR_NEWS_READ,     /* `partition` is read to its end, as it is now */
    MR_NEWS_ASSIGNED, /* `partitions`, maybe none; they are read now. What was lost before and is not among them belongs to others */
    MR_NEWS_REVOKED,  /* `partitions`; others get them after mr_kafka_group_release */
    MR_NEWS_LOST, /* likewise, but they may belong to others by now; there is nothing to release */
    MR_NEWS_FENCED,  /* another member has this one's name; nothing comes any more */
    MR_NEWS_GONE,    /* the topic, or what was to be read next, is not there */
    MR_NEWS_REFUSED, /* the user may not do that */
};

/* Valid until the next call. */
struct mr_kafka_news_item {
    enum mr_kafka_news kind;
    const char *topic;           /* of the options; of the first two kinds */
    struct mr_kafka_read record; /* its partition alone: of MR_NEWS_READ */
    const int32_t *partitions;
    uint32_t count;
    const char *text; /* of MR_NEWS_FENCED, _GONE and _REFUSED: the client's reason */
};

mr_status mr_kafka_group_new(const struct mr_kafka_group_options *options,
                             struct mr_kafka_group **ret_group, struct mr_error *ret_error);

/* False: there is nothing now. */
bool mr_kafka_group_next(struct mr_kafka_group *group, struct mr_kafka_news_item *ret);

/* What was revoked last may be given to others. */
void mr_kafka_group_release(struct mr_kafka_group *group);

/* Reads what it follows from the beginning again: of topics that were made anew. */
void mr_kafka_group_follow_again(struct mr_kafka_group *group);

/* Whether the topic is known to be missing; asks, five seconds at most. */
bool mr_kafka_group_topic_is_gone(struct mr_kafka_group *group);

/* Without a word to the group, which waits for the session's time-out: who is back by then keeps its partitions. NULL is fine. */
void mr_kafka_group_free(struct mr_kafka_group *group);
