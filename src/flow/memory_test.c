#include "flow/memory.h"

#include "testing/test.h"

#define MIB (UINT64_C(1) << 20)

/* The usual ones, within a budget. */
static struct mr_memory_needs needs_of(uint64_t limit)
{
    return (struct mr_memory_needs){
        .limit = limit, .tables = 10, .batches = 16, .batch_bytes = MIB / 8};
}

static uint64_t change_max(uint64_t limit)
{
    struct mr_memory_needs needs = needs_of(limit);
    return mr_memory_change_max(&needs);
}

static void test_input_doubles(void **state)
{
    (void)state;
    assert_int_equal(mr_memory_input(0), 16384);
    assert_int_equal(mr_memory_input(16384), 16384);
    assert_int_equal(mr_memory_input(16385), 32768);
    assert_int_equal(mr_memory_input(100000000), 128 * MIB);
}

/* What docs/sizing.md says of the usual pool. */
static void test_change_max_of_budgets(void **state)
{
    (void)state;
    assert_int_equal(change_max(256 * MIB), 64 * MIB);
    assert_int_equal(change_max(1024 * MIB), 64 * MIB);
    assert_int_equal(change_max(64 * MIB), 8 * MIB);
    assert_int_equal(change_max(1), 64 * 1024);
}

static void test_sum_is_within_what_it_was_made_for(void **state)
{
    (void)state;
    for (uint64_t limit = 64 * MIB; limit < 300 * MIB; limit += 7 * MIB) {
        struct mr_memory_needs needs = needs_of(limit);
        struct mr_memory memory = mr_memory_of(&needs, change_max(limit));
        assert_true(mr_memory_sum(&memory) <= limit);
        assert_true(memory.large >= 2 * change_max(limit));
    }
}

static void test_profiles_are_part_of_it(void **state)
{
    (void)state;
    struct mr_memory_needs needs = needs_of(64 * MIB);
    struct mr_memory without = mr_memory_of(&needs, MIB);
    needs.profiles = true;
    struct mr_memory with = mr_memory_of(&needs, MIB);
    assert_int_equal(mr_memory_sum(&with) - mr_memory_sum(&without), 28 * MIB);
    assert_int_equal(mr_memory_change_max(&needs), MIB / 2);
}

