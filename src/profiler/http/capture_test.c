/* When a capture is due. */
#include <string.h>

#include "profiler/http/capture.h"
#include "testing/test.h"

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        struct mr_capture_options limits;
        struct mr_monitor_sample second;
        const char *passed; /* NULL: none */
        const char *says;
    } cases[] = {
        {{.in_flight_max = 10}, {.messages_in_flight = 10}, NULL, NULL},
        {{.in_flight_max = 10},
         {.messages_in_flight = 11},
         "in-flight",
         "11 records are in flight"},
        {{.flush_max_ms = 500}, {.flush_p99 = 0.4F}, NULL, NULL},
        {{.flush_max_ms = 500}, {.flush_p99 = 0.75F}, "flush", "took 750 ms, the limit is 500 ms"},
        {{.lag_max = 1000}, {.lag_bytes = 1000}, NULL, NULL},
        {{.lag_max = 1000}, {.lag_bytes = 1001}, "lag", "1001 bytes of WAL wait"},
        {{.memory_max = 1000}, {.resident_bytes = 1000}, NULL, NULL},
        {{.memory_max = 1000}, {.resident_bytes = 2000}, "memory", "2000 bytes are resident"},
        /* 0 is no limit, whatever the second was like. */
        {{0},
         {.messages_in_flight = 1000000,
          .flush_p99 = 60,
          .lag_bytes = 1 << 30,
          .resident_bytes = 1 << 30},
         NULL,
         NULL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char reason[160] = "";
        const char *passed =
            mr_capture_passed(&cases[i].limits, &cases[i].second, reason, sizeof(reason));
        if (cases[i].passed == NULL) {
            assert_null(passed);
        } else {
            assert_non_null(passed);
            assert_string_equal(passed, cases[i].passed);
            assert_non_null(strstr(reason, cases[i].says));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
