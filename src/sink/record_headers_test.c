#include "sink/record_headers.h"

#include <string.h>

#include "testing/test.h"

static int text_order(const struct mr_record *a, const struct mr_record *b)
{
    struct mr_record_headers first, second;
    mr_record_headers_format(a, &first);
    mr_record_headers_format(b, &second);
    int order = memcmp(first.position, second.position, MR_POSITION_TEXT_LEN);
    return (order > 0) - (order < 0);
}

static int number_order(const struct mr_record *a, const struct mr_record *b)
{
    int order = mr_position_compare(a->position, b->position);
    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static void test_format_text(void **state)
{
    (void)state;
    struct mr_record record = {.position = {.commit_lsn = 0x16B374D848, .ordinal = 255},
                               .part = 2,
                               .xid = 4294967295u,
                               .commit_time_us = 1700000000000001};
    struct mr_record_headers headers;
    mr_record_headers_format(&record, &headers);
    assert_memory_equal(headers.position, "00000016B374D848-00000000FF-2", MR_POSITION_TEXT_LEN);
    assert_int_equal(headers.xid_len, 10);
    assert_memory_equal(headers.xid, "4294967295", 10);
    assert_memory_equal(headers.commit_time, "1700000000000001", headers.commit_time_len);
    record = (struct mr_record){.commit_time_us = -5};
    mr_record_headers_format(&record, &headers);
    assert_memory_equal(headers.commit_time, "0", headers.commit_time_len);
    assert_int_equal(headers.xid_len, 1);
}

static void test_position_sorts_as_bytes(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252;
    struct mr_record last = {0};
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct mr_record record = last;
        /* Mostly near the last one, so that each part decides now and then. */
        record.position.commit_lsn = random % 4 == 0 ? random : last.position.commit_lsn;
        record.position.ordinal = random % 3 == 0 ? (random >> 8) % 100000 : last.position.ordinal;
        record.part = (uint32_t)(random >> 40) % 3;
        assert_int_equal(text_order(&record, &last), number_order(&record, &last));
        last = record;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_text),
        cmocka_unit_test(test_position_sorts_as_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
