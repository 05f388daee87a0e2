/* The record of the state topic: written, read back, and what is none. */
#include "kafka/kafka_state.h"

#include <stdlib.h>
#include <string.h>

#include "copy/copies.h"
#include "testing/test.h"

static void test_state_parse_reads_what_is_written(void **state)
{
    (void)state;
    struct mr_checkpoint written = {
        .identity = {.system_id = "7000000000000000001",
                     .timeline = UINT32_MAX,
                     .is_standby = true,
                     .slot = "millrace",
                     .publication = "p\"\\\x01\xC3\xA9",
                     .moved = {.from = "7000000000000000000",
                               .left = UINT64_MAX,
                               .entered = 1,
                               .shift = UINT64_MAX,
                               .xid = UINT64_MAX - 1,
                               .at_ms = 1795000000000}},
        .end_lsn = UINT64_MAX,
        .last = {.lsn = UINT64_MAX - 1,
                 .time_us = INT64_MIN,
                 .xid = UINT32_MAX,
                 .asked = UINT64_MAX},
        .position = {.commit_lsn = UINT64_MAX, .ordinal = UINT64_MAX},
    };
    memset(written.identity.slot, 1, sizeof(written.identity.slot) - 1); /* six letters each */
    char *text = mr_state_format(&written);
    struct mr_checkpoint read = {0};
    assert_true(mr_state_parse(text, strlen(text), mr_copy_section_kinds, &read));
    assert_memory_equal(&read, &written, sizeof(read));
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
        if (mr_state_parse(text, strlen(text), mr_copy_section_kinds, &read) != cases[i].good) {
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
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"last\":null}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"last\":\"0/F\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"last\":\"0/0:1:2:3\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"last\":\"0/F:1:2:3:4\"}",
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
        "{\"version\":5,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\"}",
        HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"moved\":{\"from\":\"6\",\"left\":\"1/0\","
             "\"entered\":\"0/0\"}}",
        "{\"version\":2,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\",\"copy\":\"1 2\"}",
        "{\"version\":2,\"system_id\":\"7\",\"slot\":\"s\",\"publication\":\"p\",\"timeline\":1,"
        "\"end_lsn\":\"1/0\"}",
        "{\"version\":1,\"system_id\":\"7777777777777777777777777\",\"slot\":\"s\","
        "\"publication\":\"p\",\"timeline\":1,\"end_lsn\":\"1/0\"}",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        struct mr_checkpoint read = {.end_lsn = 5};
        if (mr_state_parse(texts[i], strlen(texts[i]), mr_copy_section_kinds, &read) ||
            read.end_lsn != 5) {
            fail_msg("taken: %s", texts[i]);
        }
    }
    static const char good[] = HEAD "\"timeline\":1,\"end_lsn\":\"1/0\",\"last\":\"0/F:1:2:3\"}";
    struct mr_checkpoint read;
    assert_true(mr_state_parse(good, strlen(good), mr_copy_section_kinds,
                               &read)); /* nothing else is wrong above */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_parse_reads_what_is_written),
        cmocka_unit_test(test_state_parse_refuses_known),
        cmocka_unit_test(test_state_parse_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
