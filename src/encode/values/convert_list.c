/* Arrays.
 *
 * A PostgreSQL array has as many dimensions as its value, and its type does not say how many; a
 * schema does. So where there is one, all elements come in one list, in the order of unnest()
 * (manual, 9.19, "Array Functions and Operators"). */

#include "encode/values/convert.h"
#include "encode/values/put.h"

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

/* Copies a quoted text without its backslashes; `cursor` is after the first quote. */
static bool take_quoted(struct mr_cursor *cursor, struct mr_bytes *room, mr_slice *ret)
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

static bool write_element(struct mr_buffer *out, const struct mr_conversion *how,
                          struct mr_cursor *cursor, struct mr_scratch *scratch)
{
    mr_slice text;
    out->nullable = true;
    if (mr_cursor_take(cursor, '"')) {
        return take_quoted(cursor, &scratch->element, &text) &&
               how->element->write(out, how->element, text, scratch);
    }
    text = mr_cursor_until(cursor, (char)how->detail, '}'); /* pg_type.typdelim */
    if (mr_slice_equal(text, MR_SLICE("NULL"))) {
        mr_put_null(out);
        return true;
    }
    return text.len > 0 && how->element->write(out, how->element, text, scratch);
}

/* Around a list that is so deep. */
static void put_bracket(struct mr_buffer *out, unsigned depth, mr_slice bracket)
{
    if (MR_LIKELY(depth == 1 || !out->is_typed)) {
        mr_put_json(out, bracket);
    }
}

/* The lists and their elements; answers how many these are, -1: it is no array. */
static int64_t write_lists(struct mr_buffer *out, const struct mr_conversion *how,
                           struct mr_cursor *cursor, struct mr_scratch *scratch)
{
    char delimiter = (char)how->detail;
    int64_t count = 0;
    unsigned depth = 0;
    bool first = true; /* nothing is in this list yet */
    do {
        if (!first) {
            bool goes_on = mr_cursor_take(cursor, delimiter);
            if (!goes_on) {
                put_bracket(out, depth, MR_SLICE("]"));
                depth--;
                if (!mr_cursor_take(cursor, '}')) {
                    return -1;
                }
                continue;
            }
            mr_put_json(out, MR_SLICE(","));
        }
        if (mr_cursor_take(cursor, '{')) {
            put_bracket(out, ++depth, MR_SLICE("["));
            first = true;
            if (depth > DIMENSIONS_MAX) {
                return -1;
            }
            if (mr_cursor_take(cursor, '}')) {
                if (depth > 1 && out->is_typed) {
                    return -1; /* only the whole array has no elements (array_in) */
                }
                put_bracket(out, depth, MR_SLICE("]"));
                depth--;
                first = false;
            }
        } else if (depth == 0 || !write_element(out, how, cursor, scratch)) {
            return -1;
        } else {
            first = false;
            count++;
        }
    } while (depth > 0);
    return mr_cursor_ended(cursor) ? count : -1;
}

/* A list of the elements' conversions; lists of lists for more dimensions. `detail`: the
 * delimiter. */
MR_CONVERT(array)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    if (!skip_bounds(&cursor)) {
        return false;
    }
    uint8_t *list = mr_put_list(out, MR_SLICE(""));
    int64_t count = write_lists(out, how, &cursor, scratch);
    mr_put_list_end(out, list, count, MR_SLICE(""));
    return count >= 0;
}
