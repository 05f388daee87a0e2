/* JSON that comes as text: as it is, without white space; or with fields left out, as an outbox may
 * want it. */
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

static void convert_json_skip_space(struct mr_cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t' ||
                                        *cursor->at == '\n' || *cursor->at == '\r')) {
        cursor->at++;
    }
}

static bool convert_json_take_string(struct mr_cursor *cursor)
{
    size_t len = mr_json_string_length(cursor->at, (size_t)(cursor->end - cursor->at));
    cursor->at += len;
    return len > 0;
}

static bool take_digits(struct mr_cursor *cursor)
{
    return mr_cursor_digits(cursor).len > 0;
}

/* RFC 8259, section 6. */
static bool convert_json_take_number(struct mr_cursor *cursor)
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

static bool take_scalar(struct mr_cursor *cursor)
{
    if (mr_cursor_is_at(cursor, '"')) {
        return convert_json_take_string(cursor);
    }
    return mr_cursor_take_word(cursor, MR_SLICE("true")) ||
           mr_cursor_take_word(cursor, MR_SLICE("false")) ||
           mr_cursor_take_word(cursor, MR_SLICE("null")) || convert_json_take_number(cursor);
}

/* A bit a level. */
static bool bit_at(const uint8_t *bits, unsigned level)
{
    return (bits[level / 8] >> (level % 8) & 1) != 0;
}

static void set_bit(uint8_t *bits, unsigned level, bool value)
{
    uint8_t bit = (uint8_t)(1u << (level % 8));
    bits[level / 8] = (uint8_t)(value ? bits[level / 8] | bit : bits[level / 8] & ~bit);
}

/* A JSON text, token by token. */
struct walk {
    struct mr_cursor cursor;
    enum json_state state;
    uint8_t *objects; /* whether each open level is one */
    unsigned depth;   /* levels that are open */
    bool good;        /* at the end: the text is JSON */
    /* The token at hand, the state and the depth before it, and whether it is a key. */
    mr_slice token;
    enum json_state before;
    unsigned depth_before;
    bool is_key;
};

enum { LEVELS_BYTES = JSON_DEPTH_MAX / 8 + 1 };

static bool is_in_object(const struct walk *walk)
{
    return bit_at(walk->objects, walk->depth - 1);
}

/* One token; false when it may not stand there. */
static bool walk_step(struct walk *walk)
{
    struct mr_cursor *cursor = &walk->cursor;
    enum json_state state = walk->state;
    bool may_end = state == JSON_BEHIND || state == JSON_KEY_END || state == JSON_VALUE_END;
    uint8_t byte = *cursor->at;
    if (byte == '}' || byte == ']') {
        if (!may_end || walk->depth == 0 || is_in_object(walk) != (byte == '}')) {
            return false;
        }
        cursor->at++;
        walk->depth--;
        walk->state = JSON_BEHIND;
        return true;
    }
    if (state == JSON_BEHIND) {
        if (walk->depth == 0 || !mr_cursor_take(cursor, ',')) {
            return false;
        }
        walk->state = is_in_object(walk) ? JSON_KEY : JSON_VALUE;
        return true;
    }
    if (state == JSON_KEY || state == JSON_KEY_END) {
        walk->state = JSON_VALUE;
        walk->is_key = true;
        return convert_json_take_string(cursor);
    }
    if (byte == '{' || byte == '[') {
        cursor->at++;
        walk->state = byte == '{' ? JSON_KEY_END : JSON_VALUE_END;
        if (walk->depth == JSON_DEPTH_MAX) {
            return false;
        }
        set_bit(walk->objects, walk->depth++, byte == '{');
        return true;
    }
    walk->state = JSON_BEHIND;
    return take_scalar(cursor);
}

