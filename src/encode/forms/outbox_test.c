#include <stdio.h>
#include <stdlib.h>

#include "encode/encode.h"
#include "encode/oversize.h"
#include "event/headers.h"
#include "testing/datum.h"
#include "testing/test.h"

enum { ID, TYPE, KEY, PAYLOAD, PART, AT, RAW, COLUMNS };

struct fixture {
    struct mr_encode_options options;
    struct mr_outbox_options outbox;
    struct mr_table_pattern table;
    struct mr_outbox_field fields[2];
    struct mr_topics topics;
    struct mr_encoder *encoder;
    struct mr_column columns[COLUMNS];
    uint32_t key_columns[1];
    struct mr_relation relation;
    struct mr_transaction transaction;
    struct mr_datum values[COLUMNS];
    struct mr_datum old[COLUMNS];
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    struct mr_error error;
    uint8_t bytes[16384];
};

static const struct mr_datum null = {.kind = MR_DATUM_NULL};

static int outbox_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    static const struct {
        const char *name;
        uint32_t oid;
    } columns[COLUMNS] = {[ID] = {"id", 2950},         [TYPE] = {"aggregatetype", 25},
                          [KEY] = {"aggregateid", 25}, [PAYLOAD] = {"payload", 3802},
                          [PART] = {"part", 23},       [AT] = {"at", 1184},
                          [RAW] = {"raw", 17}};
    for (int i = 0; i < COLUMNS; i++) {
        fixture->columns[i] = (struct mr_column){
            .name = (char *)(uintptr_t)columns[i].name,
            .type_oid = columns[i].oid,
            .type_modifier = -1,
            .type = {.oid = columns[i].oid, .modifier = -1, .kind = MR_TYPE_BUILT_IN},
            .in_identity = i == ID};
    }
    fixture->relation = (struct mr_relation){.oid = 1,
                                             .schema = (char *)"public",
                                             .table = (char *)"outbox",
                                             .identity = MR_IDENTITY_DEFAULT,
                                             .column_count = COLUMNS,
                                             .columns = fixture->columns,
                                             .key_count = 1,
                                             .key_columns = fixture->key_columns};
    fixture->table =
        (struct mr_table_pattern){.schema = {.text = "public"}, .table = {.text = "outbox"}};
    fixture->outbox = (struct mr_outbox_options){.tables = &fixture->table,
                                                 .table_count = 1,
                                                 .id = "id",
                                                 .key = "aggregateid",
                                                 .payload = "payload",
                                                 .route_by = "aggregatetype",
                                                 .fields = fixture->fields,
                                                 .route.topics_max = 100};
    char reason[64];
    assert_true(mr_rewrite_init(&fixture->outbox.route.rewrite, "(.*)", "event.$1", reason,
                                sizeof(reason)));
    fixture->options = (struct mr_encode_options){.format = MR_FORMAT_DEBEZIUM,
                                                  .types = MR_TYPES_DEBEZIUM,
                                                  .topic_prefix = "srv",
                                                  .unavailable_value = "gone",
                                                  .outbox = &fixture->outbox};
    fixture->transaction = (struct mr_transaction){
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    fixture->values[ID] = mr_test_datum("11111111-2222-3333-4444-555555555555");
    fixture->values[TYPE] = mr_test_datum("order");
    fixture->values[KEY] = mr_test_datum("k1");
    fixture->values[PAYLOAD] = mr_test_datum("{\"a\": \"\xC3\xA9\"}");
    fixture->values[PART] = mr_test_datum("2");
    fixture->values[AT] = mr_test_datum("2023-11-14 22:13:20.5+00");
    fixture->values[RAW] = mr_test_datum("\\xff00");
    *state = fixture;
    return 0;
}

static int outbox_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_encoder_free(fixture->encoder);
    mr_rewrite_done(&fixture->outbox.route.rewrite);
    mr_topics_done(&fixture->topics);
    free(fixture);
    return 0;
}

