#include "encode/forms/avro.h"

#include <stdlib.h>

#include "base/json.h"

enum { LONG_MAX_BYTES = 10 };

/* A place in JSON of our own making: objects have their fields in the schema's order, and no white space. */
struct reader {
    struct mr_cursor at;
    struct mr_buffer *out;
    const struct mr_avro_schema *schema;
    mr_slice unavailable;
    bool hex_is_text;
    mr_slice
        wrong; /* the innermost field that does not fit; empty: none, or what is wrong is no field */
};

static bool write_node(struct reader *in, uint32_t node);

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

static bool take_word(struct mr_cursor *at, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(at->end - at->at) < len || memcmp(at->at, word, len) != 0) {
        return false;
    }
    at->at += len;
    return true;
}

/* What stands between two quotes, as it is escaped. */
static bool take_string(struct mr_cursor *at, mr_slice *ret)
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

/* Room for a length or a count that is known once what it is of stands behind it; closing puts it there and moves the rest up. */
static const uint8_t *open_gap(struct mr_buffer *out)
{
    const uint8_t *gap = out->at;
    mr_buffer_reserve(out, LONG_MAX_BYTES);
    return gap;
}

static void close_gap(struct mr_buffer *out, const uint8_t *gap, int64_t value)
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
        close_gap(out, gap, (int64_t)len);
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

/* These two answer how many parts there are; -1: one does not fit. */
static int64_t put_entries(struct reader *in, const struct mr_avro_node *node)
{
    mr_slice key;
    int64_t count = 0;
    for (; !mr_cursor_take(&in->at, '}'); count++) {
        if ((count > 0 && !mr_cursor_take(&in->at, ',')) || !take_string(&in->at, &key) ||
            !mr_cursor_take(&in->at, ':')) {
            return -1;
        }
        put_string(in->out, key);
        if (!write_node(in, node->first)) {
            return -1;
        }
    }
    return count;
}

/* Whether the list at hand is an element, which has numbers in it, and no dimension. */
static bool is_element(const struct reader *in, const struct mr_avro_node *node)
{
    return in->schema->nodes[node->first].kind == MR_AVRO_ARRAY && in->at.end - in->at.at > 1 &&
           in->at.at[1] != '[' && in->at.at[1] != 'n';
}

/* A PostgreSQL array has as many dimensions as its value, and its type does not say how many; a type of Avro does. So all elements
 * come in one list, in the order of unnest() (manual, 9.19, "Array Functions and Operators"). */
static int64_t put_elements(struct reader *in, const struct mr_avro_node *node)
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
        while (mr_cursor_is_at(&in->at, '[') && !is_element(in, node)) {
            in->at.at++;
            depth++;
        }
        if (!write_node(in, node->first)) {
            return -1;
        }
        count++;
    }
}

static int64_t put_pairs(struct reader *in, const struct mr_avro_node *node)
{
    int64_t count = 0;
    for (; !mr_cursor_take(&in->at, ']'); count++) {
        if ((count > 0 && !mr_cursor_take(&in->at, ',')) || !mr_cursor_take(&in->at, '[') ||
            !write_node(in, node->first) || !mr_cursor_take(&in->at, ',') ||
            !write_node(in, node->first + 1) || !mr_cursor_take(&in->at, ']')) {
            return -1;
        }
    }
    return count;
}

/* A list, or an object whose keys are strings: one block, and the end, which is a block of none. */
static bool put_parts(struct reader *in, const struct mr_avro_node *node)
{
    bool is_map = node->kind == MR_AVRO_MAP;
    if (!mr_cursor_take(&in->at, is_map ? '{' : '[')) {
        return false;
    }
    const uint8_t *gap = open_gap(in->out);
    int64_t count = is_map                        ? put_entries(in, node)
                    : node->kind == MR_AVRO_PAIRS ? put_pairs(in, node)
                                                  : put_elements(in, node);
    if (count > 0) {
        close_gap(in->out, gap, count);
        put_long(in->out, 0);
    } else {
        close_gap(in->out, gap, 0);
    }
    return count >= 0;
}

