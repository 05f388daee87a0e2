/* Append-only bytes in memory of the caller's, with an end that is never passed.
 *
 * What doesn't fit is left out whole and `full` is set for good (until the buffer is made again),
 * so a writer appends freely and asks once at the end. One thread. */
#pragma once

#include "base/base.h"

struct mr_buffer {
    uint8_t *at;
    uint8_t *end;
    bool full;
    /* How base/json.h writes strings. */
    bool splits_astral;   /* what is above U+FFFF in two halves, \uD83D\uDC0E */
    bool bytes_as_base64; /* what is no UTF-8: all of the text in base64 */
    bool met_bytes;       /* there was such a text */
    /* How encode/values/put.h writes values. */
    bool is_avro;  /* not in JSON */
    bool nullable; /* the Avro type at hand has a null: a mark comes before the value */
    bool misfit;   /* a value did not fit its type in the schema */
    bool is_typed; /* JSON that a schema tells the types of: a value is one of its type, or null */
};

static inline struct mr_buffer mr_buffer_init(uint8_t *begin, size_t size)
{
    return (struct mr_buffer){.at = begin,
                              .end = begin + size,
                              .full = false,
                              .splits_astral = false,
                              .bytes_as_base64 = false,
                              .met_bytes = false,
                              .is_avro = false,
                              .nullable = false,
                              .misfit = false,
                              .is_typed = false};
}

/* Room for `len` bytes that the caller fills, or NULL when they don't fit. */
static inline uint8_t *mr_buffer_reserve(struct mr_buffer *buffer, size_t len)
{
    if (MR_UNLIKELY(buffer->full || len > (size_t)(buffer->end - buffer->at))) {
        buffer->full = true;
        return NULL;
    }
    uint8_t *room = buffer->at;
    buffer->at += len;
    return room;
}

static inline void mr_buffer_append(struct mr_buffer *buffer, const void *bytes, size_t len)
{
    uint8_t *room = mr_buffer_reserve(buffer, len);
    if (MR_LIKELY(room != NULL)) {
        memcpy(room, bytes, len);
    }
}

static inline void mr_buffer_slice(struct mr_buffer *buffer, mr_slice bytes)
{
    if (bytes.len > 0) {
        mr_buffer_append(buffer, bytes.data, bytes.len);
    }
}

/* As printf; a NUL, which is not counted, must fit as well. */
void mr_buffer_format(struct mr_buffer *buffer, const char *format, ...) MR_PRINTF(2, 3);

#define MR_BUFFER_LITERAL(buffer, literal)                                                         \
    mr_buffer_append((buffer), (literal), sizeof(literal) - 1)
