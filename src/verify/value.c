#include "verify/value.h"

#include <math.h>

#include "base/json.h"
#include "base/sha256.h"

/* Of objects and lists whose parts are compared one by one; an array has six dimensions at most. */
enum { DEPTH_MAX = 8 };

/* Whose value is being read, and how. */
struct reading {
    struct mr_digest key;
    const struct mr_verify_form *form;
    bool is_event;
    bool is_inner; /* strings are texts of JSON */
    bool is_key;
};

mr_slice mr_verify_text_of(const struct mr_scanned *value, uint8_t **ret_memory)
{
    *ret_memory = NULL;
    switch (value->kind) {
    case MR_SCAN_NULL:
        return (mr_slice){0};
    case MR_SCAN_TRUE:
        return mr_slice_of("t");
    case MR_SCAN_FALSE:
        return mr_slice_of("f");
    default:
        if (!value->is_escaped) {
            return value->text;
        }
        *ret_memory = MR_ALLOC(value->text.len + 1);
        return (mr_slice){.data = *ret_memory, .len = mr_scan_unescape(value, *ret_memory)};
    }
}

/* A null's digest is no text's: it is made under another key. */
static struct mr_digest text_digest(struct mr_digest key, mr_slice text)
{
    key.high ^= text.data == NULL;
    return mr_digest_of(key, text);
}

/* Of what `bytes` are, which is no text. */
static struct mr_digest bytes_digest(struct mr_digest key, const void *bytes, size_t len)
{
    key.high ^= 2;
    return mr_digest_of(key, (mr_slice){.data = bytes, .len = len});
}

static bool take_real(mr_slice text, bool is_short, double *ret)
{
    char room[64];
    char *copy = text.len < sizeof(room) ? room : MR_ALLOC(text.len + 1);
    char *end;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    *ret = is_short ? (double)strtof(copy, &end) : strtod(copy, &end);
    bool good = text.len > 0 && end == copy + text.len;
    if (copy != room) {
        free(copy);
    }
    return good;
}

/* By the number and not by its digits, of which there may be more than one shortest. In JSON only
 * what is none is a string. */
static struct mr_digest real_digest(const struct reading *reading, enum mr_scan_kind kind,
                                    mr_slice text)
{
    double number;
    if (!take_real(text, reading->form->leaf == MR_LEAF_REAL4, &number)) {
        return text_digest(reading->key, text); /* a text beside numbers */
    }
    struct mr_digest digest = bytes_digest(reading->key, &number, sizeof(number));
    digest.high ^= reading->is_event && kind == MR_SCAN_STRING && isfinite(number);
    return digest;
}

/* A decimal: its digits as one whole number, modulo a number of 64 bits that nobody knows, and how
 * many of them are after the point. */
struct decimal {
    uint64_t digits;
    uint64_t scale;
};

static uint64_t modulus_of(const struct reading *reading)
{
    return reading->key.low | UINT64_C(1) << 63;
}

static uint64_t append_digit(uint64_t number, uint32_t base, uint32_t digit, uint64_t modulus)
{
    return (uint64_t)(((unsigned __int128)number * base + digit) % modulus);
}

static uint64_t subtract(uint64_t from, uint64_t number, uint64_t modulus)
{
    return from >= number ? from - number : from + (modulus - number);
}

static int base64_digit(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z'   ? byte - 'A'
           : byte >= 'a' && byte <= 'z' ? byte - 'a' + 26
           : byte >= '0' && byte <= '9' ? byte - '0' + 52
           : byte == '+'                ? 62
           : byte == '/'                ? 63
                                        : -1;
}

/* Base64 (RFC 4648, section 4) of a whole number in two's complement, its most significant byte
 * first. */
static bool take_base64(mr_slice text, uint64_t modulus, uint64_t *ret)
{
    uint64_t number = 0;
    uint64_t range = 1; /* of so many bytes */
    bool is_negative = false;
    uint32_t bits = 0;
    size_t padding = 0;
    while (padding < 2 && padding < text.len && text.data[text.len - 1 - padding] == '=') {
        padding++;
    }
    for (size_t i = 0; i < text.len - padding; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0) {
            return false;
        }
        is_negative = i == 0 ? digit >= 32 : is_negative;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 > 0) {
            uint32_t byte = bits >> (6 - 2 * (i % 4)) & 0xff;
            number = append_digit(number, 256, byte, modulus);
            range = append_digit(range, 256, 0, modulus);
        }
    }
    *ret = is_negative ? subtract(number, range, modulus) : number;
    return text.len % 4 == 0;
}

