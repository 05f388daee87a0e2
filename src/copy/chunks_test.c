/* A table that is copied beside a scripted stream, by a scripted reader. */
#include "copy/chunks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "testing/stage.h"
#include "testing/test.h"

enum { OID = 7, ROWS = 40, TRANSACTIONS = 60, COLUMNS_MAX = 2 };

static struct {
    struct mr_stage *stage;
    struct mr_source_ops ops;
    struct mr_column columns[COLUMNS_MAX];
    struct mr_relation relation; /* as the catalog has it */
    uint32_t key[1];
    int waits; /* so many chunks come when the stream has brought a row meanwhile */
    _Atomic int reads;
} reader;

static struct mr_chunk_reader *script_new(struct mr_source *source, int stop_fd)
{
    (void)source;
    (void)stop_fd;
    return (struct mr_chunk_reader *)&reader;
}

static void script_rest(struct mr_chunk_reader *one)
{
    (void)one;
}

static mr_status script_find(struct mr_chunk_reader *one, const char *schema, const char *table,
                             const char *key, struct mr_chunk_table **ret_tables,
                             uint32_t *ret_count, struct mr_error *ret_error)
{
    (void)one;
    (void)key;
    (void)ret_error;
    struct mr_chunk_table *found = MR_NEW_ARRAY(struct mr_chunk_table, 1);
    found->oid = OID;
    snprintf(found->schema, sizeof(found->schema), "%s", schema);
    snprintf(found->table, sizeof(found->table), "%s", table);
    *ret_tables = found;
    *ret_count = 1;
    return MR_OK;
}

static mr_status script_number(struct mr_chunk_reader *one, uint32_t *ret_xid,
                               struct mr_error *ret_error)
{
    (void)one;
    (void)ret_error;
    *ret_xid = 3;
    return MR_OK;
}

/* The rows 1, 2, … of three digits behind the one that is wished. */
static mr_status script_read(struct mr_chunk_reader *one, const struct mr_chunk_wish *wish,
                             struct mr_chunk *chunk, struct mr_error *ret_error)
{
    (void)one;
    (void)ret_error;
    bool waits = atomic_fetch_add(&reader.reads, 1) < reader.waits;
    int seen = atomic_load(&reader.stage->value_count);
    atomic_fetch_add(&reader.stage->gates_open, waits);
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)MR_STAGE_WAIT_S * 1000000000;
    while (waits && atomic_load(&reader.stage->value_count) == seen &&
           mr_monotonic_ns() < limit_ns) {
        poll(NULL, 0, 1);
    }
    int first = wish->after == NULL ? 1 : atoi(wish->after[0]) + 1;
    mr_chunk_done(chunk);
    chunk->relation = &reader.relation;
    chunk->key = MR_NEW_ARRAY(uint32_t, 1);
    chunk->key_count = 1;
    chunk->snapshot = MR_STRDUP("100000:100000:");
    chunk->xmax = 100000;
    chunk->wal_end = 100;
    chunk->bytes = MR_ALLOC((size_t)wish->rows_max * 4);
    uint32_t columns = reader.relation.column_count;
    chunk->values = MR_NEW_ARRAY(struct mr_datum, (size_t)wish->rows_max * columns);
    for (int row = first; row <= ROWS && chunk->rows < wish->rows_max; row++, chunk->rows++) {
        char *text = (char *)chunk->bytes + chunk->len;
        text[0] = (char)('0' + row / 100);
        text[1] = (char)('0' + row / 10 % 10);
        text[2] = (char)('0' + row % 10);
        for (uint32_t i = 0; i < columns; i++) {
            chunk->values[chunk->rows * columns + i] = (struct mr_datum){
                .kind = MR_DATUM_TEXT, .data = chunk->bytes + chunk->len, .len = 3};
        }
        chunk->len += 4;
    }
    chunk->is_last = first + (int)chunk->rows > ROWS;
    return MR_OK;
}

static int setup(void **state)
{
    mr_stage_setup(state);
    struct mr_stage *stage = *state;
    memset(&reader, 0, sizeof(reader));
    reader.stage = stage;
    reader.ops = *stage->source.ops;
    reader.ops.chunks_new = script_new;
    reader.ops.chunks_find = script_find;
    reader.ops.chunks_number = script_number;
    reader.ops.chunks_read = script_read;
    reader.ops.chunks_rest = script_rest;
    reader.ops.chunks_free = script_rest;
    stage->source.ops = &reader.ops;
    stage->relation.oid = OID;
    stage->relation.key_columns = reader.key;
    stage->relation.key_count = 1;
    for (int i = 0; i < COLUMNS_MAX; i++) {
        reader.columns[i] = stage->column;
    }
    reader.columns[1].name = (char *)"large";
    reader.relation = stage->relation;
    reader.relation.columns = reader.columns;
    return 0;
}

