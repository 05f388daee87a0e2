/* The transcoder that made Avro of JSON before the encoder wrote it directly. */
#include "testing/avro_oracle.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "encode/values/convert.h"
#include "testing/strict_avro.h"

enum { LONG_MAX_BYTES = 10 };

/* A place in JSON of our own making: objects have their fields in the schema's order, and no white
 * space. */
struct reader {
    struct mr_cursor at;
    struct mr_buffer *out;
    mr_slice schema; /* whole */
    mr_slice unavailable;
};

static bool write_type(struct reader *in, mr_slice type);

static bool avro_oracle_is(mr_slice text, const char *word)
{
    return mr_slice_equal(text, mr_slice_of(word));
}

/* The type that is null or this one; else itself. */
static mr_slice some(mr_slice type)
{
    mr_slice name, part = type;
    size_t at = 0;
    while (type.data[0] == '[' && mr_schema_next(type, &at, &name, &part)) {
    }
    return part;
}

static void put_long(struct mr_buffer *out, int64_t value)
{
    uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint8_t bytes[LONG_MAX_BYTES];
    size_t len = 0;
    do {
        bytes[len++] = (uint8_t)((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
        left >>= 7;
    } while (left != 0);
    mr_buffer_append(out, bytes, len);
}

static bool avro_oracle_take_word(struct mr_cursor *at, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(at->end - at->at) < len || memcmp(at->at, word, len) != 0) {
        return false;
    }
    at->at += len;
    return true;
}

/* What stands between two quotes, as it is escaped. */
static bool avro_oracle_take_string(struct mr_cursor *at, mr_slice *ret)
{
    if (!mr_cursor_take(at, '"')) {
        return false;
    }
    const uint8_t *begin = at->at;
    while (at->at < at->end && *at->at != '"') {
        at->at += *at->at == '\\' && at->end - at->at > 1 ? 2 : 1;
    }
    *ret = (mr_slice){.data = begin, .len = (size_t)(at->at - begin)};
    return mr_cursor_take(at, '"');
}

static bool put_integer(struct reader *in, uint64_t most)
{
    bool negative = mr_cursor_take(&in->at, '-');
    uint64_t value = 0;
    unsigned count = 0;
    for (; count < 19 && mr_cursor_digit(&in->at); count++) {
        value = 10 * value + (uint64_t)(*in->at.at++ - '0');
    }
    if (count == 0 || mr_cursor_digit(&in->at) || value > most + negative) {
        return false;
    }
    put_long(in->out, negative ? (int64_t)(0 - value) : (int64_t)value);
    return true;
}

/* A number, or in quotes one of the three that are not. strtod knows all of them. */
static bool take_double(struct mr_cursor *at, double *ret)
{
    char text[64];
    size_t len = 0;
    bool quoted = mr_cursor_take(at, '"');
    while (at->at < at->end && len < sizeof(text) - 1 && *at->at != '"' && *at->at != ',' &&
           *at->at != '}' && *at->at != ']') {
        text[len++] = (char)*at->at++;
    }
    text[len] = '\0';
    char *end = text;
    *ret = strtod(text, &end);
    return len > 0 && *end == '\0' && (!quoted || mr_cursor_take(at, '"'));
}

static bool put_real(struct reader *in, bool is_double)
{
    double value;
    if (!take_double(&in->at, &value)) {
        return false;
    }
    float narrow = (float)value;
    mr_buffer_append(in->out, is_double ? (const void *)&value : (const void *)&narrow,
                     is_double ? sizeof(value) : sizeof(narrow));
    return true;
}

/* Room for a length or a count that is known once what it counts is written after it; closing puts
 * it there and moves the rest up. */
static const uint8_t *open_gap(struct mr_buffer *out)
{
    const uint8_t *gap = out->at;
    mr_buffer_reserve(out, LONG_MAX_BYTES);
    return gap;
}

static void avro_oracle_close_gap(struct mr_buffer *out, const uint8_t *gap, int64_t value)
{
    if (out->full) {
        return;
    }
    const uint8_t *from = gap + LONG_MAX_BYTES;
    size_t len = (size_t)(out->at - from);
    out->at -= LONG_MAX_BYTES + len;
    put_long(out, value);
    memmove(mr_buffer_reserve(out, len), from, len);
}

static void put_string(struct mr_buffer *out, mr_slice escaped)
{
    if (escaped.len == 0 || memchr(escaped.data, '\\', escaped.len) == NULL) {
        put_long(out, (int64_t)escaped.len);
        mr_buffer_slice(out, escaped);
        return;
    }
    const uint8_t *gap = open_gap(out);
    uint8_t *text = mr_buffer_reserve(out, escaped.len);
    if (text != NULL) {
        size_t len = mr_json_unescape(text, escaped.data, escaped.len);
        out->at = text + len;
        avro_oracle_close_gap(out, gap, (int64_t)len);
    }
}

static int digit64(uint8_t c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Base64 as base/json writes it. */
static bool put_bytes(struct mr_buffer *out, mr_slice text)
{
    size_t padding = 0;
    while (padding < 2 && padding < text.len && text.data[text.len - 1 - padding] == '=') {
        padding++;
    }
    if (text.len % 4 != 0) {
        return false;
    }
    size_t len = text.len / 4 * 3 - padding;
    put_long(out, (int64_t)len);
    uint32_t bits = 0;
    for (size_t i = 0, done = 0; i < text.len; i++) {
        int digit = i < text.len - padding ? digit64(text.data[i]) : 0;
        if (digit < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 3) {
            const uint8_t three[] = {(uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)bits};
            size_t part = len - done < 3 ? len - done : 3;
            mr_buffer_append(out, three, part);
            done += part;
            bits = 0;
        }
    }
    return true;
}

/* These answer how many parts there are; -1: one does not fit. */
static int64_t put_entries(struct reader *in, mr_slice type)
{
    mr_slice key;
    int64_t count = 0;
    for (; !mr_cursor_take(&in->at, '}'); count++) {
        if ((count > 0 && !mr_cursor_take(&in->at, ',')) ||
            !avro_oracle_take_string(&in->at, &key) || !mr_cursor_take(&in->at, ':')) {
            return -1;
        }
        put_string(in->out, key);
        if (!write_type(in, type)) {
            return -1;
        }
    }
    return count;
}

/* Whether the list at hand is an element, which has numbers in it, and no dimension. */
static bool is_element(const struct reader *in, mr_slice type)
{
    return avro_oracle_is(mr_schema_member(some(type), "\"type\""), "\"array\"") &&
           in->at.end - in->at.at > 1 && in->at.at[1] != '[' && in->at.at[1] != 'n';
}

/* All elements come in one list, however many dimensions there are. */
static int64_t put_elements(struct reader *in, mr_slice type)
{
    unsigned depth = 0;
    int64_t count = 0;
    for (;;) {
        if (mr_cursor_take(&in->at, ']')) {
            if (depth-- == 0) {
                return count;
            }
            continue;
        }
        if (count > 0 && !mr_cursor_take(&in->at, ',')) {
            return -1;
        }
        while (mr_cursor_is_at(&in->at, '[') && !is_element(in, type)) {
            in->at.at++;
            depth++;
        }
        if (!write_type(in, type)) {
            return -1;
        }
        count++;
    }
}

static int64_t put_pairs(struct reader *in)
{
    int64_t count = 0;
    for (; !mr_cursor_take(&in->at, ']'); count++) {
        if ((count > 0 && !mr_cursor_take(&in->at, ',')) || !mr_cursor_take(&in->at, '[') ||
            !write_type(in, MR_SLICE("\"int\"")) || !mr_cursor_take(&in->at, ',') ||
            !write_type(in, MR_SLICE("\"double\"")) || !mr_cursor_take(&in->at, ']')) {
            return -1;
        }
    }
    return count;
}

/* A list, or an object whose keys are strings: one block, and the end, which is a block of none. */
static bool avro_oracle_put_parts(struct reader *in, mr_slice part, bool is_map)
{
    if (!mr_cursor_take(&in->at, is_map ? '{' : '[')) {
        return false;
    }
    const uint8_t *gap = open_gap(in->out);
    bool is_pairs = avro_oracle_is(mr_schema_member(part, "\"name\""), "\"MapEntry\"");
    int64_t count = is_map     ? put_entries(in, part)
                    : is_pairs ? put_pairs(in)
                               : put_elements(in, part);
    avro_oracle_close_gap(in->out, gap, count > 0 ? count : 0);
    if (count > 0) {
        put_long(in->out, 0);
    }
    return count >= 0;
}

static bool put_record(struct reader *in, mr_slice record)
{
    mr_slice name, unused, field;
    size_t at = 0;
    for (bool first = true;
         mr_schema_next(mr_schema_member(record, "\"fields\""), &at, &unused, &field);
         first = false) {
        if (!mr_cursor_take(&in->at, first ? '{' : ',') ||
            !avro_oracle_take_string(&in->at, &name) || !mr_cursor_take(&in->at, ':') ||
            !write_type(in, mr_schema_member(field, "\"type\""))) {
            return false;
        }
    }
    return mr_cursor_take(&in->at, '}');
}

/* An object of one string, as it stands, in a string. */
static bool put_object(struct reader *in)
{
    const uint8_t *begin = in->at.at;
    mr_slice part;
    if (!mr_cursor_take(&in->at, '{') || !avro_oracle_take_string(&in->at, &part) ||
        !mr_cursor_take(&in->at, ':') || !avro_oracle_take_string(&in->at, &part) ||
        !mr_cursor_take(&in->at, '}')) {
        return false;
    }
    mr_slice whole = {.data = begin, .len = (size_t)(in->at.at - begin)};
    put_long(in->out, (int64_t)whole.len);
    mr_buffer_slice(in->out, whole);
    return true;
}

static bool put_primitive(struct reader *in, mr_slice type)
{
    mr_slice text;
    if (avro_oracle_is(type, "\"boolean\"")) {
        bool is_true = avro_oracle_take_word(&in->at, "true");
        mr_buffer_append(in->out, is_true ? "\1" : "\0", 1);
        return is_true || avro_oracle_take_word(&in->at, "false");
    }
    if (avro_oracle_is(type, "\"int\"") || avro_oracle_is(type, "\"long\"")) {
        return put_integer(in, avro_oracle_is(type, "\"int\"") ? INT32_MAX : INT64_MAX);
    }
    if (avro_oracle_is(type, "\"float\"") || avro_oracle_is(type, "\"double\"")) {
        return put_real(in, avro_oracle_is(type, "\"double\""));
    }
    if (avro_oracle_is(type, "\"bytes\"")) {
        return avro_oracle_take_string(&in->at, &text) && put_bytes(in->out, text);
    }
    if (mr_cursor_is_at(&in->at, '{')) { /* of a message's prefix that is not UTF-8 */
        return put_object(in);
    }
    if (!avro_oracle_take_string(&in->at, &text)) {
        return false;
    }
    put_string(in->out, text);
    return true;
}

static bool is_primitive(mr_slice type)
{
    static const char *const names[] = {"\"boolean\"", "\"int\"",    "\"long\"", "\"float\"",
                                        "\"double\"",  "\"string\"", "\"bytes\""};
    bool found = false;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        found |= avro_oracle_is(type, names[i]);
    }
    return found;
}

static bool avro_oracle_put_value(struct reader *in, mr_slice type)
{
    if (is_primitive(type)) {
        return put_primitive(in, type);
    }
    if (type.data[0] == '"') {
        mr_slice record = mr_schema_named(in->schema, type);
        return record.len > 0 && put_record(in, record);
    }
    mr_slice kind = mr_schema_member(type, "\"type\"");
    if (avro_oracle_is(kind, "\"record\"")) {
        return put_record(in, type);
    }
    if (avro_oracle_is(kind, "\"array\"") || avro_oracle_is(kind, "\"map\"")) {
        bool is_map = avro_oracle_is(kind, "\"map\"");
        return avro_oracle_put_parts(
            in, mr_schema_member(type, is_map ? "\"values\"" : "\"items\""), is_map);
    }
    return put_primitive(in, kind);
}

/* The placeholder where the type is no text. */
static bool take_unavailable(struct reader *in, mr_slice type)
{
    struct mr_cursor at = in->at;
    mr_slice text;
    bool is_text =
        avro_oracle_is(type, "\"string\"") ||
        (type.data[0] == '{' && avro_oracle_is(mr_schema_member(type, "\"type\""), "\"string\""));
    if (is_text || !avro_oracle_take_string(&at, &text) || !mr_slice_equal(text, in->unavailable)) {
        return false;
    }
    in->at = at;
    return true;
}

static bool write_type(struct reader *in, mr_slice type)
{
    mr_slice part = some(type);
    if (type.data[0] == '[') {
        bool is_null = avro_oracle_take_word(&in->at, "null") || take_unavailable(in, part);
        put_long(in->out, is_null ? 0 : 1);
        if (is_null) {
            return true;
        }
    }
    return avro_oracle_put_value(in, part);
}

bool mr_avro_oracle(mr_slice schema, mr_slice json, const char *unavailable, struct mr_buffer *out)
{
    struct reader in = {.at = mr_cursor_of(json),
                        .out = out,
                        .schema = schema,
                        .unavailable = mr_slice_of(unavailable)};
    return write_type(&in, schema) && mr_cursor_ended(&in.at);
}
