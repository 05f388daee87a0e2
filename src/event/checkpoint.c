#include "event/checkpoint.h"

#include "base/hash.h"

enum { RECIPE_MAX = 384 };

uint64_t mr_identity_asked(const struct mr_identity *identity)
{
    return mr_hash_add(MR_HASH_BEGIN, identity->publication, strlen(identity->publication));
}

struct mr_commit mr_identity_no_commit(const struct mr_identity *identity)
{
    return (struct mr_commit){.lsn = 1, .asked = mr_identity_asked(identity)};
}

void mr_checkpoint_done(struct mr_checkpoint *state)
{
    for (uint32_t i = 0; i < state->section_count; i++) {
        free(state->sections[i].json);
    }
    state->section_count = 0;
}

void mr_checkpoint_add(struct mr_checkpoint *state, const char *name, char *json,
                       const struct mr_section_rank *rank)
{
    MR_ASSERT(state->section_count < MR_SECTIONS_MAX);
    MR_ASSERT(mr_checkpoint_section(state, name) == NULL);
    state->sections[state->section_count++] =
        (struct mr_section){.name = name, .json = json, .rank = *rank};
}

const struct mr_section *mr_checkpoint_section(const struct mr_checkpoint *state, const char *name)
{
    return MR_FIND(section, state->sections, state->section_count,
                   strcmp(section->name, name) == 0);
}

mr_lsn mr_checkpoint_begins(const struct mr_checkpoint *state)
{
    mr_lsn begins = 0;
    for (uint32_t i = 0; i < state->section_count && begins == 0; i++) {
        begins = state->sections[i].rank.begins;
    }
    return begins;
}

static bool has_no_stream(const struct mr_checkpoint *state)
{
    return MR_ANY(section, state->sections, state->section_count, section->rank.no_stream);
}

static mr_lsn reached(const struct mr_checkpoint *state)
{
    mr_lsn begins = mr_checkpoint_begins(state);
    return begins != 0 ? begins : state->end_lsn;
}

bool mr_checkpoint_has_stream(const struct mr_checkpoint *state)
{
    /* Without either, the first transaction of all is under way: only where no section says that
     * none has begun. */
    return mr_checkpoint_begins(state) == 0 || state->end_lsn != 0 ||
           state->position.commit_lsn != 0;
}

static int rank_compare(const struct mr_section_rank *a, const struct mr_section_rank *b)
{
    return a->major != b->major ? (a->major > b->major) - (a->major < b->major)
                                : (a->minor > b->minor) - (a->minor < b->minor);
}

/* The first section that differs decides. */
static bool sections_are_behind(const struct mr_checkpoint *next, const struct mr_checkpoint *known)
{
    static const struct mr_section none = {.rank = {.major = 0}};
    int order = 0;
    for (uint32_t i = 0; order == 0 && i < known->section_count; i++) {
        const struct mr_section *section = mr_checkpoint_section(next, known->sections[i].name);
        order =
            rank_compare(section == NULL ? &none.rank : &section->rank, &known->sections[i].rank);
    }
    return order < 0;
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
    bool begins = mr_checkpoint_begins(next) != 0;
    if (begins != (mr_checkpoint_begins(known) != 0)) {
        return begins;
    }
    int order = begins ? 0 : mr_position_compare(next->position, known->position);
    return order < 0 || (order == 0 && sections_are_behind(next, known));
}

/* Where positions of now would lie below those that consumers have, or this is another stream
 * altogether. */
static const char *recipe_elsewhere(const struct mr_server_position *server, char *text,
                                    size_t size)
{
    char drop[128] = "";
    uint32_t step = 1;
    if (server->slot_exists) {
        snprintf(drop, sizeof(drop), "%u. run SELECT pg_drop_replication_slot('%s') here; ", step++,
                 server->identity.slot);
    }
    snprintf(text, size,
             "%s%u. set another topic_prefix and another sink.kafka.state_name; %u. set "
             "snapshot.mode = \"initial\"; %u. start millrace: it copies the tables into the new "
             "topics",
             drop, step, step + 1, step + 2);
    return text;
}

/* Copied rows lie after the end that the server's log has now: making a slot writes to it
 * (LogStandbySnapshot, slotfuncs.c). */
static const char *recipe(const struct mr_server_position *server, mr_lsn delivered, char *text,
                          size_t size)
{
    return server->flushed >= delivered ? MR_RECIPE_OF_COPY : recipe_elsewhere(server, text, size);
}

/* A stream from a standby does not end when that is promoted, or follows another primary, and does
 * not say so: what is delivered may lie behind the switch of timelines (walsender.c,
 * logical_read_xlog_page). There the slot, which only this server has, was confirmed as far by us,
 * or its last transaction is compared (stream/rejoin.h). */
