#include "copy/copies.h"

#include <math.h>
#include <stdlib.h>

#include "copy/asked_stored.h"
#include "copy/chunks.h"
#include "copy/snapshot.h"

enum { COMPANIONS = 2 };

struct mr_copies {
    struct mr_snapshot *snapshot; /* NULL: none is wanted */
    struct mr_chunks *chunks;
    struct mr_companion *companions[COMPANIONS];
    uint32_t count;
};

const struct mr_section_kind mr_copy_section_kinds[] = {
    {MR_SECTION_COPY, MR_COPY_STORED_VERSION, mr_copy_stored_rank},
    {MR_SECTION_COPY_ONLY, 0, mr_copy_only_rank},
    {MR_SECTION_ASKED, MR_ASKED_STORED_VERSION, mr_asked_stored_rank},
    {NULL, 0, NULL},
};

struct mr_copies *mr_copies_new(const struct mr_copies_options *options)
{
    struct mr_copies *copies = MR_NEW(struct mr_copies);
    if (options->workers > 0) {
        copies->snapshot = mr_snapshot_new(options);
        copies->companions[copies->count++] = mr_snapshot_companion(copies->snapshot);
    }
    copies->chunks = mr_chunks_new(options);
    copies->companions[copies->count++] = mr_chunks_companion(copies->chunks);
    return copies;
}

void mr_copies_free(struct mr_copies *copies)
{
    if (copies != NULL) {
        mr_snapshot_free(copies->snapshot);
        mr_chunks_free(copies->chunks);
        free(copies);
    }
}

struct mr_companion *const *mr_copies_companions(struct mr_copies *copies, uint32_t *ret_count)
{
    *ret_count = copies->count;
    return copies->companions;
}

/* ---- before the stream ---- */

struct mr_copy_stats mr_copies_stats(const struct mr_copies *copies)
{
    return copies->snapshot == NULL
               ? (struct mr_copy_stats){.state = MR_COPY_IDLE, .seconds_left = NAN}
               : mr_snapshot_stats(copies->snapshot);
}

uint32_t mr_copies_tables(struct mr_copies *copies, struct mr_copy_table_stats *ret_tables,
                          uint32_t capacity)
{
    return copies->snapshot == NULL ? 0
                                    : mr_snapshot_tables(copies->snapshot, ret_tables, capacity);
}

/* ---- while it runs ---- */

static struct mr_chunk_requests *requests_of(struct mr_copies *copies)
{
    return mr_chunks_requests(copies->chunks);
}

mr_status mr_copies_ask(struct mr_copies *copies, const struct mr_copy_wish *wish, uint64_t *ret_id,
                        struct mr_error *ret_error)
{
    return mr_chunks_can_read(copies->chunks)
               ? mr_chunk_requests_ask(requests_of(copies), wish, ret_id, ret_error)
               : mr_fail(ret_error, MR_ERR_CONFIG, "this source has no existing rows");
}

uint32_t mr_copies_stop(struct mr_copies *copies, const char *schema, const char *table)
{
    return mr_chunk_requests_stop(requests_of(copies), schema, table);
}

uint32_t mr_copies_keep(struct mr_copies *copies, mr_copy_keeps_fn keeps, void *context)
{
    return mr_chunk_requests_keep(requests_of(copies), keeps, context);
}

void mr_copies_pause(struct mr_copies *copies, bool pauses)
{
    mr_chunk_requests_pause(requests_of(copies), pauses);
}

void mr_copies_follow(struct mr_copies *copies, bool follows)
{
    mr_chunk_requests_follow(requests_of(copies), follows);
}

bool mr_copies_knows(struct mr_copies *copies)
{
    return atomic_load(&requests_of(copies)->adopted);
}

void mr_copies_streamed(struct mr_copies *copies, const struct mr_streamed_table *tables,
                        uint32_t count)
{
    mr_chunk_requests_streamed(requests_of(copies), tables, count);
}

bool mr_copies_is_stored(struct mr_copies *copies)
{
    return mr_chunk_requests_is_stored(requests_of(copies));
}

uint32_t mr_copies_requests(struct mr_copies *copies, struct mr_copy_request *ret, uint32_t max,
                            bool *ret_paused)
{
    return mr_chunk_requests_look(requests_of(copies), ret, max, ret_paused);
}

struct mr_incremental_stats mr_copies_incremental(struct mr_copies *copies)
{
    return mr_chunk_requests_stats(requests_of(copies));
}
