/* What real servers sent, through the model of the stream that fuzz_stream.c asserts: it must hold
 * there, too. */
#include "../../fuzz/fuzz.h"

#include "testing/recording.h"
#include "testing/replay.h"
#include "testing/test.h"

static void oracle_test_check_recording(const char *version, const char *name)
{
    struct mr_replay replay;
    struct mr_recording input = {0};
    mr_slice payload;
    mr_replay_open(&replay, version, name);
    while (mr_replay_next(&replay, &payload)) {
        mr_recording_payload(&input, payload);
    }
    assert_true(input.len > 0);
    fuzz_stream_refused = 0;
    LLVMFuzzerTestOneInput(input.bytes, input.len);
    assert_int_equal(fuzz_stream_refused, 0);
    mr_recording_done(&input);
    mr_replay_done(&replay);
}

static void test_the_oracle_holds_for_real_servers(void **state)
{
    (void)state;
    mr_replay_each(oracle_test_check_recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oracle_holds_for_real_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
