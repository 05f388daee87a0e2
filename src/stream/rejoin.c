#include "stream/rejoin.h"

static bool compares(const struct mr_rejoin *rejoin)
{
    return rejoin->state == MR_REJOIN_COMPARES;
}

/* The place was reached: what comes from now on is new, or was handed on by this process. */
static void rejoin_pass(struct mr_rejoin *rejoin)
{
    rejoin->state = rejoin->has_last ? MR_REJOIN_NONE : MR_REJOIN_REFUSED;
}

mr_status mr_rejoin_look(const struct mr_rejoin *rejoin, struct mr_error *ret_error)
{
    return rejoin->state != MR_REJOIN_REFUSED
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_TRANSIENT,
                         "PostgreSQL sends other transactions before " MR_LSN_FORMAT
                         " than those that were delivered",
                         MR_LSN_ARGS(rejoin->start));
}

static mr_status rejoin_on_begin(void *context, const struct mr_transaction *transaction,
                                 struct mr_error *ret_error)
{
    struct mr_rejoin *rejoin = context;
    if (compares(rejoin) && transaction->commit_lsn >= rejoin->end) {
        rejoin_pass(rejoin);
    }
    if (compares(rejoin)) {
        bool is_last = transaction->commit_lsn == rejoin->last.lsn;
        bool is_other = is_last && (transaction->xid != rejoin->last.xid ||
                                    transaction->commit_time_us != rejoin->last.time_us);
        rejoin->has_last = rejoin->has_last || is_last;
        rejoin->state = is_other || !rejoin->has_last ? MR_REJOIN_REFUSED : rejoin->state;
        rejoin->running = transaction->commit_lsn;
        return mr_rejoin_look(rejoin, ret_error);
    }
    MR_TRY(mr_rejoin_look(rejoin, ret_error));
    return rejoin->next->begin(rejoin->next->context, transaction, ret_error);
}

static mr_status rejoin_on_change(void *context, const struct mr_change *change,
                                  struct mr_error *ret_error)
{
    const struct mr_rejoin *rejoin = context;
    return compares(rejoin) ? MR_OK
                            : rejoin->next->change(rejoin->next->context, change, ret_error);
}

static mr_status rejoin_on_message(void *context, const struct mr_message_event *message,
                                   struct mr_error *ret_error)
{
    struct mr_rejoin *rejoin = context;
    if (compares(rejoin) && message->transaction == NULL && message->lsn > rejoin->end) {
        rejoin_pass(rejoin);
    }
    if (compares(rejoin)) {
        return MR_OK;
    }
    MR_TRY(mr_rejoin_look(rejoin, ret_error));
    return rejoin->next->message(rejoin->next->context, message, ret_error);
}

static mr_status rejoin_on_commit(void *context, const struct mr_transaction *transaction,
                                  struct mr_error *ret_error)
{
    struct mr_rejoin *rejoin = context;
    if (!compares(rejoin)) {
        return rejoin->next->commit(rejoin->next->context, transaction, ret_error);
    }
    rejoin->running = 0;
    if (transaction->has_rows && transaction->commit_lsn != rejoin->last.lsn) {
        rejoin->state = MR_REJOIN_REFUSED;
    }
    return mr_rejoin_look(rejoin, ret_error);
}

/* All that commits before `server_end` was sent (walsender.c, XLogSendLogical). */
static void rejoin_on_keepalive(void *context, mr_lsn server_end, bool reply_requested)
{
    struct mr_rejoin *rejoin = context;
    bool asks = reply_requested;
    if (compares(rejoin) && rejoin->running == 0) {
        bool is_after_last = server_end > rejoin->last.lsn;
        if (server_end >= rejoin->end || (is_after_last && !rejoin->has_last)) {
            rejoin_pass(rejoin);
            asks = true; /* what was held back can be confirmed */
        }
    }
    if (compares(rejoin) && server_end > rejoin->start) {
        server_end = rejoin->start; /* nothing is said of what is not compared yet */
    }
    if (rejoin->state != MR_REJOIN_REFUSED) {
        rejoin->next->keepalive(rejoin->next->context, server_end, asks);
    }
}

