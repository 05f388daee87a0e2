/* hstore: `"key"=>"value", "other"=>NULL` (hstore_io.c: hstore_out), backslashes before quotes and
 * backslashes. */
#include "encode/values/convert.h"
#include "encode/values/put.h"

/* Text between quotes, escapes in it. */
struct pair {
    mr_slice key;
    mr_slice value; /* no data: NULL */
};

static bool convert_hstore_take_text(struct mr_cursor *cursor, mr_slice *ret)
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
    if (!convert_hstore_take_text(cursor, &ret->key) ||
        !mr_cursor_take_word(cursor, MR_SLICE("=>"))) {
        return false;
    }
    return mr_cursor_take_word(cursor, MR_SLICE("NULL")) ||
           convert_hstore_take_text(cursor, &ret->value);
}

/* The next pair, or false after the last; `*good` turns false where the text is wrong. */
static bool next_pair(struct mr_cursor *cursor, bool first, struct pair *ret, bool *good)
{
    if (mr_cursor_ended(cursor)) {
        return false;
    }
    *good = (first || mr_cursor_take_word(cursor, MR_SLICE(", "))) && take_pair(cursor, ret);
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
static void convert_hstore_write_text(struct mr_buffer *out, mr_slice text)
{
    uint8_t *string = mr_put_text(out);
    size_t begin = 0;
    for (size_t at = 0; at < text.len; at++) {
        if (text.data[at] == '\\' && at + 1 < text.len) {
            write_part(out, text.data + begin, at - begin);
            begin = ++at;
        }
    }
    write_part(out, text.data + begin, text.len - begin);
    mr_put_text_end(out, string);
}

static void write_pair(struct mr_buffer *out, const struct pair *pair, bool first)
{
    mr_put_field(out, first ? MR_SLICE("{") : MR_SLICE(","), false);
    convert_hstore_write_text(out, pair->key);
    mr_put_field(out, MR_SLICE(":"), true);
    if (pair->value.data == NULL) {
        mr_put_null(out);
    } else {
        convert_hstore_write_text(out, pair->value);
    }
}

/* Bytes that are no UTF-8 where base64 stands for them: it is of all of PostgreSQL's text. */
static bool convert_hstore_write_bytes(struct mr_buffer *out, mr_slice text)
{
    if (MR_LIKELY(!out->bytes_as_base64) || mr_is_utf8(text.data, text.len)) {
        return false;
    }
    mr_put_slice(out, text);
    return true;
}

/* `{"key":"value",…}` in the order of the text. */
MR_CONVERT(hstore_object)
{
    if (convert_hstore_write_bytes(out, text)) {
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

uint32_t mr_java_buckets(uint32_t entries)
{
    uint32_t buckets = 16;
    while (entries > buckets / 4 * 3) {
        buckets *= 2;
    }
    return buckets;
}

const uint32_t *mr_java_order(uint32_t *hashes, uint32_t count, uint32_t buckets)
{
    uint32_t *order = hashes + count;
    uint32_t *ends = order + count;
    memset(ends, 0, buckets * sizeof(*ends));
    for (uint32_t i = 0; i < count; i++) {
        ends[hashes[i] & (buckets - 1)]++;
    }
    for (uint32_t bucket = 1; bucket < buckets; bucket++) {
        ends[bucket] += ends[bucket - 1];
    }
    for (uint32_t i = count; i-- > 0;) {
        order[--ends[hashes[i] & (buckets - 1)]] = i;
    }
    return order;
}

/* Reads the pairs and writes them in the order of their buckets. */
static bool write_ordered(struct mr_buffer *out, mr_slice text, struct mr_scratch *scratch)
{
    /* `"a"=>""` is the shortest pair but for the comma after it. */
    uint32_t most = (uint32_t)(text.len / 7 + 1);
    mr_text_begin(&scratch->number,
                  most * sizeof(struct pair) + mr_java_order_bytes(most, mr_java_buckets(most)));
    struct pair *pairs = (struct pair *)(void *)scratch->number.data;
    uint32_t *hashes = (uint32_t *)(void *)(pairs + most);
    struct mr_cursor cursor = mr_cursor_of(text);
    uint32_t count = 0;
    bool good = true;
    struct pair pair;
    while (next_pair(&cursor, count == 0, &pair, &good)) {
        MR_ASSERT(count < most);
        hashes[count] = hash_text(pair.key, true);
        pairs[count++] = pair;
    }
    const uint32_t *order = mr_java_order(hashes, count, mr_java_buckets(count));
    uint8_t *list = mr_put_list(out, MR_SLICE(""));
    for (uint32_t i = 0; i < count; i++) {
        write_pair(out, &pairs[order[i]], i == 0);
    }
    mr_put_list_end(out, list, count, count == 0 ? MR_SLICE("{}") : MR_SLICE("}"));
    return good;
}

/* The same in the order of Java's HashMap. */
MR_CONVERT(hstore_map)
{
    if (MR_UNLIKELY(convert_hstore_write_bytes(out, text))) {
        out->misfit = true; /* a string is no map */
        return true;
    }
    return write_ordered(out, text, scratch);
}

/* As JSON first, which then is the text of a string. */
MR_CONVERT(hstore_string)
{
    if (convert_hstore_write_bytes(out, text)) {
        return true;
    }
    struct mr_buffer inner = mr_text_begin(&scratch->part, 6 * text.len + 2);
    bool good = write_ordered(&inner, text, scratch);
    MR_ASSERT(!inner.full);
    out->met_bytes |= inner.met_bytes;
    mr_put_string(out, scratch->part.data, (size_t)(inner.at - scratch->part.data));
    return good;
}
