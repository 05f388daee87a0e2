#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "copy/copy_stored.h"

static const char whole[] =
    "\"1f000000a0 2 1b 4c4b40 d4000,1,fffb000,t5000,6001;0-80;12340007-0t5001,6002\"";

static void test_format_gives_back_what_was_parsed(void **state)
{
    (void)state;
    struct mr_copy_stored *copy = mr_copy_stored_parse(whole);
    assert_non_null(copy);
    assert_int_equal(copy->lsn, 0x1f000000a0);
    assert_int_equal(copy->attempt, 2);
    assert_int_equal(copy->step, 0x1b);
    assert_int_equal(copy->rows, 5000000);
    assert_true(mr_copy_stored_is_done(copy, 0x4000) && mr_copy_stored_is_done(copy, 0x4001) &&
                mr_copy_stored_is_done(copy, 0xffff001));
    assert_false(mr_copy_stored_is_done(copy, 0x5000) || mr_copy_stored_is_done(copy, 1));
    const struct mr_copy_part *part = mr_copy_stored_part(copy, 0x5000);
    assert_non_null(part);
    assert_int_equal(part->filenode, 0x6001);
    assert_int_equal(part->range_count, 2);
    assert_int_equal(part->ranges[0].end, 0x80);
    assert_int_equal(part->ranges[1].after, mr_copy_place(0x1234, 7));
    assert_int_equal(mr_copy_stored_part(copy, 0x5001)->range_count, 0);
    assert_null(mr_copy_stored_part(copy, 0x4000));
    char *text = mr_copy_stored_format(copy);
    assert_string_equal(text, whole);
    free(text);
    mr_copy_stored_free(copy);
}

/* Cut anywhere it is no such text, or says less; whatever it is, it does no harm. */
static void test_parse_refuses_what_is_none(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "\"1 2 3 4\"",
        "\"1 2 3 4 d5\"",
        "\"1 2 3 4 dt\"",
        "\"1 2 3 4 dt5\"",
        "\"1 2 3 4 dt5,6;7\"",
        "\"1 2 3 4 dt5,6;7-\"",
        "\"1 2 3 4 dt5,6;7-8 \"",
        "\"1 2 3 4 d5,ffffffff,\"",
        "\"1 100000000 3 4 d\"",
        "\"10000000000000000 2 3 4 d\"",
        "\"G 2 3 4 d\"",
        "1 2 3 4 d",
        "5",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        assert_null(mr_copy_stored_parse(wrong[i]));
    }
    for (size_t len = 0; len < sizeof(whole); len++) {
        char *cut = MR_NEW_ARRAY(char, len + 1);
        memcpy(cut, whole, len);
        mr_copy_stored_free(mr_copy_stored_parse(cut));
        free(cut);
    }
}

static void test_rank_grows_with_attempt_and_step(void **state)
{
    (void)state;
    struct mr_section_rank rank;
    assert_true(mr_copy_stored_rank("\"5 2 7 0 d\"", &rank));
    assert_int_equal(rank.begins, 5);
    assert_int_equal(rank.major, 2);
    assert_int_equal(rank.minor, 7);
    assert_false(rank.no_stream);
    assert_true(mr_copy_only_rank("true", &rank));
    assert_true(rank.no_stream);
    assert_false(mr_copy_stored_rank("true", &rank));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_gives_back_what_was_parsed),
        cmocka_unit_test(test_parse_refuses_what_is_none),
        cmocka_unit_test(test_rank_grows_with_attempt_and_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
