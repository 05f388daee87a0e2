#include "verify/spill.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

enum { BUCKETS = 3, PIECE = 64 };

struct taken {
    uint8_t bytes[8192];
    size_t len;
    uint32_t pieces;
};

static void spill_test_take(void *context, const uint8_t *bytes, size_t len)
{
    struct taken *taken = context;
    assert_true(taken->len + len <= sizeof(taken->bytes));
    memcpy(taken->bytes + taken->len, bytes, len);
    taken->len += len;
    taken->pieces++;
}

static void test_add_and_read_in_order(void **state)
{
    (void)state;
    struct mr_spill *spill = mr_spill_new(BUCKETS, PIECE);
    struct taken want[BUCKETS] = {0};
    struct mr_error error;
    for (uint32_t i = 0; i < 300; i++) {
        uint8_t entry[100]; /* some are larger than a piece */
        size_t len = i % 50 == 0 ? sizeof(entry) : 1 + i % 40;
        memset(entry, (int)i, sizeof(entry));
        assert_int_equal(mr_spill_add(spill, i % 2, (mr_slice){.data = entry, .len = 1},
                                      (mr_slice){.data = entry + 1, .len = len - 1}, &error),
                         MR_OK);
        spill_test_take(&want[i % 2], entry, len);
    }
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (int again = 0; again < 2; again++) {
            struct taken got = {0};
            assert_int_equal(mr_spill_read(spill, i, spill_test_take, &got, &error), MR_OK);
            assert_int_equal(got.len, want[i].len);
            assert_memory_equal(got.bytes, want[i].bytes, got.len);
            assert_true(got.pieces > 10 || got.len == 0);
        }
    }
    mr_spill_free(spill);
    mr_spill_free(NULL);
}

static void test_add_without_a_folder(void **state)
{
    (void)state;
    struct mr_error error;
    uint8_t bytes[PIECE] = {0};
    const mr_slice piece = {.data = bytes, .len = sizeof(bytes)};
    setenv("TMPDIR", "/nowhere/at/all", 1);
    struct mr_spill *spill = mr_spill_new(1, PIECE);
    assert_int_equal(mr_spill_add(spill, 0, piece, (mr_slice){0}, &error), MR_OK);
    assert_int_equal(mr_spill_add(spill, 0, piece, (mr_slice){0}, &error), MR_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
    assert_non_null(strstr(error.text, "set TMPDIR"));
    mr_spill_free(spill);
    unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_and_read_in_order),
        cmocka_unit_test(test_add_without_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
