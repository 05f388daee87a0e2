#include "postgres/server/pg_move.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/wake.h"
#include "event/lsn.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_setup.h"

#define FENCE_PREFIX "millrace-move"

enum {
    CARRIES_SLOTS_VERSION = 170000,
    SKIPS_EMPTY_VERSION = 150000,
    LOOK_AGAIN_MS = 100,
    FENCE_SLOT_SIZE = 64
};

/* Older transactions are waited for so long. */
#define OPEN_NS (INT64_C(10) * 1000000000)

/* Left behind the fence, beside the stream's slot: pg_upgrade takes both along (from 17 on), and a
 * slot that somebody makes on the new cluster has no such neighbour. */
#define FENCE_SLOT "millrace_fence_%016" PRIx64

/* What new sessions of every role get: the setting of the database, of all databases, or the
 * server's own, but not the role's that asks; and no role sets it otherwise (postinit.c,
 * process_settings; manual, "pg_settings", source). */
#define READ_ONLY "split_part(c, '=', 2)::boolean"
#define READ_ONLY_OF_ROLE                                                                          \
    " FROM pg_db_role_setting, unnest(setconfig) c WHERE setdatabase IN"                           \
    " (0, (SELECT oid FROM pg_database WHERE datname = current_database()))"                       \
    " AND split_part(c, '=', 1) = 'default_transaction_read_only' AND setrole"
#define HOLDS_WRITES                                                                               \
    "coalesce((SELECT " READ_ONLY READ_ONLY_OF_ROLE " = 0 ORDER BY setdatabase = 0 LIMIT 1),"      \
    " (SELECT setting::boolean AND source IN ('configuration file', 'command line')"               \
    " FROM pg_settings WHERE name = 'default_transaction_read_only'))"                             \
    " AND coalesce((SELECT bool_and(" READ_ONLY ")" READ_ONLY_OF_ROLE " <> 0), true)"

/* The number of a transaction that writes is shown to every role (pgstatfuncs.c,
 * pg_stat_get_activity). Autovacuum is nobody's (backend_status.c, pgstat_bestart). */
#define WRITERS                                                                                    \
    "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"                    \
    " AND backend_xid IS NOT NULL AND usesysid IS NOT NULL AND pid <> pg_backend_pid())"           \
    " + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database())"

static mr_status pg_move_read_rows(struct mr_pg_conn *conn,
                                   const struct mr_pg_source_options *options,
                                   const char *fence_slot, struct mr_pg_move_view *view,
                                   bool *ret_has_fence, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the state of the cluster", "bnnnnb", 1, 1};
    const struct mr_pg_result *result;
    view->version = mr_pg_server_version(conn);
    MR_TRY(mr_pg_askf(
        conn, &shape, &result, ret_error,
        "SELECT " HOLDS_WRITES ", " WRITERS ","
        " pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
        " (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables t"
        " JOIN pg_publication_tables p ON p.schemaname = t.schemaname AND p.tablename = t.relname"
        " WHERE p.pubname = %L),"
        " (SELECT count(*) FROM pg_subscription WHERE subenabled AND subdbid ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())),"
        " EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %L"
        " AND database = current_database())",
        options->publication, fence_slot));
    view->holds_writes = mr_pg_result_true(result, 0, 0);
    view->writers = (uint64_t)mr_pg_result_number(result, 0, 1);
    view->next_xid = (uint64_t)mr_pg_result_number(result, 0, 2);
    view->changed_rows = (uint64_t)mr_pg_result_number(result, 0, 3);
    view->subscriptions = (uint64_t)mr_pg_result_number(result, 0, 4);
    *ret_has_fence = mr_pg_result_true(result, 0, 5);
    return MR_OK;
}

/* In a transaction of its own; its commit flushes the WAL, with the commits before it that were not
 * waited for. */
static mr_status emit(struct mr_pg_conn *conn, int64_t *ret_xid, struct mr_error *ret_error)
{
    return mr_pg_ask_number(conn, "the fence", 'n', ret_xid, ret_error,
                            "SELECT x.id FROM (SELECT pg_current_xact_id()::text::bigint AS id) x,"
                            " pg_logical_emit_message(true, '" FENCE_PREFIX "', 'fence') m");
}

