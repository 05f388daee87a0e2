/* JSON that comes as text: as it is, without white space; or with fields left out, as an outbox may want it. */
#include "base/json.h"
#include "encode/values/convert.h"

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

/* ---- the members of an object ---- */

bool mr_json_members(mr_slice text, struct mr_scratch *scratch,
                     void (*tell)(void *context, mr_slice name, mr_slice value), void *context)
{
    mr_text_begin(&scratch->number, JSON_DEPTH_MAX / 8);
    struct json_levels levels = {.bits = scratch->number.data};
    struct mr_cursor cursor = mr_cursor_of(text);
    enum json_state state = JSON_VALUE;
    mr_slice name = {0};
    const uint8_t *value = NULL; /* of the member at hand */
    skip_space(&cursor);
    if (!mr_cursor_is_at(&cursor, '{')) {
        return false;
    }
    for (; !mr_cursor_ended(&cursor); skip_space(&cursor)) {
        const uint8_t *begin = cursor.at;
        bool is_key = state == JSON_KEY || state == JSON_KEY_END;
        bool begins = levels.count == 1 && state == JSON_VALUE;
        if (!json_step(&cursor, &levels, &state)) {
            return false;
        }
        value = begins ? begin : value;
        if (is_key && state == JSON_VALUE) {
            if (levels.count == 1) {
                name = (mr_slice){.data = begin, .len = (size_t)(cursor.at - begin)};
            }
            skip_space(&cursor);
            if (!mr_cursor_take(&cursor, ':')) {
                return false;
            }
        } else if (levels.count == 1 && state == JSON_BEHIND) {
            tell(context, name, (mr_slice){.data = value, .len = (size_t)(cursor.at - value)});
        }
    }
    return levels.count == 0 && state == JSON_BEHIND;
}

/* ---- expanded ---- */

/* What is being written, and what may have to be taken back. */
struct expanding {
    struct mr_buffer *out;
    struct json_levels levels; /* which of them are objects */
    uint8_t *filled;           /* a bit a level: something is in it */
    uint8_t *field;            /* where the last field begins, with its comma, */
    bool field_was_first;
    struct mr_scratch *scratch;
    bool java; /* numbers as Java prints them */
};

static bool is_filled(const struct expanding *expanding)
{
    unsigned level = expanding->levels.count;
    return (expanding->filled[level / 8] >> (level % 8) & 1) != 0;
}

static void set_filled(struct expanding *expanding, bool filled)
{
    unsigned level = expanding->levels.count;
    uint8_t bit = (uint8_t)(1u << (level % 8));
    uint8_t *byte = &expanding->filled[level / 8];
    *byte = (uint8_t)(filled ? *byte | bit : *byte & ~bit);
}

static void begin_member(struct expanding *expanding)
{
    mr_buffer_append(expanding->out, ",", is_filled(expanding));
    set_filled(expanding, true);
}

static void drop_field(struct expanding *expanding)
{
    if (!expanding->out->full) {
        expanding->out->at = expanding->field;
    }
    set_filled(expanding, !expanding->field_was_first);
}

/* A string with its quotes, escaped as everywhere else. */
static void write_string(struct expanding *expanding, mr_slice token)
{
    mr_text_begin(&expanding->scratch->element, token.len);
    uint8_t *text = expanding->scratch->element.data;
    size_t len = mr_json_unescape(text, token.data + 1, token.len - 2);
    mr_json_string(expanding->out, text, len);
}

static void write_scalar(struct expanding *expanding, mr_slice token)
{
    bool is_fraction = memchr(token.data, '.', token.len) != NULL ||
                       memchr(token.data, 'e', token.len) != NULL ||
                       memchr(token.data, 'E', token.len) != NULL;
    uint8_t first = token.data[0];
    if (first == '"') {
        write_string(expanding, token);
    } else if (expanding->java && is_fraction && first <= '9') {
        uint8_t *begin = expanding->out->at;
        mr_convert_double(expanding->out, token, expanding->scratch);
        if (!expanding->out->full && *begin == '"') { /* larger than any double */
            expanding->out->at = begin;
            mr_buffer_slice(expanding->out, token);
        }
    } else {
        mr_buffer_slice(expanding->out, token);
    }
}

static void write_token(struct expanding *expanding, const struct mr_expansion *how, mr_slice token,
                        enum json_state before, unsigned depth)
{
    uint8_t first = token.data[0];
    bool in_object = depth > 0 && expanding->levels.count >= depth &&
                     (expanding->levels.bits[(depth - 1) / 8] >> ((depth - 1) % 8) & 1) != 0;
    if (first == ',') {
        return;
    }
    if (first == '}' || first == ']') {
        MR_ASSERT(expanding->levels.count + 1 == depth);
        bool of_field = depth > 1 && level_is_object(&expanding->levels);
        if (before == JSON_VALUE_END && of_field && !how->keeps_empty) {
            drop_field(expanding);
        } else {
            mr_buffer_append(expanding->out, &first, 1);
        }
        return;
    }
    if (!in_object) { /* else its key has begun it */
        unsigned count = expanding->levels.count;
        expanding->levels.count = depth;
        begin_member(expanding);
        expanding->levels.count = count;
    }
    if (first == '{' || first == '[') {
        mr_buffer_append(expanding->out, &first, 1);
        set_filled(expanding, false);
    } else if (first == 'n' && in_object && !how->keeps_nulls) {
        drop_field(expanding);
    } else {
        write_scalar(expanding, token);
    }
}

static bool write_key(struct expanding *expanding, struct mr_cursor *cursor, mr_slice token)
{
    expanding->field = expanding->out->at;
    expanding->field_was_first = !is_filled(expanding);
    begin_member(expanding);
    write_string(expanding, token);
    MR_BUFFER_LITERAL(expanding->out, ":");
    skip_space(cursor);
    return mr_cursor_take(cursor, ':');
}

bool mr_json_expand(struct mr_buffer *out, const struct mr_expansion *how, mr_slice text,
                    struct mr_scratch *scratch)
{
    enum { LEVELS_BYTES = JSON_DEPTH_MAX / 8 + 1 };
    mr_text_begin(&scratch->part, 2 * LEVELS_BYTES);
    struct expanding expanding = {.out = out,
                                  .levels = {.bits = scratch->part.data},
                                  .filled = scratch->part.data + LEVELS_BYTES,
                                  .field = out->at,
                                  .scratch = scratch,
                                  .java = how->java_numbers};
    set_filled(&expanding, false);
    struct mr_cursor cursor = mr_cursor_of(text);
    enum json_state state = JSON_VALUE;
    skip_space(&cursor);
    if (!mr_cursor_is_at(&cursor, '{') && !mr_cursor_is_at(&cursor, '[')) {
        return false;
    }
    for (; !mr_cursor_ended(&cursor); skip_space(&cursor)) {
        const uint8_t *begin = cursor.at;
        enum json_state before = state;
        unsigned depth = expanding.levels.count;
        if (!json_step(&cursor, &expanding.levels, &state)) {
            return false;
        }
        mr_slice token = {.data = begin, .len = (size_t)(cursor.at - begin)};
        bool is_key = (before == JSON_KEY || before == JSON_KEY_END) && state == JSON_VALUE;
        if (!is_key) {
            write_token(&expanding, how, token, before, depth);
        } else if (!write_key(&expanding, &cursor, token)) {
            return false;
        }
    }
    return expanding.levels.count == 0 && state == JSON_BEHIND;
}
