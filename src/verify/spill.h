/* Entries in buckets, in the order in which they came: in memory first, on disk once a bucket's
 * part of it is full. The file has no name and goes with the process. One thread; several may read
 * buckets once nobody adds. */
#pragma once

#include "base/base.h"

struct mr_spill;

/* TMPDIR, or /var/tmp: where the file is made when it is needed. */
const char *mr_spill_folder(void);

/* `piece_bytes`: what of each bucket is in memory. */
struct mr_spill *mr_spill_new(uint32_t buckets, uint32_t piece_bytes);
void mr_spill_free(struct mr_spill *spill); /* NULL is fine */

/* An entry is about to be appended to that bucket: its place in memory is fetched meanwhile. */
void mr_spill_expect(const struct mr_spill *spill, uint32_t bucket);

/* Appends an entry of two parts to a bucket. MR_ERR_SYSTEM: the disk refuses. */
mr_status mr_spill_add(struct mr_spill *spill, uint32_t bucket, mr_slice head, mr_slice rest,
                       struct mr_error *ret_error);

/* Calls `take` with all entries of a bucket, piece by piece: an entry is in one piece. */
typedef void (*mr_spill_fn)(void *context, const uint8_t *bytes, size_t len);
mr_status mr_spill_read(const struct mr_spill *spill, uint32_t bucket, mr_spill_fn take,
                        void *context, struct mr_error *ret_error);
