/* Arrays, hstore and json: values that hold others. */
#include <stdlib.h>

#include "base/json.h"
#include "encode/convert.h"

/* ---- arrays (arrayfuncs.c: array_out) ---- */

/* MAXDIM of PostgreSQL. */
enum { DIMENSIONS_MAX = 6 };

/* `[2:3][1:2]=` tells where the indexes begin, where that is not 1. */
static bool skip_bounds(struct mr_cursor *cursor)
{
    if (!mr_cursor_is_at(cursor, '[')) {
        return true;
    }
    while (cursor->at < cursor->end && *cursor->at != '=') {
        cursor->at++;
    }
    return mr_cursor_take(cursor, '=');
}

/* Copies a quoted text without its backslashes; `cursor` is behind the first quote. */
static bool take_quoted(struct mr_cursor *cursor, struct mr_text *room, mr_slice *ret)
{
    size_t len = 0;
    mr_text_begin(room, (size_t)(cursor->end - cursor->at) + 1);
    while (cursor->at < cursor->end && *cursor->at != '"') {
        cursor->at += *cursor->at == '\\';
        if (cursor->at == cursor->end) {
            return false;
        }
        room->data[len++] = *cursor->at++;
    }
    *ret = (mr_slice){.data = room->data, .len = len};
    return mr_cursor_take(cursor, '"');
}

/* Up to the delimiter, which is a comma for all types but box. */
static mr_slice take_bare(struct mr_cursor *cursor, char delimiter)
{
    const uint8_t *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != (uint8_t)delimiter && *cursor->at != '}') {
        cursor->at++;
    }
    return (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
}

static bool write_element(struct mr_buffer *out, const struct mr_conversion *how,
                          struct mr_cursor *cursor, struct mr_scratch *scratch)
{
    mr_slice text;
    if (mr_cursor_take(cursor, '"')) {
        return take_quoted(cursor, &scratch->element, &text) &&
               how->element->write(out, how->element, text, scratch);
    }
    text = take_bare(cursor, how->detail == ';' ? ';' : ',');
    if (mr_slice_equal(text, MR_SLICE("NULL"))) {
        MR_BUFFER_LITERAL(out, "null");
        return true;
    }
    return text.len > 0 && how->element->write(out, how->element, text, scratch);
}

MR_CONVERT(array)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    if (!skip_bounds(&cursor)) {
        return false;
    }
    char delimiter = how->detail == ';' ? ';' : ',';
    unsigned depth = 0;
    bool first = true; /* nothing is in this list yet */
    do {
        if (!first) {
            bool goes_on = mr_cursor_take(&cursor, delimiter);
            if (goes_on) {
                MR_BUFFER_LITERAL(out, ",");
            } else {
                MR_BUFFER_LITERAL(out, "]");
                depth--;
                if (!mr_cursor_take(&cursor, '}')) {
                    return false;
                }
                continue;
            }
        }
        if (mr_cursor_take(&cursor, '{')) {
            MR_BUFFER_LITERAL(out, "[");
            first = true;
            if (++depth > DIMENSIONS_MAX) {
                return false;
            }
            if (mr_cursor_take(&cursor, '}')) {
                MR_BUFFER_LITERAL(out, "]");
                depth--;
                first = false;
            }
        } else if (depth == 0 || !write_element(out, how, &cursor, scratch)) {
            return false;
        } else {
            first = false;
        }
    } while (depth > 0);
    return mr_cursor_ended(&cursor);
}

/* ---- json ---- */

/* Levels of nesting; a server with the default max_stack_depth stops between 6,000 and 10,000. */
enum { JSON_DEPTH_MAX = 65536 };

enum json_state {
    JSON_VALUE,     /* a value must come */
    JSON_VALUE_END, /* a value, or the end of an empty list */
    JSON_KEY,
    JSON_KEY_END, /* a key, or the end of an empty object */
    JSON_BEHIND,  /* a value has ended */
};

static void skip_space(struct mr_cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t' ||
                                        *cursor->at == '\n' || *cursor->at == '\r')) {
        cursor->at++;
    }
}

static bool take_escape(struct mr_cursor *cursor)
{
    if (cursor->at == cursor->end) {
        return false;
    }
    uint8_t kind = *cursor->at++;
    if (kind != 'u') {
        return kind != '\0' && strchr("\"\\/bfnrt", kind) != NULL;
    }
    for (int i = 0; i < 4; i++) {
        if (cursor->at == cursor->end || *cursor->at == '\0' ||
            strchr("0123456789abcdefABCDEF", *cursor->at) == NULL) {
            return false;
        }
        cursor->at++;
    }
    return true;
}

