#include "encode/encode.h"
#include "encode/oversize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode/plan.h"
#include "testing/datum.h"
#include "testing/test.h"

/* An encoder, a relation of four columns, and what was encoded last. */
struct fixture {
    struct mr_encode_options options;
    struct mr_topics topics;
    struct mr_encoder *encoder;
    struct mr_column columns[4];
    uint32_t key_columns[4];
    struct mr_relation relation;
    struct mr_transaction transaction;
    uint8_t said[256];
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    struct mr_error error;
    uint8_t bytes[8192];
};

static void fixture_open(struct fixture *fixture)
{
    fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    mr_encoder_set_database(fixture->encoder, "db");
    mr_encoder_set_clock(fixture->encoder, INT64_C(1700000001234567890));
}

static int encode_test_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    static const char *const all_messages[] = {"*"};
    fixture->options = (struct mr_encode_options){
        .message_prefixes = all_messages,
        .message_prefix_count = 1,
        .message_bytes_max = 64 * 1024 * 1024,
        .format = MR_FORMAT_DEBEZIUM,
        .topic_prefix = "srv",
        .unavailable_value = "__unavailable",
        .tombstones = true,
    };
    fixture->columns[0] =
        (struct mr_column){.name = (char *)"id", .type_oid = 23, .in_identity = true};
    fixture->columns[1] = (struct mr_column){.name = (char *)"v", .type_oid = 25};
    fixture->columns[2] = (struct mr_column){.name = (char *)"f", .type_oid = 701};
    fixture->columns[3] = (struct mr_column){.name = (char *)"b", .type_oid = 16};
    fixture->relation = (struct mr_relation){
        .oid = 1,
        .schema = (char *)"public",
        .table = (char *)"t",
        .identity = MR_IDENTITY_DEFAULT,
        .column_count = 4,
        .columns = fixture->columns,
        .key_count = 1,
        .key_columns = fixture->key_columns,
    };
    fixture->transaction = (struct mr_transaction){
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    *state = fixture;
    return 0;
}

static int encode_test_teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_encoder_free(fixture->encoder);
    mr_topics_done(&fixture->topics);
    free(fixture);
    return 0;
}

static const struct mr_datum null = {.kind = MR_DATUM_NULL};
static const struct mr_datum unchanged = {.kind = MR_DATUM_UNCHANGED};

static struct mr_change encode_test_change_of(const struct fixture *fixture, enum mr_op op,
                                              enum mr_tuple_kind before_kind,
                                              const struct mr_datum *before,
                                              const struct mr_datum *after)
{
    return (struct mr_change){
        .op = op,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &fixture->transaction,
        .relation = &fixture->relation,
        .before = {.kind = before_kind, .values = before},
        .after = {.kind = after == NULL ? MR_TUPLE_NONE : MR_TUPLE_NEW, .values = after},
    };
}

static mr_status encode_test_encode_into(struct fixture *fixture, enum mr_op op,
                                         enum mr_tuple_kind before_kind,
                                         const struct mr_datum *before,
                                         const struct mr_datum *after, uint8_t *bytes, size_t size)
{
    if (fixture->encoder == NULL) {
        fixture_open(fixture);
    }
    struct mr_change change = encode_test_change_of(fixture, op, before_kind, before, after);
    struct mr_buffer buffer = mr_buffer_init(bytes, size);
    return mr_encode_change(fixture->encoder, &change, &buffer, fixture->records, &fixture->count,
                            &fixture->error);
}

/* What takes the place of an item whose largest record has `bytes`. */
static mr_status encode_test_encode_placed(struct fixture *fixture, enum mr_op op,
                                           enum mr_tuple_kind before_kind,
                                           const struct mr_datum *before,
                                           const struct mr_datum *after, size_t limit)
{
    struct mr_change change = encode_test_change_of(fixture, op, before_kind, before, after);
    struct mr_item item = {.change = &change};
    struct mr_oversize_case oversize = {.bytes = 9999, .limit = limit, .reason = "message_max"};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    return mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer, fixture->records,
                              &fixture->count, &fixture->error);
}

static mr_status encode_test_encode(struct fixture *fixture, enum mr_op op,
                                    enum mr_tuple_kind before_kind, const struct mr_datum *before,
                                    const struct mr_datum *after)
{
    return encode_test_encode_into(fixture, op, before_kind, before, after, fixture->bytes,
                                   sizeof(fixture->bytes));
}

static void assert_value(const struct mr_record *record, const char *want)
{
    assert_int_equal(record->value_len, strlen(want));
    assert_memory_equal(record->value, want, record->value_len);
}

static void assert_key(const struct mr_record *record, const char *want)
{
    assert_int_equal(record->key_len, strlen(want));
    assert_memory_equal(record->key, want, record->key_len);
}

static void assert_value_has(const struct mr_record *record, const char *part)
{
    assert_non_null(memmem(record->value, record->value_len, part, strlen(part)));
}

#define SOURCE(sequence)                                                                           \
    ",\"source\":{\"version\":\"" MR_VERSION                                                       \
    "\",\"connector\":\"postgresql\",\"name\":\"srv\",\"ts_ms\":1700000000000,\"snapshot\":"       \
    "\"false\",\"db\":\"db\",\"sequence\":\"[" sequence ",\\\"7936\\\"]\",\"ts_us\":"              \
    "1700000000000001,\"ts_ns\":1700000000000001000,\"schema\":\"public\",\"table\":\"t\","        \
    "\"txId\":555,\"lsn\":7936,\"xmin\":null,\"origin\":null,\"origin_lsn\":null},"                \
    "\"transaction\":null,\"op\":"
#define CLOCK ",\"ts_ms\":1700000001234,\"ts_us\":1700000001234567,\"ts_ns\":1700000001234567890}"

static void test_debezium_insert(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a\"b"), mr_test_datum("1.5"),
                             mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_string_equal(fixture->records[0].topic->name, "srv.public.t");
    assert_key(&fixture->records[0], "{\"id\":1}");
    assert_value(
        &fixture->records[0],
        "{\"before\":null,\"after\":{\"id\":1,\"v\":\"a\\\"b\",\"f\":1.5,\"b\":true}" SOURCE(
            "null") "\"c\"" CLOCK);
    assert_int_equal(fixture->records[0].xid, 555);
    assert_int_equal(fixture->records[0].position.ordinal, 3);
}

static void test_debezium_sequence_and_origin(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), null, mr_test_datum("NaN"), mr_test_datum("f")};
    fixture->transaction.last_commit_lsn = 4096;
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_value(
        &fixture->records[0],
        "{\"before\":null,\"after\":{\"id\":1,\"v\":null,\"f\":\"NaN\",\"b\":false}" SOURCE(
            "\\\"4096\\\"") "\"c\"" CLOCK);
    fixture->transaction.commit_lsn = 0x3000;
    fixture->transaction.origin = MR_SLICE("el\"se");
    fixture->transaction.origin_lsn = 9;
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_value_has(&fixture->records[0], "\"origin\":\"el\\\"se\",\"origin_lsn\":9}");
}

static void test_debezium_update_and_delete(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("old"), mr_test_datum("1"),
                             mr_test_datum("t")};
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("new"), mr_test_datum("-Infinity"),
                             null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_value(
        &fixture->records[0],
        "{\"before\":{\"id\":1,\"v\":\"old\",\"f\":1,\"b\":true},\"after\":{\"id\":1,\"v\":"
        "\"new\",\"f\":\"-Infinity\",\"b\":null}" SOURCE("null") "\"u\"" CLOCK);
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, key, NULL), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_value(&fixture->records[0],
                 "{\"before\":{\"id\":1,\"v\":null,\"f\":null,\"b\":null},\"after\":null" SOURCE(
                     "null") "\"d\"" CLOCK);
    assert_null(fixture->records[1].value);
    assert_key(&fixture->records[1], "{\"id\":1}");
    assert_int_equal(fixture->records[1].part, 1);
}

static void test_debezium_delete_without_tombstone(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.tombstones = false;
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, key, NULL), MR_OK);
    assert_int_equal(fixture->count, 1);
}

static void test_debezium_key_change(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("x"), null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
    assert_int_equal(fixture->count, 3);
    assert_key(&fixture->records[0], "{\"id\":1}");
    assert_value_has(&fixture->records[0], "\"op\":\"d\"");
    assert_null(fixture->records[1].value);
    assert_key(&fixture->records[2], "{\"id\":2}");
    assert_value_has(&fixture->records[2], "{\"before\":null,\"after\":{\"id\":2");
    assert_value_has(&fixture->records[2], "\"op\":\"c\"");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fixture->records[i].part, i);
    }
}

/* A row under a new key is a delete and an insert, and they are skipped, not the update. */
static void test_debezium_key_change_skipped(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum before[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    struct mr_datum after[] = {mr_test_datum("2"), mr_test_datum("a"), null, null};
    static const struct {
        uint32_t skipped;
        uint32_t count;
        bool is_delete;
    } cases[] = {{1u << MR_OP_UPDATE, 3, true},
                 {1u << MR_OP_DELETE, 1, false},
                 {1u << MR_OP_INSERT, 2, true},
                 {1u << MR_OP_INSERT | 1u << MR_OP_DELETE, 0, false},
                 {1u << MR_OP_UPDATE | 1u << MR_OP_DELETE, 1, false}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        fixture->options.skipped_operations = cases[i].skipped;
        assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, before, after),
                         MR_OK);
        assert_int_equal(fixture->count, cases[i].count);
        if (fixture->count > 0) {
            assert_value_has(&fixture->records[0],
                             cases[i].is_delete ? "\"op\":\"d\"" : "\"op\":\"c\"");
        }
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
    fixture->options.skipped_operations = 1u << MR_OP_UPDATE;
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, after, after), MR_OK);
    assert_int_equal(fixture->count, 0);
}

static void test_unchanged_rows_are_skipped(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.skip_unchanged = true;
    struct mr_datum before[] = {mr_test_datum("1"), mr_test_datum("a"), null, mr_test_datum("t")};
    struct mr_datum same[] = {mr_test_datum("1"), unchanged, null, mr_test_datum("t")};
    struct mr_datum other[] = {mr_test_datum("1"), mr_test_datum("b"), null, mr_test_datum("t")};
    struct mr_datum filled[] = {mr_test_datum("1"), mr_test_datum("a"), mr_test_datum("0"),
                                mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, before, same), MR_OK);
    assert_int_equal(fixture->count, 0);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, before, other),
                     MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, before, filled),
                     MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, before, before),
                     MR_OK);
    assert_int_equal(fixture->count, 1); /* the key alone tells nothing of the rest */
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, before, NULL), MR_OK);
    assert_int_equal(fixture->count, 2);
}

