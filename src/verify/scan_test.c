#include "verify/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "testing/test.h"

/* In memory of its own, so that a sanitizer sees a step beyond the end. */
static bool scan(const char *text, size_t len, struct mr_scanned *ret, uint8_t **ret_memory)
{
    *ret_memory = MR_ALLOC(len + 1);
    uint8_t *at = *ret_memory + 1;
    memcpy(at, text, len);
    return mr_scan_value((mr_slice){.data = at, .len = len}, ret);
}

static void test_value_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_scan_kind kind;
        const char *want;
    } cases[] = {
        {"null", MR_SCAN_NULL, "null"},
        {" true\n", MR_SCAN_TRUE, "true"},
        {"false", MR_SCAN_FALSE, "false"},
        {"-0.50e+10", MR_SCAN_NUMBER, "-0.50e+10"},
        {"12345678901234567890.1", MR_SCAN_NUMBER, "12345678901234567890.1"},
        {"0", MR_SCAN_NUMBER, "0"},
        {"\"a\\\"b\"", MR_SCAN_STRING, "a\\\"b"},
        {"{\"a\":[1,{}]} ", MR_SCAN_OBJECT, "{\"a\":[1,{}]}"},
        {"[]", MR_SCAN_ARRAY, "[]"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_scanned scanned;
        uint8_t *memory;
        assert_true(scan(cases[i].text, strlen(cases[i].text), &scanned, &memory));
        assert_int_equal(scanned.kind, cases[i].kind);
        assert_true(mr_slice_equal(scanned.text, mr_slice_of(cases[i].want)));
        free(memory);
    }
}

static void test_value_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",       " ",          "nul",   "nullx", "01",     "-",         "1.",
        ".5",     "1e",         "+1",    "\"",    "\"\\\"", "\"\\x\"",   "\"\\u12g4\"",
        "\"\n\"", "[1,]",       "[1 2]", "{",     "{1:2}",  "{\"a\"}",   "{\"a\":}",
        "{,}",    "{\"a\":1,}", "1 2",   "[",     "]",      "truefalse", "\"\\u00\"",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_scanned scanned;
        uint8_t *memory;
        assert_false(scan(cases[i], strlen(cases[i]), &scanned, &memory));
        free(memory);
    }
}

static void test_value_cut_at_every_byte(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1.5e3,\"\\ud83d\\ude00\",{\"b\":null}],\"c\":true}";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        struct mr_scanned scanned;
        uint8_t *memory;
        assert_false(scan(text, len, &scanned, &memory));
        free(memory);
    }
}

static void test_value_too_deep(void **state)
{
    (void)state;
    char *text = MR_ALLOC(100000);
    struct mr_scanned scanned;
    memset(text, '[', 100000);
    assert_false(mr_scan_value((mr_slice){.data = (uint8_t *)text, .len = 100000}, &scanned));
    free(text);
}

static void test_members_and_find(void **state)
{
    (void)state;
    mr_slice object = mr_slice_of("{ \"a\" : 1 , \"b\":{\"a\":2},\"c\":\"x\"}");
    struct mr_scanned name;
    struct mr_scanned value;
    struct mr_scan members = mr_scan_members(object);
    const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(mr_scan_member(&members, &name, &value));
        assert_true(mr_slice_equal(name.text, mr_slice_of(names[i])));
    }
    assert_false(mr_scan_member(&members, &name, &value));
    assert_false(members.failed);
    assert_true(mr_scan_find(object, "c", &value));
    assert_true(mr_slice_equal(value.text, mr_slice_of("x")));
    assert_false(mr_scan_find(object, "d", &value));
    assert_false(mr_scan_find(mr_slice_of("[1]"), "d", &value));
    members = mr_scan_members(mr_slice_of("{\"a\":1 \"b\":2}"));
    assert_true(mr_scan_member(&members, &name, &value));
    assert_false(mr_scan_member(&members, &name, &value));
    assert_true(members.failed);
}

static void test_unescape(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"\"\"", ""},
        {"\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "\b\f\n\r\t\"\\/"},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\ude00!\"", "\xf0\x9f\x98\x80!"},
        {"\"\\ud83d\"", "\xed\xa0\xbd"},
        {"\"\\ud83d\\u0041\"", "\xed\xa0\xbd"
                               "A"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_scanned scanned;
        assert_true(mr_scan_value(mr_slice_of(cases[i].text), &scanned));
        uint8_t *to = MR_ALLOC(scanned.text.len + 1);
        mr_slice got = {.data = to, .len = mr_scan_unescape(&scanned, to)};
        assert_true(mr_slice_equal(got, mr_slice_of(cases[i].want)));
        free(to);
    }
}

