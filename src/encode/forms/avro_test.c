#include "encode/forms/form.h"

#include <stdio.h>
#include <stdlib.h>

#include "encode/encode.h"
#include "encode/plan.h"
#include "testing/avro_oracle.h"
#include "testing/datum.h"
#include "testing/strict_avro.h"
#include "testing/test.h"

enum { COLUMNS = 2 };

/* A table of a key and a column of any type, encoded as JSON and as Avro. */
struct fixture {
    struct mr_encode_options options;
    struct mr_topics topics;
    struct mr_schemas *schemas;
    struct mr_column columns[COLUMNS];
    uint32_t key_columns[COLUMNS];
    struct mr_relation relation;
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    struct mr_error error;
    uint8_t bytes[1 << 16];
};

static int avro_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->schemas = mr_schemas_new();
    fixture->options = (struct mr_encode_options){.format = MR_FORMAT_AVRO,
                                                  .types = MR_TYPES_DEBEZIUM,
                                                  .schemas = fixture->schemas,
                                                  .topic_prefix = "srv",
                                                  .unavailable_value = "__u",
                                                  .tombstones = true};
    fixture->columns[0] = (struct mr_column){
        .name = (char *)"id", .type_oid = 23, .type_modifier = -1, .in_identity = true};
    fixture->columns[1] = (struct mr_column){
        .name = (char *)"v", .type_oid = 25, .type_modifier = -1, .in_identity = true};
    fixture->relation = (struct mr_relation){.oid = 1,
                                             .schema = (char *)"public",
                                             .table = (char *)"t",
                                             .identity = MR_IDENTITY_FULL,
                                             .column_count = COLUMNS,
                                             .columns = fixture->columns,
                                             .key_count = 1,
                                             .key_columns = fixture->key_columns};
    *state = fixture;
    return 0;
}

static int avro_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_topics_done(&fixture->topics);
    mr_schemas_free(fixture->schemas);
    free(fixture);
    return 0;
}

