/* Of the daemon's own proof (continuous.h): which tables are proved next, and what the proofs so far have come to.
 *
 * Each table is to be proved once within an interval. It is due again a tenth of it, and twice the time that its last proof took, before
 * that is over; the one that has waited longest comes first. Tables that were not proved since the start come in an order that is drawn, so
 * that each has its turn however often millrace is started again. One that could not be proved now is tried again after a twenty-fourth of
 * the interval. Times are monotonic, in nanoseconds. No thread of its own; its owner locks it. */
#pragma once

#include "base/index.h"
#include "event/event.h"

struct cJSON;

enum { MR_SCHEDULE_CAUSE_MAX = 16 };

struct mr_scheduled {
    char *name;           /* "schema.table" */
    uint64_t rows;        /* when it was proved last; before that, about */
    uint64_t differences; /* then */
    uint64_t unproved;    /* of its rows: they differ, or have a value that no event has */
    mr_lsn lsn;           /* as of which that was; 0: not yet */
    int64_t proved_ns;    /* when that proof began; 0: not yet */
    int64_t due_ns;
    char cause[MR_SCHEDULE_CAUSE_MAX]; /* why the last try came to nothing; "": it did not */
    bool is_listed;
};

struct mr_schedule {
    struct mr_scheduled *items;
    uint32_t count, room;
    struct mr_index by_name;
    int64_t interval_ns;
};

void mr_schedule_done(struct mr_schedule *schedule);

/* All tables that there are, one by one between the two; the others are forgotten. */
void mr_schedule_list_begin(struct mr_schedule *schedule);
void mr_schedule_list(struct mr_schedule *schedule, const char *name, uint64_t rows);
void mr_schedule_list_end(struct mr_schedule *schedule);

/* NULL: it is not there. */
struct mr_scheduled *mr_schedule_find(struct mr_schedule *schedule, const char *name);

/* Up to `max` tables that are due, the first one first. `ret` has their numbers, until the next list. */
uint32_t mr_schedule_due(const struct mr_schedule *schedule, int64_t now_ns, uint32_t *ret,
                         uint32_t max);

/* What a line of `verify --json` says of a table that is proved: rows, differences, unproved, lsn and cause. */
struct mr_scheduled mr_scheduled_read(const struct cJSON *said);

/* How long until something that went wrong is tried again. */
int64_t mr_schedule_retry_ns(const struct mr_schedule *schedule);

/* A table's proof, which began then and has ended now. */
void mr_schedule_take(const struct mr_schedule *schedule, struct mr_scheduled *table,
                      const struct mr_scheduled *proof, int64_t begun_ns, int64_t now_ns);

struct mr_schedule_sum {
    uint32_t tables, proved, different,
        void_now; /* proved within the interval; the last try came to nothing */
    uint64_t rows, rows_proved;
    uint64_t differences;
    int64_t
        oldest_ns; /* the oldest proof's beginning; 0: one is not proved yet, or there is none */
};
struct mr_schedule_sum mr_schedule_sum(const struct mr_schedule *schedule, int64_t now_ns);

/* Percent of all rows that were proved within the interval; of no rows, of tables. */
double mr_schedule_percent(const struct mr_schedule_sum *sum);
