#include "verify/scan.h"

#include <endian.h>
#include <string.h>

enum { DEPTH_MAX = 1000 }; /* of a jsonb that is written as JSON itself */

/* Loops move a copy of `at`: a byte that is read could be a part of the scan itself, for all that the compiler knows. */
static void pass_space(struct mr_scan *scan)
{
    const uint8_t *at = scan->at;
    while (at < scan->end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) {
        at++;
    }
    scan->at = at;
}

static bool pass_byte(struct mr_scan *scan, uint8_t byte)
{
    pass_space(scan);
    bool is_it = scan->at < scan->end && *scan->at == byte;
    scan->at += is_it;
    return is_it;
}

static int hex_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9'   ? byte - '0'
           : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
           : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                        : -1;
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
        if (++scan->at == scan->end || hex_digit(*scan->at) < 0) {
            return false;
        }
    }
    return true;
}

/* Whether one of eight bytes is a quote, a backslash or a control character, or may be: what is above such a byte may be taken for one. */
static bool may_end(const uint8_t *bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    uint64_t quote = word ^ (ones * '"');
    uint64_t backslash = word ^ (ones * '\\');
    uint64_t found = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                     ((word - ones * 0x20) & ~word);
    return (found & (ones << 7)) != 0;
}

/* Where a string's next quote, backslash or control character is, or the end. */
static const uint8_t *pass_plain(const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 8 && !may_end(at)) {
        at += 8;
    }
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20) {
        at++;
    }
    return at;
}

/* After the first quote. */
static bool take_string(struct mr_scan *scan, struct mr_scanned *ret)
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

static bool take_word(struct mr_scan *scan, const char *word, enum mr_scan_kind kind,
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

static bool take_value(struct mr_scan *scan, int depth, struct mr_scanned *ret);

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
            !(pass_byte(scan, '"') && take_string(scan, &passed) && pass_byte(scan, ':'))) {
            return false;
        }
        if (!take_value(scan, depth + 1, &passed)) {
            return false;
        }
    } while (pass_byte(scan, ','));
    return pass_byte(scan, end);
}

