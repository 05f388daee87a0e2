#include <stdio.h>
#include <stdlib.h>

#include "encode/encode.h"
#include "encode/forms/form.h"
#include "testing/datum.h"
#include "testing/test.h"

enum { COLUMNS = 2, BYTES = 1 << 16 };

/* A table of a key and a column of any type. */
struct fixture {
    struct mr_encode_options options;
    struct mr_topics topics;
    struct mr_column columns[COLUMNS];
    uint32_t key_columns[COLUMNS];
    struct mr_relation relation;
    struct mr_datum before[COLUMNS], after[COLUMNS];
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    struct mr_error error;
    uint8_t bytes[BYTES];
};

static int wrapped_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->options = (struct mr_encode_options){.types = MR_TYPES_DEBEZIUM,
                                                  .topic_prefix = "srv",
                                                  .unavailable_value = "__u",
                                                  .tombstones = true};
    fixture->columns[0] =
        (struct mr_column){.name = "id", .type_oid = 23, .type_modifier = -1, .in_identity = true};
    fixture->columns[1] = (struct mr_column){.name = "v", .type_oid = 25, .type_modifier = -1};
    fixture->relation = (struct mr_relation){.oid = 1,
                                             .schema = "public",
                                             .table = "t",
                                             .identity = MR_IDENTITY_DEFAULT,
                                             .column_count = COLUMNS,
                                             .columns = fixture->columns,
                                             .key_count = 1,
                                             .key_columns = fixture->key_columns};
    *state = fixture;
    return 0;
}

static int wrapped_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_topics_done(&fixture->topics);
    free(fixture);
    return 0;
}

static struct mr_encoder *encoder_of(struct fixture *fixture)
{
    struct mr_encoder *encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    mr_encoder_set_database(encoder, "db");
    mr_encoder_set_clock(encoder, INT64_C(1700000001234567890));
    return encoder;
}

/* Encodes a change of the fixture's rows, with these schemas. */
static mr_status wrapped_test_encode(struct fixture *fixture, enum mr_json_schemas schemas,
                                     enum mr_op op)
{
    const struct mr_transaction transaction = {
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    bool is_delete = op == MR_OP_DELETE;
    struct mr_change change = {
        .op = op,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &transaction,
        .relation = &fixture->relation,
        .before = {.kind = is_delete ? MR_TUPLE_KEY : MR_TUPLE_NONE, .values = fixture->before},
        .after = {.kind = is_delete ? MR_TUPLE_NONE : MR_TUPLE_NEW, .values = fixture->after}};
    fixture->options.json_schemas = schemas;
    struct mr_encoder *encoder = encoder_of(fixture);
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, BYTES);
    mr_status status = mr_encode_change(encoder, &change, &buffer, fixture->records,
                                        &fixture->count, &fixture->error);
    assert_false(buffer.is_typed);
    mr_encoder_free(encoder);
    return status;
}

static char *wrapped_test_text_of(const uint8_t *text, uint32_t len)
{
    return text == NULL ? NULL : strndup((const char *)text, len);
}

static char *key_of(const struct fixture *fixture, uint32_t n)
{
    return wrapped_test_text_of(fixture->records[n].key, fixture->records[n].key_len);
}

static char *wrapped_test_value_of(const struct fixture *fixture, uint32_t n)
{
    return wrapped_test_text_of(fixture->records[n].value, fixture->records[n].value_len);
}

#define KEY_SCHEMA                                                                                 \
    "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"int32\",\"optional\":false,"         \
    "\"field\":\"id\"}],\"optional\":false,\"name\":\"srv.public.t.Key\"},\"payload\":"

#define ROW_SCHEMA(field)                                                                          \
    "{\"type\":\"struct\",\"fields\":[{\"type\":\"int32\",\"optional\":false,\"field\":\"id\"},"   \
    "{\"type\":\"string\",\"optional\":true,\"field\":\"v\"}],\"optional\":true,\"name\":"         \
    "\"srv.public.t.Value\",\"field\":\"" field "\"}"

