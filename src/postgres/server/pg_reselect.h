/* Values that the stream does not have, read from their tables: an update that does not touch a
 * value which is stored out of line does not send it (manual, "Logical Replication Message
 * Formats", TupleData). Each question is one update's; they are asked by the key, together, over
 * the connection for existing rows (pg_copying.h).
 *
 * A value is exact, the one that the row had after that transaction, if
 *   - the snapshot sees the transaction's end: it may be in the stream before that (pg_keys.h,
 *     mr_pg_horizon);
 *   - the row's xmin is the transaction's number: then no later one has changed it. A row that was
 *     changed under a savepoint has the number of that; where the server keeps the times of commits
 *     (track_commit_timestamp), the same time tells it, for two transactions that change one row
 *     wait for each other. A replication origin may set any time, so neither side may have one;
 *   - no later change of the same transaction has touched it, which only who reads the stream knows
 *     (stream/reselect.h).
 *   - no row of the catalog that says what the columns are was written since (see
 *     pg_reselect_columns.c). Where one was, a value of a column is a later one, if the column with
 *     that number still has its name, as the order of the relation's names tells (event/places.h),
 *     and else none.
 * Numbers come again after 2^32 transactions, but the server assigns none that are half of that
 * ahead of what a slot keeps (varsup.c, GetNewTransactionId), and the transaction is not confirmed
 * yet.
 *
 * One thread. */
#pragma once

#include "event/reselected.h"
#include "postgres/catalog/pg_options.h"
#include "postgres/server/pg_copying.h"

enum {
    MR_RESELECT_VALUES_MAX = 4 << 20,  /* bytes of one row's values; larger ones are not read */
    MR_RESELECT_ROUND_BYTES = 2 << 20, /* no question of a round is answered after so many */
};

/* A column, by its place in the stream's relation, and where its value is; `at` SIZE_MAX: there is
 * none. */
struct mr_reselect_part {
    uint32_t column;
    size_t at, len;
};

/* Memory of a question is used again for the next one. */
struct mr_reselect_question {
    uint32_t oid, xid;
    int64_t commit_us; /* since 2000, as the server tells it */
    bool has_origin;
    uint32_t key_count, column_count;
    struct mr_text names;   /* schema, table, columns of the key, columns; each with its NUL */
    struct mr_text version; /* names of all columns of the relation, likewise */
    struct mr_text keys;    /* values, likewise */
    /* The answer. */
    bool is_answered;
    enum mr_reselected outcome;
    bool is_read;      /* the reader's own: a row, or none, has come, */
    uint32_t leaf, as; /* of that table; what it was is known from that question */
    struct mr_text values;
    struct mr_reselect_part *parts; /* of each column */
    uint32_t part_room;
};

void mr_reselect_question_done(struct mr_reselect_question *question);

static inline const char *mr_reselect_next_name(const char *name)
{
    return name + strlen(name) + 1;
}

struct mr_reselector;

struct mr_reselector *mr_reselector_new(const struct mr_pg_source_options *options,
                                        struct mr_pg_home *home, int stop_fd);
void mr_reselector_free(struct mr_reselector *reselector);

/* Closes the connection until the next question: an open one would hold up a server that stops in
 * order. */
void mr_reselector_rest(struct mr_reselector *reselector);

/* Answers them, in their order, or the first ones: as many as there is room for. By then
 * (monotonic) at the latest, but for what libpq waits for without a limit. */
void mr_reselector_answer(struct mr_reselector *reselector, struct mr_reselect_question *questions,
                          uint32_t count, int64_t deadline_ns);
