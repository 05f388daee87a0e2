#include "encode/plan.h"

#include "encode/oversize.h"

#include <stdlib.h>

#include "testing/test.h"

enum { ID, REGION, DOC, COLUMNS };

struct fixture {
    struct mr_encode_options options;
    struct mr_routing routing;
    struct mr_column_route rules[2];
    struct mr_topics topics;
    struct mr_encoder *encoder;
    struct mr_column columns[COLUMNS];
    uint32_t key_columns[1];
    struct mr_relation relation;
    struct mr_transaction transaction;
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint32_t count;
    struct mr_error error;
    uint8_t bytes[32768];
};

static struct mr_datum text(const char *value)
{
    return (struct mr_datum){
        .kind = MR_DATUM_TEXT, .data = (const uint8_t *)value, .len = (uint32_t)strlen(value)};
}

static const struct mr_datum null = {.kind = MR_DATUM_NULL};
static const struct mr_datum unchanged = {.kind = MR_DATUM_UNCHANGED};

static void set_identity(struct fixture *fixture, enum mr_replica_identity identity)
{
    fixture->relation.identity = identity;
    for (int i = 0; i < COLUMNS; i++) {
        fixture->columns[i].in_identity = identity == MR_IDENTITY_FULL || i == ID;
    }
}

static void reopen(struct fixture *fixture)
{
    mr_encoder_free(fixture->encoder);
    fixture->encoder = mr_encoder_new(&fixture->options, &fixture->topics);
    mr_encoder_set_clock(fixture->encoder, INT64_C(1700000001000000000));
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    static const char *const names[COLUMNS] = {"id", "region", "doc"};
    for (int i = 0; i < COLUMNS; i++) {
        fixture->columns[i] = (struct mr_column){.name = (char *)(uintptr_t)names[i],
                                                 .type_oid = i == ID ? 23 : 25,
                                                 .type_modifier = -1};
    }
    fixture->relation = (struct mr_relation){.oid = 1,
                                             .schema = (char *)"public",
                                             .table = (char *)"orders",
                                             .column_count = COLUMNS,
                                             .columns = fixture->columns,
                                             .key_count = 1,
                                             .key_columns = fixture->key_columns};
    set_identity(fixture, MR_IDENTITY_FULL);
    fixture->rules[0] = (struct mr_column_route){
        .table = {.schema = {.text = "public"}, .table = {.text = "orders"}},
        .column = "region",
        .topic = "{topic}.{value}"};
    fixture->routing =
        (struct mr_routing){.by_column = fixture->rules, .by_column_count = 1, .topics_max = 100};
    fixture->options = (struct mr_encode_options){.topic_prefix = "srv",
                                                  .unavailable_value = "gone",
                                                  .tombstones = true,
                                                  .routing = &fixture->routing};
    fixture->transaction = (struct mr_transaction){
        .commit_lsn = 0x2000, .commit_time_us = INT64_C(1700000000000001), .xid = 555};
    reopen(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    mr_encoder_free(fixture->encoder);
    mr_topics_done(&fixture->topics);
    free(fixture);
    return 0;
}

static struct mr_change change_of(const struct fixture *fixture, enum mr_op op,
                                  const struct mr_datum *before, const struct mr_datum *after)
{
    bool full = fixture->relation.identity == MR_IDENTITY_FULL;
    return (struct mr_change){
        .op = op,
        .lsn = 0x1F00,
        .position = {.commit_lsn = 0x2000, .ordinal = 3},
        .transaction = &fixture->transaction,
        .relation = &fixture->relation,
        .before = {.kind = before == NULL ? MR_TUPLE_NONE
                           : full         ? MR_TUPLE_FULL
                                          : MR_TUPLE_KEY,
                   .values = before},
        .after = {.kind = after == NULL ? MR_TUPLE_NONE : MR_TUPLE_NEW, .values = after},
    };
}

static mr_status encode(struct fixture *fixture, enum mr_op op, const struct mr_datum *before,
                        const struct mr_datum *after)
{
    struct mr_change change = change_of(fixture, op, before, after);
    struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
    return mr_encode_change(fixture->encoder, &change, &buffer, fixture->records, &fixture->count,
                            &fixture->error);
}

/* The `n`th record is in that topic, and says that (NULL: a tombstone). */
static void assert_record(const struct fixture *fixture, uint32_t n, const char *topic,
                          const char *said)
{
    assert_true(n < fixture->count);
    const struct mr_record *record = &fixture->records[n];
    assert_string_equal(record->topic->name, topic);
    assert_int_equal(record->part, n);
    if (said == NULL) {
        assert_null(record->value);
        return;
    }
    assert_non_null(memmem(record->value, record->value_len, said, strlen(said)));
}

static mr_status insert(struct fixture *fixture, const struct mr_datum region)
{
    const struct mr_datum row[] = {text("1"), region, text("d")};
    return encode(fixture, MR_OP_INSERT, NULL, row);
}

static void assert_inserted(struct fixture *fixture, const char *region, const char *topic)
{
    assert_int_equal(insert(fixture, region == NULL ? null : text(region)), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, topic, "\"op\":\"c\"");
}

static void assert_refused(struct fixture *fixture, const struct mr_datum region, const char *why)
{
    assert_int_equal(insert(fixture, region), MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, why));
}