static void test_schema_event(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.schema_topic = "forms";
    fixture->options.tombstones = true;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    struct mr_datum moved[] = {mr_test_datum("2"), mr_test_datum("a"), null, null};
    fixture->columns[1].type_oid = 1009;
    fixture->columns[2].type_oid = 70000;
    /* Until its record is kept, it comes again. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, row, moved),
                         MR_OK);
        assert_int_equal(fixture->count, 4);
        assert_string_equal(fixture->records[0].topic->name, "forms");
        assert_int_equal(fixture->records[0].part, 9);
        assert_int_equal(fixture->records[1].part, 0);
        assert_int_equal(fixture->records[3].part, 2);
    }
    assert_key(&fixture->records[0], "{\"schema\":\"public\",\"table\":\"t\"}");
    assert_null(mr_record_headers(&fixture->records[0]));
    assert_value(&fixture->records[0],
                 "{\"schema\":\"public\",\"table\":\"t\",\"identity\":\"default\",\"key\":[\"id\"],"
                 "\"columns\":["
                 "{\"name\":\"id\",\"type\":\"int4\",\"type_oid\":23,\"type_modifier\":0,\"in_"
                 "identity\":true},"
                 "{\"name\":\"v\",\"type\":\"text[]\",\"type_oid\":1009,\"type_modifier\":0,\"in_"
                 "identity\":false},"
                 "{\"name\":\"f\",\"type\":null,\"type_oid\":70000,\"type_modifier\":0,\"in_"
                 "identity\":false},"
                 "{\"name\":\"b\",\"type\":\"bool\",\"type_oid\":16,\"type_modifier\":0,\"in_"
                 "identity\":false}],"
                 "\"source\":{\"ts_us\":1700000000000001,\"txId\":555,\"lsn\":7936}}");
    struct mr_change change =
        encode_test_change_of(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, row, moved);
    struct mr_item item = {.change = &change};
    mr_encoder_count(fixture->encoder, &item, fixture->records, fixture->count);
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    /* Another version is announced again. */
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_test_encode(fixture, MR_OP_READ, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 1); /* a copy's rows belong to no place of the stream */
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 2);
}

/* Encodes a change at that ordinal and counts it, as the pipeline does. */
static void encode_test_keep(struct fixture *fixture, uint64_t ordinal, enum mr_op op,
                             const struct mr_datum *before, const struct mr_datum *after)
{
    enum mr_tuple_kind kind = before == NULL ? MR_TUPLE_NONE : MR_TUPLE_KEY;
    struct mr_change change = encode_test_change_of(fixture, op, kind, before, after);
    change.position.ordinal = ordinal;
    struct mr_item item = {.change = &change};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_change(fixture->encoder, &change, &buffer, fixture->records,
                                      &fixture->count, &fixture->error),
                     MR_OK);
    if (fixture->count > 0) {
        mr_encoder_count(fixture->encoder, &item, fixture->records, fixture->count);
    }
    for (int i = 0; i < 2; i++) { /* one that comes again counts once */
        assert_int_equal(mr_encoder_pass(fixture->encoder, &item, &fixture->error), MR_OK);
    }
}

static void assert_holds(const struct mr_record *record, const char *want)
{
    assert_non_null(memmem(record->value, record->value_len, want, strlen(want)));
}

static void encode_test_end_transaction(struct fixture *fixture)
{
    fixture->transaction.end_lsn = 0x2100;
    struct mr_transaction_end end = {.transaction = &fixture->transaction,
                                     .position = mr_encoder_end_position(fixture->encoder)};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode(fixture->encoder,
                               &(struct mr_item){.kind = MR_ITEM_END, .end = &end}, &buffer,
                               fixture->records, &fixture->count, &fixture->error),
                     MR_OK);
}

static void test_transaction(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.transaction_topic = "srv.transaction";
    fixture->options.schema_topic = "forms";
    fixture_open(fixture);
    fixture->transaction.begin_lsn = 0x1000;
    mr_encoder_begin(fixture->encoder, &fixture->transaction, false);
    assert_false(mr_encoder_has_begun(fixture->encoder));

    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    struct mr_datum moved[] = {mr_test_datum("2"), mr_test_datum("a"), null, null};
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    encode_test_keep(fixture, 1, MR_OP_INSERT, NULL, row);
    assert_true(mr_encoder_has_begun(fixture->encoder));
    assert_int_equal(fixture->count, 3); /* BEGIN, the form, the row */
    assert_string_equal(fixture->records[0].topic->name, "srv.transaction");
    assert_int_equal(fixture->records[0].part, 8);
    assert_int_equal(fixture->records[0].position.ordinal, 1);
    assert_key(&fixture->records[0], "{\"id\":\"555:4096\"}");
    assert_value(&fixture->records[0],
                 "{\"status\":\"BEGIN\",\"id\":\"555:4096\",\"event_count\":null,"
                 "\"data_collections\":null,\"ts_ms\":1700000000000}");
    assert_string_equal(fixture->records[1].topic->name, "forms");
    assert_holds(&fixture->records[2],
                 "\"origin_lsn\":null},\"transaction\":{\"id\":\"555:7936\",\"total_order\":1,"
                 "\"data_collection_order\":1},\"op\":\"c\",\"ts_ms\"");

    /* A changed key is two events; its tombstone is none. */
    encode_test_keep(fixture, 2, MR_OP_UPDATE, key, moved);
    assert_int_equal(fixture->count, 3);
    assert_holds(&fixture->records[0],
                 "\"total_order\":2,\"data_collection_order\":2},\"op\":\"d\"");
    assert_holds(&fixture->records[2],
                 "\"total_order\":3,\"data_collection_order\":3},\"op\":\"c\"");

    /* Another table, and this one again in another version. */
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    fixture->relation.table = (char *)"o\"o";
    encode_test_keep(fixture, 3, MR_OP_INSERT, NULL, row);
    assert_holds(&fixture->records[1], "\"total_order\":4,\"data_collection_order\":1}");
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    fixture->relation.table = (char *)"t";
    encode_test_keep(fixture, 4, MR_OP_INSERT, NULL, row);
    assert_holds(&fixture->records[1], "\"total_order\":5,\"data_collection_order\":4}");

    encode_test_end_transaction(fixture);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(fixture->records[0].part, 9);
    assert_int_equal(fixture->records[0].position.ordinal, 5);
    assert_key(&fixture->records[0], "{\"id\":\"555:8448\"}");
    assert_value(&fixture->records[0],
                 "{\"status\":\"END\",\"id\":\"555:8448\",\"event_count\":5,\"data_collections\":["
                 "{\"data_collection\":\"public.t\",\"event_count\":4},"
                 "{\"data_collection\":\"public.o\\\"o\",\"event_count\":1}],"
                 "\"ts_ms\":1700000000000}");

    /* Where the sink takes no such record, it has the sum. */
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    mr_encoder_change(fixture->encoder, &fixture->options);
    struct mr_transaction_end end = {.transaction = &fixture->transaction,
                                     .position = {.commit_lsn = 0x2000, .ordinal = 5}};
    struct mr_item item = {.kind = MR_ITEM_END, .end = &end};
    struct mr_oversize_case oversize = {.bytes = 9999, .limit = 150, .reason = "message_max"};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer,
                                        fixture->records, &fixture->count, &fixture->error),
                     MR_OK);
    assert_holds(&fixture->records[0], "\"event_count\":5,\"data_collections\":null,");
    oversize.limit = 20;
    assert_int_equal(mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer,
                                        fixture->records, &fixture->count, &fixture->error),
                     MR_ERR_POISON);
}

/* A heartbeat has no large values: no policy and no limit makes it anything else, and whatever asks
 * for its name and place gets them. */
static void test_heartbeat_is_never_oversize(void **state)
{
    struct fixture *fixture = *state;
    static const enum mr_oversize policies[] = {MR_OVERSIZE_PLACEHOLDER, MR_OVERSIZE_DEAD_LETTER,
                                                MR_OVERSIZE_FAIL};
    for (size_t i = 0; i < MR_ARRAY_LEN(policies); i++) {
        _Atomic uint64_t counts[MR_OVERSIZE_COUNT] = {0};
        fixture->options.oversize = policies[i];
        fixture->options.heartbeat_topic = "srv.heartbeat";
        fixture->options.dead_letter_topic = "letters";
        fixture->options.record_bytes_max = 10;
        fixture_open(fixture);
        uint8_t beat_bytes[256];
        struct mr_buffer beat_buffer = mr_buffer_init(beat_bytes, sizeof(beat_bytes));
        struct mr_record beat =
            mr_encoder_heartbeat(fixture->encoder, INT64_C(1700000001234567890), &beat_buffer);
        beat.position = (struct mr_position){.commit_lsn = 0x2000, .ordinal = 1};
        const struct mr_item item = {.kind = MR_ITEM_RECORD, .record = &beat};
        struct mr_oversizer oversizer;
        mr_oversizer_init(&oversizer, fixture->encoder, 4096, counts);
        mr_refused_add(&oversizer.refused, (struct mr_refused){.position = beat.position}, 0);
        mr_oversizer_next(&oversizer);
        for (int again = 0; again < 2; again++) {
            struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
            mr_status status = mr_oversizer_encode(&oversizer, &item, &buffer, fixture->records,
                                                   &fixture->count, &fixture->error);
            assert_int_equal(status, MR_OK);
            assert_int_equal(fixture->count, 1);
            assert_string_equal(fixture->records[0].topic->name, "srv.heartbeat");
            assert_int_equal(oversizer.way, again == 0 ? MR_ITEM_AS_IT_IS : MR_ITEM_TOO_LARGE);
            mr_oversizer_kept(&oversizer, &item);
            assert_int_equal(mr_item_bytes(&item), 0);
            if (!mr_oversizer_no_block(&oversizer, &item)) {
                assert_true(again == 1 || policies[i] == MR_OVERSIZE_FAIL);
                break;
            }
        }
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

/* Copied rows are no part of one; messages are, and in the next one counts begin again. */
static void test_transaction_copies_and_messages(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.transaction_topic = "srv.transaction";
    fixture_open(fixture);
    mr_encoder_begin(fixture->encoder, &fixture->transaction, false);
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    struct mr_change copied = encode_test_change_of(fixture, MR_OP_READ, MR_TUPLE_NONE, NULL, row);
    copied.copy_mark = MR_COPY_INCREMENTAL;
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_change(fixture->encoder, &copied, &buffer, fixture->records,
                                      &fixture->count, &fixture->error),
                     MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_holds(&fixture->records[0], "\"transaction\":null,\"op\":\"r\"");

    struct mr_message_event message = {.lsn = 0x1F80,
                                       .position = {.commit_lsn = 0x2000, .ordinal = 1},
                                       .transaction = &fixture->transaction,
                                       .prefix = mr_slice_of("p"),
                                       .content = mr_slice_of("c")};
    struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = &message};
    for (int i = 0; i < 2; i++) {
        mr_encoder_begin(fixture->encoder, &fixture->transaction, i == 1);
        buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
        assert_int_equal(mr_encode_message(fixture->encoder, &message, &buffer, fixture->records,
                                           &fixture->count, &fixture->error),
                         MR_OK);
        assert_int_equal(fixture->count, i == 0 ? 2 : 1); /* BEGIN is told already */
        mr_encoder_count(fixture->encoder, &item, fixture->records, fixture->count);
        assert_holds(&fixture->records[fixture->count - 1],
                     "\"transaction\":{\"id\":\"555:8064\",\"total_order\":1,"
                     "\"data_collection_order\":1},\"message\"");
        assert_int_equal(mr_encoder_pass(fixture->encoder, &item, &fixture->error), MR_OK);
    }
    encode_test_end_transaction(fixture);
    assert_holds(&fixture->records[0],
                 "\"event_count\":1,\"data_collections\":["
                 "{\"data_collection\":\"LOGICAL_DECODING_MESSAGE\",\"event_count\":1}]");
}

/* The order of a HashMap of Java's, printed by one: 13 names make it grow to 32 buckets. */
static void test_transaction_tables_in_order(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.transaction_topic = "srv.transaction";
    fixture_open(fixture);
    mr_encoder_begin(fixture->encoder, &fixture->transaction, false);
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    for (int i = 0; i < 13; i++) {
        char name[] = "table_\0";
        name[6] = (char)('a' + i);
        fixture->relation.table = name;
        encode_test_keep(fixture, (uint64_t)i + 1, MR_OP_INSERT, NULL, row);
        mr_encoder_forget(fixture->encoder, &fixture->relation);
    }
    encode_test_end_transaction(fixture);
    char order[14] = "";
    const char *value = (const char *)fixture->records[0].value;
    for (size_t i = 0; i < 13; i++) {
        value = strstr(value, "public.table_") + strlen("public.table_");
        order[i] = *value;
    }
    assert_string_equal(order, "aedcbihgfmlkj");
}

static struct mr_column_rule rule_for(enum mr_column_action action, const char *column,
                                      uint32_t length)
{
    return (struct mr_column_rule){.action = action,
                                   .table = {.schema = {.text = "public"}, .table = {.text = "t"}},
                                   .column = {.text = column},
                                   .length = length};
}

static void assert_shaped(struct fixture *fixture, const struct mr_column_rule *rules,
                          uint32_t count, const char *after)
{
    struct mr_datum row[] = {mr_test_datum("7"), mr_test_datum("a\xc3\xa9xyz"),
                             mr_test_datum("1.5"), null};
    fixture->options.column_rules.items = rules;
    fixture->options.column_rules.count = count;
    fixture->options.hash_salt = "s";
    mr_encoder_free(fixture->encoder);
    fixture->encoder = NULL;
    if (after == NULL) {
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_ERR_CONFIG);
        assert_non_null(strstr(fixture->error.text, "part of the key"));
        return;
    }
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_value_has(&fixture->records[0], after);
}

