#include "event/schemas.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "testing/test.h"

enum { BLOCK = 4096 };

/* A batch with a record for each schema, key and value of the same. */
static struct mr_batch *schemas_test_fill(struct mr_pool *pool, const uint32_t *indexes,
                                          uint32_t count)
{
    struct mr_batch *batch = mr_pool_acquire(pool);
    for (uint32_t i = 0; i < count; i++) {
        struct mr_buffer out = mr_batch_buffer(batch);
        struct mr_record record = {.key = out.at,
                                   .key_len = MR_SCHEMA_FRAME_LEN,
                                   .key_content = MR_CONTENT_FRAMED,
                                   .value_content = MR_CONTENT_FRAMED};
        mr_schema_frame(&out, indexes[i]);
        record.value = out.at;
        mr_schema_frame(&out, indexes[i]);
        MR_BUFFER_LITERAL(&out, "\xFFvalue");
        record.value_len = (uint32_t)(out.at - record.value);
        assert_true(mr_batch_commit(batch, out.at, &record, 1));
    }
    return batch;
}

static void assert_frame(const uint8_t *bytes, const char *want)
{
    assert_memory_equal(bytes, want, MR_SCHEMA_FRAME_LEN);
}

static void test_a_schema_has_one_index(void **state)
{
    (void)state;
    struct mr_schemas *schemas = mr_schemas_new();
    assert_int_equal(mr_schemas_intern(schemas, "a", MR_SLICE("x")), 0);
    assert_int_equal(mr_schemas_intern(schemas, "a", MR_SLICE("y")), 1);
    assert_int_equal(mr_schemas_intern(schemas, "b", MR_SLICE("x")), 2);
    assert_int_equal(mr_schemas_intern(schemas, "a", MR_SLICE("x")), 0);
    mr_schemas_free(schemas);
}

static void test_a_batch_waits_for_all_of_its_ids(void **state)
{
    (void)state;
    struct mr_error error;
    struct mr_pool pool;
    mr_pool_init(&pool, 1, 1, BLOCK, BLOCK);
    struct mr_schemas *schemas = mr_schemas_new();
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mr_schemas_set_wake(schemas, wake);
    uint32_t indexes[] = {mr_schemas_intern(schemas, "a", MR_SLICE("x")),
                          mr_schemas_intern(schemas, "b", MR_SLICE("x"))};
    struct mr_batch *batch = schemas_test_fill(&pool, indexes, 2);
    uint64_t told = 0;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_schemas_resolve(schemas, batch, &error), MR_FULL);
        assert_frame(mr_batch_record(batch, 0)->key,
                     "\xFF\0\0\0\0"); /* nor is half of it written */
        assert_int_equal(mr_schemas_wait(schemas, 0)->index, i);
        assert_true(mr_schemas_set_id(schemas, i, 0x01020304 + (int32_t)i));
        assert_int_equal(read(wake, &told, sizeof(told)), sizeof(told));
    }
    assert_null(mr_schemas_wait(schemas, 0));
    for (int again = 0; again < 2; again++) {
        assert_int_equal(mr_schemas_resolve(schemas, batch, &error), MR_OK);
        assert_frame(mr_batch_record(batch, 0)->value, "\0\1\2\3\4");
        assert_frame(mr_batch_record(batch, 1)->key, "\0\1\2\3\5");
        assert_memory_equal(mr_batch_record(batch, 1)->value + MR_SCHEMA_FRAME_LEN, "\xFFvalue", 6);
    }
    close(wake);
    mr_schemas_free(schemas);
    mr_pool_done(&pool);
}

static void test_a_refused_schema_ends_it(void **state)
{
    (void)state;
    struct mr_error error;
    struct mr_pool pool;
    mr_pool_init(&pool, 1, 1, BLOCK, BLOCK);
    struct mr_schemas *schemas = mr_schemas_new();
    uint32_t index = mr_schemas_intern(schemas, "a", MR_SLICE("x"));
    struct mr_batch *batch = schemas_test_fill(&pool, &index, 1);
    mr_schemas_set_fault(schemas, index, "why");
    assert_null(mr_schemas_wait(schemas, 0)); /* it is not asked for again */
    assert_int_equal(mr_schemas_resolve(schemas, batch, &error), MR_ERR_CONFIG);
    assert_string_equal(error.text, "why");
    mr_schemas_free(schemas);
    mr_pool_done(&pool);
}

/* A registry that was emptied counts from 1 again. Of one text the id is the same under each
 * subject. */
static void test_an_id_is_of_one_schema(void **state)
{
    (void)state;
    struct mr_error error;
    struct mr_pool pool;
    mr_pool_init(&pool, 1, 1, BLOCK, BLOCK);
    struct mr_schemas *schemas = mr_schemas_new();
    uint32_t first = mr_schemas_intern(schemas, "a", MR_SLICE("x"));
    uint32_t again = mr_schemas_intern(schemas, "b", MR_SLICE("x"));
    uint32_t other = mr_schemas_intern(schemas, "c", MR_SLICE("y"));
    assert_true(mr_schemas_set_id(schemas, first, 7));
    assert_true(mr_schemas_set_id(schemas, again, 7));
    assert_false(mr_schemas_set_id(schemas, other, 7));
    assert_null(mr_schemas_wait(schemas, 0));
    struct mr_batch *batch = schemas_test_fill(&pool, &other, 1);
    assert_int_equal(mr_schemas_resolve(schemas, batch, &error), MR_ERR_CONFIG);
    assert_non_null(strstr(error.text, "subject \"c\" the id 7"));
    assert_frame(mr_batch_record(batch, 0)->value, "\xFF\0\0\0\2");
    mr_schemas_free(schemas);
    mr_pool_done(&pool);
}

static void test_an_end_ends_waits(void **state)
{
    (void)state;
    struct mr_schemas *schemas = mr_schemas_new();
    mr_schemas_intern(schemas, "a", MR_SLICE("x"));
    assert_false(mr_schemas_ended(schemas));
    mr_schemas_end(schemas);
    assert_null(mr_schemas_wait(schemas, UINT32_MAX));
    mr_schemas_pause(schemas, UINT32_MAX);
    assert_true(mr_schemas_ended(schemas));
    mr_schemas_free(schemas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_schema_has_one_index),
        cmocka_unit_test(test_a_batch_waits_for_all_of_its_ids),
        cmocka_unit_test(test_a_refused_schema_ends_it),
        cmocka_unit_test(test_an_id_is_of_one_schema),
        cmocka_unit_test(test_an_end_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