static struct decimal take_decimal(mr_slice text, uint64_t modulus)
{
    struct decimal decimal = {0};
    bool has_point = false;
    bool is_negative = text.len > 0 && text.data[0] == '-';
    for (size_t i = is_negative; i < text.len; i++) {
        if (text.data[i] == '.') {
            has_point = true;
            continue;
        }
        decimal.digits = append_digit(decimal.digits, 10, (uint8_t)(text.data[i] - '0'), modulus);
        decimal.scale += has_point;
    }
    decimal.digits = is_negative ? subtract(0, decimal.digits, modulus) : decimal.digits;
    return decimal;
}

/* An event's: base64 of the digits. */
static struct mr_digest unscaled_digest(const struct reading *reading, mr_slice text,
                                        uint64_t scale)
{
    struct decimal decimal = {.scale = scale};
    return take_base64(text, modulus_of(reading), &decimal.digits)
               ? bytes_digest(reading->key, &decimal, sizeof(decimal))
               : bytes_digest(reading->key, text.data, text.len);
}

/* {"scale":…,"value":…} */
static struct mr_digest scaled_digest(const struct reading *reading,
                                      const struct mr_scanned *object)
{
    struct mr_scanned scale;
    struct mr_scanned value;
    uint64_t number;
    bool good = mr_scan_find(object->text, "scale", &scale) &&
                mr_scan_digits(scale.text, 10, &number) &&
                mr_scan_find(object->text, "value", &value) && value.kind == MR_SCAN_STRING;
    return good ? unscaled_digest(reading, value.text, number)
                : bytes_digest(reading->key, object->text.data, object->text.len);
}

/* The server's. What is no number is null; where an event says the scale, zeros at the fraction's
 * end are left out. */
static struct mr_digest server_decimal(const struct reading *reading, mr_slice text)
{
    uint8_t last = text.len > 0 ? text.data[text.len - 1] : 0;
    if (last == 'N' || last == 'y') {
        return text_digest(reading->key, reading->is_key ? text : (mr_slice){0});
    }
    if (reading->form->is_scaled && memchr(text.data, '.', text.len) != NULL) {
        while (text.data[text.len - 1] == '0') {
            text.len--;
        }
    }
    struct decimal decimal = take_decimal(text, modulus_of(reading));
    return bytes_digest(reading->key, &decimal, sizeof(decimal));
}

static struct mr_digest decimal_digest(const struct reading *reading,
                                       const struct mr_scanned *value, mr_slice text)
{
    if (!reading->is_event) {
        return server_decimal(reading, text);
    }
    if (value->kind == MR_SCAN_OBJECT && reading->form->is_scaled) {
        return scaled_digest(reading, value);
    }
    struct mr_digest digest = unscaled_digest(reading, text, reading->form->scale);
    digest.high ^= value->kind != MR_SCAN_STRING || reading->form->is_scaled;
    return digest;
}

static struct mr_digest leaf_digest(const struct reading *reading, const struct mr_scanned *value)
{
    MR_FREED uint8_t *memory = NULL;
    mr_slice text = mr_verify_text_of(value, &memory);
    struct mr_digest digest;
    if (text.data == NULL) {
        digest = text_digest(reading->key, text);
    } else if (reading->form->leaf == MR_LEAF_DECIMAL) {
        digest = decimal_digest(reading, value, text);
    } else if (reading->form->leaf == MR_LEAF_REAL4 || reading->form->leaf == MR_LEAF_REAL8) {
        digest = real_digest(reading, value->kind, text);
    } else {
        digest = text_digest(reading->key, text);
        digest.high ^= reading->form->leaf == MR_LEAF_TEXT && value->kind != MR_SCAN_STRING;
    }
    return digest;
}

static struct mr_digest tree_digest(const struct reading *reading, const struct mr_scanned *value,
                                    int depth);

/* Adds the elements in their order to `*sum`; of a flat list those of the lists in it, too. */
static void value_take_elements(const struct reading *reading, mr_slice list, int depth,
                                struct mr_digest *sum)
{
    struct mr_scan scan = mr_scan_members(list);
    struct mr_scanned element;
    while (mr_scan_element(&scan, &element)) {
        if (reading->form->shape == MR_SHAPE_FLAT && element.kind == MR_SCAN_ARRAY &&
            depth < DEPTH_MAX) {
            value_take_elements(reading, element.text, depth + 1, sum);
        } else {
            *sum = mr_digest_add(bytes_digest(*sum, sum, sizeof(*sum)),
                                 tree_digest(reading, &element, depth + 1));
        }
    }
}

