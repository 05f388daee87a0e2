#include "sink/kafka/kafka_size.h"

#include "sink/kafka/kafka.h"
#include "testing/test.h"

enum { VALUE_BYTES = 40000 };

static uint8_t value[VALUE_BYTES];

static struct mr_record record_of(struct mr_topic *topic)
{
    return (struct mr_record){.topic = topic,
                              .key = (const uint8_t *)"key",
                              .key_len = 3,
                              .value = value,
                              .value_len = VALUE_BYTES,
                              .position = {.commit_lsn = 77, .ordinal = 3},
                              .commit_time_us = 1700000000000000,
                              .xid = 1234};
}

/* Kafka's DefaultRecord: each number by hand. */
static void test_bytes_as_they_are(void **state)
{
    (void)state;
    struct mr_topic topic = {.name = (char *)"t"};
    struct mr_record record = record_of(&topic);
    struct mr_kafka_options options = {.compression = "none"};
    size_t body = 1 + 1 + 1 + 1 + 3 + 3 + VALUE_BYTES + 1;
    assert_int_equal(mr_kafka_plain_size(&options, &record), 61 + 3 + body);
    record.key = NULL;
    record.key_len = 0;
    assert_int_equal(mr_kafka_plain_size(&options, &record), 61 + 3 + body - 3);
    options.headers = true;
    size_t ours = (1 + 6 + 1 + 29) + (1 + 6 + 1 + 4) + (1 + 5 + 1 + 16);
    assert_int_equal(mr_kafka_plain_size(&options, &record), 61 + 3 + body - 3 + ours);
    record.value_len = 0;
    assert_int_equal(mr_kafka_plain_size(&options, &record), 61 + 2 + 3 + 1 + 1 + 1 + ours);
    record.value = NULL;
    assert_int_equal(mr_kafka_plain_size(&options, &record), 61 + 2 + 3 + 1 + 1 + 1 + ours);
}

static void test_bytes_as_they_are_sent(void **state)
{
    (void)state;
#ifdef MILLRACE_CODECS
    /* Snappy's copies are of 64 bytes at most (google/snappy, format_description.txt), the others'
     * of any length. */
    static const char *const codecs[] = {"gzip", "lz4", "zstd",
#ifdef MILLRACE_RDKAFKA_SEND_NOW
                                         "snappy"
#endif
    };
    struct mr_topic topic = {.name = (char *)"t"};
    struct mr_record record = record_of(&topic);
    for (size_t i = 0; i < MR_ARRAY_LEN(codecs); i++) {
        const bool is_snappy = codecs[i][0] == 's';
        const size_t least = is_snappy ? VALUE_BYTES / 64 * 3 : 61;
        struct mr_kafka_options options = {.compression = codecs[i], .headers = true};
        memset(value, 'y', sizeof(value));
        struct mr_kafka_size size = mr_kafka_size_of(&options, &record);
        assert_true(size.sent > least && size.sent < (is_snappy ? 2100 : 500));
        assert_true(mr_kafka_is_more(&options, &record, 400, size.sent));
        assert_false(mr_kafka_is_more(&options, &record, 400, size.sent + 1));
        assert_false(mr_kafka_is_more(&options, &record, size.plain, 1));
        uint64_t bits = 1;
        for (size_t at = 0; at < sizeof(value); at++) {
            bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407;
            value[at] = (uint8_t)(bits >> 56);
        }
        size = mr_kafka_size_of(&options, &record);
        assert_true(size.sent <= size.plain && size.sent > VALUE_BYTES);
    }
#endif
}

static void test_level_is_that_of_the_configuration(void **state)
{
    (void)state;
#ifdef MILLRACE_CODECS
    static const char *const codecs[] = {"gzip", "lz4", "zstd"};
    struct mr_topic topic = {.name = (char *)"t"};
    struct mr_record record = record_of(&topic);
    uint64_t bits = 1;
    for (size_t at = 0; at < sizeof(value); at++) {
        bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407;
        value[at] = (uint8_t) "abcdefgh"[bits >> 61 & (at / 64 % 8)];
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(codecs); i++) {
        struct mr_kafka_property level = {"compression.level", "9"};
        struct mr_kafka_options options = {
            .compression = codecs[i], .properties = &level, .property_count = 1};
        size_t high = mr_kafka_size_of(&options, &record).sent;
        level.value = "1";
        assert_int_not_equal(high, mr_kafka_size_of(&options, &record).sent);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_as_they_are),
        cmocka_unit_test(test_bytes_as_they_are_sent),
        cmocka_unit_test(test_level_is_that_of_the_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
