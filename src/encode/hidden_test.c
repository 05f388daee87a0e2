#include "encode/hidden.h"

#include "testing/test.h"

static const struct mr_column_rule rules[] = {
    {.action = MR_COLUMN_MASK,
     .table = {.schema = {.text = "public"}, .table = {.text = "users"}},
     .column = {.text = "email"}}};

/* Columns with a minus before them are hidden. */
static mr_status look(struct mr_hidden *hidden, uint32_t oid, const char *table,
                      const char *const *columns, uint32_t count)
{
    struct mr_column view_columns[4] = {0};
    bool hides[4];
    struct mr_error error;
    struct mr_relation view = {.oid = oid,
                               .schema = "public",
                               .table = table,
                               .columns = view_columns,
                               .column_count = count};
    for (uint32_t i = 0; i < count; i++) {
        hides[i] = columns[i][0] == '-';
        view_columns[i].name = columns[i] + hides[i];
    }
    return mr_hidden_look(hidden, &view, NULL, hides, &error);
}

#define LOOK(oid, table, ...)                                                                      \
    look(hidden, oid, table, (const char *const[]){__VA_ARGS__},                                   \
         MR_ARRAY_LEN(((const char *const[]){__VA_ARGS__})))

static struct mr_hidden *seen_users(void)
{
    struct mr_hidden *hidden = mr_hidden_new(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "-email"), MR_OK);
    return hidden;
}

static void test_hidden_look_names(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_ERR_POISON);
    assert_int_equal(LOOK(2, "users", "id", "mail"), MR_ERR_POISON);
    assert_int_equal(LOOK(1, "users", "id", "-email", "note"), MR_OK);
    assert_int_equal(LOOK(1, "users", "id", "-mail", "note"), MR_OK);
    assert_int_equal(LOOK(1, "users", "id", "note"), MR_OK); /* dropped */
    assert_int_equal(LOOK(3, "others", "id", "email"), MR_OK);
    mr_hidden_free(hidden);
}

static void test_hidden_look_first_sight(void **state)
{
    (void)state;
    struct mr_hidden *hidden = mr_hidden_new(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_ERR_POISON);
    mr_hidden_free(hidden);
    hidden = mr_hidden_new(MR_UNMATCHED_WARN, rules, MR_ARRAY_LEN(rules));
    assert_int_equal(LOOK(1, "users", "id", "mail"), MR_OK);
    mr_hidden_free(hidden);
}

/* The one that was swapped for another is still known. */
static void test_hidden_look_swapped(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    for (uint32_t oid = 2; oid < 4; oid++) {
        assert_int_equal(LOOK(oid, "users", "id", "-email"), MR_OK);
    }
    assert_int_equal(LOOK(1, "old", "id", "email"), MR_ERR_POISON);
    mr_hidden_free(hidden);
}

static void test_hidden_format_take(void **state)
{
    (void)state;
    struct mr_hidden *hidden = seen_users();
    char *json = mr_hidden_format(hidden);
    mr_hidden_free(hidden);
    assert_non_null(json);
    hidden = mr_hidden_new(MR_UNMATCHED_STOP, rules, MR_ARRAY_LEN(rules));
    assert_null(mr_hidden_format(hidden));
    mr_hidden_take(hidden, json);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_ERR_POISON);
    mr_hidden_free(hidden);
    hidden = mr_hidden_new(MR_UNMATCHED_STOP, NULL, 0); /* somebody has changed the rules */
    mr_hidden_take(hidden, json);
    assert_int_equal(LOOK(1, "people", "id", "email"), MR_OK);
    static const char *const wrong[] = {"", "[]", "{\"rules\":1}", "{\"tables\":[[1]]}"};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        mr_hidden_take(hidden, wrong[i]);
    }
    mr_hidden_free(hidden);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_look_names),
        cmocka_unit_test(test_hidden_look_first_sight),
        cmocka_unit_test(test_hidden_look_swapped),
        cmocka_unit_test(test_hidden_format_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
