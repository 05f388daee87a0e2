#include "sink/sink_counts.h"

#include <stdio.h>
#include <stdlib.h>

#include "testing/test.h"

static struct mr_topic topic_a = {.name = (char *)"a", .index = 0};
static struct mr_topic topic_b = {.name = (char *)"b", .index = 40};

struct fixture {
    struct mr_sink_counts counts;
    struct mr_sink_view view;
};

static int sink_counts_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    *state = fixture;
    return 0;
}

static int sink_counts_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_sink_counts_done(&fixture->counts);
    free(fixture);
    return 0;
}

static void assert_sums(struct fixture *fixture)
{
    int64_t records = 0;
    int64_t bytes = 0;
    mr_sink_counts_read(&fixture->counts, &fixture->view);
    for (uint32_t i = 0; i < fixture->view.partition_count; i++) {
        records += fixture->view.partitions[i].records;
        bytes += fixture->view.partitions[i].bytes;
    }
    assert_int_equal(records, fixture->view.records_in_flight);
    assert_int_equal(bytes, fixture->view.bytes_in_flight);
}

static void test_counts_follow_each_record(void **state)
{
    struct fixture *fixture = *state;
    struct mr_sink_counts *counts = &fixture->counts;
    mr_sink_counts_sent(counts, &topic_a, 1, 2, 100);
    mr_sink_counts_sent(counts, &topic_a, 1, 2, 10);
    mr_sink_counts_sent(counts, &topic_b, 0, 1, 7);
    assert_sums(fixture);
    assert_int_equal(fixture->view.partition_count, 3);
    assert_string_equal(fixture->view.partitions[1].topic, "a");
    assert_int_equal(fixture->view.partitions[1].partition, 1);
    assert_int_equal(fixture->view.partitions[1].records, 2);
    assert_int_equal(fixture->view.partitions[1].bytes, 110);
    mr_sink_counts_acked(counts, &topic_a, 1, 100);
    assert_sums(fixture);
    assert_int_equal(fixture->view.records_in_flight, 2);
    assert_int_equal(fixture->view.records_acked, 1);
    assert_int_equal(fixture->view.bytes_acked, 100);
    mr_sink_counts_reset(counts);
    assert_sums(fixture);
    assert_int_equal(fixture->view.records_in_flight, 0);
}

static void test_partitions_beyond_the_limit_are_counted_together(void **state)
{
    struct fixture *fixture = *state;
    struct mr_sink_counts *counts = &fixture->counts;
    mr_sink_counts_sent(counts, &topic_a, 0, 1000, 1);
    mr_sink_counts_sent(counts, &topic_b, 10, 1000, 1);
    mr_sink_counts_sent(counts, &topic_b, 999, 1000, 1);
    assert_sums(fixture);
    assert_int_equal(fixture->view.partition_count, MR_SINK_PARTITIONS_MAX + 1);
    const struct mr_sink_partition *other = &fixture->view.partitions[MR_SINK_PARTITIONS_MAX];
    assert_string_equal(other->topic, "other");
    assert_int_equal(other->partition, -1);
    assert_int_equal(other->records, 1);
    mr_sink_counts_acked(counts, &topic_b, 999, 1);
    mr_sink_counts_acked(counts, &topic_b, 10, 1);
    mr_sink_counts_acked(counts, &topic_a, 0, 1);
    assert_sums(fixture);
    assert_int_equal(fixture->view.records_in_flight, 0);
}

static void test_a_partition_learnt_later_keeps_the_totals_exact(void **state)
{
    struct fixture *fixture = *state;
    struct mr_sink_counts *counts = &fixture->counts;
    mr_sink_counts_sent(counts, &topic_a, -1, 0, 100);
    mr_sink_counts_sent(counts, &topic_a, 0, 1, 50);
    assert_sums(fixture);
    mr_sink_counts_acked(counts, &topic_a, 0, 100);
    mr_sink_counts_acked(counts, &topic_a, 0, 50);
    mr_sink_counts_read(counts, &fixture->view);
    assert_int_equal(fixture->view.records_in_flight, 0);
    assert_int_equal(fixture->view.bytes_in_flight, 0);
    for (uint32_t i = 0; i < fixture->view.partition_count; i++) {
        assert_int_equal(fixture->view.partitions[i].records, 0);
    }
}

static void test_errors_are_counted_by_code(void **state)
{
    struct fixture *fixture = *state;
    static char codes[MR_SINK_ERRORS_MAX + 3][16];
    for (uint32_t i = 0; i < MR_SINK_ERRORS_MAX + 3; i++) {
        snprintf(codes[i], sizeof(codes[i]), "CODE_%u", i);
        mr_sink_counts_errors(&fixture->counts, codes[i], 1);
    }
    mr_sink_counts_errors(&fixture->counts, "CODE_5", 1);
    mr_sink_counts_read(&fixture->counts, &fixture->view);
    assert_int_equal(fixture->view.error_count, MR_SINK_ERRORS_MAX + 1);
    assert_int_equal(fixture->view.errors[5].count, 2);
    assert_string_equal(fixture->view.errors[MR_SINK_ERRORS_MAX].code, "other");
    assert_int_equal(fixture->view.errors[MR_SINK_ERRORS_MAX].count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counts_follow_each_record, sink_counts_test_setup,
                                        sink_counts_test_teardown),
        cmocka_unit_test_setup_teardown(test_partitions_beyond_the_limit_are_counted_together,
                                        sink_counts_test_setup, sink_counts_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_partition_learnt_later_keeps_the_totals_exact,
                                        sink_counts_test_setup, sink_counts_test_teardown),
        cmocka_unit_test_setup_teardown(test_errors_are_counted_by_code, sink_counts_test_setup,
                                        sink_counts_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