static void test_place_of_a_row(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum eu[] = {text("1"), text("eu"), text("d")};
    assert_inserted(fixture, "eu", "srv.public.orders.eu");
    assert_int_equal(encode(fixture, MR_OP_READ, NULL, eu), MR_OK);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"r\"");
    const struct mr_datum other[] = {text("1"), text("eu"), text("e")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, other), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"u\"");
    assert_int_equal(encode(fixture, MR_OP_DELETE, eu, NULL), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"d\"");
    assert_record(fixture, 1, "srv.public.orders.eu", NULL);
    /* The whole table is emptied, wherever its rows are. */
    assert_int_equal(encode(fixture, MR_OP_TRUNCATE, NULL, NULL), MR_OK);
    assert_record(fixture, 0, "srv.public.orders", "\"op\":\"t\"");
}

/* The row ends where it was, and begins where it is; under the same key, or another one. */
static void test_place_moves(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum eu[] = {text("1"), text("eu"), text("d")};
    for (int i = 1; i <= 2; i++) {
        const struct mr_datum us[] = {text(i == 1 ? "1" : "2"), text("us"), unchanged};
        assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, us), MR_OK);
        assert_int_equal(fixture->count, 3);
        assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"d\"");
        assert_record(fixture, 1, "srv.public.orders.eu", NULL);
        assert_record(fixture, 2, "srv.public.orders.us", "\"op\":\"c\"");
        assert_record(fixture, 2, "srv.public.orders.us", "\"doc\":\"d\"");
        assert_memory_equal(fixture->records[0].key, "{\"id\":1}", 8);
        assert_memory_equal(fixture->records[1].key, "{\"id\":1}", 8);
        assert_memory_equal(fixture->records[2].key, i == 1 ? "{\"id\":1}" : "{\"id\":2}", 8);
    }
    const struct mr_datum far[] = {text("2"), text("eu"), text("d")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, far), MR_OK);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"d\"");
    assert_record(fixture, 2, "srv.public.orders.eu", "\"op\":\"c\"");
}

/* Moves are skipped as the deletes and inserts are that they consist of. */
static void test_place_moves_skipped(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum eu[] = {text("1"), text("eu"), text("d")};
    const struct mr_datum us[] = {text("1"), text("us"), text("d")};
    fixture->options.skipped_operations = 1u << MR_OP_INSERT | 1u << MR_OP_UPDATE;
    reopen(fixture);
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, us), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"d\"");
    fixture->options.skipped_operations = 1u << MR_OP_DELETE;
    reopen(fixture);
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, us), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, "srv.public.orders.us", "\"op\":\"c\"");
}

static void test_place_identity(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum key[] = {text("1"), null, null};
    const struct mr_datum us[] = {text("2"), text("us"), text("d")};
    set_identity(fixture, MR_IDENTITY_DEFAULT);
    assert_inserted(fixture, "eu", "srv.public.orders.eu");
    assert_int_equal(encode(fixture, MR_OP_UPDATE, NULL, us), MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "REPLICA IDENTITY FULL"));
    assert_int_equal(encode(fixture, MR_OP_UPDATE, key, us), MR_ERR_POISON);
    assert_int_equal(encode(fixture, MR_OP_DELETE, key, NULL), MR_ERR_POISON);
    /* Where neither is passed on, nothing of it need be known; a new key is an insert. */
    fixture->options.skipped_operations = 1u << MR_OP_UPDATE | 1u << MR_OP_DELETE;
    reopen(fixture);
    assert_int_equal(encode(fixture, MR_OP_UPDATE, NULL, us), MR_OK);
    assert_int_equal(fixture->count, 0);
    assert_int_equal(encode(fixture, MR_OP_DELETE, key, NULL), MR_OK);
    assert_int_equal(fixture->count, 0);
    /* An index that has the column will do. */
    fixture->options.skipped_operations = 0;
    fixture->columns[REGION].in_identity = true;
    reopen(fixture);
    const struct mr_datum old[] = {text("1"), text("eu"), null};
    const struct mr_datum one[] = {text("1"), text("us"), text("d")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, old, one), MR_OK);
    assert_int_equal(fixture->count, 3);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"d\"");
    assert_record(fixture, 2, "srv.public.orders.us", "\"op\":\"c\"");
    assert_int_equal(encode(fixture, MR_OP_UPDATE, NULL, one), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, "srv.public.orders.us", "\"op\":\"u\"");
}

