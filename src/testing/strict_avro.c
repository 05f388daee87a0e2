#include "testing/strict_avro.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { TYPES_MAX = 64, NAME_MAX_BYTES = 256, FIELDS_MAX = 2048 };

typedef mr_slice text;

static text strict_avro_rest_of(text all, const uint8_t *from)
{
    return (text){.data = from, .len = (size_t)(all.data + all.len - from)};
}

static const uint8_t *end_of_string(text at)
{
    size_t i = 1;
    while (i < at.len && at.data[i] != '"') {
        i += at.data[i] == '\\' ? 2 : 1;
    }
    return i < at.len ? at.data + i + 1 : NULL;
}

/* The value that a text begins with; empty: none. */
static text strict_avro_value_at(text at)
{
    unsigned depth = 0;
    const uint8_t *end = at.data + at.len;
    for (const uint8_t *p = at.data; p != NULL && p < end;) {
        if (depth == 0 && p > at.data && strchr(",]}", *p) != NULL) {
            return (text){.data = at.data, .len = (size_t)(p - at.data)};
        }
        depth += *p == '[' || *p == '{';
        depth -= *p == ']' || *p == '}';
        p = *p == '"' ? end_of_string(strict_avro_rest_of(at, p)) : p + 1;
        if (p == end) {
            return at;
        }
    }
    return (text){0};
}

static bool strict_avro_is(text value, const char *word)
{
    return value.len == strlen(word) && memcmp(value.data, word, value.len) == 0;
}

/* The parts of a list, or of an object, one by one: `*at` begins at 0. */
static bool next_part(text all, size_t *at, text *ret_name, text *ret_value)
{
    size_t from = *at == 0 ? 1 : *at;
    if (from < all.len && all.data[from] == ',') {
        from++;
    }
    if (from + 1 >= all.len) {
        return false;
    }
    *ret_name = (text){0};
    if (all.data[0] == '{') {
        const uint8_t *end = end_of_string(strict_avro_rest_of(all, all.data + from));
        MR_ASSERT(end != NULL && *end == ':');
        *ret_name = (text){.data = all.data + from, .len = (size_t)(end - all.data) - from};
        from = (size_t)(end - all.data) + 1;
    }
    *ret_value = strict_avro_value_at(strict_avro_rest_of(all, all.data + from));
    *at = from + ret_value->len;
    return true;
}

static text strict_avro_member(text object, const char *quoted)
{
    text name, value;
    for (size_t at = 0;
         object.len > 0 && object.data[0] == '{' && next_part(object, &at, &name, &value);) {
        if (strict_avro_is(name, quoted)) {
            return value;
        }
    }
    return (text){0};
}

static unsigned strict_avro_hex(const uint8_t *digits)
{
    char copy[5] = {0};
    memcpy(copy, digits, 4);
    return (unsigned)strtoul(copy, NULL, 16);
}

static size_t strict_avro_put_point(uint8_t *to, unsigned long c)
{
    if (c < 0x80) {
        to[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (uint8_t)(0xC0 + c / 64);
        to[1] = (uint8_t)(0x80 + c % 64);
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (uint8_t)(0xE0 + c / 4096);
        to[1] = (uint8_t)(0x80 + c / 64 % 64);
        to[2] = (uint8_t)(0x80 + c % 64);
        return 3;
    }
    to[0] = (uint8_t)(0xF0 + c / 262144);
    to[1] = (uint8_t)(0x80 + c / 4096 % 64);
    to[2] = (uint8_t)(0x80 + c / 64 % 64);
    to[3] = (uint8_t)(0x80 + c % 64);
    return 4;
}

/* What a quoted string says; the caller frees it. */
static text strict_avro_said(text quoted)
{
    uint8_t *to = MR_ALLOC(quoted.len + 1);
    size_t len = 0;
    for (size_t i = 1; i + 1 < quoted.len;) {
        const uint8_t *p = quoted.data + i;
        if (*p != '\\') {
            to[len++] = *p;
            i++;
        } else if (p[1] == 'u') {
            unsigned long c = strict_avro_hex(p + 2);
            i += 6;
            if (c >= 0xD800 && c <= 0xDBFF && i + 6 < quoted.len && p[6] == '\\') {
                c = 0x10000 + (c - 0xD800) * 1024 + (strict_avro_hex(p + 8) - 0xDC00);
                i += 6;
            }
            len += strict_avro_put_point(to + len, c);
        } else {
            static const char from[] = "bfnrt\"\\/", meant[] = "\b\f\n\r\t\"\\/";
            to[len++] = (uint8_t)meant[strchr(from, p[1]) - from];
            i += 2;
        }
    }
    return (text){.data = to, .len = len};
}

struct judge {
    text avro; /* what is left of it */
    text records[TYPES_MAX];
    uint32_t count;
    const char *unavailable;
};

static bool is_name(text quoted)
{
    for (size_t i = 1; i + 1 < quoted.len; i++) {
        uint8_t c = quoted.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 1 || c < '0' || c > '9')) {
            return false;
        }
    }
    return quoted.len > 2;
}