/* Transactions of a row each, one for each chunk that is asked for. */
static void start(struct mr_stage *stage)
{
    static struct mr_step steps[4 * TRANSACTIONS + 1];
    steps[0] = (struct mr_step){.kind = MR_STEP_PASSED, .lsn = 100};
    for (int i = 0; i < TRANSACTIONS; i++) {
        mr_lsn lsn = 200 + (mr_lsn)i * 100;
        steps[4 * i + 1] = (struct mr_step){.kind = MR_STEP_GATE, .lsn = (mr_lsn)i + 1};
        steps[4 * i + 2] = (struct mr_step){.kind = MR_STEP_BEGIN, .lsn = lsn};
        steps[4 * i + 3] = (struct mr_step){.kind = MR_STEP_ROW, .v = "020"};
        steps[4 * i + 4] = (struct mr_step){.kind = MR_STEP_COMMIT, .lsn = lsn + 50};
    }
    mr_stage_start(stage, steps, MR_ARRAY_LEN(steps));
}

static void stop(struct mr_stage *stage)
{
    struct mr_error error;
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &error), MR_OK);
}

static struct mr_copy_request copy(struct mr_stage *stage)
{
    uint64_t id;
    struct mr_error error;
    struct mr_copy_wish wish = {.schema = "public", .table = "t"};
    assert_int_equal(mr_pipeline_copy_table(stage->pipeline, &wish, &id, &error), MR_OK);
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)MR_STAGE_WAIT_S * 1000000000;
    for (;;) {
        struct mr_copy_request look;
        bool paused;
        assert_int_equal(mr_pipeline_copy_requests(stage->pipeline, &look, 1, &paused), 1);
        if (look.state >= MR_REQUEST_DONE) {
            return look;
        }
        assert_true(mr_monotonic_ns() < limit_ns);
        poll(NULL, 0, 1);
    }
}

/* The row that the stream has had meanwhile does not go out. */
static void test_rows_go_out_but_for_what_the_stream_had(void **state)
{
    struct mr_stage *stage = *state;
    reader.waits = TRANSACTIONS;
    start(stage);
    struct mr_copy_request end = copy(stage);
    assert_int_equal(end.state, MR_REQUEST_DONE);
    assert_int_equal(end.rows, ROWS - 1);
    assert_int_equal(end.passed_over, 1);
    stop(stage);
}

/* A row that the stream had without all its values, or in one of the table's topics alone, is read again until it is quiet. */
static void assert_all_rows_go_out(struct mr_stage *stage)
{
    reader.waits = 1;
    start(stage);
    struct mr_copy_request end = copy(stage);
    assert_int_equal(end.state, MR_REQUEST_DONE);
    assert_int_equal(end.rows, ROWS);
    assert_int_equal(end.passed_over, 0);
    stop(stage);
}

static void test_row_that_came_without_a_large_value(void **state)
{
    struct mr_stage *stage = *state;
    stage->relation.columns = reader.columns;
    stage->relation.column_count = reader.relation.column_count = COLUMNS_MAX;
    assert_all_rows_go_out(stage);
}

static void test_row_that_came_in_one_of_two_streams(void **state)
{
    static const struct mr_route routes[] = {
        {.schema = "public", .table = "t", .topic = "all", .operations = MR_OPERATIONS_ALL},
        {.schema = "public", .table = "t", .topic = "read", .operations = 1u << MR_OP_READ}};
    struct mr_stage *stage = *state;
    stage->encode_options.routes = routes;
    stage->encode_options.route_count = MR_ARRAY_LEN(routes);
    mr_stage_renew_encoder(stage);
    assert_all_rows_go_out(stage);
}

/* Where stream and catalog never agree, the copy ends and says so; where they do in time, it goes on. */
static void test_a_form_that_never_agrees(void **state)
{
    struct mr_stage *stage = *state;
    reader.waits = TRANSACTIONS;
    reader.columns[0].type_oid = 23;
    start(stage);
    struct mr_copy_request end = copy(stage);
    assert_int_equal(end.state, MR_REQUEST_FAILED);
    assert_non_null(strstr(end.error, "public.t"));
    assert_true(atomic_load(&reader.reads) >= 20 && atomic_load(&reader.reads) < TRANSACTIONS);
    stop(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_go_out_but_for_what_the_stream_had, setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_row_that_came_without_a_large_value, setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_row_that_came_in_one_of_two_streams, setup,
                                        mr_stage_teardown),
        cmocka_unit_test_setup_teardown(test_a_form_that_never_agrees, setup, mr_stage_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
