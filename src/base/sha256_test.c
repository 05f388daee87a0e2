#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

#include "testing/test.h"

static void assert_hash(mr_slice first, mr_slice second, const char *want)
{
    uint8_t hash[MR_SHA256_BYTES];
    char hex[2 * MR_SHA256_BYTES + 1];
    mr_sha256(first, second, hash);
    for (unsigned i = 0; i < MR_SHA256_BYTES; i++) {
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    }
    assert_string_equal(hex, want);
}

/* The examples of FIPS 180-4. */
static void test_sha256_examples(void **state)
{
    (void)state;
    assert_hash(MR_SLICE(""), MR_SLICE(""),
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hash(MR_SLICE("a"), MR_SLICE("bc"),
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_hash(MR_SLICE("abcdbcdecdefdefgefghfghighijhijk"), MR_SLICE("ijkljklmklmnlmnomnopnopq"),
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static uint8_t many[1000000];
    memset(many, 'a', sizeof(many));
    assert_hash((mr_slice){.data = many, .len = 63},
                (mr_slice){.data = many, .len = sizeof(many) - 63},
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sha256_examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
