/* Any bytes as a JSON string: the output is strict JSON, and unescaped it is the input with what is no UTF-8
 * replaced. The same for base64 and numbers, and for a buffer that is too small. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
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

    /* One byte short: it is said to be full, and nothing is written after the end (the sanitizer looks). */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_string(data, size);
    check_base64(data, size);
    check_number(data, size);
    return 0;
}
