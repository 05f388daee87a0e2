/* pgvector's types: `[1,2.5]`, `{1:1,3:2.5}/5` (vector.c: vector_out, halfvec.c: halfvec_out,
 * sparsevec.c: sparsevec_out). */
#include "encode/values/convert.h"
#include "encode/values/put.h"

/* Numbers as Java prints them (of `detail` bytes), or as PostgreSQL does (0). */
MR_CONVERT(vector)
{
    mr_convert_fn write = how->detail == 0 ? mr_convert_float : mr_convert_java_float;
    struct mr_cursor cursor = mr_cursor_of(text);
    if (!mr_cursor_take(&cursor, '[')) {
        return false;
    }
    uint8_t *list = mr_put_list(out, MR_SLICE("["));
    int64_t count = 0;
    out->nullable = false;
    do {
        mr_put_json(out, count == 0 ? MR_SLICE("") : MR_SLICE(","));
        if (!write(out, how, mr_cursor_until(&cursor, ',', ']'), scratch)) {
            return false;
        }
        count++;
    } while (mr_cursor_take(&cursor, ','));
    mr_put_list_end(out, list, count, MR_SLICE("]"));
    return mr_cursor_take(&cursor, ']') && mr_cursor_ended(&cursor);
}

/* An element that is not zero. */
struct element {
    uint32_t index;
    uint32_t len;
    const uint8_t *number;
};

/* `{1:1,3:2.5}/` into `elements` and their hashes, which have room for all that a text so long can
 * have. */
static bool convert_vector_take_elements(struct mr_cursor *cursor, struct element *elements,
                                         uint32_t *hashes, uint32_t *ret_count)
{
    uint32_t count = 0;
    bool good = mr_cursor_take(cursor, '{');
    if (good && !mr_cursor_is_at(cursor, '}')) {
        do {
            int64_t index;
            good = mr_cursor_number(cursor, 1, 10, &index) && mr_cursor_take(cursor, ':');
            mr_slice number = mr_cursor_until(cursor, ',', '}');
            good = good && number.len > 0 && index <= INT32_MAX;
            hashes[count] = (uint32_t)index ^ (uint32_t)index >> 16;
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

static bool put_element(struct mr_buffer *out, const struct element *element, bool first)
{
    static const struct mr_conversion as_double = {.detail = MR_DOUBLE_BYTES};
    mr_put_json(out, first ? MR_SLICE("[") : MR_SLICE(",["));
    mr_put_int(out, element->index);
    mr_put_json(out, MR_SLICE(","));
    mr_slice number = {.data = element->number, .len = element->len};
    bool good = mr_convert_java_float(out, &as_double, number, NULL);
    mr_put_json(out, MR_SLICE("]"));
    return good;
}

/* `{"dimensions":…,"vector":[[index,number],…]}`, in the order of Java's HashMap. */
MR_CONVERT(sparse_vector)
{
    /* `1:1,` is the shortest element. */
    uint32_t most = (uint32_t)(text.len / 4 + 1);
    mr_text_begin(&scratch->number,
                  most * sizeof(struct element) + mr_java_order_bytes(most, buckets_for(most)));
    struct element *elements = (struct element *)(void *)scratch->number.data;
    uint32_t *hashes = (uint32_t *)(void *)(elements + most);
    struct mr_cursor cursor = mr_cursor_of(text);
    uint32_t count;
    int64_t dimensions;
    if (!convert_vector_take_elements(&cursor, elements, hashes, &count) ||
        !mr_cursor_number(&cursor, 1, 10, &dimensions) || !mr_cursor_ended(&cursor)) {
        return false;
    }
    if (out->is_typed &&
        dimensions > INT16_MAX) { /* Debezium's schema has 16 bits for each index */
        mr_put_null(out);
        return true;
    }
    const uint32_t *order = mr_java_order(hashes, count, buckets_for(count));
    mr_put_record(out, MR_SLICE("{\"dimensions\":"), false);
    mr_put_int(out, dimensions);
    mr_put_field(out, MR_SLICE(",\"vector\":"), false);
    uint8_t *list = mr_put_list(out, MR_SLICE("["));
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++) {
        good = put_element(out, &elements[order[i]], i == 0);
    }
    mr_put_list_end(out, list, count, MR_SLICE("]}"));
    return good;
}
