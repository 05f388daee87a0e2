/* Any bytes as what a transaction says of itself, in a block of exactly their size: what is taken
 * are named headers of valid UTF-8 without control characters. And as a JSON string: the output is
 * strict JSON, and unescaped it is the input with what is no UTF-8 replaced. The same for base64
 * and numbers, and for a buffer that is too small. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "event/context.h"
#include "fuzz.h"
#include "strict_json.h"

static size_t replaced(const uint8_t *text, size_t len, uint8_t *ret)
{
    size_t to = 0;
    for (size_t at = 0; at < len;) {
        size_t size = strict_utf8_length(text + at, len - at);
        MR_ASSERT(size == mr_utf8_sequence(text + at, len - at));
        memcpy(ret + to, size == 0 ? (const uint8_t *)"\xEF\xBF\xBD" : text + at,
               size == 0 ? 3 : size);
        to += size == 0 ? 3 : size;
        at += size == 0 ? 1 : size;
    }
    return to;
}

static void check_string(const uint8_t *data, size_t size)
{
    size_t most = 6 * size + 2;
    uint8_t *out = malloc(most), *back = malloc(most), *want = malloc(most);
    struct mr_buffer buffer = mr_buffer_init(out, most);
    mr_json_string(&buffer, data, size);
    MR_ASSERT(!buffer.full);
    mr_slice text = {.data = out, .len = (size_t)(buffer.at - out)};
    MR_ASSERT(strict_json_valid(text));
    long len = strict_json_unescape(text, back);
    MR_ASSERT(len >= 0);
    MR_ASSERT((size_t)len == replaced(data, size, want));
    MR_ASSERT(memcmp(back, want, (size_t)len) == 0);

    /* One byte short: it is said to be full, and nothing is written after the end (the sanitizer
     * looks). */
    uint8_t *small = malloc(text.len - 1);
    buffer = mr_buffer_init(small, text.len - 1);
    mr_json_string(&buffer, data, size);
    MR_ASSERT(buffer.full);
    free(small);
    free(want);
    free(back);
    free(out);
}

static void check_base64(const uint8_t *data, size_t size)
{
    size_t len = (size + 2) / 3 * 4 + 2;
    uint8_t *out = malloc(len);
    struct mr_buffer buffer = mr_buffer_init(out, len);
    mr_json_base64(&buffer, data, size);
    MR_ASSERT(!buffer.full && buffer.at == buffer.end);
    MR_ASSERT(strict_json_valid((mr_slice){.data = out, .len = len}));
    free(out);
}

static void check_number(const uint8_t *data, size_t size)
{
    int64_t number = 0;
    memcpy(&number, data, size < sizeof(number) ? size : sizeof(number));
    uint8_t out[24];
    struct mr_buffer buffer = mr_buffer_init(out, sizeof(out) - 1);
    mr_json_i64(&buffer, number);
    *buffer.at = 0;
    MR_ASSERT(strtoll((const char *)out, NULL, 10) == number);
}

static void check_context(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a", "user", "traceparent"};
    static struct mr_context context = {.names = names, .name_count = 3};
    uint8_t *copy = malloc(size + (size == 0));
    memcpy(copy, data, size);
    mr_slice headers = {0};
    enum mr_context_outcome outcome =
        mr_context_read(&context, (mr_slice){.data = copy, .len = size}, &headers);
    free(copy);
    MR_ASSERT((outcome == MR_CONTEXT_TOO_LARGE) == (size > MR_CONTEXT_BYTES_MAX));
    MR_ASSERT(outcome != MR_CONTEXT_TAKEN || strict_json_valid((mr_slice){data, size}));
    MR_ASSERT(outcome == MR_CONTEXT_TAKEN || headers.len == 0);
    MR_ASSERT(headers.len <= size);
    struct mr_header header;
    for (size_t at = 0; mr_header_in(headers, &at, &header);) {
        MR_ASSERT(at <= headers.len && mr_is_utf8(header.value.data, header.value.len));
        bool is_named = false;
        for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
            is_named |= mr_slice_equal(header.name, mr_slice_of(names[i]));
        }
        MR_ASSERT(is_named);
        for (size_t i = 0; i < header.value.len; i++) {
            MR_ASSERT(header.value.data[i] >= ' ' && header.value.data[i] != 0x7F);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_context(data, size);
    check_string(data, size);
    check_base64(data, size);
    check_number(data, size);
    return 0;
}
