#include "sink/kafka/kafka_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "testing/test.h"

/* Cut down from a report of librdkafka 2.0.2. */
static const char report[] =
    "{\"name\":\"millrace#producer-1\",\"type\":\"producer\",\"ts\":5016483227792,"
    "\"time\":1527060869,\"replyq\":3,\"msg_cnt\":22710,\"msg_size\":704010,"
    "\"msg_max\":500000,\"brokers\":{"
    "\"localhost:9092/bootstrap\":{\"nodeid\":-1,\"nodename\":\"\",\"state\":\"UP\"},"
    "\"localhost:9092/2\":{\"name\":\"localhost:9092/2\",\"nodeid\":2,"
    "\"nodename\":\"localhost:9092\",\"state\":\"UP\",\"waitresp_cnt\":1,\"tx\":320,"
    "\"txerrs\":1,\"txretries\":4,\"req_timeouts\":5,\"rxerrs\":2,\"connects\":7,"
    "\"outbuf_latency\":{\"min\":0,\"avg\":50,\"p99\":99},"
    "\"rtt\":{\"min\":1580,\"max\":3389,\"avg\":2349,\"p99\":2915}},"
    "\"other:9092/3\":{\"nodeid\":3,\"nodename\":\"other:9092\",\"state\":\"CONNECT\"}},"
    "\"topics\":{\"t\":{\"partitions\":{\"0\":{\"partition\":0}}}},"
    "\"tx\":631,\"tx_bytes\":168584479,\"rx\":631,\"txmsgs\":4300753,\"txmsg_bytes\":133323343}";

static void test_parse_takes_what_matters(void **state)
{
    (void)state;
    struct mr_sink_client client;
    assert_true(mr_kafka_stats_parse(report, &client));
    assert_true(client.known);
    assert_int_equal(client.time_ns, INT64_C(5016483227792000));
    assert_int_equal(client.queue_messages, 22710);
    assert_int_equal(client.queue_bytes, 704010);
    assert_int_equal(client.pending_events, 3);
    assert_int_equal(client.sent_messages, 4300753);
    assert_int_equal(client.sent_bytes, 168584479);
    assert_int_equal(client.requests, 631);
    assert_int_equal(client.broker_count, 2);
    const struct mr_sink_broker *broker = &client.brokers[0];
    assert_int_equal(broker->id, 2);
    assert_string_equal(broker->name, "localhost:9092");
    assert_true(broker->up);
    assert_false(client.brokers[1].up);
    assert_true(fabs(broker->rtt_avg - 0.002349) < 1e-9);
    assert_true(fabs(broker->rtt_p99 - 0.002915) < 1e-9);
    assert_true(fabs(broker->queue_p99 - 0.000099) < 1e-9);
    assert_int_equal(broker->requests_in_flight, 1);
    assert_int_equal(broker->retries, 4);
    assert_int_equal(broker->timeouts, 5);
    assert_int_equal(broker->errors, 3);
    assert_int_equal(broker->connects, 7);
}

/* Without its topics, whatever they are called, it says the same. */
static void test_keep_leaves_out_topics(void **state)
{
    (void)state;
    static const char head[] = "{\"ts\":1,\"msg_cnt\":2,\"brokers\":{\"a/1\":{\"nodeid\":1,"
                               "\"tx\":3,\"toppars\":{\"topics-0\":{\"topic\":\"topics\"}}}}, ";
    static const char topics[] = "\"topics\":{ \"topics\": { \"age\":1, \"partitions\":{ \"0\": { "
                                 "\"txmsgs\":7} } } , \"tx\": { \"age\":1} } , \"eos\": { } , ";
    static const char tail[] = "\"tx\":4, \"tx_bytes\":5, \"txmsgs\":6}";
    char whole[1024];
    char short_one[1024];
    snprintf(whole, sizeof(whole), "%s%s%s", head, topics, tail);
    snprintf(short_one, sizeof(short_one), "%s%s", head, tail);
    char *kept = mr_kafka_stats_keep(whole);
    assert_string_equal(kept, short_one);
    struct mr_sink_client client;
    assert_true(mr_kafka_stats_parse(kept, &client));
    assert_int_equal(client.requests, 4);
    assert_int_equal(client.sent_messages, 6);
    assert_int_equal(client.broker_count, 1);
    free(kept);
    kept = mr_kafka_stats_keep("no report");
    assert_string_equal(kept, "no report");
    free(kept);
}

static void test_parse_refuses_what_is_no_report(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "[]", "null", "{}", "{\"brokers\":"};
    struct mr_sink_client client = {.queue_messages = 7};
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        assert_false(mr_kafka_stats_parse(texts[i], &client));
        assert_int_equal(client.queue_messages, 7);
    }
    /* Fields of a strange kind count as absent. */
    assert_true(
        mr_kafka_stats_parse("{\"brokers\":[1,\"x\",{\"nodeid\":\"y\"}],\"tx\":\"z\"}", &client));
    assert_int_equal(client.requests, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_takes_what_matters),
        cmocka_unit_test(test_keep_leaves_out_topics),
        cmocka_unit_test(test_parse_refuses_what_is_no_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
