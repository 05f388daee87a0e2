/* Geometric types, and PostGIS's, as Debezium has them: well-known binary (OGC 06-103r4,
 * little-endian) in base64, and what that leaves out. */

#include "encode/values/convert.h"
#include "encode/values/put.h"

enum { NUMBER_MAX = 64, POINT_BYTES = 16, WKB_HEADER = 5 };

enum wkb_kind { WKB_POINT = 1, WKB_LINE = 2, WKB_POLYGON = 3 };

/* A number: its text and its value. */
struct number {
    mr_slice text;
    double value;
};

struct point {
    struct number x;
    struct number y;
};

/* Up to the sign that ends it. */
static bool convert_shape_take_number(struct mr_cursor *cursor, char end, struct number *ret)
{
    char copy[NUMBER_MAX];
    mr_slice text = mr_cursor_until(cursor, ',', end);
    if (text.len == 0 || text.len >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    char *rest;
    *ret = (struct number){.text = text, .value = strtod(copy, &rest)};
    return rest == copy + text.len;
}

/* (x,y) */
static bool take_point(struct mr_cursor *cursor, struct point *ret)
{
    return mr_cursor_take(cursor, '(') && convert_shape_take_number(cursor, ',', &ret->x) &&
           mr_cursor_take(cursor, ',') && convert_shape_take_number(cursor, ')', &ret->y) &&
           mr_cursor_take(cursor, ')');
}

static bool convert_shape_write_number(struct mr_buffer *out, const struct number *number)
{
    static const struct mr_conversion as_double = {.detail = MR_DOUBLE_BYTES};
    return mr_convert_java_float(out, &as_double, number->text, NULL);
}

static uint8_t *put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        *to++ = (uint8_t)(value >> (8 * i));
    }
    return to;
}

static uint8_t *put_header(uint8_t *to, enum wkb_kind kind)
{
    *to++ = 1; /* little-endian */
    return put_u32(to, kind);
}

static uint8_t *put_double(uint8_t *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    to = put_u32(to, (uint32_t)bits);
    return put_u32(to, (uint32_t)(bits >> 32));
}

static uint8_t *convert_shape_put_point(uint8_t *to, const struct point *point)
{
    return put_double(put_double(to, point->x.value), point->y.value);
}

static bool write_point(struct mr_buffer *out, const struct point *point)
{
    uint8_t wkb[WKB_HEADER + POINT_BYTES];
    convert_shape_put_point(put_header(wkb, WKB_POINT), point);
    mr_put_record(out, MR_SLICE("{\"x\":"), false);
    bool good = convert_shape_write_number(out, &point->x);
    mr_put_field(out, MR_SLICE(",\"y\":"), false);
    good = convert_shape_write_number(out, &point->y) && good;
    mr_put_field(out, MR_SLICE(",\"wkb\":"), true);
    mr_put_bytes(out, wkb, sizeof(wkb));
    mr_put_field(out, MR_SLICE(",\"srid\":"), true);
    mr_put_null(out);
    mr_put_json(out, MR_SLICE("}"));
    return good;
}

MR_CONVERT(point)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    struct point point;
    return take_point(&cursor, &point) && mr_cursor_ended(&cursor) && write_point(out, &point);
}

/* <(x,y),r> */
MR_CONVERT(circle)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    struct point center;
    struct number radius;
    if (!mr_cursor_take(&cursor, '<') || !take_point(&cursor, &center) ||
        !mr_cursor_take(&cursor, ',') || !convert_shape_take_number(&cursor, '>', &radius) ||
        !mr_cursor_take(&cursor, '>') || !mr_cursor_ended(&cursor)) {
        return false;
    }
    mr_put_record(out, MR_SLICE("{\"center\":"), false);
    bool good = write_point(out, &center);
    mr_put_field(out, MR_SLICE(",\"radius\":"), false);
    good = convert_shape_write_number(out, &radius) && good;
    mr_put_json(out, MR_SLICE("}"));
    return good;
}

/* {A,B,C} */
MR_CONVERT(line)
{
    static const char *const names[] = {"\"a\":", ",\"b\":", ",\"c\":"};
    struct mr_cursor cursor = mr_cursor_of(text);
    mr_put_record(out, MR_SLICE("{"), false);
    for (unsigned i = 0; i < 3; i++) {
        struct number number;
        mr_put_field(out, mr_slice_of(names[i]), false);
        if (!mr_cursor_take(&cursor, i == 0 ? '{' : ',') ||
            !convert_shape_take_number(&cursor, '}', &number) ||
            !convert_shape_write_number(out, &number)) {
            return false;
        }
    }
    mr_put_json(out, MR_SLICE("}"));
    return mr_cursor_take(&cursor, '}') && mr_cursor_ended(&cursor);
}

/* (x,y),(x,y),… into `to`; how many there were, or 0. */
static uint32_t take_points(struct mr_cursor *cursor, uint8_t *to, struct point *ret_first)
{
    uint32_t count = 0;
    do {
        struct point point;
        if (!take_point(cursor, &point)) {
            return 0;
        }
        to = convert_shape_put_point(to, &point);
        if (count++ == 0) {
            *ret_first = point;
        }
    } while (mr_cursor_take(cursor, ','));
    return count;
}

/* The shortest point, `(1,2)`, and a comma for sixteen bytes; and one point more that closes a
 * ring. */
static uint8_t *wkb_room(struct mr_scratch *scratch, mr_slice text)
{
    mr_text_begin(&scratch->number, 64 + text.len / 6 * POINT_BYTES + 2 * POINT_BYTES);
    return scratch->number.data;
}

