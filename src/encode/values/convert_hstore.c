/* hstore: `"key"=>"value", "other"=>NULL` (hstore_io.c: hstore_out), backslashes before quotes and backslashes. */
#include "encode/values/convert.h"
#include "encode/values/put.h"

/* Text between quotes, escapes in it. */
struct pair {
    mr_slice key;
    mr_slice value; /* no data: NULL */
};

static bool take_text(struct mr_cursor *cursor, mr_slice *ret)
{
    if (!mr_cursor_take(cursor, '"')) {
        return false;
    }
    const uint8_t *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"') {
        cursor->at += *cursor->at == '\\' && cursor->at + 1 < cursor->end ? 2 : 1;
    }
    *ret = (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
    return mr_cursor_take(cursor, '"');
}

static bool take_pair(struct mr_cursor *cursor, struct pair *ret)
{
    *ret = (struct pair){0};
    if (!take_text(cursor, &ret->key) || !mr_cursor_take(cursor, '=') ||
        !mr_cursor_take(cursor, '>')) {
        return false;
    }
    if (mr_cursor_take(cursor, 'N')) {
        return mr_cursor_take(cursor, 'U') && mr_cursor_take(cursor, 'L') &&
               mr_cursor_take(cursor, 'L');
    }
    return take_text(cursor, &ret->value);
}

/* The next pair, or false behind the last; `*good` turns false where the text is wrong. */
static bool next_pair(struct mr_cursor *cursor, bool first, struct pair *ret, bool *good)
{
    if (mr_cursor_ended(cursor)) {
        return false;
    }
    *good = first || (mr_cursor_take(cursor, ',') && mr_cursor_take(cursor, ' '));
    *good = *good && take_pair(cursor, ret);
    return *good;
}

static void write_part(struct mr_buffer *out, const uint8_t *text, size_t len)
{
    if (out->is_avro) {
        mr_avro_part(out, text, len);
    } else {
        mr_json_escaped(out, text, len);
    }
}

/* The text without its escapes, as a string. */
static void write_text(struct mr_buffer *out, mr_slice text)
{
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    mr_put_json(out, MR_SLICE("\""));
    size_t begin = 0;
    for (size_t at = 0; at < text.len; at++) {
        if (text.data[at] == '\\' && at + 1 < text.len) {
            write_part(out, text.data + begin, at - begin);
            begin = ++at;
        }
    }
    write_part(out, text.data + begin, text.len - begin);
    mr_put_json(out, MR_SLICE("\""));
    if (gap != NULL) {
        mr_avro_close(out, gap, out->at - gap - 1);
    }
}

static void write_pair(struct mr_buffer *out, const struct pair *pair, bool first)
{
    mr_put_field(out, first ? MR_SLICE("{") : MR_SLICE(","), false);
    write_text(out, pair->key);
    mr_put_field(out, MR_SLICE(":"), true);
    if (pair->value.data == NULL) {
        mr_put_null(out);
    } else {
        write_text(out, pair->value);
    }
}

/* Bytes that are no UTF-8 where base64 stands for them: it is of all of PostgreSQL's text. */
static bool write_bytes(struct mr_buffer *out, mr_slice text)
{
    if (MR_LIKELY(!out->bytes_as_base64) || mr_is_utf8(text.data, text.len)) {
        return false;
    }
    mr_put_slice(out, text);
    return true;
}

MR_CONVERT(hstore_object)
{
    (void)how;
    (void)scratch;
    if (write_bytes(out, text)) {
        return true;
    }
    struct mr_cursor cursor = mr_cursor_of(text);
    struct pair pair;
    bool good = true;
    bool first = true;
    while (next_pair(&cursor, first, &pair, &good)) {
        write_pair(out, &pair, first);
        first = false;
    }
    mr_buffer_slice(out, first ? MR_SLICE("{}") : MR_SLICE("}"));
    return good;
}

/* ---- the order of java.util.HashMap ---- */

/* One code point of UTF-8 as UTF-16, added to a String.hashCode. */
static uint32_t hash_point(uint32_t hash, const uint8_t *text, size_t len)
{
    if (len == 1) {
        return 31 * hash + text[0];
    }
    uint32_t point = text[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        point = point << 6 | (text[i] & 0x3Fu);
    }
    if (point < 0x10000) {
        return 31 * hash + point;
    }
    hash = 31 * hash + (0xD800 + ((point - 0x10000) >> 10));
    return 31 * hash + (0xDC00 + ((point - 0x10000) & 0x3FF));
}