/* As Debezium 3.7.0's connector writes them (tests/test_debezium.py compares with it). */
#define VALUE_SCHEMA                                                                               \
    "{\"schema\":{\"type\":\"struct\",\"fields\":[" ROW_SCHEMA("before") "," ROW_SCHEMA(           \
        "after") ",{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,"      \
                 "\"field\":\"version\"},{\"type\":\"string\",\"optional\":false,\"field\":"       \
                 "\"connector\"},{\"type\":\"string\",\"optional\":false,\"field\":\"name\"},"     \
                 "{\"type\":\"int64\",\"optional\":false,\"field\":\"ts_ms\"},{\"type\":"          \
                 "\"string\",\"optional\":true,\"name\":\"io.debezium.data.Enum\",\"version\":1,"  \
                 "\"parameters\":{\"allowed\":\"true,first,first_in_data_collection,"              \
                 "last_in_data_collection,last,false,incremental\"},\"default\":\"false\","        \
                 "\"field\":\"snapshot\"},{\"type\":\"string\",\"optional\":false,\"field\":"      \
                 "\"db\"},{\"type\":\"string\",\"optional\":true,\"field\":\"sequence\"},"         \
                 "{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_us\"},{\"type\":\"int64\"," \
                 "\"optional\":true,\"field\":\"ts_ns\"},{\"type\":\"string\",\"optional\":false," \
                 "\"field\":\"schema\"},{\"type\":\"string\",\"optional\":false,\"field\":"        \
                 "\"table\"},{\"type\":\"int64\",\"optional\":true,\"field\":\"txId\"},{\"type\":" \
                 "\"int64\",\"optional\":true,\"field\":\"lsn\"},{\"type\":\"int64\","             \
                 "\"optional\":true,\"field\":\"xmin\"},{\"type\":\"string\",\"optional\":true,"   \
                 "\"field\":\"origin\"},{\"type\":\"int64\",\"optional\":true,\"field\":"          \
                 "\"origin_lsn\"}],\"optional\":false,\"name\":"                                   \
                 "\"io.debezium.connector.postgresql.Source\",\"version\":1,\"field\":\"source\"}" \
                 ",{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,"      \
                 "\"field\":\"id\"},{\"type\":\"int64\",\"optional\":false,\"field\":"             \
                 "\"total_order\"},{\"type\":\"int64\",\"optional\":false,\"field\":"              \
                 "\"data_collection_order\"}],\"optional\":true,\"name\":\"event.block\","         \
                 "\"version\":1,\"field\":\"transaction\"},{\"type\":\"string\",\"optional\":"     \
                 "false,\"field\":\"op\"},{\"type\":\"int64\",\"optional\":true,\"field\":"        \
                 "\"ts_ms\"},{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_us\"},"          \
                 "{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_ns\"}],\"optional\":false," \
                 "\"name\":\"srv.public.t.Envelope\",\"version\":2},\"payload\":"

static void test_change_has_the_schemas_that_are_wanted(void **state)
{
    struct fixture *fixture = *state;
    fixture->after[0] = mr_test_datum("7");
    fixture->after[1] = mr_test_datum("a \"b\"");
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_BARE, MR_OP_INSERT), MR_OK);
    char *bare = wrapped_test_value_of(fixture, 0);
    char *wrapped = NULL;
    assert_true(asprintf(&wrapped, VALUE_SCHEMA "%s}", bare) > 0);
    for (enum mr_json_schemas schemas = MR_JSON_BARE; schemas <= MR_JSON_SCHEMAS; schemas++) {
        assert_int_equal(wrapped_test_encode(fixture, schemas, MR_OP_INSERT), MR_OK);
        char *key = key_of(fixture, 0), *value = wrapped_test_value_of(fixture, 0);
        assert_string_equal(key, (schemas & MR_JSON_KEY_SCHEMA) != 0 ? KEY_SCHEMA "{\"id\":7}}"
                                                                     : "{\"id\":7}");
        assert_string_equal(value, (schemas & MR_JSON_VALUE_SCHEMA) != 0 ? wrapped : bare);
        free(key);
        free(value);
    }
    free(wrapped);
    free(bare);
}

