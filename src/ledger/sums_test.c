/* Which records a range has, and what their sums are. */
#include "ledger/sums.h"

#include "testing/test.h"

static struct mr_topic topic = {.name = (char *)"t", .index = 3};
static struct mr_sums sums;

static int sums_test_setup(void **state)
{
    (void)state;
    sums = (struct mr_sums){.range.bytes = 0};
    mr_sums_begin(&sums, (struct mr_position){0});
    return 0;
}

static int sums_test_teardown(void **state)
{
    (void)state;
    mr_sums_done(&sums);
    return 0;
}

static struct mr_record record_at(mr_lsn commit_lsn, uint64_t ordinal)
{
    struct mr_record record = {.topic = &topic,
                               .position = {.commit_lsn = commit_lsn, .ordinal = ordinal},
                               .commit_time_us = 1000000,
                               .xid = (uint32_t)commit_lsn};
    mr_record_set_key(&record, MR_SLICE("{\"id\":1}"));
    mr_record_set_value(&record, MR_SLICE("{\"v\":\"a\"}"));
    return record;
}

static void add_to(struct mr_batch *batch, mr_lsn commit_lsn, uint64_t ordinal, int32_t partition)
{
    struct mr_record record = record_at(commit_lsn, ordinal);
    record.batch = batch;
    mr_sums_add(&sums, &record, partition);
}

/* All batches of the stream up to `sequence`. */
static void sums_test_fold(uint64_t sequence, mr_lsn end_lsn, struct mr_position position)
{
    const uint64_t sequences[] = {sequence, 0};
    mr_sums_fold(&sums, &(struct mr_reach){
                            .end_lsn = end_lsn, .position = position, .sequences = sequences});
}

static uint64_t records(void)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < sums.range.parts.index.count; i++) {
        count += sums.range.parts.items[i].records;
    }
    return count;
}

static void assert_at(struct mr_position position, mr_lsn commit_lsn, uint64_t ordinal)
{
    assert_int_equal(position.commit_lsn, commit_lsn);
    assert_int_equal(position.ordinal, ordinal);
}

/* The figures are of tests/ledger_reader.py. */
static void test_digest_is_that_of_the_reader(void **state)
{
    (void)state;
    struct mr_record record = record_at(0x200, 1);
    struct mr_sum sum = mr_sum_of_record(&record);
    assert_int_equal(sum.high, UINT64_C(0x2b05d05a9d1a06cc));
    assert_int_equal(sum.low, UINT64_C(0xf0511fca8c37414e));
    uint8_t bytes[128];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    mr_record_set_key(&record, (mr_slice){.data = bytes, .len = 8});
    mr_buffer_append(&out, "{\"id\":1}", 8);
    mr_record_set_value(&record, (mr_slice){.data = NULL});
    record.has_headers = true;
    uint8_t *block = mr_headers_begin(&out, NULL);
    mr_header_append(&out, "h", MR_SLICE("v"));
    mr_header_append(&out, "n", (mr_slice){.data = NULL});
    mr_headers_end(&out, block);
    sum = mr_sum_of_record(&record);
    assert_int_equal(sum.high, UINT64_C(0x193b6be535fca460));
    assert_int_equal(sum.low, UINT64_C(0x777df2663b7adb8a));
}

static void test_sums_carry(void **state)
{
    (void)state;
    struct mr_batch batch = {.sequence = 1, .confirm_lsn = 0x900};
    unsigned __int128 want = 0;
    for (uint64_t i = 1; i <= 9; i++) {
        add_to(&batch, 0x200, i, 5);
        struct mr_record record = record_at(0x200, i);
        struct mr_sum sum = mr_sum_of_record(&record);
        want += (unsigned __int128)sum.high << 64 | sum.low;
    }
    sums_test_fold(1, 0x900, (struct mr_position){0});
    assert_int_equal(sums.range.parts.index.count, 1);
    const struct mr_part *part = &sums.range.parts.items[0];
    assert_int_equal(part->topic, 3);
    assert_int_equal(part->partition, 5);
    assert_int_equal(part->records, 9);
    assert_int_equal(part->sum.low, (uint64_t)want);
    assert_int_equal(part->sum.high, (uint64_t)(want >> 64));
}

/* A restart begins at what is stored: the transaction that goes on after a batch comes again, what
 * is before it does not. */
