/* A recording of a replication stream: a file of frames, in the order in which they were received
 * and sent. Its form is in docs/dev/recordings.md; a version that can't be read by what is there
 * today gets another magic. One thread. */
#pragma once

#include "base/base.h"

/* The file begins with it. */
#define MR_STREAM_FILE_MAGIC "MRSTRM01"

enum {
    MR_STREAM_MAGIC_LEN = sizeof(MR_STREAM_FILE_MAGIC) - 1,
    MR_STREAM_FRAME_HEAD = 1 + 4 + 8, /* kind, length of the bytes, time */
    MR_STREAM_FRAME_TAIL = 4,         /* check sum */
};

/* Bytes of a frame: text lines "name=value" for the first and the last, else a CopyData payload. */
enum mr_stream_frame_kind {
    MR_STREAM_HEADER = 'H',   /* what is recorded; always the first frame */
    MR_STREAM_RECEIVED = 'R', /* from the server */
    MR_STREAM_SENT = 'S',     /* to the server */
    MR_STREAM_END = 'E',      /* why it ends; missing where the recorder was killed */
};

struct mr_stream_frame {
    enum mr_stream_frame_kind kind;
    uint64_t time_us; /* since the recording began */
    mr_slice bytes;
};

/* The check sum of docs/dev/recordings.md: CRC-32 as in zlib and Ethernet, going on from `crc` (0:
 * the beginning). */
uint32_t mr_stream_crc(uint32_t crc, mr_slice bytes);

/* Writes the magic / one frame. MR_ERR_SYSTEM: the file did not take it; errno says why. */
mr_status mr_stream_file_begin(FILE *to);
mr_status mr_stream_file_write(FILE *to, const struct mr_stream_frame *frame);
