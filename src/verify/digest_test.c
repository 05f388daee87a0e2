#include "verify/digest.h"

#include <string.h>

#include "testing/test.h"

/* SipHash-1-3 as its authors describe it, byte by byte: appended zeros, and the length in the last
 * one. */
static uint64_t digest_test_rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = digest_test_rotate(v[1], 13) ^ v[0];
        v[3] = digest_test_rotate(v[3], 16) ^ v[2];
        v[0] = digest_test_rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = digest_test_rotate(v[1], 17) ^ v[2];
        v[3] = digest_test_rotate(v[3], 21) ^ v[0];
        v[2] = digest_test_rotate(v[2], 32);
    }
}

static struct mr_digest plain(struct mr_digest key, const uint8_t *bytes, size_t len)
{
    uint64_t v[4] = {
        key.low ^ UINT64_C(0x736f6d6570736575), key.high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        key.low ^ UINT64_C(0x6c7967656e657261), key.high ^ UINT64_C(0x7465646279746573)};
    size_t words = len / 8 + 1;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = 0;
        for (size_t j = 0; j < 8; j++) {
            size_t at = 8 * i + j;
            uint64_t byte = at < len ? bytes[at] : at == 8 * words - 1 ? len & 0xff : 0;
            word |= byte << (8 * j);
        }
        v[3] ^= word;
        rounds(v, 1);
        v[0] ^= word;
    }
    struct mr_digest digest;
    v[2] ^= 0xee;
    rounds(v, 3);
    digest.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(v, 3);
    digest.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return digest;
}

/* In memory of its own, so that a sanitizer sees a step beyond either end. */
static void test_every_length_is_digested_whole(void **state)
{
    (void)state;
    struct mr_digest key = mr_digest_draw_key();
    for (size_t len = 0; len < 300; len++) {
        uint8_t *bytes = MR_ALLOC(len + 1);
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (uint8_t)(131 * i + len);
        }
        struct mr_digest want = plain(key, bytes, len);
        memmove(bytes + 1, bytes, len);
        struct mr_digest digest = mr_digest_of(key, (mr_slice){.data = bytes + 1, .len = len});
        assert_true(mr_digest_equal(digest, want));
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_length_is_digested_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
