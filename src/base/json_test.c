#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

#include "testing/test.h"

/* What mr_json_escaped should write, byte by byte and slowly. */
static size_t reference(const uint8_t *text, size_t len, uint8_t *to)
{
    size_t at = 0;
    for (size_t i = 0; i < len;) {
        size_t sequence = mr_utf8_sequence(text + i, len - i);
        if (sequence == 0) {
            at += (size_t)sprintf((char *)to + at, "\xEF\xBF\xBD");
            i++;
        } else if (text[i] == '"' || text[i] == '\\') {
            at += (size_t)sprintf((char *)to + at, "\\%c", text[i++]);
        } else if (text[i] >= 0x20) {
            memcpy(to + at, text + i, sequence);
            at += sequence;
            i += sequence;
        } else {
            const char *short_form = memchr("\b\t\n\f\r", text[i], 5);
            static const char letters[] = "btnfr";
            if (short_form != NULL) {
                const char *all = "\b\t\n\f\r";
                at += (size_t)sprintf((char *)to + at, "\\%c", letters[strchr(all, text[i]) - all]);
            } else {
                at += (size_t)sprintf((char *)to + at, "\\u%04X", text[i]);
            }
            i++;
        }
    }
    return at;
}

static void assert_escapes(const uint8_t *text, size_t len)
{
    uint8_t want[1024], got[1024];
    size_t want_len = reference(text, len, want);
    /* The input in a block of its own, so that a sanitizer sees a read past its end. */
    uint8_t *copy = malloc(len == 0 ? 1 : len);
    memcpy(copy, text, len);
    struct mr_buffer out = mr_buffer_init(got, sizeof(got));
    mr_json_escaped(&out, copy, len);
    assert_false(out.full);
    assert_int_equal(out.at - got, want_len);
    assert_memory_equal(got, want, want_len);
    out = mr_buffer_init(got, sizeof(got));
    mr_json_plain(&out, copy, len);
    free(copy);
    assert_int_equal(out.at - got, want_len + 2);
    assert_true(got[0] == '"' && got[want_len + 1] == '"');
    assert_memory_equal(got + 1, want, want_len);
}

static void test_escaped_each_byte_at_each_offset(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        for (size_t offset = 0; offset <= 40; offset++) {
            uint8_t text[48];
            memset(text, 'a', sizeof(text));
            text[offset] = (uint8_t)byte;
            assert_escapes(text, sizeof(text));
            assert_escapes(text, offset + 1);
        }
    }
}

static void test_escaped_random_text(void **state)
{
    (void)state;
    uint32_t random = 12345;
    static const uint8_t alphabet[] = {'a',  '"',  '\\', '\n', 1,    0xC3, 0xA9, 0xE6, 0xBC, 0xA2,
                                       0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xFF, 'z',  ' ',  '0'};
    for (int round = 0; round < 20000; round++) {
        uint8_t text[100];
        size_t len = 0;
        random = random * 1664525 + 1013904223;
        size_t want = (random >> 16) % sizeof(text);
        while (len < want) {
            random = random * 1664525 + 1013904223;
            text[len++] = alphabet[(random >> 16) % sizeof(alphabet)];
        }
        assert_escapes(text, len);
    }
}

static void test_utf8_sequence_table(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        {"a", 1},
        {"\xC3\xA9", 2},
        {"\xE6\xBC\xA2", 3},
        {"\xF0\x9F\x98\x80", 4},
        {"\xF4\x8F\xBF\xBF", 4}, /* U+10FFFF */
        {"\xF4\x90\x80\x80", 0}, /* above */
        {"\xC0\x80", 0},         /* overlong */
        {"\xC1\xBF", 0},
        {"\xE0\x9F\xBF", 0},
        {"\xF0\x8F\xBF\xBF", 0},
        {"\xED\xA0\x80", 0}, /* surrogate */
        {"\xED\x9F\xBF", 3},
        {"\xC3", 0}, /* cut */
        {"\xE6\xBC", 0},
        {"\xF0\x9F\x98", 0},
        {"\x80", 0},
        {"\xFF", 0},
        {"\xC3\x28", 0},
        {"\xE6\x28\xA2", 0},
        {"\xF0\x9F\x28\x80", 0},
        {"\xF5\x80\x80\x80", 0},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        const uint8_t *text = (const uint8_t *)cases[i].text;
        assert_int_equal(mr_utf8_sequence(text, strlen(cases[i].text)), cases[i].len);
    }
    assert_int_equal(mr_utf8_sequence(NULL, 0), 0);
}

