/* A table that is copied beside a scripted stream, by a scripted reader. */
#include "copy/copies.h"

#include <cjson/cJSON.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "flow/port.h"
#include "testing/stage.h"
#include "testing/test.h"

enum { OID = 7, ROWS = 40, TRANSACTIONS = 60, COLUMNS_MAX = 2 };

static struct {
    struct mr_stage *stage;
    struct mr_copy_server server;
    struct mr_copies *copies;
    struct mr_companion *companions[2]; /* the chunks, and another one */
    struct mr_column columns[COLUMNS_MAX];
    struct mr_relation relation; /* as the catalog has it */
    uint32_t key[1];
    int absent; /* a row that is not there */
    int waits;  /* so many chunks come when the stream has brought a row meanwhile */
    _Atomic int reads;
} reader;

static struct mr_chunk_reader *chunks_test_script_new(void *context, int stop_fd)
{
    (void)context;
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

/* Appends a row of three digits. */
static void chunks_test_add_row(struct mr_chunk *chunk, int row)
{
    uint32_t columns = reader.relation.column_count;
    char *text = (char *)chunk->bytes + chunk->len;
    text[0] = (char)('0' + row / 100);
    text[1] = (char)('0' + row / 10 % 10);
    text[2] = (char)('0' + row % 10);
    for (uint32_t i = 0; i < columns; i++) {
        chunk->values[chunk->rows * columns + i] =
            (struct mr_datum){.kind = MR_DATUM_TEXT, .data = chunk->bytes + chunk->len, .len = 3};
    }
    chunk->len += 4;
    chunk->rows++;
}

/* Two of the keys. */
static void chunks_test_read_keys(const struct mr_chunk_wish *wish, struct mr_chunk *chunk)
{
    uint32_t at = wish->keys_from;
    chunk->keys_from = at;
    chunk->absent = MR_NEW_ARRAY(bool, 2);
    for (; at < wish->keys->count && chunk->rows < 2; at++) {
        int row = atoi(mr_chunk_key(wish->keys, at)[0]);
        chunk->absent[chunk->rows] = row > ROWS || row == reader.absent;
        chunks_test_add_row(chunk, row);
    }
    chunk->is_last = at == wish->keys->count;
}

/* The rows 1, 2, … of three digits after the one that is wished. */
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
    chunk->wal_end = 100;
    chunk->bytes = MR_ALLOC((size_t)wish->rows_max * 4);
    uint32_t columns = reader.relation.column_count;
    chunk->values = MR_NEW_ARRAY(struct mr_datum, (size_t)wish->rows_max * columns);
    if (wish->keys != NULL) {
        chunks_test_read_keys(wish, chunk);
        return MR_OK;
    }
    for (int row = first; row <= ROWS && chunk->rows < wish->rows_max; row++) {
        chunks_test_add_row(chunk, row);
    }
    chunk->is_last = first + (int)chunk->rows > ROWS;
    return MR_OK;
}

