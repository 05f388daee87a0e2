#include "event/checkpoint.h"

#include <string.h>

#define START_ANEW                                                                                 \
    "to start anew, drop the slot, copy the tables, and choose another sink.kafka.state_name "     \
    "where Kafka keeps "                                                                           \
    "the position"

mr_status mr_checkpoint_verify(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, struct mr_error *ret_error)
{
    const struct mr_identity *then = &stored->identity;
    const struct mr_identity *now = &server->identity;
    if (strcmp(then->system_id, now->system_id) != 0) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "this is another PostgreSQL cluster (system identifier %s) than the one whose "
            "changes were delivered (%s); correct the connection, or " START_ANEW,
            now->system_id, then->system_id);
    }
    if (then->timeline > now->timeline ||
        (then->timeline < now->timeline && server->switched_at < stored->end_lsn)) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "changes up to " MR_LSN_FORMAT " of timeline %u were delivered, but the server is on "
            "timeline %u, which does not hold all of them: it was promoted or restored to an "
            "earlier point; " START_ANEW,
            MR_LSN_ARGS(stored->end_lsn), then->timeline, now->timeline);
    }
    /* One more: a logical message outside any transaction counts as told from the byte behind it. */
    if (stored->end_lsn > server->flushed + 1) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "changes up to " MR_LSN_FORMAT
                       " were delivered, but the server's log ends at " MR_LSN_FORMAT
                       ": it was restored to an earlier point; " START_ANEW,
                       MR_LSN_ARGS(stored->end_lsn), MR_LSN_ARGS(server->flushed));
    }
    if (!server->slot_exists) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is gone, and with it the rows since " MR_LSN_FORMAT
                       ", up to which all was delivered; " START_ANEW,
                       now->slot, MR_LSN_ARGS(stored->end_lsn));
    }
    /* 0: the first transaction of all is still under way, and the slot stands where it was made. */
    if (stored->end_lsn != 0 && server->slot_confirmed > stored->end_lsn) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" stands at " MR_LSN_FORMAT
                       ", but only what ends at or before " MR_LSN_FORMAT
                       " was delivered: it was made anew or moved by somebody else, and the rows "
                       "between are missing; " START_ANEW,
                       now->slot, MR_LSN_ARGS(server->slot_confirmed),
                       MR_LSN_ARGS(stored->end_lsn));
    }
    return MR_OK;
}
