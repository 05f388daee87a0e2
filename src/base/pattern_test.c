#include "base/pattern.h"

#include <string.h>

#include "testing/test.h"

static bool matches(const char *expression, const char *name)
{
    char reason[128];
    regex_t *regex = mr_regex_new(expression, reason, sizeof(reason));
    assert_non_null(regex);
    struct mr_pattern pattern = {.text = expression, .regex = regex};
    bool found = mr_pattern_matches(&pattern, mr_slice_of(name));
    mr_regex_free(regex);
    return found;
}

static void test_pattern_whole_names(void **state)
{
    (void)state;
    assert_true(matches("order_[0-9]+", "order_12"));
    assert_false(matches("order_[0-9]+", "order_12x"));
    assert_false(matches("order_[0-9]+", "my_order_12"));
    assert_true(matches("a|b", "b"));
    assert_false(matches("a|b", "ab")); /* the anchors hold for both */
    assert_true(matches(".*", ""));
    assert_true(matches("ž.*", "žž"));
    char longer[300];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_false(matches("a+", longer));
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

static void refused(const char *expression, const char *why)
{
    char reason[128] = "";
    assert_null(mr_regex_new(expression, reason, sizeof(reason)));
    assert_non_null(strstr(reason, why));
}

/* Each takes the C library's memory or stack. */
static void test_pattern_excess(void **state)
{
    (void)state;
    refused("((a{1,100}){1,100}){1,100}", "multiply");
    refused("(((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)", "multiply");
    refused("(a{50}[])}{]c){41}", "multiply"); /* a list's brackets and braces are its own */
    refused("a{99999999999999999999999}", "multiply");
    refused("(a)\\1", "refers back");
    char text[60001];
    memset(text, '(', 30000);
    memset(text + 30000, ')', 30000);
    text[60000] = '\0';
    refused(text, "nested");
    memset(text, 'a', 60000);
    refused(text, "too long");
    refused("((.?)+){1,16}", "nothing");
    refused("(.*)*(.*)*(.*)*(.*)*(.*)*(.*)*(.*)*", "nothing");
    refused("(a|){2}", "nothing");
    refused("(|a)+", "nothing");
    refused("(a{0,5})*", "nothing");
    refused("(a{,5}b?c*^$\\b()?)+", "nothing");
    refused("(a*|b)?", "nothing");
    refused(".{0,600}", "multiply");
    assert_true(
        matches("(a*b?c|d+)*(e?f)?.*", "ccddf")); /* each can be nothing, but not what it repeats */
    assert_true(matches("orders(_[0-9]+)?(_(old|new)*x)?", "orders_12_oldx"));
    assert_true(matches("(a{0,5}b)*", "abb"));
    assert_true(matches("(((([[:alpha:]_]{1,63}))))[.]((a|b)+c{0,5}){1,20}", "x_y.acbccb"));
    assert_true(matches("a[^]{]{2}\\(", "axx("));
    assert_true(matches("[[:digit:]]+\\{", "12{"));
    refused("a[", "");
    refused("a\\", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pattern_whole_names), cmocka_unit_test(test_pattern_names),
        cmocka_unit_test(test_pattern_excess), cmocka_unit_test(test_pattern_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
