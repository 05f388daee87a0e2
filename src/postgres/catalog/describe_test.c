/* The catalog's questions, asked of a real server: MILLRACE_TEST_CONNINFO says which; without it
 * there is nothing to do. Run by tests/test_catalog.py, in seconds. */
#include "postgres/catalog/describe.h"

#include <stdio.h>
#include <stdlib.h>

#include "postgres/catalog/pg_attached.h"
#include "postgres/catalog/pg_leaves.h"
#include "postgres/catalog/pg_sql.h"
#include "testing/test.h"

static const struct mr_table_name tables[] = {
    {"shop", "orders"}, {"shop", "Odd \"name\"\\"}, {"shop", "parts"}, {"shop", "gone"}};
static const struct mr_pattern column = {.text = "note"};
static const struct mr_pattern_rule rules[] = {
    {.table = {.schema = {.text = "shop"}, .table = {.text = "full"}}, .column = &column},
    {.table = {.schema = {.text = "shop"}, .table = {.text = "nothing"}}}};
static const char *const key_columns[] = {"b", "a"};
static const struct mr_table_key keys[] = {{.option = "key_columns",
                                            .table = {"shop", "orders"},
                                            .columns = key_columns,
                                            .column_count = 2}};
static const struct mr_table_pattern patterns[] = {
    {.schema = {.text = "shop"}, .table = {.text = "full"}}};

static struct mr_pg_source_options options = {
    .slot = "millrace",
    .publication = "catalog_test",
    .captured = {.tables = tables,
                 .table_count = MR_ARRAY_LEN(tables),
                 .patterns = patterns,
                 .pattern_count = MR_ARRAY_LEN(patterns)},
    .checked = {.rules = rules, .rule_count = MR_ARRAY_LEN(rules)},
    .key_order = MR_KEY_ORDER_INDEX,
};

static const char schema[] =
    "DROP PUBLICATION IF EXISTS catalog_test; DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA "
    "shop;"
    " CREATE TYPE shop.mood AS ENUM ('sad', 'glad'); CREATE DOMAIN shop.feeling AS shop.mood;"
    " CREATE TABLE shop.orders (a int, b text, note shop.feeling[], PRIMARY KEY (b, a));"
    " CREATE TABLE shop.\"Odd \"\"name\"\"\\\" (id int PRIMARY KEY);"
    " CREATE TABLE shop.parts (id int PRIMARY KEY) PARTITION BY RANGE (id);"
    " CREATE TABLE shop.parts_1 PARTITION OF shop.parts FOR VALUES FROM (0) TO (10);"
    " CREATE TABLE shop.\"full\" (id int PRIMARY KEY, note text);"
    " ALTER TABLE shop.\"full\" REPLICA IDENTITY FULL; CREATE TABLE shop.other (id int PRIMARY "
    "KEY);"
    " CREATE PUBLICATION catalog_test FOR TABLE shop.orders, shop.\"Odd \"\"name\"\"\\\", "
    "shop.parts,"
    " shop.\"full\", shop.other";

static struct mr_pg_conn *conn;
static struct mr_error error;

static void describe_test_run(const char *command)
{
    if (mr_pg_command(conn, command, MR_PG_ANSWER_MS, &error) != MR_OK) {
        fail_msg("%s: %s", command, error.text);
    }
}

static struct mr_pg_result *describe_test_query(struct mr_text *sql, const char *columns)
{
    const struct mr_pg_shape shape = {"a test", columns, 0, UINT32_MAX};
    struct mr_pg_result *result;
    if (mr_pg_query(conn, sql, &shape, &result, &error) != MR_OK) {
        fail_msg("%s", error.text);
    }
    return result;
}

static uint32_t oid_of(const char *table)
{
    struct mr_text sql = {0};
    mr_text_format(&sql, "SELECT 'shop.%s'::regclass::oid::bigint", table);
    struct mr_pg_result *result = describe_test_query(&sql, "n");
    uint32_t oid = (uint32_t)mr_pg_result_number(result, 0, 0);
    mr_pg_result_free(result);
    return oid;
}

/* After all that was done: what commits now is covered by no reading before. */
static struct mr_transaction transaction_now(void)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "SELECT pg_current_wal_insert_lsn(), (txid_current() % 4294967296)");
    struct mr_pg_result *result = describe_test_query(&sql, "ln");
    struct mr_transaction transaction = {.commit_lsn = mr_pg_result_lsn(result, 0, 0),
                                         .xid = (uint32_t)mr_pg_result_number(result, 0, 1)};
    mr_pg_result_free(result);
    return transaction;
}

