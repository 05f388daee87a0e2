#include "control/monitor.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/monitor_internal.h"
#include "flow/pipeline_internal.h"
#include "metrics/metrics.h"
#include "sink/file.h"
#include "testing/test.h"

enum { TABLES = 500, SAMPLE_MS = 5, LIMIT_S = 30 };

/* A monitor of a pipeline that does not run: its figures are all there, and 0. */
struct fixture {
    struct mr_source source;
    struct mr_sink *sink;
    struct mr_topics topics;
    struct mr_encode_options encode_options;
    struct mr_encoder *encoder;
    struct mr_pipeline *pipeline;
    struct mr_table_counts *tables;
    struct mr_monitor *monitor;
    char *text;
};

static int monitor_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->sink = mr_discard_sink_new();
    fixture->encode_options =
        (struct mr_encode_options){.topic_prefix = "p", .unavailable_value = ""};
    fixture->encoder = mr_encoder_new(&fixture->encode_options, &fixture->topics);
    struct mr_pipeline_options options = {
        .batches = 4, .batch_bytes = 4096, .change_bytes_max = 65536};
    fixture->pipeline =
        mr_pipeline_new(&options, &fixture->source, fixture->sink, fixture->encoder, NULL, NULL);
    fixture->tables = mr_table_counts_new(TABLES);
    fixture->monitor = mr_monitor_new(&(struct mr_monitor_options){.sample_ms = SAMPLE_MS,
                                                                   .pipeline = fixture->pipeline,
                                                                   .sink = fixture->sink,
                                                                   .tables = fixture->tables});
    *state = fixture;
    return 0;
}

static int monitor_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_monitor_free(fixture->monitor);
    mr_pipeline_free(fixture->pipeline);
    mr_encoder_free(fixture->encoder);
    mr_topics_done(&fixture->topics);
    mr_table_counts_free(fixture->tables);
    fixture->sink->ops->free(fixture->sink);
    free(fixture->text);
    free(fixture);
    return 0;
}

static const char *monitor_test_write_text(struct fixture *fixture)
{
    size_t len;
    char *text = mr_monitor_metrics(fixture->monitor, &len);
    free(fixture->text);
    fixture->text = MR_STRNDUP(text, len);
    free(text);
    return fixture->text;
}

static void test_text_has_every_declared_family_once(void **state)
{
    const char *text = monitor_test_write_text(*state);
    /* Those of other rooms, which are not here, come last. */
    for (uint32_t i = 0; i < MR_METRIC_STAGE_CPU; i++) {
        char line[256];
        snprintf(line, sizeof(line), "# TYPE %s ", mr_metric_at(i)->name);
        const char *found = strstr(text, line);
        if (found == NULL) {
            print_error("no family %s\n", mr_metric_at(i)->name);
        }
        assert_non_null(found);
        assert_null(strstr(found + 1, line));
    }
}

static void test_text_of_many_tables_is_quick(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < TABLES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "table_number_%d", i);
        struct mr_table_line *line = mr_table_counts_line(fixture->tables, "public", name);
        mr_table_line_count(line, MR_OP_INSERT);
        mr_table_line_count(line, MR_OP_UPDATE);
        mr_table_line_count(line, MR_OP_DELETE);
    }
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        int64_t begin_ns = mr_monotonic_ns();
        monitor_test_write_text(fixture);
        int64_t took_ns = mr_monotonic_ns() - begin_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    print_message("%zu bytes in %lld us\n", strlen(fixture->text), (long long)best_ns / 1000);
    assert_non_null(strstr(fixture->text, "millrace_events_total{table=\"public.table_number_499\","
                                          "operation=\"delete\"} 1\n"));
    /* Far above the 5 ms that are promised: a loaded machine or a sanitizer is no failure. */
    assert_true(best_ns < INT64_C(200000000));
}

static void test_snapshot_tells_state_and_reason(void **state)
{
    struct fixture *fixture = *state;
    struct mr_monitor_snapshot *now = mr_monitor_snapshot_new(fixture->monitor);
    assert_int_equal(now->state, MR_STATE_STARTING);
    assert_false(now->ready);
    assert_non_null(strstr(now->reason, "PostgreSQL"));
    assert_string_equal(now->sink.name, "discard");
    assert_int_equal(now->pipeline.memory.free_batches, 4);
    assert_true(now->process.resident_bytes > 0);
    assert_true(now->process.open_fds > 2);
    mr_monitor_snapshot_free(now);
    mr_pipeline_stop(fixture->pipeline);
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_string_equal(mr_state_name(now->state), "stopping");
    mr_monitor_snapshot_free(now);
}