static void test_columns_shaped(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_column_rule out = rule_for(MR_COLUMN_EXCLUDE, "v", 0);
    assert_shaped(fixture, &out, 1, "\"after\":{\"id\":7,\"f\":1.5,\"b\":null},");
    const struct mr_column_rule in = rule_for(MR_COLUMN_INCLUDE, "f", 0);
    assert_shaped(fixture, &in, 1, "\"after\":{\"id\":7,\"f\":1.5},"); /* and the key */
    const struct mr_column_rule both[] = {in, rule_for(MR_COLUMN_EXCLUDE, "f", 0)};
    assert_shaped(fixture, both, 2, "\"after\":{\"id\":7},");
    const struct mr_column_rule masks[] = {rule_for(MR_COLUMN_MASK, "v", 3),
                                           rule_for(MR_COLUMN_MASK, "f", 0)};
    assert_shaped(fixture, masks, 2, "\"after\":{\"id\":7,\"v\":\"***\",\"f\":\"\",\"b\":null},");
    const struct mr_column_rule cuts[] = {rule_for(MR_COLUMN_TRUNCATE, "v", 2),
                                          rule_for(MR_COLUMN_TRUNCATE, "f", 1)};
    assert_shaped(fixture, cuts, 2, "\"v\":\"a\xc3\xa9\",\"f\":1.5,");
    const struct mr_column_rule hash = rule_for(MR_COLUMN_HASH, "id", 0);
    assert_shaped(fixture, &hash, 1,
                  "{\"id\":\"13d28fed9becbe6637ef6b017fbefef73b2b907e25eb00396f7c2675623e87f6\"");
}

/* What a partition's table hides, and each that it may be of; lists of what is sent count apart. */
static void test_columns_of_a_partition(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_origin origins[] = {{.schema = "public", .table = "one"},
                                        {.schema = "public", .table = "two"}};
    struct mr_column_rule rules[] = {rule_for(MR_COLUMN_MASK, "v", 3),
                                     rule_for(MR_COLUMN_EXCLUDE, "b", 0),
                                     rule_for(MR_COLUMN_MASK, "f", 1)};
    rules[0].table.table.text = "one";
    rules[1].table.table.text = "two";
    rules[2].table.table.text = "three";
    fixture->relation.origins = origins;
    fixture->relation.origin_count = MR_ARRAY_LEN(origins);
    assert_shaped(fixture, rules, 3, "\"after\":{\"id\":7,\"v\":\"***\",\"f\":1.5},");
    struct mr_column_rule lists[] = {
        rule_for(MR_COLUMN_INCLUDE, "v", 0), rule_for(MR_COLUMN_INCLUDE, "f", 0),
        rule_for(MR_COLUMN_INCLUDE, "f", 0), rule_for(MR_COLUMN_INCLUDE, "b", 0)};
    lists[0].table.table.text = lists[1].table.table.text = "one";
    lists[2].table.table.text = "two";
    assert_shaped(fixture, lists, 3, "\"after\":{\"id\":7,\"f\":1.5},");
    /* Its own list is one more, of whatever it is a partition. */
    assert_shaped(fixture, lists, 4, "\"after\":{\"id\":7,\"f\":1.5,\"b\":null},");
    fixture->relation.origin_count = 1;
    assert_shaped(fixture, lists, 3, "\"a\xc3\xa9xyz\",\"f\":1.5},");
    fixture->relation.origin_count = 0;
    assert_shaped(fixture, rules, 3, "\"b\":null}");
}

static void test_columns_of_the_key_stay(void **state)
{
    struct fixture *fixture = *state;
    for (enum mr_column_action action = MR_COLUMN_EXCLUDE; action <= MR_COLUMN_HASH; action++) {
        const struct mr_column_rule rule = rule_for(action, "id", 2);
        fixture->options.format = action == MR_COLUMN_HASH ? MR_FORMAT_FLAT : MR_FORMAT_DEBEZIUM;
        assert_shaped(fixture, &rule, 1, NULL);
    }
    /* A rule of another table is none of ours. */
    struct mr_column_rule other = rule_for(MR_COLUMN_EXCLUDE, "id", 0);
    other.table.table.text = "u";
    fixture->options.format = MR_FORMAT_DEBEZIUM;
    assert_shaped(fixture, &other, 1, "\"after\":{\"id\":7,");
}

static void test_topic_delimiter(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.topic_delimiter = "_-";
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_string_equal(fixture->records[0].topic->name, "srv_-public_-t");
}

/* Debezium's rule: one for each UTF-16 unit of a name. */
static void test_topic_of_any_letters(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *table, *name;
    } cases[] = {
        {"S 3", "T \xC3\xBC.x", "p.S_3.T__.x"},
        {"s", "\xE6\x97\xA5\xE6\x9C\xAC", "p.s.__"},
        {"s",
         "a\xF0\x9F\x90\x8E"
         "b",
         "p.s.a__b"},
        {"s", "\xC3\xBC\xF0\x9F\x90\x8E-_.", "p.s.___-_."},
        {"s", "a\xFF\xC3", "p.s.a__"},
        {"", "%:/?", "p.____"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char *name = mr_topic_name("p", NULL, cases[i].schema, cases[i].table);
        assert_string_equal(name, cases[i].name);
        free(name);
    }
}

static void test_debezium_truncate_has_no_key(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(encode_test_encode(fixture, MR_OP_TRUNCATE, MR_TUPLE_NONE, NULL, NULL), MR_OK);
    assert_null(fixture->records[0].key);
    assert_value(&fixture->records[0],
                 "{\"before\":null,\"after\":null" SOURCE("null") "\"t\"" CLOCK);
}

static void test_unchanged_value(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("kept"), null, null};
    struct mr_datum row[] = {mr_test_datum("1"), unchanged, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_value_has(&fixture->records[0], "\"v\":\"__unavailable\"");
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, row), MR_OK);
    assert_value_has(&fixture->records[0], "\"after\":{\"id\":1,\"v\":\"kept\"");
}

static void test_key_of_several_columns(void **state)
{
    struct fixture *fixture = *state;
    fixture->key_columns[0] = 1;
    fixture->key_columns[1] = 0;
    fixture->relation.key_count = 2;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"v\":\"x\",\"id\":1}");
}

static void test_keys_that_are_not_utf8_stay_apart(void **state)
{
    struct fixture *fixture = *state;
    fixture->key_columns[0] = 1;
    static const struct {
        const char *text, *key;
    } cases[] = {
        {"\xff", "{\"v\":{\"hex\":\"ff\"}}"},         {"a\xfe", "{\"v\":{\"hex\":\"61fe\"}}"},
        {"\xEF\xBF\xBD", "{\"v\":\"\xEF\xBF\xBD\"}"}, {"", "{\"v\":\"\"}"},
        {"\xC3\xA9", "{\"v\":\"\xC3\xA9\"}"},         {"\xC3", "{\"v\":{\"hex\":\"c3\"}}"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum(cases[i].text), null, null};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        assert_key(&fixture->records[0], cases[i].key);
    }
}

/* What is null in a value would be one key for all. */
static void test_keys_that_are_no_numbers_stay_apart(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.types = MR_TYPES_DEBEZIUM;
    fixture->key_columns[0] = 3;
    struct mr_column *column = &fixture->columns[3];
    column->type = (struct mr_type){.oid = 1700, .modifier = -1, .kind = MR_TYPE_BUILT_IN};
    static const struct {
        int32_t modifier;
        const char *text, *key, *value;
    } cases[] = {
        {-1, "NaN", "{\"text\":\"NaN\"}", "null"},
        {-1, "Infinity", "{\"text\":\"Infinity\"}", "null"},
        {-1, "-Infinity", "{\"text\":\"-Infinity\"}", "null"},
        {-1, "1.50", "{\"scale\":1,\"value\":\"Dw==\"}", "{\"scale\":1,\"value\":\"Dw==\"}"},
        {0xA0006, "NaN", "{\"text\":\"NaN\"}", "null"},
    };
    char want[128];
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        column->type.modifier = cases[i].modifier;
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
        struct mr_datum row[] = {mr_test_datum("1"), null, null, mr_test_datum(cases[i].text)};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        snprintf(want, sizeof(want), "{\"%s\":%s}", column->name, cases[i].key);
        assert_key(&fixture->records[0], want);
        snprintf(want, sizeof(want), "\"%s\":%s}", column->name, cases[i].value);
        assert_value_has(&fixture->records[0], want);
    }
    struct mr_datum before[] = {null, null, null, mr_test_datum("NaN")};
    struct mr_datum after[] = {mr_test_datum("1"), null, null, mr_test_datum("Infinity")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, before, after), MR_OK);
    assert_int_equal(fixture->count, 3); /* the row moves */
    snprintf(want, sizeof(want), "{\"%s\":{\"text\":\"NaN\"}}", column->name);
    assert_key(&fixture->records[0], want);
}