/* What is passed over ends at its bracket, whatever its strings have. */
static void test_shallow(void **state)
{
    (void)state;
    static const struct {
        const char *object, *passed; /* NULL: it fails */
    } cases[] = {
        {"{\"a\":{\"x\":\"}\\\"]\",\"y\":[[1],{}]},\"b\":1}", "{\"x\":\"}\\\"]\",\"y\":[[1],{}]}"},
        {"{\"a\":[\"\\\\\"],\"b\":1}", "[\"\\\\\"]"},
        {"{\"a\":{nonsense},\"b\":1}", "{nonsense}"},
        {"{\"a\":{},\"b\":1}", "{}"},
        {"{\"a\":{\"x\":1,\"b\":1}", NULL},
        {"{\"a\":{\"x", NULL},
        {"{\"a\":[", NULL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_scan scan = mr_scan_shallow(mr_slice_of(cases[i].object));
        struct mr_scanned name;
        struct mr_scanned value;
        bool has_a = mr_scan_member(&scan, &name, &value);
        mr_slice passed = value.text;
        bool has_b = has_a && mr_scan_member(&scan, &name, &value);
        assert_int_equal(has_b, cases[i].passed != NULL);
        if (has_b) {
            assert_true(mr_slice_equal(passed, mr_slice_of(cases[i].passed)));
            assert_true(mr_slice_equal(name.text, mr_slice_of("b")));
            assert_false(mr_scan_member(&scan, &name, &value) || scan.failed);
        }
    }
}

static uint64_t scan_test_draw(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1; /* Knuth's, without its lower half */
    return *random >> 33;
}

/* Appends an object or an array, of strings with all that could be taken for an end. */
static void add_nested(struct mr_text *text, uint64_t *random, int depth)
{
    static const char *const parts[] = {"}",    "]",        "{", "\\\\",
                                        "\\\"", "\\\\\\\"", "x", "some length"};
    bool is_object = (scan_test_draw(random) & 1) != 0;
    mr_text_string(text, is_object ? "{" : "[");
    uint64_t count = scan_test_draw(random) % 4;
    for (uint64_t i = 0; i < count; i++) {
        mr_text_format(text, "%s%s\"", i == 0 ? "" : ",", is_object ? "\"k\":" : "");
        for (uint64_t n = scan_test_draw(random) % 4; n > 0; n--) {
            mr_text_string(text, parts[scan_test_draw(random) % MR_ARRAY_LEN(parts)]);
        }
        mr_text_string(text, "\"");
        if (depth > 0 && scan_test_draw(random) % 2 == 0) {
            mr_text_string(text, is_object ? ",\"n\":" : ",");
            add_nested(text, random, depth - 1);
        }
    }
    mr_text_string(text, is_object ? "}" : "]");
}

static bool shallow(const char *text, size_t len, mr_slice *ret_passed)
{
    struct mr_scanned name;
    struct mr_scanned value;
    struct mr_scan scan = mr_scan_shallow((mr_slice){.data = (const uint8_t *)text, .len = len});
    bool has_a = mr_scan_member(&scan, &name, &value);
    *ret_passed = has_a ? value.text : (mr_slice){0};
    return has_a && mr_scan_member(&scan, &name, &value);
}

/* The other way to its end is the parser's, which reads all of it. */
static void test_shallow_ends_where_the_parser_does(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        struct mr_text text = {0};
        mr_text_string(&text, "{\"a\":");
        add_nested(&text, &random, 3);
        mr_text_string(&text, ",\"b\":1}");
        struct mr_scan scan = mr_scan_members(mr_slice_of(text.data));
        struct mr_scanned name;
        struct mr_scanned value;
        assert_true(mr_scan_member(&scan, &name, &value));
        mr_slice passed;
        assert_true(shallow(text.data, text.len, &passed));
        assert_true(mr_slice_equal(passed, value.text));
        /* Cut anywhere, in memory of that length. */
        size_t len = scan_test_draw(&random) % (text.len - strlen(",\"b\":1}"));
        char *cut = MR_ALLOC(len + 1);
        memcpy(cut + 1, text.data, len);
        assert_false(shallow(cut + 1, len, &passed));
        free(cut);
        mr_text_done(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_kinds),
        cmocka_unit_test(test_value_refused),
        cmocka_unit_test(test_value_cut_at_every_byte),
        cmocka_unit_test(test_value_too_deep),
        cmocka_unit_test(test_members_and_find),
        cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_shallow),
        cmocka_unit_test(test_shallow_ends_where_the_parser_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
