/* SHA-256 (FIPS 180-4). */
#pragma once

#include "base/base.h"

enum { MR_SHA256_BYTES = 32 };

/* The first half of it in hexadecimal: enough to find something by, for people. */
struct mr_sha256_short {
    char text[MR_SHA256_BYTES + 1];
};
struct mr_sha256_short mr_sha256_short(mr_slice bytes);

/* Of `first` followed by `second`. */
void mr_sha256(mr_slice first, mr_slice second, uint8_t ret[MR_SHA256_BYTES]);