static void test_string_never_writes_past_the_end(void **state)
{
    (void)state;
    static const uint8_t text[] = "plain text that is long enough \"\\\n\x01\xC3\xA9\xFF end";
    uint8_t whole[256];
    struct mr_buffer out = mr_buffer_init(whole, sizeof(whole));
    mr_json_string(&out, text, sizeof(text) - 1);
    size_t needed = (size_t)(out.at - whole);
    for (size_t size = 0; size <= needed; size++) {
        uint8_t *room = malloc(size == 0 ? 1 : size);
        out = mr_buffer_init(room, size);
        mr_json_string(&out, text, sizeof(text) - 1);
        assert_int_equal(out.full, size < needed);
        free(room);
    }
}

static void assert_number(int64_t value, const char *text)
{
    uint8_t bytes[32];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_json_i64(&out, value);
    assert_int_equal(out.at - bytes, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static void test_numbers(void **state)
{
    (void)state;
    assert_number(0, "0");
    assert_number(7, "7");
    assert_number(-1, "-1");
    assert_number(INT64_MAX, "9223372036854775807");
    assert_number(INT64_MIN, "-9223372036854775808");
    uint8_t bytes[32];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_json_u64(&out, UINT64_MAX);
    assert_memory_equal(bytes, "18446744073709551615", 20);
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"", "\"\""},
                                           {"f", "\"Zg==\""},
                                           {"fo", "\"Zm8=\""},
                                           {"foo", "\"Zm9v\""},
                                           {"foob", "\"Zm9vYg==\""},
                                           {"fooba", "\"Zm9vYmE=\""},
                                           {"foobar", "\"Zm9vYmFy\""}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        uint8_t bytes[64];
        struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
        mr_json_base64(&out, (const uint8_t *)cases[i][0], strlen(cases[i][0]));
        assert_int_equal(out.at - bytes, strlen(cases[i][1]));
        assert_memory_equal(bytes, cases[i][1], strlen(cases[i][1]));
    }
}

/* Of a text with bytes that are no UTF-8 all is, wherever they stand; others stay as they are. */
static void test_bytes_as_base64(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"\xff", "\"/w==\""},
                                           {"a\"\n\xC3\xA9\xffz", "\"YSIKw6n/eg==\""},
                                           {"\xE2\x82", "\"4oI=\""},
                                           {"a\"\xC3\xA9", "\"a\\\"\xC3\xA9\""}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        uint8_t bytes[64];
        struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
        out.bytes_as_base64 = true;
        mr_json_string(&out, (const uint8_t *)cases[i][0], strlen(cases[i][0]));
        assert_int_equal(out.at - bytes, strlen(cases[i][1]));
        assert_memory_equal(bytes, cases[i][1], strlen(cases[i][1]));
        assert_int_equal(out.met_bytes, i < 3);
        assert_int_equal(mr_is_utf8((const uint8_t *)cases[i][0], strlen(cases[i][0])), i == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escaped_each_byte_at_each_offset),
        cmocka_unit_test(test_escaped_random_text),
        cmocka_unit_test(test_utf8_sequence_table),
        cmocka_unit_test(test_bytes_as_base64),
        cmocka_unit_test(test_string_never_writes_past_the_end),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
