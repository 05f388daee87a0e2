/* SHA-256 (FIPS 180-4). */
#ifndef MR_BASE_SHA256_H
#define MR_BASE_SHA256_H

#include "base/base.h"

enum { MR_SHA256_BYTES = 32 };

/* Of `first` followed by `second`. */
void mr_sha256(mr_slice first, mr_slice second, uint8_t ret[MR_SHA256_BYTES]);

#endif