static bool fields_differ(text fields)
{
    text names[FIELDS_MAX], unused, field;
    uint32_t count = 0;
    for (size_t at = 0; next_part(fields, &at, &unused, &field);) {
        text name = strict_avro_member(field, "\"name\"");
        if (!is_name(name)) {
            return false;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (mr_slice_equal(names[i], name)) {
                return false;
            }
        }
        names[count++] = name;
        MR_ASSERT(count < FIELDS_MAX);
    }
    return true;
}

/* Finds what defines records, and looks at their names; a name may be defined once. */
static bool strict_avro_collect(struct judge *judge, text schema)
{
    text name, value;
    if (schema.data[0] != '{' && schema.data[0] != '[') {
        return true;
    }
    if (strict_avro_is(strict_avro_member(schema, "\"type\""), "\"record\"")) {
        MR_ASSERT(judge->count < TYPES_MAX);
        for (uint32_t i = 0; i < judge->count; i++) {
            if (mr_slice_equal(strict_avro_member(judge->records[i], "\"name\""),
                               strict_avro_member(schema, "\"name\"")) &&
                mr_slice_equal(strict_avro_member(judge->records[i], "\"namespace\""),
                               strict_avro_member(schema, "\"namespace\""))) {
                return false;
            }
        }
        judge->records[judge->count++] = schema;
        if (!is_name(strict_avro_member(schema, "\"name\"")) ||
            !fields_differ(strict_avro_member(schema, "\"fields\""))) {
            return false;
        }
    }
    for (size_t at = 0; next_part(schema, &at, &name, &value);) {
        if (!strict_avro_collect(judge, value)) {
            return false;
        }
    }
    return true;
}

/* A record by its name, short or with its namespace. */
static text named(const struct judge *judge, text quoted)
{
    for (uint32_t i = 0; i < judge->count; i++) {
        text name = strict_avro_member(judge->records[i], "\"name\"");
        text space = strict_avro_member(judge->records[i], "\"namespace\"");
        char full[NAME_MAX_BYTES];
        int len = snprintf(full, sizeof(full), "\"%.*s.%.*s\"", (int)space.len - 2, space.data + 1,
                           (int)name.len - 2, name.data + 1);
        MR_ASSERT(len < NAME_MAX_BYTES);
        if (mr_slice_equal(quoted, name) || strict_avro_is(quoted, full)) {
            return judge->records[i];
        }
    }
    return (text){0};
}

static bool strict_avro_take(struct judge *judge, size_t len, text *ret)
{
    if (len > judge->avro.len) {
        return false;
    }
    *ret = (text){.data = judge->avro.data, .len = len};
    judge->avro = strict_avro_rest_of(judge->avro, judge->avro.data + len);
    return true;
}

/* Of no more bytes than it needs. */
static bool strict_avro_take_long(struct judge *judge, long long *ret)
{
    unsigned long long value = 0;
    text byte;
    for (unsigned i = 0; i < 10 && strict_avro_take(judge, 1, &byte); i++) {
        value += (unsigned long long)(byte.data[0] % 128) << (7 * i);
        if (byte.data[0] < 128) {
            *ret = value % 2 == 0 ? (long long)(value / 2) : -(long long)(value / 2) - 1;
            return i == 0 || byte.data[0] != 0;
        }
    }
    return false;
}