static struct mr_digest list_digest(const struct reading *reading, mr_slice list, int depth)
{
    struct mr_digest sum = reading->key;
    value_take_elements(reading, list, depth, &sum);
    return bytes_digest(reading->key, &sum, sizeof(sum));
}

/* The same in any order of its members. */
static struct mr_digest object_digest(const struct reading *reading, mr_slice text, int depth)
{
    struct mr_digest sum = {0};
    struct mr_scan scan = mr_scan_members(text);
    struct mr_scanned name;
    struct mr_scanned value;
    while (mr_scan_member(&scan, &name, &value)) {
        MR_FREED uint8_t *memory = NULL;
        struct mr_digest key = text_digest(reading->key, mr_verify_text_of(&name, &memory));
        struct mr_digest member = tree_digest(reading, &value, depth + 1);
        sum = mr_digest_add(sum, bytes_digest(key, &member, sizeof(member)));
    }
    return bytes_digest(reading->key, &sum, sizeof(sum));
}

static struct mr_digest inner_digest(const struct reading *reading, const struct mr_scanned *value,
                                     int depth)
{
    struct reading plain = *reading;
    plain.is_inner = false;
    MR_FREED uint8_t *memory = NULL;
    struct mr_scanned inner;
    mr_slice text = mr_verify_text_of(value, &memory);
    bool is_json = mr_scan_value(text, &inner);
    return tree_digest(&plain, is_json ? &inner : value, depth + 1);
}

static struct mr_digest tree_digest(const struct reading *reading, const struct mr_scanned *value,
                                    int depth)
{
    if (depth > DEPTH_MAX) {
        return text_digest(reading->key, value->text);
    }
    if (value->kind == MR_SCAN_ARRAY) {
        return list_digest(reading, value->text, depth);
    }
    if (value->kind == MR_SCAN_OBJECT && reading->form->leaf != MR_LEAF_DECIMAL) {
        return object_digest(reading, value->text, depth);
    }
    if (value->kind == MR_SCAN_STRING && reading->is_inner) {
        return inner_digest(reading, value, depth);
    }
    return leaf_digest(reading, value);
}

void mr_verify_column_mask(struct mr_verify_column *column, uint32_t length)
{
    MR_FREED uint8_t *asterisks = MR_ALLOC((size_t)length + 1);
    memset(asterisks, '*', length);
    column->treatment = MR_TREAT_MASKED;
    column->mask = text_digest(column->key, (mr_slice){.data = asterisks, .len = length});
}

static struct mr_digest hashed(const struct mr_verify_column *column, mr_slice text)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[MR_SHA256_BYTES];
    uint8_t written[2 * MR_SHA256_BYTES];
    mr_sha256(mr_slice_of(column->salt), text, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        written[2 * i] = (uint8_t)digits[bytes[i] >> 4];
        written[2 * i + 1] = (uint8_t)digits[bytes[i] & 15];
    }
    return text_digest(column->key, (mr_slice){.data = written, .len = sizeof(written)});
}

/* So many characters of UTF-8 are so many first bytes. */
static mr_slice cut(mr_slice text, uint32_t length)
{
    size_t at = 0;
    for (uint32_t count = 0; at < text.len; at++) {
        if ((text.data[at] & 0xc0) != 0x80 && count++ == length) {
            break;
        }
    }
    return (mr_slice){.data = text.data, .len = at};
}

static bool is_plain(const struct mr_verify_form *form)
{
    return form->shape == MR_SHAPE_LEAF && form->leaf <= MR_LEAF_BARE;
}

/* The length of the character that begins there (RFC 3629, section 4); 0: none does. Not
 * mr_utf8_sequence, by which the encoder tells. */
static size_t character_at(const uint8_t *at, size_t left)
{
    uint8_t first = at[0];
    size_t len = first < 0x80                    ? 1
                 : first >= 0xc2 && first < 0xe0 ? 2
                 : first >= 0xe0 && first < 0xf0 ? 3
                 : first >= 0xf0 && first < 0xf5 ? 4
                                                 : 0;
    if (len > left) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool is_none = (first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) ||
                   (first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] > 0x8f);
    return is_none ? 0 : len;
}

static bool is_utf8(mr_slice text)
{
    size_t at = 0;
    for (size_t len; at < text.len; at += len) {
        len = character_at(text.data + at, text.len - at);
        if (len == 0) {
            return false;
        }
    }
    return true;
}

/* Each byte that is of no character becomes U+FFFD; answers the length. */
static size_t replace(mr_slice text, uint8_t *to)
{
    uint8_t *begin = to;
    for (size_t at = 0; at < text.len;) {
        size_t len = character_at(text.data + at, text.len - at);
        memcpy(to, len == 0 ? (const uint8_t *)"\xef\xbf\xbd" : text.data + at, len == 0 ? 3 : len);
        to += len == 0 ? 3 : len;
        at += len == 0 ? 1 : len;
    }
    return (size_t)(to - begin);
}

