/* The record of the state topic: written, read back, and what is none. */
#include "sink/kafka/kafka_state.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

static void test_state_parse_reads_what_is_written(void **state)
{
    (void)state;
    struct mr_checkpoint written = {
        .identity = {"7000000000000000001", UINT32_MAX, "millrace", "p\"\\\x01\xC3\xA9"},
        .end_lsn = UINT64_MAX,
        .position = {.commit_lsn = UINT64_MAX, .ordinal = UINT64_MAX},
    };
    memset(written.identity.slot, 1, sizeof(written.identity.slot) - 1); /* six letters each */
    char *text = mr_state_format(&written);
    struct mr_checkpoint read = {0};
    assert_true(mr_state_parse(text, strlen(text), &read));
    assert_memory_equal(&read, &written, sizeof(read));
    free(text);
}

/* While rows are copied the record has another version: who does not know it must not take the rows for copied. */
static void test_state_parse_reads_how_far_a_copy_is(void **state)
{
    (void)state;
    struct mr_copy_stored copy = {.lsn = 16, .attempt = 3, .rows = 5};
    struct mr_checkpoint written = {
        .identity = {"7", 1, "s", "p"},
        .copy = &copy,
    };
    char *text = mr_state_format(&written);
    assert_non_null(strstr(text, "\"version\":2"));
    struct mr_checkpoint read = {0};
    assert_true(mr_state_parse(text, strlen(text), &read));
    assert_non_null(read.copy);
    assert_int_equal(read.copy->lsn, 16);
    assert_int_equal(read.copy->attempt, 3);
    assert_int_equal(read.copy->rows, 5);
    mr_copy_stored_free(read.copy);
    free(text);
}

/* What is asked for makes another version; where nothing is under way, an older one may go on. Keys are any text. */
static void test_state_parse_reads_what_is_asked_for(void **state)
{
    (void)state;
    char key[] = "a\"\\\n\x01\xff";
    char empty[] = "";
    char s[] = "s";
    char where[] = "x > 'y'";
    char *after[] = {key, empty};
    struct mr_asked_table tables[] = {
        {.id = 3,
         .schema = s,
         .table = s,
         .where = where,
         .key = key,
         .place = {.oid = UINT32_MAX,
                   .form = UINT64_MAX,
                   .after = after,
                   .after_count = 2,
                   .rows = 8,
                   .passed_over = 9}},
        {.id = 4, .schema = s, .table = where},
    };
    uint32_t known[] = {1, 16384, 16390, UINT32_MAX};
    struct mr_asked_stored asked = {.step = 6,
                                    .last_id = 4,
                                    .tables = tables,
                                    .count = 2,
                                    .has_known = true,
                                    .known = known,
                                    .known_count = 4};
    struct mr_checkpoint written = {.identity = {"7", 1, "s", "p"}, .asked = &asked};
    char *text = mr_state_format(&written);
    assert_non_null(strstr(text, "\"version\":3"));
    struct mr_checkpoint read = {0};
    assert_true(mr_state_parse(text, strlen(text), &read));
    assert_int_equal(read.asked->step, 6);
    assert_int_equal(read.asked->last_id, 4);
    assert_int_equal(read.asked->count, 2);
    assert_false(read.asked->paused);
    const struct mr_asked_table *first = &read.asked->tables[0];
    assert_string_equal(first->where, "x > 'y'");
    assert_string_equal(first->key, key);
    assert_int_equal(first->place.oid, UINT32_MAX);
    assert_true(first->place.form == UINT64_MAX);
    assert_string_equal(first->place.after[0], after[0]);
    assert_string_equal(first->place.after[1], "");
    assert_int_equal(first->place.rows, 8);
    assert_int_equal(first->place.passed_over, 9);
    assert_true(read.asked->has_known);
    assert_int_equal(read.asked->known_count, 4);
    assert_memory_equal(read.asked->known, known, sizeof(known));
    assert_null(read.asked->tables[1].where);
    assert_null(read.asked->tables[1].place.after);
    /* Cut anywhere it is nothing, and nothing is left behind. */
    for (size_t len = 0; len < strlen(text); len++) {
        struct mr_checkpoint cut;
        assert_false(mr_state_parse(text, len, &cut));
    }
    free(text);
    mr_checkpoint_done(&read);

    asked.count = 0;
    asked.known_count = 0;
    text = mr_state_format(&written);
    assert_non_null(strstr(text, "\"version\":1"));
    assert_true(mr_state_parse(text, strlen(text), &read));
    assert_true(read.asked->has_known);
    assert_int_equal(read.asked->known_count, 0);
    mr_checkpoint_done(&read);
    free(text);
    asked.paused = true;
    text = mr_state_format(&written);
    assert_non_null(strstr(text, "\"version\":3"));
    free(text);
}

