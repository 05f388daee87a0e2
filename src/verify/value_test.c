#include "verify/value.h"

#include <string.h>

#include "testing/test.h"

static struct mr_verify_column value_test_column_of(enum mr_verify_leaf leaf,
                                                    enum mr_verify_shape shape)
{
    return (struct mr_verify_column){.key = {.low = 1, .high = 2},
                                     .form = {.leaf = leaf, .shape = shape, .scale = 2}};
}

static mr_slice text_or_null(const char *text)
{
    return text == NULL ? (mr_slice){0} : mr_slice_of(text);
}

static bool value_test_is_same(const struct mr_verify_column *column, const char *server,
                               const char *event, bool is_key)
{
    struct mr_scanned value;
    assert_true(mr_scan_value(mr_slice_of(event), &value));
    return mr_digest_equal(mr_verify_server_value(column, text_or_null(server), is_key),
                           mr_verify_event_value(column, &value, is_key));
}

struct same {
    const char *server; /* NULL: null */
    const char *event;
    bool want;
};

static void value_test_check(const struct mr_verify_column *column, const struct same *cases,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (value_test_is_same(column, cases[i].server, cases[i].event, false) != cases[i].want) {
            fail_msg("%s, %s", cases[i].server, cases[i].event);
        }
    }
}

static void check_as(enum mr_verify_leaf leaf, enum mr_verify_shape shape, const struct same *cases,
                     size_t count)
{
    struct mr_verify_column column = value_test_column_of(leaf, shape);
    value_test_check(&column, cases, count);
}

static void test_value_text(void **state)
{
    (void)state;
    static const struct same cases[] = {
        {"a", "\"a\"", true},    {"a", "\"b\"", false},
        {"1", "1", false},       {"t", "true", false},
        {NULL, "null", true},    {"", "null", false},
        {"null", "null", false}, {"\n\xc3\xa9", "\"\\n\\u00e9\"", true},
    };
    static const struct same bare[] = {
        {"1", "1", true},     {"1.50", "1.50", true}, {"1.5", "1.50", false},
        {"t", "true", true},  {"f", "false", true},   {"NaN", "\"NaN\"", true},
        {"1", "\"1\"", true}, {"0", "null", false},
    };
    check_as(MR_LEAF_TEXT, MR_SHAPE_LEAF, cases, MR_ARRAY_LEN(cases));
    check_as(MR_LEAF_BARE, MR_SHAPE_LEAF, bare, MR_ARRAY_LEN(bare));
}