static bool take_value(struct mr_scan *scan, int depth, struct mr_scanned *ret)
{
    pass_space(scan);
    if (scan->at == scan->end || depth > DEPTH_MAX) {
        return false;
    }
    const uint8_t *begin = scan->at;
    enum mr_scan_kind kind;
    switch (*begin) {
    case '"':
        scan->at++;
        return take_string(scan, ret);
    case 'n':
        return take_word(scan, "null", MR_SCAN_NULL, ret);
    case 't':
        return take_word(scan, "true", MR_SCAN_TRUE, ret);
    case 'f':
        return take_word(scan, "false", MR_SCAN_FALSE, ret);
    case '{':
    case '[':
        scan->at++;
        kind = *begin == '{' ? MR_SCAN_OBJECT : MR_SCAN_ARRAY;
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

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The top bit of each byte that equals `byte`. */
static uint64_t equals(uint64_t word, uint8_t byte)
{
    uint64_t differs = word ^ EACH(byte);
    return ~(((differs & EACH(0x7f)) + EACH(0x7f)) | differs) & EACH(0x80);
}

/* These top bits side by side, the first byte's lowest. */
static unsigned gather(uint64_t tops)
{
    return (unsigned)(((tops >> 7) * UINT64_C(0x0102040810204080)) >> 56);
}

/* Eight bytes at once; false: it takes them one by one, as something is escaped, or what is passed over may end. */
static bool pass_eight(struct passing *passing, const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    word = le64toh(word);
    if (passing->is_escaped || equals(word, '\\') != 0) {
        return false;
    }
    unsigned in_string = gather(equals(word, '"')); /* from each quote to before the next */
    in_string ^= in_string << 1;
    in_string ^= in_string << 2;
    in_string ^= in_string << 4;
    in_string = (in_string & 0xff) ^ (passing->in_string ? 0xff : 0);
    const uint64_t small = word | EACH(0x20); /* '[' is '{' then, and ']' '}'; no other byte is */
    int opened = __builtin_popcount(gather(equals(small, '{')) & ~in_string);
    int closed = __builtin_popcount(gather(equals(small, '}')) & ~in_string);
    if (passing->depth <= closed) {
        return false;
    }
    passing->depth += opened - closed;
    passing->in_string = (in_string & 0x80) != 0;
    return true;
}

/* An object or array to its bracket. */
static bool pass_over(struct mr_scan *scan, struct mr_scanned *ret)
{
    const uint8_t *begin = scan->at;
    const uint8_t *at = begin;
    struct passing passing = {0};
    bool is_ended = false;
    while (at < scan->end && !is_ended) {
        if (scan->end - at >= 8 && pass_eight(&passing, at)) {
            at += 8;
            continue;
        }
        for (int i = 0; i < 8 && at < scan->end && !is_ended; i++) {
            is_ended = pass_one(&passing, *at++);
        }
    }
    scan->at = at;
    *ret = (struct mr_scanned){.kind = *begin == '{' ? MR_SCAN_OBJECT : MR_SCAN_ARRAY,
                               .text = {.data = begin, .len = (size_t)(at - begin)}};
    return is_ended;
}

/* The value of a member. */
static bool take_part(struct mr_scan *scan, struct mr_scanned *ret)
{
    pass_space(scan);
    bool is_open = scan->at < scan->end && (*scan->at == '{' || *scan->at == '[');
    return scan->is_shallow && is_open ? pass_over(scan, ret) : take_value(scan, 0, ret);
}

bool mr_scan_value(mr_slice text, struct mr_scanned *ret)
{
    struct mr_scan scan = {.at = text.data, .end = text.data + text.len};
    struct mr_scanned value;
    if (!take_value(&scan, 0, &value)) {
        return false;
    }
    pass_space(&scan);
    *ret = value;
    return scan.at == scan.end;
}

struct mr_scan mr_scan_members(mr_slice text)
{
    return (struct mr_scan){.at = text.data, .end = text.data + text.len};
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
    if (scan->failed || (is_first && !pass_byte(scan, open))) {
        scan->failed = true;
        return false;
    }
    scan->is_begun = true;
    if (pass_byte(scan, close)) {
        pass_space(scan);
        scan->failed = scan->at != scan->end;
        return false;
    }
    scan->failed = !is_first && !pass_byte(scan, ',');
    return !scan->failed;
}

bool mr_scan_member(struct mr_scan *scan, struct mr_scanned *ret_name, struct mr_scanned *ret_value)
{
    if (!goes_on(scan, '{', '}')) {
        return false;
    }
    scan->failed = !pass_byte(scan, '"') || !take_string(scan, ret_name) || !pass_byte(scan, ':') ||
                   !take_part(scan, ret_value);
    return !scan->failed;
}

bool mr_scan_element(struct mr_scan *scan, struct mr_scanned *ret_value)
{
    if (!goes_on(scan, '[', ']')) {
        return false;
    }
    scan->failed = !take_value(scan, 0, ret_value);
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

static uint32_t take_unit(const uint8_t *digits)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        unit = unit << 4 | (uint32_t)hex_digit(digits[i]);
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

/* What the escape at `from`, a backslash, stands for; answers the bytes that it takes. Half a pair of surrogates is what the half
 * would be in UTF-8, which no text of PostgreSQL has: so it equals none. */
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
    uint32_t point = take_unit(from + 2);
    size_t taken = 6;
    bool is_high = point >= 0xd800 && point < 0xdc00;
    if (is_high && end - from >= 12 && from[6] == '\\' && from[7] == 'u') {
        uint32_t low = take_unit(from + 8);
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
        int digit = hex_digit(text.data[i]);
        if (digit < 0 || (unsigned)digit >= base) {
            return false;
        }
        number = number * base + (unsigned)digit;
    }
    *ret = number;
    return text.len > 0 && text.len <= 16;
}
