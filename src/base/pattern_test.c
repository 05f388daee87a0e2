#include "base/pattern.h"

#include <string.h>

#include "testing/test.h"

static bool pattern_test_matches(const char *expression, const char *name)
{
    char reason[128];
    struct mr_regex *regex = mr_regex_new(expression, reason, sizeof(reason));
    assert_non_null(regex);
    struct mr_pattern pattern = {.text = expression, .regex = regex};
    bool found = mr_pattern_matches(&pattern, mr_slice_of(name));
    mr_regex_free(regex);
    return found;
}

static void test_pattern_whole_names(void **state)
{
    (void)state;
    assert_true(pattern_test_matches("order_[0-9]+", "order_12"));
    assert_false(pattern_test_matches("order_[0-9]+", "order_12x"));
    assert_false(pattern_test_matches("order_[0-9]+", "my_order_12"));
    assert_true(pattern_test_matches("a|b", "b"));
    assert_false(pattern_test_matches("a|b", "ab")); /* the anchors hold for both */
    assert_true(pattern_test_matches(".*", ""));
    assert_true(pattern_test_matches("ž.*", "žž"));
}

static void test_pattern_names(void **state)
{
    (void)state;
    struct mr_pattern any = {0};
    struct mr_pattern name = {.text = "a.*"};
    assert_true(mr_pattern_matches(&any, MR_SLICE("x")));
    assert_true(mr_pattern_matches(&name, MR_SLICE("a.*")));
    assert_false(mr_pattern_matches(&name, MR_SLICE("ab")));
    struct mr_table_pattern tables[] = {{.schema = name}, {.schema = any, .table = name}};
    assert_true(mr_table_patterns_match(tables, 2, MR_SLICE("a.*"), MR_SLICE("t")));
    assert_true(mr_table_patterns_match(tables, 2, MR_SLICE("s"), MR_SLICE("a.*")));
    assert_false(mr_table_patterns_match(tables, 2, MR_SLICE("s"), MR_SLICE("t")));
    assert_false(mr_table_patterns_match(tables, 0, MR_SLICE("s"), MR_SLICE("t")));
}

static void test_pattern_wrong(void **state)
{
    (void)state;
    char reason[128] = "";
    assert_null(mr_regex_new("a[", reason, sizeof(reason)));
    assert_string_not_equal(reason, "");
}

static void pattern_test_refused(const char *expression, const char *why)
{
    char reason[128] = "";
    assert_null(mr_regex_new(expression, reason, sizeof(reason)));
    assert_non_null(strstr(reason, why));
}

/* What takes more memory, stack or time than a name is worth. */
static void test_pattern_excess(void **state)
{
    (void)state;
    pattern_test_refused("((a{1,200}){1,200}){1,200}", "too large");
    pattern_test_refused("(a)\\2", "non-existent");
    char text[60001];
    memset(text, '(', 30000);
    memset(text + 30000, ')', 30000);
    text[60000] = '\0';
    pattern_test_refused(text, "longer");
    text[100] = '\0';
    memset(text + 50, ')', 50);
    pattern_test_refused(text, "nested");
    pattern_test_refused("a[", "missing");
    pattern_test_refused("a\\", "end of pattern");
    pattern_test_refused("\\C", "disabled");
}

static enum mr_regex_result match(const char *expression, const char *name, mr_slice *ret_groups)
{
    char reason[128];
    struct mr_regex *regex = mr_regex_new(expression, reason, sizeof(reason));
    assert_non_null(regex);
    enum mr_regex_result result = mr_regex_match(regex, mr_slice_of(name), ret_groups);
    mr_regex_free(regex);
    return result;
}

/* An expression whose time doubles with each character ends, and says that it did not find out. */
static void test_regex_match_too_long(void **state)
{
    (void)state;
    char name[128];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(match("(a|aa)+[!?]", name, NULL), MR_REGEX_TOO_LONG);
    assert_int_equal(match("(?:(?:.?)+){1,16}[!?]", name, NULL), MR_REGEX_TOO_LONG);
    assert_int_equal(match("(?R)", name, NULL), MR_REGEX_TOO_LONG);
    assert_int_equal(match("(a*)*", name, NULL), MR_REGEX_YES);
}

/* Java's: classes, look-around, names, and characters rather than bytes. */
static void test_regex_match_java(void **state)
{
    (void)state;
    mr_slice groups[MR_REGEX_GROUPS_MAX + 1];
    assert_true(pattern_test_matches("\\w+\\.(?!tmp_)[\\w.-]+", "shop.orders"));
    assert_false(pattern_test_matches("\\w+\\.(?!tmp_)[\\w.-]+", "shop.tmp_orders"));
    assert_true(pattern_test_matches("(?i)ORDERS", "orders"));
    assert_true(pattern_test_matches("ž{2}", "žž"));
    assert_true(pattern_test_matches("a.b", "a\nb"));
    assert_false(pattern_test_matches(".*", "a\xff"));
    assert_int_equal(match("(a)|(?<n>b)", "b", groups), MR_REGEX_YES);
    assert_null(groups[1].data);
    assert_true(mr_slice_equal(groups[2], MR_SLICE("b")));
    assert_int_equal(match("(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)", "abcdefghijk", groups),
                     MR_REGEX_YES);
    assert_true(mr_slice_equal(groups[9], MR_SLICE("i")));
}

static void test_regex_group_named(void **state)
{
    (void)state;
    char reason[128];
    struct mr_regex *regex = mr_regex_new("(.)(?<two>.)", reason, sizeof(reason));
    assert_int_equal(mr_regex_group_count(regex), 2);
    assert_int_equal(mr_regex_group_named(regex, MR_SLICE("two")), 2);
    assert_int_equal(mr_regex_group_named(regex, MR_SLICE("three")), -1);
    mr_regex_free(regex);
}

static void test_table_name_split(void **state)
{
    (void)state;
    static const char *const samples[][3] = {
        {"orders", "public", "orders"},
        {"Mixed", "public", "Mixed"},
        {"s.t", "s", "t"},
        {"public.\"a:b\"", "public", "a:b"},
        {"\"my.s\".\"a.b\"", "my.s", "a.b"},
        {"\"a\"\"b\"", "public", "a\"b"},
        {"s.\"\"", NULL, NULL},
        {"s.\"t", NULL, NULL},
        {"", NULL, NULL},
        {".t", NULL, NULL},
        {"\"Ж*\".\"a\\\"", "Ж*", "a\\"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(samples); i++) {
        MR_FREED char *text = MR_STRDUP(samples[i][0]);
        const char *schema, *table;
        bool good = mr_table_name_split(text, &schema, &table);
        assert_int_equal(good, samples[i][1] != NULL);
        if (good) {
            assert_string_equal(schema, samples[i][1]);
            assert_string_equal(table, samples[i][2]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pattern_whole_names),  cmocka_unit_test(test_pattern_names),
        cmocka_unit_test(test_pattern_excess),       cmocka_unit_test(test_pattern_wrong),
        cmocka_unit_test(test_regex_match_too_long), cmocka_unit_test(test_regex_match_java),
        cmocka_unit_test(test_regex_group_named),    cmocka_unit_test(test_table_name_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
