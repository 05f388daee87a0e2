/* Reads JSON (RFC 8259) from left to right, and keeps the text of each value: a number is never
 * made a double. Not the encoder's code, nor its beliefs: what checks the encoder must not share
 * its faults. Values only. Any thread. */
#pragma once

#include "base/base.h"

enum mr_scan_kind {
    MR_SCAN_NULL,
    MR_SCAN_FALSE,
    MR_SCAN_TRUE,
    MR_SCAN_NUMBER,
    MR_SCAN_STRING,
    MR_SCAN_OBJECT,
    MR_SCAN_ARRAY,
};

struct mr_scanned {
    enum mr_scan_kind kind;
    mr_slice text;   /* as it is written; of a string what is between its quotes */
    bool is_escaped; /* a string with a backslash */
};

/* The members of an object, or the elements of an array, one after the other. */
struct mr_scan {
    const uint8_t *at, *end;
    bool is_shallow;
    bool is_begun;
    bool failed;
};

/* The value that `text` is, and nothing after it. False: it is no JSON. */
MR_MUST_USE bool mr_scan_value(mr_slice text, struct mr_scanned *ret);

/* Of an object's or an array's text. */
struct mr_scan mr_scan_members(mr_slice text);

/* The same; but nobody looks into the objects and arrays that it has: they end at the right
 * bracket, and may be no JSON. */
struct mr_scan mr_scan_shallow(mr_slice text);

/* The next member; false: there is none, or `scan->failed` is set, since this is no object. */
MR_MUST_USE bool mr_scan_member(struct mr_scan *scan, struct mr_scanned *ret_name,
                                struct mr_scanned *ret_value);

/* The same of an array. */
MR_MUST_USE bool mr_scan_element(struct mr_scan *scan, struct mr_scanned *ret_value);

/* The member of that name, which has nothing escaped; false: there is none, or this is no
 * object. */
MR_MUST_USE bool mr_scan_find(mr_slice object, const char *name, struct mr_scanned *ret_value);

/* The first of two bytes, or the end. */
const uint8_t *mr_scan_to(const uint8_t *at, const uint8_t *end, uint8_t one, uint8_t other);

/* The text that a string stands for; `to` has room for `string->text.len` bytes. Answers its
 * length. */
size_t mr_scan_unescape(const struct mr_scanned *string, uint8_t *to);

/* The number that `text` is: digits of that base, at least one and at most 16. */
MR_MUST_USE bool mr_scan_digits(mr_slice text, unsigned base, uint64_t *ret);