static void test_encode_text_that_is_not_utf8(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a\xff\xC3"), null, null};
    struct mr_datum good[] = {mr_test_datum("1"), mr_test_datum("\xC3\xA9"), null, null};
    static const struct {
        enum mr_invalid_utf8 choice;
        const char *value;
    } cases[] = {{MR_INVALID_REPLACED, "\"v\":\"a\xEF\xBF\xBD\xEF\xBF\xBD\""},
                 {MR_INVALID_BASE64, "\"v\":\"Yf/D\""},
                 {MR_INVALID_REFUSED, NULL}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        fixture->options.invalid_utf8 = cases[i].choice;
        mr_encoder_free(fixture->encoder);
        fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
        mr_status status = encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
        if (cases[i].value == NULL) {
            assert_int_equal(status, MR_ERR_POISON);
            assert_non_null(strstr(fixture->error.text, "column \"v\""));
            assert_non_null(strstr(fixture->error.text, "invalid_utf8"));
        } else {
            assert_int_equal(status, MR_OK);
            const struct mr_record *record = &fixture->records[0];
            assert_non_null(
                memmem(record->value, record->value_len, cases[i].value, strlen(cases[i].value)));
        }
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, good),
                         MR_OK);
        assert_non_null(
            memmem(fixture->records[0].value, fixture->records[0].value_len, "\xC3\xA9", 2));
    }
}

/* In the old row, and in a key, which goes by its own way. */
static void test_old_text_that_is_not_utf8(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("\xff"), null, null};
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("b"), null, null};
    fixture->options.invalid_utf8 = MR_INVALID_REFUSED;
    mr_encoder_free(fixture->encoder);
    fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, row),
                     MR_ERR_POISON);
    fixture->key_columns[0] = 1;
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, old, NULL),
                     MR_ERR_POISON);
}

static void test_no_key(void **state)
{
    struct fixture *fixture = *state;
    fixture->relation.key_count = 0;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_null(fixture->records[0].key);
}

/* A large key that the update left alone stands in the old key, and is known in the new row,
 * too. */
static void test_unchanged_key_is_taken_from_the_old_one(void **state)
{
    struct fixture *fixture = *state;
    fixture->relation.columns[0].in_identity = false;
    fixture->relation.columns[1].in_identity = true;
    fixture->key_columns[0] = 1;
    struct mr_datum key[] = {null, mr_test_datum("large"), null, null};
    struct mr_datum row[] = {mr_test_datum("2"), unchanged, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_key(&fixture->records[0], "{\"v\":\"large\"}");
    assert_value_has(&fixture->records[0], "\"after\":{\"id\":2,\"v\":\"large\",");
    fixture->options.format = MR_FORMAT_FLAT;
    mr_encoder_free(fixture->encoder);
    fixture_open(fixture);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
    assert_key(&fixture->records[0], "large");
}

/* The nulls of a key tuple outside of the identity mean nothing. */
static void test_unchanged_value_is_not_taken_from_a_key(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    struct mr_datum row[] = {mr_test_datum("1"), unchanged, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
    assert_value_has(&fixture->records[0], "\"after\":{\"id\":1,\"v\":\"__unavailable\",");
}

static void encode_test_assert_refused(struct fixture *fixture, const struct mr_datum *row,
                                       const char *what)
{
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_POISON);
    if (strstr(fixture->error.text, what) == NULL) {
        fail_msg("%s", fixture->error.text);
    }
    assert_null(strstr(fixture->error.text, "secret"));
}

/* A server that is not what it seems must not write into the event. */
static void test_what_is_not_quoted_is_a_number(void **state)
{
    struct fixture *fixture = *state;
    static const char *const numbers[] = {"",    "-",  "1,\"secret\":true", "1 ", "0x1", "+1",
                                          "1.0", "1e1"};
    static const char *const floats[] = {"",       "-",   "1.",    ".5",  "1e",  "1e+",      "1,2",
                                         "secret", "nan", "1.5.2", "1\"", "--1", "Infinity,"};
    static const char *const good[] = {"0", "-0", "1.5", "-1e+20", "1.25e-07", "1e10", "NaN"};
    for (size_t i = 0; i < MR_ARRAY_LEN(numbers); i++) {
        struct mr_datum row[] = {mr_test_datum(numbers[i]), null, null, null};
        encode_test_assert_refused(fixture, row,
                                   "column \"id\" of table public.t: the server sent something");
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(floats); i++) {
        struct mr_datum row[] = {mr_test_datum("1"), null, mr_test_datum(floats[i]), null};
        encode_test_assert_refused(fixture, row,
                                   "column \"f\" of table public.t: the server sent something");
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(good); i++) {
        struct mr_datum row[] = {mr_test_datum("-12"), null, mr_test_datum(good[i]), null};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
    }
    struct mr_datum row[] = {mr_test_datum("1"), null, null, mr_test_datum("true")};
    encode_test_assert_refused(fixture, row, "a boolean that is neither t nor f");
}

/* Numeric, uuid, timestamp, address: no value of theirs has anything to escape, but a server that
 * lies has. */
static void test_no_text_gets_out_of_its_quotes(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t types[] = {1700, 2950, 1114, 869};
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++) {
        fixture->columns[1].type_oid = types[i];
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
        struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("\",\"evil\":1,\"x\":\""), null,
                                 null};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        assert_value_has(&fixture->records[0],
                         "\"v\":\"\\\",\\\"evil\\\":1,\\\"x\\\":\\\"\",\"f\":null");
        row[1] =
            (struct mr_datum){.kind = MR_DATUM_TEXT, .data = (const uint8_t *)"1\0\n", .len = 3};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        assert_value_has(&fixture->records[0], "\"v\":\"1\\u0000\\n\"");
    }
}

static void test_key_without_a_value_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {unchanged, mr_test_datum("secret"), null, null};
    encode_test_assert_refused(
        fixture, row, "column \"id\" of table public.t: it is part of the key, and the server");
    row[0] = null;
    encode_test_assert_refused(fixture, row, "has null there");
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    fixture->relation.key_is_chosen = true;
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"id\":null}");
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    row[0] = unchanged;
    encode_test_assert_refused(fixture, row, "it is part of the key");
}

static void test_odd_names_are_escaped(void **state)
{
    struct fixture *fixture = *state;
    fixture->columns[0].name = (char *)"i\"d";
    fixture->relation.table = (char *)"t\n\xC3\xA9";
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"i\\\"d\":1}");
    assert_value_has(&fixture->records[0], "\"table\":\"t\\n\xC3\xA9\"");
    assert_string_equal(fixture->records[0].topic->name, "srv.public.t__");
}

static void test_topic_too_long(void **state)
{
    struct fixture *fixture = *state;
    char table[256];
    memset(table, 'x', sizeof(table) - 1);
    table[255] = '\0';
    fixture->relation.table = table;
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "topic_prefix"));
}

/* Whatever room there is, the outcome is "full" or the same bytes. */
static void assert_every_size(struct fixture *fixture, enum mr_op op, enum mr_tuple_kind kind,
                              const struct mr_datum *before, const struct mr_datum *after)
{
    assert_int_equal(encode_test_encode(fixture, op, kind, before, after), MR_OK);
    const struct mr_record *last = &fixture->records[fixture->count - 1];
    const uint8_t *end = last->value != NULL
                             ? last->value + last->value_len
                             : fixture->records[0].value + fixture->records[0].value_len;
    size_t needed = (size_t)(end - fixture->bytes);
    for (size_t size = 0; size <= needed; size++) {
        uint8_t *room = malloc(size == 0 ? 1 : size);
        mr_status status = encode_test_encode_into(fixture, op, kind, before, after, room, size);
        assert_int_equal(status, size < needed ? MR_FULL : MR_OK);
        if (status == MR_OK) {
            assert_memory_equal(room, fixture->bytes, needed);
        }
        free(room);
    }
}

static void test_every_buffer_size(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("old \"\\\x01 \xC3\xA9\xFF"),
                             mr_test_datum("1"), mr_test_datum("t")};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("new \"\\\x01 \xC3\xA9\xFF"),
                             mr_test_datum("2"), unchanged};
    assert_every_size(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
    assert_every_size(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, row);
    assert_every_size(fixture, MR_OP_DELETE, MR_TUPLE_KEY, old, NULL);
    fixture->options.format = MR_FORMAT_FLAT;
    mr_encoder_free(fixture->encoder);
    fixture_open(fixture);
    assert_every_size(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
    assert_every_size(fixture, MR_OP_DELETE, MR_TUPLE_KEY, old, NULL);
}

static void test_binary_value_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), {.kind = MR_DATUM_BINARY}, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "binary"));
}

static void test_operations_and_routes_filter(void **state)
{
    struct fixture *fixture = *state;
    struct mr_route route = {.schema = "public", .table = "other", .operations = MR_OPERATIONS_ALL};
    fixture->options.routes = &route;
    fixture->options.route_count = 1;
    fixture->options.routes_only = true;
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 0);
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    route.table = "t";
    route.topic = "elsewhere";
    route.operations = 1u << MR_OP_UPDATE;
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 0);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_string_equal(fixture->records[0].topic->name, "elsewhere");
}

static void test_flat_events(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.format = MR_FORMAT_FLAT;
    struct mr_route route = {
        .schema = "public", .table = "t", .key_column = "b", .operations = MR_OPERATIONS_ALL};
    fixture->options.routes = &route;
    fixture->options.route_count = 1;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), mr_test_datum("2.5"),
                             mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "true");
    assert_value(
        &fixture->records[0],
        "{\"op\":\"INSERT\",\"data\":{\"id\":1,\"v\":\"x\",\"f\":2.5,\"b\":true},\"meta\":{"
        "\"source\":\"postgres\",\"resource\":\"public.t\",\"timestamp\":1700000000,\"lsn\":"
        "\"0/1F00\"}}");
    struct mr_datum nulls[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, nulls), MR_OK);
    assert_key(&fixture->records[0], "null");
    assert_value_has(&fixture->records[0], "{\"op\":\"UPDATE\",");
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, row, NULL), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_value_has(&fixture->records[0], "{\"op\":\"DELETE\",\"data\":{\"id\":1,\"v\":\"x\"");
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, nulls, NULL), MR_OK);
    assert_value_has(&fixture->records[0], "\"data\":{\"id\":1},\"meta\"");
    assert_int_equal(encode_test_encode(fixture, MR_OP_TRUNCATE, MR_TUPLE_NONE, NULL, NULL), MR_OK);
    assert_int_equal(fixture->count, 0);
}

/* The identity has `id` alone: what the key of a row was that ends nobody knows, and it is not
 * null. */
static void test_key_that_the_identity_does_not_hold(void **state)
{
    struct fixture *fixture = *state;
    struct mr_route route = {
        .schema = "public", .table = "t", .key_column = "v", .operations = MR_OPERATIONS_ALL};
    fixture->options.routes = &route;
    fixture->options.route_count = 1;
    struct mr_datum old[] = {mr_test_datum("1"), null, null, null};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("x"), null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"v\":\"x\"}");
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, old, NULL),
                     MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "does not hold it"));
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, old, row),
                     MR_ERR_POISON);
    /* It may have changed, and nothing says so. */
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "does not tell the key that the row had"));
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, old, NULL), MR_OK);
    assert_key(&fixture->records[0], "{\"v\":null}");
}

/* Headers of a record as "name=value;…". */
static const char *headers_of(const struct mr_record *record)
{
    static char text[512];
    size_t len = 0;
    text[0] = '\0';
    struct mr_header header;
    for (size_t at = 0; mr_header_next(mr_record_headers(record), &at, &header);) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%.*s=%.*s;", (int)header.name.len,
                                (const char *)header.name.data, (int)header.value.len,
                                (const char *)header.value.data);
    }
    return text;
}

