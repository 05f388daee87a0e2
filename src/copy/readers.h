/* Who reads existing rows: two tables of functions, so that a test puts in its own. PostgreSQL's
 * are in copy/pg_server.c. */
#pragma once

#include "copy/chunk_keys.h"
#include "copy/copy_stored.h"
#include "postgres/server/pg_holder.h"

/* Existing rows that are to be copied before the stream begins: at one moment, as whole tables. */
struct mr_copy_table {
    const struct mr_relation *relation; /* as the stream will have it: perhaps the root's */
    uint64_t bytes, rows;               /* as far as the server knows before it has looked */
    uint32_t pages;                     /* that it can be divided by; 0: it can't be */
    uint32_t listed;                    /* its place in the list of tables: names, then patterns */
    uint32_t oid;                       /* whose rows are read, */
    uint32_t filenode;                  /* and its file */
    /* The rest may be read under a later snapshot. False where the stream can bring rows without
     * all their values. */
    bool may_resume;
};

struct mr_copy {
    mr_lsn lsn;       /* what commits from here on is in the stream */
    uint32_t attempt; /* 1, 2, 3 … */
    bool leaves_out;  /* changes from before are in no stream, or it can't be told */
    mr_lsn confirmed; /* of the slot that it replaces; 0: there was none */
    mr_lsn left;      /* where the server left the timeline of what is delivered; 0: nowhere */
    const char *database;
    struct mr_transaction transaction; /* of that moment; its commit LSN is right below `lsn` */
    const struct mr_copy_table *tables;
    uint32_t table_count;
    /* What an earlier attempt has left; what it says of places still holds where the file node is
     * the table's. NULL: it is begun again. */
    const struct mr_copy_stored *resumed;
};

/* Reads rows of a copy; one thread's. */
struct mr_copy_reader;

struct mr_snapshot_ops {
    /* After the source is claimed and before it is opened: sets up all but the stream. `known` says
     * where a stream would go on (NULL: that is not known), `resumed` how far an earlier attempt
     * was (NULL: there is none), the caller's until `end` or `close`, `gap_stored` where the gap
     * ends that is stored. `*ret_copy`: what is to be copied, the server's until then; NULL:
     * nothing. Source thread, as all but the readers. */
    mr_status (*begin)(void *context, const struct mr_checkpoint *known,
                       const struct mr_copy_stored *resumed, mr_lsn gap_stored, int stop_fd,
                       struct mr_identity *ret_identity, const struct mr_copy **ret_copy,
                       struct mr_error *ret_error);
    /* What the copy takes the place of may go: that something is left out with it would survive a
     * kill. Once, before `end`. */
    mr_status (*let_go)(void *context, struct mr_error *ret_error);
    /* All of it is safe. */
    mr_status (*end)(void *context, struct mr_error *ret_error);
    /* Now and then in between: whether the stream will be able to follow. */
    mr_status (*look)(void *context, struct mr_error *ret_error);
    /* The source's connection has ended, or is about to: a copy at hand is given up. */
    void (*close)(void *context);

    /* While a copy is at hand. `reader_next` waits for a row of the range that was begun (MR_END:
     * there is no more), and says where it is (0: no place is known); the row stays as it is until
     * the one after the next is asked for. MR_AGAIN: `stop_fd` is readable. After an error the
     * reader is of no use. Any thread; a reader is one thread's. */
    mr_status (*reader_new)(void *context, int stop_fd, struct mr_copy_reader **ret_reader,
                            struct mr_error *ret_error);
    mr_status (*reader_begin)(struct mr_copy_reader *reader, uint32_t table,
                              const struct mr_copy_range *range, struct mr_error *ret_error);
    mr_status (*reader_next)(struct mr_copy_reader *reader, struct mr_tuple *ret_row,
                             uint64_t *ret_place, struct mr_error *ret_error);
    /* Nothing more is asked for: what it has of the server is given up, and its last rows stay. */
    void (*reader_rest)(struct mr_copy_reader *reader);
    void (*reader_free)(struct mr_copy_reader *reader);
};

/* A table whose rows are read, as the stream names it: a partitioned one where the publication
 * sends it as one table, else each of its leaves. */
struct mr_chunk_table {
    uint32_t oid;
    char schema[MR_IDENTIFIER_MAX + 1];
    char table[MR_IDENTIFIER_MAX + 1];
    uint64_t rows; /* as far as the server knows */
};