static mr_status refuse_open(struct mr_error *ret_error)
{
    return mr_fail(ret_error, MR_ERR_HISTORY,
                   "a transaction that writes is still open, and would commit behind the fence; "
                   "end it (SELECT pid, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL; "
                   "SELECT * FROM pg_prepared_xacts), and try again");
}

/* Until no transaction is open that began before the fence: it could commit behind it. */
static mr_status wait_for_older(struct mr_pg_conn *conn, int64_t xid, struct mr_error *ret_error)
{
    int64_t begin_ns = mr_monotonic_ns();
    char fence[24];
    snprintf(fence, sizeof(fence), "%lld", (long long)xid);
    for (;;) {
        int64_t is_over;
        MR_TRY(mr_pg_ask_number(
            conn, "open transactions", 'b', &is_over, ret_error,
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s"
            " AND NOT EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database())",
            fence));
        if (is_over) {
            return MR_OK;
        }
        if (mr_monotonic_ns() - begin_ns > OPEN_NS) {
            return refuse_open(ret_error);
        }
        if (mr_wait_readable(mr_pg_stop_fd(conn), LOOK_AGAIN_MS)) {
            return MR_AGAIN;
        }
    }
}

/* Whether the slot has something up to `end` (an LSN; "": to the end of the WAL): Insert, Update,
 * Delete, Truncate, or a Message whose prefix, from its 11th byte on, is not the fence's (manual,
 * "Logical Replication Message Formats"). The answer is as long as a transaction that is there: the
 * server counts it. Before 15 also transactions without changes come (pgoutput.c,
 * pgoutput_begin_txn), and the fence is one with a message: then all is read. */
static mr_status has_rest(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                          const char *slot, const char *end, bool *ret_has,
                          struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"what the slot has", "n", 1, 1};
    bool is_first_enough = mr_pg_server_version(conn) >= SKIPS_EMPTY_VERSION && !options->messages;
    struct mr_text command = {0};
    mr_sql_format(
        &command,
        "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%L, nullif(%L, '')::pg_lsn,"
        " %s, 'proto_version', '1', 'publication_names', quote_ident(%L)%s)"
        " WHERE chr(get_byte(data, 0)) IN ('I', 'U', 'D', 'T')"
        " OR (chr(get_byte(data, 0)) = 'M'"
        " AND substr(data, 11, 14) <> convert_to('" FENCE_PREFIX "', 'UTF8')"
        " || decode('00', 'hex'))",
        slot, end, is_first_enough ? "1" : "NULL", options->publication,
        options->messages ? ", 'messages', 'true'" : "");
    struct mr_pg_result *result;
    MR_TRY(mr_pg_query_within(conn, &command, &shape, MR_PG_CHANGE_MS, &result, ret_error));
    *ret_has = mr_pg_result_number(result, 0, 0) != 0;
    mr_pg_result_free(result);
    return MR_OK;
}

static mr_status refuse_rest(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             struct mr_error *ret_error)
{
    bool has = false;
    MR_TRY(has_rest(conn, options, options->slot, "", &has, ret_error));
    return !has ? MR_OK
                : mr_fail(ret_error, MR_ERR_HISTORY,
                          "slot \"%s\" has rows or messages that are not delivered, or not "
                          "confirmed; hold back the writes, start millrace, wait until millrace "
                          "status says lag 0 B, stop it in order (exit code 0), and try again",
                          options->slot);
}

/* The slot came along with the fence's. pg_upgrade makes them by one server that nobody else can
 * reach, one after the other (pg_upgrade.c, create_logical_replication_slots): nothing lies
 * between, or the stream's was made later, by hand. */
static mr_status look_if_carried(struct mr_pg_conn *conn,
                                 const struct mr_pg_source_options *options, const char *fence_slot,
                                 struct mr_pg_move_view *view, struct mr_error *ret_error)
{
    char end[32];
    bool has = false;
    snprintf(end, sizeof(end), MR_LSN_FORMAT,
             MR_LSN_ARGS(mr_lsn_at_server(view->server.slot_confirmed)));
    MR_TRY(has_rest(conn, options, fence_slot, end, &has, ret_error));
    view->slot_is_carried = !has;
    return MR_OK;
}

