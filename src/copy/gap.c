/* Where the stream went on last without what was in between (snapshot.mode = "accept_gap"): a section of the stored record, which stays
 * there. Whoever finds rows missing later sees when, and between which positions. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "copy/chunk_requests.h"

bool mr_gap_rank(const char *json, struct mr_section_rank *ret_rank)
{
    *ret_rank = (struct mr_section_rank){0};
    return json[0] == '{' && strlen(json) < MR_GAP_MAX;
}

void mr_chunk_requests_note_gap(struct mr_chunk_requests *requests, mr_lsn from, mr_lsn to)
{
    pthread_mutex_lock(&requests->lock);
    snprintf(requests->gap, sizeof(requests->gap),
             "{\"from\":\"" MR_LSN_FORMAT "\",\"to\":\"" MR_LSN_FORMAT "\",\"at_ms\":%lld}",
             MR_LSN_ARGS(from), MR_LSN_ARGS(to), (long long)(mr_wall_ns() / 1000000));
    pthread_mutex_unlock(&requests->lock);
}

void mr_chunk_requests_add_gap(struct mr_chunk_requests *requests, struct mr_checkpoint *checkpoint)
{
    pthread_mutex_lock(&requests->lock);
    if (requests->gap[0] != '\0') {
        mr_checkpoint_add(checkpoint, MR_SECTION_GAP, MR_STRDUP(requests->gap),
                          &(struct mr_section_rank){0});
    }
    pthread_mutex_unlock(&requests->lock);
}

void mr_chunk_requests_adopt_gap(struct mr_chunk_requests *requests,
                                 const struct mr_checkpoint *stored)
{
    const struct mr_section *gap = mr_checkpoint_section(stored, MR_SECTION_GAP);
    pthread_mutex_lock(&requests->lock);
    if (gap != NULL) {
        snprintf(requests->gap, sizeof(requests->gap), "%s", gap->json);
    }
    pthread_mutex_unlock(&requests->lock);
}
