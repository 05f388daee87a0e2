#include "verify/scan.h"

#include "verify/digest.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { DEPTH_MAX = 1000 }; /* of a jsonb that is written as JSON itself */

/* Loops move a copy of `at`: a byte that is read could be a part of the scan itself, for all that
 * the compiler knows. */
static void pass_space(struct mr_scan *scan)
{
    const uint8_t *at = scan->at;
    while (at < scan->end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) {
        at++;
    }
    scan->at = at;
}

/* The next byte that is no space; 0, which begins nothing: there is none. */
static inline uint8_t scan_peek(struct mr_scan *scan)
{
    if (scan->at < scan->end && *scan->at <= ' ') {
        pass_space(scan);
    }
    return scan->at < scan->end ? *scan->at : 0;
}

static inline bool pass_byte(struct mr_scan *scan, uint8_t byte)
{
    bool is_it = scan_peek(scan) == byte;
    scan->at += is_it;
    return is_it;
}

enum { NO_DIGIT = 255 };

static inline unsigned scan_hex_digit(uint8_t byte)
{
    unsigned digit = (unsigned)byte - '0';
    unsigned letter = (byte | 0x20u) - 'a';
    return digit < 10 ? digit : letter < 6 ? letter + 10 : NO_DIGIT;
}

static bool pass_escape(struct mr_scan *scan)
{
    if (++scan->at == scan->end) {
        return false;
    }
    if (*scan->at != 'u') {
        return *scan->at != '\0' && strchr("\"\\/bfnrt", *scan->at) != NULL;
    }
    for (int i = 0; i < 4; i++) {
        if (++scan->at == scan->end || scan_hex_digit(*scan->at) == NO_DIGIT) {
            return false;
        }
    }
    return true;
}

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The top bit of each byte below `limit`, which is 0x80 at most. Of several, only the lowest is
 * certain: a byte above it may have lent to the subtraction. */
static inline uint64_t scan_below(uint64_t word, uint8_t limit)
{
    return (word - EACH(limit)) & ~word & EACH(0x80);
}

#ifdef __SSE2__
/* A bit for each of 16 bytes that is that one, the first byte's lowest. */
static inline unsigned equals(__m128i block, char byte)
{
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(byte)));
}

static inline __m128i block_at(const uint8_t *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

/* Passes whole blocks to the first quote, backslash or control character, or until less than a
 * block is left. */
static inline const uint8_t *pass_blocks(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 16; at += 16) {
        __m128i block = block_at(at);
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(0x1f)), block);
        unsigned found =
            equals(block, '"') | equals(block, '\\') | (unsigned)_mm_movemask_epi8(low);
        if (found != 0) {
            return at + __builtin_ctz(found);
        }
    }
    return at;
}
#else
static inline const uint8_t *pass_blocks(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = mr_word_at(at);
        uint64_t found = scan_below(word ^ EACH('"'), 1) | scan_below(word ^ EACH('\\'), 1) |
                         scan_below(word, 0x20);
        if (found != 0) {
            return at + __builtin_ctzll(found) / 8;
        }
    }
    return at;
}
#endif

/* Where a string's next quote, backslash or control character is, or the end. */
static inline const uint8_t *pass_plain(const uint8_t *at, const uint8_t *end)
{
    at = pass_blocks(at, end);
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20) {
        at++;
    }
    return at;
}

const uint8_t *mr_scan_to(const uint8_t *at, const uint8_t *end, uint8_t one, uint8_t other)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = mr_word_at(at);
        uint64_t found = scan_below(word ^ EACH(one), 1) | scan_below(word ^ EACH(other), 1);
        if (found != 0) {
            return at + __builtin_ctzll(found) / 8;
        }
    }
    while (at < end && *at != one && *at != other) {
        at++;
    }
    return at;
}

/* After the first quote. */
static bool scan_take_string(struct mr_scan *scan, struct mr_scanned *ret)
{
    const uint8_t *begin = scan->at;
    bool is_escaped = false;
    scan->at = pass_plain(begin, scan->end);
    while (scan->at < scan->end && *scan->at == '\\') {
        is_escaped = true;
        if (!pass_escape(scan)) {
            return false;
        }
        scan->at = pass_plain(scan->at + 1, scan->end);
    }
    if (scan->at == scan->end || *scan->at != '"') {
        return false;
    }
    *ret = (struct mr_scanned){.kind = MR_SCAN_STRING,
                               .text = {.data = begin, .len = (size_t)(scan->at - begin)},
                               .is_escaped = is_escaped};
    scan->at++;
    return true;
}