static bool strict_avro_take_bytes(struct judge *judge, text *ret)
{
    long long len;
    return strict_avro_take_long(judge, &len) && len >= 0 &&
           strict_avro_take(judge, (size_t)len, ret);
}

static bool same_text(struct judge *judge, text json)
{
    text bytes;
    if (json.len < 2 || json.data[0] != '"' || !strict_avro_take_bytes(judge, &bytes)) {
        return false;
    }
    text want = strict_avro_said(json);
    bool equal = mr_slice_equal(want, bytes);
    free((void *)(uintptr_t)want.data);
    return equal;
}

static bool same_bytes(struct judge *judge, text json)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text bytes;
    if (!strict_avro_take_bytes(judge, &bytes) || json.len != 2 + (bytes.len + 2) / 3 * 4) {
        return false;
    }
    for (size_t i = 0; i < json.len - 2; i++) {
        size_t bit = 6 * i, first = bit / 8;
        unsigned two = first < bytes.len ? bytes.data[first] * 256u : 0;
        two += first + 1 < bytes.len ? bytes.data[first + 1] : 0;
        uint8_t want = (uint8_t)(bit >= 8 * bytes.len ? '=' : digits[two >> (10 - bit % 8) & 63]);
        if (json.data[1 + i] != want) {
            return false;
        }
    }
    return true;
}

static bool same_real(struct judge *judge, text json, bool is_double)
{
    text bytes;
    char number[64] = {0};
    if (!strict_avro_take(judge, is_double ? 8 : 4, &bytes) || json.len >= sizeof(number)) {
        return false;
    }
    bool quoted = json.data[0] == '"';
    memcpy(number, json.data + quoted, json.len - 2 * (size_t)quoted);
    double want = strtod(number, NULL), wide;
    float narrow;
    memcpy(&wide, bytes.data, is_double ? 8 : 4);
    memcpy(&narrow, bytes.data, 4);
    double told = is_double ? wide : (double)narrow;
    want = is_double ? want : (double)(float)want;
    return isnan(want) ? isnan(told) : told == want && signbit(told) == signbit(want);
}

static bool same_primitive(struct judge *judge, text type, text json)
{
    text byte;
    long long number;
    if (strict_avro_is(type, "\"string\"")) {
        return same_text(judge, json);
    }
    if (strict_avro_is(type, "\"bytes\"")) {
        return same_bytes(judge, json);
    }
    if (strict_avro_is(type, "\"boolean\"")) {
        return strict_avro_take(judge, 1, &byte) && byte.data[0] <= 1 &&
               strict_avro_is(json, byte.data[0] == 1 ? "true" : "false");
    }
    if (strict_avro_is(type, "\"double\"") || strict_avro_is(type, "\"float\"")) {
        return same_real(judge, json, strict_avro_is(type, "\"double\""));
    }
    if (!strict_avro_take_long(judge, &number) ||
        (strict_avro_is(type, "\"int\"") && number != (int32_t)number)) {
        return false;
    }
    char told[64] = {0}, *end = told;
    if (json.len == 0 || json.len >= sizeof(told)) {
        return false;
    }
    memcpy(told, json.data, json.len);
    long long want = strtoll(told, &end, 10); /* leading zeros may be there: encode/values/row.c */
    return (strict_avro_is(type, "\"int\"") || strict_avro_is(type, "\"long\"")) && *end == '\0' &&
           want == number;
}

static bool strict_avro_same(struct judge *judge, text type, text json);

static bool same_record(struct judge *judge, text record, text json)
{
    text unused, field, name, value;
    size_t at = 0, json_at = 0;
    while (next_part(strict_avro_member(record, "\"fields\""), &at, &unused, &field)) {
        if (!next_part(json, &json_at, &name, &value) ||
            !strict_avro_same(judge, strict_avro_member(field, "\"type\""), value)) {
            return false;
        }
    }
    return !next_part(json, &json_at, &name, &value);
}

