/* Copies of existing rows, as others see them: ask for them, stop them, look how far they are.
 * Behind it are two companions of the flow (ports/companion.h): the snapshot, which copies what is
 * there before the stream begins (snapshot.c), and the chunks, which copy tables that somebody asks
 * for while it runs (chunks.c). Any thread, once there is a flow; new and free apart. */
#pragma once

#include "copy/chunk_keys.h"
#include "copy/readers.h"
#include "event/known_topics.h"
#include "ports/companion.h"

/* Sections that copies may have in the stored record; ends with a name that is NULL. */
extern const struct mr_section_kind mr_copy_section_kinds[];

struct mr_copies_options {
    const struct mr_copy_server *server;
    uint32_t workers;        /* that copy existing rows before the stream; 0: none are copied */
    bool only;               /* and then the flow stops */
    bool when_needed;        /* also where the stream can't go on; the server knows when that is */
    bool accepts_gap;        /* where it can't, it goes on at a new slot, and none are copied */
    bool leaves_rows_out;    /* snapshot.where may: such a copy closes no gap */
    bool converts;           /* events have values in other forms than the server's */
    size_t change_bytes_max; /* of one change's records */
    size_t row_bytes_max;    /* of a row that is copied while the stream runs; 0: no limit */
    size_t stored_bytes_max; /* of the stored record, for all that is asked; 0: no limit */
    /* A row was inserted into the table of signals; as in mr_companion_ops. NULL: there is no such
     * table. */
    mr_status (*on_signal)(void *context, const struct mr_change *change,
                           struct mr_error *ret_error);
    void *on_signal_context;
    struct mr_known_topics *topics; /* learn which tables were copied; NULL: nobody does */
    /* A copy before the stream begins once it is stored that it does: what is known of the tables'
     * columns by then holds for the next process, too, whatever becomes of this one. */
    bool stores_beginning;
};

/* The options are copied; what they point to is the caller's and outlives the copies, which outlive
 * the flow. */
struct mr_copies;
struct mr_copies *mr_copies_new(const struct mr_copies_options *options);
void mr_copies_free(struct mr_copies *copies); /* NULL is fine */

/* For the flow, in this order. */
struct mr_companion *const *mr_copies_companions(struct mr_copies *copies, uint32_t *ret_count);

enum mr_copy_state {
    MR_COPY_IDLE, /* none was needed */
    MR_COPY_RUNNING,
    MR_COPY_BROKEN_OFF, /* the next attempt goes on */
    MR_COPY_DONE,
};
const char *mr_copy_state_name(enum mr_copy_state state); /* "none", "running", … */

struct mr_copy_stats {
    enum mr_copy_state state;
    uint32_t tables, tables_done; /* leaves of partitioned tables by themselves */
    uint64_t rows, rows_estimated;
    uint64_t bytes, bytes_total; /* of the tables' files; those of tables that are done */
    double seconds;              /* so far, or that it took */
    double seconds_left;         /* by the rate of bytes; NaN: not known */
};

/* A part of all, in per cent; all of nothing is 100. */
static inline uint32_t mr_copy_percent(uint64_t part, uint64_t all)
{
    return part >= all ? 100 : (uint32_t)(100.0 * (double)part / (double)all);
}

enum { MR_COPY_TABLE_NAME_SIZE = 2 * MR_IDENTIFIER_MAX + 2 };

struct mr_copy_table_stats {
    char table[MR_COPY_TABLE_NAME_SIZE];
    enum { MR_COPY_TABLE_WAITS, MR_COPY_TABLE_READ, MR_COPY_TABLE_DONE } state;
    uint64_t rows, rows_estimated; /* of this attempt; 0: nobody has counted */
    uint64_t bytes, bytes_total;   /* of its file */
    double seconds;                /* since its first piece was taken */
    double seconds_left;           /* NaN: not known */
};

struct mr_copy_stats mr_copies_stats(struct mr_copies *copies);

/* How far the tables of the copy at hand or the last one are, those under way first; returns how
 * many. */
uint32_t mr_copies_tables(struct mr_copies *copies, struct mr_copy_table_stats *ret_tables,
                          uint32_t capacity);

struct mr_copy_wish {
    const char *schema, *table;
    const char *where; /* SQL, of the rows that are wanted; NULL: all */
    bool is_signal;    /* it is of whoever may write the table of signals */
    const char *key;   /* columns to read by, as PostgreSQL writes a list; NULL: those of events */
    struct mr_chunk_keys *keys; /* to repair, taken over in any case; NULL: all rows are copied */
};

enum mr_copy_request_state {
    MR_REQUEST_CHECKED, /* being looked at */
    MR_REQUEST_WAITING, /* for its turn */
    MR_REQUEST_COPIED,  /* under way */
    MR_REQUEST_SETTLED, /* all its rows are on their way */
    MR_REQUEST_DONE,
    MR_REQUEST_STOPPED,
    MR_REQUEST_FAILED, /* or refused */
};
const char *mr_copy_request_state_name(enum mr_copy_request_state state);

