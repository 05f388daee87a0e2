/* Reads what record/stream_file writes: the recordings of real servers that tests replay. */
#ifndef MR_TESTING_STREAM_READER_H
#define MR_TESTING_STREAM_READER_H

#include "record/stream_file.h"

/* The frame at `*at` (0: the first) of a file's bytes; `*at` moves past it. MR_END at the end;
 * MR_ERR_PROTOCOL: it is cut off, or is not what was written. */
mr_status mr_stream_file_next(mr_slice file, size_t *at, struct mr_stream_frame *ret_frame,
                              struct mr_error *ret_error);

#endif
