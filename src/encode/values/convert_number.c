/* Numbers, money and bits. */
#include "encode/values/convert.h"
#include "encode/values/put.h"

#include <float.h>
#include <math.h>

/* Sign and digits of a decimal: `-12.30` has integer "12" and fraction "30". */
struct decimal {
    bool negative;
    mr_slice integer;
    mr_slice fraction;
};

static bool parse_decimal(mr_slice text, struct decimal *ret)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    ret->negative = mr_cursor_take(&cursor, '-');
    ret->integer = mr_cursor_digits(&cursor);
    ret->fraction = (mr_slice){.data = cursor.at, .len = 0};
    if (mr_cursor_take(&cursor, '.')) {
        ret->fraction = mr_cursor_digits(&cursor);
    }
    return ret->integer.len > 0 && mr_cursor_ended(&cursor);
}

static bool is_no_number(mr_slice text)
{
    return mr_slice_equal(text, MR_SLICE("NaN")) || mr_slice_equal(text, MR_SLICE("Infinity")) ||
           mr_slice_equal(text, MR_SLICE("-Infinity"));
}

/* A number of any size, least significant limb first. */
struct magnitude {
    uint32_t *limbs;
    size_t count;
};

static void multiply_add(struct magnitude *number, uint32_t factor, uint32_t add)
{
    uint64_t carry = add;
    for (size_t i = 0; i < number->count; i++) {
        uint64_t sum = (uint64_t)number->limbs[i] * factor + carry;
        number->limbs[i] = (uint32_t)sum;
        carry = sum >> 32;
    }
    if (carry != 0) {
        number->limbs[number->count++] = (uint32_t)carry;
    }
}

/* Nine digits a step: 10^9 is the largest power of ten that a limb holds. */
static void add_digits(struct magnitude *number, mr_slice digits)
{
    for (size_t at = 0; at < digits.len;) {
        uint32_t factor = 1;
        uint32_t chunk = 0;
        for (; at < digits.len && factor < 1000000000; at++) {
            factor *= 10;
            chunk = 10 * chunk + (uint32_t)(digits.data[at] - '0');
        }
        multiply_add(number, factor, chunk);
    }
}

/* `bytes` and all limbs lie in one block: a limb holds more than nine digits. */
static size_t block_size(size_t digits)
{
    size_t limbs = digits / 9 + 2;
    return limbs * sizeof(uint32_t) * 2 + sizeof(uint32_t);
}

/* As java.math.BigInteger.toByteArray: two's complement, most significant byte first, as short as
 * it can be. */
static size_t convert_number_write_bytes(uint8_t *bytes, const struct magnitude *number,
                                         bool negative)
{
    size_t len = number->count * sizeof(uint32_t) + 1;
    bool carry = negative;
    for (size_t i = 0; i < len; i++) { /* from the least significant byte */
        size_t limb = i / sizeof(uint32_t);
        uint32_t value = limb < number->count ? number->limbs[limb] >> (8 * (i % 4)) : 0;
        uint8_t byte = (uint8_t)(negative ? ~value : value);
        byte = (uint8_t)(byte + carry);
        carry = carry && byte == 0;
        bytes[len - 1 - i] = byte;
    }
    size_t skip = 0;
    while (skip + 1 < len && ((bytes[skip] == 0x00 && bytes[skip + 1] < 0x80) ||
                              (bytes[skip] == 0xFF && bytes[skip + 1] >= 0x80))) {
        skip++;
    }
    memmove(bytes, bytes + skip, len - skip);
    return len - skip;
}

/* The digits of both parts as one number, and `zeros` more at its end. */
static void write_unscaled(struct mr_buffer *out, const struct decimal *decimal, size_t zeros,
                           struct mr_scratch *scratch)
{
    size_t digits = decimal->integer.len + decimal->fraction.len + zeros;
    mr_text_begin(&scratch->number, block_size(digits));
    struct magnitude number = {.limbs = (uint32_t *)(void *)scratch->number.data};
    add_digits(&number, decimal->integer);
    add_digits(&number, decimal->fraction);
    for (size_t i = 0; i < zeros; i++) {
        multiply_add(&number, 10, 0);
    }
    uint8_t *bytes = (uint8_t *)(number.limbs + number.count);
    mr_put_bytes(out, bytes, convert_number_write_bytes(bytes, &number, decimal->negative));
}

