#include "metrics/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/page.h"
#include "testing/test.h"

static uint8_t text[65536];

static struct mr_buffer metrics_test_begin(void)
{
    memset(text, 0, sizeof(text));
    return mr_buffer_init(text, sizeof(text) - 1);
}

static void test_expose_writes_help_type_and_value(void **state)
{
    (void)state;
    struct mr_buffer out = metrics_test_begin();
    struct mr_exposition exposition = {.out = &out};
    mr_expose_one_u64(&exposition, MR_METRIC_CHANGES, 42);
    assert_string_equal((char *)text, "# HELP millrace_changes_total Row changes and messages "
                                      "received, duplicates included.\n"
                                      "# TYPE millrace_changes_total counter\n"
                                      "millrace_changes_total 42\n");
}

static void test_expose_escapes_label_values(void **state)
{
    (void)state;
    struct mr_buffer out = metrics_test_begin();
    struct mr_exposition exposition = {.out = &out};
    mr_expose_begin(&exposition, MR_METRIC_EVENTS);
    const char *labels[] = {"s.\"a\\b\nc\xff é", "insert"};
    mr_expose_u64(&exposition, labels, UINT64_MAX);
    assert_non_null(strstr((char *)text,
                           "millrace_events_total{table=\"s.\\\"a\\\\b\\nc\xef\xbf\xbd é\","
                           "operation=\"insert\"} 18446744073709551615\n"));
}

static void test_expose_writes_floats_as_prometheus_reads_them(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {{INFINITY, "+Inf"}, {-INFINITY, "-Inf"}, {NAN, "NaN"}, {0.25, "0.25"}, {0, "0"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        struct mr_buffer out = metrics_test_begin();
        struct mr_exposition exposition = {.out = &out};
        mr_expose_begin(&exposition, MR_METRIC_LAG_SECONDS);
        mr_expose_f64(&exposition, NULL, rows[i].value);
        char *line = strstr((char *)text, "\nmillrace_lag_seconds ");
        assert_non_null(line);
        line += strlen("\nmillrace_lag_seconds ");
        assert_int_equal(strncmp(line, rows[i].text, strlen(rows[i].text)), 0);
    }
}

static void test_expose_histogram_is_cumulative(void **state)
{
    (void)state;
    struct mr_histogram histogram;
    struct mr_histogram_view view;
    mr_histogram_init(&histogram, MR_HISTOGRAM_SECONDS);
    mr_histogram_record(&histogram, 1500000);
    mr_histogram_record(&histogram, 2000000000);
    mr_histogram_read(&histogram, &view);
    struct mr_buffer out = metrics_test_begin();
    struct mr_exposition exposition = {.out = &out};
    mr_expose_begin(&exposition, MR_METRIC_STAGE_SECONDS);
    mr_expose_histogram(&exposition, (const char *const[]){"encoded"}, &view);
    static const char *const lines[] = {
        "millrace_stage_seconds_bucket{stage=\"encoded\",le=\"0.001\"} 0\n",
        "millrace_stage_seconds_bucket{stage=\"encoded\",le=\"0.0015\"} 1\n",
        "millrace_stage_seconds_bucket{stage=\"encoded\",le=\"2\"} 2\n",
        "millrace_stage_seconds_bucket{stage=\"encoded\",le=\"+Inf\"} 2\n",
        "millrace_stage_seconds_sum{stage=\"encoded\"} 2.0015\n",
        "millrace_stage_seconds_count{stage=\"encoded\"} 2\n",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(lines); i++) {
        assert_non_null(strstr((char *)text, lines[i]));
    }
}

static void test_expose_stops_at_the_end_of_the_buffer(void **state)
{
    (void)state;
    struct mr_buffer out = mr_buffer_init(text, 40);
    struct mr_exposition exposition = {.out = &out};
    mr_expose_one_u64(&exposition, MR_METRIC_CHANGES, 1);
    assert_true(out.full);
    assert_true(out.at <= text + 40);
}

static void test_declarations_follow_the_rules_of_prometheus(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MR_METRIC_COUNT; i++) {
        const struct mr_metric *metric = mr_metric_at(i);
        size_t len = strlen(metric->name);
        bool total = len > 6 && strcmp(metric->name + len - 6, "_total") == 0;
        assert_int_equal(total, metric->type == MR_METRIC_COUNTER);
        assert_true(strlen(metric->help) > 5);
        assert_null(strchr(metric->help, '\n'));
        assert_null(strchr(metric->meaning, '|'));
        if (metric->unit[0] != '\0' && strstr(metric->name, "_lsn") == NULL) {
            assert_non_null(strstr(metric->name, metric->unit));
        }
        for (uint32_t k = 0; k < i; k++) {
            assert_string_not_equal(metric->name, mr_metric_at(k)->name);
        }
    }
}

static void test_reference_page_is_the_one_in_docs(void **state)
{
    (void)state;
    mr_assert_page("docs/metrics.md", mr_metrics_print_reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expose_writes_help_type_and_value),
        cmocka_unit_test(test_expose_escapes_label_values),
        cmocka_unit_test(test_expose_writes_floats_as_prometheus_reads_them),
        cmocka_unit_test(test_expose_histogram_is_cumulative),
        cmocka_unit_test(test_expose_stops_at_the_end_of_the_buffer),
        cmocka_unit_test(test_declarations_follow_the_rules_of_prometheus),
        cmocka_unit_test(test_reference_page_is_the_one_in_docs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