static bool pass_digits(struct mr_scan *scan)
{
    const uint8_t *begin = scan->at;
    const uint8_t *at = begin;
    while (at < scan->end && *at >= '0' && *at <= '9') {
        at++;
    }
    scan->at = at;
    return at > begin;
}

static bool pass_number(struct mr_scan *scan)
{
    scan->at += *scan->at == '-';
    const uint8_t *first = scan->at;
    if (!pass_digits(scan) || (*first == '0' && scan->at > first + 1)) {
        return false;
    }
    if (scan->at < scan->end && *scan->at == '.') {
        scan->at++;
        if (!pass_digits(scan)) {
            return false;
        }
    }
    if (scan->at < scan->end && (*scan->at == 'e' || *scan->at == 'E')) {
        scan->at++;
        scan->at += scan->at < scan->end && (*scan->at == '+' || *scan->at == '-');
        return pass_digits(scan);
    }
    return true;
}

static bool scan_take_word(struct mr_scan *scan, const char *word, enum mr_scan_kind kind,
                           struct mr_scanned *ret)
{
    size_t len = strlen(word);
    if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0) {
        return false;
    }
    *ret = (struct mr_scanned){.kind = kind, .text = {.data = scan->at, .len = len}};
    scan->at += len;
    return true;
}

static bool scan_take_value(struct mr_scan *scan, int depth, struct mr_scanned *ret);

/* An object's or an array's members, after its bracket. */
static bool pass_members(struct mr_scan *scan, bool is_object, int depth)
{
    uint8_t end = is_object ? '}' : ']';
    if (pass_byte(scan, end)) {
        return true;
    }
    do {
        struct mr_scanned passed;
        if (is_object &&
            !(pass_byte(scan, '"') && scan_take_string(scan, &passed) && pass_byte(scan, ':'))) {
            return false;
        }
        if (!scan_take_value(scan, depth + 1, &passed)) {
            return false;
        }
    } while (pass_byte(scan, ','));
    return pass_byte(scan, end);
}

static bool scan_take_value(struct mr_scan *scan, int depth, struct mr_scanned *ret)
{
    uint8_t first = scan_peek(scan);
    const uint8_t *begin = scan->at;
    if (begin == scan->end || depth > DEPTH_MAX) {
        return false;
    }
    enum mr_scan_kind kind;
    switch (first) {
    case '"':
        scan->at++;
        return scan_take_string(scan, ret);
    case 'n':
        return scan_take_word(scan, "null", MR_SCAN_NULL, ret);
    case 't':
        return scan_take_word(scan, "true", MR_SCAN_TRUE, ret);
    case 'f':
        return scan_take_word(scan, "false", MR_SCAN_FALSE, ret);
    case '{':
    case '[':
        scan->at++;
        kind = first == '{' ? MR_SCAN_OBJECT : MR_SCAN_ARRAY;
        if (!pass_members(scan, kind == MR_SCAN_OBJECT, depth)) {
            return false;
        }
        break;
    default:
        kind = MR_SCAN_NUMBER;
        if (!pass_number(scan)) {
            return false;
        }
    }
    *ret = (struct mr_scanned){.kind = kind,
                               .text = {.data = begin, .len = (size_t)(scan->at - begin)}};
    return true;
}

/* Where pass_over is. */
struct passing {
    int64_t depth;
    bool in_string;
    bool is_escaped; /* by the byte before */
};

/* Whether the byte ends what is passed over. */
static bool pass_one(struct passing *passing, uint8_t byte)
{
    if (passing->in_string) {
        passing->in_string = passing->is_escaped || byte != '"';
        passing->is_escaped = !passing->is_escaped && byte == '\\';
        return false;
    }
    passing->in_string = byte == '"';
    passing->depth += (byte == '{' || byte == '[') - (byte == '}' || byte == ']');
    return passing->depth == 0;
}

/* A bit for each byte of a block, the first byte's lowest. '[' | 0x20 is '{', and ']' | 0x20 '}';
 * no other byte is. */
struct marks {
    unsigned quotes, backslashes, opened, closed;
};

#ifdef __SSE2__
enum { BLOCK = 32 };

