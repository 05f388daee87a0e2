#include "base/json.h"

#include <ctype.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

/* Clean: neither quote, backslash, control character nor part of a multi-byte sequence. */
static bool byte_is_clean(uint8_t byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

static inline bool copy_clean_bytes(uint8_t *to, const uint8_t *text, size_t len)
{
    bool clean = true;
    for (size_t i = 0; i < len; i++) {
        to[i] = text[i];
        clean &= byte_is_clean(text[i]);
    }
    return clean;
}

#if defined(__SSE2__)
/* Not zero where a byte is not clean: 0x20 and 0x22 change places, so one comparison of signed
 * numbers finds control characters, the quote, and what is not ASCII. */
static inline __m128i unclean(__m128i block)
{
    __m128i low = _mm_cmplt_epi8(_mm_xor_si128(block, _mm_set1_epi8(2)), _mm_set1_epi8(0x21));
    return _mm_or_si128(low, _mm_cmpeq_epi8(block, _mm_set1_epi8('\\')));
}

/* Copies; answers whether all was clean. What is longer than a block ends with one that may overlap
 * the one before. */
static inline bool copy_clean(uint8_t *to, const uint8_t *text, size_t len)
{
    __m128i found = _mm_setzero_si128();
    if (len >= 16) {
        for (size_t at = 0; at < len - 16; at += 16) {
            __m128i block = _mm_loadu_si128((const __m128i *)(text + at));
            _mm_storeu_si128((__m128i *)(to + at), block);
            found = _mm_or_si128(found, unclean(block));
        }
        __m128i block = _mm_loadu_si128((const __m128i *)(text + len - 16));
        _mm_storeu_si128((__m128i *)(to + len - 16), block);
        found = _mm_or_si128(found, unclean(block));
    } else if (len >= 8) {
        uint64_t first, last;
        memcpy(&first, text, 8);
        memcpy(&last, text + len - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + len - 8, &last, 8);
        found = unclean(_mm_set_epi64x((int64_t)last, (int64_t)first));
    } else {
        return copy_clean_bytes(to, text, len);
    }
    return _mm_movemask_epi8(found) == 0;
}

/* How many bytes at the beginning of a 16-byte block are clean. */
static inline unsigned block_clean(const uint8_t *text)
{
    __m128i block = _mm_loadu_si128((const __m128i *)text);
    unsigned mask = (unsigned)_mm_movemask_epi8(unclean(block));
    return mask == 0 ? 16 : (unsigned)__builtin_ctz(mask);
}
#else
static inline bool copy_clean(uint8_t *to, const uint8_t *text, size_t len)
{
    return copy_clean_bytes(to, text, len);
}

static inline unsigned block_clean(const uint8_t *text)
{
    unsigned count = 0;
    while (count < 16 && byte_is_clean(text[count])) {
        count++;
    }
    return count;
}
#endif

static inline size_t clean_prefix(const uint8_t *text, size_t len)
{
    size_t count = 0;
    while (len - count >= 16) {
        unsigned clean = block_clean(text + count);
        count += clean;
        if (clean < 16) {
            return count;
        }
    }
    while (count < len && byte_is_clean(text[count])) {
        count++;
    }
    return count;
}

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t mr_utf8_sequence(const uint8_t *text, size_t len)
{
    if (len == 0) {
        return 0;
    }
    uint8_t first = text[0];
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return len >= 2 && is_continuation(text[1]) ? 2 : 0;
    }
    if (first >= 0xE0 && first <= 0xEF) {
        if (len < 3 || !is_continuation(text[1]) || !is_continuation(text[2])) {
            return 0;
        }
        bool overlong = first == 0xE0 && text[1] < 0xA0;
        bool surrogate = first == 0xED && text[1] >= 0xA0;
        return overlong || surrogate ? 0 : 3;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        if (len < 4 || !is_continuation(text[1]) || !is_continuation(text[2]) ||
            !is_continuation(text[3])) {
            return 0;
        }
        bool overlong = first == 0xF0 && text[1] < 0x90;
        bool too_large = first == 0xF4 && text[1] >= 0x90;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

bool mr_is_utf8(const uint8_t *text, size_t len)
{
    size_t sequence = 1;
    for (size_t at = 0; at < len && sequence > 0; at += sequence) {
        sequence = mr_utf8_sequence(text + at, len - at);
    }
    return sequence > 0;
}

static void escape_byte(struct mr_buffer *out, uint8_t byte)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char short_forms[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (byte >= 0x20) {
        mr_buffer_append(out, (const char[]){'\\', (char)byte}, 2);
    } else if (short_forms[byte] != 0) {
        mr_buffer_append(out, (const char[]){'\\', short_forms[byte]}, 2);
    } else {
        mr_buffer_append(
            out, (const char[]){'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 0xF]}, 6);
    }
}

static void escape_astral(struct mr_buffer *out, const uint8_t *text)
{
    static const char digits[] = "0123456789ABCDEF";
    uint32_t point = (text[0] & 0x07u) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 |
                     (text[3] & 0x3Fu);
    uint32_t halves[] = {0xD800 + ((point - 0x10000) >> 10), 0xDC00 + (point & 0x3FF)};
    for (int i = 0; i < 2; i++) {
        mr_buffer_append(out,
                         (const char[]){'\\', 'u', digits[halves[i] >> 12],
                                        digits[halves[i] >> 8 & 0xF], digits[halves[i] >> 4 & 0xF],
                                        digits[halves[i] & 0xF]},
                         6);
    }
}

/* A run of bytes from 0x80 on: sequences stay, anything else is replaced byte by byte; 0: that is
 * not wanted. */
static size_t copy_multibyte(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    size_t run = 0;
    while (run < len && text[run] >= 0x80) {
        size_t sequence = mr_utf8_sequence(text + run, len - run);
        if (sequence == 0) {
            break;
        }
        if (sequence == 4 && out->splits_astral) {
            mr_buffer_append(out, text, run);
            escape_astral(out, text + run);
            return run + sequence;
        }
        run += sequence;
    }
    if (MR_UNLIKELY(run == 0)) {
        out->met_bytes = true;
        if (out->bytes_as_base64) {
            return 0;
        }
        MR_BUFFER_LITERAL(out, UTF8_REPLACEMENT);
        return 1;
    }
    mr_buffer_append(out, text, run);
    return run;
}

static void put_base64(struct mr_buffer *out, const uint8_t *bytes, size_t len)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t encoded = (len + 2) / 3 * 4;
    uint8_t *to = mr_buffer_reserve(out, encoded);
    if (to == NULL) {
        return;
    }
    size_t i = 0;
    for (; i + 3 <= len; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
        *to++ = (uint8_t)alphabet[group >> 18];
        *to++ = (uint8_t)alphabet[group >> 12 & 63];
        *to++ = (uint8_t)alphabet[group >> 6 & 63];
        *to++ = (uint8_t)alphabet[group & 63];
    }
    if (i < len) {
        bool two = i + 1 < len;
        uint32_t group = (uint32_t)bytes[i] << 16 | (two ? (uint32_t)bytes[i + 1] << 8 : 0);
        *to++ = (uint8_t)alphabet[group >> 18];
        *to++ = (uint8_t)alphabet[group >> 12 & 63];
        *to++ = two ? (uint8_t)alphabet[group >> 6 & 63] : '=';
        *to = '=';
    }
}

void mr_json_escaped(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    uint8_t *begin = out->at;
    size_t done = 0;
    for (;;) {
        size_t clean = clean_prefix(text + done, len - done);
        if (clean > 0) {
            mr_buffer_append(out, text + done, clean);
            done += clean;
        }
        if (done == len || out->full) {
            return;
        }
        if (text[done] >= 0x80) {
            size_t taken = copy_multibyte(out, text + done, len - done);
            if (MR_UNLIKELY(taken == 0)) {
                out->at = begin;
                put_base64(out, text, len);
                return;
            }
            done += taken;
        } else {
            escape_byte(out, text[done]);
            done++;
        }
    }
}

void mr_json_string(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    MR_BUFFER_LITERAL(out, "\"");
    mr_json_escaped(out, text, len);
    MR_BUFFER_LITERAL(out, "\"");
}

void mr_json_plain(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    uint8_t *room = mr_buffer_reserve(out, len + 2);
    if (MR_UNLIKELY(room == NULL)) {
        return;
    }
    room[0] = '"';
    room[len + 1] = '"';
    if (MR_UNLIKELY(!copy_clean(room + 1, text, len))) {
        out->at = room;
        mr_json_string(out, text, len);
    }
}

void mr_json_u64(struct mr_buffer *out, uint64_t value)
{
    char digits[20];
    unsigned at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    mr_buffer_append(out, digits + at, sizeof(digits) - at);
}

void mr_json_i64(struct mr_buffer *out, int64_t value)
{
    if (value < 0) {
        MR_BUFFER_LITERAL(out, "-");
        mr_json_u64(out, 0 - (uint64_t)value);
    } else {
        mr_json_u64(out, (uint64_t)value);
    }
}

void mr_json_base64(struct mr_buffer *out, const uint8_t *bytes, size_t len)
{
    MR_BUFFER_LITERAL(out, "\"");
    put_base64(out, bytes, len);
    MR_BUFFER_LITERAL(out, "\"");
}

/* Bytes of the escape that begins after its backslash; 0: there is none. */
static size_t escape_length(const uint8_t *text, size_t len)
{
    enum { DIGITS = 4 };
    if (len == 0 || text[0] == '\0' || strchr("\"\\/bfnrtu", text[0]) == NULL) {
        return 0;
    }
    if (text[0] != 'u') {
        return 1;
    }
    size_t digits = 0;
    while (digits < DIGITS && 1 + digits < len && isxdigit(text[1 + digits])) {
        digits++;
    }
    return digits == DIGITS ? 1 + DIGITS : 0;
}

size_t mr_json_string_length(const uint8_t *text, size_t len)
{
    size_t at = 1;
    if (len == 0 || text[0] != '"') {
        return 0;
    }
    while (at < len && text[at] != '"') {
        bool is_escape = text[at] == '\\';
        at += is_escape;
        size_t taken =
            is_escape ? escape_length(text + at, len - at) : mr_utf8_sequence(text + at, len - at);
        if (taken == 0 || (!is_escape && text[at] < 0x20)) {
            return 0;
        }
        at += taken;
    }
    return at < len ? at + 1 : 0;
}

static uint32_t hex_unit(const uint8_t *text)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit = text[i] <= '9' ? text[i] - (uint32_t)'0' : (text[i] | 0x20u) - 'a' + 10;
        unit = unit << 4 | digit;
    }
    return unit;
}

static size_t put_utf8(uint8_t *to, uint32_t point)
{
    if (point < 0x80) {
        to[0] = (uint8_t)point;
        return 1;
    }
    size_t len = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = len - 1; i > 0; i--) {
        to[i] = (uint8_t)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    to[0] = (uint8_t)(first[len] | point);
    return len;
}

/* The code point of \uXXXX at `text`, or of two of them. `*ret_len`: bytes it takes there. */
static uint32_t escaped_point(const uint8_t *text, size_t len, size_t *ret_len)
{
    enum { ESCAPE = 6 };
    uint32_t unit = hex_unit(text + 2);
    *ret_len = ESCAPE;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return unit;
    }
    if (unit < 0xDC00 && len >= 2 * (size_t)ESCAPE && text[ESCAPE] == '\\' &&
        text[ESCAPE + 1] == 'u') {
        uint32_t low = hex_unit(text + ESCAPE + 2);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *ret_len = 2 * (size_t)ESCAPE;
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return 0xFFFD;
}

size_t mr_json_unescape(uint8_t *to, const uint8_t *text, size_t len)
{
    static const char letters[] = "bfnrt";
    static const char meant[] = "\b\f\n\r\t";
    uint8_t *begin = to;
    for (size_t at = 0; at < len;) {
        if (text[at] != '\\') {
            *to++ = text[at++];
        } else if (text[at + 1] == 'u') {
            size_t taken;
            uint32_t point = escaped_point(text + at, len - at, &taken);
            to += put_utf8(to, point);
            at += taken;
        } else {
            const char *letter = strchr(letters, text[at + 1]);
            *to++ = letter == NULL ? text[at + 1] : (uint8_t)meant[letter - letters];
            at += 2;
        }
    }
    return (size_t)(to - begin);
}
