/* A table that is to be proved, and what a row of it is in 16 bytes.
 *
 * A row's digest is the sum of its columns' (mod 2^128), and a column's is made of its name and its text, as PostgreSQL writes it
 * under the settings of every connection of ours. So both sides may add columns in any order, and take one out again. Values only.
 */
#ifndef MR_VERIFY_TABLE_H
#define MR_VERIFY_TABLE_H

#include "base/base.h"
#include "encode/encode.h"
#include "event/event.h"
#include "verify/digest.h"
#include "verify/scan.h"

/* What the configuration makes of a column. */
enum mr_treatment {
    MR_TREAT_NOT,
    MR_TREAT_LEFT_OUT, /* no event has it */
    MR_TREAT_MASKED,
    MR_TREAT_CUT,
    MR_TREAT_HASHED,
};

struct mr_verify_column {
    char *name;
    size_t name_len;
    struct mr_digest key;
    enum mr_treatment treatment;
    uint32_t length;         /* of what is left of a value that is cut */
    struct mr_digest mask;   /* of a masked column: the digest of each value that is not null */
    bool is_bare;            /* a number or a boolean: not always a string in JSON */
    bool is_toastable;       /* may be stored out of line … */
    uint32_t large_min;      /* … if its text has so many bytes */
    struct mr_digest absent; /* of an event that was made before the column was added */
};

/* A value that may be stored out of line, so that an update which leaves it alone may not have it. */
struct mr_verify_large {
    uint32_t column;
    bool is_unknown; /* of an event: no event of the key had it */
    bool is_lost;    /* it is unknown, and another one than before: its event was too large */
    struct mr_digest digest;
};

/* What a row has come to. `large` has room for each column. */
struct mr_verify_row {
    struct mr_digest sum; /* without those that are unknown */
    struct mr_verify_large *large;
    uint32_t large_count;
    bool
        is_older; /* an event with a column that the table no longer has, and without one that it has now */
};

struct mr_verify_table {
    char *topic;
    struct mr_verify_column *columns;
    uint32_t column_count, column_room;
    uint32_t *key; /* columns, in the order of the key's index; none: rows are counted */
    uint32_t key_count;
    bool is_ordered;         /* the key has an index, and no nulls */
    bool is_unique;          /* no two rows have the same */
    struct mr_digest form;   /* of all of this: equal if it is the same */
    const char *salt;        /* of hashed columns */
    const char *unavailable; /* what stands for a value that an update left alone */
};

void mr_verify_table_done(struct mr_verify_table *table);

/* Adds a column; `key` is the run's (mr_digest_draw_key). */
struct mr_verify_column *mr_verify_column_add(struct mr_verify_table *table, struct mr_digest key,
                                              const char *name);

/* Masks a column with so many asterisks. */
void mr_verify_column_mask(struct mr_verify_column *column, uint32_t length);

/* What events that were made before the column was added are taken to have; NULL data: null. */
void mr_verify_column_absent(const struct mr_verify_table *table, struct mr_verify_column *column,
                             mr_slice text);

/* Of a text; NULL data: of a null. */
struct mr_digest mr_verify_value_digest(const struct mr_verify_column *column, mr_slice text);

/* Of the texts of a table's row, a value for each column, after what the configuration makes of them; and of its key. */
void mr_verify_table_row(const struct mr_verify_table *table, const mr_slice *values,
                         struct mr_verify_row *ret_row, struct mr_digest *ret_key);

/* Of an event's row, an object. False: it is no JSON, or a value of it has no text form. */
MR_MUST_USE bool mr_verify_event_row(const struct mr_verify_table *table, mr_slice object,
                                     struct mr_verify_row *ret_row);

enum mr_verify_key_kind {
    MR_VERIFY_KEY_GOOD, /* it has the table's key columns and those alone; or is none, as the table has none */
    MR_VERIFY_KEY_OTHER, /* it has other columns, or one although the table has none */
    MR_VERIFY_KEY_NONE,  /* it is no object of a row, or twice the same column */
};

/* Of an event's key; NULL data: null. `*ret_key` is set if it is good. */
enum mr_verify_key_kind mr_verify_event_key(const struct mr_verify_table *table, mr_slice object,
                                            struct mr_digest *ret_key);

#endif