static bool is_followed(const struct mr_checkpoint *stored, const struct mr_server_position *server,
                        mr_lsn ended)
{
    bool is_compared =
        stored->last.lsn != 0 && stored->last.asked == mr_identity_asked(&server->identity);
    return stored->identity.is_standby && server->slot_exists && server->slot_confirmed != 0 &&
           (server->slot_confirmed >= ended || is_compared);
}

/* One that has just started has not replayed yet what it had before. */
static mr_status await_replay(const struct mr_server_position *server, mr_lsn reached,
                              struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_TRANSIENT,
                   "changes up to " MR_LSN_FORMAT " were delivered, and the standby has its WAL up "
                   "to " MR_LSN_FORMAT " of timeline %u: waiting until it has followed",
                   MR_LSN_ARGS(reached), MR_LSN_ARGS(server->flushed), server->identity.timeline);
}

/* Part of a transaction counts: its commit record, which begins at the position's LSN, must be in
 * the log. A message outside transactions (ordinal 0) ends there. */
static mr_status verify_log(const struct mr_checkpoint *stored,
                            const struct mr_server_position *server, struct mr_error *ret_error)
{
    const struct mr_identity *then = &stored->identity;
    const struct mr_identity *now = &server->identity;
    mr_lsn place = stored->position.commit_lsn;
    mr_lsn reached = place > stored->end_lsn ? place : stored->end_lsn;
    mr_lsn begun = stored->position.ordinal != 0 ? place : 0;
    mr_lsn ended = begun == 0 ? reached : stored->end_lsn;
    char steps[RECIPE_MAX];
    bool is_short = ended > server->flushed || begun > server->flushed;
    if (now->is_standby && (is_short || then->timeline > now->timeline)) {
        return await_replay(server, reached, ret_error);
    }
    if (then->timeline > now->timeline) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "changes up to " MR_LSN_FORMAT " of timeline %u were delivered, but the server is "
            "still on timeline %u: it is the old primary, or was restored to an earlier point; "
            "connect to the new one, or stream this one from now on: %s",
            MR_LSN_ARGS(reached), then->timeline, now->timeline,
            recipe_elsewhere(server, steps, sizeof(steps)));
    }
    if (then->timeline < now->timeline && !is_followed(stored, server, ended) &&
        (server->switched_at < ended || (begun != 0 && server->switched_at <= begun))) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "delivered events the new primary does not have: changes up to " MR_LSN_FORMAT
            " of timeline %u were delivered, but the server left it at " MR_LSN_FORMAT
            " for timeline %u: it was promoted or restored to an earlier point; "
            "synchronized_standby_slots on the primary keeps a standby from being "
            "behind" MR_RECIPE_LEAD "%s",
            MR_LSN_ARGS(reached), then->timeline, MR_LSN_ARGS(server->switched_at), now->timeline,
            recipe(server, reached, steps, sizeof(steps)));
    }
    if (is_short) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "changes up to " MR_LSN_FORMAT
                       " were delivered, but the server's WAL ends at " MR_LSN_FORMAT
                       ": it was restored to an earlier point" MR_RECIPE_LEAD "%s",
                       MR_LSN_ARGS(reached), MR_LSN_ARGS(server->flushed),
                       recipe_elsewhere(server, steps, sizeof(steps)));
    }
    return MR_OK;
}

/* A stream was begun, so it goes on, from a slot that has all after `stored`. */
static mr_status verify_stream(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, struct mr_error *ret_error)
{
    const struct mr_identity *now = &server->identity;
    char steps[RECIPE_MAX];
    if (!server->slot_exists && stored->identity.timeline < now->timeline) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "slot \"%s\" is not on the promoted server, and the rows since " MR_LSN_FORMAT
            " can't be read without it; source.postgres.failover = true with "
            "sync_replication_slots = on at the standby keeps it there" MR_RECIPE_LEAD "%s",
            now->slot, MR_LSN_ARGS(stored->end_lsn),
            recipe(server, stored->end_lsn, steps, sizeof(steps)));
    }
    if (!server->slot_exists) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is gone, and with it the rows since " MR_LSN_FORMAT
                       ", up to which all was delivered" MR_RECIPE_LEAD "%s",
                       now->slot, MR_LSN_ARGS(stored->end_lsn),
                       recipe(server, stored->end_lsn, steps, sizeof(steps)));
    }
    /* 0: the first transaction of all is still under way, and the slot stands where it was made. */
    if (stored->end_lsn != 0 && server->slot_confirmed > stored->end_lsn) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is at " MR_LSN_FORMAT
                       ", but only what ends at or before " MR_LSN_FORMAT
                       " was delivered: it was made again or moved by somebody else, and the rows "
                       "between are missing" MR_RECIPE_LEAD "%s",
                       now->slot, MR_LSN_ARGS(server->slot_confirmed), MR_LSN_ARGS(stored->end_lsn),
                       recipe(server, stored->end_lsn, steps, sizeof(steps)));
    }
    return MR_OK;
}