static void test_tombstone_has_none(void **state)
{
    struct fixture *fixture = *state;
    fixture->before[0] = mr_test_datum("7");
    fixture->before[1] = mr_test_datum(NULL);
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_DELETE), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_null(fixture->records[1].value);
    char *key = key_of(fixture, 1);
    assert_string_equal(key, KEY_SCHEMA "{\"id\":7}}");
    free(key);
}

#define NAMED(type, name)                                                                          \
    "{\"type\":\"" type "\",\"optional\":true,\"name\":\"" name "\",\"version\":1"
#define LIST(of) "{\"type\":\"array\",\"items\":" of "},\"optional\":true"

static const struct {
    uint32_t oid;
    int32_t modifier;
    const char *text, *schema, *value;
} types[] = {
    {16, -1, "t", "{\"type\":\"boolean\",\"optional\":true", "true"},
    {21, -1, "-1", "{\"type\":\"int16\",\"optional\":true", "-1"},
    {23, -1, "-1", "{\"type\":\"int32\",\"optional\":true", "-1"},
    {20, -1, "-1", "{\"type\":\"int64\",\"optional\":true", "-1"},
    {26, -1, "1", "{\"type\":\"int64\",\"optional\":true", "1"},
    {700, -1, "1", "{\"type\":\"float\",\"optional\":true", "1.0"},
    {701, -1, "1", "{\"type\":\"double\",\"optional\":true", "1.0"},
    {17, -1, "\\x00", "{\"type\":\"bytes\",\"optional\":true", "\"AA==\""},
    {114, -1, "{}", NAMED("string", "io.debezium.data.Json"), "\"{}\""},
    {2950, -1, "a", NAMED("string", "io.debezium.data.Uuid"), "\"a\""},
    {142, -1, "<a/>", NAMED("string", "io.debezium.data.Xml"), "\"<a/>\""},
    {3614, -1, "'a'", NAMED("string", "io.debezium.data.Tsvector"), "\"'a'\""},
    {1700, (5 << 16 | 2) + 4, "1.10",
     NAMED("bytes", "org.apache.kafka.connect.data.Decimal") ",\"parameters\":{\"scale\":\"2\","
                                                             "\"connect.decimal.precision\":"
                                                             "\"5\"}",
     "\"bg==\""},
    {790, -1, "$1.10",
     NAMED("bytes", "org.apache.kafka.connect.data.Decimal") ",\"parameters\":{\"scale\":\"2\"}",
     "\"bg==\""},
    {1700, -1, "1.1",
     "{\"type\":\"struct\",\"fields\":[{\"type\":\"int32\",\"optional\":false,\"field\":\"scale\"},"
     "{\"type\":\"bytes\",\"optional\":false,\"field\":\"value\"}],\"optional\":true,\"name\":"
     "\"io.debezium.data.VariableScaleDecimal\",\"version\":1,\"doc\":\"Variable scaled decimal\"",
     "{\"scale\":1,\"value\":\"Cw==\"}"},
    {1082, -1, "1970-01-02", NAMED("int32", "io.debezium.time.Date"), "1"},
    {1083, 3, "00:00:00.001", NAMED("int32", "io.debezium.time.Time"), "1"},
    {1114, -1, "1970-01-01 00:00:00.000001", NAMED("int64", "io.debezium.time.MicroTimestamp"),
     "1"},
    {1184, -1, "1970-01-01 00:00:00+00", NAMED("string", "io.debezium.time.ZonedTimestamp"),
     "\"1970-01-01T00:00:00.000000Z\""},
    {1560, 3, "101", NAMED("bytes", "io.debezium.data.Bits") ",\"parameters\":{\"length\":\"3\"}",
     "\"BQ==\""},
    {1562, -1, "101",
     NAMED("bytes", "io.debezium.data.Bits") ",\"parameters\":{\"length\":\"2147483647\"}",
     "\"BQ==\""},
    {1005, -1, "{1,NULL}", LIST("{\"type\":\"int16\",\"optional\":true"), "[1,null]"},
    /* A list in a list has no schema: the elements come in one. */
    {1007, -1, "{{1,2},{3,4}}", LIST("{\"type\":\"int32\",\"optional\":true"), "[1,2,3,4]"},
    {1007, -1, "{{{1}},{{2}}}", LIST("{\"type\":\"int32\",\"optional\":true"), "[1,2]"},
    {1007, -1, "{}", LIST("{\"type\":\"int32\",\"optional\":true"), "[]"},
    {1182, -1, "{1970-01-02}", LIST(NAMED("int32", "io.debezium.time.Date")), "[1]"},
};

