#include "verify/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

enum { A, B, C, COLUMNS };

static const struct mr_digest run_key = {.low = 1, .high = 2};

/* Columns a (the key), b (may be large) and c (added later, with the default "new"). */
static struct mr_verify_table table_new(void)
{
    struct mr_verify_table table = {.key = MR_NEW_ARRAY(uint32_t, 1), .key_count = 1};
    table.key[0] = A;
    mr_verify_table_placeholder(&table, "absent!");
    mr_verify_column_add(&table, run_key, "a")->form.leaf = MR_LEAF_BARE;
    struct mr_verify_column *column = mr_verify_column_add(&table, run_key, "b");
    column->is_toastable = true;
    column->large_min = 9;
    column = mr_verify_column_add(&table, run_key, "c");
    column->form.leaf = MR_LEAF_BARE;
    column->absent = mr_verify_server_value(column, mr_slice_of("new"), false);
    return table;
}

static struct mr_verify_row row_of(const struct mr_verify_table *table, const char *a,
                                   const char *b, const char *c, struct mr_digest *ret_key)
{
    static struct mr_verify_large room[COLUMNS];
    struct mr_verify_row row = {.large = room};
    const mr_slice values[COLUMNS] = {mr_slice_of(a), b == NULL ? (mr_slice){0} : mr_slice_of(b),
                                      mr_slice_of(c)};
    mr_verify_server_row(table, values, &row, ret_key);
    return row;
}

static void test_event_row(void **state)
{
    (void)state;
    static const struct {
        const char *event;
        const char *a, *b, *c; /* the row that it equals; `a` NULL: it is none */
        bool is_older;
        uint32_t large_count;
    } cases[] = {
        {"{\"a\":1,\"b\":null,\"c\":\"x\"}", "1", NULL, "x", false, 0},
        {"{\"c\":true,\"b\":\"\",\"a\":1.50}", "1.50", "", "t", false, 0},
        {"{\"a\":1,\"b\":\"\\u00e9\\n\",\"c\":false}", "1", "\xc3\xa9\n", "f", false, 0},
        {"{\"a\":1,\"b\":\"long enough\",\"\\u0063\":\"x\"}", "1", "long enough", "x", false, 1},
        {"{\"a\":1,\"b\":null}", "1", NULL, "new", false, 0},
        {"{\"a\":1,\"b\":null,\"d\":5}", "1", NULL, "new", true, 0},
        {"{\"a\":1,\"b\":null,\"__op\":5}", "1", NULL, "new", false, 0},
        {"{\"a\":1,\"b\":null,\"c\":\"x\",\"d\":5}", "1", NULL, "x", false, 0},
        {"{\"a\":1,\"a\":1}", NULL, NULL, NULL, false, 0},
        {"{\"a\":1", NULL, NULL, NULL, false, 0},
        {"[]", NULL, NULL, NULL, false, 0},
    };
    struct mr_verify_table table = table_new();
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_verify_large room[COLUMNS];
        struct mr_verify_row got = {.large = room};
        bool good = mr_verify_event_row(&table, mr_slice_of(cases[i].event), &got);
        assert_int_equal(good, cases[i].a != NULL);
        if (good) {
            struct mr_digest key;
            struct mr_verify_row want = row_of(&table, cases[i].a, cases[i].b, cases[i].c, &key);
            assert_true(mr_digest_equal(got.sum, want.sum));
            assert_int_equal(got.is_older, cases[i].is_older);
            assert_int_equal(got.large_count, cases[i].large_count);
            assert_int_equal(want.large_count, cases[i].large_count);
        }
    }
    mr_verify_table_done(&table);
}