static bool put_record(struct reader *in, const struct mr_avro_node *node)
{
    mr_slice name;
    for (uint32_t i = 0; i < node->count; i++) {
        if (!mr_cursor_take(&in->at, i == 0 ? '{' : ',') || !take_string(&in->at, &name) ||
            !mr_cursor_take(&in->at, ':')) {
            return false;
        }
        if (!write_node(in, node->first + i)) {
            in->wrong = in->wrong.len == 0 ? name : in->wrong;
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
    if (!mr_cursor_take(&in->at, '{') || !take_string(&in->at, &part) ||
        !mr_cursor_take(&in->at, ':') || !take_string(&in->at, &part) ||
        !mr_cursor_take(&in->at, '}')) {
        return false;
    }
    mr_slice whole = {.data = begin, .len = (size_t)(in->at.at - begin)};
    put_long(in->out, (int64_t)whole.len);
    mr_buffer_slice(in->out, whole);
    return true;
}

static bool put_value(struct reader *in, const struct mr_avro_node *node)
{
    mr_slice text;
    switch ((enum mr_avro_kind)node->kind) {
    case MR_AVRO_BOOL: {
        bool is_true = take_word(&in->at, "true");
        mr_buffer_append(in->out, is_true ? "\1" : "\0", 1);
        return is_true || take_word(&in->at, "false");
    }
    case MR_AVRO_INT:
        return put_integer(in, INT32_MAX);
    case MR_AVRO_LONG:
        return put_integer(in, INT64_MAX);
    case MR_AVRO_FLOAT:
    case MR_AVRO_DOUBLE:
        return put_real(in, node->kind == MR_AVRO_DOUBLE);
    case MR_AVRO_STRING:
        if (in->hex_is_text && mr_cursor_is_at(&in->at, '{')) {
            return put_object(in);
        }
        if (!take_string(&in->at, &text)) {
            return false;
        }
        put_string(in->out, text);
        return true;
    case MR_AVRO_BYTES:
        return take_string(&in->at, &text) && put_bytes(in->out, text);
    case MR_AVRO_RECORD:
        return put_record(in, node);
    case MR_AVRO_ARRAY:
    case MR_AVRO_MAP:
    case MR_AVRO_PAIRS:
        return put_parts(in, node);
    }
    return false;
}

/* The placeholder where the type is no text. */
static bool take_unavailable(struct reader *in, const struct mr_avro_node *node)
{
    struct mr_cursor at = in->at;
    mr_slice text;
    if (node->kind == MR_AVRO_STRING || !take_string(&at, &text) ||
        !mr_slice_equal(text, in->unavailable)) {
        return false;
    }
    in->at = at;
    return true;
}

static bool write_node(struct reader *in, uint32_t index)
{
    const struct mr_avro_node *node = &in->schema->nodes[index];
    if (node->nullable) {
        bool is_null = take_word(&in->at, "null") || take_unavailable(in, node);
        put_long(in->out, is_null ? 0 : 1);
        if (is_null) {
            return true;
        }
    }
    return put_value(in, node);
}

/* Puts a frame and Avro behind what is there, of the JSON at `bytes`, and has that point to it. */
static bool put_framed(struct reader *in, const struct mr_avro_schema *schema, uint32_t index,
                       const uint8_t **bytes, uint32_t *len)
{
    if (*bytes == NULL) {
        return true;
    }
    const uint8_t *begin = in->out->at;
    in->at = mr_cursor_of((mr_slice){.data = *bytes, .len = *len});
    in->schema = schema;
    mr_schema_frame(in->out, index);
    bool good = schema != NULL && write_node(in, 0) && mr_cursor_ended(&in->at);
    *bytes = begin;
    *len = (uint32_t)(in->out->at - begin);
    return good;
}

static bool put_record_framed(struct reader *in, const struct mr_avro_pair *pair,
                              struct mr_record *record)
{
    const uint8_t *headers = mr_record_headers(record);
    if (!put_framed(in, pair->key, pair->key_index, &record->key, &record->key_len) ||
        !put_framed(in, pair->value, pair->value_index, &record->value, &record->value_len)) {
        return false;
    }
    record->key_content = record->value_content = MR_CONTENT_FRAMED;
    if (headers != NULL) {
        mr_headers_end(in->out, mr_headers_begin(in->out, headers));
    }
    return true;
}

bool mr_avro_records(const struct mr_avro_pair *pair, const char *unavailable, uint8_t *begin,
                     struct mr_buffer *out, struct mr_record *records, uint32_t count,
                     mr_slice *ret_wrong)
{
    uint8_t *avro = out->at;
    struct reader in = {
        .out = out, .unavailable = mr_slice_of(unavailable), .hex_is_text = pair->hex_is_text};
    for (uint32_t i = 0; i < count && !out->full; i++) {
        if (!put_record_framed(&in, pair, &records[i])) {
            *ret_wrong = in.wrong;
            return false;
        }
    }
    if (out->full) {
        return true;
    }
    size_t shift = (size_t)(avro - begin);
    memmove(begin, avro, (size_t)(out->at - avro));
    out->at -= shift;
    for (uint32_t i = 0; i < count; i++) {
        records[i].key = records[i].key == NULL ? NULL : records[i].key - shift;
        records[i].value = records[i].value == NULL ? NULL : records[i].value - shift;
    }
    return true;
}
