/* Each guilty part, by figures that show it; and none, where nothing does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/monitor_internal.h"
#include "testing/test.h"

enum { MIB = 1024 * 1024 };
#define SECOND INT64_C(1000000000)

static struct mr_monitor_snapshot *monitor_why_test_snapshot_of(enum mr_stage bottleneck,
                                                                const char *wait)
{
    struct mr_monitor_snapshot *now = calloc(1, sizeof(*now));
    now->state = MR_STATE_STREAMING;
    now->bottleneck = bottleneck;
    now->slot.cost.wait_percent = 90;
    snprintf(now->slot.cost.wait, sizeof(now->slot.cost.wait), "%s", wait);
    return now;
}

/* The sentence has `part`; NULL: there is none. */
static void monitor_why_test_expect(struct mr_monitor_snapshot *now,
                                    const struct mr_monitor_mix *mix, const char *part)
{
    mr_monitor_explain(now, mix);
    if (part == NULL ? now->why[0] != '\0' : strstr(now->why, part) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", now->why, part == NULL ? "" : part);
    }
    free(now);
}

static void test_explain_each_part(void **state)
{
    (void)state;
    const struct mr_monitor_mix none = {0};
    monitor_why_test_expect(
        monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "CPU"), &none,
        "PostgreSQL's walsender is at its core's limit (CPU in 90 % of the looks)");
    struct mr_monitor_snapshot *near = monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "CPU");
    near->slot.cost.has_cpu = true;
    near->slot.cost.cpu_cores = 0.974;
    monitor_why_test_expect(near, &none, "(CPU in 90 % of the looks, 97 % of a core)");
    monitor_why_test_expect(
        monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "Client/WalSenderWriteData"), &none,
        "the network is the limit, or this machine (Client/WalSenderWriteData");
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "IO/WalRead"), &none,
                            "waits in the server (IO/WalRead in 90 %");
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, ""), &none, NULL);
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_ENCODE, "CPU"), &none,
                            "millrace's source thread");
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_PRODUCE, ""), &none,
                            "millrace's sink thread");
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_NONE, "CPU"), &none, NULL);
}

static void test_explain_the_broker(void **state)
{
    (void)state;
    const struct mr_monitor_mix none = {0};
    struct mr_monitor_snapshot *now =
        monitor_why_test_snapshot_of(MR_STAGE_FLUSH, "Client/WalSenderWriteData");
    now->rates.backpressure = 0.75f;
    now->sink.records_in_flight = 17;
    now->sink.bytes_in_flight = 100;
    now->sink.partition_count = 2;
    now->sink.partitions[0] = (struct mr_sink_partition){"cold", 0, 1, 10};
    now->sink.partitions[1] = (struct mr_sink_partition){"hot", 3, 16, 90};
    now->sink.client.broker_count = 2;
    snprintf(now->sink.client.brokers[0].name, sizeof(now->sink.client.brokers[0].name), "near:1");
    snprintf(now->sink.client.brokers[1].name, sizeof(now->sink.client.brokers[1].name), "far:1");
    now->sink.client.brokers[0].rtt_p99 = 0.001;
    now->sink.client.brokers[1].rtt_p99 = 0.25;
    monitor_why_test_expect(
        now, &none,
        "waited for it 75 % of the last second, with 17 records in flight; broker far:1 answers "
        "in 250 ms (p99); 90 % of what is in flight is for topic hot, partition 3");
}

static void test_explain_the_holder(void **state)
{
    (void)state;
    const struct mr_monitor_mix none = {0};
    struct mr_monitor_snapshot *now = monitor_why_test_snapshot_of(MR_STAGE_NONE, "");
    now->slot.cost.held_bytes = 20 * MIB;
    snprintf(now->slot.cost.holder, sizeof(now->slot.cost.holder),
             "the transaction of role r in database d, process 17");
    monitor_why_test_expect(now, &none, "process 17 keeps 20 MiB of WAL that is confirmed");
}