static struct mr_digest odd_digest(const struct mr_verify_column *column, mr_slice text)
{
    size_t room = 3 * text.len + 8;
    MR_FREED uint8_t *memory = MR_ALLOC(room);
    mr_slice made = {.data = memory};
    if (column->odd == MR_ODD_BASE64) {
        struct mr_buffer out = mr_buffer_init(memory, room);
        mr_json_base64(&out, text.data, text.len);
        made = (mr_slice){.data = memory + 1, .len = (size_t)(out.at - memory) - 2};
    } else {
        made.len = replace(text, memory);
    }
    return text_digest(column->key, made);
}

/* {"hex":"ff41"}, of a key that is not UTF-8: its bytes. False: it is no such object. */
static bool value_take_hex(const struct mr_scanned *value, uint8_t **ret_memory, mr_slice *ret_text)
{
    struct mr_scanned hex;
    if (value->kind != MR_SCAN_OBJECT || !mr_scan_find(value->text, "hex", &hex) ||
        hex.kind != MR_SCAN_STRING || hex.text.len % 2 != 0) {
        return false;
    }
    uint8_t *bytes = MR_ALLOC(hex.text.len / 2 + 1);
    for (size_t i = 0; i < hex.text.len / 2; i++) {
        uint64_t byte;
        mr_slice digits = {.data = hex.text.data + 2 * i, .len = 2};
        if (!mr_scan_digits(digits, 16, &byte)) {
            free(bytes);
            return false;
        }
        bytes[i] = (uint8_t)byte;
    }
    *ret_memory = bytes;
    *ret_text = (mr_slice){.data = bytes, .len = hex.text.len / 2};
    return true;
}

struct mr_digest mr_verify_server_value(const struct mr_verify_column *column, mr_slice text,
                                        bool is_key)
{
    struct mr_scanned value = {.kind = MR_SCAN_STRING, .text = text};
    if (text.data == NULL) {
        return text_digest(column->key, text);
    }
    switch (column->treatment) {
    case MR_TREAT_MASKED:
        return column->mask;
    case MR_TREAT_CUT:
        return text_digest(column->key, cut(text, column->length));
    case MR_TREAT_HASHED:
        return hashed(column, text);
    default:
        if (is_plain(&column->form)) {
            bool is_odd = column->odd != MR_ODD_REFUSED && !is_key && !is_utf8(text);
            return is_odd ? odd_digest(column, text) : text_digest(column->key, text);
        }
    }
    const struct reading reading = {.key = column->key, .form = &column->form, .is_key = is_key};
    if (column->form.shape != MR_SHAPE_LEAF && !mr_scan_value(text, &value)) {
        return text_digest(column->key, text);
    }
    return column->form.shape == MR_SHAPE_LEAF ? leaf_digest(&reading, &value)
                                               : tree_digest(&reading, &value, 0);
}

struct mr_digest mr_verify_key_text(const struct mr_verify_column *column, mr_slice text)
{
    return text_digest(column->key, text);
}

bool mr_verify_is_key_text(const struct mr_verify_column *column, const struct mr_scanned *value,
                           mr_slice *ret_text)
{
    struct mr_scanned text;
    bool is_text = column->form.shape == MR_SHAPE_LEAF && value->kind == MR_SCAN_OBJECT &&
                   mr_scan_find(value->text, "text", &text) && text.kind == MR_SCAN_STRING;
    *ret_text = is_text ? text.text : (mr_slice){0};
    return is_text;
}

struct mr_digest mr_verify_event_value(const struct mr_verify_column *column,
                                       const struct mr_scanned *value, bool is_key)
{
    const struct reading reading = {.key = column->key,
                                    .form = &column->form,
                                    .is_event = true,
                                    .is_inner = column->form.shape == MR_SHAPE_INNER,
                                    .is_key = is_key};
    mr_slice text;
    if (column->form.shape != MR_SHAPE_LEAF) {
        return tree_digest(&reading, value, 0);
    }
    uint8_t *memory;
    if (is_key && is_plain(&column->form) && value_take_hex(value, &memory, &text)) {
        struct mr_digest digest = text_digest(column->key, text);
        free(memory);
        return digest;
    }
    return is_key && mr_verify_is_key_text(column, value, &text) ? mr_verify_key_text(column, text)
                                                                 : leaf_digest(&reading, value);
}