mr_status mr_pg_move_look(struct mr_pg_conn *conn, struct mr_pg_conn *stream,
                          const struct mr_pg_source_options *options,
                          const struct mr_checkpoint *stored, struct mr_pg_move_view *ret_view,
                          struct mr_error *ret_error)
{
    struct mr_pg_move_view view = {0};
    char fence_slot[FENCE_SLOT_SIZE];
    bool has_fence = false;
    snprintf(fence_slot, sizeof(fence_slot), FENCE_SLOT, stored->identity.moved.left);
    MR_TRY(pg_move_read_rows(conn, options, fence_slot, &view, &has_fence, ret_error));
    MR_TRY(mr_pg_command(conn,
                         "SET default_transaction_read_only = off; SET synchronous_commit = local",
                         MR_PG_ANSWER_MS, ret_error));
    MR_TRY(mr_pg_where(stream, options, &view.server, ret_error));
    if (has_fence && view.server.slot_exists) {
        MR_TRY(look_if_carried(conn, options, fence_slot, &view, ret_error));
    }
    *ret_view = view;
    return MR_OK;
}

mr_status mr_pg_move_fence(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                           mr_lsn *ret_fence, uint64_t *ret_next_xid, struct mr_error *ret_error)
{
    static const struct mr_pg_shape shape = {"the fence", "lnn", 1, 1};
    const struct mr_pg_result *result;
    int64_t xid;
    MR_TRY(emit(conn, &xid, ret_error));
    MR_TRY(wait_for_older(conn, xid, ret_error));
    MR_TRY(emit(conn, &xid, ret_error));
    MR_TRY(mr_pg_askf(conn, &shape, &result, ret_error,
                      "SELECT pg_current_wal_flush_lsn(), "
                      "pg_snapshot_xmax(pg_current_snapshot())::text::bigint, " WRITERS));
    mr_lsn fence = mr_pg_result_lsn(result, 0, 0);
    uint64_t next_xid = (uint64_t)mr_pg_result_number(result, 0, 1);
    if (mr_pg_result_number(result, 0, 2) != 0) {
        return refuse_open(ret_error); /* it began between the two messages */
    }
    MR_TRY(refuse_rest(conn, options,
                       ret_error)); /* decodes to the end, which is the fence or after it */
    *ret_fence = fence;
    *ret_next_xid = next_xid;
    return MR_OK;
}

mr_status mr_pg_move_advance(struct mr_pg_conn *conn, const struct mr_pg_source_options *options,
                             mr_lsn fence, struct mr_error *ret_error)
{
    char to[32];
    snprintf(to, sizeof(to), MR_LSN_FORMAT, MR_LSN_ARGS(mr_lsn_at_server(fence)));
    MR_TRY(mr_pg_commandf(conn, MR_PG_CHANGE_MS, ret_error,
                          "SELECT pg_replication_slot_advance(%L, %L)", options->slot, to));
    if (mr_pg_server_version(conn) < CARRIES_SLOTS_VERSION) {
        return MR_OK;
    }
    char fence_slot[FENCE_SLOT_SIZE];
    snprintf(fence_slot, sizeof(fence_slot), FENCE_SLOT, fence);
    struct mr_error error = {0};
    mr_status status = mr_pg_commandf(conn, MR_PG_CHANGE_MS, &error,
                                      "SELECT pg_copy_logical_replication_slot(%L, %L)",
                                      options->slot, fence_slot);
    return status == MR_OK || status == MR_AGAIN
               ? status
               : mr_fail(ret_error, status,
                         "the fence is set, but its slot \"%s\", by which pg_upgrade's slots are "
                         "known, could not be made: %s; see that max_replication_slots leaves room "
                         "for one more, and try again",
                         fence_slot, error.text);
}

mr_status mr_pg_move_forget(struct mr_pg_conn *conn, const struct mr_checkpoint *stored,
                            struct mr_error *ret_error)
{
    char fence_slot[FENCE_SLOT_SIZE];
    if (stored == NULL || stored->identity.moved.left == 0) {
        return MR_OK;
    }
    snprintf(fence_slot, sizeof(fence_slot), FENCE_SLOT, stored->identity.moved.left);
    return mr_pg_commandf(conn, MR_PG_CHANGE_MS, ret_error,
                          "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                          " WHERE slot_name = %L",
                          fence_slot);
}

