#include "event/kin.h"

#include "testing/test.h"

enum { P = 10, P0, PN, PN1, Z };

static void assert_root(struct mr_kin *kin, uint32_t oid, const char *table)
{
    struct mr_kin_root root;
    assert_true(mr_kin_find(kin, oid, &root));
    if (table == NULL) {
        assert_null(root.table);
    } else {
        assert_string_equal(root.table, table);
        assert_string_equal(root.schema, "public");
    }
}

static struct mr_kin *kin_of_p(void)
{
    struct mr_kin *kin = mr_kin_new();
    mr_kin_note(kin, P, P, "public", "p");
    mr_kin_note(kin, PN1, P, "public", "p");
    mr_kin_note(kin, P0, P, "public", "p");
    mr_kin_note(kin, PN, P, "public", "p");
    return kin;
}

static struct mr_kin *restarted(struct mr_kin *kin)
{
    struct mr_kin *next = mr_kin_new();
    char *json = mr_kin_format(kin);
    mr_kin_take(next, json);
    free(json);
    mr_kin_free(kin);
    return next;
}

static void test_partitions_are_remembered(void **state)
{
    (void)state;
    struct mr_kin_root root;
    struct mr_kin *kin = kin_of_p();
    for (int i = 0; i < 2; i++) {
        assert_false(mr_kin_find(kin, P, &root)); /* none itself */
        assert_root(kin, P0, "p");
        assert_root(kin, PN, "p");
        assert_root(kin, PN1, "p");
        assert_false(mr_kin_is_cut(kin));
        kin = restarted(kin);
    }
    mr_kin_free(kin);
}

/* PN was detached, and PN1 is its partition: seen before the position is read, or after. */
static void test_what_is_in_a_detached_one_is_the_outermosts(void **state)
{
    (void)state;
    for (int is_first = 0; is_first < 2; is_first++) {
        struct mr_kin *before = kin_of_p();
        struct mr_kin *kin = mr_kin_new();
        char *json = mr_kin_format(before);
        if (is_first) {
            mr_kin_note(kin, PN1, PN, "public", "pn");
        }
        mr_kin_take(kin, json);
        mr_kin_note(kin, PN1, PN, "public", "pn");
        assert_root(kin, PN1, "p");
        assert_root(kin, PN, "p");
        free(json);
        mr_kin_free(before);
        mr_kin_free(kin);
    }
}

static void test_another_table_makes_it_one_of_several(void **state)
{
    (void)state;
    struct mr_kin *kin = kin_of_p();
    mr_kin_note(kin, P0, P, "public", "renamed"); /* the same table */
    assert_root(kin, P0, "renamed");
    mr_kin_note(kin, PN, Z, "public", "p"); /* one that was put in its place */
    assert_root(kin, PN, "p");
    mr_kin_note(kin, P0, Z, "public", "z");
    for (int i = 0; i < 2; i++) {
        assert_root(kin, P0, NULL);
        kin = restarted(kin);
    }
    mr_kin_note(kin, P0, P, "public", "p");
    assert_root(kin, P0, NULL);
    mr_kin_free(kin);
}

static void test_a_dropped_one_is_forgotten_once_all_is_confirmed(void **state)
{
    (void)state;
    struct mr_kin_root root;
    struct mr_kin *kin = kin_of_p();
    mr_kin_note_gone(kin, P0, 100, 90);
    assert_root(kin, P0, "p");
    mr_kin_note_gone(kin, P0, 200, 100);
    assert_root(kin, P0, "p");
    mr_kin_note_gone(kin, P0, 300, 101);
    assert_false(mr_kin_find(kin, P0, &root));
    assert_root(kin, PN, "p");
    MR_TEXT(oids);
    assert_int_equal(mr_kin_add_oids(kin, &oids), 2);
    assert_string_equal(oids.data, ",12,13");
    mr_kin_free(kin);
}

/* The next process knows that it does not know all. */
static void test_more_than_are_stored(void **state)
{
    (void)state;
    struct mr_kin_root root;
    struct mr_kin *kin = mr_kin_new();
    assert_null(mr_kin_format(kin));
    for (uint32_t i = 1; i <= MR_KIN_STORED_MAX + 1; i++) {
        mr_kin_note(kin, P + i, P, "public", "p");
    }
    assert_true(mr_kin_find(kin, P + MR_KIN_STORED_MAX + 1, &root));
    assert_false(mr_kin_is_cut(kin));
    for (int i = 0; i < 2; i++) {
        kin = restarted(kin);
        assert_true(mr_kin_is_cut(kin));
        assert_true(mr_kin_find(kin, P + MR_KIN_STORED_MAX, &root));
        assert_false(mr_kin_find(kin, P + MR_KIN_STORED_MAX + 1, &root));
    }
    mr_kin_free(kin);
}

static void test_what_is_not_ours_is_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "[]", "{}", "{\"roots\":1}",
                                        "{\"roots\":[[1,2,3],[1,\"a\"],[1,\"a\",\"b\",-1,\"x\"]]}"};
    struct mr_kin *kin = mr_kin_new();
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        mr_kin_take(kin, texts[i]);
        assert_null(mr_kin_format(kin));
    }
    mr_kin_free(kin);
    struct mr_kin_root root;
    mr_kin_note(NULL, P0, P, "public", "p");
    assert_false(mr_kin_find(NULL, P0, &root) || mr_kin_is_cut(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions_are_remembered),
        cmocka_unit_test(test_what_is_in_a_detached_one_is_the_outermosts),
        cmocka_unit_test(test_another_table_makes_it_one_of_several),
        cmocka_unit_test(test_a_dropped_one_is_forgotten_once_all_is_confirmed),
        cmocka_unit_test(test_more_than_are_stored),
        cmocka_unit_test(test_what_is_not_ours_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
