#include "event/kin.h"

#include "testing/test.h"

enum { P = 10, P0, PN, PN1, Z };

static void note(struct mr_kin *kin, uint32_t oid, uint32_t root, const char *table,
                 const char *numbers)
{
    mr_kin_note(
        kin, oid,
        &(struct mr_origin){.oid = root, .schema = "public", .table = table, .numbers = numbers});
}

/* `tables`: with commas between; "": it is not known of which. */
static void assert_roots(struct mr_kin *kin, uint32_t oid, const char *tables)
{
    struct mr_origins origins;
    MR_TEXT(found);
    mr_text_string(&found, "");
    assert_true(mr_kin_find(kin, oid, &origins));
    for (uint32_t i = 0; i < origins.count; i++) {
        assert_string_equal(origins.items[i].schema, "public");
        mr_text_format(&found, "%s%s", i == 0 ? "" : ",", origins.items[i].table);
    }
    assert_string_equal(found.data, tables);
}

static void assert_numbers(struct mr_kin *kin, uint32_t oid, const char *numbers)
{
    struct mr_origins origins;
    assert_true(mr_kin_find(kin, oid, &origins));
    assert_true((numbers == NULL) == (origins.items[0].numbers == NULL));
    if (numbers != NULL) {
        assert_string_equal(origins.items[0].numbers, numbers);
    }
}

static struct mr_kin *kin_of_p(void)
{
    struct mr_kin *kin = mr_kin_new();
    note(kin, P, P, "p", "");
    note(kin, PN1, P, "p", "");
    note(kin, P0, P, "p", "1:2,2:1");
    note(kin, PN, P, "p", NULL);
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
    struct mr_origins root;
    struct mr_kin *kin = kin_of_p();
    for (int i = 0; i < 2; i++) {
        assert_false(mr_kin_find(kin, P, &root)); /* none itself */
        assert_roots(kin, P0, "p");
        assert_roots(kin, PN, "p");
        assert_roots(kin, PN1, "p");
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
            note(kin, PN1, PN, "pn", NULL);
        }
        mr_kin_take(kin, json);
        note(kin, PN1, PN, "pn", NULL);
        assert_roots(kin, PN1, "p,pn"); /* its rows come by pn, and rules may name that */
        assert_roots(kin, PN, "p");
        free(json);
        mr_kin_free(before);
        mr_kin_free(kin);
    }
}

static void test_another_table_is_one_more(void **state)
{
    (void)state;
    struct mr_kin *kin = kin_of_p();
    note(kin, P0, P, "renamed", NULL); /* the same table */
    assert_roots(kin, P0, "renamed");
    note(kin, PN, Z, "p", NULL); /* one that was put in its place */
    assert_roots(kin, PN, "p");
    note(kin, P0, Z, "z", NULL);
    note(kin, 5, P0, "p0", NULL); /* what is in it is of both, too */
    for (int i = 0; i < 2; i++) {
        assert_roots(kin, P0, "renamed,z");
        assert_roots(kin, 5, "renamed,z,p0");
        assert_roots(kin, PN1, "p");
        kin = restarted(kin);
    }
    note(kin, P0, P, "p", NULL);
    assert_roots(kin, P0, "p,z");
    mr_kin_free(kin);
}

/* Then nobody knows of which: rules of more than are told would be forgotten. */
static void test_too_many_are_none_that_is_known(void **state)
{
    (void)state;
    struct mr_kin *kin = mr_kin_new();
    char name[16];
    for (uint32_t i = 0; i <= MR_ORIGINS_MAX; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        note(kin, P0, 100 + i, name, NULL);
        note(kin, PN, 100, "t0", NULL);
    }
    for (int i = 0; i < 2; i++) {
        note(kin, P0, 100, "t0", NULL);
        assert_roots(kin, P0, "");
        assert_roots(kin, PN, "t0");
        kin = restarted(kin);
    }
    mr_kin_free(kin);
}

static void test_kin_numbers(void **state)
{
    (void)state;
    struct mr_kin *kin = kin_of_p();
    note(kin, P0, P, "p", NULL); /* says nothing new */
    note(kin, 5, PN1, "pn1", "");
    note(kin, 6, P0, "p0", "");
    for (int i = 0; i < 2; i++) {
        assert_numbers(kin, P0, "1:2,2:1");
        assert_numbers(kin, PN1, "");
        assert_numbers(kin, PN, NULL);
        assert_numbers(kin, 5, "");
        assert_numbers(kin, 6, NULL);
        kin = restarted(kin);
    }
    note(kin, P0, P, "p", "1:2,2:1,3:3");
    assert_numbers(kin, P0, "1:2,2:1,3:3");
    note(kin, P0, Z, "p", NULL); /* another table has others */
    assert_numbers(kin, P0, NULL);
    mr_kin_free(kin);
    kin = mr_kin_new();
    mr_kin_take(kin, "{\"cut\":false,\"roots\":[[10,\"public\",\"p\",11]]}"); /* an older one's */
    assert_numbers(kin, P0, NULL);
    mr_kin_free(kin);
}

static void test_a_dropped_one_is_forgotten_once_all_is_confirmed(void **state)
{
    (void)state;
    struct mr_origins root;
    struct mr_kin *kin = kin_of_p();
    mr_kin_note_gone(kin, P0, 100, 90);
    assert_roots(kin, P0, "p");
    mr_kin_note_gone(kin, P0, 200, 100);
    assert_roots(kin, P0, "p");
    mr_kin_note_gone(kin, P0, 300, 101);
    assert_false(mr_kin_find(kin, P0, &root));
    assert_roots(kin, PN, "p");
    MR_TEXT(oids);
    assert_int_equal(mr_kin_add_oids(kin, &oids), 2);
    assert_string_equal(oids.data, ",12,13");
    mr_kin_free(kin);
}

/* The next process knows that it does not know all. */
static void test_more_than_are_stored(void **state)
{
    (void)state;
    struct mr_origins root;
    struct mr_kin *kin = mr_kin_new();
    assert_null(mr_kin_format(kin));
    for (uint32_t i = 1; i <= MR_KIN_STORED_MAX + 1; i++) {
        note(kin, P + i, P, "p", "");
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
    struct mr_origins root;
    note(NULL, P0, P, "p", NULL);
    assert_false(mr_kin_find(NULL, P0, &root) || mr_kin_is_cut(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions_are_remembered),
        cmocka_unit_test(test_what_is_in_a_detached_one_is_the_outermosts),
        cmocka_unit_test(test_another_table_is_one_more),
        cmocka_unit_test(test_too_many_are_none_that_is_known),
        cmocka_unit_test(test_kin_numbers),
        cmocka_unit_test(test_a_dropped_one_is_forgotten_once_all_is_confirmed),
        cmocka_unit_test(test_more_than_are_stored),
        cmocka_unit_test(test_what_is_not_ours_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
