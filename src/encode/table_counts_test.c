#include "encode/table_counts.h"

#include <stdio.h>
#include <string.h>

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

static mr_slice slice_of(const char *text)
{
    return (mr_slice){.data = (const uint8_t *)text, .len = strlen(text)};
}

static void test_last_event_is_kept_where_it_is_wanted(void **state)
{
    (void)state;
    static char large[20000];
    memset(large, 'x', sizeof(large) - 1);
    struct mr_table_counts *counts = mr_table_counts_new(100);
    mr_table_counts_keep_last(counts);
    struct mr_table_line *line = mr_table_counts_line(counts, "public", "orders");
    struct mr_last_event event;
    assert_false(mr_table_counts_last(counts, "public.orders", &event));
    mr_table_line_keep(line, 5, slice_of("key"), slice_of("first"));
    mr_table_line_keep(line, 6, slice_of("key"), slice_of("second"));
    assert_true(mr_table_counts_last(counts, "public.orders", &event));
    assert_int_equal(event.time_ns, 6);
    assert_memory_equal(event.value, "second", event.value_kept);
    assert_int_equal(event.value_len, 6);
    mr_table_line_keep(line, 7, slice_of(large), (mr_slice){.data = NULL, .len = 0});
    assert_true(mr_table_counts_last(counts, "public.orders", &event));
    assert_int_equal(event.key_len, sizeof(large) - 1);
    assert_int_equal(event.key_kept, sizeof(event.key));
    assert_int_equal(event.value_kept, 0);
    assert_false(mr_table_counts_last(counts, "public.items", &event));
    for (int i = 0; i < 70; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        line = mr_table_counts_line(counts, "public", name);
        mr_table_line_keep(line, 8, slice_of("k"), slice_of("v"));
    }
    assert_true(mr_table_counts_last(counts, "public.t62", &event));
    assert_false(mr_table_counts_last(counts, "public.t63", &event)); /* the 65th table */
    mr_table_counts_free(counts);
    counts = mr_table_counts_new(1);
    line = mr_table_counts_line(counts, "public", "orders");
    mr_table_line_keep(line, 5, slice_of("key"), slice_of("value"));
    assert_false(mr_table_counts_last(counts, "public.orders", &event)); /* nobody wanted it */
    mr_table_counts_free(counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_counted_by_table_and_operation),
        cmocka_unit_test(test_last_event_is_kept_where_it_is_wanted),
        cmocka_unit_test(test_tables_beyond_the_limit_are_counted_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