static int chunks_test_setup(void **state)
{
    mr_stage_setup(state);
    struct mr_stage *stage = *state;
    memset(&reader, 0, sizeof(reader));
    reader.stage = stage;
    static const struct mr_chunk_ops ops = {.new = chunks_test_script_new,
                                            .find = script_find,
                                            .number = script_number,
                                            .read = script_read,
                                            .rest = script_rest,
                                            .free = script_rest};
    reader.server.chunks = &ops;
    struct mr_copies_options options = {.server = &reader.server, .change_bytes_max = 65536};
    uint32_t count;
    reader.copies = mr_copies_new(&options);
    reader.companions[0] = mr_copies_companions(reader.copies, &count)[0];
    assert_int_equal(count, 1);
    stage->options.companions = reader.companions;
    stage->options.companion_count = 1;
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

static int chunks_test_teardown(void **state)
{
    int status = mr_stage_teardown(state);
    mr_copies_free(reader.copies);
    return status;
}

/* Transactions of a row each, one for each chunk that is asked for. */
static void chunks_test_start(struct mr_stage *stage)
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

static void chunks_test_stop(struct mr_stage *stage)
{
    struct mr_error error;
    mr_pipeline_stop(stage->pipeline);
    assert_int_equal(mr_pipeline_join(stage->pipeline, &error), MR_OK);
}

static struct mr_copy_request copy_of(struct mr_chunk_keys *keys)
{
    uint64_t id;
    struct mr_error error;
    struct mr_copy_wish wish = {.schema = "public", .table = "t", .keys = keys};
    assert_int_equal(mr_copies_ask(reader.copies, &wish, &id, &error), MR_OK);
    int64_t limit_ns = mr_monotonic_ns() + (int64_t)MR_STAGE_WAIT_S * 1000000000;
    for (;;) {
        struct mr_copy_request looks[4];
        bool paused;
        uint32_t count = mr_copies_requests(reader.copies, looks, MR_ARRAY_LEN(looks), &paused);
        assert_true(count > 0);
        struct mr_copy_request look = looks[count - 1];
        if (look.state >= MR_REQUEST_DONE) {
            return look;
        }
        assert_true(mr_monotonic_ns() < limit_ns);
        poll(NULL, 0, 1);
    }
}

static struct mr_copy_request chunks_test_copy(void)
{
    return copy_of(NULL);
}

/* The row that the stream has had meanwhile does not go out. */
static void test_rows_go_out_but_for_what_the_stream_had(void **state)
{
    struct mr_stage *stage = *state;
    reader.waits = TRANSACTIONS;
    chunks_test_start(stage);
    struct mr_copy_request end = chunks_test_copy();
    assert_int_equal(end.state, MR_REQUEST_DONE);
    assert_int_equal(end.rows, ROWS - 1);
    assert_int_equal(end.passed_over, 1);
    chunks_test_stop(stage);
}

/* Those that are there, or of phantoms those that are not; and never what the stream has had
 * meanwhile, which brings 020. */
static void test_keys_are_repaired(void **state)
{
    static const struct {
        const char *text;
        uint64_t rows, passed_over;
    } cases[] = {
        {"{\"why\":\"missing\",\"columns\":[\"v\"],\"keys\":[[\"003\"],[\"020\"],[\"999\"]]}", 1,
         2},
        {"{\"why\":\"stale\",\"columns\":[\"v\"],\"keys\":[[\"001\"],[\"002\"],[\"003\"]]}", 3, 0},
        {"{\"why\":\"stale\",\"columns\":[\"v\"],\"keys\":[[\"001\"],[\"002\"],[\"003\"],[\"004\"],"
         "[\"005\"]]}",
         5, 0},
        {"{\"why\":\"phantom\",\"columns\":[\"v\"],\"keys\":[[\"003\"],[\"020\"],[\"999\"]]}", 1,
         2},
    };
    struct mr_stage *stage = *state;
    reader.waits = TRANSACTIONS;
    reader.absent = 20;
    chunks_test_start(stage);
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        cJSON *object = cJSON_Parse(cases[i].text);
        struct mr_copy_request end = copy_of(mr_chunk_keys_parse(object));
        cJSON_Delete(object);
        assert_int_equal(end.state, MR_REQUEST_DONE);
        assert_int_equal(end.rows, cases[i].rows);
        assert_int_equal(end.passed_over, cases[i].passed_over);
        assert_int_equal(end.rows_estimated, cases[i].rows + cases[i].passed_over);
        assert_int_equal(end.chunks, (end.rows_estimated + 1) / 2);
    }
    chunks_test_stop(stage);
}

/* A row that the stream had without all its values, or in one of the table's topics alone, is read
 * again until it is quiet. */
