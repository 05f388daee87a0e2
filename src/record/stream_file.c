#include "record/stream_file.h"

#include <endian.h>

uint32_t mr_stream_crc(uint32_t crc, mr_slice bytes)
{
    /* Of each half byte; the polynomial is 0x04C11DB7 with its bits reversed. */
    static const uint32_t table[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
        0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
        0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
    };
    crc = ~crc;
    for (size_t i = 0; i < bytes.len; i++) {
        crc ^= bytes.data[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static mr_status stream_file_put(FILE *to, const void *bytes, size_t len)
{
    return len == 0 || fwrite(bytes, 1, len, to) == len ? MR_OK : MR_ERR_SYSTEM;
}

mr_status mr_stream_file_begin(FILE *to)
{
    return stream_file_put(to, MR_STREAM_FILE_MAGIC, MR_STREAM_MAGIC_LEN);
}

mr_status mr_stream_file_write(FILE *to, const struct mr_stream_frame *frame)
{
    MR_ASSERT(frame->bytes.len <= UINT32_MAX);
    uint8_t head[MR_STREAM_FRAME_HEAD] = {(uint8_t)frame->kind};
    uint32_t len = htobe32((uint32_t)frame->bytes.len);
    uint64_t time_us = htobe64(frame->time_us);
    memcpy(head + 1, &len, sizeof(len));
    memcpy(head + 1 + sizeof(len), &time_us, sizeof(time_us));
    uint32_t crc = mr_stream_crc(0, (mr_slice){.data = head, .len = sizeof(head)});
    crc = htobe32(mr_stream_crc(crc, frame->bytes));
    MR_TRY(stream_file_put(to, head, sizeof(head)));
    MR_TRY(stream_file_put(to, frame->bytes.data, frame->bytes.len));
    return stream_file_put(to, &crc, sizeof(crc));
}