static void open_bare(struct fixture *fixture, enum mr_delete_mode deletes)
{
    static const struct mr_added_field fields[] = {{MR_FIELD_OP, "__op"},
                                                   {MR_FIELD_SOURCE_SEQUENCE, "__sequence"},
                                                   {MR_FIELD_SOURCE_ORIGIN, "__origin"}};
    static const struct mr_added_field headers[] = {{MR_FIELD_OP, "op"},
                                                    {MR_FIELD_SOURCE_DB, "db"},
                                                    {MR_FIELD_SOURCE_ORIGIN, "origin"},
                                                    {MR_FIELD_TS_MS, "made"}};
    fixture->options.format = MR_FORMAT_ROW;
    fixture->options.bare =
        (struct mr_bare_options){.deletes = deletes,
                                 .fields = fields,
                                 .field_count = deletes == MR_DELETE_REWRITE ? 3 : 0,
                                 .headers = headers,
                                 .header_count = deletes == MR_DELETE_REWRITE ? 0 : 4};
    mr_encoder_free(fixture->encoder);
    fixture_open(fixture);
}

static void test_bare_rows(void **state)
{
    struct fixture *fixture = *state;
    open_bare(fixture, MR_DELETE_REWRITE);
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_READ, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"id\":1}");
    assert_value(
        &fixture->records[0],
        "{\"id\":1,\"v\":\"x\",\"f\":null,\"b\":true,\"__deleted\":\"false\",\"__op\":\"r\","
        "\"__sequence\":\"[null,\\\"7936\\\"]\",\"__origin\":null}");
    fixture->transaction.last_commit_lsn = 4096;
    fixture->transaction.origin = MR_SLICE("el\"se");
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, row, NULL), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_value(
        &fixture->records[0],
        "{\"id\":1,\"v\":\"x\",\"f\":null,\"b\":true,\"__deleted\":\"true\",\"__op\":\"d\","
        "\"__sequence\":\"[\\\"4096\\\",\\\"7936\\\"]\",\"__origin\":\"el\\\"se\"}");
    assert_int_equal(encode_test_encode(fixture, MR_OP_TRUNCATE, MR_TUPLE_NONE, NULL, NULL), MR_OK);
    assert_int_equal(fixture->count, 0);
}

/* A delete in each mode, and one that a changed key makes. */
static void test_bare_deletes(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        enum mr_delete_mode mode;
        uint32_t count; /* of a delete */
        const char *value;
    } cases[] = {{MR_DELETE_DROP, 0, NULL},
                 {MR_DELETE_TO_TOMBSTONE, 1, NULL},
                 {MR_DELETE_NULL, 1, "null"},
                 {MR_DELETE_REWRITE_WITH_TOMBSTONE, 2,
                  "{\"id\":1,\"v\":\"x\",\"f\":null,\"b\":null,\"__deleted\":\"true\"}"}};
    struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("x"), null, null};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        open_bare(fixture, cases[i].mode);
        assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, old, NULL),
                         MR_OK);
        assert_int_equal(fixture->count, cases[i].count);
        for (uint32_t k = 0; k < fixture->count; k++) {
            const char *value = k == 0 ? cases[i].value : NULL;
            assert_int_equal(fixture->records[k].value != NULL, value != NULL);
            if (value != NULL) {
                assert_value(&fixture->records[k], value);
            }
            assert_key(&fixture->records[k], "{\"id\":1}");
            assert_string_equal(headers_of(&fixture->records[k]),
                                k == 0 ? "op=d;db=db;made=1700000001234;" : "op=d;");
        }
        assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, row), MR_OK);
        assert_int_equal(fixture->count, cases[i].count + 1);
        const struct mr_record *moved = &fixture->records[fixture->count - 1];
        assert_key(moved, "{\"id\":2}");
        assert_int_equal(moved->part, cases[i].count);
        assert_string_equal(headers_of(moved), "op=c;db=db;made=1700000001234;");
    }
    fixture->relation.key_count = 0; /* a tombstone for no key would be one for nothing */
    open_bare(fixture, MR_DELETE_TO_TOMBSTONE);
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_FULL, old, NULL), MR_OK);
    assert_int_equal(fixture->count, 0);
}

static void test_bare_name_is_taken(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    static const char *const taken[] = {"__op", "__deleted"};
    for (size_t i = 0; i < MR_ARRAY_LEN(taken); i++) {
        fixture->columns[1].name = (char *)(uintptr_t)taken[i];
        open_bare(fixture, MR_DELETE_REWRITE);
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_ERR_CONFIG);
        assert_non_null(strstr(fixture->error.text, taken[i]));
    }
    open_bare(fixture, MR_DELETE_TO_TOMBSTONE);
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
}

static void test_bare_rows_list_what_is_not_known(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.types = MR_TYPES_PLAIN;
    struct mr_datum row[] = {unchanged, unchanged, null, null};
    fixture->relation.key_count = 0;
    open_bare(fixture, MR_DELETE_TO_TOMBSTONE);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_value(&fixture->records[0], "{\"f\":null,\"b\":null,\"__unavailable\":[\"id\",\"v\"]}");
}

static void test_flat_unknown_routing_key(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.format = MR_FORMAT_FLAT;
    struct mr_route route = {
        .schema = "public", .table = "t", .key_column = "absent", .operations = MR_OPERATIONS_ALL};
    fixture->options.routes = &route;
    fixture->options.route_count = 1;
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "absent"));
}

static void test_message_event(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture);
    struct mr_message_event message = {.lsn = 7936,
                                       .position = {.commit_lsn = 7936},
                                       .prefix = MR_SLICE("p\""),
                                       .content = MR_SLICE("foobar")};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_message(fixture->encoder, &message, &buffer, fixture->records,
                                       &fixture->count, &fixture->error),
                     MR_OK);
    assert_string_equal(fixture->records[0].topic->name, "srv.message");
    assert_key(&fixture->records[0], "{\"prefix\":\"p\\\"\"}");
    assert_value_has(&fixture->records[0], "{\"op\":\"m\",\"ts_ms\":1700000001234,\"source\":{");
    assert_value_has(&fixture->records[0], "\"txId\":null,\"lsn\":7936,");
    assert_value_has(&fixture->records[0],
                     "\"message\":{\"prefix\":\"p\\\"\",\"content\":\"Zm9vYmFy\"}}");
}

static void open_cloud(struct fixture *fixture, enum mr_cloud_mode mode)
{
    fixture->options.format = MR_FORMAT_CLOUDEVENTS;
    fixture->options.cloud_mode = mode;
    fixture->options.types = MR_TYPES_DEBEZIUM;
    fixture_open(fixture);
}

/* What a transaction says of itself, as the decoder has it. */
static void encode_test_say(struct fixture *fixture, const char *name, const char *value)
{
    struct mr_buffer out = mr_buffer_init(fixture->said, sizeof(fixture->said));
    mr_header_append(&out, name, mr_slice_of(value));
    assert_false(out.full);
    fixture->transaction.headers =
        (mr_slice){.data = fixture->said, .len = (size_t)(out.at - fixture->said)};
}

static const char *const trace[] = {"traceparent", "00-\"a\"-01"};

static void assert_said_last(const struct mr_record *record)
{
    struct mr_header last = {0};
    size_t at = 0;
    while (mr_header_next(mr_record_headers(record), &at, &last)) {
    }
    assert_true(mr_slice_equal(last.name, mr_slice_of(trace[0])));
    assert_true(mr_slice_equal(last.value, mr_slice_of(trace[1])));
}

/* In each form, each record of a row has it: of a changed key the delete, the tombstone and the
 * create. */