mr_status mr_checkpoint_refuse(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, struct mr_error *ret_error)
{
    char last[96] = "";
    char steps[RECIPE_MAX];
    if (stored->last.xid != 0) {
        snprintf(last, sizeof(last),
                 ", the last rows by transaction %u, which committed at " MR_LSN_FORMAT,
                 stored->last.xid, MR_LSN_ARGS(stored->last.lsn));
    }
    return mr_fail(ret_error, MR_ERR_HISTORY,
                   "changes up to " MR_LSN_FORMAT " were delivered%s, but the server has others "
                   "there: it was restored to an earlier point, and was written to "
                   "since" MR_RECIPE_LEAD "%s",
                   MR_LSN_ARGS(stored->end_lsn), last,
                   recipe(server, stored->end_lsn, steps, sizeof(steps)));
}

static const char *recipe_of_giving_up(const struct mr_server_position *server, bool is_stored,
                                       char *text, size_t size)
{
    char drop[192] = "";
    char forget[64] = "";
    uint32_t step = 1;
    if (server->copy_slot[0] != '\0') {
        snprintf(drop, sizeof(drop), "%u. run SELECT pg_drop_replication_slot('%s'); ", step++,
                 server->copy_slot);
    }
    if (is_stored) {
        snprintf(forget, sizeof(forget), "%u. set another sink.kafka.state_name; ", step++);
    }
    snprintf(text, size, "%s%s%u. start millrace", drop, forget, step);
    return text;
}

/* A copy was begun (stored: at that place; 0: nothing is stored) that a stream is to follow, and is
 * not complete: rows that are with the sink may have changed since. */
static mr_status verify_copy(const struct mr_server_position *server, mr_lsn begun,
                             struct mr_error *ret_error)
{
    char steps[RECIPE_MAX];
    if (server->slot_exists && server->slot_confirmed <= begun) {
        return MR_OK; /* nothing is missing after what was copied */
    }
    return mr_fail(ret_error, MR_ERR_HISTORY,
                   "a copy of existing rows was begun and is not complete (its slot %s%s), so a "
                   "stream that begins at slot \"%s\" now would leave out what has changed since; "
                   "to go on with the copy: 1. set snapshot.mode = \"%s\"; 2. start "
                   "millrace; or, to give it up, and what has changed since: %s",
                   server->copy_slot[0] != '\0' ? "is " : "is gone", server->copy_slot,
                   server->identity.slot, server->slot_exists ? "when_needed" : "initial",
                   recipe_of_giving_up(server, begun != 0, steps, sizeof(steps)));
}

/* Nothing of ours was begun; another program has delivered what is before. */
static mr_status verify_handed_over(const struct mr_server_position *server, mr_lsn handed_over,
                                    struct mr_error *ret_error)
{
    const char *slot = server->identity.slot;
    if (!server->slot_exists) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is not there, so the rows since " MR_LSN_FORMAT
                       ", where Debezium's offset ends, can't be read; correct slot_name, "
                       "or copy the tables: %s",
                       slot, MR_LSN_ARGS(handed_over), MR_RECIPE_BY_HAND);
    }
    if (server->slot_confirmed > handed_over) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "slot \"%s\" is at " MR_LSN_FORMAT ", but Debezium's offset ends "
            "at " MR_LSN_FORMAT
            ": the rows between are missing; if Debezium itself has moved it on without "
            "rows (lsn.flush.mode), start without --after-offset; else copy the tables: %s",
            slot, MR_LSN_ARGS(server->slot_confirmed), MR_LSN_ARGS(handed_over), MR_RECIPE_BY_HAND);
    }
    return MR_OK;
}

mr_status mr_checkpoint_verify(const struct mr_checkpoint *stored,
                               const struct mr_server_position *server, mr_lsn handed_over,
                               struct mr_error *ret_error)
{
    mr_lsn begins = stored != NULL && !has_no_stream(stored) ? mr_checkpoint_begins(stored) : 0;
    char steps[RECIPE_MAX];
    if (stored != NULL && strcmp(stored->identity.system_id, server->identity.system_id) != 0) {
        return mr_fail(
            ret_error, MR_ERR_HISTORY,
            "this is another PostgreSQL cluster (system identifier %s) than the one whose "
            "changes were delivered (%s); correct the connection; if it has taken that one's place "
            "(pg_upgrade, a restore), run millrace move, which says how the stream goes on here; "
            "or stream this one from now on: %s",
            server->identity.system_id, stored->identity.system_id,
            recipe_elsewhere(server, steps, sizeof(steps)));
    }
    if (stored != NULL && mr_checkpoint_has_stream(stored)) {
        MR_TRY(verify_log(stored, server, ret_error));
        return verify_stream(stored, server, ret_error);
    }
    if (begins != 0 || (server->copy_slot[0] != '\0' && !server->slot_exists)) {
        MR_TRY(verify_copy(server, begins, ret_error));
    }
    return handed_over == 0 ? MR_OK : verify_handed_over(server, handed_over, ret_error);
}
