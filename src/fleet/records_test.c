/* Records of a fleet's topics: what was written is read; what is cut, later or a lie is told, and names a record nevertheless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/store.h"
#include "testing/test.h"

static char text[] = "text \"\\\xc3\xa9\n";
static char name[] = "shop_a";

static struct fleet_record record_of(enum fleet_record_kind kind)
{
    struct fleet_record record = {.kind = kind};
    switch (kind) {
    case FLEET_RECORD_REVISION:
        record.revision = (struct fleet_revision){7, 60, text, text, text};
        break;
    case FLEET_RECORD_NODE:
        record.node = (struct fleet_node){name, true};
        break;
    case FLEET_RECORD_DEFINITION:
        record.definition =
            (struct fleet_definition){.name = name,
                                      .revision = 7,
                                      .generation = 5,
                                      .retry = 6,
                                      .config = text,
                                      .terms = {true, 1000, UINT64_C(1) << 40, 10000}};
        break;
    case FLEET_RECORD_STATUS:
        record.status = (struct fleet_status){.name = name,
                                              .at_ms = INT64_C(1795733463000),
                                              .node = text,
                                              .pid = 4711,
                                              .generation = 5,
                                              .retry = 6,
                                              .state = FLEET_HELD,
                                              .is_surplus = true,
                                              .since_ms = 3,
                                              .exit_code = 10,
                                              .error = text,
                                              .program = text,
                                              .slot = text,
                                              .lag_seconds = 0.5,
                                              .lag_bytes = -1,
                                              .retained_wal_bytes = 1e12,
                                              .rss_bytes = 2,
                                              .cpu_seconds = 0.25,
                                              .rows = 1e15,
                                              .bytes = 4,
                                              .starts = 1};
        break;
    default:
        record.kind = FLEET_RECORD_NODE_STATUS;
        record.node_status = (struct fleet_node_status){.name = name,
                                                        .at_ms = 5,
                                                        .program = text,
                                                        .revision = 7,
                                                        .processes = 2,
                                                        .owned = text,
                                                        .is_drained = true,
                                                        .is_ready = true};
        break;
    }
    return record;
}

static bool is_status(enum fleet_record_kind kind)
{
    return kind >= FLEET_RECORD_STATUS;
}

static mr_status read_value(enum fleet_record_kind kind, const char *key, const char *value,
                            size_t len, struct fleet_record *ret)
{
    struct mr_error error;
    /* Of its own size, so that a read behind its end is seen. */
    uint8_t *bytes = malloc(len + 1);
    memcpy(bytes, value, len);
    uint8_t *exact = realloc(bytes, len == 0 ? 1 : len);
    const struct mr_kafka_read read = {.partition = kind == FLEET_RECORD_DEFINITION ? 9 : 0,
                                       .key = mr_slice_of(key),
                                       .value = {.data = exact, .len = len}};
    mr_status status = mr_fleet_record_read(is_status(kind), &read, ret, &error);
    free(exact);
    return status;
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int kind = 0; kind < FLEET_RECORD_OTHER; kind++) {
        struct fleet_record record = record_of((enum fleet_record_kind)kind), read;
        char *key = mr_fleet_record_key(&record), *value = mr_fleet_record_value(&record);
        assert_int_equal(read_value(record.kind, key, value, strlen(value), &read), MR_OK);
        assert_int_equal(read.kind, kind);
        char *again = mr_fleet_record_value(&read);
        assert_string_equal(again, value);
        free(again);
        mr_fleet_record_done(&read);
        free(key);
        free(value);
    }
}

/* The name is there, so that an agent can hold that pipeline. */
static void test_read_cut_at_every_byte(void **state)
{
    (void)state;
    for (int kind = 0; kind < FLEET_RECORD_OTHER; kind++) {
        struct fleet_record record = record_of((enum fleet_record_kind)kind), read;
        char *key = mr_fleet_record_key(&record), *value = mr_fleet_record_value(&record);
        for (size_t len = 0; len < strlen(value); len++) {
            assert_int_equal(read_value(record.kind, key, value, len, &read), MR_ERR_PROTOCOL);
            assert_int_equal(read.kind, kind);
            if (kind == FLEET_RECORD_DEFINITION) {
                assert_string_equal(read.definition.name, name);
                assert_int_equal(read.definition.partition, 9);
            }
            mr_fleet_record_done(&read);
        }
        free(key);
        free(value);
    }
}