static void test_context_in_each_form(void **state)
{
    struct fixture *fixture = *state;
    static const enum mr_format formats[] = {MR_FORMAT_DEBEZIUM, MR_FORMAT_FLAT, MR_FORMAT_ROW,
                                             MR_FORMAT_CLOUDEVENTS};
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("a"), null, null};
    fixture->options.bare.deletes = MR_DELETE_REWRITE_WITH_TOMBSTONE;
    fixture->options.types = MR_TYPES_DEBEZIUM;
    for (size_t i = 0; i < MR_ARRAY_LEN(formats); i++) {
        fixture->options.format = formats[i];
        fixture_open(fixture);
        encode_test_say(fixture, trace[0], trace[1]);
        assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
        assert_int_equal(fixture->count, formats[i] == MR_FORMAT_FLAT ? 1 : 3);
        for (uint32_t k = 0; k < fixture->count; k++) {
            assert_said_last(&fixture->records[k]);
        }
        fixture->transaction.headers = (mr_slice){0};
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        assert_int_equal(fixture->records[0].has_headers, formats[i] == MR_FORMAT_CLOUDEVENTS);
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

/* A CloudEvent has it as an attribute, too; of a copied row it is no context. */
static void test_context_of_cloud_events(void **state)
{
    struct fixture *fixture = *state;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    for (unsigned mode = MR_CLOUD_STRUCTURED; mode <= MR_CLOUD_BINARY; mode++) {
        open_cloud(fixture, (enum mr_cloud_mode)mode);
        encode_test_say(fixture, trace[0], trace[1]);
        for (unsigned copied = 0; copied < 2; copied++) {
            struct mr_change change = encode_test_change_of(
                fixture, copied ? MR_OP_READ : MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
            change.copy_mark = copied ? MR_COPY_INCREMENTAL : MR_COPY_NONE;
            struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
            assert_int_equal(mr_encode_change(fixture->encoder, &change, &buffer, fixture->records,
                                              &fixture->count, &fixture->error),
                             MR_OK);
            const struct mr_record *record = &fixture->records[0];
            assert_said_last(record);
            bool has_attribute = false;
            struct mr_header header;
            for (size_t at = 0; mr_header_next(mr_record_headers(record), &at, &header);) {
                has_attribute |= mr_slice_equal(header.name, MR_SLICE("ce_traceparent"));
            }
            if (mode == MR_CLOUD_STRUCTURED) {
                char *value = strndup((const char *)record->value, record->value_len);
                has_attribute =
                    strstr(value, ",\"traceparent\":\"00-\\\"a\\\"-01\",\"data\":{") != NULL;
                free(value);
            }
            assert_int_equal(has_attribute, !copied);
        }
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

/* Messages of the transaction have it; that which says it is not passed on, whatever prefixes
 * are. */
static void test_context_of_messages(void **state)
{
    struct fixture *fixture = *state;
    static const enum mr_format formats[] = {MR_FORMAT_DEBEZIUM, MR_FORMAT_CLOUDEVENTS};
    for (size_t i = 0; i < MR_ARRAY_LEN(formats); i++) {
        fixture->options.format = formats[i];
        fixture_open(fixture);
        encode_test_say(fixture, trace[0], trace[1]);
        struct mr_message_event message = {.lsn = 7936,
                                           .position = {.commit_lsn = 7936, .ordinal = 1},
                                           .transaction = &fixture->transaction,
                                           .prefix = MR_SLICE("p"),
                                           .content = MR_SLICE("foobar")};
        for (int again = 0; again < 2; again++) {
            message.is_context = again == 1;
            struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
            assert_int_equal(mr_encode_message(fixture->encoder, &message, &buffer,
                                               fixture->records, &fixture->count, &fixture->error),
                             MR_OK);
            assert_int_equal(fixture->count, 1 - again);
        }
        assert_said_last(&fixture->records[0]);
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

/* A row that fits without it is not the worse for it, whatever the policy is. */
static void test_context_makes_nothing_too_large(void **state)
{
    struct fixture *fixture = *state;
    static const enum mr_oversize policies[] = {MR_OVERSIZE_FAIL, MR_OVERSIZE_PLACEHOLDER,
                                                MR_OVERSIZE_DEAD_LETTER};
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, null};
    fixture->options.dead_letter_topic = "letters";
    for (size_t i = 0; i < MR_ARRAY_LEN(policies); i++) {
        _Atomic uint64_t counts[MR_OVERSIZE_COUNT] = {0};
        fixture->options.oversize = policies[i];
        fixture->options.record_bytes_max = 0;
        fixture_open(fixture);
        encode_test_say(fixture, trace[0], trace[1]);
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_OK);
        size_t with = mr_record_bytes(&fixture->records[0]);
        struct mr_change change =
            encode_test_change_of(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
        const struct mr_item item = {.change = &change};
        for (size_t limit = with; limit >= with - 1; limit--) {
            struct mr_oversizer oversizer;
            mr_oversizer_init(&oversizer, fixture->encoder, 1 << 20, counts);
            oversizer.limit = limit;
            mr_oversizer_next(&oversizer);
            struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
            assert_int_equal(mr_oversizer_encode(&oversizer, &item, &buffer, fixture->records,
                                                 &fixture->count, &fixture->error),
                             MR_OK);
            mr_oversizer_kept(&oversizer, &item);
            assert_int_equal(fixture->count, 1);
            assert_int_equal(fixture->records[0].kind, MR_RECORD_EVENT);
            assert_int_equal(fixture->records[0].has_headers, limit == with);
            assert_int_equal(counts[MR_OVERSIZE_BARE], limit < with);
        }
        /* Nor does it where no block holds both. */
        struct mr_oversizer oversizer;
        mr_oversizer_init(&oversizer, fixture->encoder, 1 << 20, counts);
        mr_oversizer_next(&oversizer);
        struct mr_buffer buffer = mr_buffer_init(fixture->bytes, with + 4);
        assert_int_equal(mr_oversizer_encode(&oversizer, &item, &buffer, fixture->records,
                                             &fixture->count, &fixture->error),
                         MR_FULL);
        assert_true(mr_oversizer_no_block(&oversizer, &item));
        buffer = mr_buffer_init(fixture->bytes, with + 4);
        assert_int_equal(mr_oversizer_encode(&oversizer, &item, &buffer, fixture->records,
                                             &fixture->count, &fixture->error),
                         MR_OK);
        assert_false(fixture->records[0].has_headers);
        assert_int_equal(mr_oversizer_no_block(&oversizer, &item), policies[i] != MR_OVERSIZE_FAIL);
        assert_int_equal(counts[policies[i]], 0);
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

static void test_many_relations_come_and_go(void **state)
{
    enum { MANY = 500 };
    struct fixture *fixture = *state;
    struct mr_relation *relations = calloc(MANY, sizeof(*relations));
    struct mr_datum row[] = {mr_test_datum("1"), null, null, null};
    for (int i = 0; i < MANY; i++) {
        relations[i] = fixture->relation;
        struct mr_change change = {.op = MR_OP_INSERT,
                                   .transaction = &fixture->transaction,
                                   .relation = &relations[i],
                                   .after = {.kind = MR_TUPLE_NEW, .values = row}};
        if (fixture->encoder == NULL) {
            fixture_open(fixture);
        }
        struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
        assert_int_equal(mr_encode_change(fixture->encoder, &change, &buffer, fixture->records,
                                          &fixture->count, &fixture->error),
                         MR_OK);
        if (i % 3 == 0) {
            mr_encoder_forget(fixture->encoder, &relations[i / 2]);
        }
    }
    for (int i = 0; i < MANY; i++) {
        mr_encoder_forget(fixture->encoder, &relations[i]);
    }
    free(relations);
}

static const char *encode_test_value_of(const struct fixture *fixture, uint32_t i)
{
    static char value[2][4096];
    memcpy(value[i % 2], fixture->records[i].value, fixture->records[i].value_len);
    value[i % 2][fixture->records[i].value_len] = '\0';
    return value[i % 2];
}

static void encode_test_assert_header(const struct mr_record *record, size_t *at, const char *name,
                                      const char *value)
{
    struct mr_header header = {0};
    assert_true(mr_header_next(mr_record_headers(record), at, &header));
    assert_true(mr_slice_equal(header.name, mr_slice_of(name)));
    assert_int_equal(header.value.len, strlen(value));
    assert_memory_equal(header.value.data, value, strlen(value));
}

/* Both headers of a record that stands for a larger one; of a letter there is one. */
static void assert_note(const struct mr_record *record, const char *bytes, const char *columns)
{
    size_t at = 0;
    encode_test_assert_header(record, &at, MR_HEADER_OVERSIZE, bytes);
    if (columns[0] != '\0') {
        encode_test_assert_header(record, &at, MR_HEADER_OVERSIZE_COLUMNS, columns);
    }
    assert_int_equal(at, mr_headers_bytes(mr_record_headers(record)));
}

static const char *long_text(void)
{
    static char text[2001];
    memset(text, 'x', sizeof(text) - 1);
    return text;
}

static void test_placeholder_leaves_out_what_is_large(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum(long_text()),
                                   mr_test_datum("2.5"), mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    uint32_t key_len = fixture->records[0].key_len;
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row, 1200), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(fixture->records[0].key_len, key_len);
    assert_non_null(strstr(encode_test_value_of(fixture, 0),
                           "\"after\":{\"id\":1,\"v\":\"__unavailable\",\"f\":2.5,\"b\":true}"));
    assert_note(&fixture->records[0], "9999", "[\"v\"]");
}

/* The value that an update did not touch comes from the old row, so it is cut there too; keys never
 * are. */
static void test_placeholder_cuts_the_old_row_too(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    const struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum(long_text()),
                                   mr_test_datum("1"), mr_test_datum("f")};
    const struct mr_datum new[] = {mr_test_datum("2"), unchanged, mr_test_datum("2"),
                                   mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, new), MR_OK);
    assert_int_equal(fixture->count, 3);
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, new, 1200), MR_OK);
    assert_int_equal(fixture->count, 3);
    assert_note(&fixture->records[0], "9999", "[\"v\"]");
    assert_null(fixture->records[1].value);
    assert_null(mr_record_headers(&fixture->records[1]));
    assert_non_null(strstr(encode_test_value_of(fixture, 0), "\"v\":\"__unavailable\""));
    assert_non_null(strstr(encode_test_value_of(fixture, 2), "\"v\":\"__unavailable\""));
    assert_null(strstr(encode_test_value_of(fixture, 2), "xxx"));
}

/* Where values are Debezium's, the records of a changed key tell of each other, those without their
 * large values too. */
static void test_placeholder_keeps_headers(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    fixture->options.types = MR_TYPES_DEBEZIUM;
    mr_encoder_free(fixture->encoder);
    fixture_open(fixture);
    const struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum(long_text()),
                                   mr_test_datum("1"), mr_test_datum("f")};
    const struct mr_datum new[] = {mr_test_datum("2"), unchanged, mr_test_datum("2"),
                                   mr_test_datum("t")};
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, new, 1200), MR_OK);
    assert_int_equal(fixture->count, 3);
    const char *const others[] = {"{\"id\":2}", "{\"id\":2}", "{\"id\":1}"};
    for (uint32_t i = 0; i < 3; i++) {
        size_t at = 0;
        const struct mr_record *record = &fixture->records[i];
        encode_test_assert_header(record, &at, i < 2 ? MR_HEADER_NEW_KEY : MR_HEADER_OLD_KEY,
                                  others[i]);
        if (i != 1) {
            encode_test_assert_header(record, &at, MR_HEADER_OVERSIZE, "9999");
            encode_test_assert_header(record, &at, MR_HEADER_OVERSIZE_COLUMNS, "[\"v\"]");
        }
        assert_int_equal(at, mr_headers_bytes(mr_record_headers(record)));
        assert_int_equal(mr_record_bytes(record), record->key_len + record->value_len + at);
    }
}

/* As docs/formats.md shows it. */
static void test_cloud_structured(void **state)
{
    struct fixture *fixture = *state;
    open_cloud(fixture, MR_CLOUD_STRUCTURED);
    fixture->transaction.last_commit_lsn = 0x1000;
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_key(&fixture->records[0], "{\"id\":1}");
    assert_value(
        &fixture->records[0],
        "{\"id\":\"0000000000002000-0000000003-0\","
        "\"source\":\"/debezium/postgresql/srv\",\"specversion\":\"1.0\","
        "\"type\":\"io.debezium.connector.postgresql.DataChangeEvent\","
        "\"time\":\"2023-11-14T22:13:20.000Z\",\"datacontenttype\":\"application/json\","
        "\"iodebeziumop\":\"c\",\"iodebeziumversion\":\"" MR_VERSION
        "\",\"iodebeziumconnector\":\"postgresql\",\"iodebeziumname\":\"srv\","
        "\"iodebeziumtsms\":\"1700000000000\",\"iodebeziumsnapshot\":\"false\","
        "\"iodebeziumdb\":\"db\",\"iodebeziumsequence\":\"[\\\"4096\\\",\\\"7936\\\"]\","
        "\"iodebeziumtsus\":\"1700000000000001\",\"iodebeziumtsns\":\"1700000000000001000\","
        "\"iodebeziumschema\":\"public\",\"iodebeziumtable\":\"t\",\"iodebeziumtxId\":\"555\","
        "\"iodebeziumlsn\":\"7936\",\"iodebeziumxmin\":null,\"iodebeziumorigin\":null,"
        "\"iodebeziumoriginlsn\":null,\"iodebeziumtxid\":null,\"iodebeziumtxtotalorder\":null,"
        "\"iodebeziumtxdatacollectionorder\":null,"
        "\"data\":{\"before\":null,\"after\":{\"id\":1,\"v\":\"a\",\"f\":null,\"b\":true}}}");
    size_t at = 0;
    encode_test_assert_header(&fixture->records[0], &at, "content-type",
                              "application/cloudevents+json; charset=UTF-8");
    assert_int_equal(at, mr_headers_bytes(mr_record_headers(&fixture->records[0])));
}

/* The records of a changed key have ids of their own, and a copied row's follows its position. */
static void test_cloud_positions(void **state)
{
    static const enum mr_cloud_mode modes[] = {MR_CLOUD_STRUCTURED, MR_CLOUD_BINARY};
    struct fixture *fixture = *state;
    struct mr_datum key[] = {mr_test_datum("1"), null, null, null};
    struct mr_datum row[] = {mr_test_datum("2"), mr_test_datum("{\"id\":\""), null, null};
    for (size_t i = 0; i < MR_ARRAY_LEN(modes); i++) {
        open_cloud(fixture, modes[i]);
        assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, key, row), MR_OK);
        assert_int_equal(fixture->count, 3);
        assert_null(fixture->records[1].value);
        size_t at = 0;
        encode_test_assert_header(&fixture->records[1], &at, MR_HEADER_NEW_KEY, "{\"id\":2}");
        assert_int_equal(at, mr_headers_bytes(mr_record_headers(&fixture->records[1])));
        struct mr_record *last = &fixture->records[2];
        const char *ids[] = {"0000000000002000-0000000003-2", "00000000000ABCDE-0000000012-2"};
        for (size_t k = 0; k < MR_ARRAY_LEN(ids); k++) {
            char want[64];
            snprintf(want, sizeof(want), "{\"id\":\"%s\",\"source\"", ids[k]);
            if (modes[i] == MR_CLOUD_STRUCTURED) {
                assert_memory_equal(last->value, want, strlen(want));
            } else {
                at = 0;
                encode_test_assert_header(last, &at, "ce_id", ids[k]);
            }
            last->position = (struct mr_position){.commit_lsn = 0xABCDE, .ordinal = 0x12};
            mr_record_set_position(last);
        }
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
    }
}