static uint32_t hash_text(mr_slice key, bool escaped)
{
    uint32_t hash = 0;
    for (size_t at = 0; at < key.len;) {
        at += escaped && key.data[at] == '\\' && at + 1 < key.len;
        size_t len = mr_utf8_sequence(key.data + at, key.len - at);
        len = len == 0 ? 1 : len;
        hash = hash_point(hash, key.data + at, len);
        at += len;
    }
    return hash ^ hash >> 16;
}

uint32_t mr_java_hash(mr_slice text)
{
    return hash_text(text, false);
}

/* A pair of a bucket; pairs of one bucket keep their order. */
struct entry {
    struct pair pair;
    uint32_t hash;
    uint32_t next; /* 1 + its index; 0: none */
};

uint32_t mr_java_buckets(uint32_t entries)
{
    uint32_t buckets = 16;
    while (entries > buckets / 4 * 3) {
        buckets *= 2;
    }
    return buckets;
}

static void link_entries(struct entry *entries, uint32_t count, uint32_t *heads, uint32_t *tails,
                         uint32_t buckets)
{
    memset(heads, 0, buckets * sizeof(*heads));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bucket = entries[i].hash & (buckets - 1);
        if (heads[bucket] == 0) {
            heads[bucket] = i + 1;
        } else {
            entries[tails[bucket] - 1].next = i + 1;
        }
        tails[bucket] = i + 1;
    }
}

static void write_in_order(struct mr_buffer *out, const struct entry *entries,
                           const uint32_t *heads, uint32_t buckets)
{
    bool first = true;
    for (uint32_t bucket = 0; bucket < buckets; bucket++) {
        for (uint32_t at = heads[bucket]; at != 0; at = entries[at - 1].next) {
            write_pair(out, &entries[at - 1].pair, first);
            first = false;
        }
    }
    mr_put_json(out, first ? MR_SLICE("{}") : MR_SLICE("}"));
}

/* Reads the pairs and writes them in the order of their buckets. */
static bool write_ordered(struct mr_buffer *out, mr_slice text, struct mr_scratch *scratch)
{
    /* `"a"=>""` is the shortest pair but for the comma behind it. */
    size_t most = text.len / 7 + 1;
    size_t buckets_max = mr_java_buckets((uint32_t)most);
    mr_text_begin(&scratch->number,
                  most * sizeof(struct entry) + 2 * buckets_max * sizeof(uint32_t));
    struct entry *entries = (struct entry *)(void *)scratch->number.data;
    struct mr_cursor cursor = mr_cursor_of(text);
    uint32_t count = 0;
    bool good = true;
    struct pair pair;
    while (next_pair(&cursor, count == 0, &pair, &good)) {
        MR_ASSERT(count < most);
        entries[count++] = (struct entry){.pair = pair, .hash = hash_text(pair.key, true)};
    }
    uint32_t buckets = mr_java_buckets(count);
    uint32_t *heads = (uint32_t *)(void *)(entries + most);
    link_entries(entries, count, heads, heads + buckets, buckets);
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    write_in_order(out, entries, heads, buckets);
    if (gap != NULL) {
        mr_avro_close_list(out, gap, count);
    }
    return good;
}

MR_CONVERT(hstore_map)
{
    (void)how;
    if (MR_UNLIKELY(write_bytes(out, text))) {
        out->misfit = true; /* a string is no map */
        return true;
    }
    return write_ordered(out, text, scratch);
}

/* As JSON first, which then is the text of a string. */
MR_CONVERT(hstore_string)
{
    (void)how;
    if (write_bytes(out, text)) {
        return true;
    }
    struct mr_buffer inner = mr_text_begin(&scratch->part, 6 * text.len + 2);
    bool good = write_ordered(&inner, text, scratch);
    MR_ASSERT(!inner.full);
    out->met_bytes |= inner.met_bytes;
    mr_put_string(out, scratch->part.data, (size_t)(inner.at - scratch->part.data));
    return good;
}