/* Base64 of the number without its point, `detail` digits after it; not-a-number is null. */
MR_CONVERT(decimal)
{
    struct decimal decimal;
    if (is_no_number(text)) {
        mr_put_null(out);
        return true;
    }
    if (!parse_decimal(text, &decimal) || decimal.fraction.len > (size_t)how->detail) {
        return false;
    }
    write_unscaled(out, &decimal, (size_t)how->detail - decimal.fraction.len, scratch);
    return true;
}

/* `{"scale":…,"value":…}` of the same. */
MR_CONVERT(scaled_decimal)
{
    struct decimal decimal;
    if (is_no_number(text)) {
        mr_put_null(out);
        return true;
    }
    if (!parse_decimal(text, &decimal)) {
        return false;
    }
    while (decimal.fraction.len > 0 && decimal.fraction.data[decimal.fraction.len - 1] == '0') {
        decimal.fraction.len--;
    }
    mr_put_record(out, MR_SLICE("{\"scale\":"), false);
    mr_put_int(out, (int64_t)decimal.fraction.len);
    mr_put_field(out, MR_SLICE(",\"value\":"), false);
    write_unscaled(out, &decimal, 0, scratch);
    mr_put_json(out, MR_SLICE("}"));
    return true;
}

/* The number in quotes, as it is. */
MR_CONVERT(decimal_text)
{
    struct decimal decimal;
    if (is_no_number(text)) {
        /* As Debezium names them (its SpecialValueDecimal). */
        mr_put_slice(out, text.data[0] == 'N'   ? MR_SLICE("NAN")
                          : text.data[0] == '-' ? MR_SLICE("NEGATIVE_INFINITY")
                                                : MR_SLICE("POSITIVE_INFINITY"));
        return true;
    }
    if (!parse_decimal(text, &decimal)) {
        return false;
    }
    mr_put_slice(out, text);
    return true;
}

/* "-$1,234.11" (lc_monetary is C) in `room` as "-1234.11". */
enum { MONEY_MAX = 32 };

static bool parse_money(mr_slice text, char *room, mr_slice *ret)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        char byte = (char)text.data[i];
        bool kept = (byte >= '0' && byte <= '9') || byte == '.' || byte == '-';
        if (kept ? len == MONEY_MAX : byte != '$' && byte != ',') {
            return false;
        }
        if (kept) {
            room[len++] = byte;
        }
    }
    *ret = (mr_slice){.data = (const uint8_t *)room, .len = len};
    return true;
}

MR_CONVERT(money)
{
    char room[MONEY_MAX];
    mr_slice amount;
    return parse_money(text, room, &amount) && mr_convert_decimal(out, how, amount, scratch);
}

/* An exact decimal in quotes. */
MR_CONVERT(plain_money)
{
    char room[MONEY_MAX];
    mr_slice amount;
    struct decimal decimal;
    if (!parse_money(text, room, &amount) || !parse_decimal(amount, &decimal)) {
        return false;
    }
    mr_put_slice(out, amount);
    return true;
}

/* JSON has no number that begins so. */
static bool has_idle_zero(mr_slice digits)
{
    return digits.len > 1 && digits.data[0] == '0';
}

/* Of `detail` bytes. */
MR_CONVERT(integer)
{
    size_t begin = text.len > 0 && text.data[0] == '-';
    bool good = text.len > begin && (text.data[begin] != '0' || text.len == begin + 1);
    for (size_t i = begin; i < text.len; i++) {
        good &= (uint8_t)(text.data[i] - '0') <= 9;
    }
    if (good && MR_UNLIKELY(out->is_avro)) {
        mr_avro_digits(out, text, how->detail == MR_INT_BYTES);
    } else if (good) {
        mr_buffer_slice(out, text);
    }
    return good;
}

MR_CONVERT(boolean)
{
    bool is_true = text.len == 1 && text.data[0] == 't';
    mr_put_bool(out, is_true);
    return is_true || (text.len == 1 && text.data[0] == 'f');
}