static mr_status encode_op(struct fixture *fixture, enum mr_op op, enum mr_tuple_kind before)
{
    if (fixture->encoder == NULL) {
        fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
        mr_encoder_set_clock(fixture->encoder, INT64_C(1700000001000000000));
    }
    struct mr_change change = {
        .op = op,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &fixture->transaction,
        .relation = &fixture->relation,
        .before = {.kind = before, .values = fixture->old},
        .after = {.kind = op == MR_OP_DELETE ? MR_TUPLE_NONE : MR_TUPLE_NEW,
                  .values = fixture->values},
    };
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    return mr_encode_change(fixture->encoder, &change, &buffer, fixture->records, &fixture->count,
                            &fixture->error);
}

static void outbox_test_insert(struct fixture *fixture)
{
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_OK);
    assert_int_equal(fixture->count, 1);
}

static void outbox_test_assert_bytes(const uint8_t *data, size_t len, const char *want)
{
    if (want == NULL) {
        assert_null(data);
        return;
    }
    assert_non_null(data);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(data, want, len);
}

static void assert_record(const struct fixture *fixture, const char *topic, const char *key,
                          const char *value)
{
    const struct mr_record *record = &fixture->records[0];
    assert_string_equal(record->topic->name, topic);
    outbox_test_assert_bytes(record->key, record->key_len, key);
    outbox_test_assert_bytes(record->value, record->value_len, value);
}

/* The `n`th header. */
static void outbox_test_assert_header(const struct fixture *fixture, int n, const char *name,
                                      const char *value)
{
    struct mr_header header = {0};
    size_t at = 0;
    for (int i = 0; i <= n; i++) {
        bool found = mr_header_next(mr_record_headers(&fixture->records[0]), &at, &header);
        assert_int_equal(found, name != NULL || i < n);
    }
    if (name != NULL) {
        outbox_test_assert_bytes(header.name.data, header.name.len, name);
        outbox_test_assert_bytes(header.value.data, header.value.len, value);
    }
}

static void test_outbox_row(void **state)
{
    struct fixture *fixture = *state;
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", "k1", "{\"a\": \"\xC3\xA9\"}");
    outbox_test_assert_header(fixture, 0, "id", "11111111-2222-3333-4444-555555555555");
    outbox_test_assert_header(fixture, 1, NULL, NULL);
    assert_int_equal(fixture->records[0].value_content, MR_CONTENT_TEXT);
    assert_int_equal(mr_headers_place(mr_record_headers(&fixture->records[0])).partition, -1);
}

static void test_outbox_nulls(void **state)
{
    struct fixture *fixture = *state;
    fixture->values[KEY] = null;
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", NULL, "{\"a\": \"\xC3\xA9\"}");
    fixture->values[KEY] = mr_test_datum("");
    fixture->values[PAYLOAD] = null;
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", "", NULL);
    outbox_test_assert_header(fixture, 0, "id", "11111111-2222-3333-4444-555555555555");
    fixture->values[KEY] = null;
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_OK);
    assert_int_equal(fixture->count, 0); /* nothing at all */
}

static void test_outbox_json(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.key_is_json = true;
    fixture->outbox.value_is_json = true;
    fixture->values[KEY] = null;
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", "null", "\"{\\\"a\\\": \\\"\xC3\xA9\\\"}\"");
    fixture->outbox.tombstones = true;
    fixture->values[PAYLOAD] = mr_test_datum(" \n");
    fixture->values[KEY] = mr_test_datum("k");
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", "\"k\"", NULL);
}

