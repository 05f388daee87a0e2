/* The table's side: which tables there are, their columns and keys, and their rows under a
 * snapshot. Asks the catalog by the views that PostgreSQL documents, and not by the questions that
 * the stream asks. One thread. */
#pragma once

#include "config/config.h"
#include "verify/cut.h"
#include "verify/fold.h"

/* Publications have columns and conditions from there on. */
enum { MR_SHAPED_VERSION_MIN = 150000 };

/* A table that is configured, or a partition of one. */
struct mr_verify_listed {
    char *schema, *table;
    char *filter; /* the publication's condition on its rows; NULL: none */
    uint32_t oid;
    uint64_t rows; /* about; 0: not known */
    char kind;     /* pg_class.relkind */
    bool is_full;  /* replica identity */
    bool is_published;
    bool lacks_operations; /* the publication sends not all of inserts, updates and deletes */
};

struct mr_verify_list {
    struct mr_verify_listed *tables;
    uint32_t count;
};

mr_status mr_verify_list(struct mr_pg_conn *conn, const struct mr_config *config,
                         struct mr_verify_list *ret_list, struct mr_error *ret_error);
void mr_verify_list_free(struct mr_verify_list *list);

/* Begins a transaction that only reads, whose snapshot is the cut. `*ret_is_known`: what it sees is
 * known. On a standby that is so while nothing is replayed; else try again. */
mr_status mr_verify_begin(struct mr_pg_conn *conn, struct mr_cut *ret_cut, bool *ret_is_known,
                          struct mr_error *ret_error);

/* Columns and key, as the snapshot has them; `key` is that of the run's digests. */
mr_status mr_verify_describe(struct mr_pg_conn *conn, const struct mr_config *config,
                             const struct mr_verify_listed *listed, struct mr_digest key,
                             struct mr_verify_table *ret_table, struct mr_error *ret_error);

/* A part of a table's rows in the order of its key. */
struct mr_verify_range {
    const char *after; /* SQL that leaves out what is up to there; NULL: from the first row on */
    uint32_t rows_max; /* 0: all rows, in no order */
    bool keys_alone; /* a row's values are its key, as JSON, and the same with the server's texts */
};

/* The condition for the rows after this one. The caller frees it. */
char *mr_verify_after(const struct mr_verify_table *table, const mr_slice *values);

/* Calls `take` with each row: the transaction that wrote it, and its texts in the order of
 * `table->columns`; NULL data: null. */
typedef mr_status (*mr_verify_row_fn)(void *context, uint32_t xid, const mr_slice *values,
                                      struct mr_error *ret_error);
mr_status mr_verify_rows(struct mr_pg_conn *conn, const struct mr_verify_listed *listed,
                         const struct mr_verify_table *table, const struct mr_verify_range *range,
                         mr_verify_row_fn take, void *context, struct mr_error *ret_error);

/* After the rows: whether the table was truncated or rewritten since the snapshot, which then saw
 * an empty table (manual, "Caveats" of "Concurrency Control"). */
mr_status mr_verify_is_void(struct mr_pg_conn *conn, uint32_t oid, bool *ret_is_void,
                            struct mr_error *ret_error);

/* Ends the transaction. `cut->after`: what it saw is in the WAL before that. */
mr_status mr_verify_end(struct mr_pg_conn *conn, struct mr_cut *cut, struct mr_error *ret_error);

/* How far PostgreSQL was told that the stream is delivered; 0: there is no slot. */
mr_status mr_verify_confirmed(struct mr_pg_conn *conn, const char *slot, mr_lsn *ret_confirmed,
                              bool *ret_is_active, struct mr_error *ret_error);