static void test_event_row_differs(void **state)
{
    (void)state;
    static const char *const events[] = {
        "{\"a\":1,\"b\":\"\",\"c\":\"x\"}",
        "{\"a\":1,\"b\":\"null\",\"c\":\"x\"}",
        "{\"a\":1,\"b\":\"x\",\"c\":null}",
        "{\"a\":10,\"b\":null,\"c\":\"x\"}",
        "{\"a\":1,\"b\":null,\"c\":\"x \"}",
        "{\"a\":\"x\",\"b\":null,\"c\":1}",
        "{\"a\":1,\"b\":null}",
    };
    struct mr_verify_table table = table_new();
    struct mr_digest key;
    struct mr_digest sum = row_of(&table, "1", NULL, "x", &key).sum;
    for (size_t i = 0; i < MR_ARRAY_LEN(events); i++) {
        struct mr_verify_large room[COLUMNS];
        struct mr_verify_row got = {.large = room};
        assert_true(mr_verify_event_row(&table, mr_slice_of(events[i]), &got));
        assert_false(mr_digest_equal(got.sum, sum));
    }
    mr_verify_table_done(&table);
}

/* A text is a string in JSON, whatever it says. */
static void test_a_text_is_a_string(void **state)
{
    (void)state;
    static const struct {
        const char *event, *b;
        bool want;
    } cases[] = {
        {"{\"a\":1,\"b\":\"t\",\"c\":\"x\"}", "t", true},
        {"{\"a\":1,\"b\":true,\"c\":\"x\"}", "t", false},
        {"{\"a\":1,\"b\":\"1\",\"c\":\"x\"}", "1", true},
        {"{\"a\":1,\"b\":1,\"c\":\"x\"}", "1", false},
        {"{\"a\":1,\"b\":{},\"c\":\"x\"}", "{}", false},
        {"{\"a\":\"1\",\"b\":\"1\",\"c\":\"x\"}", "1", true},
    };
    struct mr_verify_table table = table_new();
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_verify_large room[COLUMNS];
        struct mr_verify_row got = {.large = room};
        struct mr_digest key;
        assert_true(mr_verify_event_row(&table, mr_slice_of(cases[i].event), &got));
        struct mr_digest sum = row_of(&table, "1", cases[i].b, "x", &key).sum;
        assert_int_equal(mr_digest_equal(got.sum, sum), cases[i].want);
    }
    table.columns[A].form.leaf = MR_LEAF_TEXT;
    struct mr_digest number;
    struct mr_digest text;
    assert_int_equal(mr_verify_event_key(&table, mr_slice_of("{\"a\":1}"), &number),
                     MR_VERIFY_KEY_GOOD);
    assert_int_equal(mr_verify_event_key(&table, mr_slice_of("{\"a\":\"1\"}"), &text),
                     MR_VERIFY_KEY_GOOD);
    assert_false(mr_digest_equal(number, text));
    mr_verify_table_done(&table);
}

/* The row's sum without the value is what the event's is, whatever the type makes of the
 * placeholder. */
static void test_event_row_without_a_large_value(void **state)
{
    (void)state;
    static const char *const events[] = {
        "{\"a\":1,\"b\":\"absent!\",\"c\":\"x\"}",
        "{\"a\":1,\"b\":\"YWJzZW50IQ==\",\"c\":\"x\"}",
        "{\"a\":1,\"b\":[\"absent!\"],\"c\":\"x\"}",
        "{\"a\":1,\"b\":[\"YWJzZW50IQ==\"],\"c\":\"x\"}",
        "{\"a\":1,\"b\":[97,98,115,101,110,116,33],\"c\":\"x\"}",
        "{\"a\":1,\"b\":null,\"c\":\"x\"}",
    };
    struct mr_verify_table table = table_new();
    struct mr_verify_large room[COLUMNS];
    struct mr_verify_row got = {.large = room};
    struct mr_digest key;
    for (size_t i = 0; i < MR_ARRAY_LEN(events); i++) {
        table.columns[B].form.is_hidden = strstr(events[i], "null") != NULL;
        assert_true(mr_verify_event_row(&table, mr_slice_of(events[i]), &got));
        assert_int_equal(got.large_count, 1);
        assert_true(got.large[0].is_unknown);
        assert_int_equal(got.large[0].is_lost, table.columns[B].form.is_hidden);
        struct mr_verify_row row = row_of(&table, "1", "long value", "x", &key);
        assert_true(mr_digest_equal(mr_digest_subtract(row.sum, row.large[0].digest), got.sum));
        row = row_of(&table, "1", NULL, "x", &key);
        assert_int_equal(row.large_count, table.columns[B].form.is_hidden);
    }
    mr_verify_table_done(&table);
}

