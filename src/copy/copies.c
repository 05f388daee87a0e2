#include "copy/copies.h"

#include "copy/copies_internal.h"

const struct mr_section_kind mr_copy_section_kinds[] = {
    {MR_SECTION_COPY, MR_COPY_STORED_VERSION, mr_copy_stored_rank},
    {MR_SECTION_COPY_ONLY, 0, mr_copy_only_rank},
    {MR_SECTION_ASKED, MR_ASKED_STORED_VERSION, mr_asked_stored_rank},
    {MR_SECTION_GAP, 0, mr_gap_rank},
    {NULL, 0, NULL},
};

struct mr_copies *mr_copies_new(const struct mr_copies_options *options)
{
    struct mr_copies *copies = MR_NEW(struct mr_copies);
    copies->chunks = mr_chunks_new(options, &copies->requests);
    if (options->workers > 0) {
        copies->snapshot = mr_snapshot_new(options, copies->requests);
        copies->companions[copies->count++] = copies->snapshot;
    }
    copies->companions[copies->count++] = copies->chunks;
    copies->reads_chunks = options->server->chunks != NULL;
    return copies;
}

void mr_copies_free(struct mr_copies *copies)
{
    if (copies != NULL) {
        if (copies->snapshot != NULL) {
            mr_snapshot_free(copies->snapshot);
        }
        mr_chunks_free(copies->chunks);
        free(copies);
    }
}

struct mr_companion *const *mr_copies_companions(struct mr_copies *copies, uint32_t *ret_count)
{
    *ret_count = copies->count;
    return copies->companions;
}

mr_status mr_copies_ask(struct mr_copies *copies, const struct mr_copy_wish *wish, uint64_t *ret_id,
                        struct mr_error *ret_error)
{
    if (!copies->reads_chunks) {
        mr_chunk_keys_free(wish->keys);
        return mr_fail(ret_error, MR_ERR_CONFIG, "this source has no existing rows");
    }
    return mr_chunk_requests_ask(copies->requests, wish, ret_id, ret_error);
}

bool mr_copies_knows(struct mr_copies *copies)
{
    return atomic_load(&copies->requests->adopted);
}