/* Significant digits and the place of the point: 0.d1d2… times 10 to the `exponent`. */
struct floating {
    bool negative;
    char digits[32];
    int count;
    int exponent;
};

static bool parse_floating(mr_slice text, struct floating *ret)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    *ret = (struct floating){.negative = mr_cursor_take(&cursor, '-')};
    mr_slice integer = mr_cursor_digits(&cursor);
    mr_slice fraction = {.data = cursor.at, .len = 0};
    if (mr_cursor_take(&cursor, '.')) {
        fraction = mr_cursor_digits(&cursor);
        if (fraction.len == 0) {
            return false;
        }
    }
    if (integer.len == 0 || has_idle_zero(integer) || integer.len + fraction.len > 400) {
        return false;
    }
    ret->exponent = (int)integer.len;
    for (size_t i = 0; i < integer.len + fraction.len; i++) {
        uint8_t digit = i < integer.len ? integer.data[i] : fraction.data[i - integer.len];
        if (ret->count == 0 && digit == '0') {
            ret->exponent--;
        } else if (ret->count < (int)sizeof(ret->digits)) {
            ret->digits[ret->count++] = (char)digit;
        } else if (digit != '0') {
            return false;
        }
    }
    while (ret->count > 0 && ret->digits[ret->count - 1] == '0') {
        ret->count--;
    }
    if (mr_cursor_take(&cursor, 'e')) {
        bool negative = mr_cursor_take(&cursor, '-');
        int64_t exponent;
        if (!negative) {
            mr_cursor_take(&cursor, '+');
        }
        if (!mr_cursor_number(&cursor, 1, 4, &exponent)) {
            return false;
        }
        ret->exponent += (int)(negative ? -exponent : exponent);
    }
    return mr_cursor_ended(&cursor);
}

/* Java tells a number by two digits at least, and takes the closer ones where one digit would do
 * (java.lang.Double.toString of JDK 19 and later). That differs from PostgreSQL, which takes the
 * shortest, only among the smallest of all numbers. */
