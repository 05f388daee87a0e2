/* Any bytes as a recording: frames inside the file, in a form that is written back as it was, or a
 * reason why not. Sealed with check sums that hold when the first byte is odd, else the mutations
 * would end at them. Payloads go through the blanker, which keeps their structure, and so gives the
 * same when it is done twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "fuzz.h"
#include "record/blank.h"
#include "testing/stream_reader.h"

enum { MAGIC_LEN = sizeof(MR_STREAM_FILE_MAGIC) - 1 };

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static void seal(uint8_t *file, size_t len)
{
    if (len >= MAGIC_LEN) {
        memcpy(file, MR_STREAM_FILE_MAGIC, MAGIC_LEN);
    }
    for (size_t at = MAGIC_LEN; at < len;) {
        struct mr_reader reader = mr_reader_init((mr_slice){.data = file + at, .len = len - at});
        mr_reader_u8(&reader);
        uint32_t bytes = mr_reader_u32(&reader);
        mr_reader_u64(&reader);
        mr_reader_slice(&reader, bytes);
        mr_slice checked = {.data = file + at, .len = (size_t)(reader.at - (file + at))};
        mr_reader_u32(&reader);
        if (reader.failed) {
            return;
        }
        put_u32(file + at + checked.len, mr_stream_crc(0, checked));
        at += checked.len + MR_STREAM_FRAME_TAIL;
    }
}

/* What was read is what would be written. */
static void assert_written_alike(mr_slice file, size_t begin, size_t end,
                                 const struct mr_stream_frame *frame)
{
    char *bytes = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&bytes, &len);
    MR_ASSERT(to != NULL);
    MR_ASSERT(begin != 0 || mr_stream_file_begin(to) == MR_OK);
    MR_ASSERT(mr_stream_file_write(to, frame) == MR_OK);
    fclose(to);
    MR_ASSERT(len == end - begin && memcmp(bytes, file.data + begin, len) == 0);
    free(bytes);
}

static void blank(const struct mr_stream_frame *frame, bool names)
{
    size_t len = frame->bytes.len;
    uint8_t *once = malloc(2 * len + 1);
    MR_ASSERT(once != NULL);
    uint8_t *twice = once + len;
    struct mr_blanker first = {.names = names};
    struct mr_blanker second = {.names = names};
    memcpy(once, frame->bytes.data, len);
    mr_blank_payload(&first, once, len);
    memcpy(twice, once, len);
    mr_blank_payload(&second, twice, len);
    MR_ASSERT(names || memcmp(once, twice, len) == 0);
    mr_blanker_done(&first);
    mr_blanker_done(&second);
    free(once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    uint8_t *bytes = malloc(size);
    MR_ASSERT(bytes != NULL);
    mr_slice file = {.data = bytes, .len = size - 1};
    memcpy(bytes, data + 1, size - 1);
    if (data[0] % 2 != 0) {
        seal(bytes, size - 1);
    }
    struct mr_stream_frame frame;
    struct mr_error error = {0};
    mr_status status;
    size_t begin = 0;
    for (size_t at = 0; (status = mr_stream_file_next(file, &at, &frame, &error)) == MR_OK;
         begin = at) {
        MR_ASSERT(at > begin && at <= file.len);
        assert_written_alike(file, begin, at, &frame);
        if (frame.kind == MR_STREAM_RECEIVED) {
            blank(&frame, data[0] & 2);
        }
    }
    MR_ASSERT(status == MR_END || (status == MR_ERR_PROTOCOL && error.text[0] != '\0'));
    free(bytes);
    return 0;
}
