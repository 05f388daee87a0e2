#include "event/checkpoint.h"

#include <string.h>

#define START_ANEW                                                                                 \
    "to start anew, drop the slot, copy the tables, and choose another sink.kafka.state_name "     \
    "where Kafka keeps "                                                                           \
    "the position"

void mr_checkpoint_done(struct mr_checkpoint *state)
{
    mr_copy_stored_free(state->copy);
    mr_asked_stored_free(state->asked);
    state->copy = NULL;
    state->asked = NULL;
}

static uint64_t asked_step(const struct mr_checkpoint *state)
{
    return state->asked == NULL ? 0 : state->asked->step;
}

/* A copy says where the stream will begin, and it is not there before it is complete. */
static mr_lsn reached(const struct mr_checkpoint *state)
{
    return state->copy != NULL ? state->copy->lsn : state->end_lsn;
}

bool mr_checkpoint_is_behind(const struct mr_checkpoint *next, const struct mr_checkpoint *known)
{
    if (strcmp(next->identity.system_id, known->identity.system_id) != 0) {
        return false; /* another cluster's positions can't be compared */
    }
    if (next->identity.timeline != known->identity.timeline) {
        return next->identity.timeline < known->identity.timeline;
    }
    if (reached(next) != reached(known)) {
        return reached(next) < reached(known);
    }
    if (next->copy != NULL || known->copy != NULL) {
        return next->copy != NULL &&
               (known->copy == NULL || mr_copy_stored_is_behind(next->copy, known->copy));
    }
    int order = mr_position_compare(next->position, known->position);
    return order < 0 || (order == 0 && asked_step(next) < asked_step(known));
}

/* Part of a transaction counts: its commit record, which begins at the position's LSN, must be in the log. A message
 * outside transactions (ordinal 0) ends there. */
static mr_status verify_log(const struct mr_checkpoint *stored,
                            const struct mr_server_position *server, struct mr_error *ret_error)
{
    const struct mr_identity *then = &stored->identity;
    const struct mr_identity *now = &server->identity;
    mr_lsn place = stored->position.commit_lsn;
    mr_lsn reached = place > stored->end_lsn ? place : stored->end_lsn;
    mr_lsn begun = stored->position.ordinal != 0 ? place : 0;
    mr_lsn ended = begun == 0 ? reached : stored->end_lsn;
    if (then->timeline > now->timeline) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "changes up to " MR_LSN_FORMAT " of timeline %u were delivered, but the server is "
            "still on timeline %u: it is the old primary, or was restored to an earlier point; "
            "connect to the new one, or " START_ANEW,
            MR_LSN_ARGS(reached), then->timeline, now->timeline);
    }
    if (then->timeline < now->timeline &&
        (server->switched_at < ended || (begun != 0 && server->switched_at <= begun))) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "delivered events the new primary does not have: changes up to " MR_LSN_FORMAT
            " of timeline %u were delivered, but the server left it at " MR_LSN_FORMAT
            " for timeline %u: it was promoted or restored to an earlier point; "
            "synchronized_standby_slots on the primary keeps a standby from being "
            "behind; " START_ANEW,
            MR_LSN_ARGS(reached), then->timeline, MR_LSN_ARGS(server->switched_at), now->timeline);
    }
    if (ended > server->flushed || begun > server->flushed) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "changes up to " MR_LSN_FORMAT
                       " were delivered, but the server's WAL ends at " MR_LSN_FORMAT
                       ": it was restored to an earlier point; " START_ANEW,
                       MR_LSN_ARGS(reached), MR_LSN_ARGS(server->flushed));
    }
    return MR_OK;
}

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
    MR_TRY(verify_log(stored, server, ret_error));
    if (!server->slot_exists && then->timeline < now->timeline) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "slot \"%s\" is not on the promoted server, and the rows since " MR_LSN_FORMAT
            " can't be read without it; source.postgres.failover = true with "
            "sync_replication_slots = on at the standby keeps it there; " START_ANEW,
            now->slot, MR_LSN_ARGS(stored->end_lsn));
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
