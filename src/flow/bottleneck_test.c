#include "flow/bottleneck.h"

#include "testing/test.h"

#define PART(hundredths) (UINT64_C(10000000) * (hundredths))

/* A second. */
#define FLOW(...)                                                                                  \
    {                                                                                              \
        .elapsed_ns = PART(100), __VA_ARGS__                                                       \
    }

static void test_bottleneck_of_each_kind(void **state)
{
    (void)state;
    static const struct {
        struct mr_flow flow;
        enum mr_stage stage;
        bool source_lost, sink_lost;
    } rows[] = {
        {FLOW(.backpressure_ns = 0), MR_STAGE_NONE, false, false},
        {FLOW(.source_cpu_ns = PART(79), .in_flight = true), MR_STAGE_NONE, false, false},
        {FLOW(.in_flight = true), MR_STAGE_RECEIVE, true, false},
        {FLOW(.behind = true), MR_STAGE_RECEIVE, false, false},
        {FLOW(.source_cpu_ns = PART(85), .encode_ns = PART(50), .behind = true), MR_STAGE_ENCODE,
         false, false},
        {FLOW(.source_cpu_ns = PART(85), .encode_ns = PART(30), .behind = true), MR_STAGE_DECODE,
         false, false},
        {FLOW(.backpressure_ns = PART(20), .behind = true), MR_STAGE_FLUSH, false, false},
        {FLOW(.backpressure_ns = PART(60), .sink_cpu_ns = PART(90)), MR_STAGE_PRODUCE, false,
         false},
        /* A source that is nearly at its limit and yet waits for batches is held by the sink. */
        {FLOW(.backpressure_ns = PART(25), .source_cpu_ns = PART(85)), MR_STAGE_FLUSH, false,
         false},
        {FLOW(.in_flight = true), MR_STAGE_FLUSH, false, true},
        {FLOW(.in_flight = false), MR_STAGE_NONE, false, true},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        struct mr_flow flow = rows[i].flow;
        flow.source_connected = !rows[i].source_lost;
        flow.sink_connected = !rows[i].sink_lost;
        assert_string_equal(mr_stage_name(mr_bottleneck(&flow)), mr_stage_name(rows[i].stage));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bottleneck_of_each_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