static void closest_two_digits(mr_slice text, int32_t bytes, struct floating *floating)
{
    char copy[32];
    char form[32];
    if (text.len >= sizeof(copy)) {
        return;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    bool is_double = bytes == MR_DOUBLE_BYTES;
    double value = is_double ? strtod(copy, NULL) : (double)strtof(copy, NULL);
    snprintf(form, sizeof(form), "%.1e", value);
    if ((is_double ? strtod(form, NULL) : (double)strtof(form, NULL)) == value) {
        parse_floating(mr_slice_of(form), floating);
    }
}

static void pad_zeros(struct mr_buffer *out, int count)
{
    for (int i = 0; i < count; i++) {
        MR_BUFFER_LITERAL(out, "0");
    }
}

/* From a thousandth to ten million with a point, else with one digit before it and an exponent. */
static void write_java(struct mr_buffer *out, const struct floating *floating)
{
    int point = floating->exponent;
    int count = floating->count;
    if (floating->negative) {
        MR_BUFFER_LITERAL(out, "-");
    }
    if (count == 0) {
        MR_BUFFER_LITERAL(out, "0.0");
        return;
    }
    bool scientific = point < -2 || point > 7;
    int before = scientific ? 1 : point;
    if (before <= 0) {
        MR_BUFFER_LITERAL(out, "0.");
        pad_zeros(out, -before);
        mr_buffer_append(out, floating->digits, (size_t)count);
        return;
    }
    int whole = before < count ? before : count;
    mr_buffer_append(out, floating->digits, (size_t)whole);
    pad_zeros(out, before - whole);
    MR_BUFFER_LITERAL(out, ".");
    if (count > whole) {
        mr_buffer_append(out, floating->digits + whole, (size_t)(count - whole));
    } else {
        MR_BUFFER_LITERAL(out, "0");
    }
    if (scientific) {
        MR_BUFFER_LITERAL(out, "E");
        mr_json_i64(out, point - 1);
    }
}

/* Text that strtod reads. In JSON what is not a number is in quotes. */
static void put_no_number(struct mr_buffer *out, mr_slice text, bool is_double)
{
    if (MR_UNLIKELY(out->is_avro)) {
        double value = text.data[0] == 'N' ? (double)NAN : (double)INFINITY;
        mr_avro_real(out, text.data[0] == '-' ? -value : value, is_double);
    } else {
        mr_json_string(out, text.data, text.len);
    }
}

static void put_floating(struct mr_buffer *out, const struct floating *floating, bool is_double)
{
    enum { TEXT_MAX = 64 };
    if (MR_LIKELY(!out->is_avro)) {
        write_java(out, floating);
        return;
    }
    char text[TEXT_MAX];
    struct mr_buffer number = mr_buffer_init((uint8_t *)text, sizeof(text) - 1);
    write_java(&number, floating);
    *number.at = '\0';
    mr_avro_real(out, strtod(text, NULL), is_double);
}

/* As Java prints it; of `detail` bytes. */
MR_CONVERT(java_float)
{
    bool is_double = how->detail != MR_FLOAT_BYTES;
    if (is_no_number(text)) {
        put_no_number(out, text, is_double);
        return true;
    }
    struct floating floating;
    if (!parse_floating(text, &floating)) {
        return false;
    }
    if (floating.count == 1 && floating.exponent < (is_double ? -300 : -37)) {
        closest_two_digits(text, how->detail, &floating);
    }
    put_floating(out, &floating, is_double);
    return true;
}

/* The fewest digits that are read as the same number, the closest of those. */
static mr_slice shortest_digits(double value, char *room, size_t size)
{
    int len = 0;
    for (int digits = 15; digits <= 17; digits++) {
        len = snprintf(room, size, "%.*e", digits - 1, value);
        if (strtod(room, NULL) == value) {
            break;
        }
    }
    return (mr_slice){.data = (const uint8_t *)room, .len = (size_t)len};
}

/* A number of up to 15 digits, and far from the ends of the range, is the shortest that is read as
 * its double: no two of those are read as the same one (C11 5.2.4.2.2, DBL_DIG). */
static bool is_shortest(const struct floating *floating)
{
    enum { EXPONENT_MAX = 290 };
    return floating->count <= DBL_DIG && abs(floating->exponent) < EXPONENT_MAX;
}

bool mr_convert_double(struct mr_buffer *out, mr_slice text, struct mr_scratch *scratch)
{
    struct floating floating;
    if (!out->is_avro && parse_floating(text, &floating) && is_shortest(&floating)) {
        put_floating(out, &floating, true);
        return true;
    }
    mr_text_begin(&scratch->number, text.len + 1);
    char *copy = (char *)scratch->number.data;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    double value = strtod(copy, NULL);
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_real(out, value, true);
        return true;
    }
    if (isinf(value)) {
        mr_put_slice(out, value < 0 ? MR_SLICE("-Infinity") : MR_SLICE("Infinity"));
        return true;
    }
    char room[32];
    static const struct mr_conversion as_double = {.detail = MR_DOUBLE_BYTES};
    return mr_convert_java_float(out, &as_double, shortest_digits(value, room, sizeof(room)),
                                 scratch);
}

/* A numeric or money as Java's double. */
MR_CONVERT(decimal_double)
{
    char money[MONEY_MAX];
    struct decimal decimal;
    if (is_no_number(text)) {
        put_no_number(out, text, true);
        return true;
    }
    if (!parse_decimal(text, &decimal) &&
        (!parse_money(text, money, &text) || !parse_decimal(text, &decimal))) {
        return false;
    }
    return mr_convert_double(out, text, scratch);
}

/* RFC 8259, section 6. */
static bool is_float(mr_slice text)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    mr_cursor_take(&cursor, '-');
    mr_slice integer = mr_cursor_digits(&cursor);
    bool good = integer.len > 0 && !has_idle_zero(integer);
    if (mr_cursor_take(&cursor, '.')) {
        good &= mr_cursor_digits(&cursor).len > 0;
    }
    if (mr_cursor_take(&cursor, 'e')) {
        if (!mr_cursor_take(&cursor, '+')) {
            mr_cursor_take(&cursor, '-');
        }
        good &= mr_cursor_digits(&cursor).len > 0;
    }
    return good && mr_cursor_ended(&cursor);
}

