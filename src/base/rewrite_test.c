#include "base/rewrite.h"

#include "testing/test.h"

static void assert_rewritten(const char *expression, const char *replacement, const char *name,
                             const char *want)
{
    struct mr_rewrite rewrite;
    char reason[128];
    uint8_t bytes[64];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    assert_true(mr_rewrite_init(&rewrite, expression, replacement, reason, sizeof(reason)));
    assert_true(mr_rewrite_apply(&rewrite, mr_slice_of(name), &out));
    assert_int_equal(out.at - bytes, strlen(want));
    assert_memory_equal(bytes, want, strlen(want));
    mr_rewrite_done(&rewrite);
}

static void test_rewrite_groups(void **state)
{
    (void)state;
    assert_rewritten("(.*)", "event.$1", "order", "event.order");
    assert_rewritten("(.*)", "event.$1", "", "event.");
    assert_rewritten("(.*)-v[0-9]+", "$1", "order-v2", "order");
    assert_rewritten("(.*)-v[0-9]+", "$1", "order", "order"); /* does not match: stays */
    assert_rewritten("order", "x", "orders", "orders");       /* all of it must */
    assert_rewritten("(a)|(b)", "[$1$2$0]", "b", "[bb]");
    assert_rewritten("(.)(.)(.)(.)(.)(.)(.)(.)(.)", "$9$1", "abcdefghi", "ia");
    assert_rewritten("(.*)", "\\$1\\\\$1", "a", "$1\\a");
    assert_rewritten("(?<a>.)-(?<b>.)", "${b}.${a}$1", "x-y", "y.xx");
}

static void test_rewrite_init_refuses(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"(", "x"},  {"(.*)", "$2"},      {"(.*)", "a$"},
                                           {"x", "$1"}, {"(.*)", "${name}"}, {"(?<n>.*)", "${n"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        struct mr_rewrite rewrite;
        char reason[256] = "";
        assert_false(mr_rewrite_init(&rewrite, wrong[i][0], wrong[i][1], reason, sizeof(reason)));
        assert_true(reason[0] != '\0');
        assert_true(i == 0 || strstr(reason, "which has $0 to $") != NULL);
    }
}

static void test_rewrite_apply_limits(void **state)
{
    (void)state;
    struct mr_rewrite rewrite;
    char reason[128];
    uint8_t bytes[8], long_name[MR_REWRITE_BYTES_MAX + 1];
    memset(long_name, 'a', sizeof(long_name));
    assert_true(mr_rewrite_init(&rewrite, "(.*)", "$1$1", reason, sizeof(reason)));
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    assert_false(mr_rewrite_apply(&rewrite, MR_SLICE("abcde"), &out));
    out = mr_buffer_init(bytes, sizeof(bytes));
    assert_false(
        mr_rewrite_apply(&rewrite, (mr_slice){.data = long_name, .len = sizeof(long_name)}, &out));
    out = mr_buffer_init(bytes, sizeof(bytes));
    assert_false(mr_rewrite_apply(&rewrite, MR_SLICE("a\0b"), &out));
    mr_rewrite_done(&rewrite);
    assert_true(mr_rewrite_init(&rewrite, "(a|aa)+[!?]", "x", reason, sizeof(reason)));
    out = mr_buffer_init(bytes, sizeof(bytes));
    assert_false(mr_rewrite_apply(&rewrite, (mr_slice){.data = long_name, .len = 200}, &out));
    mr_rewrite_done(&rewrite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewrite_groups),
        cmocka_unit_test(test_rewrite_init_refuses),
        cmocka_unit_test(test_rewrite_apply_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