/* The next token, and after a key the colon; false at the end, or where the text is wrong. */
static bool walk_next(struct walk *walk)
{
    struct mr_cursor *cursor = &walk->cursor;
    convert_json_skip_space(cursor);
    if (mr_cursor_ended(cursor)) {
        walk->good = walk->depth == 0 && walk->state == JSON_BEHIND;
        return false;
    }
    const uint8_t *begin = cursor->at;
    walk->before = walk->state;
    walk->depth_before = walk->depth;
    walk->is_key = false;
    if (!walk_step(walk)) {
        return false;
    }
    walk->token = (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
    if (walk->is_key) {
        convert_json_skip_space(cursor);
        return mr_cursor_take(cursor, ':');
    }
    return true;
}

static struct walk walk_of(mr_slice text, uint8_t *objects)
{
    return (struct walk){.cursor = mr_cursor_of(text), .state = JSON_VALUE, .objects = objects};
}

/* What is written without quotes must be seen to be JSON, or a server could write the rest of the
 * event. */
MR_CONVERT(json)
{
    mr_text_begin(&scratch->number, LEVELS_BYTES);
    struct walk walk = walk_of(text, scratch->number.data);
    while (walk_next(&walk)) {
        mr_buffer_slice(out, walk.token);
        if (walk.is_key) {
            MR_BUFFER_LITERAL(out, ":");
        }
    }
    return walk.good;
}

bool mr_json_members(mr_slice text, struct mr_scratch *scratch,
                     void (*tell)(void *context, mr_slice name, mr_slice value), void *context)
{
    mr_text_begin(&scratch->number, LEVELS_BYTES);
    struct walk walk = walk_of(text, scratch->number.data);
    mr_slice name = {0};
    const uint8_t *value = NULL; /* of the member at hand */
    convert_json_skip_space(&walk.cursor);
    if (!mr_cursor_is_at(&walk.cursor, '{')) {
        return false;
    }
    while (walk_next(&walk)) {
        if (walk.depth_before == 1 && walk.before == JSON_VALUE) {
            value = walk.token.data;
        }
        if (walk.depth != 1) {
            continue;
        }
        if (walk.is_key) {
            name = walk.token;
        } else if (walk.state == JSON_BEHIND) {
            tell(context, name, (mr_slice){.data = value, .len = (size_t)(walk.cursor.at - value)});
        }
    }
    return walk.good;
}

/* What is being written, and what may have to be taken back. */
struct expanding {
    struct walk walk;
    struct mr_buffer *out;
    const struct mr_encode_options *options;
    struct mr_scratch *scratch;
    uint8_t *filled; /* a bit a level: something is in it */
    uint8_t *field;  /* where the last field begins, with its comma */
    bool field_was_first;
};

/* At the depth of what it is in. */
static void begin_member(struct expanding *expanding)
{
    unsigned depth = expanding->walk.depth_before;
    mr_buffer_append(expanding->out, ",", bit_at(expanding->filled, depth));
    set_bit(expanding->filled, depth, true);
}

/* Takes back the field at hand, of the object that is open now. */
static void drop_field(struct expanding *expanding)
{
    if (!expanding->out->full) {
        expanding->out->at = expanding->field;
    }
    set_bit(expanding->filled, expanding->walk.depth, !expanding->field_was_first);
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
    } else if (expanding->options->types == MR_TYPES_DEBEZIUM && is_fraction && first <= '9') {
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

static void write_token(struct expanding *expanding)
{
    const struct walk *walk = &expanding->walk;
    uint8_t first = walk->token.data[0];
    bool in_object = walk->depth_before > 0 && bit_at(walk->objects, walk->depth_before - 1);
    if (first == ',') {
        return;
    }
    if (first == '}' || first == ']') {
        bool of_field = walk->depth > 0 && is_in_object(walk);
        if (walk->before == JSON_VALUE_END && of_field &&
            (expanding->options->outbox->keeps & MR_OUTBOX_KEEPS_EMPTY) == 0) {
            drop_field(expanding);
        } else {
            mr_buffer_slice(expanding->out, walk->token);
        }
        return;
    }
    if (!in_object) { /* else its key has begun it */
        begin_member(expanding);
    }
    if (first == '{' || first == '[') {
        mr_buffer_slice(expanding->out, walk->token);
        set_bit(expanding->filled, walk->depth, false);
    } else if (first == 'n' && in_object &&
               (expanding->options->outbox->keeps & MR_OUTBOX_KEEPS_NULLS) == 0) {
        drop_field(expanding);
    } else {
        write_scalar(expanding, walk->token);
    }
}

static void convert_json_write_key(struct expanding *expanding)
{
    expanding->field = expanding->out->at;
    expanding->field_was_first = !bit_at(expanding->filled, expanding->walk.depth);
    begin_member(expanding);
    write_string(expanding, expanding->walk.token);
    MR_BUFFER_LITERAL(expanding->out, ":");
}

bool mr_json_expand(struct mr_buffer *out, const struct mr_encode_options *options, mr_slice text,
                    struct mr_scratch *scratch)
{
    mr_text_begin(&scratch->part, 2 * LEVELS_BYTES);
    struct expanding expanding = {.walk = walk_of(text, scratch->part.data),
                                  .out = out,
                                  .options = options,
                                  .scratch = scratch,
                                  .filled = scratch->part.data + LEVELS_BYTES,
                                  .field = out->at};
    set_bit(expanding.filled, 0, false);
    convert_json_skip_space(&expanding.walk.cursor);
    if (!mr_cursor_is_at(&expanding.walk.cursor, '{') &&
        !mr_cursor_is_at(&expanding.walk.cursor, '[')) {
        return false;
    }
    while (walk_next(&expanding.walk)) {
        if (expanding.walk.is_key) {
            convert_json_write_key(&expanding);
        } else {
            write_token(&expanding);
        }
    }
    return expanding.walk.good;
}
