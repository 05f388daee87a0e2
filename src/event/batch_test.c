#include "event/batch.h"

#include <stdio.h>
#include <string.h>

#include "testing/test.h"

static void append(struct mr_batch *batch, struct mr_buffer *buffer, const char *text)
{
    (void)batch;
    mr_buffer_append(buffer, text, strlen(text));
}

static void test_batch_bytes_and_records_meet(void **state)
{
    (void)state;
    struct mr_pool pool;
    mr_pool_init(&pool, 1, 1024, 4096);
    struct mr_batch *batch = mr_pool_acquire(&pool);
    struct mr_topic topic = {.name = (char *)"t"};
    uint32_t count = 0;
    for (;;) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        const uint8_t *value = buffer.at;
        append(batch, &buffer, "0123456789");
        struct mr_record record = {.topic = &topic, .value = value, .value_len = 10, .xid = count};
        if (buffer.full || !mr_batch_commit(batch, buffer.at, &record, 1)) {
            break;
        }
        count++;
    }
    assert_int_equal(count, 1024 / (10 + sizeof(struct mr_record)));
    assert_int_equal(batch->record_count, count);
    assert_int_equal(mr_batch_used(batch), count * (10 + sizeof(struct mr_record)));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(mr_batch_record(batch, i)->xid, i);
        assert_memory_equal(mr_batch_record(batch, i)->value, "0123456789", 10);
    }
    assert_null(mr_pool_acquire(&pool));
    mr_pool_release(&pool, batch);
    assert_ptr_equal(mr_pool_acquire(&pool), batch);
    assert_int_equal(batch->record_count, 0);
    mr_pool_done(&pool);
}

static void test_grow_up_to_the_maximum_and_back(void **state)
{
    (void)state;
    struct mr_pool pool;
    mr_pool_init(&pool, 2, 1024, 4096);
    struct mr_batch *batch = mr_pool_acquire(&pool);
    assert_true(mr_batch_grow(&pool, batch, 4096));
    assert_int_equal(batch->block_size, 4096);
    mr_pool_release(&pool, batch);
    mr_pool_acquire(&pool);
    batch = mr_pool_acquire(&pool);
    assert_int_equal(batch->block_size, 1024);
    mr_pool_done(&pool);
}

static void test_large_blocks_wait_for_each_other(void **state)
{
    (void)state;
    struct mr_pool pool;
    mr_pool_init(&pool, 3, 1024, 8192);
    pool.large_max = 16384; /* the least: a message and its records, or the records twice */
    struct mr_batch *first = mr_pool_acquire(&pool);
    assert_true(mr_pool_admits(&pool, NULL, 0));
    assert_true(mr_batch_grow(&pool, first, 2048));
    assert_true(mr_pool_admits(&pool, NULL, 0));
    struct mr_batch *second = mr_pool_acquire(&pool);
    assert_true(mr_batch_grow(&pool, second, 4096));
    assert_false(mr_batch_grow(&pool, second, 8192));
    assert_int_equal(second->block_size, 4096); /* as it was */
    assert_false(mr_pool_admits(&pool, NULL, 0));
    mr_pool_release(&pool, first);
    assert_true(mr_batch_grow(&pool, second, 8192)); /* alone it always may */
    assert_int_equal(atomic_load(&pool.grown_bytes), 8192);
    mr_pool_release(&pool, second);
    assert_int_equal(atomic_load(&pool.grown_bytes), 0);
    assert_true(mr_pool_admits(&pool, NULL, 8192));
    mr_pool_done(&pool);
}

static void test_topics_are_interned(void **state)
{
    (void)state;
    struct mr_topics topics = {0};
    char name[16];
    const struct mr_topic *first = mr_topics_intern(&topics, "topic0");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "topic%d", i);
        assert_int_equal(mr_topics_intern(&topics, name)->index, i);
    }
    assert_ptr_equal(mr_topics_intern(&topics, "topic0"), first);
    mr_topics_done(&topics);
}

static void test_topic_of_one_table(void **state)
{
    (void)state;
    struct mr_topics topics = {0};
    const char *other;
    const struct mr_topic *first = mr_topics_claim(&topics, "p.s._", "\"s\".\"a\"", &other);
    assert_null(other);
    assert_ptr_equal(mr_topics_claim(&topics, "p.s._", "\"s\".\"a\"", &other), first);
    assert_null(other);
    assert_ptr_equal(mr_topics_claim(&topics, "p.s._", "\"s\".\"b\"", &other), first);
    assert_string_equal(other, "\"s\".\"a\"");
    assert_ptr_equal(mr_topics_intern(&topics, "p.s._"), first);
    mr_topics_done(&topics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topic_of_one_table),
        cmocka_unit_test(test_batch_bytes_and_records_meet),
        cmocka_unit_test(test_grow_up_to_the_maximum_and_back),
        cmocka_unit_test(test_large_blocks_wait_for_each_other),
        cmocka_unit_test(test_topics_are_interned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
