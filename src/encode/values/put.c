#include "encode/values/put.h"

enum { LONG_MAX_BYTES = 10 };

/* Zigzag, then seven bits a byte, the lowest first. */
static size_t number_bytes(uint8_t *to, int64_t value)
{
    uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    size_t len = 0;
    do {
        to[len++] = (uint8_t)((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
        left >>= 7;
    } while (left != 0);
    return len;
}

/* A number without a mark, as lengths and counts are written. */
static void put_write_number(struct mr_buffer *out, int64_t value)
{
    uint8_t bytes[LONG_MAX_BYTES];
    mr_buffer_append(out, bytes, number_bytes(bytes, value));
}

void mr_avro_null(struct mr_buffer *out)
{
    MR_BUFFER_LITERAL(out, "\0");
    out->misfit |= !out->nullable;
}

void mr_avro_long(struct mr_buffer *out, int64_t value)
{
    mr_avro_mark(out);
    put_write_number(out, value);
}

void mr_avro_int(struct mr_buffer *out, int64_t value)
{
    mr_avro_long(out, value);
    out->misfit |= value > INT32_MAX || value < INT32_MIN;
}

void mr_avro_digits(struct mr_buffer *out, mr_slice text, bool is_int)
{
    enum { DIGITS_MAX = 19 };
    size_t negative = text.len > 0 && text.data[0] == '-';
    uint64_t most = (uint64_t)(is_int ? INT32_MAX : INT64_MAX) + negative;
    uint64_t value = 0;
    for (size_t i = negative; i < text.len && i < (size_t)DIGITS_MAX + negative; i++) {
        value = 10 * value + (uint64_t)(text.data[i] - '0');
    }
    mr_avro_long(out, negative ? (int64_t)(0 - value) : (int64_t)value);
    out->misfit |= text.len > (size_t)DIGITS_MAX + negative || value > most;
}

void mr_avro_real(struct mr_buffer *out, double value, bool is_double)
{
    float narrow = (float)value;
    mr_avro_mark(out);
    mr_buffer_append(out, is_double ? (const void *)&value : (const void *)&narrow,
                     is_double ? sizeof(value) : sizeof(narrow));
}

void mr_avro_bytes(struct mr_buffer *out, const uint8_t *bytes, size_t len)
{
    mr_avro_mark(out);
    put_write_number(out, (int64_t)len);
    mr_buffer_slice(out, (mr_slice){.data = bytes, .len = len});
}

uint8_t *mr_avro_open(struct mr_buffer *out)
{
    mr_avro_mark(out);
    uint8_t *gap = out->at;
    mr_buffer_reserve(out, 1); /* which is enough of most */
    return gap;
}

void mr_avro_close(struct mr_buffer *out, uint8_t *gap, int64_t value)
{
    uint8_t bytes[LONG_MAX_BYTES];
    size_t len = number_bytes(bytes, value);
    if (out->full || (len > 1 && mr_buffer_reserve(out, len - 1) == NULL)) {
        return;
    }
    if (len > 1) {
        memmove(gap + len, gap + 1, (size_t)(out->at - gap) - len);
    }
    memcpy(gap, bytes, len);
}

void mr_avro_close_list(struct mr_buffer *out, uint8_t *gap, int64_t count)
{
    mr_avro_close(out, gap, count);
    if (count > 0) {
        put_write_number(out, 0);
    }
}

void mr_avro_close_json(struct mr_buffer *out, uint8_t *gap)
{
    if (out->full) {
        return;
    }
    size_t len = (size_t)(out->at - gap) - 3;
    MR_ASSERT(gap[1] == '"' && out->at[-1] == '"');
    memmove(gap + 1, gap + 2, len);
    out->at -= 2;
    mr_avro_close(out, gap, (int64_t)len);
}

/* Eight bytes a step: the highest bit of each is clear. */
static bool is_ascii(const uint8_t *text, size_t len)
{
    uint64_t found = 0;
    size_t at = 0;
    for (; at + sizeof(found) <= len; at += sizeof(found)) {
        uint64_t word;
        memcpy(&word, text + at, sizeof(word));
        found |= word;
    }
    for (; at < len; at++) {
        found |= text[at];
    }
    return (found & UINT64_C(0x8080808080808080)) == 0;
}

void mr_avro_part(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t sequence = mr_utf8_sequence(text + at, len - at);
        if (sequence > 0) {
            mr_buffer_append(out, text + at, sequence);
            at += sequence;
        } else {
            out->met_bytes = true;
            MR_BUFFER_LITERAL(out, "\xEF\xBF\xBD");
            at++;
        }
    }
}

void mr_avro_string(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    if (MR_LIKELY(is_ascii(text, len)) || mr_is_utf8(text, len)) {
        mr_avro_bytes(out, text, len);
        return;
    }
    uint8_t *gap = mr_avro_open(out);
    out->met_bytes = true;
    if (out->bytes_as_base64) {
        mr_json_base64(out, text, len);
        mr_avro_close_json(out, gap);
    } else {
        mr_avro_part(out, text, len);
        mr_avro_close(out, gap, out->at - gap - 1);
    }
}
