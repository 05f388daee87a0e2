#include "base/ring.h"

#include <pthread.h>
#include <sched.h>

#include "testing/test.h"

enum { ITEMS = 200000 };

static void test_push_pop_in_order_and_full(void **state)
{
    (void)state;
    struct mr_ring ring;
    mr_ring_init(&ring, 3); /* rounded up to 4 */
    int items[8];
    assert_null(mr_ring_pop(&ring));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 4; i++) {
            assert_true(mr_ring_push(&ring, &items[i]));
        }
        assert_false(mr_ring_push(&ring, &items[4]));
        assert_int_equal(mr_ring_count(&ring), 4);
        for (int i = 0; i < 4; i++) {
            assert_ptr_equal(mr_ring_pop(&ring), &items[i]);
        }
        assert_null(mr_ring_pop(&ring));
    }
    mr_ring_done(&ring);
}

static void *ring_test_produce(void *context)
{
    struct mr_ring *ring = context;
    for (uintptr_t i = 1; i <= ITEMS; i++) {
        while (!mr_ring_push(ring, (void *)i)) {
            sched_yield();
        }
    }
    return NULL;
}

static void test_two_threads_keep_order(void **state)
{
    (void)state;
    struct mr_ring ring;
    mr_ring_init(&ring, 16);
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, ring_test_produce, &ring), 0);
    for (uintptr_t want = 1; want <= ITEMS;) {
        void *item = mr_ring_pop(&ring);
        if (item == NULL) {
            sched_yield();
            continue;
        }
        assert_int_equal((uintptr_t)item, want);
        want++;
    }
    pthread_join(producer, NULL);
    mr_ring_done(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push_pop_in_order_and_full),
        cmocka_unit_test(test_two_threads_keep_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