#define HEAD "{\"version\":1,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\","

/* Which tables are known: ascending numbers of 32 bits. */
static void test_state_parse_refuses_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"\"1,a\"", true},
        {"\"ffffffff\"", true},
        {"\"\"", true},
        {"null", false},
        {"1", false},
        {"\",\"", false},
        {"\"1,\"", false},
        {"\",1\"", false},
        {"\"1;2\"", false},
        {"\"0\"", false},
        {"\"1,0\"", false},
        {"\"-1\"", false},
        {"\" 1\"", false},
        {"\"100000000\"", false},
        {"\"ffffffff,1\"", false},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"asked\":{\"step\":1,\"last_id\":1,"
                      "\"paused\":false,\"tables\":[],\"known\":%s}}",
                 cases[i].text);
        struct mr_checkpoint read = {0};
        if (mr_state_parse(text, strlen(text), &read) != cases[i].good) {
            fail_msg("%s", text);
        }
        mr_checkpoint_done(&read);
    }
}

static void test_state_parse_refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "null",
        HEAD "\"timeline\":1}",
        HEAD "\"timeline\":1,\"end_lsn\":null}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0 \"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"position\":\"1/0\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"position\":\"1/0:1x\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"position\":null}",
        HEAD "\"timeline\":\"1\",\"end_lsn\":\"1/0\"}",
        /* No number of a timeline: C leaves open what comes of a conversion. */
        HEAD "\"timeline\":-1,\"end_lsn\":\"1/0\"}",
        HEAD "\"timeline\":4294967296,\"end_lsn\":\"1/0\"}",
        HEAD "\"timeline\":1e400,\"end_lsn\":\"1/0\"}",
        "{\"version\":3,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"asked\":{\"step\":1}}",
        HEAD
        "\"timeline\":1,\"end_lsn\":\"1/0\",\"asked\":{\"step\":1,\"last_id\":1,\"paused\":false,"
        "\"tables\":[{\"id\":1,\"schema\":\"s\"}]}}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/"
             "0\",\"asked\":{\"step\":1e99,\"last_id\":1,\"paused\":false,"
             "\"tables\":[]}}",
        "{\"version\":4,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\"}",
        "{\"version\":2,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\",\"copy\":\"1 2\"}",
        "{\"version\":2,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\"}",
        "{\"version\":1,\"system_id\":\"7777777777777777777777777\",\"slot\":\"s\","
        "\"publication\":\"p\",\"timeline\":1,\"end_lsn\":\"1/0\"}",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        struct mr_checkpoint read = {.end_lsn = 5};
        if (mr_state_parse(texts[i], strlen(texts[i]), &read) || read.end_lsn != 5) {
            fail_msg("taken: %s", texts[i]);
        }
    }
    static const char good[] = HEAD "\"timeline\":1,\"end_lsn\":\"1/0\"}";
    struct mr_checkpoint read;
    assert_true(mr_state_parse(good, strlen(good), &read)); /* nothing else is wrong above */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_parse_reads_what_is_written),
        cmocka_unit_test(test_state_parse_reads_how_far_a_copy_is),
        cmocka_unit_test(test_state_parse_reads_what_is_asked_for),
        cmocka_unit_test(test_state_parse_refuses_known),
        cmocka_unit_test(test_state_parse_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