struct described {
    struct mr_relation view;
    struct mr_column columns[3];
    uint32_t key[3];
    mr_status status;
    uint32_t questions;
};

static void describe_test_describe(struct mr_pg_catalog *catalog,
                                   const struct mr_transaction *transaction,
                                   struct described *described)
{
    described->view.columns = described->columns;
    described->view.key_columns = described->key;
    while ((described->status = mr_pg_catalog_describe(catalog, transaction, &described->view,
                                                       &error)) == MR_FULL) {
        assert_true(described->questions++ < 4);
        assert_int_equal(mr_pg_catalog_ask(catalog, conn, &error), MR_OK);
    }
}

static struct described orders(void)
{
    struct mr_text sql = {0};
    mr_text_string(&sql, "SELECT 'shop.feeling[]'::regtype::oid::bigint");
    struct mr_pg_result *result = describe_test_query(&sql, "n");
    struct described described = {
        .view = {.oid = oid_of("orders"),
                 .schema = "shop",
                 .table = "orders",
                 .identity = MR_IDENTITY_DEFAULT,
                 .column_count = 3},
        .columns = {{.name = "a", .type_oid = 23, .in_identity = true},
                    {.name = "b", .type_oid = 25, .in_identity = true},
                    {.name = "note",
                     .type_oid = (uint32_t)mr_pg_result_number(result, 0, 0),
                     .type_modifier = -1}}};
    mr_pg_result_free(result);
    return described;
}

static struct described full(const char *table, uint32_t oid)
{
    return (struct described){
        .view = {.oid = oid,
                 .schema = "shop",
                 .table = table,
                 .identity = MR_IDENTITY_FULL,
                 .column_count = 2},
        .columns = {{.name = "id", .type_oid = 23}, {.name = "note", .type_oid = 25}}};
}

static void check_orders(const struct described *described)
{
    assert_int_equal(described->status, MR_OK);
    assert_false(described->view.is_unlisted);
    assert_int_equal(described->view.key_count, 2);
    assert_int_equal(described->key[0], 1); /* as the index has them */
    assert_int_equal(described->key[1], 0);
    assert_true(described->columns[2].type.is_array);
    assert_true(described->columns[2].type.is_of_domain);
    assert_int_equal(described->columns[2].type.kind, MR_TYPE_TEXT);
}

static void test_what_was_read_answers_without_a_question(void **state)
{
    (void)state;
    struct mr_transaction transaction = transaction_now();
    transaction.xid = 10; /* below what any open transaction of the server holds back */
    struct mr_pg_catalog catalog = {.options = &options};
    assert_int_equal(mr_pg_catalog_read(&catalog, conn, false, &error), MR_OK);
    struct described described = orders();
    describe_test_describe(&catalog, &transaction, &described);
    check_orders(&described);
    assert_int_equal(described.questions, 0);
    described = full("full", oid_of("full"));
    describe_test_describe(&catalog, &transaction, &described);
    assert_int_equal(described.status, MR_OK);
    assert_int_equal(described.questions, 0);
    assert_int_equal(described.view.key_count, 1);
    mr_pg_catalog_done(&catalog);
}

static void test_what_came_later_is_asked_for(void **state)
{
    (void)state;
    struct mr_pg_catalog catalog = {.options = &options};
    struct mr_transaction transaction = transaction_now();
    struct described described = orders();
    describe_test_describe(&catalog, &transaction, &described);
    check_orders(&described);
    assert_int_equal(described.questions, 2); /* the type, the order of the key */
    described = full("full", oid_of("full"));
    describe_test_describe(&catalog, &transaction, &described);
    assert_int_equal(described.status, MR_OK);
    assert_int_equal(described.questions, 1);
    assert_int_equal(described.view.key_count, 1);
    assert_int_equal(described.key[0], 0);
    mr_pg_catalog_done(&catalog);
}

static void test_partitions_are_ours_and_others_are_not(void **state)
{
    (void)state;
    struct mr_pg_catalog catalog = {.options = &options};
    struct mr_transaction transaction = transaction_now();
    struct described described = full("parts_1", oid_of("parts_1"));
    describe_test_describe(&catalog, &transaction, &described);
    assert_false(described.view.is_unlisted);
    mr_pg_catalog_done(&catalog);
    catalog = (struct mr_pg_catalog){.options = &options};
    described = full("other", oid_of("other"));
    for (int again = 0; again < 2; again++) {
        describe_test_describe(&catalog, &transaction, &described);
        assert_true(described.view.is_unlisted);
        assert_int_equal(described.questions, 1);
    }
    mr_pg_catalog_done(&catalog);
}

