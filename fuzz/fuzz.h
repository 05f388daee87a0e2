/* What the fuzz targets share. A target's oracle is MR_ASSERT beside what the sanitizers see. */
#ifndef MILLRACE_FUZZ_H
#define MILLRACE_FUZZ_H

#include "base/base.h"

/* libFuzzer calls it with each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