struct mr_chunk_wish {
    const struct mr_chunk_table *table;
    const char *where; /* of rows that are wanted, SQL; NULL: all */
    bool is_signal;    /* as in mr_copy_wish */
    const char *key;   /* columns to read by, as PostgreSQL writes a list; NULL: those of events */
    const char *const *after; /* the key after which it begins, as texts; NULL: at the first row */
    uint32_t after_count;
    uint64_t form; /* of the chunk of this key; where it is another now, the table begins again */
    const struct mr_chunk_keys *keys; /* the rows to read, from this one on; NULL: all */
    uint32_t keys_from;
    bool is_converted; /* events have other forms of them than the server */
    uint32_t rows_max;
    size_t bytes_max;     /* the row that passes it is the last */
    size_t row_bytes_max; /* a larger one is an error; 0: no limit */
    /* For the last part of what somebody named so, all of its parts: partitions that were attached
     * meanwhile are logged, and in a part that is read as a root those since that transaction.
     * NULL: it is not the last, or that was done. */
    const char *named_schema, *named_table;
    const struct mr_chunk_table *parts;
    uint32_t part_count;
    uint32_t since;
};

/* All zero to begin with. Its owner gives it to mr_chunk_done in the end. */
struct mr_chunk {
    const struct mr_relation *relation; /* the reader's, until another's next but one is read */
    uint32_t *key;                      /* columns, in the order in which rows come */
    uint32_t key_count;
    uint64_t form;  /* tells that order from others */
    bool is_anew;   /* it begins at the first row, whatever was wished */
    char *snapshot; /* pg_current_snapshot's text, */
    mr_lsn wal_end; /* and where the WAL ended after it */
    uint32_t rows;
    /* Where keys were wished: the first one's number, and of each whether there is no such row. It
     * is a row of the chunk nevertheless, with the values of its key alone. NULL: all rows are
     * there. */
    uint32_t keys_from;
    bool *absent;
    struct mr_datum *values; /* one a column, row by row */
    uint8_t *bytes;          /* that they point into, but for the last row's where */
    uint8_t *large;          /* that one did not fit: as libpq has given it */
    size_t len;              /* of all rows */
    size_t value_capacity;
    bool is_last; /* there is no row after it */
};

static inline const struct mr_datum *mr_chunk_row(const struct mr_chunk *chunk, uint32_t row)
{
    return chunk->values + (size_t)row * chunk->relation->column_count;
}

void mr_chunk_done(struct mr_chunk *chunk);

/* A transaction that is waited for, as far as it is there and its role may know. */
struct mr_chunk_holder {
    struct mr_pg_holder by;
    char *snapshot; /* pg_current_snapshot's text, malloc'ed: of that moment */
};

/* Has a connection of its own; one thread's. */
struct mr_chunk_reader;

struct mr_chunk_ops {
    /* It connects when it is asked. Source thread. */
    struct mr_chunk_reader *(*new)(void *context, int stop_fd);
    /* What is read for a table that somebody names, by `key` (NULL: as in mr_chunk_wish), by
     * ascending OIDs; the caller frees `*ret_tables`. An error names it, the reason and the remedy;
     * but for MR_ERR_TRANSIENT and MR_AGAIN (`stop_fd` is readable) it is for good. So is one of
     * `read`. */
    mr_status (*find)(struct mr_chunk_reader *reader, const char *schema, const char *table,
                      const char *key, struct mr_chunk_table **ret_tables, uint32_t *ret_count,
                      struct mr_error *ret_error);
    /* A transaction number, of a transaction that has ended. */
    mr_status (*number)(struct mr_chunk_reader *reader, uint32_t *ret_xid,
                        struct mr_error *ret_error);
    /* Whose transaction has that number. */
    mr_status (*holder)(struct mr_chunk_reader *reader, uint32_t xid,
                        struct mr_chunk_holder *ret_holder, struct mr_error *ret_error);
    mr_status (*read)(struct mr_chunk_reader *reader, const struct mr_chunk_wish *wish,
                      struct mr_chunk *chunk, struct mr_error *ret_error);
    /* Gives up the connection until it is asked; after an error, too. */
    void (*rest)(struct mr_chunk_reader *reader);
    void (*free)(struct mr_chunk_reader *reader); /* NULL is fine */
};

/* Outlives the companions that read by it. */
struct mr_copy_server {
    const struct mr_snapshot_ops *snapshot; /* NULL: it has none to be copied before the stream */
    const struct mr_chunk_ops *chunks;      /* NULL: nor while it runs */
    void *context;
};