/* A reload forgets what was answered, and may come before the first row that it was asked for. */
static void test_another_connection_asks_again(void **state)
{
    (void)state;
    describe_test_run(
        "CREATE TABLE shop.parts_9 PARTITION OF shop.parts FOR VALUES FROM (90) TO (100)");
    struct described described = full("parts_9", oid_of("parts_9"));
    described.view.column_count = 1; /* as the table's */
    described.columns[0].type_modifier = -1;
    struct mr_transaction transaction = transaction_now();
    describe_test_run("DROP TABLE shop.parts_9");
    struct mr_pg_catalog catalog = {.options = &options};
    for (int again = 0; again < 2; again++) {
        mr_pg_captured_done(&catalog.captured);
        assert_int_equal(mr_pg_catalog_read(&catalog, conn, false, &error), MR_OK);
        described.questions = 0;
        describe_test_describe(&catalog, &transaction, &described);
        assert_int_equal(described.status, MR_OK);
        assert_false(described.view.is_unlisted);
        assert_true(described.view.is_part);
    }
    mr_pg_catalog_done(&catalog);
}

static void test_an_open_transaction_is_waited_for(void **state)
{
    (void)state;
    struct mr_pg_conn *other = conn;
    const struct mr_pg_options connection = {.conninfo = getenv("MILLRACE_TEST_CONNINFO")};
    assert_int_equal(mr_pg_connect(&connection, false, -1, &conn, &error), MR_OK);
    describe_test_run("BEGIN");
    struct mr_transaction transaction = transaction_now();
    struct mr_pg_catalog catalog = {.options = &options};
    struct described described = orders();
    described.view.columns = described.columns;
    described.view.key_columns = described.key;
    assert_int_equal(mr_pg_catalog_describe(&catalog, &transaction, &described.view, &error),
                     MR_FULL);
    assert_int_equal(mr_pg_catalog_ask(&catalog, other, &error), MR_FULL);
    assert_true(mr_pg_catalog_asks(&catalog));
    catalog.question.deadline_ns = 1;
    assert_int_equal(mr_pg_catalog_ask(&catalog, other, &error), MR_ERR_TRANSIENT);
    assert_non_null(strstr(error.text, "the types of table shop.orders can't be looked up"));
    assert_false(mr_pg_catalog_asks(&catalog));
    describe_test_run("COMMIT");
    mr_pg_close(conn);
    conn = other;
    describe_test_describe(&catalog, &transaction, &described);
    check_orders(&described);
    mr_pg_catalog_done(&catalog);
}

/* Table shop.short, which a stream of its own captures, and a transaction that committed before it
 * was dropped. */
struct dropped {
    uint32_t oid;
    struct mr_transaction transaction;
    struct mr_pg_source_options options;
    struct mr_pg_catalog catalog;
};

static void drop_short(struct dropped *ret)
{
    static const struct mr_table_name name = {"shop", "short"};
    describe_test_run("CREATE TABLE shop.short (id int PRIMARY KEY, note text)");
    ret->oid = oid_of("short");
    ret->transaction = transaction_now();
    describe_test_run("DROP TABLE shop.short");
    ret->options = options;
    ret->options.captured = (struct mr_pg_captured_options){.tables = &name, .table_count = 1};
    ret->catalog.options = &ret->options;
}

static void test_a_dropped_type_and_a_dropped_table(void **state)
{
    (void)state;
    struct dropped dropped = {0};
    drop_short(&dropped);
    struct described described = full("short", dropped.oid);
    described.columns[1].type_oid = 4000000000;
    describe_test_describe(&dropped.catalog, &dropped.transaction, &described);
    assert_int_equal(described.status, MR_OK);
    assert_int_equal(described.view.key_count, 0);
    assert_int_equal(described.columns[1].type.kind, MR_TYPE_TEXT);
    mr_pg_catalog_done(&dropped.catalog);
}

