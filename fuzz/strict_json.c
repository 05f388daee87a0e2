#include "strict_json.h"

#include <string.h>

enum { DEPTH_MAX = 200 };

struct cursor {
    const uint8_t *at, *end;
};

static bool value(struct cursor *in, unsigned depth);

static int strict_json_peek(const struct cursor *in)
{
    return in->at < in->end ? *in->at : -1;
}

static bool strict_json_take(struct cursor *in, uint8_t byte)
{
    if (strict_json_peek(in) != byte) {
        return false;
    }
    in->at++;
    return true;
}

static void space(struct cursor *in)
{
    while (strict_json_take(in, ' ') || strict_json_take(in, '\t') || strict_json_take(in, '\n') ||
           strict_json_take(in, '\r')) {
    }
}

static bool digits(struct cursor *in)
{
    const uint8_t *begin = in->at;
    while (strict_json_peek(in) >= '0' && strict_json_peek(in) <= '9') {
        in->at++;
    }
    return in->at > begin;
}

static bool strict_json_number(struct cursor *in)
{
    strict_json_take(in, '-');
    if (!strict_json_take(in, '0') && !digits(in)) {
        return false;
    }
    if (strict_json_take(in, '.') && !digits(in)) {
        return false;
    }
    if (strict_json_take(in, 'e') || strict_json_take(in, 'E')) {
        if (!strict_json_take(in, '+')) {
            strict_json_take(in, '-');
        }
        return digits(in);
    }
    return true;
}

size_t strict_utf8_length(const uint8_t *text, size_t len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0) {
        return 0;
    }
    if (text[0] < 0x80) {
        return 1;
    }
    size_t size = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : text[0] >= 0xC0 ? 2 : 0;
    if (size == 0 || text[0] >= 0xF8 || size > len) {
        return 0;
    }
    uint32_t point = text[0] & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (text[i] >> 6 != 2) {
            return 0;
        }
        point = point << 6 | (text[i] & 0x3Fu);
    }
    bool surrogate = point >= 0xD800 && point < 0xE000;
    return point < least[size] || point > 0x10FFFF || surrogate ? 0 : size;
}

static int strict_json_hex(int digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Answers the character after the backslash, or -1. */
static int escaped(struct cursor *in)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int byte = strict_json_peek(in);
    const char *found = byte > 0 ? strchr(from, byte) : NULL;
    if (found != NULL) {
        in->at++;
        return to[found - from];
    }
    if (!strict_json_take(in, 'u') || in->end - in->at < 4) {
        return -1;
    }
    int point = 0;
    for (int i = 0; i < 4; i++) {
        int digit = strict_json_hex(*in->at++);
        if (digit < 0) {
            return -1;
        }
        point = point * 16 + digit;
    }
    return point;
}

/* UTF-8 of one unit of UTF-16; half of a pair is written as it is. */
static size_t unit_bytes(int unit, uint8_t *ret)
{
    if (unit < 0x80) {
        ret[0] = (uint8_t)unit;
        return 1;
    }
    if (unit < 0x800) {
        ret[0] = (uint8_t)(0xC0 | unit >> 6);
        ret[1] = (uint8_t)(0x80 | (unit & 0x3F));
        return 2;
    }
    ret[0] = (uint8_t)(0xE0 | unit >> 12);
    ret[1] = (uint8_t)(0x80 | (unit >> 6 & 0x3F));
    ret[2] = (uint8_t)(0x80 | (unit & 0x3F));
    return 3;
}

/* `ret` may be NULL; answers the length of the content or -1. */
static long string(struct cursor *in, uint8_t *ret)
{
    long len = 0;
    if (!strict_json_take(in, '"')) {
        return -1;
    }
    while (!strict_json_take(in, '"')) {
        int byte = strict_json_peek(in);
        size_t size = strict_utf8_length(in->at, (size_t)(in->end - in->at));
        if (byte < 0x20 || size == 0) {
            return -1;
        }
        const uint8_t *from = in->at;
        uint8_t unit[3];
        in->at += size;
        if (byte == '\\') {
            int point = escaped(in);
            if (point < 0) {
                return -1;
            }
            size = unit_bytes(point, unit);
            from = unit;
        }
        if (ret != NULL) {
            memcpy(ret + len, from, size);
        }
        len += (long)size;
    }
    return len;
}

static bool members(struct cursor *in, bool named, uint8_t close, unsigned depth)
{
    space(in);
    if (strict_json_take(in, close)) {
        return true;
    }
    do {
        space(in);
        if (named) {
            if (string(in, NULL) < 0) {
                return false;
            }
            space(in);
            if (!strict_json_take(in, ':')) {
                return false;
            }
        }
        if (!value(in, depth + 1)) {
            return false;
        }
        space(in);
    } while (strict_json_take(in, ','));
    return strict_json_take(in, close);
}

static bool strict_json_word(struct cursor *in, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(in->end - in->at) < len || memcmp(in->at, text, len) != 0) {
        return false;
    }
    in->at += len;
    return true;
}

static bool value(struct cursor *in, unsigned depth)
{
    if (depth > DEPTH_MAX) {
        return false;
    }
    space(in);
    switch (strict_json_peek(in)) {
    case '{':
        in->at++;
        return members(in, true, '}', depth);
    case '[':
        in->at++;
        return members(in, false, ']', depth);
    case '"':
        return string(in, NULL) >= 0;
    case 't':
        return strict_json_word(in, "true");
    case 'f':
        return strict_json_word(in, "false");
    case 'n':
        return strict_json_word(in, "null");
    default:
        return strict_json_number(in);
    }
}

bool strict_json_valid(mr_slice text)
{
    struct cursor in = {.at = text.data, .end = text.data + text.len};
    if (!value(&in, 0)) {
        return false;
    }
    space(&in);
    return in.at == in.end;
}

long strict_json_unescape(mr_slice text, uint8_t *ret)
{
    struct cursor in = {.at = text.data, .end = text.data + text.len};
    long len = string(&in, ret);
    return in.at == in.end ? len : -1;
}