static void test_types(void **state)
{
    struct fixture *fixture = *state;
    fixture->after[0] = mr_test_datum("7");
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++) {
        fixture->columns[1].type_oid = types[i].oid;
        fixture->columns[1].type_modifier = types[i].modifier;
        fixture->after[1] = mr_test_datum(types[i].text);
        assert_int_equal(wrapped_test_encode(fixture, MR_JSON_VALUE_SCHEMA, MR_OP_INSERT), MR_OK);
        char *value = wrapped_test_value_of(fixture, 0), *schema = NULL, *after = NULL;
        assert_true(asprintf(&schema, "},%s,\"field\":\"v\"}]", types[i].schema) > 0);
        assert_true(asprintf(&after, "\"after\":{\"id\":7,\"v\":%s}", types[i].value) > 0);
        const char *found = strstr(value, schema);
        if (found == NULL || strstr(found + 1, schema) == NULL || strstr(value, after) == NULL) {
            fail_msg("type %u: no %s twice, and %s, in %s", types[i].oid, schema, after, value);
        }
        free(value);
        free(schema);
        free(after);
    }
}

/* With time_precision_mode = "connect" times have Connect's types. */
static void test_types_of_connect(void **state)
{
    struct fixture *fixture = *state;
    fixture->after[0] = mr_test_datum("7");
    fixture->columns[1].type_oid = 1114;
    fixture->after[1] = mr_test_datum("1970-01-01 00:00:00.001");
    fixture->options.modes.time = MR_TIME_CONNECT;
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_VALUE_SCHEMA, MR_OP_INSERT), MR_OK);
    char *value = wrapped_test_value_of(fixture, 0);
    assert_non_null(strstr(
        value, NAMED("int64", "org.apache.kafka.connect.data.Timestamp") ",\"field\":\"v\"}"));
    free(value);
}

/* What an update left alone: the placeholder where the type is a text's, else null. */
static void test_unknown_value_fits_its_type(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        uint32_t oid;
        const char *value;
    } cases[] = {{25, "\"__u\""},       {1700, "null"},      {1231, "null"}, {17, "\"X191\""},
                 {1007, "[95,95,117]"}, {1009, "[\"__u\"]"}, {604, "null"}};
    fixture->after[0] = mr_test_datum("7");
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        fixture->columns[1].type_oid = cases[i].oid;
        fixture->after[1] = (struct mr_datum){.kind = MR_DATUM_UNCHANGED};
        assert_int_equal(wrapped_test_encode(fixture, MR_JSON_VALUE_SCHEMA, MR_OP_UPDATE), MR_OK);
        char *value = wrapped_test_value_of(fixture, 0), *after = NULL;
        assert_true(asprintf(&after, "\"after\":{\"id\":7,\"v\":%s}", cases[i].value) > 0);
        if (strstr(value, after) == NULL) {
            fail_msg("type %u: no %s in %s", cases[i].oid, after, value);
        }
        free(value);
        free(after);
    }
}

