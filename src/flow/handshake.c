#include "flow/handshake.h"

enum { STATE_BITS = 8 };

/* From state and event to state; what is not named is MR_HANDSHAKE_NONE, so states here count from
 * 1, and 0 is "no such step". */
#define TO(state) (MR_HANDSHAKE_##state + 1)

/* clang-format off */
static const uint8_t table[MR_HANDSHAKE_STATES][MR_HANDSHAKE_EVENTS] = {
    [MR_HANDSHAKE_NONE] = {
        [MR_HANDSHAKE_CLAIM]   = TO(CLAIMED),
        [MR_HANDSHAKE_LOAD]    = TO(NONE), /* the claim was lost just before */
        [MR_HANDSHAKE_LOADED]  = TO(DETACHED), /* by a sink that stores nothing */
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_CLAIMED] = {
        [MR_HANDSHAKE_LOAD]    = TO(LOADING),
        [MR_HANDSHAKE_LOADED]  = TO(READY), /* by a sink that stores nothing */
        [MR_HANDSHAKE_LOSE]    = TO(NONE),
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_LOADING] = {
        [MR_HANDSHAKE_LOADED]  = TO(READY),
        [MR_HANDSHAKE_LOSE]    = TO(OUTDATED), /* another instance may store while we read */
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_READY] = {
        [MR_HANDSHAKE_OPENED]  = TO(OPEN),
        [MR_HANDSHAKE_LOSE]    = TO(DETACHED),
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_OPEN] = {
        [MR_HANDSHAKE_LOSE]    = TO(DETACHED), /* what is in flight stays in flight */
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_DETACHED] = {
        [MR_HANDSHAKE_CLAIM]   = TO(RECLAIMED),
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_RECLAIMED] = {
        [MR_HANDSHAKE_OPENED]  = TO(OPEN),
        [MR_HANDSHAKE_LOSE]    = TO(DETACHED),
        [MR_HANDSHAKE_OUTDATE] = TO(OUTDATED),
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
    [MR_HANDSHAKE_OUTDATED] = {
        [MR_HANDSHAKE_LOADED]  = TO(OUTDATED), /* the reading ends; the session goes all the same */
        [MR_HANDSHAKE_END]     = TO(NONE),
    },
};
/* clang-format on */

static struct mr_handshake_view handshake_view_of(uint64_t word)
{
    return (struct mr_handshake_view){
        .session = (uint32_t)(word >> STATE_BITS),
        .state = (enum mr_handshake_state)(word & ((1u << STATE_BITS) - 1))};
}

struct mr_handshake_view mr_handshake_look(const struct mr_handshake *handshake)
{
    return handshake_view_of(atomic_load_explicit(&handshake->word, memory_order_acquire));
}

enum mr_handshake_state mr_handshake_next(enum mr_handshake_state state,
                                          enum mr_handshake_event event)
{
    MR_ASSERT(state < MR_HANDSHAKE_STATES);
    MR_ASSERT(event < MR_HANDSHAKE_EVENTS);
    uint8_t to = table[state][event];
    return to == 0 ? MR_HANDSHAKE_STATES : (enum mr_handshake_state)(to - 1);
}

bool mr_handshake_step(struct mr_handshake *handshake, uint32_t session,
                       enum mr_handshake_event event)
{
    uint64_t word = atomic_load_explicit(&handshake->word, memory_order_acquire);
    uint32_t next_session = event == MR_HANDSHAKE_END ? session + 1 : session;
    uint64_t next;
    do {
        struct mr_handshake_view now = handshake_view_of(word);
        if (now.session != session) {
            MR_ASSERT(event < MR_HANDSHAKE_LOAD); /* the sink thread knows its own session */
            return false;
        }
        enum mr_handshake_state state = mr_handshake_next(now.state, event);
        MR_ASSERT(state != MR_HANDSHAKE_STATES);
        next = (uint64_t)next_session << STATE_BITS | (uint64_t)state;
    } while (!atomic_compare_exchange_weak_explicit(&handshake->word, &word, next,
                                                    memory_order_acq_rel, memory_order_acquire));
    return true;
}
