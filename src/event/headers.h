/* Headers that a record has of its own, besides those of every record (sink/record_headers.h): a
 * block of bytes in the record's batch, after the value (mr_record_headers).
 *
 *   bytes of headers (4) | partition (4) | time (8) | length of the name (2), of the value (4),
 *   name, value | …
 *
 * The encoder writes it, the sink reads it; numbers are as the machine has them, for a block leaves
 * no process. */
#pragma once

#include "base/buffer.h"

/* Of a record that stands for one that was too large: its bytes, and the columns that were left
 * out. */
#define MR_HEADER_OVERSIZE         "mr-oversize"
#define MR_HEADER_OVERSIZE_COLUMNS "mr-oversize-columns"
/* Of the records of a changed key, where values are Debezium's: the key that the row has now, and
 * had before. */
#define MR_HEADER_NEW_KEY "__debezium.newkey"
#define MR_HEADER_OLD_KEY "__debezium.oldkey"
/* Of a row with values that were read again later: "later", and the columns. */
#define MR_HEADER_RESELECTED         "mr-reselected"
#define MR_HEADER_RESELECTED_COLUMNS "mr-reselected-columns"
/* Of a record that a repair sends: what was found in the topic before. */
#define MR_HEADER_REPAIR "mr-repair"

struct mr_header {
    mr_slice name;
    mr_slice value; /* `data` NULL: null */
};

/* A number that anybody may have written: that partition where the topic has it, else that of the
 * key. */
#define MR_PARTITION_IF_THERE(number) (INT32_MIN + (number))

/* Where and when a record is, in its own words. */
struct mr_record_place {
    int32_t partition; /* -1: that of the key; below: MR_PARTITION_IF_THERE */
    int64_t time_ms;   /* since 1970; 0: the commit time */
};

/* Begins a block with the headers of another (NULL: none). Whatever is appended until the end must
 * be a header. When the buffer is full at the end, the block is of no use. */
uint8_t *mr_headers_begin(struct mr_buffer *out, const uint8_t *other);
void mr_header_append(struct mr_buffer *out, const char *name, mr_slice value);
/* A header whose value is what is appended until its end; null without one. */
uint8_t *mr_header_begin(struct mr_buffer *out, const char *name);
void mr_header_end(struct mr_buffer *out, uint8_t *header);
void mr_headers_end(struct mr_buffer *out, uint8_t *block);

/* The place in a block that has ended; NULL: it has none of its own. */
void mr_headers_set_place(uint8_t *block, struct mr_record_place place);
struct mr_record_place mr_headers_place(const uint8_t *block);

/* Bytes of all headers of a block; NULL: 0. */
static inline size_t mr_headers_bytes(const uint8_t *block)
{
    uint32_t bytes = 0;
    if (MR_UNLIKELY(block != NULL)) {
        memcpy(&bytes, block, sizeof(bytes));
    }
    return bytes;
}

/* All headers of a block, as they lie in it; NULL: none. */
mr_slice mr_headers_all(const uint8_t *block);

/* The header at `*at` bytes into such bytes, which is then at the next one; false: there is none.
 * `*at` is 0 at first. */
bool mr_header_in(mr_slice headers, size_t *at, struct mr_header *ret);

/* The header at `*at` bytes into the block, which is then at the next one; false: there is none.
 * `*at` is 0 at first. */
bool mr_header_next(const uint8_t *block, size_t *at, struct mr_header *ret);