struct mr_copy_request {
    uint64_t id;
    char table[2 * MR_IDENTIFIER_MAX + 2];
    enum mr_copy_request_state state;
    const char *repairs;           /* why its keys are repaired; NULL: it copies rows */
    uint64_t rows, rows_estimated; /* that went out; of all */
    uint64_t passed_over;          /* rows that the stream had in a newer form */
    uint64_t chunks, repeated;     /* read and good; read in vain */
    double seconds;
    char error[512]; /* "": none */
};

enum { MR_COPY_REQUESTS_MAX = 200 };

/* Asks for a table's existing rows; `*ret_id` tells it from others. MR_ERR_CONFIG: there is nothing
 * to ask, or too much is asked. What is wrong with the table, the request says once it was looked
 * at. */
mr_status mr_copies_ask(struct mr_copies *copies, const struct mr_copy_wish *wish, uint64_t *ret_id,
                        struct mr_error *ret_error);

/* Ends the copies of that table (NULL: of all) that are not at their ends; returns how many. */
uint32_t mr_copies_stop(struct mr_copies *copies, const char *schema, const char *table);

/* The same, of tables that are not to be kept, because they are not streamed any more. */
typedef bool (*mr_copy_keeps_fn)(void *context, const char *schema, const char *table);
uint32_t mr_copies_keep(struct mr_copies *copies, mr_copy_keeps_fn keeps, void *context);

/* No further chunk is read while they are paused. */
void mr_copies_pause(struct mr_copies *copies, bool pauses);

/* What is asked for once it comes: tables to the stream, partitions to tables that are sent by
 * their roots. Where nothing is, what was known is forgotten. */
enum { MR_FOLLOW_TABLES = 1, MR_FOLLOW_LEAVES = 2 };
void mr_copies_follow(struct mr_copies *copies, uint32_t kinds);

struct mr_streamed_table {
    uint64_t id;                /* mr_streamed_id, by which it is known */
    const char *schema, *table; /* of a partition its root's */
    uint64_t root;     /* of a partition its root's id, and of the root itself; 0: a table */
    const char *where; /* of a partition, its rows of the root; NULL: not known, so not asked yet */
};

/* The mark of a partition is another one once it hangs at another root, or was detached in between
 * (pg_leaves.h); of a table 0. */
static inline uint64_t mr_streamed_id(uint32_t oid, uint32_t mark)
{
    return (uint64_t)oid << 32 | mark;
}

typedef void (*mr_streamed_fn)(void *context, const struct mr_streamed_table *tables,
                               uint32_t count);

/* All tables that are streamed now, and partitions, by ascending ids, as far as they are followed.
 * Those that were not there the last time, which the sink has stored, are asked for; the first time
 * there is no last one, and none is. Of partitions those whose root was there. Only once it is
 * known what is stored. */
bool mr_copies_knows(struct mr_copies *copies);
bool mr_copies_lacks(struct mr_copies *copies, const struct mr_streamed_table *table);
void mr_copies_streamed(struct mr_copies *copies, const struct mr_streamed_table *tables,
                        uint32_t count);

/* The last gap (docs/reliability.md). */
struct mr_gap {
    bool is_open; /* nothing was done about it yet */
    mr_lsn from, to;
    int64_t from_ms, at_ms; /* since 1970; 0: not known */
};
struct mr_gap mr_gap_stored(const struct mr_checkpoint *stored);
struct mr_gap mr_copies_gap(struct mr_copies *copies);

/* Adds to what is kept of the last gap (docs/reliability.md) the names of its tables (NULL: none),
 * and what was done about it (NULL: nothing yet). False: there was none. */
bool mr_copies_describe_gap(struct mr_copies *copies, const struct cJSON *tables,
                            const char *settled);

/* All that was asked for so far outlives a kill of the process, as far as the sink stores
 * anything. */
bool mr_copies_is_stored(struct mr_copies *copies);

/* All that are not at their ends, and some that are, the oldest first. */
uint32_t mr_copies_requests(struct mr_copies *copies, struct mr_copy_request *ret, uint32_t max,
                            bool *ret_paused);

/* What happened to partitions of tables that are sent by their roots, without an event
 * (copy/moved.h). */
enum mr_moved_how {
    MR_MOVED_ATTACHED,
    MR_MOVED_DETACHED,
    MR_MOVED_DROPPED,
    MR_MOVED_TRUNCATED,
    MR_MOVED_COUNT
};
const char *mr_moved_name(enum mr_moved_how how);
void mr_copies_count_moved(struct mr_copies *copies, enum mr_moved_how how, uint32_t partitions);

/* A transaction that the copy at hand waits for. */
struct mr_held_up {
    char by[256];   /* "": for none */
    char since[48]; /* "": not known */
};

/* Of all copies beside the stream since the start. */
struct mr_incremental_stats {
    uint64_t moved[MR_MOVED_COUNT];
    bool paused;
    uint32_t tables; /* that are not at their ends */
    uint64_t rows, passed_over;
    uint64_t chunks, repeated;
    struct mr_held_up held;
};
struct mr_incremental_stats mr_copies_incremental(struct mr_copies *copies);