static void test_outbox_expands(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *payload, *dropped, *kept;
    } cases[] = {
        {"{\"a\": 1, \"b\": null, \"c\": [], \"d\": {}}", "{\"a\":1,\"d\":{}}",
         "{\"a\":1,\"b\":null,\"c\":[],\"d\":{}}"},
        {"{\"b\":null,\"a\":[null,[],{\"x\":null}]}", "{\"a\":[null,[],{}]}",
         "{\"b\":null,\"a\":[null,[],{\"x\":null}]}"},
        {"{\"a\":{\"b\":[]},\"c\":1}", "{\"a\":{},\"c\":1}", "{\"a\":{\"b\":[]},\"c\":1}"},
        {" [1, 1.50, 1e2, -0.0, 1E400]", "[1,1.5,100.0,-0.0,1E400]", "[1,1.5,100.0,-0.0,1E400]"},
        {"{\"\\u00e9\\n\": \"\\uD83D\\uDE00\\/\\u0001\"}",
         "{\"\xC3\xA9\\n\":\"\\uD83D\\uDE00/\\u0001\"}",
         "{\"\xC3\xA9\\n\":\"\\uD83D\\uDE00/\\u0001\"}"},
        {"{\"a\": 1", "\"{\\\"a\\\": 1\"", "\"{\\\"a\\\": 1\""},
        {"{} x", "\"{} x\"", "\"{} x\""},
        {"{\"a\": 1 \"b\": 2}", "\"{\\\"a\\\": 1 \\\"b\\\": 2}\"",
         "\"{\\\"a\\\": 1 \\\"b\\\": 2}\""},
        {"5", "\"5\"", "\"5\""},
        {"", "\"\"", "\"\""},
    };
    fixture->outbox.value_is_json = true;
    fixture->outbox.expands = true;
    for (size_t i = 0; i < 2 * MR_ARRAY_LEN(cases); i++) {
        bool keeps = i % 2 == 1;
        fixture->outbox.keeps = keeps ? MR_OUTBOX_KEEPS_NULLS | MR_OUTBOX_KEEPS_EMPTY : 0;
        fixture->values[PAYLOAD] = mr_test_datum(cases[i / 2].payload);
        outbox_test_insert(fixture);
        assert_record(fixture, "event.order", "k1",
                      keeps ? cases[i / 2].kept : cases[i / 2].dropped);
    }
}

static void test_outbox_envelope_and_headers(void **state)
{
    struct fixture *fixture = *state;
    fixture->fields[0] =
        (struct mr_outbox_field){.column = "part", .name = "p\"", .placement = MR_OUTBOX_ENVELOPE};
    fixture->fields[1] =
        (struct mr_outbox_field){.column = "raw", .name = "raw", .placement = MR_OUTBOX_HEADER};
    fixture->outbox.field_count = 2;
    outbox_test_insert(fixture);
    assert_record(fixture, "event.order", "k1",
                  "{\"payload\":\"{\\\"a\\\": \\\"\xC3\xA9\\\"}\",\"p\\\"\":2}");
    outbox_test_assert_header(fixture, 1, "raw", "/wA=");
    fixture->values[RAW] = null;
    outbox_test_insert(fixture);
    outbox_test_assert_header(fixture, 1, "raw", NULL);
}

static void test_outbox_bytes(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.payload = "raw";
    outbox_test_insert(fixture);
    assert_int_equal(fixture->records[0].value_content, MR_CONTENT_BINARY);
    assert_int_equal(fixture->records[0].value_len, 2);
    assert_memory_equal(fixture->records[0].value, "\xff\0", 2);
    fixture->values[RAW] = mr_test_datum("\\xf"); /* no server sends that */
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
}

/* A string of JSON keeps its quotes, whatever the form of values. */
static void test_outbox_json_text(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.types = MR_TYPES_PLAIN;
    fixture->values[PAYLOAD] = mr_test_datum("\"a\\\"b\"");
    outbox_test_insert(fixture);
    outbox_test_assert_bytes(fixture->records[0].value, fixture->records[0].value_len,
                             "\"a\\\"b\"");
}

static struct mr_column_rule rule_of(const char *column, enum mr_column_action action)
{
    return (struct mr_column_rule){
        .action = action,
        .table = {.schema = {.text = "public"}, .table = {.text = "outbox"}},
        .column = {.text = column},
        .length = 3};
}