/* A key without a form in its type ends the stream, and is not sent in another: a reader would take
 * it for null. */
static void test_key_has_to_fit_its_type(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        uint32_t oid;
        const char *text;
    } cases[] = {{1700, "NaN"}, {25, "\xff"}};
    fixture->options.invalid_utf8 = MR_INVALID_BASE64;
    fixture->after[1] = mr_test_datum("v");
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        fixture->columns[0].type_oid = cases[i].oid;
        fixture->after[0] = mr_test_datum(cases[i].text);
        assert_int_equal(wrapped_test_encode(fixture, MR_JSON_BARE, MR_OP_INSERT), MR_OK);
        for (enum mr_json_schemas schemas = MR_JSON_KEY_SCHEMA; schemas <= MR_JSON_SCHEMAS;
             schemas++) {
            assert_int_equal(wrapped_test_encode(fixture, schemas, MR_OP_INSERT), MR_ERR_POISON);
            assert_non_null(strstr(fixture->error.text, "column \"id\" of table public.t"));
            assert_non_null(strstr(fixture->error.text, "key_columns"));
        }
    }
}

/* The key that the configuration chose may be null. */
static void test_chosen_key_may_be_null(void **state)
{
    struct fixture *fixture = *state;
    fixture->relation.key_is_chosen = true;
    fixture->after[0] = mr_test_datum(NULL);
    fixture->after[1] = mr_test_datum("v");
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_KEY_SCHEMA, MR_OP_INSERT), MR_OK);
    char *key = key_of(fixture, 0);
    assert_non_null(strstr(key, "{\"type\":\"int32\",\"optional\":true,\"field\":\"id\"}"));
    assert_non_null(strstr(key, "\"payload\":{\"id\":null}}"));
    free(key);
}

static void test_shaped_columns_say_so(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        enum mr_column_action action;
        const char *parameters;
    } cases[] = {{MR_COLUMN_MASK, "{\"masked\":\"true\"}"},
                 {MR_COLUMN_HASH, "{\"masked\":\"true\"}"},
                 {MR_COLUMN_TRUNCATE, "{\"truncateLength\":\"2\"}"}};
    fixture->after[0] = mr_test_datum("7");
    fixture->after[1] = mr_test_datum("secret");
    fixture->options.hash_salt = "salt";
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        const struct mr_column_rule rule = {
            .action = cases[i].action,
            .table = {.schema = {.text = "public"}, .table = {.text = "t"}},
            .column = {.text = "v"},
            .length = 2};
        fixture->options.column_rules.items = &rule;
        fixture->options.column_rules.count = 1;
        assert_int_equal(wrapped_test_encode(fixture, MR_JSON_VALUE_SCHEMA, MR_OP_INSERT), MR_OK);
        char *value = wrapped_test_value_of(fixture, 0), *want = NULL;
        assert_true(asprintf(&want, "{\"type\":\"string\",\"optional\":true,\"parameters\":%s",
                             cases[i].parameters) > 0);
        assert_non_null(strstr(value, want));
        assert_null(strstr(value, "secret"));
        free(value);
        free(want);
    }
}