static void assert_all_rows_go_out(struct mr_stage *stage)
{
    reader.waits = 1;
    chunks_test_start(stage);
    struct mr_copy_request end = chunks_test_copy();
    assert_int_equal(end.state, MR_REQUEST_DONE);
    assert_int_equal(end.rows, ROWS);
    assert_int_equal(end.passed_over, 0);
    chunks_test_stop(stage);
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

/* What was read before another table took the name would take the place of its rows. */
static void test_a_table_that_takes_the_name_meanwhile(void **state)
{
    struct mr_stage *stage = *state;
    stage->relation.oid = OID + 1;
    assert_all_rows_go_out(stage);
    assert_int_equal(atomic_load(&reader.reads), 2);
}

/* Where stream and catalog never agree, the copy ends and says so; where they do in time, it goes
 * on. */
static void test_a_form_that_never_agrees(void **state)
{
    struct mr_stage *stage = *state;
    reader.waits = TRANSACTIONS;
    reader.columns[0].type_oid = 23;
    chunks_test_start(stage);
    struct mr_copy_request end = chunks_test_copy();
    assert_int_equal(end.state, MR_REQUEST_FAILED);
    assert_non_null(strstr(end.error, "public.t"));
    assert_true(atomic_load(&reader.reads) >= 20 && atomic_load(&reader.reads) < TRANSACTIONS);
    chunks_test_stop(stage);
}

/* Counts the changes that are safe. */
static struct {
    struct mr_companion base;
    uint64_t changes, noted; /* appended, and those that a step was given for; source thread */
    pthread_mutex_t lock;
    uint64_t step, count; /* the step, and what it stands for */
    _Atomic uint64_t safe, stored, adopted, sealed;
} counter;

static mr_status counter_between(struct mr_companion *companion)
{
    atomic_store(&companion->wants, false);
    mr_port_watch(companion, true);
    return MR_OK;
}

static void counter_change(struct mr_companion *companion, const struct mr_change *change,
                           bool is_new)
{
    (void)companion;
    (void)change;
    counter.changes += is_new;
}

static void counter_sealed(struct mr_companion *companion, uint32_t lane, bool has_item)
{
    (void)has_item;
    assert_int_equal(lane, MR_LANE_STREAM);
    pthread_mutex_lock(&counter.lock);
    counter.step = mr_port_note(companion->port->stream);
    counter.count = counter.changes;
    pthread_mutex_unlock(&counter.lock);
    atomic_fetch_add(&counter.sealed, 1);
}

static void counter_safe(struct mr_companion *companion, uint32_t lane, uint64_t step)
{
    (void)companion;
    (void)lane;
    pthread_mutex_lock(&counter.lock);
    if (step == counter.step) {
        atomic_store(&counter.safe, counter.count);
    }
    pthread_mutex_unlock(&counter.lock);
}

/* The chunks' section is there already: companions are called in their order. */
static void counter_section(struct mr_companion *companion, const struct mr_reach *reach,
                            struct mr_checkpoint *checkpoint)
{
    (void)companion;
    char text[32];
    assert_true(reach->lanes == 1 && checkpoint->section_count <= 1);
    snprintf(text, sizeof(text), "%u", (unsigned)atomic_load(&counter.safe));
    mr_checkpoint_add(checkpoint, "counter", MR_STRDUP(text),
                      &(struct mr_section_rank){.minor = atomic_load(&counter.safe)});
}

static void counter_stored(struct mr_companion *companion)
{
    (void)companion;
    atomic_fetch_add(&counter.stored, 1);
}

static void counter_adopt(struct mr_companion *companion, const struct mr_checkpoint *stored)
{
    const struct mr_section *section = mr_checkpoint_section(stored, "counter");
    atomic_fetch_add(&counter.adopted, section == NULL ? 0 : strtoull(section->json, NULL, 10));
    mr_port_want(companion);
}

static bool counter_is_stored(const struct mr_stage *stage, long value)
{
    struct mr_stage *locked = (struct mr_stage *)(uintptr_t)stage;
    pthread_mutex_lock(&locked->lock);
    const struct mr_section *section = mr_checkpoint_section(&stage->stored, "counter");
    bool is_stored = section != NULL && strtol(section->json, NULL, 10) >= value &&
                     mr_checkpoint_section(&stage->stored, "asked") != NULL;
    pthread_mutex_unlock(&locked->lock);
    return is_stored;
}

/* Both get what they want of the stream, note steps in the same batches, and have their sections in
 * one record. */
static void test_two_companions_in_one_flow(void **state)
{
    static const struct mr_companion_ops ops = {.name = "counter",
                                                .between = counter_between,
                                                .change = counter_change,
                                                .sealed = counter_sealed,
                                                .adopt = counter_adopt,
                                                .safe = counter_safe,
                                                .section = counter_section,
                                                .stored = counter_stored};
    struct mr_stage *stage = *state;
    memset(&counter, 0, sizeof(counter));
    counter.base.ops = &ops;
    pthread_mutex_init(&counter.lock, NULL);
    reader.companions[1] = &counter.base;
    stage->options.companion_count = 2;
    stage->sink.storage = MR_STORES_AFTER;
    stage->stored_found = true;
    mr_checkpoint_add(&stage->stored, "counter", MR_STRDUP("5"), &(struct mr_section_rank){0});
    reader.waits = TRANSACTIONS;
    chunks_test_start(stage);
    struct mr_copy_request end = chunks_test_copy();
    assert_int_equal(end.state, MR_REQUEST_DONE); /* and so it is stored */
    assert_int_equal(end.rows, ROWS - 1);
    assert_true(mr_copies_is_stored(reader.copies));
    uint64_t rows = (uint64_t)atomic_load(&stage->gates_open);
    assert_true(rows > 0);
    mr_stage_wait(stage, counter_is_stored, (long)rows);
    assert_int_equal(atomic_load(&counter.adopted), 5);
    assert_true(atomic_load(&counter.sealed) > 0 && atomic_load(&counter.stored) > 0);
    chunks_test_stop(stage);
    assert_int_equal(counter.changes, rows); /* rows of chunks are not changes of the stream */
    pthread_mutex_destroy(&counter.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_go_out_but_for_what_the_stream_had,
                                        chunks_test_setup, chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_keys_are_repaired, chunks_test_setup,
                                        chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_row_that_came_without_a_large_value, chunks_test_setup,
                                        chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_row_that_came_in_one_of_two_streams, chunks_test_setup,
                                        chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_table_that_takes_the_name_meanwhile,
                                        chunks_test_setup, chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_a_form_that_never_agrees, chunks_test_setup,
                                        chunks_test_teardown),
        cmocka_unit_test_setup_teardown(test_two_companions_in_one_flow, chunks_test_setup,
                                        chunks_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
