#include "base/index.h"

#include <stdlib.h>

#include "base/hash.h"
#include "testing/test.h"

enum { MANY = 20000 };

static uint32_t index_test_find(const struct mr_index *index, const uint64_t *keys, uint64_t hash,
                                uint64_t key)
{
    uint32_t at = 0;
    uint32_t number;
    do {
        number = mr_index_next(index, hash, &at);
    } while (number != MR_INDEX_NONE && keys[number] != key);
    return number;
}

/* As OIDs and addresses come: near each other, in steps of powers of two, scattered, and alike in
 * the lower half. */
static uint64_t spread(uint32_t kind, uint32_t i)
{
    const uint64_t kinds[] = {16384 + i, (uint64_t)i << 16, i * UINT64_C(0x2545f4914f6cdd1d),
                              (uint64_t)i << 40};
    return kinds[kind];
}

static void test_find_each_and_no_other(void **state)
{
    (void)state;
    static uint64_t keys[MANY];
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct mr_index index = {0};
        assert_int_equal(index_test_find(&index, keys, 1, 1), MR_INDEX_NONE);
        for (uint32_t i = 0; i < MANY; i++) {
            keys[i] = spread(kind, i);
            assert_int_equal(mr_index_add(&index, keys[i]), i);
        }
        uint32_t looked_at = 0;
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(index_test_find(&index, keys, keys[i], keys[i]), i);
            uint32_t at = 0;
            while (mr_index_next(&index, keys[i], &at) != i) {
            }
            looked_at += at;
            uint64_t absent = spread(kind, MANY + i);
            assert_int_equal(index_test_find(&index, keys, absent, absent), MR_INDEX_NONE);
        }
        assert_true(looked_at < 2 * MANY); /* the same on every machine */
        mr_index_done(&index);
        assert_int_equal(index.count, 0);
    }
}

static void test_find_among_equal_hashes(void **state)
{
    (void)state;
    enum { FEW = 300 };
    uint64_t keys[FEW];
    struct mr_index index = {0};
    for (uint32_t i = 0; i < FEW; i++) {
        keys[i] = i;
        mr_index_add(&index, 7);
    }
    for (uint32_t i = 0; i < FEW; i++) {
        assert_int_equal(index_test_find(&index, keys, 7, i), i);
    }
    assert_int_equal(index_test_find(&index, keys, 7, FEW), MR_INDEX_NONE);
    assert_int_equal(index_test_find(&index, keys, 8, 0), MR_INDEX_NONE);
    mr_index_done(&index);
}

static void test_reserve_and_clear_ask_for_no_memory(void **state)
{
    (void)state;
    static uint64_t keys[MANY];
    struct mr_index index = {0};
    mr_index_clear(&index);
    mr_index_reserve(&index, MANY);
    uint64_t before = mr_alloc_count();
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < MANY; i++) {
            keys[i] = mr_hash_number(round, i);
            assert_int_equal(mr_index_add(&index, keys[i]), i);
        }
        assert_int_equal(index_test_find(&index, keys, keys[MANY / 2], keys[MANY / 2]), MANY / 2);
        mr_index_clear(&index);
        assert_int_equal(index_test_find(&index, keys, keys[MANY / 2], keys[MANY / 2]),
                         MR_INDEX_NONE);
    }
    assert_int_equal(mr_alloc_count(), before);
    mr_index_reserve(&index, index.size / 2 + 1);
    assert_true(mr_alloc_count() > before);
    mr_index_done(&index);
}

static void test_grow_keeps_what_is_there(void **state)
{
    (void)state;
    uint32_t *numbers = NULL;
    uint32_t room = 0;
    uint64_t before = mr_alloc_count();
    for (uint32_t i = 0; i < MANY; i++) {
        MR_GROW(numbers, room, i + 1);
        assert_true(room > i);
        numbers[i] = i;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(numbers[i], i);
    }
    assert_true(mr_alloc_count() - before < 16);
    free(numbers);
}

/* With the sanitizers: no item is no array. */
static void test_sort_and_search_nothing(void **state)
{
    (void)state;
    const uint64_t key = 1;
    mr_sort(NULL, 0, sizeof(key), mr_u64_compare);
    assert_null(mr_search(&key, NULL, 0, sizeof(key), mr_u64_compare));
    uint64_t numbers[] = {3, 1, 2};
    mr_sort(numbers, 3, sizeof(key), mr_u64_compare);
    assert_ptr_equal(mr_search(&key, numbers, 3, sizeof(key), mr_u64_compare), numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_each_and_no_other),
        cmocka_unit_test(test_find_among_equal_hashes),
        cmocka_unit_test(test_sort_and_search_nothing),
        cmocka_unit_test(test_reserve_and_clear_ask_for_no_memory),
        cmocka_unit_test(test_grow_keeps_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
