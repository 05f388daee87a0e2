/* jemalloc's dumps, from text. */
#include <math.h>
#include <string.h>

#include "profiler/heap.h"
#include "testing/test.h"

static mr_status parse_part(const char *text, size_t len, struct mr_profile *ret,
                            struct mr_error *ret_error)
{
    FILE *file = fmemopen((void *)(uintptr_t)text, len + (len == 0), "r");
    assert_non_null(file);
    mr_status status = mr_heap_parse(file, ret, ret_error);
    fclose(file);
    return status;
}

static mr_status heap_test_parse(const char *text, struct mr_profile *ret,
                                 struct mr_error *ret_error)
{
    return parse_part(text, strlen(text), ret, ret_error);
}

/* Value `value` of all entries of a thread. */
static int64_t sum(const struct mr_profile *profile, const char *thread, int value)
{
    int64_t total = 0;
    mr_symbols_lock();
    for (uint32_t i = 0; i < profile->count; i++) {
        if (strcmp(mr_symbols_text(profile->entries[i].thread), thread) == 0) {
            total += profile->entries[i].values[value];
        }
    }
    mr_symbols_unlock();
    return total;
}

static void test_counts_by_thread_and_stack(void **state)
{
    (void)state;
    /* A rate of 1: every allocation is a sample, and nothing is estimated. */
    static const char dump[] = "heap_v2/1\n"
                               "  t*: 6: 600 [9: 900]\n"
                               "  t1: 4: 400 [6: 600] mr-source\n"
                               "  t2: 2: 200 [3: 300] mr-sink\n"
                               "@ 0x1000 0x2000 0x3000\n"
                               "  t*: 4: 400 [6: 600]\n"
                               "  t1: 3: 300 [4: 400]\n"
                               "  t2: 1: 100 [2: 200]\n"
                               "@ 0x1000 0x4000\n"
                               "  t*: 2: 200 [3: 300]\n"
                               "  t1: 1: 100 [2: 200]\n"
                               "  t2: 1: 100 [1: 100]\n"
                               "MAPPED_LIBRARIES:\n"
                               "1000-2000 r-xp 00000000 00:00 0 [vdso]\n"
                               "  t9: 99: 99 [99: 99]\n";
    struct mr_profile profile;
    struct mr_error error;
    assert_int_equal(heap_test_parse(dump, &profile, &error), MR_OK);
    assert_int_equal(profile.kind, MR_PROFILE_HEAP);
    assert_int_equal(profile.period, 1);
    assert_int_equal(profile.count, 4);
    assert_int_equal(profile.entries[0].stack_count, 3);
    assert_int_equal(sum(&profile, "mr-source", 0), 6);
    assert_int_equal(sum(&profile, "mr-source", 1), 600);
    assert_int_equal(sum(&profile, "mr-source", 2), 4);
    assert_int_equal(sum(&profile, "mr-source", 3), 400);
    assert_int_equal(sum(&profile, "mr-sink", 1), 300);
    assert_int_equal(sum(&profile, "mr-sink", 3), 200);
    mr_symbols_lock();
    assert_int_equal(mr_profile_stage(&profile, &profile.entries[0]), MR_STAGE_RECEIVE);
    assert_int_equal(mr_profile_stage(&profile, &profile.entries[1]), MR_STAGE_PRODUCE);
    mr_symbols_unlock();
    mr_profile_done(&profile);
}

/* An object of b bytes is seen with the probability 1 - e^(-b/rate). */
static void test_small_objects_are_scaled_up(void **state)
{
    (void)state;
    static const char dump[] = "heap_v2/524288\n"
                               "  t*: 10: 5120 [10: 5120]\n"
                               "  t1: 10: 5120 [10: 5120] mr-source\n"
                               "@ 0x1000\n"
                               "  t*: 10: 5120 [10: 5120]\n"
                               "  t1: 10: 5120 [10: 5120]\n"
                               "@ 0x2000\n"
                               "  t*: 1: 52428800 [1: 52428800]\n"
                               "  t1: 1: 52428800 [1: 52428800]\n";
    struct mr_profile profile;
    struct mr_error error;
    assert_int_equal(heap_test_parse(dump, &profile, &error), MR_OK);
    assert_int_equal(profile.count, 2);
    double expected = 5120 / (1 - exp(-512.0 / 524288));
    assert_true(fabs((double)profile.entries[0].values[3] - expected) < expected / 1000);
    /* The large one is certain to be seen. */
    assert_int_equal(profile.entries[1].values[3], 52428800);
    mr_profile_done(&profile);
}

static void test_damaged_dumps(void **state)
{
    (void)state;
    struct mr_profile profile;
    struct mr_error error;
    static const char *const unknown[] = {"", "\n", "heap profile: 1: 2 [3: 4] @ heap_v1/5\n",
                                          "heap_v3/1\n", "heap_v2/x\n"};
    for (size_t i = 0; i < MR_ARRAY_LEN(unknown); i++) {
        assert_int_equal(heap_test_parse(unknown[i], &profile, &error), MR_ERR_SYSTEM);
        assert_non_null(strstr(error.text, "heap_v2"));
    }
    /* Cut off anywhere, it is read as far as it goes. */
    static const char dump[] =
        "heap_v2/1\n  t*: 1: 2 [3: 4]\n  t1: 1: 2 [3: 4] name\n@ 0x1 0x2 zz\n"
        "  t*: 1: 2 [3: 4]\n  t1: 1: 2 [3: 4]\n  t7: 1: 2 [3: 4]\n@\n  t1: 9";
    for (size_t len = strlen("heap_v2/1\n"); len <= strlen(dump); len++) {
        assert_int_equal(parse_part(dump, len, &profile, &error), MR_OK);
        assert_true(profile.count <= 2);
        mr_profile_done(&profile);
    }
}

/* The tests are linked with the C library's allocator. */
static void test_without_jemalloc(void **state)
{
    (void)state;
    struct mr_error error;
    assert_false(mr_heap_is_active());
    assert_int_equal(mr_heap_set_active(true, &error), MR_ERR_CONFIG);
    assert_non_null(strstr(error.text, "MILLRACE_JEMALLOC"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_by_thread_and_stack),
        cmocka_unit_test(test_small_objects_are_scaled_up),
        cmocka_unit_test(test_damaged_dumps),
        cmocka_unit_test(test_without_jemalloc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
