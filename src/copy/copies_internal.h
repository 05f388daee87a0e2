/* The two companions behind copies.h. Inside copy/ only. */
#pragma once

#include "copy/chunk_requests.h"

struct mr_copies {
    struct mr_companion *snapshot; /* NULL: none is wanted */
    struct mr_companion *chunks;
    struct mr_chunk_requests *requests; /* the chunks' */
    bool reads_chunks;                  /* the server does */
    struct mr_companion *companions[2];
    uint32_t count;
};

/* `requests`: who stores that there was a gap. */
struct mr_companion *mr_snapshot_new(const struct mr_copies_options *options,
                                     struct mr_chunk_requests *requests);
void mr_snapshot_free(struct mr_companion *companion);

/* `*ret_requests`: what is asked of it, for any thread; the companion's. */
struct mr_companion *mr_chunks_new(const struct mr_copies_options *options,
                                   struct mr_chunk_requests **ret_requests);
void mr_chunks_free(struct mr_companion *companion);
