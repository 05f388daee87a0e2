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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_marker_is_no_event)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