/* Whether a type is itself a list in JSON: of numbers, or a pair of them. */
static bool is_list(text type)
{
    text name, part;
    if (type.data[0] == '[') {
        size_t at = 0;
        return next_part(type, &at, &name, &part) && next_part(type, &at, &name, &part) &&
               is_list(part);
    }
    return type.data[0] == '{' &&
           (strict_avro_is(strict_avro_member(type, "\"type\""), "\"array\"") ||
            strict_avro_is(strict_avro_member(type, "\"name\""), "\"MapEntry\""));
}

/* The next element of a list, wherever in lists it stands; or the next pair of an object. */
static bool next_leaf(text json, bool of_lists, size_t *at, text *ret_name, text *ret_value)
{
    if (json.data[0] == '{') {
        return next_part(json, at, ret_name, ret_value);
    }
    while (*at < json.len && strchr("[,]", json.data[*at]) != NULL) {
        if (of_lists && *at > 0 && json.data[*at] == '[' &&
            strchr("[n", json.data[*at + 1]) == NULL) {
            break;
        }
        ++*at;
    }
    *ret_value = strict_avro_value_at(strict_avro_rest_of(json, json.data + *at));
    *at += ret_value->len;
    return ret_value->len > 0;
}

static bool same_parts(struct judge *judge, text type, bool is_map, text json)
{
    text part = strict_avro_member(type, is_map ? "\"values\"" : "\"items\""), name, value;
    long long count;
    size_t at = 0;
    if (json.data[0] != (is_map ? '{' : '[')) {
        return false;
    }
    while (strict_avro_take_long(judge, &count) && count > 0) {
        for (long long i = 0; i < count; i++) {
            if (!next_leaf(json, is_list(part), &at, &name, &value) ||
                (is_map && !same_text(judge, name)) || !strict_avro_same(judge, part, value)) {
                return false;
            }
        }
    }
    return count == 0 && !next_leaf(json, is_list(part), &at, &name, &value);
}

static bool is_unavailable(const struct judge *judge, text json)
{
    size_t len = strlen(judge->unavailable);
    return json.len == len + 2 && memcmp(json.data + 1, judge->unavailable, len) == 0;
}

static bool strict_avro_same(struct judge *judge, text type, text json)
{
    text name, part = {0};
    if (type.data[0] == '[') { /* of null and one other */
        long long which;
        size_t at = 0;
        bool good = next_part(type, &at, &name, &part) && strict_avro_is(part, "\"null\"") &&
                    next_part(type, &at, &name, &part) && strict_avro_take_long(judge, &which);
        if (!good || which < 0 || which > 1) {
            return false;
        }
        return which == 1 ? !strict_avro_is(json, "null") && strict_avro_same(judge, part, json)
                          : strict_avro_is(json, "null") || is_unavailable(judge, json);
    }
    if (type.data[0] == '"') {
        text record = named(judge, type);
        return record.len > 0 ? same_record(judge, record, json)
                              : same_primitive(judge, type, json);
    }
    part = strict_avro_member(type, "\"type\"");
    bool is_map = strict_avro_is(part, "\"map\"");
    return strict_avro_is(part, "\"record\"")            ? same_record(judge, type, json)
           : is_map || strict_avro_is(part, "\"array\"") ? same_parts(judge, type, is_map, json)
                                                         : same_primitive(judge, part, json);
}

bool mr_strict_avro(mr_slice schema, mr_slice avro, mr_slice json, const char *unavailable)
{
    struct judge judge = {.avro = avro, .unavailable = unavailable};
    return strict_avro_collect(&judge, schema) && strict_avro_same(&judge, schema, json) &&
           judge.avro.len == 0;
}

mr_slice mr_schema_member(mr_slice object, const char *quoted)
{
    return strict_avro_member(object, quoted);
}

bool mr_schema_next(mr_slice all, size_t *at, mr_slice *ret_name, mr_slice *ret_value)
{
    return next_part(all, at, ret_name, ret_value);
}

mr_slice mr_schema_named(mr_slice schema, mr_slice quoted)
{
    struct judge judge = {.count = 0};
    return strict_avro_collect(&judge, schema) ? named(&judge, quoted) : (mr_slice){0};
}