static void test_outbox_masked_bytes(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_column_rule rules[] = {rule_of("raw", MR_COLUMN_MASK),
                                           rule_of("aggregatetype", MR_COLUMN_HASH)};
    fixture->outbox.payload = "raw";
    fixture->options.hash_salt = "";
    fixture->options.column_rules.items = rules;
    fixture->options.column_rules.count = 1;
    outbox_test_insert(fixture);
    outbox_test_assert_bytes(fixture->records[0].value, fixture->records[0].value_len, "***");
    mr_encoder_free(fixture->encoder);
    fixture->encoder = NULL;
    fixture->options.column_rules.count = 2;
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "outbox.route_by: column \"aggregatetype\""));
}

static void test_outbox_place(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.timestamp = "at";
    fixture->fields[0] =
        (struct mr_outbox_field){.column = "part", .placement = MR_OUTBOX_PARTITION};
    fixture->outbox.field_count = 1;
    outbox_test_insert(fixture);
    struct mr_record_place place = mr_headers_place(mr_record_headers(&fixture->records[0]));
    assert_int_equal(place.partition, 2);
    assert_int_equal(place.time_ms, INT64_C(1700000000500));
    fixture->values[PART] = null;
    fixture->values[AT] = null;
    outbox_test_insert(fixture);
    place = mr_headers_place(mr_record_headers(&fixture->records[0]));
    assert_int_equal(place.partition, -1);
    assert_int_equal(place.time_ms, 0);
    static const char *const none[] = {"-1", "2147483648", "x", "", "99999999999"};
    for (size_t i = 0; i < MR_ARRAY_LEN(none); i++) {
        fixture->values[PART] = mr_test_datum(none[i]);
        assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
    }
}

/* Every byte in a name: what Kafka does not take is never mended, so that no two values share a
 * topic. */
static void test_outbox_topic_bytes(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.route.topics_max = 300;
    int made = 0;
    for (int byte = 1; byte < 256; byte++) {
        char value[] = {'x', (char)byte, '\0'};
        fixture->values[TYPE] = mr_test_datum(value);
        bool good = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                    (byte >= '0' && byte <= '9') || byte == '-' || byte == '.';
        mr_status status = encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE);
        assert_int_equal(status, good ? MR_OK : MR_ERR_POISON); /* x_ is x. to a broker */
        made += good;
    }
    assert_int_equal(fixture->topics.by_value, made);
    fixture->values[TYPE] = mr_test_datum("x_");
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
    assert_null(strstr(fixture->error.text, "x_")); /* no value of a row is told */
}

/* Who may write an outbox row says what is in the record: in the topic of positions it would be
 * one. */
static void test_outbox_names_no_topic_of_ours(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.kept_topic = "positions";
    char reason[64];
    mr_rewrite_done(&fixture->outbox.route.rewrite);
    assert_true(
        mr_rewrite_init(&fixture->outbox.route.rewrite, "(.*)", "$1", reason, sizeof(reason)));
    static const char *const kept[] = {"positions", "__consumer_offsets", "__millrace_state"};
    for (size_t i = 0; i < MR_ARRAY_LEN(kept); i++) {
        fixture->values[TYPE] = mr_test_datum(kept[i]);
        assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
    }
    fixture->values[TYPE] = mr_test_datum("_one");
    outbox_test_insert(fixture);
}

static void test_outbox_topic_faults(void **state)
{
    struct fixture *fixture = *state;
    mr_topics_intern(&fixture->topics, "event.taken");
    char long_name[300];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    fixture->outbox.route.topics_max = 2;
    const struct mr_datum wrong[] = {mr_test_datum("taken"), mr_test_datum(long_name), null};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        fixture->values[TYPE] = wrong[i];
        assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
        assert_non_null(strstr(fixture->error.text, "outbox.fallback_topic"));
    }
    fixture->values[TYPE] = mr_test_datum("one");
    outbox_test_insert(fixture);
    fixture->values[TYPE] = mr_test_datum("two");
    outbox_test_insert(fixture);
    fixture->values[TYPE] = mr_test_datum("three");
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_POISON);
    fixture->outbox.route.fallback_topic = "others";
    outbox_test_insert(fixture);
    assert_record(fixture, "others", "k1", "{\"a\": \"\xC3\xA9\"}");
    fixture->values[TYPE] = null;
    outbox_test_insert(fixture);
    assert_string_equal(fixture->records[0].topic->name, "others");
    fixture->values[TYPE] = mr_test_datum("one");
    outbox_test_insert(fixture);
    assert_string_equal(fixture->records[0].topic->name, "event.one");
}

