#include "event/batch.h"

#include <stdio.h>
#include <string.h>

#include "testing/test.h"

static void batch_test_append(struct mr_batch *batch, struct mr_buffer *buffer, const char *text)
{
    (void)batch;
    mr_buffer_append(buffer, text, strlen(text));
}

static void test_batch_bytes_and_records_meet(void **state)
{
    (void)state;
    struct mr_pool pool;
    mr_pool_init(&pool, 1, 1, 1024, 4096);
    struct mr_batch *batch = mr_pool_acquire(&pool);
    struct mr_topic topic = {.name = (char *)"t"};
    uint32_t count = 0;
    for (;;) {
        struct mr_buffer buffer = mr_batch_buffer(batch);
        const uint8_t *value = buffer.at;
        batch_test_append(batch, &buffer, "0123456789");
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
    mr_pool_init(&pool, 2, 2, 1024, 4096);
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
    mr_pool_init(&pool, 3, 3, 1024, 8192);
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

/* A pool of 4 that may have 12, and 8 blocks more within what is left of large ones. */
static void open_lending_pool(struct mr_pool *pool)
{
    mr_pool_init(pool, 4, 12, 1024, 8192);
    pool->large_max = 8192 + 4 * 1024 * 8;
    mr_pool_lend(pool, 3);
}

static uint32_t acquire_all(struct mr_pool *pool, struct mr_batch **batches)
{
    uint32_t count = 0;
    while (mr_pool_has_batch(pool, 0)) {
        batches[count++] = mr_pool_acquire(pool);
    }
    assert_null(mr_pool_acquire(pool));
    return count;
}

static void test_lends_while_it_may_and_takes_back(void **state)
{
    struct mr_pool pool;
    struct mr_batch *batches[12];
    mr_pool_init(&pool, 4, 12, 1024, 8192);
    assert_int_equal(acquire_all(&pool, batches), 4); /* near by */
    mr_pool_lend(&pool, 2);
    assert_int_equal(acquire_all(&pool, batches + 4), 4);
    mr_pool_lend(&pool, 16);
    assert_int_equal(acquire_all(&pool, batches + 8), 4); /* no more than there are */
    assert_int_equal(atomic_load(&pool.arena_bytes), 12 * 1024);
    for (uint32_t i = 0; i < 12; i++) {
        mr_pool_release(&pool, batches[i]);
    }
    assert_true(atomic_load(&pool.lent) < 8); /* most were free */
    mr_pool_lend(&pool, 1);
    for (uint32_t i = 0; i < 12; i++) {
        mr_pool_release(&pool, mr_pool_acquire(&pool));
    }
    assert_int_equal(atomic_load(&pool.lent), 0);
    assert_int_equal(atomic_load(&pool.arena_bytes), 4 * 1024);
    assert_int_equal(acquire_all(&pool, batches), 4);
    mr_pool_done(&pool);
}

/* Also where none are free. */
static void test_shrinks_once_it_may_lend_less(void **state)
{
    struct mr_pool pool;
    struct mr_batch *batches[12];
    mr_pool_init(&pool, 4, 12, 1024, 8192);
    mr_pool_lend(&pool, 3);
    assert_int_equal(acquire_all(&pool, batches), 12);
    mr_pool_lend(&pool, 1);
    for (uint32_t i = 0; i < 8; i++) {
        mr_pool_release(&pool, batches[i]);
        assert_null(mr_pool_acquire(&pool));
    }
    assert_int_equal(atomic_load(&pool.lent), 0);
    assert_int_equal(atomic_load(&pool.arena_bytes), 4 * 1024);
    for (uint32_t i = 8; i < 12; i++) {
        mr_pool_release(&pool, batches[i]);
    }
    assert_int_equal(acquire_all(&pool, batches), 4);
    mr_pool_done(&pool);
}

static void test_leaves_some_to_others(void **state)
{
    struct mr_pool pool;
    mr_pool_init(&pool, 4, 12, 1024, 8192);
    assert_true(mr_pool_has_batch(&pool, 3));
    struct mr_batch *batch = mr_pool_acquire(&pool);
    assert_false(mr_pool_has_batch(&pool, 3));
    assert_true(mr_pool_has_batch(&pool, 2));
    mr_pool_lend(&pool, 2);
    assert_true(mr_pool_has_batch(&pool, 3)); /* what is lent is nobody's */
    mr_pool_release(&pool, batch);
    mr_pool_done(&pool);
}

static void test_lends_within_what_large_blocks_leave(void **state)
{
    struct mr_pool pool;
    struct mr_batch *batches[12];
    open_lending_pool(&pool);
    pool.large_max -= 4 * 1024 * 3;
    struct mr_batch *large = mr_pool_acquire(&pool);
    assert_true(mr_batch_grow(&pool, large, 4096));
    assert_int_equal(acquire_all(&pool, batches), 3 + 3); /* 5, if not for twice the large one */
    mr_pool_done(&pool);
}

static void test_a_large_block_calls_in_what_is_lent(void **state)
{
    struct mr_pool pool;
    struct mr_batch *batches[12];
    open_lending_pool(&pool);
    assert_int_equal(acquire_all(&pool, batches), 12);
    mr_pool_release(&pool, batches[1]); /* is free, */
    assert_false(mr_batch_grow(&pool, batches[0], 8192));
    assert_int_equal(atomic_load(&pool.lent), 7); /* and goes at once */
    assert_false(mr_pool_has_batch(&pool, 0));    /* nobody else gets one now */
    mr_pool_release(&pool, batches[2]);
    assert_int_equal(atomic_load(&pool.lent), 6);
    assert_true(mr_batch_grow(&pool, batches[0], 8192));
    mr_pool_release(&pool, batches[0]);
    assert_int_equal(acquire_all(&pool, batches), 1 + 2); /* it lends again */
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

/* What a topic has refused is not asked again for a while; of times that lie ever nearer to the
 * commit only the first is. */
static void test_topic_refuses(void **state)
{
    (void)state;
    struct mr_topic topic = {.name = (char *)"t"};
    const int64_t now_ns = INT64_C(1000000000000), later_ns = now_ns + INT64_C(61000000000);
    assert_false(mr_topic_refuses_time(&topic, 5, 1000, now_ns));
    assert_true(mr_topic_refuse(&topic, 5, 1000, now_ns));
    assert_false(mr_topic_refuse(&topic, 6, 1000, now_ns)); /* it came all the same */
    assert_true(mr_topic_refuses_time(&topic, 6, 2000, now_ns));
    assert_false(mr_topic_refuses_time(&topic, 6, 900, now_ns));
    assert_false(mr_topic_refuses_keyless(&topic, 6, now_ns));
    assert_true(mr_topic_refuse(&topic, 6, 900, now_ns));
    assert_true(mr_topic_refuses_time(&topic, 7, 800, now_ns));
    assert_false(mr_topic_refuses_time(&topic, 7, 800, later_ns));
    assert_true(mr_topic_refuses_time(&topic, 6, 800, later_ns)); /* the same record again */
    assert_true(mr_topic_refuse(&topic, 8, 0, later_ns));
    assert_true(mr_topic_refuses_keyless(&topic, 9, later_ns));
    assert_false(mr_topic_refuses_time(&topic, 9, 2000, later_ns));
}

/* What is more than a topic says it takes is refused where it does not fit as it is sent either; of
 * what the topic takes less than it says, a few refusals tell. */
static void test_topic_refuses_bytes(void **state)
{
    (void)state;
    struct mr_topic topic = {.name = (char *)"t"};
    const int64_t now_ns = INT64_C(1000000000000), later_ns = now_ns + INT64_C(61000000000);
    assert_int_equal(mr_topic_refuses_sent(&topic, 5, now_ns), 0);
    assert_true(mr_topic_refuse_bytes(&topic, 5, 6400, 0, now_ns)); /* one of several */
    assert_int_equal(topic.bytes_max, 6400);
    assert_int_equal(mr_topic_refuses_sent(&topic, 6, now_ns), 6400 + 100 + 64);
    assert_false(mr_topic_refuse_bytes(&topic, 6, 6400, 0, now_ns));
    assert_false(mr_topic_refuse_bytes(&topic, 6, 6400, 9000, now_ns)); /* it came all the same */
    assert_true(mr_topic_refuse_bytes(&topic, 6, 6400, 6500, now_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 6, now_ns), 6401);
    assert_true(mr_topic_refuse_bytes(&topic, 6, 6400, 6000, now_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 6, now_ns), 6000);
    assert_true(mr_topic_refuse_bytes(&topic, 6, 6400, 5999, now_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 6, now_ns), 4500);
    assert_true(mr_topic_refuse_bytes(&topic, 6, 3000, 0, now_ns)); /* it takes less by now */
    assert_int_equal(topic.bytes_max, 3000);
    assert_false(mr_topic_refuses_keyless(&topic, 6, now_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 7, later_ns), 0);
    assert_int_equal(mr_topic_refuses_sent(&topic, 6, later_ns), 4500); /* the same again */
    assert_true(mr_topic_refuse_bytes(&topic, 7, 6400, 7000, later_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 8, later_ns), 6564);
    assert_int_equal(topic.bytes_max, 6400);
    assert_true(mr_topic_refuse(&topic, 9, 0, later_ns));
    assert_int_equal(mr_topic_refuses_sent(&topic, 9, later_ns), 6564);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topic_refuses_bytes),
        cmocka_unit_test(test_topic_refuses),
        cmocka_unit_test(test_topic_of_one_table),
        cmocka_unit_test(test_batch_bytes_and_records_meet),
        cmocka_unit_test(test_grow_up_to_the_maximum_and_back),
        cmocka_unit_test(test_large_blocks_wait_for_each_other),
        cmocka_unit_test(test_lends_while_it_may_and_takes_back),
        cmocka_unit_test(test_shrinks_once_it_may_lend_less),
        cmocka_unit_test(test_leaves_some_to_others),
        cmocka_unit_test(test_lends_within_what_large_blocks_leave),
        cmocka_unit_test(test_a_large_block_calls_in_what_is_lent),
        cmocka_unit_test(test_topics_are_interned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