/* Base64 of the text has both characters in which the alphabets differ. */
static void test_a_large_value_that_is_left_alone_by_its_base64(void **state)
{
    (void)state;
    static const struct {
        const char *event;
        bool is_unknown;
    } cases[] = {
        {"{\"a\":1,\"b\":\"Pz8/Pj4+\",\"c\":\"x\"}", true},
        {"{\"a\":1,\"b\":\"Pz8_Pj4-\",\"c\":\"x\"}", true},
        {"{\"a\":1,\"b\":[\"Pz8_Pj4-\"],\"c\":\"x\"}", true},
        {"{\"a\":1,\"b\":\"Pz8_Pj4+\",\"c\":\"x\"}", false},
    };
    struct mr_verify_table table = table_new();
    for (size_t i = 0; i < MR_PLACEHOLDERS; i++) {
        free((void *)(uintptr_t)table.placeholders[i].data);
    }
    mr_verify_table_placeholder(&table, "??"
                                        "?>>>"); /* no trigraph */
    table.columns[B].large_min = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_verify_large room[COLUMNS];
        struct mr_verify_row got = {.large = room};
        assert_true(mr_verify_event_row(&table, mr_slice_of(cases[i].event), &got));
        assert_int_equal(got.large[0].is_unknown, cases[i].is_unknown);
    }
    mr_verify_table_done(&table);
}

/* A column that is not compared is the same whatever it has. */
static void test_event_row_with_a_column_that_is_not_compared(void **state)
{
    (void)state;
    struct mr_verify_table table = table_new();
    table.columns[B].treatment = MR_TREAT_UNKNOWN;
    struct mr_verify_large room[COLUMNS];
    struct mr_verify_row got = {.large = room};
    struct mr_digest key;
    assert_true(
        mr_verify_event_row(&table, mr_slice_of("{\"a\":1,\"b\":{\"x\":1},\"c\":\"x\"}"), &got));
    assert_true(mr_digest_equal(got.sum, row_of(&table, "1", "anything", "x", &key).sum));
    mr_verify_table_done(&table);
}

static void test_treatments(void **state)
{
    (void)state;
    struct mr_verify_table table = table_new();
    mr_verify_column_mask(&table.columns[B], 3);
    table.columns[C].treatment = MR_TREAT_CUT;
    table.columns[C].length = 2;
    struct mr_digest key;
    struct mr_verify_large room[COLUMNS];
    struct mr_verify_row got = {.large = room};
    assert_true(mr_verify_event_row(&table,
                                    mr_slice_of("{\"a\":1,\"b\":\"***\",\"c\":\"\xc3\xa9"
                                                "b\"}"),
                                    &got));
    assert_true(mr_digest_equal(got.sum, row_of(&table, "1", "secret",
                                                "\xc3\xa9"
                                                "bc",
                                                &key)
                                             .sum));
    table.columns[B].treatment = MR_TREAT_LEFT_OUT;
    table.columns[C].treatment = MR_TREAT_HASHED;
    table.columns[C].salt = "salt";
    /* SHA-256 of "saltx" */
    assert_true(mr_verify_event_row(
        &table,
        mr_slice_of(
            "{\"a\":1,\"c\":\"c9ef43a03d58f2cb9b0c4b069c179595739f5181a5565c8db5dbb124564ea819\"}"),
        &got));
    assert_true(mr_digest_equal(got.sum, row_of(&table, "1", "secret", "x", &key).sum));
    mr_verify_table_done(&table);
}