static void test_a_dropped_table_keeps_the_key_that_the_stream_flagged(void **state)
{
    (void)state;
    struct dropped dropped = {0};
    drop_short(&dropped);
    struct described described = full("short", dropped.oid);
    described.view.identity = MR_IDENTITY_DEFAULT;
    described.columns[0].in_identity = true;
    describe_test_describe(&dropped.catalog, &dropped.transaction, &described);
    assert_int_equal(described.view.key_count, 1);
    for (int again = 0; again < 2; again++) {
        described = full("short", dropped.oid);
        describe_test_describe(&dropped.catalog, &dropped.transaction, &described);
        assert_int_equal(described.status, MR_OK);
        assert_int_equal(described.view.key_count, 1);
        assert_int_equal(described.key[0], 0);
    }
    mr_pg_catalog_done(&dropped.catalog);
}

static void test_rows_of_now(void **state)
{
    (void)state;
    struct mr_pg_catalog catalog = {.options = &options};
    struct described described = orders();
    described.view.columns = described.columns;
    described.view.key_columns = described.key;
    described.status = mr_pg_catalog_describe_now(&catalog, conn, &described.view, &error);
    check_orders(&described);
    mr_pg_catalog_done(&catalog);
}

/* A key without the column would be that of several rows: the stream and the copies refuse it. */
static void test_a_generated_column_in_the_identity_is_refused(void **state)
{
    (void)state;
    describe_test_run(
        "CREATE TABLE shop.made (id int, note text GENERATED ALWAYS AS ('x' || id::text) STORED NOT"
        " NULL, PRIMARY KEY (id, note))");
    struct mr_pg_catalog catalog = {.options = &options};
    struct described described = full("made", oid_of("made"));
    described.view.identity = MR_IDENTITY_DEFAULT;
    described.view.column_count = 1;
    described.view.columns = described.columns;
    described.view.key_columns = described.key;
    described.columns[0].in_identity = true;
    assert_int_equal(mr_pg_catalog_describe_now(&catalog, conn, &described.view, &error),
                     MR_ERR_POISON);
    assert_non_null(strstr(error.text, "is generated"));
    mr_pg_catalog_done(&catalog);
    describe_test_run("DROP TABLE shop.made");
}

static void test_states_of_tables(void **state)
{
    (void)state;
    struct mr_text sql = {0};
    mr_sql_add_table_states(&sql, &options, mr_pg_server_version(conn));
    struct mr_pg_result *result = describe_test_query(&sql, MR_TABLE_SHAPE);
    assert_int_equal(mr_pg_result_rows(result), MR_ARRAY_LEN(tables));
    static const char *const kinds[] = {"r", "r", "p", NULL};
    for (uint32_t i = 0; i < MR_ARRAY_LEN(kinds); i++) {
        const char *kind = mr_pg_result_value(result, i, MR_TABLE_KIND);
        assert_true(kinds[i] == NULL ? kind == NULL : strcmp(kind, kinds[i]) == 0);
        assert_int_equal(mr_pg_result_true(result, i, MR_TABLE_PUBLISHED), kinds[i] != NULL);
        assert_int_equal(mr_pg_result_true(result, i, MR_TABLE_HAS_KEY), kinds[i] != NULL);
    }
    mr_pg_result_free(result);
}

static void test_server_patterns_and_what_else_is_sent(void **state)
{
    (void)state;
    int version = mr_pg_server_version(conn);
    struct mr_text sql = {0};
    mr_sql_add_server_state(&sql, &options);
    struct mr_pg_result *result = describe_test_query(&sql, MR_SERVER_SHAPE);
    assert_true(mr_pg_result_true(result, 0, MR_PUBLICATION_INSERT));
    assert_null(mr_pg_result_value(result, 0, MR_SLOT_TYPE));
    mr_pg_result_free(result);
    mr_sql_add_meant(&sql, &options, version);
    result = describe_test_query(&sql, MR_MEANT_SHAPE);
    assert_int_equal(mr_pg_result_number(result, 0, MR_MEANT_COUNT), 1);
    assert_string_equal(mr_pg_result_value(result, 0, MR_MEANT_NAMES), "shop.full");
    assert_int_equal(mr_pg_result_number(result, 0, MR_UNLISTED_COUNT), 1);
    assert_string_equal(mr_pg_result_value(result, 0, MR_UNLISTED_NAMES), "shop.other");
    mr_pg_result_free(result);
    mr_sql_add_rules(&sql, &options, version);
    result = describe_test_query(&sql, MR_RULE_SHAPE);
    assert_true(mr_pg_result_true(result, 0, MR_RULE_HAS_COLUMN));
    assert_false(mr_pg_result_true(result, 1, MR_RULE_HAS_TABLE));
    mr_pg_result_free(result);
}