static bool has_left(const struct mr_checkpoint *stored)
{
    const struct mr_cluster_move *moved = &stored->identity.moved;
    return moved->left != 0 && moved->entered == 0 && moved->left == stored->end_lsn;
}

/* As pg_upgrade has it, by pg_resetwal -x and -e. Numbers are compared in a circle of 2^32. */
static bool numbers_go_on(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view)
{
    uint64_t left = stored->identity.moved.xid;
    return view->next_xid >= left && view->next_xid - left < INT32_MAX;
}

mr_status mr_pg_move_verify(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view,
                            struct mr_error *ret_error)
{
    const char *slot = view->server.identity.slot;
    bool is_whole = stored->position.ordinal == 0 || stored->position.commit_lsn <= stored->end_lsn;
    if (view->server.slot_exists && !view->slot_is_carried) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is on the new cluster, and pg_upgrade did not take it along "
                       "from the fence: what was written before it was made can't be known. While "
                       "writes are held "
                       "back: SELECT pg_drop_replication_slot('%s'), and try again: this command "
                       "makes it. After writes were let in: copy what differs (docs/verify.md)",
                       slot, slot);
    }
    if (!has_left(stored)) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "the old cluster was left without a fence: rows that were written there "
                       "last may be missing here. If it can still run, start it, and run millrace "
                       "move --fence against it; else copy what differs (docs/verify.md)");
    }
    if (view->server.slot_exists &&
        (view->server.slot_confirmed <= stored->end_lsn || !numbers_go_on(stored, view))) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "slot \"%s\" is at " MR_LSN_FORMAT " of the new cluster, whose next "
                       "transaction is %llu; pg_upgrade goes on above the fence, " MR_LSN_FORMAT
                       " and %llu. A slot that somebody made: while writes are held back, SELECT "
                       "pg_drop_replication_slot('%s'), and try again",
                       slot, MR_LSN_ARGS(view->server.slot_confirmed),
                       (unsigned long long)view->next_xid, MR_LSN_ARGS(stored->end_lsn),
                       (unsigned long long)stored->identity.moved.xid, slot);
    }
    if (!is_whole) {
        return mr_fail(ret_error, MR_ERR_HISTORY,
                       "the transaction that commits at " MR_LSN_FORMAT
                       " was delivered in part: start millrace on the old cluster, and stop it in "
                       "order, before the move",
                       MR_LSN_ARGS(stored->position.commit_lsn));
    }
    return MR_OK;
}

mr_lsn mr_pg_move_shift(const struct mr_checkpoint *stored, const struct mr_pg_move_view *view,
                        uint64_t place)
{
    const struct mr_cluster_move *moved = &stored->identity.moved;
    uint64_t reached = stored->end_lsn;
    bool goes_on = numbers_go_on(stored, view);
    if (place + moved->shift > reached + (goes_on ? 0 : MR_MOVE_GAP)) {
        return moved->shift;
    }
    uint64_t least = reached + MR_MOVE_GAP - place;
    return (least + MR_MOVE_GAP - 1) / MR_MOVE_GAP * MR_MOVE_GAP;
}

mr_status mr_pg_move_slot(struct mr_pg_conn *conn, struct mr_pg_conn *stream,
                          const struct mr_pg_source_options *options, mr_lsn *ret_place,
                          struct mr_error *ret_error)
{
    struct mr_pg_source_options wanted = *options;
    wanted.create_slot = true;
    wanted.position_is_stored = false; /* mr_pg_move_verify has judged one that is there */
    struct mr_pg_stream_state nothing = {0};
    MR_TRY(mr_pg_setup(stream, conn, &wanted, &nothing, NULL, NULL, ret_error));
    int64_t place;
    MR_TRY(mr_pg_ask_number(conn, "the slot", 'l', &place, ret_error,
                            "SELECT confirmed_flush_lsn FROM pg_replication_slots"
                            " WHERE slot_name = %L",
                            options->slot));
    *ret_place = (mr_lsn)place;
    return MR_OK;
}