static void test_standby_is_a_state_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    struct mr_standstill *standstill = mr_pipeline_standstill(fixture->pipeline);
    mr_standstill_begin(standstill, MR_CAUSE_POSTGRESQL_AWAY, "not connected yet");
    fixture->source.stands_by = true;
    struct mr_monitor_snapshot *now = mr_monitor_snapshot_new(fixture->monitor);
    assert_string_equal(mr_state_name(now->state), "standby");
    assert_false(mr_standstill_has(standstill, MR_CAUSE_POSTGRESQL_AWAY));
    assert_int_equal(now->bottleneck, MR_STAGE_NONE);
    assert_true(now->ready);
    assert_non_null(strstr(now->reason, "another instance"));
    /* Not its own to tell: an alert on age must not come from the one that waits. */
    assert_true(isnan(now->lag.seconds));
    mr_monitor_snapshot_free(now);
    assert_non_null(
        strstr(monitor_test_write_text(fixture), "millrace_state{state=\"standby\"} 1\n"));
    fixture->source.stands_by = false;
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_int_equal(now->state, MR_STATE_STARTING);
    assert_false(now->ready);
    assert_int_equal(now->standstill.cause, MR_CAUSE_NONE);
    mr_monitor_snapshot_free(now);
}

/* The stream ends with the sink's session: PostgreSQL, which answers, was said to be lost until the
 * next one had begun. */
static void test_source_between_sessions_of_the_sink_is_not_lost(void **state)
{
    struct fixture *fixture = *state;
    struct mr_pipeline *pipeline = fixture->pipeline;
    atomic_store(&pipeline->by_source.was_connected, true);
    struct mr_monitor_snapshot *now = mr_monitor_snapshot_new(fixture->monitor);
    assert_string_equal(mr_state_name(now->state), "waiting_for_sink");
    assert_true(now->source_left_alone);
    assert_null(strstr(now->reason, "lost"));
    mr_monitor_snapshot_free(now);
    atomic_store(&pipeline->by_sink.connected, true); /* or a reload has it opened again */
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_string_equal(mr_state_name(now->state), "waiting_for_source");
    assert_string_equal(now->reason, "PostgreSQL's stream is opened again");
    mr_monitor_snapshot_free(now);
    atomic_store(&pipeline->by_sink.connected, false);
    struct mr_standstill *standstill = mr_pipeline_standstill(pipeline);
    mr_standstill_begin(standstill, MR_CAUSE_POSTGRESQL_AWAY, "it does not answer");
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_string_equal(mr_state_name(now->state), "waiting_for_source");
    assert_false(now->source_left_alone);
    mr_monitor_snapshot_free(now);
}

/* A sample of the state before says nothing of this one. */
static void test_bottleneck_is_of_the_state(void **state)
{
    struct fixture *fixture = *state;
    struct mr_error error = {0};
    struct mr_monitor_snapshot *now = NULL;
    assert_int_equal(mr_monitor_start(fixture->monitor, &error), MR_OK);
    do { /* ends at the test's time limit at the latest */
        mr_monitor_snapshot_free(now);
        poll(NULL, 0, SAMPLE_MS);
        now = mr_monitor_snapshot_new(fixture->monitor);
    } while (now->bottleneck != MR_STAGE_RECEIVE);
    assert_int_equal(now->state, MR_STATE_STARTING);
    mr_monitor_snapshot_free(now);
    mr_monitor_stop(fixture->monitor);
    fixture->source.stands_by = true;
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_int_equal(now->state, MR_STATE_STANDBY);
    assert_int_equal(now->bottleneck, MR_STAGE_NONE);
    mr_monitor_snapshot_free(now);
}

