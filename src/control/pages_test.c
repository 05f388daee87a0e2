#include "control/pages.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

#define SECONDS(n) ((int64_t)(n)*1000000000)

static void test_stuck_thread(void **state)
{
    (void)state;
    struct mr_pipeline_stats stats = {.source.turn_ns = SECONDS(10), .sink.turn_ns = SECONDS(20)};
    assert_null(mr_stuck_thread(&stats, SECONDS(1000))); /* nothing is connected */
    stats.source.connected = stats.sink.connected = true;
    assert_null(mr_stuck_thread(&stats, SECONDS(100)));
    assert_string_equal(mr_stuck_thread(&stats, SECONDS(101)), "source");
    stats.source.turn_ns = SECONDS(101);
    assert_string_equal(mr_stuck_thread(&stats, SECONDS(111)), "sink");
}

static void show_nothing(void *context, cJSON *status)
{
    (void)context;
    (void)status;
}

/* Before anything was streamed; the sanitizers look on. */
static void test_status_of_nothing(void **state)
{
    (void)state;
    struct mr_pages pages = {
        .slot = "s", .publication = "p", .sink = "kafka", .show_more = show_nothing};
    static const struct mr_monitor_snapshot snapshot;
    cJSON *object = mr_status_json(&pages, &snapshot, 10, "");
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    assert_non_null(strstr(text, "\"tables\":[]"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stuck_thread),
        cmocka_unit_test(test_status_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
