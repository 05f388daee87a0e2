#include "postgres/conn/pg_hosts.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

static void assert_item(char *item, const char *expected)
{
    assert_string_equal(item, expected);
    free(item);
}

static void test_count(void **state)
{
    (void)state;
    assert_int_equal(mr_pg_host_count(NULL, NULL), 1);
    assert_int_equal(mr_pg_host_count("", NULL), 1);
    assert_int_equal(mr_pg_host_count("a", NULL), 1);
    assert_int_equal(mr_pg_host_count("a,b,", NULL), 3);
    assert_int_equal(mr_pg_host_count("a,b,c", ""), 3);
    assert_int_equal(mr_pg_host_count("a", "::1,127.0.0.1"), 2);
}

static void test_items(void **state)
{
    (void)state;
    assert_null(mr_pg_host_item(NULL, 1));
    assert_item(mr_pg_host_item("a,b,c", 0), "a");
    assert_item(mr_pg_host_item("a,b,c", 2), "c");
    assert_item(mr_pg_host_item("a,,c", 1), "");
    assert_item(mr_pg_host_item("a", 3), "");
}

static void test_ports(void **state)
{
    (void)state;
    assert_null(mr_pg_host_port(NULL, 0));
    assert_item(mr_pg_host_port("5433", 2), "5433");
    assert_item(mr_pg_host_port("5433,5434", 1), "5434");
    assert_item(mr_pg_host_port("5433,", 1), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