static void test_tables_that_are_streamed_and_copied(void **state)
{
    (void)state;
    int version = mr_pg_server_version(conn);
    struct mr_text sql = {0};
    mr_sql_add_streamed(&sql, &options, version);
    struct mr_pg_result *result = describe_test_query(&sql, "nss");
    assert_int_equal(mr_pg_result_rows(result), 4); /* parts by its partition */
    mr_pg_result_free(result);
    mr_sql_add_copied(&sql, &options, version);
    result = describe_test_query(&sql, MR_COPIED_SHAPE);
    assert_int_equal(mr_pg_result_rows(result), 4);
    assert_true(mr_pg_result_true(result, 0, MR_COPIED_READABLE));
    mr_pg_result_free(result);
    struct mr_pg_source_options keyed = options;
    keyed.keys = keys;
    keyed.key_count = MR_ARRAY_LEN(keys);
    mr_sql_add_key_columns(&sql, &keyed);
    result = describe_test_query(&sql, MR_KEY_SHAPE);
    assert_int_equal(mr_pg_result_rows(result), 2);
    assert_true(mr_pg_result_true(result, 0, MR_KEY_HELD));
    mr_pg_result_free(result);
}

static void test_a_partition_that_was_attached(void **state)
{
    (void)state;
    describe_test_run("CREATE TABLE shop.parts_2 (id int PRIMARY KEY)");
    describe_test_run(
        "ALTER TABLE shop.parts ATTACH PARTITION shop.parts_2 FOR VALUES FROM (10) TO (20)");
    const uint32_t known = oid_of("parts_1");
    const struct mr_attached_wish wish = {
        .schema = "shop", .table = "parts", .known = &known, .known_count = 1};
    struct mr_text names = {0};
    struct mr_text roots = {0};
    assert_int_equal(mr_pg_attached_find(conn, &options, &wish, &names, &roots, &error), MR_OK);
    assert_string_equal(names.data, "shop.parts_2");
    mr_text_done(&names);
    mr_text_done(&roots);
}

/* By root: of what is listed alone; which one was attached, and what its bounds are. */
static void test_partitions_that_are_sent_by_their_root(void **state)
{
    (void)state;
    struct mr_leaves leaves;
    describe_test_run("DROP TABLE IF EXISTS shop.parts_2");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_int_equal(leaves.root_count, 0); /* they are sent by their own names */
    mr_leaves_done(&leaves);
    describe_test_run("ALTER PUBLICATION catalog_test SET (publish_via_partition_root = true)");
    describe_test_run(
        "CREATE TABLE shop.parts_2 (id int PRIMARY KEY); INSERT INTO shop.parts_2 VALUES (15);"
        " ANALYZE shop.parts_2");
    describe_test_run(
        "ALTER TABLE shop.parts ATTACH PARTITION shop.parts_2 FOR VALUES FROM (10) TO (20)");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_int_equal(leaves.root_count, 1);
    assert_int_equal(leaves.leaf_count, 2);
    assert_string_equal(mr_leaves_root(&leaves, oid_of("parts"))->table, "parts");
    const struct mr_leaf *leaf = mr_leaves_find(&leaves, oid_of("parts_2"));
    assert_string_equal(leaf->name, "shop.parts_2");
    assert_true(leaf->has_rows);
    assert_false(mr_leaves_find(&leaves, oid_of("parts_1"))->has_rows);
    bool attached;
    char *bounds;
    assert_int_equal(mr_pg_leaf_ask(conn, leaf->oid, &attached, &bounds, &error), MR_OK);
    assert_true(attached);
    assert_string_equal(bounds, "((id IS NOT NULL) AND (id >= 10) AND (id < 20))");
    free(bounds);
    assert_int_equal(mr_pg_leaf_ask(conn, oid_of("parts_1"), &attached, NULL, &error), MR_OK);
    assert_false(attached);
    uint32_t oid = leaf->oid;
    uint32_t mark = leaf->mark;
    mr_leaves_done(&leaves);
    describe_test_run("TRUNCATE shop.parts_2");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_false(mr_leaves_find(&leaves, oid)->has_rows);
    assert_int_equal(mr_leaves_find(&leaves, oid)->mark, mark);
    mr_leaves_done(&leaves);
    describe_test_run(
        "ALTER TABLE shop.parts DETACH PARTITION shop.parts_2; "
        "ALTER TABLE shop.parts ATTACH PARTITION shop.parts_2 FOR VALUES FROM (10) TO (20)");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_int_not_equal(mr_leaves_find(&leaves, oid)->mark, mark);
    mr_leaves_done(&leaves);
    describe_test_run("DROP TABLE shop.parts_2");
    assert_int_equal(mr_pg_leaf_ask(conn, oid, &attached, &bounds, &error), MR_OK);
    assert_null(bounds);
    describe_test_run("ALTER PUBLICATION catalog_test SET (publish_via_partition_root = false)");
}

