/* Tables of equal columns share what these decide, and nothing else. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode/encode.h"
#include "encode/plan.h"
#include "event/relation.h"
#include "testing/test.h"

enum { TABLES_MAX = 1500, COLUMNS = 50, NAME_MAX_BYTES = 40 };

struct tables {
    struct mr_encode_options options;
    struct mr_topics topics;
    struct mr_encoder *encoder;
    struct mr_layouts layouts;
    struct mr_relation *relations[TABLES_MAX];
    uint32_t count;
    char names[COLUMNS][NAME_MAX_BYTES];
    struct mr_column columns[COLUMNS];
    struct mr_record records[MR_RECORDS_PER_CHANGE_MAX];
    uint8_t bytes[16384];
};

static int plan_test_setup(void **state)
{
    struct tables *tables = calloc(1, sizeof(*tables));
    tables->options = (struct mr_encode_options){
        .format = MR_FORMAT_DEBEZIUM, .topic_prefix = "srv", .unavailable_value = "-"};
    for (uint32_t i = 0; i < COLUMNS; i++) {
        snprintf(tables->names[i], NAME_MAX_BYTES, "a_column_with_a_name_%u", i);
        tables->columns[i] = (struct mr_column){
            .name = tables->names[i], .type_oid = i == 0 ? 23 : 25, .in_identity = i == 0};
    }
    *state = tables;
    return 0;
}

static int plan_test_teardown(void **state)
{
    struct tables *tables = *state;
    for (uint32_t i = 0; i < tables->count; i++) {
        mr_encoder_forget(tables->encoder, tables->relations[i]);
        mr_relation_free(&tables->layouts, tables->relations[i]);
    }
    mr_layouts_done(&tables->layouts);
    mr_encoder_free(tables->encoder);
    mr_topics_done(&tables->topics);
    free(tables);
    return 0;
}

/* One more table, and a row of it. Answers the event. */
static const char *plan_test_add(struct tables *tables)
{
    static const struct mr_transaction transaction = {.commit_lsn = 0x2000, .xid = 5};
    struct mr_datum row[COLUMNS];
    uint32_t key = 0;
    char name[NAME_MAX_BYTES];
    struct mr_error error;
    uint32_t count;
    if (tables->encoder == NULL) {
        tables->encoder = mr_encoder_new(&tables->options, &tables->topics);
        mr_encoder_set_database(tables->encoder, "db");
    }
    snprintf(name, sizeof(name), "t%u", tables->count);
    const struct mr_relation view = {.oid = 1 + tables->count,
                                     .schema = "public",
                                     .table = name,
                                     .identity = MR_IDENTITY_DEFAULT,
                                     .column_count = COLUMNS,
                                     .columns = tables->columns,
                                     .key_count = 1,
                                     .key_columns = &key};
    struct mr_relation *relation = mr_relation_new(&tables->layouts, &view);
    tables->relations[tables->count++] = relation;
    for (uint32_t i = 0; i < COLUMNS; i++) {
        row[i] = (struct mr_datum){.kind = MR_DATUM_TEXT, .data = (const uint8_t *)"1", .len = 1};
    }
    const struct mr_change change = {.op = MR_OP_INSERT,
                                     .position = {.commit_lsn = 0x2000, .ordinal = tables->count},
                                     .transaction = &transaction,
                                     .relation = relation,
                                     .after = {.kind = MR_TUPLE_NEW, .values = row}};
    struct mr_buffer buffer = mr_buffer_init(tables->bytes, sizeof(tables->bytes) - 1);
    assert_int_equal(
        mr_encode_change(tables->encoder, &change, &buffer, tables->records, &count, &error),
        MR_OK);
    assert_int_equal(count, 1);
    *buffer.at = '\0';
    return (const char *)tables->records[0].value;
}

static void plan_test_assert_has(const char *event, const char *want)
{
    if (strstr(event, want) == NULL) {
        fail_msg("no %s in %s", want, event);
    }
}

/* Bytes that are in use; none are counted with a sanitizer. */
static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

/* What docs/sizing.md says of a table that sends: relation, plan and topic. It was 8 KiB, mostly of
 * names. */
