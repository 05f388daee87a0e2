#include "verify/avro_read.h"

#include <stdio.h>
#include <string.h>

#include "testing/test.h"

#define MANY "{\"type\":\"array\",\"items\":[\"null\",\"long\"]}"
#define TWICE                                                                                      \
    "{\"type\":\"record\",\"name\":\"E\",\"namespace\":\"a.b\",\"fields\":[{\"name\":\"before\","  \
    "\"type\":[\"null\",{\"type\":\"record\",\"name\":\"V\",\"fields\":[{\"name\":\"id\","         \
    "\"type\":{\"type\":\"int\",\"connect.name\":\"io.debezium.time.Date\"}}]}]},"                 \
    "{\"name\":\"after\",\"type\":[\"null\",\"V\"]},{\"name\":\"op\",\"type\":\"string\"}]}"

/* Bytes by hand, after the specification. */
static const struct {
    const char *schema;
    const char *hex;
    const char *json; /* NULL: these are no value of it */
} cases[] = {
    {"\"null\"", "", "null"},
    {"\"boolean\"", "01", "true"},
    {"\"boolean\"", "02", NULL},
    {"\"int\"", "01", "-1"},
    {"\"int\"", "8001", "64"},
    {"\"long\"", "feffffffffffffffff01", "9223372036854775807"},
    {"\"long\"", "ffffffffffffffffff01", "-9223372036854775808"},
    {"\"long\"", "80", NULL},
    {"\"long\"", "ffffffffffffffffffff01", NULL},
    {"\"float\"", "0000c03f", "1.5"},
    {"\"double\"", "9a9999999999b93f", "0.10000000000000001"},
    {"\"double\"", "000000000000f87f", "\"NaN\""},
    {"\"double\"", "000000000000f0ff", "\"-Infinity\""},
    {"\"double\"", "0000", NULL},
    {"\"bytes\"", "00", "\"\""},
    {"\"bytes\"", "0200", "\"AA==\""},
    {"\"bytes\"", "0400ff", "\"AP8=\""},
    {"\"bytes\"", "06fbefff", "\"++//\""},
    {"\"string\"", "06610a22", "\"a\\u000a\\u0022\""},
    {"\"string\"", "06c3a961",
     "\"\xc3\xa9"
     "a\""},
    {"\"string\"", "0561", NULL},
    {"\"string\"", "0461", NULL},
    {MANY, "00", "[]"},
    {MANY, "0400020200", "[null,1]"},
    {MANY, "03060002020000", NULL},
    {MANY,
     "0306000202"
     "00",
     "[null,1]"},
    {MANY, "feffffffffffffffff0100", NULL},
    {"{\"type\":\"map\",\"values\":\"int\"}", "02026b0200", "{\"k\":1}"},
    {TWICE, "00020e0263", "{\"before\":null,\"after\":{\"id\":7},\"op\":\"c\"}"},
    {TWICE, "00040e0263", NULL},
    {TWICE, "00020e026300", NULL},
    {"{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"r\",\"type\":\"R\"}]}", "", NULL},
    {"{\"type\":\"enum\",\"name\":\"e\",\"symbols\":[\"A\"]}", "00", NULL},
    {"[\"null\",\"unknown\"]", "00", NULL},
    {"no JSON", "00", NULL},
};

static void test_avro_read_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        uint8_t bytes[64];
        size_t len = strlen(cases[i].hex) / 2;
        for (size_t j = 0; j < len; j++) {
            unsigned byte;
            assert_int_equal(sscanf(cases[i].hex + 2 * j, "%2x", &byte), 1);
            bytes[j] = (uint8_t)byte;
        }
        struct mr_text text = {0};
        bool good = mr_avro_text(cases[i].schema, (mr_slice){.data = bytes, .len = len}, &text);
        if (good != (cases[i].json != NULL)) {
            fail_msg("case %zu: %s", i, good ? text.data : "no value");
        }
        if (good) {
            assert_string_equal(text.data, cases[i].json);
        }
        mr_text_done(&text);
    }
}

/* Cut at every byte. */
static void test_text_cut(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {2, 14, 2, 16, 2, 'u'};
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        struct mr_text text = {0};
        mr_slice part = {.data = bytes, .len = len};
        assert_int_equal(mr_avro_text(TWICE, part, &text), len == sizeof(bytes));
        mr_text_done(&text);
    }
}

/* What takes no bytes: a thousand million nulls, and records of records of records of nothing, 24
 * times twice as many. */
static void test_text_is_bounded(void **state)
{
    (void)state;
    static const uint8_t many[] = {0x80, 0xa8, 0xd6, 0xb9, 0x07, 0};
    struct mr_text schema = {0}, text = {0};
    assert_false(mr_avro_text("{\"type\":\"array\",\"items\":\"null\"}",
                              (mr_slice){.data = many, .len = sizeof(many)}, &text));
    assert_in_range(text.len, 1, 4 << 20);
    for (int i = 0; i < 24; i++) {
        mr_text_format(
            &schema,
            "{\"type\":\"record\",\"name\":\"R%d\",\"fields\":[{\"name\":\"a\",\"type\":", i);
    }
    mr_text_string(&schema, "\"null\"");
    for (int i = 23; i >= 0; i--) {
        char again[16];
        snprintf(again, sizeof(again), i == 23 ? "null" : "R%d", i + 1);
        mr_text_format(&schema, "},{\"name\":\"b\",\"type\":\"%s\"}]}", again);
    }
    assert_false(mr_avro_text(schema.data, (mr_slice){.data = many, .len = 0}, &text));
    assert_in_range(text.len, 1, 4 << 20);
    mr_text_done(&schema);
    mr_text_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avro_read_text),
                                       cmocka_unit_test(test_text_cut),
                                       cmocka_unit_test(test_text_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