static void test_cloud_binary(void **state)
{
    struct fixture *fixture = *state;
    open_cloud(fixture, MR_CLOUD_BINARY);
    fixture->transaction.commit_time_us = -1; /* the day before 1970 */
    struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("a"), null, mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    const struct mr_record *record = &fixture->records[0];
    assert_value(record,
                 "{\"before\":null,\"after\":{\"id\":1,\"v\":\"a\",\"f\":null,\"b\":true}}");
    static const char *const want[][2] = {
        {"ce_id", "0000000000002000-0000000003-0"},
        {"ce_source", "/debezium/postgresql/srv"},
        {"ce_specversion", "1.0"},
        {"ce_type", "io.debezium.connector.postgresql.DataChangeEvent"},
        {"ce_time", "1969-12-31T23:59:59.999Z"},
        {"ce_iodebeziumop", "c"},
        {"ce_iodebeziumversion", MR_VERSION},
        {"ce_iodebeziumconnector", "postgresql"},
        {"ce_iodebeziumname", "srv"},
        {"ce_iodebeziumtsms", "-1"},
        {"ce_iodebeziumsnapshot", "false"},
        {"ce_iodebeziumdb", "db"},
        {"ce_iodebeziumsequence", "[null,\"7936\"]"},
        {"ce_iodebeziumtsus", "-1"},
        {"ce_iodebeziumtsns", "-1000"},
        {"ce_iodebeziumschema", "public"},
        {"ce_iodebeziumtable", "t"},
        {"ce_iodebeziumtxid", "555"},
        {"ce_iodebeziumlsn", "7936"},
        {"content-type", "application/json"},
    };
    size_t at = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(want); i++) {
        encode_test_assert_header(record, &at, want[i][0], want[i][1]);
    }
    assert_int_equal(at, mr_headers_bytes(mr_record_headers(record)));
}

static void test_cloud_message(void **state)
{
    struct fixture *fixture = *state;
    open_cloud(fixture, MR_CLOUD_STRUCTURED);
    const struct mr_message_event message = {
        .lsn = 0x1F00, .prefix = MR_SLICE("p"), .content = MR_SLICE("hi")};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_message(fixture->encoder, &message, &buffer, fixture->records,
                                       &fixture->count, &fixture->error),
                     MR_OK);
    assert_key(&fixture->records[0], "{\"prefix\":\"p\"}");
    assert_value_has(&fixture->records[0],
                     "{\"id\":\"0000000000000000-0000000000-0\","
                     "\"source\":\"/debezium/postgresql/srv\",\"specversion\":\"1.0\","
                     "\"type\":\"io.debezium.connector.postgresql.DataChangeEvent\","
                     "\"time\":\"2023-11-14T22:13:21.234Z\","
                     "\"datacontenttype\":\"application/json\",\"iodebeziumop\":\"m\",");
    assert_value_has(&fixture->records[0],
                     ",\"data\":{\"message\":{\"prefix\":\"p\",\"content\":\"aGk=\"}}}");
}

/* What a placeholder is for has the event's headers, and a letter is JSON with none but its own. */
static void test_cloud_oversize(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum(long_text()),
                                   mr_test_datum("2.5"), mr_test_datum("t")};
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    open_cloud(fixture, MR_CLOUD_BINARY);
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row, 1200), MR_OK);
    size_t at = 0;
    encode_test_assert_header(&fixture->records[0], &at, "ce_id", "0000000000002000-0000000003-0");
    assert_value_has(&fixture->records[0], "\"v\":\"__unavailable\"");
    struct mr_header last = {0};
    while (mr_header_next(mr_record_headers(&fixture->records[0]), &at, &last)) {
    }
    assert_true(mr_slice_equal(last.name, mr_slice_of(MR_HEADER_OVERSIZE_COLUMNS)));
    mr_encoder_free(fixture->encoder);
    fixture->options.oversize = MR_OVERSIZE_DEAD_LETTER;
    fixture->options.dead_letter_topic = "letters";
    fixture_open(fixture);
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row, 1200), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(fixture->records[0].kind, MR_RECORD_LETTER);
    assert_value_has(&fixture->records[0], "{\"topic\":\"srv.public.t\",\"key\":{\"id\":1}");
    assert_note(&fixture->records[0], "9999", "");
}

static void test_dead_letter_is_all_there_is_of_a_change(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_DEAD_LETTER;
    fixture->options.dead_letter_topic = "srv.dead-letter";
    const struct mr_datum old[] = {mr_test_datum("1"), mr_test_datum("a"), mr_test_datum("1"),
                                   mr_test_datum("f")};
    const struct mr_datum new[] = {mr_test_datum("2"), mr_test_datum(long_text()),
                                   mr_test_datum("2"), mr_test_datum("t")};
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, new), MR_OK);
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_UPDATE, MR_TUPLE_FULL, old, new, 1200), MR_OK);
    assert_int_equal(fixture->count, 1);
    const struct mr_record *letter = &fixture->records[0];
    assert_string_equal(letter->topic->name, "srv.dead-letter");
    assert_memory_equal(letter->key, "{\"id\":2}", letter->key_len);
    assert_string_equal(
        encode_test_value_of(fixture, 0),
        "{\"topic\":\"srv.public.t\",\"key\":{\"id\":2},"
        "\"position\":\"0000000000002000-0000000003-0\",\"commit_lsn\":\"0/2000\",\"lsn\":\"0/"
        "1F00\","
        "\"xid\":555,\"ts_us\":1700000000000001,\"schema\":\"public\",\"table\":\"t\","
        "\"operation\":\"update\",\"reason\":\"message_max\",\"bytes\":9999,\"limit\":1200}");
    assert_note(letter, "9999", "");
}

static void test_key_that_is_too_large_is_poison(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    fixture->columns[0].type_oid = 25;
    const struct mr_datum row[] = {mr_test_datum(long_text()), mr_test_datum("a"), null, null};
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(
        encode_test_encode_placed(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row, 1200),
        MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "public.t"));
    assert_null(strstr(fixture->error.text, "xxx"));
}

/* How many records a message with that prefix and content becomes. */
static uint32_t message_records(struct fixture *fixture, mr_slice prefix, mr_slice content)
{
    struct mr_message_event message = {
        .lsn = 7936, .position = {.commit_lsn = 7936}, .prefix = prefix, .content = content};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_message(fixture->encoder, &message, &buffer, fixture->records,
                                       &fixture->count, &fixture->error),
                     MR_OK);
    return fixture->count;
}

static void test_messages_by_prefix_and_size(void **state)
{
    struct fixture *fixture = *state;
    static const char *const prefixes[] = {"outbox", "a"};
    fixture->options.message_prefixes = prefixes;
    fixture->options.message_prefix_count = 2;
    fixture->options.message_bytes_max = 16;
    fixture_open(fixture);
    assert_int_equal(message_records(fixture, MR_SLICE("a"), MR_SLICE("123456789012345")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("a"), MR_SLICE("1234567890123456")), 0);
    assert_int_equal(message_records(fixture, MR_SLICE("outbox"), MR_SLICE("")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("outbo"), MR_SLICE("")), 0);
    assert_int_equal(message_records(fixture, MR_SLICE("outbox2"), MR_SLICE("")), 0);
    assert_int_equal(message_records(fixture, MR_SLICE(""), MR_SLICE("x")), 0);
}

static void exclude_messages(struct fixture *fixture, uint32_t count)
{
    static const char *const prefixes[] = {"!b", "!c", "!(?i)Any", "*"};
    fixture->options.message_prefixes = prefixes;
    fixture->options.message_prefix_count = count;
    fixture_open(fixture);
}

static void test_messages_excluded_from_all(void **state)
{
    struct fixture *fixture = *state;
    exclude_messages(fixture, 3);
    assert_int_equal(message_records(fixture, MR_SLICE("a"), MR_SLICE("")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("c"), MR_SLICE("")), 0);
}

static void test_messages_excluded(void **state)
{
    struct fixture *fixture = *state;
    exclude_messages(fixture, 4);
    assert_int_equal(message_records(fixture, MR_SLICE("a"), MR_SLICE("")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("c"), MR_SLICE("")), 0);
    assert_int_equal(message_records(fixture, MR_SLICE("cc"), MR_SLICE("")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("C"), MR_SLICE("")), 1);
    assert_int_equal(message_records(fixture, MR_SLICE("aNY"), MR_SLICE("")), 0);
    assert_int_equal(message_records(fixture, MR_SLICE("aNY2"), MR_SLICE("")), 1);
}

static void test_messages_are_off_by_default(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.message_prefix_count = 0;
    fixture_open(fixture);
    assert_int_equal(message_records(fixture, MR_SLICE("a"), MR_SLICE("x")), 0);
}

static void test_message_with_a_long_prefix(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t prefix[3 << 20];
    memset(prefix, 'p', sizeof(prefix));
    fixture_open(fixture);
    assert_int_equal(
        message_records(fixture, (mr_slice){.data = prefix, .len = sizeof(prefix)}, MR_SLICE("x")),
        0);
    assert_int_equal(
        message_records(fixture, (mr_slice){.data = prefix, .len = 255}, MR_SLICE("x")), 1);
}

static void test_large_message_keeps_its_prefix(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    fixture_open(fixture);
    struct mr_message_event message = {
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x1F00},
        .prefix = MR_SLICE("p"),
        .content = {.data = (const uint8_t *)long_text(), .len = strlen(long_text())}};
    struct mr_item item = {.kind = MR_ITEM_MESSAGE, .message = &message};
    struct mr_oversize_case oversize = {.bytes = 3000, .limit = 1200, .reason = "message_max"};
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    assert_int_equal(mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer,
                                        fixture->records, &fixture->count, &fixture->error),
                     MR_OK);
    assert_non_null(strstr(encode_test_value_of(fixture, 0),
                           "\"message\":{\"prefix\":\"p\",\"content\":\"\"}"));
    assert_note(&fixture->records[0], "3000", "[\"content\"]");
}

/* Tables that share a topic, and what tells them apart. */
static void test_routing(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    struct mr_routing routing = {.sharing = MR_SHARING_REFUSED, .key_field = "from\""};
    char reason[64];
    assert_true(
        mr_rewrite_init(&routing.topic, "srv[.](.*)[.].*", "all.$1", reason, sizeof(reason)));
    fixture->options.routing = &routing;
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_string_equal(fixture->records[0].topic->name, "all.public");
    assert_key(&fixture->records[0], "{\"id\":1}");
    struct mr_relation first = fixture->relation;
    fixture->relation.oid = 2;
    fixture->relation.table = (char *)"u";
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                     MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "routing.sharing"));
    routing.sharing = MR_SHARING_ALLOWED;
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_string_equal(fixture->records[0].topic->name, "all.public");
    assert_key(&fixture->records[0], "{\"id\":1}");
    routing.sharing = MR_SHARING_IN_KEY;
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_key(&fixture->records[0], "{\"id\":1,\"from\\\"\":\"srv.public.u\"}");
    assert_true(mr_rewrite_init(&routing.key, ".*[.](.)", "t $1", reason, sizeof(reason)));
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, row, NULL), MR_OK);
    assert_key(&fixture->records[0], "{\"id\":1,\"from\\\"\":\"t u\"}");
    assert_key(&fixture->records[1], "{\"id\":1,\"from\\\"\":\"t u\"}");
    fixture->relation = first;
    mr_rewrite_done(&routing.key);
    mr_rewrite_done(&routing.topic);
}