static void test_read_lies(void **state)
{
    (void)state;
    static const struct {
        enum fleet_record_kind kind;
        const char *value;
        mr_status status;
    } cases[] = {
        {FLEET_RECORD_NODE, "{\"version\":1,\"drain\":true,\"later\":[{}]}", MR_OK},
        {FLEET_RECORD_NODE, "{\"version\":2,\"drain\":true}", MR_ERR_CONFIG},
        {FLEET_RECORD_NODE, "{\"version\":1e300}", MR_ERR_CONFIG},
        {FLEET_RECORD_NODE, "{\"version\":0,\"drain\":true}", MR_ERR_PROTOCOL},
        {FLEET_RECORD_NODE, "{\"version\":\"1\",\"drain\":true}", MR_ERR_PROTOCOL},
        {FLEET_RECORD_NODE, "{\"version\":1,\"drain\":1}", MR_ERR_PROTOCOL},
        {FLEET_RECORD_NODE, "[1]", MR_ERR_PROTOCOL},
        {FLEET_RECORD_NODE, "null", MR_ERR_PROTOCOL},
        {FLEET_RECORD_REVISION, "{\"version\":1,\"revision\":-1,\"count\":1,\"sha256\":\"\"}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_REVISION, "{\"version\":1,\"revision\":1.5,\"count\":1,\"sha256\":\"\"}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_REVISION, "{\"version\":1,\"revision\":1e300,\"count\":1,\"sha256\":\"\"}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_REVISION, "{\"version\":1,\"revision\":1,\"count\":1,\"sha256\":7}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_DEFINITION,
         "{\"version\":1,\"revision\":1,\"generation\":1,\"run\":true,\"config\":\"\"}", MR_OK},
        {FLEET_RECORD_DEFINITION,
         "{\"version\":1,\"revision\":1,\"generation\":1,\"run\":true,\"config\":\"\","
         "\"weight\":1001}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_STATUS,
         "{\"version\":1,\"at_ms\":1,\"node\":\"a\",\"generation\":1,\"state\":\"streaming\","
         "\"lag_seconds\":null}",
         MR_OK},
        {FLEET_RECORD_STATUS,
         "{\"version\":1,\"at_ms\":1,\"node\":\"a\",\"generation\":1,\"state\":\"Streaming\"}",
         MR_ERR_PROTOCOL},
        {FLEET_RECORD_STATUS,
         "{\"version\":1,\"at_ms\":1,\"node\":\"a\",\"generation\":1,\"state\":7}",
         MR_ERR_PROTOCOL},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct fleet_record record = record_of(cases[i].kind), read;
        char *key = mr_fleet_record_key(&record);
        assert_int_equal(
            read_value(cases[i].kind, key, cases[i].value, strlen(cases[i].value), &read),
            cases[i].status);
        mr_fleet_record_done(&read);
        free(key);
    }
}

/* What is no name would be a path of a file. */
static void test_read_keys(void **state)
{
    (void)state;
    static const struct {
        bool is_status;
        int32_t partition;
        mr_slice key;
        enum fleet_record_kind kind;
    } cases[] = {
        {false, 0, MR_SLICE("_revision"), FLEET_RECORD_REVISION},
        {false, 0, MR_SLICE("node/a"), FLEET_RECORD_NODE},
        {false, 1, MR_SLICE("a"), FLEET_RECORD_DEFINITION},
        {true, 0, MR_SLICE("a"), FLEET_RECORD_STATUS},
        {true, 0, MR_SLICE("node/a"), FLEET_RECORD_NODE_STATUS},
        {false, 1, MR_SLICE("_revision"), FLEET_RECORD_OTHER},
        {true, 0, MR_SLICE("_revision"), FLEET_RECORD_OTHER},
        {false, 1, MR_SLICE("node/a"), FLEET_RECORD_OTHER},
        {false, 0, MR_SLICE("a"), FLEET_RECORD_OTHER},
        {false, 0, MR_SLICE("_later"), FLEET_RECORD_OTHER},
        {false, 1, MR_SLICE("../a"), FLEET_RECORD_OTHER},
        {false, 1, MR_SLICE("a\0b"), FLEET_RECORD_OTHER},
        {false, 1, MR_SLICE(""), FLEET_RECORD_OTHER},
        {false, 1, {NULL, 0}, FLEET_RECORD_OTHER},
        {false, 0, MR_SLICE("node/"), FLEET_RECORD_OTHER},
        {false, 0, MR_SLICE("node/a/b"), FLEET_RECORD_OTHER},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        const struct mr_kafka_read read = {.partition = cases[i].partition, .key = cases[i].key};
        struct fleet_record record;
        struct mr_error error;
        assert_int_equal(mr_fleet_record_read(cases[i].is_status, &read, &record, &error), MR_OK);
        assert_int_equal(record.kind, cases[i].kind);
        assert_true(record.is_gone);
        mr_fleet_record_done(&record);
    }
}

static void test_value_leaves_out_what_is_not_known(void **state)
{
    (void)state;
    struct fleet_record record = record_of(FLEET_RECORD_STATUS);
    char *value = mr_fleet_record_value(&record);
    assert_null(strstr(value, "lag_bytes"));
    assert_non_null(strstr(value, "\"lag_seconds\":0.5"));
    free(value);
    record.is_gone = true;
    assert_null(mr_fleet_record_value(&record));
}

static void add(struct fleet_stored *stored, const char *pipeline, int32_t partition,
                uint64_t weight)
{
    struct fleet_stored_item *item =
        mr_fleet_stored_change(stored, FLEET_RECORD_DEFINITION, pipeline);
    item->record.definition.partition = partition;
    item->record.definition.terms.weight = weight;
}

/* One each while partitions last, spread over ranges and remainders; then the least weight. */
static void test_place(void **state)
{
    (void)state;
    struct fleet_stored stored = {0};
    bool taken[FLEET_PARTITIONS] = {false}, allowed[FLEET_PARTITIONS] = {[7] = true, [9] = true};
    int by_range[3] = {0}, by_rest[3] = {0};
    for (int i = 1; i < FLEET_PARTITIONS; i++) {
        char pipeline[16];
        int32_t at = mr_fleet_place(&stored, NULL);
        assert_in_range(at, 1, FLEET_PARTITIONS - 1);
        assert_false(taken[at]);
        taken[at] = true;
        by_range[(at - 1) / 85] += i <= 60;
        by_rest[at % 3] += i <= 60;
        snprintf(pipeline, sizeof(pipeline), "p%d", at);
        add(&stored, pipeline, at, at == 200 ? 2 : 3);
    }
    for (int i = 0; i < 3; i++) {
        assert_in_range(by_range[i], 18, 22);
        assert_in_range(by_rest[i], 18, 22);
    }
    assert_int_equal(mr_fleet_place(&stored, NULL), 200);
    add(&stored, "x", 200, 10);
    add(&stored, "y", mr_fleet_place(&stored, allowed), 1);
    add(&stored, "z", mr_fleet_place(&stored, allowed), 1);
    assert_int_equal(
        mr_fleet_stored_find(&stored, FLEET_RECORD_DEFINITION, "y")->record.definition.partition +
            mr_fleet_stored_find(&stored, FLEET_RECORD_DEFINITION, "z")
                ->record.definition.partition,
        7 + 9);
    mr_fleet_stored_find(&stored, FLEET_RECORD_DEFINITION, "p7")->record.is_gone = true;
    assert_int_equal(mr_fleet_place(&stored, allowed), 7);
    for (stored.partitions = 2; stored.partitions <= FLEET_PARTITIONS; stored.partitions++) {
        int32_t at = mr_fleet_place(&stored, NULL); /* ends, and is there */
        assert_in_range(at, 1, stored.partitions - 1);
    }
    mr_fleet_stored_done(&stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_read_cut_at_every_byte),
        cmocka_unit_test(test_read_lies),
        cmocka_unit_test(test_read_keys),
        cmocka_unit_test(test_value_leaves_out_what_is_not_known),
        cmocka_unit_test(test_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