/* A standstill has a reason of its own, and who stands by is not slow. */
static void test_explain_nothing(void **state)
{
    (void)state;
    const struct mr_monitor_mix none = {0};
    struct mr_monitor_snapshot *now = monitor_why_test_snapshot_of(MR_STAGE_FLUSH, "");
    now->standstill.cause = MR_CAUSE_KAFKA_AWAY;
    monitor_why_test_expect(now, &none, NULL);
    now = monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "CPU");
    now->state = MR_STATE_STANDBY;
    monitor_why_test_expect(now, &none, NULL);
}

static void test_a_backlog_is_read_in_gulps(void **state)
{
    (void)state;
    const struct mr_monitor_mix none = {0};
    struct mr_monitor_snapshot *now = monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "CPU");
    now->pipeline.source.backlog = true;
    monitor_why_test_expect(now, &none,
                            "; what comes is older than a second, so it is read in gulps");
}

static void test_mix_of_wal_and_tables(void **state)
{
    (void)state;
    struct mr_table_count tables[2] = {{"public.cold", {10}}, {"public.hot", {0}}};
    struct mr_monitor_mix mix = {0};
    struct mr_monitor_snapshot *now = monitor_why_test_snapshot_of(MR_STAGE_RECEIVE, "CPU");
    now->tables.items = tables;
    now->tables.count = 1;
    now->pipeline.received_lsn = 100 * MIB;
    now->pipeline.source.received_bytes = MIB;
    mr_monitor_mix_add(&mix, now, 10 * SECOND);
    now->pipeline.received_lsn += 50 * MIB;
    now->pipeline.source.received_bytes += 5 * MIB;
    now->tables.count = 2;
    tables[0].events[0] += 100;
    tables[1].events[1] += 900;
    mr_monitor_mix_add(&mix, now, 12 * SECOND); /* the window is not over */
    assert_int_equal(mix.wal_bytes, 0);
    mr_monitor_mix_add(&mix, now, 15 * SECOND);
    snprintf(now->slot.cost.others, sizeof(now->slot.cost.others), "public.a, public.b");
    monitor_why_test_expect(
        now, &mix,
        "; 90 % of the WAL that it reads is not of captured rows (others that change most: "
        "public.a, public.b); 90 % of the changes are of table public.hot");
    monitor_why_test_expect(monitor_why_test_snapshot_of(MR_STAGE_DECODE, ""), &mix,
                            "limit; 90 % of the changes are of table");
    free(mix.begin.counted);
}

/* The lines of a table's first events come before those of all others. */
static void test_a_new_table_is_not_taken_for_another(void **state)
{
    (void)state;
    static const char cold[] = "public.cold", hot[] = "public.hot", other[] = "other";
    struct mr_table_count before[] = {{cold, {10}}, {other, {5000}}};
    struct mr_table_count after[] = {{cold, {10}}, {hot, {2000}}, {other, {5000}}};
    struct mr_monitor_mix mix = {0};
    struct mr_monitor_snapshot *now = monitor_why_test_snapshot_of(MR_STAGE_DECODE, "");
    now->tables.items = before;
    now->tables.count = MR_ARRAY_LEN(before);
    mr_monitor_mix_add(&mix, now, 10 * SECOND);
    now->tables.items = after;
    now->tables.count = MR_ARRAY_LEN(after);
    mr_monitor_mix_add(&mix, now, 15 * SECOND);
    monitor_why_test_expect(now, &mix, "; 100 % of the changes are of table public.hot");
    free(mix.begin.counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain_each_part),
        cmocka_unit_test(test_explain_the_broker),
        cmocka_unit_test(test_explain_the_holder),
        cmocka_unit_test(test_explain_nothing),
        cmocka_unit_test(test_a_backlog_is_read_in_gulps),
        cmocka_unit_test(test_mix_of_wal_and_tables),
        cmocka_unit_test(test_a_new_table_is_not_taken_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