/* As PostgreSQL prints it, the three that are not numbers quoted. */
MR_CONVERT(float)
{
    if (is_float(text)) {
        mr_buffer_slice(out, text);
        return true;
    }
    if (is_no_number(text)) {
        mr_json_string(out, text.data, text.len);
    }
    return is_no_number(text);
}

static int convert_number_hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static void write_hex(struct mr_buffer *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t *room = mr_buffer_reserve(out, 2 * len + 2);
    if (room == NULL) {
        return;
    }
    *room++ = '"';
    for (size_t i = 0; i < len; i++) {
        *room++ = (uint8_t)digits[bytes[i] >> 4];
        *room++ = (uint8_t)digits[bytes[i] & 0xF];
    }
    *room = '"';
}

void mr_convert_binary(struct mr_buffer *out, enum mr_binary_mode mode, const uint8_t *bytes,
                       size_t len)
{
    if (mode == MR_BINARY_BYTES) {
        mr_put_bytes(out, bytes, len);
        return;
    }
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    uint8_t *begin = out->at;
    if (mode == MR_BINARY_HEX) {
        write_hex(out, bytes, len);
    } else {
        mr_json_base64(out, bytes, len);
    }
    if (mode == MR_BINARY_BASE64_URL && !out->full) {
        for (uint8_t *at = begin; at < out->at; at++) { /* RFC 4648, section 5 */
            *at = (uint8_t)(*at == '+' ? '-' : *at == '/' ? '_' : *at);
        }
    }
    if (gap != NULL) {
        mr_avro_close_json(out, gap);
    }
}

bool mr_convert_unhex(mr_slice text, struct mr_scratch *scratch, mr_slice *ret)
{
    return text.len >= 2 && text.data[0] == '\\' && text.data[1] == 'x' &&
           mr_convert_digits((mr_slice){.data = text.data + 2, .len = text.len - 2}, scratch, ret);
}

bool mr_convert_digits(mr_slice digits, struct mr_scratch *scratch, mr_slice *ret)
{
    size_t len = digits.len / 2;
    mr_text_begin(&scratch->number, len + 1);
    int wrong = 0;
    for (size_t i = 0; i < len; i++) {
        int high = convert_number_hex_digit(digits.data[2 * i]);
        int low = convert_number_hex_digit(digits.data[2 * i + 1]);
        wrong |= high | low;
        scratch->number.data[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    *ret = (mr_slice){.data = scratch->number.data, .len = len};
    return wrong >= 0 && digits.len % 2 == 0;
}

/* Hexadecimal to what the binary mode `detail` says. */
MR_CONVERT(bytes)
{
    mr_slice bytes;
    if (!mr_convert_unhex(text, scratch, &bytes)) {
        return false;
    }
    mr_convert_binary(out, (enum mr_binary_mode)how->detail, bytes.data, bytes.len);
    return true;
}

MR_CONVERT(bit)
{
    if (text.len == 0) { /* a varbit(1) */
        mr_put_null(out);
        return true;
    }
    bool is_set = text.data[0] == '1';
    mr_put_bool(out, is_set);
    return text.len == 1 && (is_set || text.data[0] == '0');
}

/* Base64, least significant byte first, without the zeros at its end. */
MR_CONVERT(bits)
{
    size_t len = 0; /* up to the highest bit that is set */
    mr_text_begin(&scratch->number, text.len / 8 + 1);
    uint8_t *bytes = scratch->number.data;
    memset(bytes, 0, text.len / 8 + 1);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t digit = text.data[text.len - 1 - i];
        if (digit == '1') {
            bytes[i / 8] |= (uint8_t)(1u << (i % 8));
            len = i / 8 + 1;
        } else if (digit != '0') {
            return false;
        }
    }
    mr_put_bytes(out, bytes, len);
    return true;
}

MR_CONVERT(string)
{
    mr_put_slice(out, text);
    return true;
}

void mr_scratch_done(struct mr_scratch *scratch)
{
    free(scratch->number.data);
    free(scratch->element.data);
    free(scratch->part.data);
}
