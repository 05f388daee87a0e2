/* Values, rows and keys as JSON. Inside encode/ only; the encoder's thread. */
#pragma once

#include "encode/encoder.h"
#include "encode/values/types.h"

/* The value that the column has in `row`, or had where it was not sent. */
const struct mr_datum *mr_row_datum(const struct mr_plan *plan, uint32_t column,
                                    const struct mr_tuple *row, const struct mr_tuple *old);

/* One value of the row. An unchanged TOASTed one is taken from `old` (may be NULL) where that has
 * it, else it is the placeholder. */
void mr_row_value(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                  uint32_t column, const struct mr_tuple *row, const struct mr_tuple *old);

/* `{"a":1,…` with every column of the relation, for mr_row_close to end. */
void mr_row_columns(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old);

/* `{"a":1,…}` with every column of the relation. `old` may supply unchanged values. */
void mr_row_object(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                   const struct mr_tuple *row, const struct mr_tuple *old);

/* The same, or null where there is no row. */
void mr_row_or_null(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan,
                    const struct mr_tuple *row, const struct mr_tuple *old);

/* The end of an object whose columns, each with its prefix, were written from `begin` on. */
void mr_row_close(struct mr_buffer *out, uint8_t *begin);

/* `,"unavailable":["a",…]` with the columns that the row at hand lacks, or nothing. */
void mr_row_missing(struct mr_buffer *out, struct mr_encoder *encoder, const struct mr_plan *plan);

/* Whether what becomes of two values of a column in a record is the same: 1.0 and 1.00 may be one
 * value there. One that the server did not send did not change. */
bool mr_value_equal(struct mr_encoder *encoder, const struct mr_plan *plan, uint32_t column,
                    const struct mr_datum *a, const struct mr_datum *b);

/* The value of the key's `n`th column, which must be there: never the placeholder, and null only if
 * it was chosen. */
const struct mr_datum *mr_row_key_datum(struct mr_encoder *encoder, const struct mr_plan *plan,
                                        uint32_t n, const struct mr_tuple *row,
                                        const struct mr_tuple *old);

/* Text of a key: a string, or `{"hex":"ff41"}` where it is not UTF-8, so that two keys never become
 * one. */
void mr_row_key_text(struct mr_buffer *out, const uint8_t *text, size_t len);

/* `{"a":1,…}` with the columns of the key, in key order. */
void mr_row_key_object(struct mr_buffer *out, struct mr_encoder *encoder,
                       const struct mr_plan *plan, const struct mr_tuple *row,
                       const struct mr_tuple *old);

/* What was sent in a form that is not the type's. */
#define MR_FAULT_TEXT   "the server sent a text that its type does not have"
#define MR_FAULT_BOOL   "the server sent a boolean that is neither t nor f"
#define MR_FAULT_NUMBER "the server sent something else than a number"
#define MR_FAULT_BINARY "the server sent it in binary form, which was not asked for"

static inline const char *mr_row_fault(enum mr_writer writer)
{
    return writer == MR_WRITE_BOOL                                 ? MR_FAULT_BOOL
           : writer == MR_WRITE_NUMBER || writer == MR_WRITE_FLOAT ? MR_FAULT_NUMBER
                                                                   : MR_FAULT_TEXT;
}
