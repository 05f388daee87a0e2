/* What a topic says of a table, folded by key, beside what the table says.
 *
 * Rows and events are put into buckets by their key's digest, on disk where they are many
 * (spill.h), and one bucket is compared at a time: memory holds the keys of one of 512 buckets.
 * Events of a key are folded in the order in which they were added, which is that of their
 * partition's offsets; where a key is in two partitions, the later position counts.
 *
 * A table is read in chunks, each with a snapshot of its own (cut.h). Of a key whose row was read,
 * the events count that the chunk's snapshot sees. A key that no chunk showed is a phantom if the
 * topic has its row from the first snapshot to the last, without a pause; if it came in between,
 * after its chunk was read, nothing is said of it.
 *
 * A table without a key is a multiset: a row is its own key, and is counted. Of events of one place
 * the first counts, for the others repeat it.
 *
 * What rows have in a late column, to which their last events are older, is found out first: one
 * value, the column's default when it was added, which most of them have. A row with another one
 * differs. So does one whose event lacks a column that the table had by then: somebody withheld it
 * (a list of the publication, which was altered and altered back). That it had it is said by the
 * transaction that found it in the catalog, by a later column or an earlier event that has it. A
 * value that no default explains is unknown.
 *
 * Rows and events may be added by one thread each; what compares has the fold alone, and does it in
 * two threads. */
#ifndef MR_VERIFY_FOLD_H
#define MR_VERIFY_FOLD_H

#include "base/status.h"
#include "verify/cut.h"
#include "verify/table.h"

struct mr_fold;

/* Of an event: order of places is order of emission. */
struct mr_place {
    mr_lsn commit_lsn;
    uint64_t order; /* ordinal << 4 | part */
};

static inline int mr_place_compare(struct mr_place a, struct mr_place b)
{
    if (a.commit_lsn != b.commit_lsn) {
        return a.commit_lsn < b.commit_lsn ? -1 : 1;
    }
    return (a.order > b.order) - (a.order < b.order);
}

/* Whether it is of a row that was copied, or of a delete that a repair sent: no commit is there,
 * because those are at multiples of eight. */
static inline bool mr_place_is_copied(struct mr_place place)
{
    return place.commit_lsn % 8 != 0;
}

struct mr_fold_record {
    struct mr_place place;
    int64_t offset;
    int32_t partition;
    uint32_t xid;
};

/* An event of a row. `row` NULL: it is gone. Of a table without a key, a row that came or, with
 * `is_gone`, went. A tombstone says that an event before it did, which compaction may have taken
 * away. */
struct mr_fold_event {
    struct mr_fold_record record;
    struct mr_digest key;
    const struct mr_verify_row *row;
    bool is_gone;
    bool is_tombstone;
    bool is_whole; /* of a delete: it has no tombstone */
    /* of a row that was there before; `record.xid` is the next number that was free then */
    bool is_copied;
};

enum mr_difference_kind {
    MR_DIFFERENCE_MISSING, /* the table has the row, the topic does not */
    MR_DIFFERENCE_PHANTOM, /* the other way round */
    MR_DIFFERENCE_STALE,   /* the key's last event is not of the transaction that wrote the row */
    MR_DIFFERENCE_ALTERED, /* it is, and has other values */
    /* the row is gone on both sides, and of delete and tombstone one alone is there */
    MR_DIFFERENCE_TORN,
    /* none that is known: equal, but for a large value that no event has, or that of a late column
     * without a default */
    MR_DIFFERENCE_UNKNOWN,
    MR_DIFFERENCE_COUNT,
};

struct mr_difference {
    enum mr_difference_kind kind;
    struct mr_digest key;
    struct mr_fold_record last; /* of the key's last event; offset -1: there is none */
    uint64_t times;             /* of a row without a key */
};

typedef void (*mr_difference_fn)(void *context, const struct mr_difference *difference);

struct mr_fold_counts {
    uint64_t rows;
    uint64_t events;
    uint64_t differences[MR_DIFFERENCE_COUNT];
    uint64_t eventless; /* of those that are missing: their key has no event */
    /* keys whose last event is of another form of the table, and does not equal the row */
    uint64_t older;
    uint64_t unsettled; /* keys that no chunk showed, and that came while they were read */
    uint64_t twice;     /* rows with a key that another one has */
    /* keys with a tombstone, without the delete, which compaction may have taken */
    uint64_t buried;
    uint64_t bare;        /* keys with a delete from before the first tombstone of all */
    uint64_t lacking;     /* differences of keys whose last event lacks a column */
    uint64_t alone;       /* rows that alone say what older ones have in a column */
    uint64_t undefaulted; /* rows with a value that a late column without a default has */
    struct mr_fold_record first_bare; /* one of them, if there is any */
};

struct mr_fold_options {
    bool has_key;
    bool has_tombstones; /* a delete has one */
    mr_lsn entered;      /* what is before was another cluster's; 0: nothing was */
};

struct mr_fold *mr_fold_new(const struct mr_fold_options *options);
void mr_fold_free(struct mr_fold *fold); /* NULL is fine */

/* `chunk`: the number of its snapshot; `xid`: of the transaction that wrote the row. */
mr_status mr_fold_add_row(struct mr_fold *fold, struct mr_digest key, uint32_t chunk, uint32_t xid,
                          const struct mr_verify_row *row, struct mr_error *ret_error);

mr_status mr_fold_add_event(struct mr_fold *fold, const struct mr_fold_event *event,
                            struct mr_error *ret_error);

/* An event of that key is about to be added: its place in memory, which is one of a thousand, may
 * be fetched meanwhile. */
void mr_fold_expect_event(const struct mr_fold *fold, struct mr_digest key);

/* All events before that place are of rows that are gone, as of snapshots that see the
 * transaction. */
void mr_fold_truncate(struct mr_fold *fold, const struct mr_fold_record *record);

/* Nothing takes records out of the topic: neither compaction nor retention. */
void mr_fold_keep_all(struct mr_fold *fold);

/* Calls `take` with each difference, one call at a time. `cuts`: the chunks' snapshots, at least
 * one, from the first on. */
mr_status mr_fold_compare(struct mr_fold *fold, const struct mr_cut *cuts, uint32_t cut_count,
                          mr_difference_fn take, void *context, struct mr_fold_counts *ret_counts,
                          struct mr_error *ret_error);

#endif
