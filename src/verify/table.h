/* A table that is to be proved, and what a row of it is in 16 bytes: the sum of its columns'
 * digests (mod 2^128), each made under a key of its column. So both sides may add columns in any
 * order, and take one out again. Values only. */
#pragma once

#include "event/event.h"
#include "verify/value.h"

/* A value that events may not have: one that may be stored out of line, so that an update leaves it
 * alone, or of a late column. */
struct mr_verify_large {
    uint32_t column;
    bool is_unknown; /* of an event: no event of the key had it */
    bool is_lost;    /* it is unknown, and another one than before: its event was too large */
    /* it is unknown: its event is without the column (mr_verify_column.is_late), … */
    bool is_absent;
    bool is_withheld; /* … and has one that came into the table later */
    bool is_known;    /* … and `digest` is what rows had before; else it is a guess. And … */
    bool has_default; /* … these of mr_verify_column */
    uint32_t since, created;
    struct mr_digest digest;
};

/* What a row has come to. `large` has room for each column. */
struct mr_verify_row {
    struct mr_digest sum; /* without those that are unknown */
    struct mr_verify_large *large;
    uint32_t large_count;
    /* given: a list of columns that count as unknown, since a later change may have made their
     * values */
    mr_slice later;
    uint32_t xid;  /* given: the event's transaction, or the next one when it was copied */
    bool is_older; /* an event with a column that is gone, and without one that there is now */
    bool lacks;    /* an event without a column of which nobody knows what older rows had */
};

/* What may stand for a value that an update left alone: the text, its base64, and that with the
 * other alphabet, in a string or in a list of one; and its bytes. */
enum { MR_PLACEHOLDER_STRINGS = 3, MR_PLACEHOLDERS = 2 * MR_PLACEHOLDER_STRINGS + 1 };

struct mr_verify_table {
    char *topic;
    struct mr_verify_column *columns;
    uint32_t column_count, column_room;
    uint32_t *key; /* columns, in the order of the key's index; none: rows are counted */
    uint32_t key_count;
    /* columns that the publication does not send though the configuration leaves them in, "a, b" */
    struct mr_text unsent;
    bool is_ordered;       /* the key has an index, and no nulls */
    bool has_key_twice;    /* rows of the server end with the key's columns as they are stored */
    bool is_unique;        /* no two rows have the same */
    struct mr_digest form; /* of all of this: equal if it is the same */
    mr_slice placeholders[MR_PLACEHOLDERS]; /* its own */
};

void mr_verify_table_done(struct mr_verify_table *table);

/* What stands for a value that an update left alone is made of this text. */
void mr_verify_table_placeholder(struct mr_verify_table *table, const char *text);

/* Adds a column; `key` is the run's (mr_digest_draw_key). */
struct mr_verify_column *mr_verify_column_add(struct mr_verify_table *table, struct mr_digest key,
                                              const char *name);

/* Of a row of the server, a text for each column; and of its key. */
void mr_verify_server_row(const struct mr_verify_table *table, const mr_slice *values,
                          struct mr_verify_row *ret_row, struct mr_digest *ret_key);

/* Of an event's row, an object. False: it is no JSON, or a value of it has no text form. */
MR_MUST_USE bool mr_verify_event_row(const struct mr_verify_table *table, mr_slice object,
                                     struct mr_verify_row *ret_row);

enum mr_verify_key_kind {
    /* it has the table's key columns and those alone; or is none, as the table has none */
    MR_VERIFY_KEY_GOOD,
    MR_VERIFY_KEY_OTHER, /* it has other columns, or one although the table has none */
    MR_VERIFY_KEY_NONE,  /* it is no object of a row, or twice the same column */
};

/* Of an event's key; NULL data: null. `*ret_key` is set if it is good. */
enum mr_verify_key_kind mr_verify_event_key(const struct mr_verify_table *table, mr_slice object,
                                            struct mr_digest *ret_key);

/* Of a key's columns as the server has them in JSON. False: it is no such object. */
MR_MUST_USE bool mr_verify_server_key(const struct mr_verify_table *table, mr_slice object,
                                      struct mr_digest *ret_key);
