#include "verify/cut.h"

#include "testing/test.h"

static void test_cut_parse(void **state)
{
    (void)state;
    struct mr_cut cut;
    assert_true(mr_cut_parse("5000000100:5000000110:5000000103,5000000107", &cut));
    assert_int_equal(cut.xmin, 5000000100);
    assert_int_equal(cut.xmax, 5000000110);
    assert_int_equal(cut.running_count, 2);
    assert_int_equal(cut.running[1], 5000000107);
    mr_cut_done(&cut);
    assert_true(mr_cut_parse("3:3:", &cut));
    assert_int_equal(cut.running_count, 0);
    mr_cut_done(&cut);
    static const char *const wrong[] = {"",
                                        "3",
                                        "3:",
                                        ":3:",
                                        "3:3",
                                        "3:4:x",
                                        "3:9:5,",
                                        "3:9:5,4",
                                        "3:9:5 6",
                                        "3:9:5:6",
                                        "99999999999999999999:3:"};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        assert_false(mr_cut_parse(wrong[i], &cut));
    }
}

static void test_sees(void **state)
{
    (void)state;
    struct mr_cut cut;
    /* 2^32 = 4294967296: the lower halves are 4294967290 to 14. */
    assert_true(mr_cut_parse("4294967290:4294967310:4294967294,4294967300", &cut));
    cut.before = 1000;
    cut.next = UINT64_C(4294967320); /* 24 */
    static const struct {
        uint32_t xid;
        mr_lsn commit_lsn;
        bool want;
    } cases[] = {
        {4294967289u, 900, true}, {4294967294u, 900, false}, {4294967295u, 900, true},
        {4, 900, false},          {5, 1100, true},           {13, 1100, true},
        {14, 900, false},         {23, 900, false},          {24, 1100, false},
        {24, 900, true},          {4294967200u, 2000, true}, {2147483661u, 1100, false},
        {2147483661u, 5, true},   {2147483662u, 1100, true},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_int_equal(mr_cut_sees(&cut, cases[i].xid, cases[i].commit_lsn), cases[i].want);
    }
    cut.before = UINT64_C(65) << 30;
    assert_true(mr_cut_sees(&cut, 4, 900)); /* of 2^32 transactions ago */
    assert_true(mr_cut_sees(&cut, 14, 900));
    assert_false(mr_cut_sees(&cut, 4, UINT64_C(2) << 30));
    mr_cut_done(&cut);
}

static void test_sees_of_a_standby(void **state)
{
    (void)state;
    const struct mr_cut cut = {.before = 1000, .after = 1000, .replayed = 1000};
    assert_true(mr_cut_sees(&cut, 7, 992));
    assert_false(mr_cut_sees(&cut, 7, 1000)); /* its record is the next one */
    assert_false(mr_cut_sees(&cut, 3, 1008));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_parse),
        cmocka_unit_test(test_sees),
        cmocka_unit_test(test_sees_of_a_standby),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