static void rejoin_on_relation_end(void *context, const struct mr_relation *relation)
{
    const struct mr_rejoin *rejoin = context;
    rejoin->next->relation_end(rejoin->next->context, relation);
}

static mr_status rejoin_on_part(void *context, const struct mr_relation *root,
                                const struct mr_relation *part, struct mr_error *ret_error)
{
    const struct mr_rejoin *rejoin = context;
    return rejoin->next->part(rejoin->next->context, root, part, ret_error);
}

/* The place, the last transaction and the slot are those of the connection before. */
static bool rejoin_is_same(const struct mr_rejoin *rejoin, const struct mr_checkpoint *stored,
                           const struct mr_server_position *server)
{
    return stored->end_lsn == rejoin->start && stored->last.lsn == rejoin->last.lsn &&
           server->slot_confirmed == rejoin->slot_confirmed;
}

bool mr_rejoin_refuses(const struct mr_rejoin *rejoin, const struct mr_checkpoint *stored,
                       const struct mr_server_position *server)
{
    return rejoin->state == MR_REJOIN_REFUSED && stored != NULL &&
           rejoin_is_same(rejoin, stored, server);
}

mr_lsn mr_rejoin_begin(struct mr_rejoin *rejoin, const struct mr_checkpoint *stored,
                       const struct mr_server_position *server, mr_lsn start, bool is_first)
{
    MR_ASSERT(!mr_rejoin_refuses(rejoin, stored, server));
    bool has_last = stored != NULL && stored->last.lsn != 0 && stored->end_lsn == start &&
                    stored->last.asked == mr_identity_asked(&server->identity);
    if (!has_last || server->slot_confirmed == 0 || server->slot_confirmed >= start) {
        *rejoin = (struct mr_rejoin){0};
        return start;
    }
    bool is_partial = is_first && stored->position.ordinal != 0;
    mr_lsn position = is_partial ? stored->position.commit_lsn : 0;
    bool is_passed = rejoin->passes_last && rejoin_is_same(rejoin, stored, server);
    *rejoin = (struct mr_rejoin){.state = MR_REJOIN_COMPARES,
                                 .last = stored->last,
                                 .start = start,
                                 .end = position > start ? position : start,
                                 .slot_confirmed = server->slot_confirmed,
                                 .has_last = is_passed || server->slot_confirmed > stored->last.lsn,
                                 .passes_last = is_passed};
    mr_lsn begin = stored->last.lsn + is_passed;
    return begin > server->slot_confirmed ? begin : server->slot_confirmed;
}

const struct mr_source_handler *mr_rejoin_handler(struct mr_rejoin *rejoin,
                                                  const struct mr_source_handler *handler)
{
    if (MR_LIKELY(rejoin->state == MR_REJOIN_NONE)) {
        return handler;
    }
    rejoin->next = handler;
    rejoin->handler =
        (struct mr_source_handler){.context = rejoin,
                                   .hold = handler->hold,
                                   .sent_us = handler->sent_us,
                                   .change = rejoin_on_change,
                                   .message = rejoin_on_message,
                                   .begin = rejoin_on_begin,
                                   .commit = rejoin_on_commit,
                                   .keepalive = rejoin_on_keepalive,
                                   .part = handler->part == NULL ? NULL : rejoin_on_part,
                                   .relation_end = rejoin_on_relation_end};
    return &rejoin->handler;
}

bool mr_rejoin_passes(struct mr_rejoin *rejoin)
{
    if (!compares(rejoin) || rejoin->running == 0) {
        return false;
    }
    rejoin->passes_last = rejoin->running == rejoin->last.lsn;
    rejoin->state = rejoin->passes_last ? rejoin->state : MR_REJOIN_REFUSED; /* it has rows */
    return true;
}

mr_lsn mr_rejoin_confirms(const struct mr_rejoin *rejoin, mr_lsn flushed)
{
    return MR_LIKELY(rejoin->state == MR_REJOIN_NONE) ? flushed : rejoin->slot_confirmed;
}

void mr_rejoin_end(struct mr_rejoin *rejoin)
{
    if (rejoin->state == MR_REJOIN_COMPARES) {
        rejoin->state = MR_REJOIN_NONE;
    }
}
