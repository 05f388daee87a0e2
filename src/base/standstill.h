/* Why nothing moves. There is a cause for each kind of thing that can stop the flow, with a text
 * that names the thing, the reason and the remedy.
 *
 * The module that meets a cause begins it, and ends it when it is gone. In between it stays,
 * however often something is tried again. Several causes may be there at once; page, metrics,
 * /readyz and log all show the same one: an end, else what ends millrace, else the first that
 * began, because the others often follow from it (millrace leaves PostgreSQL alone because Kafka
 * takes nothing). The pipeline owns it. Any thread calls; a lock is held for a copy of a text. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

enum mr_cause {
    MR_CAUSE_NONE,
    MR_CAUSE_POISON,          /* a change that can't be passed on */
    MR_CAUSE_RECORD_REFUSED,  /* a record that the sink refuses for good */
    MR_CAUSE_POSTGRESQL_AWAY, /* or it refuses */
    MR_CAUSE_KAFKA_AWAY,
    MR_CAUSE_TOPIC_MISSING,       /* or it can't be created */
    MR_CAUSE_REGISTRY_AWAY,       /* of schemas */
    MR_CAUSE_SINK_FAILS,          /* its session ends again and again: a disk is full */
    MR_CAUSE_SINK_SILENT,         /* it takes nothing and says nothing */
    MR_CAUSE_TABLE_UNPUBLISHED,   /* nothing comes of a table that is listed; the others flow */
    MR_CAUSE_PUBLICATION_CHANGED, /* it sends less, or more, of tables than when the stream began */
    MR_CAUSE_ENDED,               /* by itself; the process stays, so that one can look */
    MR_CAUSE_COUNT
};

const char *mr_cause_name(enum mr_cause cause); /* "none", "kafka_away", … */

static inline bool mr_cause_is_poison(enum mr_cause cause)
{
    return cause == MR_CAUSE_POISON || cause == MR_CAUSE_RECORD_REFUSED;
}

/* Batches can't be passed on, so in the end nothing is received. */
static inline bool mr_cause_is_of_sink(enum mr_cause cause)
{
    return cause >= MR_CAUSE_KAFKA_AWAY && cause <= MR_CAUSE_SINK_SILENT;
}

/* What is there flows; something is missing that PostgreSQL does not send. */
static inline bool mr_cause_is_of_tables(enum mr_cause cause)
{
    return cause == MR_CAUSE_TABLE_UNPUBLISHED || cause == MR_CAUSE_PUBLICATION_CHANGED;
}

/* Nothing flows, or nothing will soon. */
static inline bool mr_cause_stops_all(enum mr_cause cause)
{
    return cause != MR_CAUSE_NONE && !mr_cause_is_of_tables(cause);
}

enum { MR_CAUSE_TEXT_MAX = MR_ERROR_TEXT_MAX + 128 };

struct mr_standstill {
    pthread_mutex_t lock;
    _Atomic uint32_t there; /* a bit for each cause */
    struct {
        int64_t since_ns; /* monotonic */
        char text[MR_CAUSE_TEXT_MAX];
    } causes[MR_CAUSE_COUNT];
};

struct mr_standstill_view {
    enum mr_cause cause;
    int64_t since_ns;             /* monotonic */
    bool postgresql_away;         /* that one too, or only that one */
    char text[MR_CAUSE_TEXT_MAX]; /* thing, reason and remedy, without row data; "" with none */
};

void mr_standstill_init(struct mr_standstill *standstill);
void mr_standstill_done(struct mr_standstill *standstill);

/* The cause is there, or still there: its beginning stays. `standstill` NULL: no effect; so for
 * mr_standstill_end. */
void mr_standstill_begin(struct mr_standstill *standstill, enum mr_cause cause, const char *text);

/* mr_standstill_end's slow half. */
void mr_standstill_forget(struct mr_standstill *standstill, enum mr_cause cause);

static inline bool mr_standstill_has(const struct mr_standstill *standstill, enum mr_cause cause)
{
    return (atomic_load_explicit(&standstill->there, memory_order_relaxed) >> cause & 1) != 0;
}

/* The cause is gone, if it was there. Costs one load where it was not. */
static inline void mr_standstill_end(struct mr_standstill *standstill, enum mr_cause cause)
{
    if (standstill != NULL && MR_UNLIKELY(mr_standstill_has(standstill, cause))) {
        mr_standstill_forget(standstill, cause);
    }
}

/* The cause that is shown. */
void mr_standstill_look(struct mr_standstill *standstill, struct mr_standstill_view *ret_view);