/* Encodes a row into the first `size` bytes. */
static mr_status avro_test_encode(struct fixture *fixture, enum mr_format format, enum mr_op op,
                                  struct mr_datum value, uint8_t *bytes, size_t size)
{
    const struct mr_transaction transaction = {
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    struct mr_datum values[] = {mr_test_datum("-7"), value};
    bool is_delete = op == MR_OP_DELETE;
    struct mr_change change = {
        .op = op,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &transaction,
        .relation = &fixture->relation,
        .before = {.kind = is_delete ? MR_TUPLE_FULL : MR_TUPLE_NONE, .values = values},
        .after = {.kind = is_delete ? MR_TUPLE_NONE : MR_TUPLE_NEW, .values = values}};
    fixture->options.format = format;
    struct mr_encoder *encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    mr_encoder_set_database(encoder, "db");
    mr_encoder_set_clock(encoder, INT64_C(1700000001234567890));
    struct mr_buffer buffer = mr_buffer_init(bytes, size);
    mr_status status = mr_encode_change(encoder, &change, &buffer, fixture->records,
                                        &fixture->count, &fixture->error);
    mr_encoder_free(encoder);
    return status;
}

/* Gives the next schema an id; its text. */
static const char *take_schema(struct fixture *fixture, const char *subject)
{
    const struct mr_schema *schema = mr_schemas_wait(fixture->schemas, 0);
    assert_non_null(schema);
    assert_string_equal(schema->subject, subject);
    assert_true(mr_schemas_set_id(fixture->schemas, schema->index, (int32_t)schema->index + 1));
    return schema->text;
}

static mr_slice unframed(const uint8_t *bytes, uint32_t len)
{
    return (mr_slice){.data = bytes + MR_SCHEMA_FRAME_LEN, .len = len - MR_SCHEMA_FRAME_LEN};
}

#define ONE_TWO "000000000000F03F0000000000000040"
#define POINT   "0101000000" ONE_TWO

static const struct {
    uint32_t oid;
    int32_t modifier;
    const char *text;
    const char *schema; /* of the column, without its null; NULL: not looked at */
} values[] = {
    {16, -1, "t", "\"boolean\""},
    {16, -1, "f", "\"boolean\""},
    {21, -1, "-32768", "\"int\""},
    {23, -1, "2147483647", "\"int\""},
    {20, -1, "-9223372036854775808", "\"long\""},
    {20, -1, "9223372036854775807", "\"long\""},
    {26, -1, "4294967295", "\"long\""},
    {700, -1, "0.1", "\"float\""},
    {700, -1, "-Infinity", "\"float\""},
    {701, -1, "1e-300", "\"double\""},
    {701, -1, "NaN", "\"double\""},
    {25, -1, "", "\"string\""},
    {25, -1, "a\"b\\c\n\x01\xC5\xBE\xF0\x9F\x90\x8E", "\"string\""},
    {1700, (5 << 16 | 2) + 4, "-123.45", NULL},
    {1700, (3 << 16 | 5) + 4, "0.00123", NULL},
    {1700, -1, "12345678901234567890.5", NULL},
    {1700, (5 << 16 | 2) + 4, "NaN", NULL},
    {17, -1, "\\x", "\"bytes\""},
    {17, -1, "\\x00ff10", "\"bytes\""},
    {1007, -1, "{}", "{\"type\":\"array\",\"items\":[\"null\",\"int\"]}"},
    {1007, -1, "{1,NULL,3}", NULL},
    {1007, -1, "{{1,2},{3,4}}", NULL},
    {1009, -1, "{{{a},{\"b,]}\"}},{{NULL},{\"\\\"\"}}}", NULL},
    {1231, -1, "{1.5,NULL,-2}", NULL},
    {1082, -1, "2020-02-29", NULL},
    {1083, 3, "10:00:00.123", NULL},
    {1114, -1, "2020-02-29 00:00:00.000001", NULL},
    {1184, -1, "2020-02-29 00:00:00+00", NULL},
    {600, -1, "(1.5,-2)", NULL},
    {718, -1, "<(1,2),3>", NULL},
    {604, -1, "((0,0),(1,1))", NULL},
    {3802, -1, "{\"a\": [1, null]}", NULL},
    {1560, 3, "101", NULL},
};

/* Types of extensions. */
static const struct {
    enum mr_type_kind kind;
    bool is_array;
    const char *text;
    const char *schema;
} extensions[] = {
    {MR_TYPE_GEOMETRY, false, POINT, NULL},
    {MR_TYPE_GEOMETRY, false, "0101000020E6100000" ONE_TWO, NULL},
    {MR_TYPE_GEOMETRY, true, "{" POINT ":NULL:" POINT "}", NULL},
    {MR_TYPE_GEOGRAPHY, false, POINT, NULL},
    {MR_TYPE_VECTOR, false, "[1,2.5,-3]",
     "{\"type\":\"array\",\"items\":\"double\",\"connect.version\":1,\"connect.name\":"
     "\"io.debezium.data.DoubleVector\"}"},
    {MR_TYPE_HALFVEC, false, "[0.099975586]", NULL},
    {MR_TYPE_HALFVEC, true, "{\"[1,2]\",NULL,\"[3]\"}", NULL},
    {MR_TYPE_HALFVEC, true, "{{\"[1,2]\"},{\"[3]\"}}", NULL},
    {MR_TYPE_VECTOR, true, "{}", NULL},
    {MR_TYPE_VECTOR, true, "{{NULL},{\"[3]\"}}", NULL},
    {MR_TYPE_SPARSEVEC, false, "{1:1,17:-2.5}/40000", NULL},
    {MR_TYPE_SPARSEVEC, false, "{}/3", NULL},
    {MR_TYPE_SPARSEVEC, true, "{\"{1:1}/2\",NULL,\"{}/2\"}", NULL},
};

/* What the judge says of it, and whether it is what the transcoder made of the JSON. */
static bool is_right(mr_slice schema, mr_slice avro, mr_slice json)
{
    static uint8_t bytes[1 << 16];
    struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
    assert_true(mr_avro_oracle(schema, json, "__u", &out));
    assert_true(mr_slice_equal(avro, (mr_slice){.data = bytes, .len = (size_t)(out.at - bytes)}));
    return mr_strict_avro(schema, avro, json, "__u");
}

/* The row with this value says the same in both formats, and the column has the schema, if that is
 * not NULL. */
static void assert_same(struct fixture *fixture, struct mr_datum value, const char *schema)
{
    static uint8_t json[1 << 16];
    assert_int_equal(
        avro_test_encode(fixture, MR_FORMAT_DEBEZIUM, MR_OP_INSERT, value, json, sizeof(json)),
        MR_OK);
    mr_slice told = {.data = fixture->records[0].value, .len = fixture->records[0].value_len};
    mr_slice told_key = {.data = fixture->records[0].key, .len = fixture->records[0].key_len};
    mr_schemas_free(fixture->schemas);
    fixture->options.schemas = fixture->schemas = mr_schemas_new();
    assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_INSERT, value, fixture->bytes,
                                      sizeof(fixture->bytes)),
                     MR_OK);
    mr_slice envelope = mr_slice_of(take_schema(fixture, "srv.public.t-value"));
    mr_slice key = mr_slice_of(take_schema(fixture, "srv.public.t-key"));
    const struct mr_record *record = &fixture->records[0];
    mr_slice avro = unframed(record->value, record->value_len);
    assert_true(is_right(envelope, avro, told));
    assert_true(is_right(key, unframed(record->key, record->key_len), told_key));
    if (schema != NULL) {
        char want[256];
        snprintf(want, sizeof(want), "{\"name\":\"v\",\"type\":[\"null\",%s],\"default\":null}",
                 schema);
        assert_non_null(strstr((const char *)envelope.data, want));
    }
    /* The judge sees a byte that is missing, one too many, and another value. */
    avro.len--;
    assert_false(mr_strict_avro(envelope, avro, told, "__u"));
    avro.len += 2;
    assert_false(mr_strict_avro(envelope, avro, told, "__u"));
    avro.len--;
    assert_false(mr_strict_avro(envelope, avro, told_key, "__u"));
}