/* More values than are remembered: each still has its topic. */
static void test_outbox_many_values(void **state)
{
    struct fixture *fixture = *state;
    char reason[64];
    mr_rewrite_done(&fixture->outbox.route.rewrite);
    assert_true(mr_rewrite_init(&fixture->outbox.route.rewrite, "[0-9]+-(.)", "event.$1", reason,
                                sizeof(reason)));
    for (int i = 0; i < 2000; i++) {
        char value[32], topic[32];
        snprintf(value, sizeof(value), "%d-%d", i, i % 7);
        snprintf(topic, sizeof(topic), "event.%d", i % 7);
        fixture->values[TYPE] = mr_test_datum(value);
        outbox_test_insert(fixture);
        assert_string_equal(fixture->records[0].topic->name, topic);
    }
    assert_int_equal(fixture->topics.by_value, 7);
}

static void test_outbox_operations(void **state)
{
    struct fixture *fixture = *state;
    memcpy(fixture->old, fixture->values, sizeof(fixture->old));
    for (enum mr_op op = MR_OP_UPDATE; op <= MR_OP_TRUNCATE; op++) {
        assert_int_equal(encode_op(fixture, op, MR_TUPLE_FULL), MR_OK);
        assert_int_equal(fixture->count, 0);
    }
    fixture->old[ID] = mr_test_datum("other");
    assert_int_equal(encode_op(fixture, MR_OP_UPDATE, MR_TUPLE_KEY), MR_OK);
    assert_int_equal(fixture->count, 1); /* it has become another event */
    fixture->outbox.update = MR_OUTBOX_FATAL;
    fixture->old[ID] = fixture->values[ID];
    assert_int_equal(encode_op(fixture, MR_OP_UPDATE, MR_TUPLE_KEY), MR_ERR_POISON);
    assert_int_equal(encode_op(fixture, MR_OP_READ, MR_TUPLE_NONE), MR_OK);
    assert_int_equal(fixture->count, 1);
}

static void test_outbox_lacks_a_column(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.payload = "body";
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "outbox.payload"));
    fixture->outbox.payload = "payload";
    fixture->outbox.field_count = 1;
    fixture->fields[0] = (struct mr_outbox_field){.column = "none", .name = "none"};
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_CONFIG);
    fixture->fields[0].may_lack = true;
    outbox_test_insert(fixture);
    fixture->outbox.timestamp = "aggregateid";
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_op(fixture, MR_OP_INSERT, MR_TUPLE_NONE), MR_ERR_CONFIG);
}

/* A payload that is too large for the sink. */
static void assert_gone_when_oversize(struct fixture *fixture, const struct mr_item *item)
{
    struct mr_oversize_case oversize = {.bytes = 9999, .limit = 1000, .reason = "message_max"};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_oversize(fixture->encoder, item, &oversize, &buffer,
                                        fixture->records, &fixture->count, &fixture->error),
                     MR_OK);
    assert_int_equal(fixture->count, 1);
    outbox_test_assert_bytes(fixture->records[0].value, fixture->records[0].value_len, "gone");
}