/* Below a partition, whose link counts, too; and rows that no bounds find. */
static void test_partitions_of_partitions(void **state)
{
    (void)state;
    struct mr_leaves leaves;
    bool attached;
    char *bounds;
    describe_test_run("ALTER PUBLICATION catalog_test SET (publish_via_partition_root = true)");
    describe_test_run(
        "CREATE TABLE shop.parts_2 (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        " CREATE TABLE shop.parts_2a PARTITION OF shop.parts_2 FOR VALUES FROM (1) TO (20);"
        " ALTER TABLE shop.parts ATTACH PARTITION shop.parts_2 FOR VALUES FROM (10) TO (20)");
    uint32_t oid = oid_of("parts_2a");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_int_equal(mr_leaves_find(&leaves, oid)->root, oid_of("parts"));
    uint32_t mark = mr_leaves_find(&leaves, oid)->mark;
    mr_leaves_done(&leaves);
    describe_test_run("ALTER TABLE shop.parts DETACH PARTITION shop.parts_2");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_null(mr_leaves_find(&leaves, oid));
    mr_leaves_done(&leaves);
    describe_test_run(
        "ALTER TABLE shop.parts ATTACH PARTITION shop.parts_2 FOR VALUES FROM (10) TO (20)");
    assert_int_equal(mr_pg_leaves_read(conn, &options, &leaves, &error), MR_OK);
    assert_int_not_equal(mr_leaves_find(&leaves, oid)->mark, mark);
    mr_leaves_done(&leaves);
    describe_test_run("DROP TABLE shop.parts_2");
    describe_test_run("ALTER PUBLICATION catalog_test SET (publish_via_partition_root = false)");
    describe_test_run("CREATE TABLE shop.odd (id int) PARTITION BY RANGE ((id + 1));"
                      " CREATE TABLE shop.odd_1 PARTITION OF shop.odd FOR VALUES FROM (1) TO (20)");
    oid = oid_of("odd_1");
    assert_int_equal(mr_pg_leaf_ask(conn, oid, &attached, &bounds, &error), MR_OK);
    char expected[64];
    snprintf(expected, sizeof(expected), "tableoid = '%u'::oid", oid);
    assert_string_equal(bounds, expected);
    free(bounds);
    describe_test_run("DROP TABLE shop.odd");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_read_answers_without_a_question),
        cmocka_unit_test(test_what_came_later_is_asked_for),
        cmocka_unit_test(test_partitions_are_ours_and_others_are_not),
        cmocka_unit_test(test_an_open_transaction_is_waited_for),
        cmocka_unit_test(test_a_dropped_type_and_a_dropped_table),
        cmocka_unit_test(test_a_dropped_table_keeps_the_key_that_the_stream_flagged),
        cmocka_unit_test(test_rows_of_now),
        cmocka_unit_test(test_a_generated_column_in_the_identity_is_refused),
        cmocka_unit_test(test_states_of_tables),
        cmocka_unit_test(test_server_patterns_and_what_else_is_sent),
        cmocka_unit_test(test_tables_that_are_streamed_and_copied),
        cmocka_unit_test(test_another_connection_asks_again),
        cmocka_unit_test(test_a_partition_that_was_attached),
        cmocka_unit_test(test_partitions_that_are_sent_by_their_root),
        cmocka_unit_test(test_partitions_of_partitions),
    };
    const struct mr_pg_options connection = {.conninfo = getenv("MILLRACE_TEST_CONNINFO")};
    if (connection.conninfo == NULL) {
        puts("MILLRACE_TEST_CONNINFO names no server: tests/test_catalog.py has one");
        return 0;
    }
    if (mr_pg_connect(&connection, false, -1, &conn, &error) != MR_OK ||
        mr_pg_command(conn, schema, MR_PG_ANSWER_MS, &error) != MR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    describe_test_run("DROP PUBLICATION catalog_test");
    describe_test_run("DROP SCHEMA shop CASCADE");
    mr_pg_close(conn);
    return failed;
}