static void test_at_least_once_a_range_ends_with_a_transaction(void **state)
{
    (void)state;
    struct mr_batch first = {.sequence = 1, .confirm_lsn = 0x210};
    struct mr_batch second = {.sequence = 2};
    struct mr_batch third = {.sequence = 3, .confirm_lsn = 0x310};
    add_to(&first, 0x200, 1, 0);
    add_to(&first, 0x20f, 1, 0); /* a marker at the place that is stored */
    add_to(&first, 0x300, 1, 0);
    add_to(&second, 0x300, 2, 1);
    add_to(&third, 0x300, 3, 0);
    add_to(&third, 0x310, 0, 1); /* a message, which ends there */
    add_to(&third, 0x400, 1, 1);
    sums_test_fold(0, 0, (struct mr_position){0});
    assert_int_equal(records(), 0);
    sums_test_fold(2, 0x210, (struct mr_position){0});
    assert_int_equal(records(), 2);
    assert_at(sums.range.to, 0x20f, 1);
    mr_sums_next_range(&sums);
    assert_at(sums.range.from, 0x20f, 1);
    sums_test_fold(3, 0x310, (struct mr_position){0});
    assert_int_equal(records(), 4);
    assert_int_equal(sums.range.parts.index.count, 2);
    assert_at(sums.range.to, 0x310, 0);
    sums_test_fold(3, 0x410, (struct mr_position){0}); /* its end came alone */
    assert_int_equal(records(), 5);
}

static void test_exactly_once_a_range_ends_anywhere(void **state)
{
    (void)state;
    struct mr_batch batch = {.sequence = 1};
    add_to(&batch, 0x300, 1, 0);
    add_to(&batch, 0x300, 2, 0);
    sums_test_fold(1, 0x210, (struct mr_position){.commit_lsn = 0x300, .ordinal = 2});
    assert_int_equal(records(), 2);
    assert_at(sums.range.to, 0x300, 2);
}

/* Lanes are acknowledged apart, but a range has no holes. */
static void test_rows_that_are_copied_wait_for_those_before(void **state)
{
    (void)state;
    struct mr_batch one = {.lane = 1, .sequence = 1}, two = {.lane = 2, .sequence = 1};
    uint64_t sequences[] = {0, 0, 1};
    const struct mr_reach reach = {.sequences = sequences};
    add_to(&one, 0x1ff, 1, 0);
    add_to(&two, 0x1ff, 2, 0);
    mr_sums_fold(&sums, &reach);
    assert_int_equal(records(), 0);
    sequences[1] = 1;
    mr_sums_fold(&sums, &reach);
    assert_int_equal(records(), 2);
}

static void test_a_session_begins_above_what_is_counted(void **state)
{
    (void)state;
    struct mr_batch batch = {.sequence = 1, .confirm_lsn = 0x410};
    add_to(&batch, 0x200, 1, 0);
    mr_sums_begin(&sums, (struct mr_position){.commit_lsn = 0x2ff, .ordinal = 5});
    add_to(&batch, 0x2ff, 1, 0);
    add_to(&batch, 0x2ff, 5, 0);
    add_to(&batch, 0x2ff, 6, 0);
    add_to(&batch, 0x300, 1, 0);
    sums_test_fold(1, 0x410, (struct mr_position){0});
    assert_int_equal(records(), 2);
    assert_at(sums.range.from, 0x2ff, 5);
}

static void test_many_partitions_are_counted_together(void **state)
{
    (void)state;
    struct mr_batch batch = {.sequence = 1, .confirm_lsn = 0x900};
    for (int32_t i = 0; i < 2 * MR_RANGE_PARTS_MAX; i++) {
        add_to(&batch, 0x200, (uint64_t)i + 1, i);
    }
    sums_test_fold(1, 0x900, (struct mr_position){0});
    assert_int_equal(sums.range.parts.index.count, MR_RANGE_PARTS_MAX + 1);
    const struct mr_part *last = &sums.range.parts.items[MR_RANGE_PARTS_MAX];
    assert_int_equal(last->topic, MR_TOPIC_OTHERS);
    assert_int_equal(last->records, MR_RANGE_PARTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_digest_is_that_of_the_reader, sums_test_setup,
                                        sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_sums_carry, sums_test_setup, sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_at_least_once_a_range_ends_with_a_transaction,
                                        sums_test_setup, sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_exactly_once_a_range_ends_anywhere, sums_test_setup,
                                        sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_rows_that_are_copied_wait_for_those_before,
                                        sums_test_setup, sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_session_begins_above_what_is_counted,
                                        sums_test_setup, sums_test_teardown),
        cmocka_unit_test_setup_teardown(test_many_partitions_are_counted_together, sums_test_setup,
                                        sums_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
