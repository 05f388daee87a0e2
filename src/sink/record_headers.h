/* The headers of a record, as text: position, transaction and commit time.
 *
 * `mr-pos` is "<commit LSN, 16 hex digits>-<ordinal, 10 hex digits>-<part, 1 digit>": of fixed
 * width, so that positions compare as bytes, and strictly increasing within a partition. One thread
 * an object. */
#pragma once

#include "event/batch.h"

#define MR_HEADER_POSITION    "mr-pos"
#define MR_HEADER_XID         "mr-xid"
#define MR_HEADER_COMMIT_TIME "mr-ts"

enum { MR_POSITION_TEXT_LEN = 16 + 1 + 10 + 1 + 1 };

struct mr_record_headers {
    char position[MR_POSITION_TEXT_LEN];
    char xid[10]; /* decimal */
    size_t xid_len;
    char commit_time[20]; /* microseconds since 1970, decimal */
    size_t commit_time_len;

    /* What the text of a transaction's records has in common is of: */
    mr_lsn commit_lsn;
    int64_t commit_time_us;
    uint32_t of_xid;
};

/* `headers` is all zero before the first record, and kept from one to the next. */
void mr_record_headers_format(const struct mr_record *record, struct mr_record_headers *headers);
