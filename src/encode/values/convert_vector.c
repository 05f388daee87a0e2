/* pgvector's types: `[1,2.5]`, `{1:1,3:2.5}/5` (vector.c: vector_out, halfvec.c: halfvec_out, sparsevec.c: sparsevec_out). */
#include "encode/values/convert.h"
#include "encode/values/put.h"

/* What stands before one of the signs that can stand behind a number. */
static mr_slice take_number(struct mr_cursor *cursor)
{
    const uint8_t *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != ',' && *cursor->at != ']' &&
           *cursor->at != '}') {
        cursor->at++;
    }
    return (mr_slice){.data = begin, .len = (size_t)(cursor->at - begin)};
}

MR_CONVERT(vector)
{
    mr_convert_fn write = how->detail == 0 ? mr_convert_float : mr_convert_java_float;
    struct mr_cursor cursor = mr_cursor_of(text);
    if (!mr_cursor_take(&cursor, '[')) {
        return false;
    }
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    int64_t count = 0;
    out->nullable = false;
    do {
        mr_put_json(out, count == 0 ? MR_SLICE("[") : MR_SLICE(","));
        if (!write(out, how, take_number(&cursor), scratch)) {
            return false;
        }
        count++;
    } while (mr_cursor_take(&cursor, ','));
    mr_put_json(out, MR_SLICE("]"));
    if (gap != NULL) {
        mr_avro_close_list(out, gap, count);
    }
    return mr_cursor_take(&cursor, ']') && mr_cursor_ended(&cursor);
}

/* An element that is not zero. */
struct element {
    uint32_t index;
    uint32_t len;
    const uint8_t *number;
};

/* `{1:1,3:2.5}/` into `elements`, which has room for all that a text so long can have. */
static bool take_elements(struct mr_cursor *cursor, struct element *elements, uint32_t *ret_count)
{
    uint32_t count = 0;
    bool good = mr_cursor_take(cursor, '{');
    if (good && !mr_cursor_is_at(cursor, '}')) {
        do {
            int64_t index;
            good = mr_cursor_number(cursor, 1, 10, &index) && mr_cursor_take(cursor, ':');
            mr_slice number = take_number(cursor);
            good = good && number.len > 0 && index <= INT32_MAX;
            elements[count++] = (struct element){
                .index = (uint32_t)index, .len = (uint32_t)number.len, .number = number.data};
        } while (good && mr_cursor_take(cursor, ','));
    }
    *ret_count = count;
    return good && mr_cursor_take(cursor, '}') && mr_cursor_take(cursor, '/');
}

/* A map that was made for so many entries (HashMap: tableSizeFor, resize). */
static uint32_t buckets_for(uint32_t entries)
{
    uint32_t buckets = 1;
    while (buckets < entries) {
        buckets *= 2;
    }
    return entries > buckets * 3 / 4 ? 2 * buckets : buckets;
}

static uint32_t bucket_of(const struct element *element, uint32_t buckets)
{
    return (element->index ^ element->index >> 16) & (buckets - 1);
}

/* Elements by their buckets, those of one bucket as they came; `ends` has room for each bucket. */
static void put_in_order(const struct element *elements, uint32_t count, uint32_t *order,
                         uint32_t *ends, uint32_t buckets)
{
    memset(ends, 0, buckets * sizeof(*ends));
    for (uint32_t i = 0; i < count; i++) {
        ends[bucket_of(&elements[i], buckets)]++;
    }
    for (uint32_t bucket = 1; bucket < buckets; bucket++) {
        ends[bucket] += ends[bucket - 1];
    }
    for (uint32_t i = count; i-- > 0;) {
        order[--ends[bucket_of(&elements[i], buckets)]] = i;
    }
}

MR_CONVERT(sparse_vector)
{
    static const struct mr_conversion as_double = {.detail = 8};
    (void)how;
    /* `1:1,` is the shortest element. */
    size_t most = text.len / 4 + 1;
    size_t buckets_max = buckets_for((uint32_t)most);
    mr_text_begin(&scratch->number, most * (sizeof(struct element) + sizeof(uint32_t)) +
                                        buckets_max * sizeof(uint32_t));
    struct element *elements = (struct element *)(void *)scratch->number.data;
    uint32_t *order = (uint32_t *)(void *)(elements + most);
    struct mr_cursor cursor = mr_cursor_of(text);
    uint32_t count;
    int64_t dimensions;
    if (!take_elements(&cursor, elements, &count) ||
        !mr_cursor_number(&cursor, 1, 10, &dimensions) || !mr_cursor_ended(&cursor)) {
        return false;
    }
    put_in_order(elements, count, order, order + most, buckets_for(count));
    mr_put_record(out, MR_SLICE("{\"dimensions\":"), false);
    mr_put_int(out, dimensions);
    mr_put_field(out, MR_SLICE(",\"vector\":["), false);
    uint8_t *gap = out->is_avro ? mr_avro_open(out) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct element *element = &elements[order[i]];
        mr_slice number = {.data = element->number, .len = element->len};
        mr_put_json(out, i == 0 ? MR_SLICE("[") : MR_SLICE(",["));
        mr_put_int(out, element->index);
        mr_put_json(out, MR_SLICE(","));
        if (!mr_convert_java_float(out, &as_double, number, scratch)) {
            return false;
        }
        mr_put_json(out, MR_SLICE("]"));
    }
    mr_put_json(out, MR_SLICE("]}"));
    if (gap != NULL) {
        mr_avro_close_list(out, gap, count);
    }
    return true;
}
