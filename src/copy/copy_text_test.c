#include "copy/copy_text.h"

#include <string.h>

#include "testing/test.h"

enum { VALUES_MAX = 4 };

struct row {
    const char *text;
    uint32_t count;
    const char *values[VALUES_MAX]; /* NULL: a null */
};

static void test_decode_takes_rows_apart(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"1\tAnne\n", 2, {"1", "Anne"}},
        {"1\tAnne", 2, {"1", "Anne"}},
        {"\\N\n", 1, {NULL}},
        {"\n", 1, {""}},
        {"\n", 0, {0}},
        {"\t\\N\t\n", 3, {"", NULL, ""}},
        {"\\\\N\n", 1, {"\\N"}},
        {"a\\tb\\nc\\\\d\t\\b\\f\\r\\v\n", 2, {"a\tb\nc\\d", "\b\f\r\v"}},
        {"\\\\\\\\\t\xc3\xa4\n", 2, {"\\\\", "\xc3\xa4"}},
        {"{\"a\": \"\\\\\"\"}\n", 1, {"{\"a\": \"\\\"\"}"}},
        {"\\\\x00ff\n", 1, {"\\x00ff"}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        uint8_t bytes[64];
        size_t len = strlen(rows[i].text);
        memcpy(bytes, rows[i].text, len);
        struct mr_datum values[VALUES_MAX];
        assert_true(mr_copy_text_decode(bytes, len, values, rows[i].count));
        for (uint32_t k = 0; k < rows[i].count; k++) {
            const char *expected = rows[i].values[k];
            assert_int_equal(values[k].kind, expected == NULL ? MR_DATUM_NULL : MR_DATUM_TEXT);
            if (expected != NULL) {
                assert_int_equal(values[k].len, strlen(expected));
                assert_memory_equal(values[k].data, expected, values[k].len);
            }
        }
    }
}

static void test_decode_refuses_what_no_server_writes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"1\n", 2, {0}},   {"1\t2\t3\n", 2, {0}}, {"a\\\n", 1, {0}},  {"a\\\tb\n", 2, {0}},
        {"\\x\n", 1, {0}}, {"x\n", 0, {0}},       {"\\N1\n", 1, {0}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        uint8_t bytes[64];
        size_t len = strlen(rows[i].text);
        memcpy(bytes, rows[i].text, len);
        struct mr_datum values[VALUES_MAX];
        assert_false(mr_copy_text_decode(bytes, len, values, rows[i].count));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_takes_rows_apart),
        cmocka_unit_test(test_decode_refuses_what_no_server_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