static void test_place_of_a_large_value(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum eu[] = {text("1"), text("eu"), text("d")};
    const struct mr_datum after[] = {text("1"), unchanged, text("e")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, after), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"u\"");
    /* A server that does not send what it has to. */
    fixture->routing.falls_back = true;
    set_identity(fixture, MR_IDENTITY_INDEX);
    fixture->columns[REGION].in_identity = true;
    reopen(fixture);
    assert_int_equal(encode(fixture, MR_OP_UPDATE, NULL, after), MR_ERR_POISON);
    assert_non_null(strstr(fixture->error.text, "did not send"));
}

/* No two values share a topic, but in the table's own, where that is wanted. */
static void test_place_without_a_name(void **state)
{
    struct fixture *fixture = *state;
    char wide[300];
    memset(wide, 'w', sizeof(wide));
    wide[sizeof(wide) - 1] = '\0';
    const struct mr_datum nul = {.kind = MR_DATUM_TEXT, .data = (const uint8_t *)"e\0u", .len = 3};
    const struct mr_datum bad[] = {null, text("a b"), text("\xC3\xA9"), text(wide), nul};
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        assert_refused(fixture, bad[i], "routing.by_column_fallback");
        assert_null(strstr(fixture->error.text, "a b"));
    }
    assert_int_equal(fixture->topics.by_value, 0);
    fixture->routing.falls_back = true;
    reopen(fixture);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
            assert_int_equal(insert(fixture, bad[i]), MR_OK);
            assert_record(fixture, 0, "srv.public.orders", "\"op\":\"c\"");
        }
    }
    assert_inserted(fixture, "", "srv.public.orders.");
    const struct mr_datum from[] = {text("1"), null, text("d")};
    const struct mr_datum to[] = {text("1"), text("eu"), text("d")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, from, to), MR_OK);
    assert_record(fixture, 0, "srv.public.orders", "\"op\":\"d\"");
    assert_record(fixture, 2, "srv.public.orders.eu", "\"op\":\"c\"");
}

/* Which values came first must not say where a row goes: a restart would send its end elsewhere. */
static void test_place_hangs_on_the_value_alone(void **state)
{
    struct fixture *fixture = *state;
    fixture->routing.falls_back = true;
    fixture->routing.topics_max = 2;
    reopen(fixture);
    assert_inserted(fixture, "a.b", "srv.public.orders.a.b");
    assert_refused(fixture, text("a_b"), "dots and underscores");
    assert_inserted(fixture, "c", "srv.public.orders.c");
    assert_refused(fixture, text("d"), "one more than the topics");
    assert_inserted(fixture, "a.b", "srv.public.orders.a.b");
}

static void test_place_templates(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *template, *topic;
    } cases[] = {{"{value}", "eu"},
                 {"x.{value}.y", "x.eu.y"},
                 {"{value}-{topic}", "eu-srv.public.orders"},
                 {"{topic}{topic}_{value}", "srv.public.orderssrv.public.orders_eu"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        fixture->rules[0].topic = cases[i].template;
        mr_encoder_forget(fixture->encoder, &fixture->relation);
        assert_inserted(fixture, "eu", cases[i].topic);
    }
}

static void test_place_of_another_table(void **state)
{
    struct fixture *fixture = *state;
    fixture->rules[0].table.table.text = NULL;
    fixture->rules[0].topic = "all.{value}";
    reopen(fixture);
    assert_inserted(fixture, "eu", "all.eu");
    struct mr_relation first = fixture->relation;
    fixture->relation.table = (char *)"items";
    reopen(fixture);
    assert_refused(fixture, text("eu"), "is that of other events");
    assert_inserted(fixture, "us", "all.us");
    /* A table whose own topic is one that a value has named. */
    fixture->relation = first;
    fixture->rules[0].table.table.text = "orders";
    fixture->rules[0].topic = "srv.public.{value}";
    reopen(fixture);
    assert_inserted(fixture, "cakes", "srv.public.cakes");
    fixture->relation.table = (char *)"cakes";
    mr_encoder_forget(fixture->encoder, &fixture->relation);
    assert_int_equal(insert(fixture, text("eu")), MR_ERR_CONFIG);
    fixture->routing.sharing = MR_SHARING_ALLOWED;
    assert_int_equal(insert(fixture, text("eu")), MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "routing.by_column"));
}