static inline struct marks half_of(const uint8_t *bytes)
{
    __m128i block = block_at(bytes);
    __m128i small = _mm_or_si128(block, _mm_set1_epi8(0x20));
    return (struct marks){.quotes = equals(block, '"'),
                          .backslashes = equals(block, '\\'),
                          .opened = equals(small, '{'),
                          .closed = equals(small, '}')};
}

static inline struct marks marks_of(const uint8_t *bytes)
{
    struct marks low = half_of(bytes);
    struct marks high = half_of(bytes + 16);
    return (struct marks){.quotes = low.quotes | high.quotes << 16,
                          .backslashes = low.backslashes | high.backslashes << 16,
                          .opened = low.opened | high.opened << 16,
                          .closed = low.closed | high.closed << 16};
}
#else
enum { BLOCK = 8 };

static inline unsigned equals(uint64_t block, char byte)
{
    uint64_t differs = block ^ EACH((uint8_t)byte);
    uint64_t tops = ~(((differs & EACH(0x7f)) + EACH(0x7f)) | differs) & EACH(0x80);
    return (unsigned)(((tops >> 7) * UINT64_C(0x0102040810204080)) >> 56);
}

static inline struct marks marks_of(const uint8_t *bytes)
{
    uint64_t block = mr_word_at(bytes);
    uint64_t small = block | EACH(0x20);
    return (struct marks){.quotes = equals(block, '"'),
                          .backslashes = equals(block, '\\'),
                          .opened = equals(small, '{'),
                          .closed = equals(small, '}')};
}
#endif

/* A block at once. Answers how many of its bytes belong to what is passed over if that ends in it,
 * and 0 if not. */
static inline int pass_block(struct passing *passing, const uint8_t *bytes)
{
    struct marks marks = marks_of(bytes);
    bool is_escaped = false; /* the byte after the block */
    unsigned escaped = passing->is_escaped;
    marks.backslashes &= ~escaped;
    while (marks.backslashes != 0) {
        unsigned first = marks.backslashes & -marks.backslashes;
        escaped |= first << 1;
        is_escaped = first >> (BLOCK - 1) != 0;
        marks.backslashes &= ~(first | first << 1);
    }
    unsigned in_string = marks.quotes & ~escaped; /* from each quote to before the next */
    for (unsigned shift = 1; shift < BLOCK; shift *= 2) {
        in_string ^= in_string << shift;
    }
    in_string ^= passing->in_string ? ~0u : 0;
    for (unsigned left = (marks.opened | marks.closed) & ~in_string; left != 0; left &= left - 1) {
        passing->depth += (marks.opened & left & -left) != 0 ? 1 : -1;
        if (passing->depth == 0) {
            return __builtin_ctz(left) + 1;
        }
    }
    passing->in_string = (in_string >> (BLOCK - 1) & 1) != 0;
    passing->is_escaped = is_escaped;
    return 0;
}

/* An object or array to its bracket. */
static bool pass_over(struct mr_scan *scan, struct mr_scanned *ret)
{
    const uint8_t *begin = scan->at;
    const uint8_t *at = begin;
    struct passing passing = {0};
    bool is_ended = false;
    while (scan->end - at >= BLOCK && !is_ended) {
        int last = pass_block(&passing, at);
        is_ended = last != 0;
        at += is_ended ? last : BLOCK;
    }
    while (at < scan->end && !is_ended) {
        is_ended = pass_one(&passing, *at++);
    }
    scan->at = at;
    *ret = (struct mr_scanned){.kind = *begin == '{' ? MR_SCAN_OBJECT : MR_SCAN_ARRAY,
                               .text = {.data = begin, .len = (size_t)(at - begin)}};
    return is_ended;
}

/* The value of a member. */
static bool scan_take_part(struct mr_scan *scan, struct mr_scanned *ret)
{
    uint8_t first = scan_peek(scan);
    bool is_open = first == '{' || first == '[';
    return scan->is_shallow && is_open ? pass_over(scan, ret) : scan_take_value(scan, 0, ret);
}

bool mr_scan_value(mr_slice text, struct mr_scanned *ret)
{
    struct mr_scan scan = mr_scan_members(text);
    struct mr_scanned value;
    if (!scan_take_value(&scan, 0, &value)) {
        return false;
    }
    pass_space(&scan);
    *ret = value;
    return scan.at == scan.end;
}

struct mr_scan mr_scan_members(mr_slice text)
{
    /* Nothing may lie nowhere, and to that nothing may be added. */
    static const uint8_t nothing;
    const uint8_t *data = text.data == NULL ? &nothing : text.data;
    return (struct mr_scan){.at = data, .end = data + text.len};
}

