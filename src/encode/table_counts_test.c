#include "encode/table_counts.h"

#include <stdio.h>

#include "testing/test.h"

static void test_lines_are_counted_by_table_and_operation(void **state)
{
    (void)state;
    struct mr_table_counts *counts = mr_table_counts_new(10);
    struct mr_table_line *orders = mr_table_counts_line(counts, "public", "orders");
    struct mr_table_line *other = mr_table_counts_line(counts, "audit", "orders");
    assert_ptr_not_equal(orders, other);
    assert_ptr_equal(orders, mr_table_counts_line(counts, "public", "orders"));
    mr_table_line_count(orders, MR_OP_INSERT);
    mr_table_line_count(orders, MR_OP_INSERT);
    mr_table_line_count(orders, MR_OP_DELETE);
    mr_table_line_count(mr_table_counts_messages(counts), MR_OP_MESSAGE);
    struct mr_table_count read[4];
    /* Tables that have counted nothing have no line to show. */
    assert_int_equal(mr_table_counts_read(counts, read, 4), 2);
    assert_string_equal(read[0].table, "public.orders");
    assert_int_equal(read[0].events[MR_OP_INSERT], 2);
    assert_int_equal(read[0].events[MR_OP_DELETE], 1);
    assert_int_equal(read[0].events[MR_OP_UPDATE], 0);
    assert_string_equal(read[1].table, "");
    assert_int_equal(read[1].events[MR_OP_MESSAGE], 1);
    mr_table_counts_free(counts);
}

static void test_tables_beyond_the_limit_are_counted_together(void **state)
{
    (void)state;
    enum { LIMIT = 3, TABLES = 50 };
    struct mr_table_counts *counts = mr_table_counts_new(LIMIT);
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        mr_table_line_count(mr_table_counts_line(counts, "s", name), MR_OP_UPDATE);
    }
    struct mr_table_count read[TABLES];
    assert_int_equal(mr_table_counts_size(counts), LIMIT + 2);
    assert_int_equal(mr_table_counts_read(counts, read, TABLES), LIMIT + 1);
    assert_string_equal(read[LIMIT].table, "other");
    assert_int_equal(read[LIMIT].events[MR_OP_UPDATE], TABLES - LIMIT);
    assert_int_equal(mr_table_counts_read(counts, read, 2), 2);
    mr_table_counts_free(counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_counted_by_table_and_operation),
        cmocka_unit_test(test_tables_beyond_the_limit_are_counted_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
