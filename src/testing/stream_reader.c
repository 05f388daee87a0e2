#include "testing/stream_reader.h"

#include <string.h>

#include "base/reader.h"

static bool kind_is_known(uint8_t kind)
{
    return kind == MR_STREAM_HEADER || kind == MR_STREAM_RECEIVED || kind == MR_STREAM_SENT ||
           kind == MR_STREAM_END;
}

mr_status mr_stream_file_next(mr_slice file, size_t *at, struct mr_stream_frame *ret_frame,
                              struct mr_error *ret_error)
{
    size_t begin = *at;
    if (begin == 0) {
        if (file.len < MR_STREAM_MAGIC_LEN ||
            memcmp(file.data, MR_STREAM_FILE_MAGIC, MR_STREAM_MAGIC_LEN) != 0) {
            return mr_fail(ret_error, MR_ERR_PROTOCOL, "this is not a recording of millrace");
        }
        begin = MR_STREAM_MAGIC_LEN;
    }
    if (begin == file.len) {
        return MR_END;
    }
    mr_slice rest = {.data = file.data + begin, .len = file.len - begin};
    struct mr_reader reader = mr_reader_init(rest);
    struct mr_stream_frame frame = {0};
    uint8_t kind = mr_reader_u8(&reader);
    uint32_t len = mr_reader_u32(&reader);
    frame.kind = (enum mr_stream_frame_kind)kind;
    frame.time_us = mr_reader_u64(&reader);
    frame.bytes = mr_reader_slice(&reader, len);
    mr_slice checked = {.data = rest.data, .len = (size_t)(reader.at - rest.data)};
    uint32_t crc = mr_reader_u32(&reader);
    if (reader.failed) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the recording is cut off in the frame at byte %zu", begin);
    }
    if (crc != mr_stream_crc(0, checked) || !kind_is_known(kind)) {
        return mr_fail(ret_error, MR_ERR_PROTOCOL,
                       "the recording is damaged in the frame at byte %zu", begin);
    }
    *at = begin + (size_t)(reader.at - rest.data);
    *ret_frame = frame;
    return MR_OK;
}