static void test_a_table_more_takes_little(void **state)
{
    enum { FEW = 500, MOST_BYTES = 1536 };
    struct tables *tables = *state;
    for (uint32_t i = 0; i < FEW; i++) {
        plan_test_add(tables);
    }
    size_t before = in_use();
    for (uint32_t i = FEW; i < TABLES_MAX; i++) {
        plan_test_add(tables);
    }
    size_t one = (in_use() - before) / (TABLES_MAX - FEW);
    print_message("%zu bytes a table\n", one);
    assert_in_range(one, 0, MOST_BYTES);
}

/* What a table is called, and what its topic is, is its own. */
static void test_equal_tables_keep_their_names(void **state)
{
    struct tables *tables = *state;
    for (uint32_t i = 0; i < 3; i++) {
        const char *event = plan_test_add(tables);
        char want[NAME_MAX_BYTES];
        snprintf(want, sizeof(want), "\"table\":\"t%u\"", i);
        plan_test_assert_has(event, want);
        plan_test_assert_has(
            event, "\"after\":{\"a_column_with_a_name_0\":1,\"a_column_with_a_name_1\":\"1\",");
        snprintf(want, sizeof(want), "srv.public.t%u", i);
        assert_string_equal(tables->records[0].topic->name, want);
    }
    assert_ptr_equal(tables->relations[0]->columns, tables->relations[2]->columns);
}

/* The first is forgotten, and with it nothing that the second has; another type is another
 * layout. */
static void test_what_is_shared_stays_for_the_last(void **state)
{
    struct tables *tables = *state;
    plan_test_add(tables);
    plan_test_add(tables);
    mr_encoder_forget(tables->encoder, tables->relations[0]);
    tables->columns[0].type_oid = 25;
    plan_test_assert_has(plan_test_add(tables), "\"after\":{\"a_column_with_a_name_0\":\"1\",");
    tables->columns[0].type_oid = 23;
    plan_test_assert_has(plan_test_add(tables), "\"after\":{\"a_column_with_a_name_0\":1,");
    assert_ptr_equal(tables->relations[1]->columns, tables->relations[3]->columns);
    assert_ptr_not_equal(tables->relations[1]->columns, tables->relations[2]->columns);
}

/* A rule for one table holds for no other of equal columns. */
static void test_a_rule_is_of_one_table(void **state)
{
    struct tables *tables = *state;
    const struct mr_column_rule rule = {.action = MR_COLUMN_MASK,
                                        .table = {.table = {.text = "t1"}},
                                        .column = {.text = tables->names[1]},
                                        .length = 3};
    tables->options.column_rules.items = &rule;
    tables->options.column_rules.count = 1;
    plan_test_assert_has(plan_test_add(tables), "\"a_column_with_a_name_1\":\"1\",");
    plan_test_assert_has(plan_test_add(tables), "\"a_column_with_a_name_1\":\"***\",");
    plan_test_assert_has(plan_test_add(tables), "\"a_column_with_a_name_1\":\"1\",");
}

/* A key that a stream names is that stream's. */
static void test_a_routing_key_is_of_one_stream(void **state)
{
    struct tables *tables = *state;
    const struct mr_route route = {.schema = "public",
                                   .table = "t1",
                                   .topic = "other",
                                   .key_column = tables->names[2],
                                   .operations = MR_OPERATIONS_ALL};
    tables->options.routes = &route;
    tables->options.route_count = 1;
    static const char *const keys[] = {"{\"a_column_with_a_name_0\":1}",
                                       "{\"a_column_with_a_name_2\":\"1\"}",
                                       "{\"a_column_with_a_name_0\":1}"};
    for (uint32_t i = 0; i < 3; i++) {
        plan_test_add(tables);
        assert_int_equal(tables->records[0].key_len, strlen(keys[i]));
        assert_memory_equal(tables->records[0].key, keys[i], strlen(keys[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_table_more_takes_little, plan_test_setup,
                                        plan_test_teardown),
        cmocka_unit_test_setup_teardown(test_equal_tables_keep_their_names, plan_test_setup,
                                        plan_test_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_shared_stays_for_the_last, plan_test_setup,
                                        plan_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_rule_is_of_one_table, plan_test_setup,
                                        plan_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_routing_key_is_of_one_stream, plan_test_setup,
                                        plan_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