/* Rows came before anybody saw that nothing was left to confirm, and none was confirmed since. */
static void test_lag_grows_from_when_it_is_first_seen(void **state)
{
    struct fixture *fixture = *state;
    atomic_store(&fixture->pipeline->by_source.confirmed, 100);
    atomic_store(&fixture->pipeline->by_source.received, 300);
    struct mr_monitor_snapshot *now = mr_monitor_snapshot_new(fixture->monitor);
    assert_int_equal(now->lag.bytes, 200);
    mr_monitor_snapshot_free(now);
    poll(NULL, 0, 2 * SAMPLE_MS);
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_true(now->lag.seconds * 1000 >= 2 * SAMPLE_MS - 1);
    mr_monitor_snapshot_free(now);
    atomic_store(&fixture->pipeline->by_source.confirmed, 300);
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_true(now->lag.seconds == 0);
    mr_monitor_snapshot_free(now);
}

/* Vacuum writes and writes, and the stream passes it: there is always WAL that is not confirmed,
 * and nothing waits. What the stream has not passed yet may hold something, and so does what is not
 * acknowledged. */
static void test_wal_that_nobody_captures_is_no_lag(void **state)
{
    struct fixture *fixture = *state;
    struct mr_pipeline *pipeline = fixture->pipeline;
    struct mr_monitor_snapshot *now = NULL;
    static const enum mr_handshake_event steps[] = {MR_HANDSHAKE_CLAIM, MR_HANDSHAKE_LOAD,
                                                    MR_HANDSHAKE_LOADED, MR_HANDSHAKE_OPENED};
    for (size_t i = 0; i < MR_ARRAY_LEN(steps); i++) {
        assert_true(mr_handshake_step(&pipeline->handshake, 0, steps[i]));
    }
    atomic_store(&pipeline->by_source.confirmed, 100);
    for (mr_lsn received = 200; received < 1000; received += 100) {
        atomic_store(&pipeline->by_source.received, received);
        now = mr_monitor_snapshot_new(fixture->monitor);
        assert_int_equal(now->lag.bytes, received - 100);
        assert_true(now->lag.seconds == 0);
        mr_monitor_snapshot_free(now);
        poll(NULL, 0, 2);
    }
    assert_true(mr_handshake_step(&pipeline->handshake, 0, MR_HANDSHAKE_LOSE));
    poll(NULL, 0, 5);
    now = mr_monitor_snapshot_new(fixture->monitor);
    assert_true(now->lag.seconds * 1000 >= 4);
    mr_monitor_snapshot_free(now);
}

static void test_log_records_are_kept_to_a_number(void **state)
{
    struct fixture *fixture = *state;
    mr_log_configure(MR_LOG_ERROR, MR_LOG_TEXT);
    mr_log(MR_LOG_DEBUG, "no", "too quiet to be kept");
    for (int i = 0; i < MR_MONITOR_EVENTS + 10; i++) {
        char sentence[32];
        snprintf(sentence, sizeof(sentence), "number %d", i);
        mr_log(MR_LOG_WARN, "source_lost", sentence, MR_LOG_STR("slot", "a"), MR_LOG_INT("n", i),
               MR_LOG_LSN("at", 0x1600000002));
    }
    mr_log_configure(MR_LOG_INFO, MR_LOG_TEXT);
    struct mr_monitor_snapshot *now = mr_monitor_snapshot_new(fixture->monitor);
    assert_int_equal(now->events.count, MR_MONITOR_EVENTS);
    assert_string_equal(now->events.items[0].text, "number 10");
    assert_string_equal(now->events.items[MR_MONITOR_EVENTS - 1].text, "number 73");
    assert_string_equal(now->events.items[0].event, "source_lost");
    assert_string_equal(now->events.items[0].about, "slot a, n 10, at 16/2");
    assert_int_equal(now->events.items[0].level, MR_LOG_WARN);
    mr_monitor_snapshot_free(now);
}

