/* A column of a table that is to be proved, and what a value of it is in 16 bytes, whichever side
 * has it.
 *
 * The server's value is the text that it answers when it is asked by the column's form (forms.h),
 * an event's is what its JSON has. Both are brought to one text, and its digest is made under the
 * column's key. Values only. */
#pragma once

#include "verify/digest.h"
#include "verify/forms.h"
#include "verify/scan.h"

/* What the configuration makes of a column. */
enum mr_treatment {
    MR_TREAT_NOT,
    MR_TREAT_LEFT_OUT, /* no event has it */
    MR_TREAT_MASKED,
    MR_TREAT_CUT,
    MR_TREAT_HASHED,
    MR_TREAT_UNKNOWN, /* events have it, and it is not compared */
};

/* What becomes of text that is not UTF-8 (docs/types.md); in a key it is hexadecimal. */
enum mr_odd_text { MR_ODD_REFUSED, MR_ODD_REPLACED, MR_ODD_BASE64 };

struct mr_verify_column {
    char *name;
    size_t name_len;
    struct mr_digest key;
    struct mr_verify_form form;
    enum mr_treatment treatment;
    enum mr_odd_text odd;
    uint32_t length;         /* of what is left of a value that is cut */
    const char *salt;        /* of a hashed one; the configuration's */
    struct mr_digest mask;   /* of a masked one: the digest of each value that is not null */
    bool is_toastable;       /* may be stored out of line … */
    uint32_t large_min;      /* … if its text has so many bytes */
    struct mr_digest absent; /* of an event that was made before the column was added … */
    bool is_absent_known;    /* … and whether the catalog says so; else it is a guess */
    bool is_absent_null;     /* … and whether it is none */
    bool has_default;        /* by which rows that are older than it may have a value */
    /* a transaction that found it in the catalog, or added it; 0: it is as old as the table, … */
    uint32_t since;
    uint32_t created; /* … which that one made */
    /* set by who reads events, alone: an event had no such column, … */
    bool is_lacked;
    bool is_doubted; /* … though it may have been there */
    bool is_late;    /* values are apart, so that events say what it was */
};

/* Whether the column was in the table when a transaction of that number began, or a row was copied
 * and that number was the next one. What the table's own transaction
 * wrote counts. */
static inline bool mr_verify_was_there(uint32_t since, uint32_t created, uint32_t xid)
{
    return since == 0 ? (int32_t)(xid - created) >= 0 : (int32_t)(xid - since) > 0;
}

static inline bool mr_verify_is_compared(const struct mr_verify_column *column)
{
    return column->treatment != MR_TREAT_LEFT_OUT && column->treatment != MR_TREAT_UNKNOWN;
}

/* Masks a column with so many asterisks. */
void mr_verify_column_mask(struct mr_verify_column *column, uint32_t length);

/* Of the server's text, after what the configuration makes of it; NULL data: null. `is_key`: NaN is
 * no null in a key. */
struct mr_digest mr_verify_server_value(const struct mr_verify_column *column, mr_slice text,
                                        bool is_key);

/* Of an event's value. One of a type of JSON that the column's values do not have equals none of
 * them. */
struct mr_digest mr_verify_event_value(const struct mr_verify_column *column,
                                       const struct mr_scanned *value, bool is_key);

/* Of a value of a key that has no form in events, by the server's text: {"text":…}
 * (docs/types.md). */
struct mr_digest mr_verify_key_text(const struct mr_verify_column *column, mr_slice text);

/* Whether it is such an object; `*ret_text` is its text. */
bool mr_verify_is_key_text(const struct mr_verify_column *column, const struct mr_scanned *value,
                           mr_slice *ret_text);

/* The text that a value of JSON stands for, or its JSON; `*ret_memory` is to be freed after it.
 * NULL data: null. */
mr_slice mr_verify_text_of(const struct mr_scanned *value, uint8_t **ret_memory);
