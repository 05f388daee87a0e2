#include "base/secret.h"

#include <stdio.h>

#include "testing/test.h"

struct heard {
    unsigned times;
    char text[16];
};

static void secret_test_hear(void *context, const char *text)
{
    struct heard *heard = context;
    heard->times++;
    snprintf(heard->text, sizeof(heard->text), "%s", text);
}

static void test_take_is_a_copy(void **state)
{
    (void)state;
    struct mr_secret *secret = mr_secret_new(MR_STRDUP("one"));
    char *before = mr_secret_take(secret);
    assert_true(mr_secret_change(secret, "two"));
    char *after = mr_secret_take(secret);
    assert_string_equal(before, "one");
    assert_string_equal(after, "two");
    mr_secret_forget(before);
    mr_secret_forget(after);
    mr_secret_free(secret);
}

static void test_listen_hears_of_now_and_of_each_change(void **state)
{
    (void)state;
    struct mr_secret *secret = mr_secret_new(MR_STRDUP("one"));
    struct heard heard = {0};
    mr_secret_listen(secret, secret_test_hear, &heard);
    assert_string_equal(heard.text, "one");
    assert_false(mr_secret_change(secret, "one"));
    assert_int_equal(heard.times, 1);
    assert_true(mr_secret_change(secret, "two"));
    assert_string_equal(heard.text, "two");
    mr_secret_listen(secret, NULL, NULL);
    assert_true(mr_secret_change(secret, "three"));
    assert_int_equal(heard.times, 2);
    mr_secret_free(secret);
}

static bool make_two(void *context)
{
    return mr_secret_change(context, "two");
}

static void test_who_keeps_it_looks_each_time_that_it_is_taken(void **state)
{
    (void)state;
    struct mr_secret *secret = mr_secret_new(MR_STRDUP("one"));
    assert_false(mr_secret_look(secret));
    mr_secret_keep(secret, make_two, secret);
    char *text = mr_secret_take(secret);
    assert_string_equal(text, "two");
    assert_false(mr_secret_look(secret));
    mr_secret_forget(text);
    mr_secret_free(secret);
}

static void test_none(void **state)
{
    (void)state;
    assert_null(mr_secret_take(NULL));
    assert_false(mr_secret_look(NULL));
    mr_secret_listen(NULL, secret_test_hear, NULL);
    mr_secret_forget(NULL);
    mr_secret_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_is_a_copy),
        cmocka_unit_test(test_listen_hears_of_now_and_of_each_change),
        cmocka_unit_test(test_who_keeps_it_looks_each_time_that_it_is_taken),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
