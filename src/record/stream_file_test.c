#include "testing/stream_reader.h"

#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

static const struct mr_stream_frame frames[] = {
    {.kind = MR_STREAM_HEADER, .bytes = {.data = (const uint8_t *)"millrace=1\n", .len = 11}},
    {.kind = MR_STREAM_RECEIVED, .time_us = 7, .bytes = {.data = (const uint8_t *)"k\0", .len = 2}},
    {.kind = MR_STREAM_SENT, .time_us = UINT64_MAX},
    {.kind = MR_STREAM_END, .bytes = {.data = (const uint8_t *)"r=", .len = 2}},
};

/* The file's bytes, the caller's. */
static char *stream_file_test_written(size_t *ret_len)
{
    char *bytes = NULL;
    FILE *file = open_memstream(&bytes, ret_len);
    assert_non_null(file);
    assert_int_equal(mr_stream_file_begin(file), MR_OK);
    for (size_t i = 0; i < MR_ARRAY_LEN(frames); i++) {
        assert_int_equal(mr_stream_file_write(file, &frames[i]), MR_OK);
    }
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static void test_crc_of_the_check_string(void **state)
{
    (void)state;
    assert_int_equal(mr_stream_crc(0, MR_SLICE("123456789")), 0xCBF43926);
    assert_int_equal(mr_stream_crc(mr_stream_crc(0, MR_SLICE("1234")), MR_SLICE("56789")),
                     0xCBF43926);
}

static void test_next_reads_what_was_written(void **state)
{
    (void)state;
    size_t len, at = 0;
    char *bytes = stream_file_test_written(&len);
    mr_slice file = {.data = (const uint8_t *)bytes, .len = len};
    struct mr_stream_frame frame;
    for (size_t i = 0; i < MR_ARRAY_LEN(frames); i++) {
        assert_int_equal(mr_stream_file_next(file, &at, &frame, NULL), MR_OK);
        assert_int_equal(frame.kind, frames[i].kind);
        assert_int_equal(frame.time_us, frames[i].time_us);
        assert_true(mr_slice_equal(frame.bytes, frames[i].bytes));
    }
    assert_int_equal(mr_stream_file_next(file, &at, &frame, NULL), MR_END);
    free(bytes);
}

/* Reads all there is; the status at the end. */
static mr_status stream_file_test_read_all(mr_slice file)
{
    struct mr_stream_frame frame;
    struct mr_error error = {0};
    mr_status status = MR_OK;
    for (size_t at = 0; status == MR_OK;) {
        status = mr_stream_file_next(file, &at, &frame, &error);
    }
    assert_true(status == MR_END || error.text[0] != 0);
    return status;
}

static void test_next_refuses_what_is_cut_or_changed(void **state)
{
    (void)state;
    size_t len;
    char *bytes = stream_file_test_written(&len);
    unsigned whole = 0;
    for (size_t cut = 0; cut <= len; cut++) {
        uint8_t *part = MR_ALLOC(cut + 1); /* of that size, for the sanitizer */
        memcpy(part, bytes, cut);
        whole += stream_file_test_read_all((mr_slice){.data = part, .len = cut}) == MR_END;
        free(part);
    }
    /* Between frames it may end. */
    assert_int_equal(whole, MR_ARRAY_LEN(frames) + 1);
    for (size_t at = 0; at < len; at++) {
        bytes[at] ^= 0x10;
        assert_int_equal(
            stream_file_test_read_all((mr_slice){.data = (const uint8_t *)bytes, .len = len}),
            MR_ERR_PROTOCOL);
        bytes[at] ^= 0x10;
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_of_the_check_string),
        cmocka_unit_test(test_next_reads_what_was_written),
        cmocka_unit_test(test_next_refuses_what_is_cut_or_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