static void test_row_without_an_envelope(void **state)
{
    struct fixture *fixture = *state;
    static const struct mr_added_field fields[] = {{MR_FIELD_OP, "__op"},
                                                   {MR_FIELD_SOURCE_LSN, "__lsn"}};
    fixture->options.format = MR_FORMAT_ROW;
    fixture->options.bare =
        (struct mr_bare_options){.deletes = MR_DELETE_NULL, .fields = fields, .field_count = 2};
#define BARE_COLUMNS                                                                               \
    "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"int32\",\"optional\":false,"         \
    "\"field\":\"id\"},{\"type\":\"string\",\"optional\":true,\"field\":\"v\"}"
    fixture->before[0] = fixture->after[0] = mr_test_datum("7");
    fixture->before[1] = mr_test_datum(NULL);
    fixture->after[1] = mr_test_datum("a");
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_INSERT), MR_OK);
    char *value = wrapped_test_value_of(fixture, 0), *key = key_of(fixture, 0);
    assert_string_equal(key, KEY_SCHEMA "{\"id\":7}}");
    assert_string_equal(value, BARE_COLUMNS
                        ",{\"type\":\"string\",\"optional\":true,\"field\":\"__op\"},{\"type\":"
                        "\"int64\",\"optional\":true,\"field\":\"__lsn\"}],\"optional\":false,"
                        "\"name\":\"srv.public.t.Value\"},\"payload\":{\"id\":7,\"v\":\"a\","
                        "\"__op\":\"c\",\"__lsn\":7936}}");
    free(key);
    free(value);
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_DELETE), MR_OK);
    value = wrapped_test_value_of(fixture, 0);
    assert_string_equal(value, BARE_COLUMNS "],\"optional\":true,\"name\":\"srv.public.t.Value\"},"
                                            "\"payload\":null}");
    free(value);
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_KEY_SCHEMA, MR_OP_INSERT), MR_OK);
    value = wrapped_test_value_of(fixture, 0);
    assert_string_equal(value, "{\"id\":7,\"v\":\"a\",\"__op\":\"c\",\"__lsn\":7936}");
    free(value);
}

static void test_table_without_columns(void **state)
{
    struct fixture *fixture = *state;
    static const struct mr_added_field field = {MR_FIELD_OP, "__op"};
    fixture->relation.column_count = 0;
    fixture->relation.key_count = 0;
    fixture->options.format = MR_FORMAT_ROW;
    fixture->options.bare = (struct mr_bare_options){.fields = &field, .field_count = 1};
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_INSERT), MR_OK);
    char *value = wrapped_test_value_of(fixture, 0);
    assert_string_equal(
        value, "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":"
               "true,\"field\":\"__op\"}],\"optional\":false,\"name\":\"srv.public.t.Value\"},"
               "\"payload\":{\"__op\":\"c\"}}");
    free(value);
    fixture->options.format = MR_FORMAT_DEBEZIUM;
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_INSERT), MR_OK);
    assert_null(fixture->records[0].key);
    value = wrapped_test_value_of(fixture, 0);
    assert_non_null(strstr(value, "\"fields\":[{\"type\":\"struct\",\"fields\":[],"));
    free(value);
}