struct mr_scan mr_scan_shallow(mr_slice text)
{
    struct mr_scan scan = mr_scan_members(text);
    scan.is_shallow = true;
    return scan;
}

/* Whether there is one more. */
static bool goes_on(struct mr_scan *scan, uint8_t open, uint8_t close)
{
    bool is_first = !scan->is_begun;
    scan->failed = scan->failed || (is_first && !pass_byte(scan, open));
    scan->is_begun = true;
    uint8_t next = scan_peek(scan);
    if (scan->failed) {
        return false;
    }
    if (next == close) {
        scan->at++;
        scan->failed = scan_peek(scan) != 0 || scan->at != scan->end;
        return false;
    }
    scan->at += next == ',' && !is_first;
    scan->failed = !is_first && next != ',';
    return !scan->failed;
}

bool mr_scan_member(struct mr_scan *scan, struct mr_scanned *ret_name, struct mr_scanned *ret_value)
{
    if (!goes_on(scan, '{', '}')) {
        return false;
    }
    scan->failed = !pass_byte(scan, '"') || !scan_take_string(scan, ret_name) ||
                   !pass_byte(scan, ':') || !scan_take_part(scan, ret_value);
    return !scan->failed;
}

bool mr_scan_element(struct mr_scan *scan, struct mr_scanned *ret_value)
{
    if (!goes_on(scan, '[', ']')) {
        return false;
    }
    scan->failed = !scan_take_value(scan, 0, ret_value);
    return !scan->failed;
}

bool mr_scan_find(mr_slice object, const char *name, struct mr_scanned *ret_value)
{
    struct mr_scan scan = mr_scan_members(object);
    struct mr_scanned found;
    size_t len = strlen(name);
    while (mr_scan_member(&scan, &found, ret_value)) {
        if (found.text.len == len && memcmp(found.text.data, name, len) == 0) {
            return true;
        }
    }
    return false;
}

static uint32_t scan_take_unit(const uint8_t *digits)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        unit = unit << 4 | scan_hex_digit(digits[i]);
    }
    return unit;
}

static size_t put_code_point(uint8_t *to, uint32_t point)
{
    if (point < 0x80) {
        to[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        to[0] = (uint8_t)(0xc0 | point >> 6);
        to[1] = (uint8_t)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        to[0] = (uint8_t)(0xe0 | point >> 12);
        to[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (point & 0x3f));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | point >> 18);
    to[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
    to[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    to[3] = (uint8_t)(0x80 | (point & 0x3f));
    return 4;
}

/* What the escape at `from`, a backslash, stands for; answers the bytes that it takes. Half a pair
 * of surrogates is what the half would be in UTF-8, which no text of PostgreSQL has: so it equals
 * none. */
static size_t unescape_one(const uint8_t *from, const uint8_t *end, uint8_t *to, size_t *ret_len)
{
    static const char letters[] = "bfnrt";
    static const char meant[] = "\b\f\n\r\t";
    if (from[1] != 'u') {
        const char *letter = strchr(letters, from[1]);
        *to = letter == NULL ? from[1] : (uint8_t)meant[letter - letters];
        *ret_len = 1;
        return 2;
    }
    uint32_t point = scan_take_unit(from + 2);
    size_t taken = 6;
    bool is_high = point >= 0xd800 && point < 0xdc00;
    if (is_high && end - from >= 12 && from[6] == '\\' && from[7] == 'u') {
        uint32_t low = scan_take_unit(from + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
            taken = 12;
        }
    }
    *ret_len = put_code_point(to, point);
    return taken;
}

size_t mr_scan_unescape(const struct mr_scanned *string, uint8_t *to)
{
    const uint8_t *from = string->text.data;
    const uint8_t *end = from + string->text.len;
    uint8_t *begin = to;
    while (from < end) {
        if (*from != '\\') {
            *to++ = *from++;
            continue;
        }
        size_t len;
        from += unescape_one(from, end, to, &len);
        to += len;
    }
    return (size_t)(to - begin);
}

bool mr_scan_digits(mr_slice text, unsigned base, uint64_t *ret)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = scan_hex_digit(text.data[i]);
        if (digit >= base) {
            return false;
        }
        number = number * base + digit;
    }
    *ret = number;
    return text.len > 0 && text.len <= 16;
}