static void test_each_type_says_what_its_json_says(void **state)
{
    struct fixture *fixture = *state;
    assert_same(fixture, mr_test_datum(NULL), NULL);
    for (size_t i = 0; i < MR_ARRAY_LEN(values); i++) {
        fixture->columns[1].type_oid = values[i].oid;
        fixture->columns[1].type_modifier = values[i].modifier;
        assert_same(fixture, mr_test_datum(values[i].text), values[i].schema);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(extensions); i++) {
        fixture->columns[1].type_oid = MR_FIRST_USER_OID;
        fixture->columns[1].type_modifier = -1;
        fixture->columns[1].type = (struct mr_type){.oid = MR_FIRST_USER_OID,
                                                    .modifier = -1,
                                                    .kind = extensions[i].kind,
                                                    .is_array = extensions[i].is_array};
        assert_same(fixture, mr_test_datum(extensions[i].text), extensions[i].schema);
    }
}

static void test_a_value_that_is_not_known_is_text_or_null(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum unchanged = {.kind = MR_DATUM_UNCHANGED};
    static const uint32_t oids[] = {25, 17, 1700, 1007, 1009, 3802};
    static uint8_t json[1 << 16];
    for (size_t i = 0; i < MR_ARRAY_LEN(oids); i++) {
        fixture->columns[1].type_oid = oids[i];
        assert_int_equal(avro_test_encode(fixture, MR_FORMAT_DEBEZIUM, MR_OP_UPDATE, unchanged,
                                          json, sizeof(json)),
                         MR_OK);
        mr_slice told = {.data = fixture->records[0].value, .len = fixture->records[0].value_len};
        mr_schemas_free(fixture->schemas);
        fixture->options.schemas = fixture->schemas = mr_schemas_new();
        assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_UPDATE, unchanged,
                                          fixture->bytes, sizeof(fixture->bytes)),
                         MR_OK);
        mr_slice schema = mr_slice_of(take_schema(fixture, "srv.public.t-value"));
        const struct mr_record *record = &fixture->records[0];
        assert_true(is_right(schema, unframed(record->value, record->value_len), told));
        assert_false(
            oids[i] == 1700 &&
            mr_strict_avro(schema, unframed(record->value, record->value_len), told, "__other"));
    }
}

