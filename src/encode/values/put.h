/* What a conversion writes with, in JSON or in Avro (specification 1.11, "Binary Encoding"), as the
 * buffer's is_avro says.
 *
 * In Avro, fields have no names, and a value whose type has a null begins with a mark: the code
 * that begins a field or an element sets the buffer's `nullable` for it. A value that its type
 * can't hold sets `misfit`, and what was appended is of no use. mr_avro_* write Avro; mr_put_*
 * write JSON or Avro, as the buffer says. The thread that encodes. */
#pragma once

#include "base/json.h"

void mr_avro_null(struct mr_buffer *out);
void mr_avro_long(struct mr_buffer *out, int64_t value);
void mr_avro_int(struct mr_buffer *out, int64_t value);
/* An integer of up to 19 digits; `is_int`: of 32 bits. */
void mr_avro_digits(struct mr_buffer *out, mr_slice text, bool is_int);
void mr_avro_real(struct mr_buffer *out, double value, bool is_double);
/* Text, as base/json.h treats what is not UTF-8. */
void mr_avro_string(struct mr_buffer *out, const uint8_t *text, size_t len);
void mr_avro_bytes(struct mr_buffer *out, const uint8_t *bytes, size_t len);

/* Before a value that is not null. */
static inline void mr_avro_mark(struct mr_buffer *out)
{
    if (out->nullable) {
        MR_BUFFER_LITERAL(out, "\2");
    }
}

/* A string or a list whose length or count is known at its end: what is appended between the two
 * calls is its content. */
uint8_t *mr_avro_open(struct mr_buffer *out);
void mr_avro_close(struct mr_buffer *out, uint8_t *gap, int64_t value);
/* The same of a list: one block, and the end. */
void mr_avro_close_list(struct mr_buffer *out, uint8_t *gap, int64_t count);

/* The text of a string that is written in parts, with U+FFFD for each byte that is not UTF-8. */
void mr_avro_part(struct mr_buffer *out, const uint8_t *text, size_t len);

/* The JSON string without escapes that ends the buffer becomes the content since `gap`. */
void mr_avro_close_json(struct mr_buffer *out, uint8_t *gap);

static inline void mr_put_null(struct mr_buffer *out)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_null(out);
    } else {
        MR_BUFFER_LITERAL(out, "null");
    }
}

static inline void mr_put_bool(struct mr_buffer *out, bool value)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_mark(out);
        mr_buffer_append(out, value ? "\1" : "\0", 1);
    } else {
        mr_buffer_slice(out, value ? MR_SLICE("true") : MR_SLICE("false"));
    }
}

static inline void mr_put_long(struct mr_buffer *out, int64_t value)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_long(out, value);
    } else {
        mr_json_i64(out, value);
    }
}

/* Of 32 bits in Avro. */
static inline void mr_put_int(struct mr_buffer *out, int64_t value)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_int(out, value);
    } else {
        mr_json_i64(out, value);
    }
}

static inline void mr_put_string(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_string(out, text, len);
    } else {
        mr_json_string(out, text, len);
    }
}

static inline void mr_put_slice(struct mr_buffer *out, mr_slice text)
{
    mr_put_string(out, text.data, text.len);
}

/* Bytes, which are base64 in JSON. */
static inline void mr_put_bytes(struct mr_buffer *out, const uint8_t *bytes, size_t len)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_bytes(out, bytes, len);
    } else {
        mr_json_base64(out, bytes, len);
    }
}

/* What JSON has between and around values. */
static inline void mr_put_json(struct mr_buffer *out, mr_slice text)
{
    if (MR_LIKELY(!out->is_avro)) {
        mr_buffer_slice(out, text);
    }
}

/* A list: what is appended between the two calls are its elements. `json` stands around them
 * there. */
static inline uint8_t *mr_put_list(struct mr_buffer *out, mr_slice json)
{
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    mr_put_json(out, json);
    return gap;
}

static inline void mr_put_list_end(struct mr_buffer *out, uint8_t *gap, int64_t count,
                                   mr_slice json)
{
    mr_put_json(out, json);
    if (gap != NULL) {
        mr_avro_close_list(out, gap, count);
    }
}

/* A string: what is appended between the two calls is its content, escaped already. */
static inline uint8_t *mr_put_text(struct mr_buffer *out)
{
    return mr_put_list(out, MR_SLICE("\""));
}

static inline void mr_put_text_end(struct mr_buffer *out, uint8_t *gap)
{
    mr_put_json(out, MR_SLICE("\""));
    if (gap != NULL) {
        mr_avro_close(out, gap, out->at - gap - 1);
    }
}

/* Begins a field of a record: `json` is `,"name":`. */
static inline void mr_put_field(struct mr_buffer *out, mr_slice json, bool nullable)
{
    mr_put_json(out, json);
    out->nullable = nullable;
}

/* Begins a record with its first field: `{"name":`. */
static inline void mr_put_record(struct mr_buffer *out, mr_slice json, bool nullable)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_mark(out);
    }
    mr_put_field(out, json, nullable);
}
