#include "event/lsn.h"

#include "testing/test.h"

static void test_lsn_parse(void **state)
{
    (void)state;
    mr_lsn lsn = 7;
    assert_true(mr_lsn_parse("16/B374D848", &lsn, NULL));
    assert_int_equal(lsn, UINT64_C(0x16B374D848));
    assert_true(mr_lsn_parse("ffffffff/00000000", &lsn, NULL));
    assert_int_equal(lsn, UINT64_C(0xffffffff00000000));
    assert_true(mr_lsn_parse("0/0", &lsn, NULL));
    assert_int_equal(lsn, 0);
}

static void test_shift_there_and_back(void **state)
{
    (void)state;
    assert_int_equal(mr_lsn_of_server(5), 5);
    assert_int_equal(mr_lsn_at_server(5), 5);
    mr_lsn_shift = UINT64_C(1) << 40;
    assert_int_equal(mr_lsn_of_server(5), (UINT64_C(1) << 40) + 5);
    assert_int_equal(mr_lsn_at_server((UINT64_C(1) << 40) + 5), 5);
    assert_int_equal(mr_lsn_of_server(0), 0); /* nothing is known */
    assert_int_equal(mr_lsn_at_server(0), 0);
    assert_int_equal(mr_lsn_at_server(UINT64_C(1) << 40), 0); /* of the cluster before */
    assert_int_equal(mr_lsn_at_server(1), 0);
    mr_lsn_shift = 0;
}

static void test_parse_leaves_a_rest(void **state)
{
    (void)state;
    mr_lsn lsn;
    const char *rest;
    assert_true(mr_lsn_parse("0/A:3", &lsn, &rest));
    assert_int_equal(lsn, 10);
    assert_string_equal(rest, ":3");
}

static void test_parse_refuses(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",     "/",    "1/",    "/1",          " 1/1",
                                        "1/ 1", "1 /1", "-1/1",  "1/+1",        "0x1/1",
                                        "1/1 ", "1/1g", "1//1",  "123456789/1", "1/123456789",
                                        "1-1",  "g/1",  "1/1/1", "NULL"};
    mr_lsn lsn = 7;
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        if (mr_lsn_parse(wrong[i], &lsn, NULL)) {
            fail_msg("\"%s\" was taken", wrong[i]);
        }
    }
    assert_false(mr_lsn_parse(NULL, &lsn, NULL));
    assert_int_equal(lsn, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lsn_parse),
        cmocka_unit_test(test_shift_there_and_back),
        cmocka_unit_test(test_parse_leaves_a_rest),
        cmocka_unit_test(test_parse_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