/* `type`, and of a path whether it is closed; NULL: it is none. */
static void write_shape(struct mr_buffer *out, const uint8_t *wkb, const uint8_t *end,
                        const char *type, const char *closed)
{
    mr_put_record(out, MR_SLICE("{\"wkb\":"), false);
    mr_put_bytes(out, wkb, (size_t)(end - wkb));
    mr_put_field(out, MR_SLICE(",\"srid\":"), true);
    mr_put_null(out);
    mr_put_field(out, MR_SLICE(",\"extensions\":"), true);
    const char *const words[] = {"type", type, "closed", closed};
    const char *const before[] = {"", ":", ",", ":"};
    size_t count = closed == NULL ? 2 : 4;
    uint8_t *map = mr_put_list(out, MR_SLICE("{"));
    for (size_t i = 0; i < count; i++) {
        mr_put_field(out, mr_slice_of(before[i]), false);
        mr_put_slice(out, mr_slice_of(words[i]));
    }
    mr_put_list_end(out, map, (int64_t)count / 2, MR_SLICE("}}"));
}

/* `ends`: the signs around the points. */
static bool write_line(struct mr_buffer *out, mr_slice text, const char *ends, const char *type,
                       const char *closed, struct mr_scratch *scratch)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    uint8_t *wkb = wkb_room(scratch, text);
    uint8_t *points = put_header(wkb, WKB_LINE) + sizeof(uint32_t);
    struct point first;
    uint32_t count = mr_cursor_take(&cursor, ends[0]) ? take_points(&cursor, points, &first) : 0;
    if (count == 0 || !mr_cursor_take(&cursor, ends[1]) || !mr_cursor_ended(&cursor)) {
        return false;
    }
    put_u32(wkb + WKB_HEADER, count);
    write_shape(out, wkb, points + (size_t)count * POINT_BYTES, type, closed);
    return true;
}

/* [(x,y),(x,y)] */
MR_CONVERT(lseg)
{
    return write_line(out, text, "[]", "lseg", NULL, scratch);
}

/* [(x,y),…] is open, ((x,y),…) closed */
MR_CONVERT(path)
{
    bool is_open = text.len > 0 && text.data[0] == '[';
    return write_line(out, text, is_open ? "[]" : "()", "path", is_open ? "false" : "true",
                      scratch);
}

/* Header, one ring, its points. */
static uint8_t *put_ring(uint8_t *wkb, uint32_t count)
{
    return put_u32(put_u32(put_header(wkb, WKB_POLYGON), 1), count);
}

enum { RING_AT = WKB_HEADER + 2 * sizeof(uint32_t) };

/* ((x,y),…): the first point is repeated at the end. */
MR_CONVERT(polygon)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    uint8_t *wkb = wkb_room(scratch, text);
    struct point first;
    uint32_t count = mr_cursor_take(&cursor, '(') ? take_points(&cursor, wkb + RING_AT, &first) : 0;
    if (count == 0 || !mr_cursor_take(&cursor, ')') || !mr_cursor_ended(&cursor)) {
        return false;
    }
    put_ring(wkb, count + 1);
    uint8_t *end = convert_shape_put_point(wkb + RING_AT + (size_t)count * POINT_BYTES, &first);
    write_shape(out, wkb, end, "polygon", NULL);
    return true;
}

/* (x,y),(x,y): upper right, lower left. A ring that begins at the upper right and goes down
 * first. */
MR_CONVERT(box)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    struct point high;
    struct point low;
    if (!take_point(&cursor, &high) || !mr_cursor_take(&cursor, ',') ||
        !take_point(&cursor, &low) || !mr_cursor_ended(&cursor)) {
        return false;
    }
    uint8_t wkb[RING_AT + 5 * POINT_BYTES];
    uint8_t *at = convert_shape_put_point(put_ring(wkb, 5), &high);
    at = convert_shape_put_point(at, &(struct point){.x = high.x, .y = low.y});
    at = convert_shape_put_point(at, &low);
    at = convert_shape_put_point(at, &(struct point){.x = low.x, .y = high.y});
    at = convert_shape_put_point(at, &high);
    write_shape(out, wkb, at, "box", NULL);
    return true;
}

/* EWKB (PostGIS manual, 4.1.2): a 1 where the bytes are little-endian, a number for what it is,
 * and, if that has this bit, the number of a reference system. `detail`: with extensions, as a
 * geometry has them. */
MR_CONVERT(ewkb)
{
    enum { SRID_BIT = 0x20, SRID_END = 9 };
    mr_slice bytes;
    if (!mr_convert_digits(text, scratch, &bytes) || bytes.len < SRID_END) {
        return false;
    }
    const uint8_t *at = bytes.data;
    bool is_little = at[0] != 0;
    mr_put_record(out, MR_SLICE("{\"wkb\":"), false);
    mr_put_bytes(out, bytes.data, bytes.len);
    mr_put_field(out, MR_SLICE(",\"srid\":"), true);
    if ((at[is_little ? 4 : 1] & SRID_BIT) != 0) {
        uint32_t srid = 0;
        for (unsigned i = 0; i < 4; i++) {
            srid = srid << 8 | at[is_little ? 8 - i : 5 + i];
        }
        mr_put_int(out, (int32_t)srid);
    } else {
        mr_put_null(out);
    }
    if (how->detail != 0) {
        mr_put_field(out, MR_SLICE(",\"extensions\":"), true);
        mr_put_null(out);
    }
    mr_put_json(out, MR_SLICE("}"));
    return true;
}