static void test_event_key(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        enum mr_verify_key_kind want;
    } cases[] = {
        {"{\"a\":1}", MR_VERIFY_KEY_GOOD},          {"{}", MR_VERIFY_KEY_OTHER},
        {"{\"a\":1,\"b\":2}", MR_VERIFY_KEY_OTHER}, {"{\"x\":1}", MR_VERIFY_KEY_OTHER},
        {"{\"a\":1,\"a\":1}", MR_VERIFY_KEY_NONE},  {"1", MR_VERIFY_KEY_NONE},
        {"{\"a\":1", MR_VERIFY_KEY_NONE},
    };
    struct mr_verify_table table = table_new();
    struct mr_digest key;
    struct mr_digest want;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        assert_int_equal(mr_verify_event_key(&table, mr_slice_of(cases[i].key), &key),
                         cases[i].want);
    }
    assert_int_equal(mr_verify_event_key(&table, (mr_slice){0}, &key), MR_VERIFY_KEY_OTHER);
    assert_int_equal(mr_verify_event_key(&table, mr_slice_of("{ \"a\" : \"1\" }"), &key),
                     MR_VERIFY_KEY_GOOD);
    row_of(&table, "1", NULL, "x", &want);
    assert_true(mr_digest_equal(key, want));
    assert_true(mr_verify_server_key(&table, mr_slice_of("{\"a\" : 1}"), &key));
    assert_true(mr_digest_equal(key, want));
    assert_false(mr_verify_server_key(&table, mr_slice_of("{}"), &key));
    table.key_count = 0;
    assert_int_equal(mr_verify_event_key(&table, (mr_slice){0}, &key), MR_VERIFY_KEY_GOOD);
    assert_int_equal(mr_verify_event_key(&table, mr_slice_of("{}"), &key), MR_VERIFY_KEY_OTHER);
    mr_verify_table_done(&table);
}

/* As a timestamp that nanoseconds do not reach: null in values, and its text in a key, so that rows
 * stay apart. */
static void test_a_key_whose_value_has_no_form(void **state)
{
    (void)state;
    struct mr_verify_table table = table_new();
    table.has_key_twice = true;
    struct mr_verify_large room[COLUMNS];
    struct mr_verify_row row = {.large = room};
    static const char *const stored[] = {"2500-01-01 00:00:00", "2600-01-01 00:00:00"};
    struct mr_digest server[2], event[2], named[2];
    for (size_t i = 0; i < MR_ARRAY_LEN(stored); i++) {
        char key[64];
        const mr_slice values[COLUMNS + 1] = {
            {0}, mr_slice_of("b"), mr_slice_of("x"), mr_slice_of(stored[i])};
        mr_verify_server_row(&table, values, &row, &server[i]);
        snprintf(key, sizeof(key), "{\"a\":{\"text\":\"%s\"}}", stored[i]);
        assert_int_equal(mr_verify_event_key(&table, mr_slice_of(key), &event[i]),
                         MR_VERIFY_KEY_GOOD);
        assert_true(mr_verify_server_key(&table, mr_slice_of(key), &named[i]));
        assert_true(mr_digest_equal(server[i], event[i]) && mr_digest_equal(server[i], named[i]));
    }
    assert_false(mr_digest_equal(server[0], server[1]));
    mr_verify_table_done(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_row),
        cmocka_unit_test(test_event_row_differs),
        cmocka_unit_test(test_a_text_is_a_string),
        cmocka_unit_test(test_event_row_without_a_large_value),
        cmocka_unit_test(test_event_row_with_a_column_that_is_not_compared),
        cmocka_unit_test(test_treatments),
        cmocka_unit_test(test_event_key),
        cmocka_unit_test(test_a_large_value_that_is_left_alone_by_its_base64),
        cmocka_unit_test(test_a_key_whose_value_has_no_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