/* What docs/snapshots.md says of rows that are copied while the stream runs. */
static void test_copied_rows_are_part_of_it(void **state)
{
    (void)state;
    const struct {
        uint64_t limit, row, readers;
        uint32_t batches;
    } cases[] = {{64, 1, 0, 16},   {256, 8, 0, 16},   {256, 4, 0, 32}, /* exactly-once */
                 {384, 64, 0, 16}, {1024, 64, 0, 16}, {256, 32, 1, 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t limit = cases[i].limit * MIB;
        struct mr_memory_needs needs = needs_of(limit);
        needs.readers = cases[i].readers;
        needs.batches = cases[i].batches;
        uint64_t change = mr_memory_change_max(&needs);
        struct mr_memory memory = mr_memory_of(&needs, change);
        assert_true(memory.copied >= 4 * mr_memory_chunk(change));
        assert_int_equal(mr_memory_take_row(&memory, &needs, change), cases[i].row * MIB);
        assert_true(mr_memory_sum(&memory) <= limit);
        assert_true(needs.readers > 0 || memory.copied >= 2 * cases[i].row * MIB);
        assert_true(mr_memory_large(&memory, limit) >= 2 * change);
    }
    /* Nothing is left: rows of a chunk. */
    struct mr_memory_needs needs = needs_of(0);
    needs.tables = 0; /* which take a part of the budget */
    struct mr_memory memory = mr_memory_of(&needs, 64 * MIB);
    uint64_t sum = needs.limit = mr_memory_sum(&memory);
    assert_int_equal(mr_memory_take_row(&memory, &needs, 64 * MIB), mr_memory_chunk(64 * MIB));
    assert_int_equal(mr_memory_sum(&memory), sum);
}

/* What docs/snapshots.md says. */
static void test_each_reader_has_a_buffer_and_two_rows(void **state)
{
    (void)state;
    struct mr_memory_needs needs = needs_of(256 * MIB);
    uint64_t none = mr_memory_of(&needs, MIB).input;
    needs.readers = 1;
    assert_int_equal(mr_memory_change_max(&needs), 32 * MIB);
    uint64_t one = mr_memory_of(&needs, MIB).input;
    assert_true(one > 2 * none);
    needs.readers = 4;
    assert_int_equal(mr_memory_change_max(&needs), 8 * MIB);
    assert_int_equal(mr_memory_of(&needs, MIB).input, 4 * one);
}

/* What docs/sizing.md says: as if each table sent rows, at most a quarter of the budget, and 1 KiB
 * for each where that is more. */
static void test_tables_take_a_quarter_at_most(void **state)
{
    (void)state;
    const struct {
        uint64_t tables, limit, kib;
    } cases[] = {{0, 256, 0}, {10, 64, 480}, {5000, 256, 64 * 1024}, {50000, 128, 50000}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct mr_memory_needs needs = needs_of(cases[i].limit * MIB);
        needs.tables = cases[i].tables;
        struct mr_memory memory = mr_memory_of(&needs, MIB);
        assert_int_equal(memory.own, 24 * MIB + cases[i].kib * 1024);
        assert_int_equal(mr_memory_take_relations(&memory, &needs),
                         cases[i].kib * 1024 + cases[i].limit * MIB / 8);
        assert_true(mr_memory_sum(&memory) <= needs.limit);
    }
}

/* 16 MiB of descriptions are some 15,000 tables that have sent rows; the largest row that is copied
 * takes what is left. */
static void test_tables_by_a_pattern_come_before_rows(void **state)
{
    (void)state;
    struct mr_memory_needs needs = needs_of(128 * MIB);
    needs.tables = 0;
    needs.patterns = true;
    uint64_t change = mr_memory_change_max(&needs);
    struct mr_memory memory = mr_memory_of(&needs, change);
    assert_int_equal(mr_memory_take_row(&memory, &needs, change), 8 * MIB);
    assert_int_equal(mr_memory_take_relations(&memory, &needs), 16 * MIB);
    assert_true(mr_memory_sum(&memory) <= needs.limit);
}

/* Whatever is set: what is given to descriptions and to large changes is within the budget, with
 * all the rest. */
static void test_all_that_is_given_is_within_the_budget(void **state)
{
    (void)state;
    for (uint64_t limit = 64 * MIB; limit < 1100 * MIB; limit += 37 * MIB) {
        for (uint64_t tables = 0; tables < 100000; tables = 10 * tables + 3) {
            struct mr_memory_needs needs = needs_of(limit);
            needs.tables = tables;
            needs.readers = tables % 2;
            needs.patterns = tables % 4 != 3;
            uint64_t change = mr_memory_change_max(&needs);
            struct mr_memory memory = mr_memory_of(&needs, change);
            if (mr_memory_sum(&memory) > limit) {
                continue; /* is refused */
            }
            mr_memory_take_row(&memory, &needs, change);
            uint64_t relations = mr_memory_take_relations(&memory, &needs);
            assert_true(relations >= limit / (needs.patterns ? 16 : 64));
            assert_true(memory.relations <= limit / 8);
            assert_true(memory.own >= relations - memory.relations);
            uint64_t large = mr_memory_large(&memory, limit);
            assert_true(large >= 2 * change);
            assert_int_equal(mr_memory_sum(&memory) - memory.large + large, limit);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input_doubles),
        cmocka_unit_test(test_change_max_of_budgets),
        cmocka_unit_test(test_profiles_are_part_of_it),
        cmocka_unit_test(test_tables_take_a_quarter_at_most),
        cmocka_unit_test(test_copied_rows_are_part_of_it),
        cmocka_unit_test(test_each_reader_has_a_buffer_and_two_rows),
        cmocka_unit_test(test_tables_by_a_pattern_come_before_rows),
        cmocka_unit_test(test_all_that_is_given_is_within_the_budget),
        cmocka_unit_test(test_sum_is_within_what_it_was_made_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