/* What is too large gives its payload up, and keeps key, topic and headers. */
static void test_outbox_oversize(void **state)
{
    struct fixture *fixture = *state;
    static char large[5000];
    memset(large, 'x', sizeof(large) - 1);
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    fixture->values[PAYLOAD] = mr_test_datum(large);
    fixture->values[TYPE] =
        mr_test_datum("a-type-of-more-than-sixty-four-bytes-which-may-not-be-cut-out-of-the-row");
    outbox_test_insert(fixture);
    struct mr_change change = {.op = MR_OP_INSERT,
                               .position = {.commit_lsn = 0x2000, .ordinal = 3},
                               .transaction = &fixture->transaction,
                               .relation = &fixture->relation,
                               .after = {.kind = MR_TUPLE_NEW, .values = fixture->values}};
    struct mr_item item = {.change = &change};
    assert_gone_when_oversize(fixture, &item);
    outbox_test_assert_header(fixture, 0, "id", "11111111-2222-3333-4444-555555555555");
    outbox_test_assert_header(fixture, 1, MR_HEADER_OVERSIZE, "9999");
    outbox_test_assert_header(fixture, 2, MR_HEADER_OVERSIZE_COLUMNS, "[\"payload\"]");
}

static mr_status encode_message(struct fixture *fixture, const char *content, bool transactional)
{
    if (fixture->encoder == NULL) {
        fixture->outbox.messages = "box";
        fixture->outbox.table_count = 0;
        fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
        mr_encoder_set_clock(fixture->encoder, INT64_C(1700000001000000000));
    }
    struct mr_message_event message = {
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = transactional ? 3 : 0},
        .transaction = transactional ? &fixture->transaction : NULL,
        .prefix = mr_slice_of("box"),
        .content = mr_slice_of(content)};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    mr_status status = mr_encode_message(fixture->encoder, &message, &buffer, fixture->records,
                                         &fixture->count, &fixture->error);
    if (status == MR_OK) {
        const struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = &message};
        mr_encoder_count(fixture->encoder, &item, fixture->records, fixture->count);
    }
    return status;
}

static void test_outbox_message(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.message_bytes_max = 4096;
    fixture->outbox.field_count = 2;
    fixture->outbox.timestamp = "at";
    fixture->fields[0] = (struct mr_outbox_field){
        .column = "part", .name = "part", .placement = MR_OUTBOX_PARTITION};
    fixture->fields[1] = (struct mr_outbox_field){
        .column = "n\"n", .name = "eventType", .placement = MR_OUTBOX_HEADER};
    static const char content[] =
        " {\"id\": \"e-1\", \"aggregatetype\" : \"order\", \"aggregateid\": 17,\"other\":[{}],"
        "\"payload\": {\"a\": [1, null, \"\\u00e9\"], \"id\": 5}, \"part\": 2, \"n\\\"n\": "
        "\"line\\n\", \"at\":\"2023-11-14T22:13:20.5Z\"} ";
    for (int transactional = 0; transactional < 2; transactional++) {
        assert_int_equal(encode_message(fixture, content, transactional != 0), MR_OK);
        assert_int_equal(fixture->count, 1);
        const struct mr_record *record = &fixture->records[0];
        assert_string_equal(record->topic->name, "event.order");
        outbox_test_assert_bytes(record->key, record->key_len, "17");
        outbox_test_assert_bytes(record->value, record->value_len,
                                 "{\"a\": [1, null, \"\\u00e9\"], \"id\": 5}");
        assert_int_equal(record->xid, transactional ? 555 : 0);
        assert_int_equal(record->commit_time_us,
                         transactional ? INT64_C(1700000000000001) : INT64_C(1700000001000000));
        assert_int_equal(mr_headers_place(mr_record_headers(record)).partition,
                         MR_PARTITION_IF_THERE(2));
        assert_int_equal(mr_headers_place(mr_record_headers(record)).time_ms,
                         INT64_C(1700000000500));
        outbox_test_assert_header(fixture, 0, "id", "e-1");
        outbox_test_assert_header(fixture, 1, "eventType", "line\n");
    }
    /* Null and a field that is not there; of two with one name the last. */
    assert_int_equal(
        encode_message(fixture,
                       "{\"aggregatetype\":\"a\",\"aggregatetype\":\"order\",\"payload\":null,"
                       "\"aggregateid\":\"k\",\"at\":\"2023-11-14T22:13:20\"}",
                       true),
        MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_null(fixture->records[0].value);
    outbox_test_assert_bytes(fixture->records[0].key, fixture->records[0].key_len, "k");
}

/* What anybody may write ends nothing. */
static void test_outbox_message_is_no_event(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.message_bytes_max = 4096;
    static const char *const contents[] = {"",
                                           "x",
                                           "[]",
                                           "17",
                                           "{",
                                           "{}",
                                           "{\"aggregatetype\":\"or der\",\"aggregateid\":\"k\"}",
                                           "{\"aggregatetype\":\"order\",\"aggregateid\":\"k\"",
                                           "{\"aggregatetype\":\"order\"}}",
                                           "{\"aggregatetype\" \"order\"}",
                                           "{\"aggregatetype\":}",
                                           "{\"\xff\":1}"};
    for (size_t i = 0; i < MR_ARRAY_LEN(contents); i++) {
        assert_int_equal(encode_message(fixture, contents[i], true), MR_OK);
        assert_int_equal(fixture->count, 0);
    }
    static const char good[] =
        "{\"aggregatetype\":\"order\",\"aggregateid\":\"k\",\"payload\":\"p\"}";
    assert_int_equal(encode_message(fixture, good, false), MR_OK);
    assert_int_equal(fixture->count, 1);
}

/* It gives its payload up, as a row would. */
static void test_outbox_message_oversize(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.message_bytes_max = 4096;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    char content[3000];
    snprintf(
        content, sizeof(content),
        "{\"id\":\"e\",\"aggregatetype\":\"order\",\"aggregateid\":\"k\",\"payload\":\"%02000d\"}",
        1);
    assert_int_equal(encode_message(fixture, content, true), MR_OK);
    assert_int_equal(fixture->records[0].value_len, 2000);
    struct mr_message_event message = {.position = {.commit_lsn = 0x2000, .ordinal = 3},
                                       .transaction = &fixture->transaction,
                                       .prefix = mr_slice_of("box"),
                                       .content = mr_slice_of(content)};
    struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = &message};
    assert_gone_when_oversize(fixture, &item);
    outbox_test_assert_header(fixture, 0, "id", "e");
}

