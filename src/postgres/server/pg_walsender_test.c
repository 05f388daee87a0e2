#include "postgres/server/pg_slot.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "testing/test.h"

/* A line of the kernel's, of a process that began `start` ticks after the machine. */
static const char *line(const char *name, long start)
{
    static char text[256];
    snprintf(text, sizeof(text),
             "4711 (%s) R 1 4711 4711 0 -1 4194304 9 8 7 6 %ld %ld 3 2 20 0 1 0 %ld 1000 20", name,
             5 * sysconf(_SC_CLK_TCK), 2 * sysconf(_SC_CLK_TCK), start);
    return text;
}

static void test_seconds_of_the_servers_process_alone(void **state)
{
    (void)state;
    long hundred = 100 * sysconf(_SC_CLK_TCK);
    assert_true(mr_pg_cpu_of_stat(line("postgres", hundred), 1000, 1100) == 7);
    assert_true(mr_pg_cpu_of_stat(line("postgres", hundred), 1000, 1101.9) == 7);
    assert_true(isnan(mr_pg_cpu_of_stat(line("postgres", hundred), 1000, 1103)));
    assert_true(isnan(mr_pg_cpu_of_stat(line("postgres", hundred), 1000, 0)));
    assert_true(isnan(mr_pg_cpu_of_stat(line("sleep", hundred), 1000, 1100)));
    assert_true(isnan(mr_pg_cpu_of_stat("4711 (postgres) R 1 2", 1000, 1100)));
    assert_true(isnan(mr_pg_cpu_of_stat("", 1000, 1100)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seconds_of_the_servers_process_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