/* As docs/types.md has it: a SQL_ASCII database alone has such text. */
static void test_value_text_that_is_not_utf8(void **state)
{
    (void)state;
    static const struct same refused[] = {{"\xff", "\"\xff\"", true},
                                          {"\xff", "{\"hex\":\"ff\"}", false}};
    static const struct same replaced[] = {
        {"a\xff\xfe", "\"a\xef\xbf\xbd\xef\xbf\xbd\"", true},
        {"\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"", true},
        {"\xc3\xa9", "\"\xc3\xa9\"", true},
        {"\xf0\x9f\x98\x80\xed\xa0\x80", "\"\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
         true},
        {"\xc0\x80", "\"\xef\xbf\xbd\"", false},
        {"\xff", "\"\xff\"", false},
    };
    static const struct same base64[] = {
        {"a\xff", "\"Yf8=\"", true}, {"a", "\"YQ==\"", false}, {"a", "\"a\"", true}};
    struct mr_verify_column column = value_test_column_of(MR_LEAF_TEXT, MR_SHAPE_LEAF);
    value_test_check(&column, refused, MR_ARRAY_LEN(refused));
    column.odd = MR_ODD_REPLACED;
    value_test_check(&column, replaced, MR_ARRAY_LEN(replaced));
    assert_true(value_test_is_same(&column, "\xff\x41", "{\"hex\":\"ff41\"}", true));
    assert_true(value_test_is_same(&column, "A", "\"A\"", true));
    assert_false(value_test_is_same(&column, "\xff\x41", "{\"hex\":\"ff4\"}", true));
    assert_false(value_test_is_same(&column, "\xff\x41", "{\"hex\":\"ffzz\"}", true));
    assert_false(value_test_is_same(&column, "\xff", "\"\xef\xbf\xbd\"", true));
    column.odd = MR_ODD_BASE64;
    value_test_check(&column, base64, MR_ARRAY_LEN(base64));
    assert_true(value_test_is_same(&column, "\xff", "{\"hex\":\"ff\"}", true));
}

static void test_reals(void **state)
{
    (void)state;
    static const struct same cases[] = {
        {"1", "1.0", true},
        {"1e+10", "1.0E10", true},
        {"0.1", "0.1", true},
        {"NaN", "\"NaN\"", true},
        {"Infinity", "\"Infinity\"", true},
        {"1", "\"1\"", false},
        {"-0", "-0.0", true},
        {"0", "-0.0", false},
        {"5e-324", "4.9E-324", true},
        {"1.5", "1.4999999999999998", false},
        {"Infinity", "\"-Infinity\"", false},
        {"NaN", "null", false},
    };
    static const struct same shorter[] = {
        {"1e-45", "1.4E-45", true}, {"3.3", "3.3", true}, {"3.3", "3.3000002", false}};
    check_as(MR_LEAF_REAL8, MR_SHAPE_LEAF, cases, MR_ARRAY_LEN(cases));
    check_as(MR_LEAF_REAL4, MR_SHAPE_LEAF, shorter, MR_ARRAY_LEN(shorter));
    char long_number[200];
    memset(long_number, '1', sizeof(long_number) - 1);
    long_number[sizeof(long_number) - 1] = '\0';
    const struct same many = {long_number, long_number, true};
    check_as(MR_LEAF_REAL8, MR_SHAPE_LEAF, &many, 1);
}

/* Values of docs/types.md, and the ends of bytes. */
static void test_decimals(void **state)
{
    (void)state;
    static const struct same cases[] = {
        {"1.10", "\"bg==\"", true},
        {"1.28", "\"AIA=\"", true},
        {"-1.28", "\"gA==\"", true},
        {"0.00", "\"AA==\"", true},
        {"0.01", "\"AQ==\"", true},
        {"-0.01", "\"/w==\"", true},
        {"100.00", "\"JxA=\"", true},
        {"-9.99", "\"/Bk=\"", true},
        {"NaN", "null", true},
        {"Infinity", "null", true},
        {NULL, "null", true},
        {"1.10", "\"bw==\"", false},
        {"1.10", "1.10", false},
        {"1.10", "\"1.10\"", false},
        {"1.28", "\"gA==\"", false},
        {"1234567890123456789012.00", "\"GiSbHxCgbJav0A==\"", true},
        {"1234567890123456789012.00", "\"GiSbHxCgbJav0Q==\"", false},
        {"-1234567890123456789012.00", "\"5dtk4O9fk2lQMA==\"", true},
        {"1.10", "{\"scale\":2,\"value\":\"bg==\"}", false},
    };
    static const struct same scaled[] = {
        {"10.1111", "{\"scale\":4,\"value\":\"AYr3\"}", true},
        {"10", "{\"scale\":0,\"value\":\"Cg==\"}", true},
        {"10.00", "{\"scale\":0,\"value\":\"Cg==\"}", true},
        {"100", "{\"scale\":0,\"value\":\"ZA==\"}", true},
        {"10", "{\"scale\":1,\"value\":\"Cg==\"}", false},
        {"10", "{\"scale\":0}", false},
        {"10", "\"Cg==\"", false},
        {"NaN", "null", true},
        {"0.000000000000000000000000000001", "{\"scale\":30,\"value\":\"AQ==\"}", true},
    };
    struct mr_verify_column column = value_test_column_of(MR_LEAF_DECIMAL, MR_SHAPE_LEAF);
    value_test_check(&column, cases, MR_ARRAY_LEN(cases));
    assert_true(value_test_is_same(&column, "NaN", "{\"text\":\"NaN\"}", true));
    assert_false(value_test_is_same(&column, "Infinity", "{\"text\":\"NaN\"}", true));
    column.form.is_scaled = true;
    value_test_check(&column, scaled, MR_ARRAY_LEN(scaled));
    column.form.leaf = MR_LEAF_BARE;
    struct mr_scanned value;
    assert_true(mr_scan_value(mr_slice_of("{\"text\":\"2500-01-01 00:00:00\"}"), &value));
    assert_true(mr_digest_equal(mr_verify_event_value(&column, &value, true),
                                mr_verify_key_text(&column, mr_slice_of("2500-01-01 00:00:00"))));
    assert_false(value_test_is_same(&column, NULL, "{\"text\":\"2500-01-01 00:00:00\"}", true));
}

static void test_trees(void **state)
{
    (void)state;
    static const struct same cases[] = {
        {"[1,2]", "[1, 2]", true},
        {"[1,2]", "[2,1]", false},
        {"[[1,2],[3,4]]", "[[1,2],[3,4]]", true},
        {"[[1,2],[3,4]]", "[1,2,3,4]", false},
        {"[[1,2],[3,4]]", "[[1],[2],[3],[4]]", false},
        {"[]", "[]", true},
        {"[]", "[null]", false},
        {"[null,\"a\"]", "[null,\"a\"]", true},
        {"{\"a\":1,\"b\":null}", "{\"b\":null,\"a\":1}", true},
        {"{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}", false},
        {"{\"a\":1}", "{\"a\":1,\"b\":1}", false},
        {NULL, "null", true},
        {NULL, "[]", false},
    };
    static const struct same inner[] = {
        {"{\"a\":\"1\",\"b\":null}", "\"{\\\"b\\\":null,\\\"a\\\":\\\"1\\\"}\"", true},
        {"{\"a\":\"1\"}", "\"{\\\"a\\\":\\\"2\\\"}\"", false},
        {"[{\"a\":\"1\"},null]", "[\"{\\\"a\\\":\\\"1\\\"}\",null]", true},
    };
    static const struct same decimals[] = {
        {"[1.10,null,22.22]", "[\"bg==\",null,\"CK4=\"]", true},
        {"[1.10,\"NaN\"]", "[\"bg==\",null]", true},
        {"[1.10]", "[\"bw==\"]", false},
    };
    check_as(MR_LEAF_BARE, MR_SHAPE_TREE, cases, MR_ARRAY_LEN(cases));
    check_as(MR_LEAF_TEXT, MR_SHAPE_INNER, inner, MR_ARRAY_LEN(inner));
    check_as(MR_LEAF_DECIMAL, MR_SHAPE_TREE, decimals, MR_ARRAY_LEN(decimals));
}

/* The server has all elements of an array in a row. */
static void test_flat(void **state)
{
    (void)state;
    static const struct same cases[] = {
        {"[1,null,3]", "[1,null,3]", true},
        {"[1,2,3,4]", "[[1,2],[3,4]]", true},
        {"[1,2,4,3]", "[[1,2],[3,4]]", false},
        {"[]", "[]", true},
        {"[1]", "[]", false},
        {NULL, "null", true},
    };
    check_as(MR_LEAF_BARE, MR_SHAPE_FLAT, cases, MR_ARRAY_LEN(cases));
}

/* Whether events have a type at all. One of a later version than those that are listed they have,
 * and nobody knows how. */
static void test_types_that_are_not_listed(void **state)
{
    (void)state;
    static const struct {
        struct mr_verify_type type;
        enum mr_verify_shape want;
    } cases[] = {
        {{"int4", 'b', true, false, -1}, MR_SHAPE_LEAF},
        {{"pg_lsn", 'b', true, false, -1}, MR_SHAPE_ABSENT},
        {{"pg_lsn", 'b', true, true, -1}, MR_SHAPE_ABSENT},
        {{"pg_class", 'c', true, false, -1}, MR_SHAPE_UNKNOWN},
        {{"new_in_20", 'b', true, true, -1}, MR_SHAPE_UNKNOWN},
        {{"cube", 'b', false, false, -1}, MR_SHAPE_ABSENT},
        {{"address", 'c', false, false, -1}, MR_SHAPE_ABSENT},
    };
    const struct mr_value_modes modes = {0};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        if (mr_verify_form_of(&modes, &cases[i].type, false).shape != cases[i].want) {
            fail_msg("%s", cases[i].type.name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_text),
        cmocka_unit_test(test_value_text_that_is_not_utf8),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_decimals),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_types_that_are_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
