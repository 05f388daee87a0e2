/* A type and any bytes as the text of its value: refused, or strict JSON, and never more than the
 * buffer holds. */
#include <stdlib.h>
#include <string.h>

#include "encode/values/types.h"
#include "fuzz.h"
#include "strict_json.h"

enum { HEADER = 5, OUT_BYTES = 1 << 16 };

static struct mr_scratch scratch;
static uint8_t out_bytes[OUT_BYTES];

/* The converted text; false when it is refused or too long. */
static bool convert(const struct mr_type_form *form, mr_slice text, size_t room, mr_slice *ret)
{
    struct mr_buffer out = mr_buffer_init(out_bytes, room);
    bool good = form->conversion.write(&out, &form->conversion, text, &scratch);
    *ret = (mr_slice){.data = out_bytes, .len = (size_t)(out.at - out_bytes)};
    return good && !out.full;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER) {
        return 0;
    }
    bool is_user = (data[3] & 0x80) != 0;
    uint32_t oid = (uint32_t)data[0] | (uint32_t)data[1] << 8;
    static const int32_t rare[] = {393222, INT32_MIN, INT32_MAX, -1};
    int32_t modifier = data[2] >= 0xFC ? rare[data[2] - 0xFC] : data[2];
    struct mr_column column = {
        .type_oid = oid,
        .type_modifier = modifier,
        .type = {.oid = oid,
                 .modifier = modifier,
                 .kind = is_user ? (enum mr_type_kind)(data[3] % (MR_TYPE_OPAQUE + 1))
                                 : MR_TYPE_UNKNOWN,
                 .is_array = (data[3] & 0x40) != 0,
                 .is_of_domain = (data[3] & 0x20) != 0}};
    struct mr_encode_options options = {
        .types = data[4] % 2 == 0 ? MR_TYPES_DEBEZIUM : MR_TYPES_PLAIN,
        .modes = {.decimal = (enum mr_decimal_mode)(data[4] / 2 % 3),
                  .time = (enum mr_time_mode)(data[4] / 6 % 6),
                  .binary = (enum mr_binary_mode)(data[4] / 6 % 4),
                  .interval = (enum mr_interval_mode)(data[4] / 6 % 2),
                  .hstore = (enum mr_hstore_mode)(data[4] / 6 % 2)}};
    struct mr_type_form form = mr_type_form(&options, &column);
    if (form.writer != MR_WRITE_CONVERT) {
        return 0;
    }
    form.conversion.element = &form.element;
    /* A block of its own, so that the sanitizer sees a byte too far. */
    size_t len = size - HEADER;
    uint8_t *text = malloc(len + 1);
    memcpy(text, data + HEADER, len);
    mr_slice value = {.data = realloc(text, len == 0 ? 1 : len), .len = len};
    mr_slice whole;
    mr_slice part;
    if (convert(&form, value, OUT_BYTES, &whole)) {
        MR_ASSERT(strict_json_valid(whole));
        MR_ASSERT(!convert(&form, value, whole.len - 1, &part));
    }
    free((void *)(uintptr_t)value.data);
    return 0;
}