static void test_history_grows_and_is_told_from_a_moment_on(void **state)
{
    struct fixture *fixture = *state;
    struct mr_error error = {0};
    assert_int_equal(mr_monitor_start(fixture->monitor, &error), MR_OK);
    static struct mr_monitor_sample samples[MR_MONITOR_SAMPLES];
    int64_t deadline_ns = mr_monotonic_ns() + INT64_C(1000000000) * LIMIT_S;
    uint32_t count;
    while ((count = mr_monitor_history(fixture->monitor, 0, samples, MR_MONITOR_SAMPLES)) < 5) {
        assert_true(mr_monotonic_ns() < deadline_ns);
        poll(NULL, 0, SAMPLE_MS);
    }
    mr_monitor_stop(fixture->monitor);
    assert_true(isnan(samples[0].flush_p50));
    assert_true(samples[0].records_rate == 0);
    count = mr_monitor_history(fixture->monitor, 0, samples, MR_MONITOR_SAMPLES);
    int64_t last_ms = samples[count - 1].time_ms;
    assert_int_equal(mr_monitor_history(fixture->monitor, last_ms, samples, 1), 0);
    assert_int_equal(mr_monitor_history(fixture->monitor, 0, samples, 2), 2);
}

/* A log alone shows whether memory grew; the page's list of what happened is not filled with it. */
static void test_memory_is_logged_from_time_to_time(void **state)
{
    struct fixture *fixture = *state;
    struct mr_monitor *monitor = mr_monitor_new(&(struct mr_monitor_options){
        .sample_ms = 1, .log_ms = 1, .pipeline = fixture->pipeline, .sink = fixture->sink});
    struct mr_error error = {0};
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    mr_log_configure(MR_LOG_INFO, MR_LOG_TEXT);
    assert_int_equal(mr_monitor_start(monitor, &error), MR_OK);
    char text[4096] = "";
    size_t len = 0;
    while (strchr(text, '\n') == NULL) { /* ends at the test's time limit at the latest */
        ssize_t got = read(ends[0], text + len, sizeof(text) - 1 - len);
        if (got <= 0) {
            break;
        }
        len += (size_t)got;
        text[len] = '\0';
    }
    mr_monitor_stop(monitor);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[0]);
    assert_non_null(strstr(text, "memory: "));
    const char *at = strstr(text, "resident_bytes=");
    assert_true(at != NULL && strtoull(at + strlen("resident_bytes="), NULL, 10) > 100000);
    assert_non_null(strstr(text, "batches_limit_bytes="));
    struct mr_monitor_snapshot *snapshot = mr_monitor_snapshot_new(monitor);
    assert_int_equal(snapshot->events.count, 0);
    mr_monitor_snapshot_free(snapshot);
    mr_monitor_free(monitor);
}

static void test_slot_that_is_lost_before_the_copy_is_done(void **state)
{
    (void)state;
    struct mr_copy_stats copy = {.state = MR_COPY_RUNNING, .seconds_left = 600};
    struct mr_slot_view slot = {.known = true, .has_limit = true, .forecast_seconds = 599};
    assert_true(mr_monitor_slot_is_short(&copy, &slot));
    slot.forecast_seconds = 600;
    assert_false(mr_monitor_slot_is_short(&copy, &slot));
    slot.forecast_seconds = INFINITY;
    assert_false(mr_monitor_slot_is_short(&copy, &slot));
    slot.forecast_seconds = 0; /* it is lost at the next checkpoint */
    assert_true(mr_monitor_slot_is_short(&copy, &slot));
    copy.seconds_left = NAN;
    assert_false(mr_monitor_slot_is_short(&copy, &slot));
    copy.seconds_left = 600;
    slot.has_limit = false;
    assert_false(mr_monitor_slot_is_short(&copy, &slot));
    slot.has_limit = true;
    copy.state = MR_COPY_DONE;
    assert_false(mr_monitor_slot_is_short(&copy, &slot));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text_has_every_declared_family_once,
                                        monitor_test_setup, monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_text_of_many_tables_is_quick, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_tells_state_and_reason, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_standby_is_a_state_of_its_own, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_source_between_sessions_of_the_sink_is_not_lost,
                                        monitor_test_setup, monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_bottleneck_is_of_the_state, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_lag_grows_from_when_it_is_first_seen,
                                        monitor_test_setup, monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_wal_that_nobody_captures_is_no_lag, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_log_records_are_kept_to_a_number, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_logged_from_time_to_time, monitor_test_setup,
                                        monitor_test_teardown),
        cmocka_unit_test_setup_teardown(test_history_grows_and_is_told_from_a_moment_on,
                                        monitor_test_setup, monitor_test_teardown),
        cmocka_unit_test(test_slot_that_is_lost_before_the_copy_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