/* A string as it is; RFC 8259, section 7. Bytes that are no UTF-8 make it wrong. */
static bool take_string(struct mr_cursor *cursor)
{
    if (!mr_cursor_take(cursor, '"')) {
        return false;
    }
    while (cursor->at < cursor->end && *cursor->at != '"') {
        if (*cursor->at == '\\') {
            cursor->at++;
            if (!take_escape(cursor)) {
                return false;
            }
            continue;
        }
        size_t len = mr_utf8_sequence(cursor->at, (size_t)(cursor->end - cursor->at));
        if (len == 0 || *cursor->at < 0x20) {
            return false;
        }
        cursor->at += len;
    }
    return mr_cursor_take(cursor, '"');
}

static bool take_digits(struct mr_cursor *cursor)
{
    const uint8_t *begin = cursor->at;
    while (mr_cursor_digit(cursor)) {
        cursor->at++;
    }
    return cursor->at > begin;
}

/* RFC 8259, section 6. */
static bool take_number(struct mr_cursor *cursor)
{
    mr_cursor_take(cursor, '-');
    if (!mr_cursor_take(cursor, '0') && !take_digits(cursor)) {
        return false;
    }
    if (mr_cursor_take(cursor, '.') && !take_digits(cursor)) {
        return false;
    }
    if (mr_cursor_take(cursor, 'e') || mr_cursor_take(cursor, 'E')) {
        if (!mr_cursor_take(cursor, '+')) {
            mr_cursor_take(cursor, '-');
        }
        return take_digits(cursor);
    }
    return true;
}

static bool take_literal(struct mr_cursor *cursor, mr_slice word)
{
    if ((size_t)(cursor->end - cursor->at) < word.len ||
        memcmp(cursor->at, word.data, word.len) != 0) {
        return false;
    }
    cursor->at += word.len;
    return true;
}

static bool take_scalar(struct mr_cursor *cursor)
{
    if (mr_cursor_is_at(cursor, '"')) {
        return take_string(cursor);
    }
    return take_literal(cursor, MR_SLICE("true")) || take_literal(cursor, MR_SLICE("false")) ||
           take_literal(cursor, MR_SLICE("null")) || take_number(cursor);
}

/* Whether each open level is an object: a bit a level. */
struct json_levels {
    uint8_t *bits;
    unsigned count;
};

static bool level_open(struct json_levels *levels, bool is_object)
{
    if (levels->count == JSON_DEPTH_MAX) {
        return false;
    }
    uint8_t bit = (uint8_t)(1u << (levels->count % 8));
    uint8_t *byte = &levels->bits[levels->count / 8];
    *byte = (uint8_t)(is_object ? *byte | bit : *byte & ~bit);
    levels->count++;
    return true;
}

static bool level_is_object(const struct json_levels *levels)
{
    unsigned last = levels->count - 1;
    return (levels->bits[last / 8] >> (last % 8) & 1) != 0;
}

/* One token; false when it may not stand there. */
static bool json_step(struct mr_cursor *cursor, struct json_levels *levels, enum json_state *state)
{
    bool is_key = *state == JSON_KEY || *state == JSON_KEY_END;
    bool may_end = *state == JSON_BEHIND || *state == JSON_KEY_END || *state == JSON_VALUE_END;
    uint8_t byte = *cursor->at;
    if (byte == '}' || byte == ']') {
        if (!may_end || levels->count == 0 || level_is_object(levels) != (byte == '}')) {
            return false;
        }
        cursor->at++;
        levels->count--;
        *state = JSON_BEHIND;
        return true;
    }
    if (*state == JSON_BEHIND) {
        if (levels->count == 0 || !mr_cursor_take(cursor, ',')) {
            return false;
        }
        *state = level_is_object(levels) ? JSON_KEY : JSON_VALUE;
        return true;
    }
    if (is_key) {
        *state = JSON_VALUE;
        return take_string(cursor);
    }
    if (byte == '{' || byte == '[') {
        cursor->at++;
        *state = byte == '{' ? JSON_KEY_END : JSON_VALUE_END;
        return level_open(levels, byte == '{');
    }
    *state = JSON_BEHIND;
    return take_scalar(cursor);
}

/* What is written without quotes must be seen to be JSON, or a server could write the rest of the event. */
MR_CONVERT(json)
{
    (void)how;
    mr_text_begin(&scratch->number, JSON_DEPTH_MAX / 8);
    struct json_levels levels = {.bits = scratch->number.data};
    struct mr_cursor cursor = mr_cursor_of(text);
    enum json_state state = JSON_VALUE;
    for (skip_space(&cursor); !mr_cursor_ended(&cursor); skip_space(&cursor)) {
        const uint8_t *begin = cursor.at;
        bool is_key = state == JSON_KEY || state == JSON_KEY_END;
        if (!json_step(&cursor, &levels, &state)) {
            return false;
        }
        mr_buffer_append(out, begin, (size_t)(cursor.at - begin));
        if (is_key && state == JSON_VALUE) {
            skip_space(&cursor);
            if (!mr_cursor_take(&cursor, ':')) {
                return false;
            }
            MR_BUFFER_LITERAL(out, ":");
        }
    }
    return levels.count == 0 && state == JSON_BEHIND;
}
