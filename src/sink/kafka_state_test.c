/* The record of the state topic: written, read back, and what is none. */
#include "sink/kafka_state.h"

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

#define HEAD "{\"version\":1,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\","

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
        cmocka_unit_test(test_state_parse_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
