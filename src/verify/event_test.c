#include "verify/event.h"

#include "testing/test.h"

static const struct mr_kafka_read marker = {
    .key = MR_SLICE("{\"mr-resolved\":true}"),
    .value = MR_SLICE("{\"resolved\":\"0000000000000210\",\"partitions\":1}"),
    .position = MR_SLICE("000000000000020F-0000000001-0"),
    .xid = MR_SLICE("0")};

static void test_a_marker_is_no_event(void **state)
{
    (void)state;
    struct mr_kafka_read other = marker;
    other.key = MR_SLICE("{\"id\":1}");
    struct mr_event event;
    assert_true(mr_event_is_marker(&marker));
    assert_false(mr_event_is_marker(&other));
    assert_non_null(mr_event_read(MR_FORMAT_DEBEZIUM, &other, &event));
}

static void test_payload(void **state)
{
    (void)state;
    static const struct {
        const char *text, *payload;
    } cases[] = {
        {"{\"schema\":{\"type\":\"struct\",\"fields\":[]},\"payload\":{\"id\":1}}", "{\"id\":1}"},
        {"{\"schema\":{\"type\":\"struct\",\"doc\":\"}\"},\"payload\":null}", "null"},
        {"{\"id\":1}", "{\"id\":1}"},
        {"{\"schema\":\"public\",\"payload\":1}", NULL},
        {"{\"schema\":{\"type\":\"struct\",\"fields\":[]},\"other\":1}", NULL},
        {"{\"schema\":{\"type\":\"struct\",", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        mr_slice text = mr_slice_of(cases[i].text);
        mr_slice want = cases[i].payload == NULL ? text : mr_slice_of(cases[i].payload);
        assert_true(mr_slice_equal(mr_event_payload(text), want));
    }
    assert_null(mr_event_payload((mr_slice){0}).data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_marker_is_no_event),
                                       cmocka_unit_test(test_payload)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