static void test_routing_makes_no_topic(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    static const char *const wrong[] = {
        "a b", "$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1", ".", "\xC3\xA9"};
    for (size_t i = 0; i < MR_ARRAY_LEN(wrong); i++) {
        struct mr_routing routing = {0};
        char reason[64];
        assert_true(mr_rewrite_init(&routing.topic, "(.*)", wrong[i], reason, sizeof(reason)));
        fixture->options.routing = &routing;
        assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row),
                         MR_ERR_CONFIG);
        mr_encoder_free(fixture->encoder);
        fixture->encoder = NULL;
        mr_rewrite_done(&routing.topic);
    }
    fixture->options.routing = NULL;
    fixture_open(fixture);
}

/* The records of one stream of several: as they would be if it were the only one, but for what
 * comes once a change. */
static void assert_stream(const struct fixture *fixture, uint32_t from, uint32_t count,
                          const char *topic)
{
    assert_true(from + count <= fixture->count);
    for (uint32_t i = from; i < from + count; i++) {
        assert_string_equal(fixture->records[i].topic->name, topic);
        assert_int_equal(fixture->records[i].part, i - from);
    }
}

static bool has_text(const struct mr_record *record, const char *text)
{
    return memmem(record->value, record->value_len, text, strlen(text)) != NULL;
}

static const struct mr_route three_streams[] = {
    {.schema = "public", .table = "t", .topic = "all", .operations = MR_OPERATIONS_ALL},
    {.schema = "public", .table = "other", .topic = "other", .operations = MR_OPERATIONS_ALL},
    {.schema = "public", .table = "t", .topic = "new", .operations = 1u << MR_OP_INSERT},
    {.schema = "public", .table = "t", .topic = "few", .operations = MR_OPERATIONS_ALL},
};

static struct mr_column_rule few_rule(enum mr_column_action action)
{
    return (struct mr_column_rule){.action = action,
                                   .table = {.schema = {.text = "public"}, .table = {.text = "t"}},
                                   .column = {.text = "v"},
                                   .topic = "few",
                                   .length = 2};
}

static void test_streams(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("secret"), null, null};
    const struct mr_datum moved[] = {mr_test_datum("2"), mr_test_datum("secret"), null, null};
    const struct mr_column_rule rule = few_rule(MR_COLUMN_MASK);
    fixture->options.routes = three_streams;
    fixture->options.route_count = MR_ARRAY_LEN(three_streams);
    fixture->options.routes_only = true;
    fixture->options.column_rules.items = &rule;
    fixture->options.column_rules.count = 1;
    fixture->options.schema_topic = "forms";
    fixture_open(fixture);
    assert_int_equal(encode_test_encode(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 4);
    assert_string_equal(fixture->records[0].topic->name, "forms");
    assert_stream(fixture, 1, 1, "all");
    assert_stream(fixture, 2, 1, "new");
    assert_stream(fixture, 3, 1, "few");
    assert_true(has_text(&fixture->records[1], "secret"));
    assert_false(has_text(&fixture->records[3], "secret"));
    assert_true(has_text(&fixture->records[3], "\"v\":\"**\""));
    fixture->options.schema_topic = NULL;
    mr_encoder_free(fixture->encoder);
    fixture_open(fixture);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, row, moved), MR_OK);
    assert_int_equal(fixture->count, 7);
    assert_stream(fixture, 0, 3, "all");
    assert_stream(fixture, 3, 1, "new"); /* the create alone */
    assert_stream(fixture, 4, 3, "few");
    assert_int_equal(encode_test_encode(fixture, MR_OP_DELETE, MR_TUPLE_KEY, row, NULL), MR_OK);
    assert_int_equal(fixture->count, 4);
    const struct mr_topic *topic = NULL;
    assert_int_equal(
        mr_encoder_topic(fixture->encoder, &fixture->relation, MR_OP_READ, &topic, &fixture->error),
        MR_OK);
    assert_string_equal(topic->name, "all");
    assert_every_size(fixture, MR_OP_UPDATE, MR_TUPLE_KEY, row, moved);
}

/* The form of a table comes once, before the first stream that has something of the change. */
static void test_streams_without_the_first(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum("x"), null, null};
    static const struct mr_route routes[] = {
        {.schema = "public", .table = "t", .topic = "new", .operations = 1u << MR_OP_INSERT},
        {.schema = "public", .table = "t", .topic = "all", .operations = MR_OPERATIONS_ALL}};
    fixture->options.routes = routes;
    fixture->options.route_count = MR_ARRAY_LEN(routes);
    fixture->options.routes_only = true;
    fixture->options.schema_topic = "forms";
    fixture_open(fixture);
    assert_int_equal(encode_test_encode(fixture, MR_OP_UPDATE, MR_TUPLE_NONE, NULL, row), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_string_equal(fixture->records[0].topic->name, "forms");
    assert_stream(fixture, 1, 1, "all");
    const struct mr_topic *topic = NULL;
    assert_int_equal(
        mr_encoder_topic(fixture->encoder, &fixture->relation, MR_OP_READ, &topic, &fixture->error),
        MR_OK);
    assert_string_equal(topic->name, "all");
    mr_encoder_forget(fixture->encoder, &fixture->relation);
}

/* Each stream's event is within the limit, but no block holds all of them: shared, the limit is
 * that of all together. */
static void test_streams_share_a_block(void **state)
{
    struct fixture *fixture = *state;
    char large[900];
    memset(large, 'x', sizeof(large));
    large[sizeof(large) - 1] = '\0';
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum(large), null, null};
    fixture->options.routes = three_streams;
    fixture->options.route_count = MR_ARRAY_LEN(three_streams);
    fixture->options.oversize = MR_OVERSIZE_PLACEHOLDER;
    fixture_open(fixture);
    struct mr_change change =
        encode_test_change_of(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row);
    struct mr_item item = {.change = &change};
    for (int shared = 0; shared < 2; shared++) {
        struct mr_oversize_case oversize = {
            .bytes = 900, .limit = 2400, .is_shared = shared, .reason = "change_max"};
        struct mr_buffer buffer = mr_buffer_init(fixture->bytes, 4000);
        assert_int_equal(mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer,
                                            fixture->records, &fixture->count, &fixture->error),
                         shared ? MR_OK : MR_FULL);
    }
    assert_int_equal(fixture->count, 3);
    assert_note(&fixture->records[2], "900", "[\"v\"]");
}

/* A stream without the large column has its event as it is. */
static void test_streams_oversize(void **state)
{
    struct fixture *fixture = *state;
    char large[3000];
    memset(large, 'x', sizeof(large));
    large[sizeof(large) - 1] = '\0';
    const struct mr_datum row[] = {mr_test_datum("1"), mr_test_datum(large), mr_test_datum("1.5"),
                                   null};
    const struct mr_column_rule rule = few_rule(MR_COLUMN_EXCLUDE);
    fixture->options.routes = three_streams;
    fixture->options.route_count = MR_ARRAY_LEN(three_streams);
    fixture->options.column_rules.items = &rule;
    fixture->options.column_rules.count = 1;
    fixture->options.dead_letter_topic = "dead";
    for (int letters = 0; letters < 2; letters++) {
        fixture->options.oversize = letters ? MR_OVERSIZE_DEAD_LETTER : MR_OVERSIZE_PLACEHOLDER;
        mr_encoder_free(fixture->encoder);
        fixture_open(fixture);
        assert_int_equal(
            encode_test_encode_placed(fixture, MR_OP_INSERT, MR_TUPLE_NONE, NULL, row, 1500),
            MR_OK);
        assert_int_equal(fixture->count, 3);
        assert_stream(fixture, 2, 1, "few");
        assert_false(fixture->records[2].has_headers);
        assert_true(has_text(&fixture->records[2], "\"f\":1.5"));
        if (!letters) {
            assert_stream(fixture, 0, 1, "all");
            assert_stream(fixture, 1, 1, "new");
            assert_note(&fixture->records[0], "9999", "[\"v\"]");
            assert_note(&fixture->records[1], "9999", "[\"v\"]");
            continue;
        }
        for (uint32_t i = 0; i < 2; i++) {
            assert_string_equal(fixture->records[i].topic->name, "dead");
            assert_int_equal(fixture->records[i].part, i);
            assert_true(
                has_text(&fixture->records[i], i == 0 ? "\"topic\":\"all\"" : "\"topic\":\"new\""));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_routing, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_streams, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_streams_without_the_first, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_heartbeat_is_never_oversize, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_streams_oversize, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_streams_share_a_block, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_routing_makes_no_topic, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_insert, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_sequence_and_origin, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_update_and_delete, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_delete_without_tombstone, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_key_change, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_key_change_skipped, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged_rows_are_skipped, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_topic_delimiter, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test(test_topic_of_any_letters),
        cmocka_unit_test_setup_teardown(test_columns_shaped, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_schema_event, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_transaction, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_copies_and_messages, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_transaction_tables_in_order, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_columns_of_a_partition, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_columns_of_the_key_stay, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_messages_excluded, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_messages_excluded_from_all, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_debezium_truncate_has_no_key, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged_value, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_key_of_several_columns, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_keys_that_are_not_utf8_stay_apart, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_keys_that_are_no_numbers_stay_apart, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_encode_text_that_is_not_utf8, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_old_text_that_is_not_utf8, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_no_key, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged_key_is_taken_from_the_old_one,
                                        encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_unchanged_value_is_not_taken_from_a_key,
                                        encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_quoted_is_a_number, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_no_text_gets_out_of_its_quotes, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_key_without_a_value_is_refused, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_odd_names_are_escaped, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_topic_too_long, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_every_buffer_size, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_binary_value_is_refused, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_operations_and_routes_filter, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_flat_events, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_key_that_the_identity_does_not_hold, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_flat_unknown_routing_key, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_bare_rows, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_bare_deletes, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_bare_name_is_taken, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_bare_rows_list_what_is_not_known, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_message_event, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_context_in_each_form, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_context_of_cloud_events, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_context_of_messages, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_context_makes_nothing_too_large, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_many_relations_come_and_go, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_placeholder_leaves_out_what_is_large,
                                        encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_placeholder_cuts_the_old_row_too, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_placeholder_keeps_headers, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_cloud_structured, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_cloud_positions, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_cloud_binary, encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_cloud_message, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_cloud_oversize, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_is_all_there_is_of_a_change,
                                        encode_test_setup, encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_key_that_is_too_large_is_poison, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_large_message_keeps_its_prefix, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_messages_by_prefix_and_size, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_messages_are_off_by_default, encode_test_setup,
                                        encode_test_teardown),
        cmocka_unit_test_setup_teardown(test_message_with_a_long_prefix, encode_test_setup,
                                        encode_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
