/* What the fuzz targets share. A target's oracle is MR_ASSERT beside what the sanitizers see. */
#ifndef MILLRACE_FUZZ_H
#define MILLRACE_FUZZ_H

#include "base/base.h"

/* libFuzzer calls it with each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* fuzz_stream: payloads that the decoder refused. An input made up may have them, a real server's
 * stream has none. */
extern unsigned fuzz_stream_refused;

#endif