/* Whatever does not fit is said, and nothing is written after the end. */
static void test_outbox_fits_or_is_full(void **state)
{
    struct fixture *fixture = *state;
    fixture->outbox.expands = fixture->outbox.value_is_json = true;
    fixture->values[PAYLOAD] =
        mr_test_datum("{\"a\": [1.5, null], \"b\": null, \"c\": \"\\u00e9\"}");
    outbox_test_insert(fixture);
    size_t whole = mr_record_bytes(&fixture->records[0]);
    struct mr_change change = {.op = MR_OP_INSERT,
                               .transaction = &fixture->transaction,
                               .relation = &fixture->relation,
                               .after = {.kind = MR_TUPLE_NEW, .values = fixture->values}};
    for (size_t size = 0; size < whole; size++) {
        uint8_t *bytes = malloc(size + 1); /* the sanitizer knows its end */
        struct mr_buffer buffer = mr_buffer_init(bytes, size);
        assert_int_equal(mr_encode_change(fixture->encoder, &change, &buffer, fixture->records,
                                          &fixture->count, &fixture->error),
                         MR_FULL);
        free(bytes);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, outbox_test_setup, outbox_test_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_outbox_row),
        TEST(test_outbox_nulls),
        TEST(test_outbox_json),
        TEST(test_outbox_expands),
        TEST(test_outbox_envelope_and_headers),
        TEST(test_outbox_bytes),
        TEST(test_outbox_json_text),
        TEST(test_outbox_masked_bytes),
        TEST(test_outbox_place),
        TEST(test_outbox_topic_bytes),
        TEST(test_outbox_names_no_topic_of_ours),
        TEST(test_outbox_topic_faults),
        TEST(test_outbox_many_values),
        TEST(test_outbox_operations),
        TEST(test_outbox_lacks_a_column),
        TEST(test_outbox_oversize),
        TEST(test_outbox_message),
        TEST(test_outbox_message_is_no_event),
        TEST(test_outbox_message_oversize),
        TEST(test_outbox_fits_or_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