static void test_a_key_that_is_no_utf8_does_not_fit(void **state)
{
    struct fixture *fixture = *state;
    fixture->key_columns[0] = 1;
    assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_INSERT, mr_test_datum("\xFF"),
                                      fixture->bytes, sizeof(fixture->bytes)),
                     MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "column \"v\" of table public.t"));
}

static void test_a_message_never_stops_the_stream(void **state)
{
    struct fixture *fixture = *state;
    static const char *const all[] = {"*"};
    fixture->options.message_prefixes = all;
    fixture->options.message_prefix_count = 1;
    fixture->options.message_bytes_max = 100;
    struct mr_encoder *encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    mr_encoder_set_database(encoder, "db");
    struct mr_message_event message = {
        .lsn = 1, .prefix = MR_SLICE("\xFF"), .content = MR_SLICE("c")};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_message(encoder, &message, &buffer, fixture->records,
                                       &fixture->count, &fixture->error),
                     MR_OK);
    assert_memory_equal(fixture->records[0].key + MR_SCHEMA_FRAME_LEN, "\2\x18{\"hex\":\"ff\"}",
                        14);
    mr_slice schema = mr_slice_of(take_schema(fixture, "srv.message-value"));
    assert_non_null(strstr((const char *)schema.data, "\"MessageValue\""));
    mr_encoder_free(encoder);
}

static void test_a_buffer_of_any_size_is_full_or_enough(void **state)
{
    struct fixture *fixture = *state;
    fixture->columns[1].type_oid = 1009;
    struct mr_datum value = mr_test_datum("{a,\"\\\"quoted\\\"\",NULL}");
    assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_DELETE, value, fixture->bytes,
                                      sizeof(fixture->bytes)),
                     MR_OK);
    assert_int_equal(fixture->count, 2); /* with its tombstone */
    assert_null(fixture->records[1].value);
    uint32_t len = fixture->records[0].value_len;
    uint8_t *kept = malloc(len);
    memcpy(kept, fixture->records[0].value, len);
    mr_status status = MR_FULL;
    for (size_t size = 1; status != MR_OK; size++) {
        uint8_t *bytes = malloc(size); /* so that a sanitizer sees a byte too far */
        status = avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_DELETE, value, bytes, size);
        assert_true(status == MR_OK || status == MR_FULL);
        if (status == MR_OK) {
            assert_int_equal(fixture->records[0].value_len, len);
            assert_memory_equal(fixture->records[0].value, kept, len);
        }
        free(bytes);
    }
    free(kept);
}

static void test_names_are_what_avro_takes(void **state)
{
    struct fixture *fixture = *state;
    fixture->columns[1].name = (char *)"1 x-\xC3\xA9\xF0\x9F\x98\x80";
    fixture->relation.table = (char *)"9-t";
    fixture->options.topic_prefix = "a.9b";
    fixture->options.subjects = MR_SUBJECT_RECORD;
    assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_INSERT, mr_test_datum("a"),
                                      fixture->bytes, sizeof(fixture->bytes)),
                     MR_OK);
    const char *schema = take_schema(fixture, "a._9b.public._9_t.Envelope");
    assert_non_null(strstr(schema, "{\"name\":\"_1_x____\","));
    fixture->columns[1].name = (char *)"_1 x-\xC3\xA9\xF0\x9F\x98\x80";
    fixture->columns[0].name = (char *)"1 x-\xC3\xA9\xF0\x9F\x98\x80";
    assert_int_equal(avro_test_encode(fixture, MR_FORMAT_AVRO, MR_OP_INSERT, mr_test_datum("a"),
                                      fixture->bytes, sizeof(fixture->bytes)),
                     MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "would both be \"_1_x____\" in Avro"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_type_says_what_its_json_says, avro_test_setup,
                                        avro_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_value_that_is_not_known_is_text_or_null,
                                        avro_test_setup, avro_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_key_that_is_no_utf8_does_not_fit, avro_test_setup,
                                        avro_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_message_never_stops_the_stream, avro_test_setup,
                                        avro_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_buffer_of_any_size_is_full_or_enough,
                                        avro_test_setup, avro_test_teardown),
        cmocka_unit_test_setup_teardown(test_names_are_what_avro_takes, avro_test_setup,
                                        avro_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
