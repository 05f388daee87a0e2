/* A table that is being proved, which the files of the proof share: proof.c takes the steps, rows.c
 * reads the table, records.c its topic, names.c names what differs, keys.c turns those names back
 * into the server's values, judge.c says what it means. Main thread, but for records.c. */
#ifndef MR_VERIFY_PROOF_INTERNAL_H
#define MR_VERIFY_PROOF_INTERNAL_H

#include "base/thread.h"
#include "verify/order.h"
#include "verify/proof.h"

/* Records that are not as the table's events are. */
struct mr_strange {
    uint64_t unreadable;
    char first_unreadable[512];
    uint64_t other_keys;
    struct mr_place other_last; /* of these the last one */
    uint64_t foreign;           /* before the first one of millrace */
    uint64_t lossy;             /* too large, of a table without a key */
    uint64_t hard;              /* differences whose last event is after `other_last` */
};

/* The topic, which a thread of its own reads. So it may begin while the table is still read, and
 * what comes in the meantime is read afterwards. Between mr_work_topic_begin and the thread's end
 * it has fold (events alone), order, strange and extent of the work. */
struct mr_reading {
    pthread_t thread;
    pthread_mutex_t lock; /* of the next four */
    pthread_cond_t turned;
    enum { MR_TOPIC_AHEAD, MR_TOPIC_LAST, MR_TOPIC_LEFT } wanted; /* how far it is to be read */
    bool is_ended;
    uint64_t records, all;
    struct mr_verify_row row, before;
    mr_lsn copied;            /* the highest position of a row that was there before, */
    int32_t copied_partition; /* and its record */
    int64_t copied_offset;
    const char *cause; /* why it can't be read to its end, as mr_proof.cause; NULL: it can */
    bool has_grown;    /* more partitions than at the beginning */
    mr_status status;
    struct mr_error error;
    bool is_begun;
};

struct mr_work {
    const struct mr_verify_tools *tools;
    struct mr_proof *proof;
    struct mr_verify_table table;
    struct mr_fold *fold;
    struct mr_order *order;
    struct mr_cut *cuts; /* of the chunks */
    uint32_t cut_count, cut_room;
    uint32_t chunk_rows, chunk_max; /* of the chunk at hand; max 0: it is the whole table */
    char *after;                    /* where the next one begins */
    struct mr_verify_row row;
    struct mr_reading topic;
    struct mr_kafka_extent extent;
    int64_t begun_ns; /* what is being read */
    struct mr_strange strange;
    /* of each column of a table of that form, whether values are to be apart; NULL: none is
     * known */
    bool *late;
    struct mr_digest late_form;
};

/* Forgets all that was read. */
void mr_work_reset(struct mr_work *work);

/* The table's rows into the fold, chunk by chunk. `*ret_is_void`: they are to be read again. The
 * verdict may be that nothing can be proved. */
mr_status mr_work_read_rows(struct mr_work *work, bool *ret_is_void, struct mr_error *ret_error);

/* Begins to read the topic's records into the fold. The table must be described. */
mr_status mr_work_topic_begin(struct mr_work *work, struct mr_error *ret_error);

/* Reads it to the end that it has now. `*ret_is_whole`: it is read so far, or the verdict is that
 * it can't be. `*ret_is_void`: its partitions have become more, and all is to be read again. */
mr_status mr_work_topic_end(struct mr_work *work, bool *ret_is_whole, bool *ret_is_void,
                            struct mr_error *ret_error);

/* Ends the thread, if there is one. */
void mr_work_topic_leave(struct mr_work *work);

/* What the comparison of both has come to, as verdict and reasons. */
void mr_work_judge(const struct mr_work *work);

/* Finds the keys of the differences, as far as Kafka and the server answer: the verdict holds
 * without names. */
void mr_work_name(struct mr_work *work);

/* Asks the server which values the named keys of events are of (keys.c). What it can't say stays
 * unknown. */
void mr_work_turn_back(struct mr_work *work);

/* Whether the row of that key, or without a key that row, is in the sample. */
bool mr_work_is_sampled(const struct mr_work *work, struct mr_digest key,
                        const struct mr_verify_row *row);

/* Waits; MR_AGAIN: it is to end. */
mr_status mr_work_wait(const struct mr_work *work, int64_t ms, struct mr_error *ret_error);

/* As many rows or records as `rate` says have been read since `begun_ns`. */
mr_status mr_work_keep_rate(const struct mr_work *work, uint64_t done, struct mr_error *ret_error);

/* Shows in a terminal how far it is; `all` 0: it is not known how much there is. */
void mr_work_show(const struct mr_work *work, const char *what, uint64_t done, uint64_t all);

enum { MR_PROGRESS_EVERY = 16384 }; /* rows or records */

/* What is waited for, and since when it has been there. */
struct mr_patience {
    uint64_t seen;
    int64_t since_ns; /* 0: nothing was seen yet */
};

/* Whether `now` is what has been seen for a minute: what does not move for so long does not run, or
 * stands still. */
bool mr_patience_ends(struct mr_patience *patience, uint64_t now);

#endif