static void test_records_of_no_table(void **state)
{
    struct fixture *fixture = *state;
    static const char *const prefixes[] = {"*"};
    uint8_t room[64];
    fixture->options.heartbeat_topic = "hb";
    fixture->options.json_schemas = MR_JSON_SCHEMAS;
    fixture->options.message_prefixes = prefixes;
    fixture->options.message_prefix_count = 1;
    fixture->options.message_bytes_max = 1000;
    struct mr_encoder *encoder = encoder_of(fixture);
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, BYTES);
    struct mr_record beat = mr_encoder_heartbeat(encoder, INT64_C(1700000001234567890), &buffer);
    char *key = wrapped_test_text_of(beat.key, beat.key_len),
         *value = wrapped_test_text_of(beat.value, beat.value_len);
    assert_string_equal(
        key, "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":"
             "false,\"field\":\"serverName\"}],\"optional\":false,\"name\":"
             "\"io.debezium.connector.common.ServerNameKey\",\"version\":1},\"payload\":"
             "{\"serverName\":\"srv\"}}");
    assert_string_equal(
        value, "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"int64\",\"optional\":"
               "false,\"field\":\"ts_ms\"}],\"optional\":false,\"name\":"
               "\"io.debezium.connector.common.Heartbeat\",\"version\":1},\"payload\":"
               "{\"ts_ms\":1700000001234}}");
    free(key);
    free(value);
    struct mr_buffer headers = mr_buffer_init(room, sizeof(room));
    mr_header_append(&headers, "user", MR_SLICE("u-17"));
    const struct mr_transaction transaction = {
        .commit_lsn = 0x2000, .headers = {.data = room, .len = (size_t)(headers.at - room)}};
    const struct mr_message_event message = {.lsn = 0x1F00,
                                             .transaction = &transaction,
                                             .position = {.commit_lsn = 0x2000},
                                             .prefix = MR_SLICE("p\xff"),
                                             .content = MR_SLICE("c")};
    buffer = mr_buffer_init(fixture->bytes, BYTES);
    assert_int_equal(mr_encode_message(encoder, &message, &buffer, fixture->records,
                                       &fixture->count, &fixture->error),
                     MR_OK);
    key = key_of(fixture, 0);
    value = wrapped_test_value_of(fixture, 0);
    assert_string_equal(
        key, "{\"schema\":{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":true,"
             "\"field\":\"prefix\"}],\"optional\":false,\"name\":"
             "\"io.debezium.connector.postgresql.MessageKey\",\"version\":1},\"payload\":"
             "{\"prefix\":\"p\xEF\xBF\xBD\"}}");
    assert_non_null(strstr(value, "\"name\":\"io.debezium.connector.postgresql.MessageValue\","
                                  "\"version\":1},\"payload\":{\"op\":\"m\","));
    assert_string_equal(value + strlen(value) - sizeof("\"content\":\"Yw==\"}}}") + 1,
                        "\"content\":\"Yw==\"}}}");
    size_t at = 0;
    struct mr_header header;
    assert_true(mr_header_next(mr_record_headers(&fixture->records[0]), &at, &header));
    assert_true(mr_slice_equal(header.name, MR_SLICE("user")));
    free(key);
    free(value);
    mr_encoder_free(encoder);
}

/* At each size one of the two: the whole change, or nothing of it. */
static void test_change_that_does_not_fit(void **state)
{
    struct fixture *fixture = *state;
    fixture->after[0] = mr_test_datum("7");
    fixture->after[1] = mr_test_datum("a");
    assert_int_equal(wrapped_test_encode(fixture, MR_JSON_SCHEMAS, MR_OP_INSERT), MR_OK);
    size_t whole = (size_t)fixture->records[0].key_len + fixture->records[0].value_len;
    const struct mr_transaction transaction = {.commit_lsn = 0x2000};
    const struct mr_change change = {.op = MR_OP_INSERT,
                                     .lsn = 0x1F00,
                                     .position = {.commit_lsn = 0x2000},
                                     .transaction = &transaction,
                                     .relation = &fixture->relation,
                                     .after = {.kind = MR_TUPLE_NEW, .values = fixture->after}};
    struct mr_encoder *encoder = encoder_of(fixture);
    for (size_t size = 0; size + 64 < whole; size += 13) {
        uint8_t *bytes = malloc(size + 1); /* for the sanitizer, which knows its end */
        struct mr_buffer buffer = mr_buffer_init(bytes, size);
        assert_int_equal(mr_encode_change(encoder, &change, &buffer, fixture->records,
                                          &fixture->count, &fixture->error),
                         MR_FULL);
        free(bytes);
    }
    mr_encoder_free(encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_change_has_the_schemas_that_are_wanted,
                                        wrapped_test_setup, wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_tombstone_has_none, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_types, wrapped_test_setup, wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_types_of_connect, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_unknown_value_fits_its_type, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_key_has_to_fit_its_type, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_chosen_key_may_be_null, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_shaped_columns_say_so, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_row_without_an_envelope, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_table_without_columns, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_records_of_no_table, wrapped_test_setup,
                                        wrapped_test_teardown),
        cmocka_unit_test_setup_teardown(test_change_that_does_not_fit, wrapped_test_setup,
                                        wrapped_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