static void test_place_refused(void **state)
{
    struct fixture *fixture = *state;
    fixture->rules[0].column = "nope";
    assert_int_equal(insert(fixture, text("eu")), MR_ERR_CONFIG);
    assert_non_null(strstr(fixture->error.text, "\"nope\""));
    fixture->rules[0].column = "region";
    struct mr_column_rule rule = {.table = fixture->rules[0].table, .column = {.text = "region"}};
    fixture->options.column_rules = &rule;
    fixture->options.column_rule_count = 1;
    static const enum mr_column_action actions[] = {MR_COLUMN_EXCLUDE, MR_COLUMN_MASK,
                                                    MR_COLUMN_TRUNCATE, MR_COLUMN_HASH};
    for (size_t i = 0; i < MR_ARRAY_LEN(actions); i++) {
        rule.action = actions[i];
        reopen(fixture);
        assert_int_equal(insert(fixture, text("eu")), MR_ERR_CONFIG);
        assert_non_null(strstr(fixture->error.text, "would tell"));
    }
}

static void test_place_flat(void **state)
{
    struct fixture *fixture = *state;
    const struct mr_datum eu[] = {text("1"), text("eu"), text("d")};
    const struct mr_datum us[] = {text("2"), text("us"), text("d")};
    fixture->options.format = MR_FORMAT_FLAT;
    reopen(fixture);
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, us), MR_OK);
    assert_int_equal(fixture->count, 2);
    assert_record(fixture, 0, "srv.public.orders.eu", "{\"op\":\"DELETE\",\"data\":{\"id\":1,");
    assert_record(fixture, 1, "srv.public.orders.us", "{\"op\":\"INSERT\",\"data\":{\"id\":2,");
    assert_memory_equal(fixture->records[0].key, "1", 1);
    assert_memory_equal(fixture->records[1].key, "2", 1);
    const struct mr_datum here[] = {text("2"), text("eu"), text("d")};
    assert_int_equal(encode(fixture, MR_OP_UPDATE, eu, here), MR_OK);
    assert_int_equal(fixture->count, 1);
    assert_record(fixture, 0, "srv.public.orders.eu", "\"op\":\"UPDATE\"");
}

/* What takes the place of a record that is too large goes where the row is; the value itself is never cut. */
static void test_place_oversize(void **state)
{
    struct fixture *fixture = *state;
    static char region[200], doc[4000];
    memset(region, 'r', sizeof(region) - 1);
    memset(doc, 'x', sizeof(doc) - 1);
    const struct mr_datum old[] = {text("1"), text("eu"), text(doc)};
    const struct mr_datum row[] = {text("1"), text(region), text(doc)};
    for (int letters = 0; letters < 2; letters++) {
        fixture->options.oversize = letters ? MR_OVERSIZE_DEAD_LETTER : MR_OVERSIZE_PLACEHOLDER;
        fixture->options.dead_letter_topic = "dead";
        reopen(fixture);
        struct mr_change change = change_of(fixture, MR_OP_UPDATE, old, row);
        struct mr_item item = {.change = &change};
        struct mr_oversize_case oversize = {.bytes = 9999, .limit = 1000, .reason = "message_max"};
        struct mr_buffer buffer = mr_buffer_init(fixture->bytes, sizeof(fixture->bytes));
        assert_int_equal(mr_encode_oversize(fixture->encoder, &item, &oversize, &buffer,
                                            fixture->records, &fixture->count, &fixture->error),
                         MR_OK);
        assert_int_equal(fixture->count, letters ? 1 : 3);
        const struct mr_record *last = &fixture->records[fixture->count - 1];
        assert_string_equal(fixture->records[0].topic->name,
                            letters ? "dead" : "srv.public.orders.eu");
        assert_non_null(memmem(letters ? (const char *)last->value : last->topic->name,
                               letters ? last->value_len : strlen(last->topic->name), region,
                               strlen(region)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_place_of_a_row, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_moves_skipped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_of_a_large_value, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_without_a_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_hangs_on_the_value_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_of_another_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_flat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_oversize, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
