#include "sink/record_headers.h"

#include <string.h>

#include "testing/test.h"

static int text_order(const struct mr_record *a, const struct mr_record *b)
{
    struct mr_record_headers first = {0}, second = {0};
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
    struct mr_record_headers headers = {0};
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

/* An object that is kept says the same as a new one. */
static void test_kept_object(void **state)
{
    (void)state;
    struct mr_record_headers kept = {0};
    struct mr_record record = {.position = {.commit_lsn = 1, .ordinal = 1}, .xid = 1};
    for (int i = 0; i < 200; i++) {
        record.position.ordinal++;
        record.position.commit_lsn += i % 7 == 0;
        record.xid += i % 11 == 0;
        record.commit_time_us += i % 13 == 0;
        struct mr_record_headers fresh = {0};
        mr_record_headers_format(&record, &kept);
        mr_record_headers_format(&record, &fresh);
        assert_memory_equal(kept.position, fresh.position, MR_POSITION_TEXT_LEN);
        assert_int_equal(kept.xid_len, fresh.xid_len);
        assert_memory_equal(kept.xid, fresh.xid, fresh.xid_len);
        assert_int_equal(kept.commit_time_len, fresh.commit_time_len);
        assert_memory_equal(kept.commit_time, fresh.commit_time, fresh.commit_time_len);
    }
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
        record.part = (uint16_t)((random >> 40) % 3);
        assert_int_equal(text_order(&record, &last), number_order(&record, &last));
        last = record;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_text),
        cmocka_unit_test(test_kept_object),
        cmocka_unit_test(test_position_sorts_as_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
