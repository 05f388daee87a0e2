/* `millrace move`: the stream leaves one cluster, and goes on at another. What is stored says how
 * far it is; this changes whose places it names. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/wake.h"
#include "cli/show.h"
#include "copy/asked_stored.h"
#include "daemon/daemon.h"
#include "event/lsn.h"
#include "flow/kept.h"
#include "kafka/kafka_check.h"
#include "postgres/catalog/pg_attributes.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_move.h"
#include "sink/kafka/kafka.h"

enum { STORE_LOOK_MS = 10 };
#define STORE_NS (INT64_C(60) * 1000000000)

struct move {
    struct mr_config *config;
    const struct mr_pg_source_options *source;
    FILE *to;
    int stop_fd;
    int wake_fd; /* the sink wants one */
    int64_t begin_ns;
    struct mr_pg_conn *conn, *stream;
    struct mr_sink *sink; /* NULL: only a look */
    struct mr_section_kind sections[MR_DAEMON_SECTIONS];
    struct mr_checkpoint stored;
    struct mr_pg_move_view view;
};

static MR_PRINTF(3, 4) void move_say(const struct move *move, const char *mark, const char *format,
                                     ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(move->to, "%-7s  ", mark);
    vfprintf(move->to, format, arguments);
    fputc('\n', move->to);
    va_end(arguments);
}

static mr_status connect_both(struct move *move, struct mr_error *ret_error)
{
    const struct mr_pg_options *connection = &move->source->connection;
    MR_TRY(mr_pg_connect(connection, false, move->stop_fd, &move->conn, ret_error));
    return mr_pg_connect(connection, true, move->stop_fd, &move->stream, ret_error);
}

/* Whoever streams stores where it is, and would say another thing than we. */
static mr_status claim(struct move *move, bool changes, struct mr_error *ret_error)
{
    struct mr_pg_owner owner;
    MR_TRY(mr_pg_find_owner(move->conn, move->source, &owner, ret_error));
    if (owner.exists && changes) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "slot \"%s\" is in use by %s; stop it in order first (exit code 0), and its "
                       "standby",
                       move->source->slot, owner.who);
    }
    if (owner.exists) {
        move_say(move, "ok", "slot \"%s\": in use by %s", move->source->slot, owner.who);
    }
    _Atomic bool stands_by = false;
    return changes ? mr_pg_claim(move->stream, move->source, &stands_by, ret_error) : MR_OK;
}

static mr_status is_there(const struct move *move, bool found, struct mr_error *ret_error)
{
    const struct mr_kafka_options *options = &move->config->kafka;
    return found ? MR_OK
                 : mr_fail(ret_error, MR_ERR_CONFIG,
                           "no position of \"%s\" is stored in Kafka topic \"%s\", so "
                           "there is nothing to move",
                           options->state_name, options->state_topic);
}

static mr_status look_at_stored(struct move *move, struct mr_error *ret_error)
{
    struct mr_kafka_stored stored;
    MR_TRY(mr_kafka_look_at_stored(&move->config->kafka, move->stop_fd, &stored, ret_error));
    move->stored = stored.state;
    return is_there(move, stored.found, ret_error);
}

static void take_batch(void *context, struct mr_batch *batch)
{
    MR_ASSERT(batch == NULL);
}

/* A session of the sink: exactly once it ends what is open, and fences who might still be there.
 * What is stored then stays. */
static mr_status open_to_store(struct move *move, struct mr_error *ret_error)
{
    struct mr_sink *sink = mr_kafka_sink_new(&move->config->kafka);
    bool is_stored;
    move->sink = sink;
    sink->owner = (struct mr_sink_owner){
        .done = take_batch, .wake_fd = move->wake_fd, .stop_fd = move->stop_fd};
    MR_TRY(sink->ops->open(sink, ret_error));
    mr_checkpoint_done(&move->stored);
    MR_TRY(sink->ops->load(sink, &is_stored, &move->stored, ret_error));
    return is_there(move, is_stored, ret_error); /* a moment ago it was */
}

static mr_status move_store(struct move *move, const struct mr_checkpoint *state,
                            struct mr_error *ret_error)
{
    struct mr_sink *sink = move->sink;
    int64_t begin_ns = mr_monotonic_ns();
    mr_status status = sink->ops->store(sink, state, ret_error);
    while (status == MR_FULL || (status == MR_OK && sink->ops->storing(sink))) {
        bool stops = mr_wait_readable(move->stop_fd, STORE_LOOK_MS);
        MR_TRY(sink->ops->poll(sink, ret_error));
        if (stops || mr_monotonic_ns() - begin_ns > STORE_NS) {
            return mr_fail(ret_error, MR_ERR_TRANSIENT,
                           "Kafka topic \"%s\" did not acknowledge the position in time: whether "
                           "it is stored, millrace move says",
                           move->config->kafka.state_topic);
        }
        status = status == MR_FULL ? sink->ops->store(sink, state, ret_error) : MR_OK;
    }
    return status;
}

static bool is_at_home(const struct move *move)
{
    return strcmp(move->view.server.identity.system_id, move->stored.identity.system_id) == 0;
}

/* A copy that is not complete reads on under the tables' numbers and places in the old cluster. */
static mr_status refuse_copies(struct move *move, struct mr_error *ret_error)
{
    struct mr_asked_stored *asked = mr_asked_stored_of(&move->stored);
    bool copies = (asked != NULL && asked->count > 0) || mr_checkpoint_begins(&move->stored) != 0 ||
                  mr_checkpoint_section(&move->stored, MR_SECTION_COPY) != NULL;
    mr_asked_stored_free(asked);
    return !copies ? MR_OK
                   : mr_fail(ret_error, MR_ERR_CONFIG,
                             "a copy of existing rows is not complete, and can't move: start "
                             "millrace on the old cluster, let it finish (or millrace snapshot "
                             "--stop), and stop it in order");
}

static void drop_section(struct mr_checkpoint *state, const char *name)
{
    for (uint32_t i = 0; i < state->section_count; i++) {
        if (strcmp(state->sections[i].name, name) == 0) {
            free(state->sections[i].json);
            state->sections[i] = state->sections[--state->section_count];
            return;
        }
    }
}

static void replace_section(struct mr_checkpoint *state, const char *name, char *json)
{
    drop_section(state, name);
    if (json != NULL) {
        mr_checkpoint_add(state, name, json, &(struct mr_section_rank){0});
    }
}

/* The tables' numbers are others there; which are there when the stream begins is looked at
 * anew. */
static void move_forget_tables(struct mr_checkpoint *state)
{
    struct mr_asked_stored *asked = mr_asked_stored_of(state);
    if (asked != NULL) {
        drop_section(state, MR_SECTION_ASKED);
        mr_asked_stored_forget_known(asked);
        mr_asked_stored_add(asked, state);
        mr_asked_stored_free(asked);
    }
    drop_section(state, MR_SECTION_SILENCE);
}

/* What is stored of what was hidden, to be read anew. */
struct known {
    struct mr_kin *kin;
    struct mr_hidden *hidden;
};

static struct known known_new(const struct move *move)
{
    const struct mr_encode_options *encode = &move->config->encode;
    struct mr_kin *kin = mr_kin_new();
    return (struct known){
        kin, mr_hidden_new((enum mr_unmatched)encode->unmatched, &encode->column_rules, kin)};
}

static struct known known_stored(const struct move *move)
{
    const struct mr_section *columns =
        mr_checkpoint_section(&move->stored, mr_kept_kinds[MR_KEPT_COLUMNS].name);
    const struct mr_section *parts =
        mr_checkpoint_section(&move->stored, mr_kept_kinds[MR_KEPT_KIN].name);
    struct known known = known_new(move);
    if (parts != NULL) {
        mr_kin_take(known.kin, parts->json);
    }
    if (columns != NULL) {
        mr_hidden_take(known.hidden, columns->json);
    }
    return known;
}

static void known_free(struct known *known)
{
    mr_hidden_free(known->hidden);
    mr_kin_free(known->kin);
}

struct leaving {
    struct mr_hidden *hidden;
    mr_status status;
    struct mr_error *ret_error;
};

static void take_left(void *context, const struct mr_relation *view)
{
    struct leaving *leaving = context;
    if (leaving->status == MR_OK) {
        leaving->status = mr_hidden_leave(leaving->hidden, view, leaving->ret_error);
    }
}

/* In another cluster names tell what is hidden, so here they must; and a table that was a partition
 * has a name only as long as this cluster says it. */
static mr_status leave_hidden(struct move *move, struct mr_error *ret_error)
{
    struct known known = known_stored(move);
    struct leaving leaving = {.hidden = known.hidden, .ret_error = ret_error};
    MR_TEXT(oids);
    MR_TEXT(parts);
    mr_text_string(&oids, "");
    mr_text_string(&parts, "");
    mr_hidden_add_oids(known.hidden, &oids);
    (void)mr_kin_add_oids(known.kin, &parts);
    mr_status status = mr_pg_attributes_tell_parts(
        move->conn, oids.data, parts.data, known.kin,
        &(struct mr_columns_listener){.take = take_left, .context = &leaving}, ret_error);
    status = status == MR_OK ? leaving.status : status;
    if (status == MR_OK) {
        replace_section(&move->stored, mr_kept_kinds[MR_KEPT_COLUMNS].name,
                        mr_hidden_format(known.hidden));
    }
    known_free(&known);
    return status;
}

struct hidden_there {
    struct mr_hidden *here, *there;
};

static void take_there(void *context, const struct mr_relation *view)
{
    const struct hidden_there *hidden = context;
    mr_hidden_moved(hidden->there, hidden->here, view);
}

/* What was hidden stays so by the names of tables and columns. */
static mr_status move_hidden(struct move *move, struct mr_error *ret_error)
{
    struct known here = known_stored(move);
    struct known there = known_new(move);
    struct hidden_there hidden = {here.hidden, there.hidden};
    uint32_t count;
    char **names = mr_hidden_names(here.hidden, &count);
    mr_status status = mr_pg_attributes_tell_named(
        move->conn, names, count,
        &(struct mr_columns_listener){.take = take_there, .context = &hidden}, ret_error);
    if (status == MR_OK) {
        replace_section(&move->stored, mr_kept_kinds[MR_KEPT_KIN].name, mr_kin_format(there.kin));
        replace_section(&move->stored, mr_kept_kinds[MR_KEPT_COLUMNS].name,
                        mr_hidden_format(there.hidden));
    }
    mr_free_all(names, count);
    known_free(&here);
    known_free(&there);
    return status;
}

static void say_writes(const struct move *move)
{
    const struct mr_pg_move_view *view = &move->view;
    if (view->holds_writes) {
        move_say(move, "ok", "writes: held back for new sessions (default_transaction_read_only)");
    } else {
        move_say(
            move, "warning",
            "writes: nothing here holds them back for every role; what is written between --fence "
            "and --accept-cluster is missing");
    }
    if (view->writers > 0) {
        move_say(move, "warning", "writes: %llu open transactions have written to this database",
                 (unsigned long long)view->writers);
    }
}

/* Nothing can be written there, and whether what its primary wrote has come, nobody knows. */
static mr_status refuse_standby(const struct move *move, struct mr_error *ret_error)
{
    return !mr_pg_is_standby(move->conn)
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_CONFIG,
                         "this server is a standby, where no fence can be set: promote it first "
                         "(the stream goes on there), or stop its stream and begin one from the "
                         "new cluster with a copy");
}

/* Of the file, for a shell; "": there is none. The caller frees it. */
static char *path_of(const struct move *move)
{
    return move->config->path == NULL ? MR_STRDUP("") : mr_show_argument(move->config->path);
}

static void say_steps(const struct move *move)
{
    const char *database = mr_pg_database(move->conn);
    const char *file = move->config->path == NULL ? "" : " --config ";
    MR_FREED char *path = path_of(move);
    fprintf(move->to,
            "steps:\n"
            " 1. hold back writes: ALTER DATABASE \"%s\" SET default_transaction_read_only = on, "
            "and end the applications' sessions\n"
            " 2. wait until millrace status says lag 0 B; stop millrace in order (exit code 0)\n"
            " 3. millrace move --fence%s%s\n"
            " 4. upgrade, restore, or switch to the new cluster; make \"connection\" lead there\n"
            " 5. millrace move%s%s: it names the new cluster, and the command that accepts it\n"
            " 6. start millrace; let writes in: BEGIN READ WRITE; ALTER DATABASE \"%s\" RESET "
            "default_transaction_read_only; COMMIT; and end the sessions that began meanwhile\n",
            database, file, path, file, path, database);
    double look_s = (double)(mr_monotonic_ns() - move->begin_ns) / 1e9;
    fprintf(move->to,
            "pause: writes are held back from step 1 to step 6. Of that millrace needs what it "
            "takes to deliver the rest, and about %.0f s for steps 2, 3, 5 and 6 (this look took "
            "%.1f s); step 4 is yours\n",
            8 * look_s + 2, look_s);
}

/* By what the cluster's positions are above its LSNs. */
static void say_shift(const struct move *move, mr_lsn shift)
{
    if (shift != 0) {
        move_say(move, "ok",
                 "positions: those of events are this cluster's LSNs plus " MR_LSN_FORMAT
                 ", so that they are above those of the cluster before",
                 MR_LSN_ARGS(shift));
    }
}

static mr_status look_at_old(struct move *move, struct mr_error *ret_error)
{
    const struct mr_server_position *server = &move->view.server;
    uint64_t rest =
        server->flushed > move->stored.end_lsn ? server->flushed - move->stored.end_lsn : 0;
    move_say(move, "ok",
             "cluster %s: delivered up to " MR_LSN_FORMAT ", its WAL ends at " MR_LSN_FORMAT
             ", %llu bytes later",
             server->identity.system_id, MR_LSN_ARGS(move->stored.end_lsn),
             MR_LSN_ARGS(server->flushed), (unsigned long long)rest);
    say_shift(move, move->stored.identity.moved.shift);
    say_writes(move);
    MR_TRY(refuse_standby(move, ret_error));
    MR_TRY(refuse_copies(move, ret_error));
    MR_TRY(leave_hidden(move, ret_error));
    say_steps(move);
    return MR_OK;
}

static mr_status move_leave(struct move *move, struct mr_error *ret_error)
{
    struct mr_checkpoint *state = &move->stored;
    struct mr_server_position server;
    if (!is_at_home(move)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "--fence is for the old cluster (system identifier %s), and the "
                       "configuration leads to %s",
                       state->identity.system_id, move->view.server.identity.system_id);
    }
    MR_TRY(refuse_standby(move, ret_error));
    MR_TRY(refuse_copies(move, ret_error));
    MR_TRY(mr_pg_identify(move->stream, move->source, state, 0, &server, ret_error));
    MR_TRY(mr_pg_move_forget(move->conn, state, ret_error)); /* of an earlier fence */
    mr_lsn fence;
    uint64_t next_xid;
    MR_TRY(mr_pg_move_fence(move->conn, move->source, &fence, &next_xid, ret_error));
    MR_TRY(leave_hidden(move, ret_error));
    struct mr_cluster_move *moved = &state->identity.moved;
    *moved = (struct mr_cluster_move){
        .left = fence, .shift = moved->shift, .xid = next_xid, .at_ms = mr_wall_ns() / 1000000};
    memcpy(moved->from, state->identity.system_id, sizeof(moved->from));
    state->end_lsn = fence;
    state->position = (struct mr_position){0};
    MR_TRY(move_store(move, state, ret_error));
    /* A slot is never ahead of what is stored. pg_upgrade wants it behind the fence. */
    MR_TRY(mr_pg_move_advance(move->conn, move->source, fence, ret_error));
    say_writes(move);
    move_say(move, "fenced",
             "cluster %s at " MR_LSN_FORMAT
             ": all that was written to the published tables before is "
             "delivered; hold back writes until the stream is on the new cluster",
             moved->from, MR_LSN_ARGS(fence));
    return MR_OK;
}

static void say_entry(const struct move *move)
{
    const struct mr_pg_move_view *view = &move->view;
    if (view->slot_is_carried) {
        move_say(
            move, "ok",
            "slot \"%s\": pg_upgrade took it along; the stream goes on there, %llu bytes above the "
            "fence",
            move->source->slot,
            (unsigned long long)(view->server.slot_confirmed - move->stored.end_lsn));
        return;
    }
    say_writes(move);
    if (view->changed_rows > 0) {
        move_say(move, "warning",
                 "tables: %llu of their rows were updated or deleted here before the slot is made; "
                 "right only if what filled the cluster did that (logical replication)",
                 (unsigned long long)view->changed_rows);
    }
    if (view->subscriptions > 0) {
        move_say(
            move, "warning",
            "subscriptions: %llu are enabled in this database; what they apply after the slot is "
            "made comes as events again: disable them first",
            (unsigned long long)view->subscriptions);
    }
}

static mr_status look_at_new(struct move *move, struct mr_error *ret_error)
{
    const struct mr_server_position *server = &move->view.server;
    const struct mr_cluster_move *moved = &move->stored.identity.moved;
    move_say(move, "ok",
             "cluster %s, version %d.%d, is another one than the cluster %s whose changes were "
             "delivered up to " MR_LSN_FORMAT "%s",
             server->identity.system_id, move->view.version / 10000, move->view.version % 10000,
             move->stored.identity.system_id, MR_LSN_ARGS(move->stored.end_lsn),
             moved->left != 0 && moved->entered == 0 ? ", where it was left at the fence" : "");
    MR_TRY(refuse_copies(move, ret_error));
    MR_TRY(mr_pg_move_verify(&move->stored, &move->view, ret_error));
    say_entry(move);
    uint64_t place =
        mr_lsn_at_server(server->slot_exists ? server->slot_confirmed : server->flushed);
    mr_lsn shift = mr_pg_move_shift(&move->stored, &move->view, place);
    say_shift(move, shift);
    MR_FREED char *path = path_of(move);
    fprintf(move->to, "to go on here: millrace move --accept-cluster %s%s%s\n",
            server->identity.system_id, move->config->path == NULL ? "" : " --config ", path);
    return MR_OK;
}

/* Whose places the position names from now on. What other companions store of the topics stays. */
static void go_on_at(struct move *move, uint64_t place)
{
    struct mr_checkpoint *state = &move->stored;
    struct mr_cluster_move moved = {.left = state->end_lsn,
                                    .shift = mr_pg_move_shift(state, &move->view, place),
                                    .xid = move->view.next_xid,
                                    .at_ms = mr_wall_ns() / 1000000};
    moved.entered = place + moved.shift;
    memcpy(moved.from, state->identity.system_id, sizeof(moved.from));
    state->identity = move->view.server.identity;
    state->identity.moved = moved;
    state->end_lsn = moved.entered;
    state->last = mr_identity_no_commit(&state->identity);
    state->position = (struct mr_position){0};
    move_forget_tables(state);
}

static void say_moved(const struct move *move, const struct mr_cluster_move *before)
{
    const struct mr_identity *identity = &move->stored.identity;
    const struct mr_cluster_move *moved = &identity->moved;
    move_say(move, "moved",
             "cluster %s was left at " MR_LSN_FORMAT ", cluster %s goes on at " MR_LSN_FORMAT
             " (position " MR_LSN_FORMAT ")",
             moved->from, MR_LSN_ARGS(moved->left), identity->system_id,
             MR_LSN_ARGS(moved->entered - moved->shift), MR_LSN_ARGS(moved->entered));
    if (before->left != 0 && before->entered == 0) {
        move_say(move, "pause", "%.1f s since the fence",
                 (double)(moved->at_ms - before->at_ms) / 1000);
    }
    fprintf(move->to, "start millrace, and let writes in; millrace verify proves that the topics "
                      "equal the tables\n");
}

static mr_status enter(struct move *move, const char *accepted, struct mr_error *ret_error)
{
    const char *here = move->view.server.identity.system_id;
    if (strcmp(here, accepted) != 0 || is_at_home(move)) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "the configuration leads to cluster %s%s, not to a new one of the "
                       "identifier %s; millrace move says which is which",
                       here, is_at_home(move) ? ", where the stream is already" : "", accepted);
    }
    MR_TRY(refuse_copies(move, ret_error));
    MR_TRY(mr_pg_move_verify(&move->stored, &move->view, ret_error));
    say_entry(move);
    MR_TRY(move_hidden(move, ret_error));
    mr_lsn place;
    MR_TRY(mr_pg_move_slot(move->conn, move->stream, move->source, &place, ret_error));
    struct mr_cluster_move before = move->stored.identity.moved;
    go_on_at(move, mr_lsn_at_server(place));
    MR_TRY(move_store(move, &move->stored, ret_error));
    say_moved(move, &before);
    return mr_pg_move_forget(move->conn, &move->stored, ret_error);
}

static mr_status move_run(struct move *move, const struct mr_move_wish *wish,
                          struct mr_error *ret_error)
{
    bool changes = wish->fence || wish->accept != NULL;
    MR_TRY(connect_both(move, ret_error));
    MR_TRY(claim(move, changes, ret_error));
    MR_TRY(look_at_stored(move, ret_error));
    MR_TRY(changes ? open_to_store(move, ret_error) : MR_OK);
    mr_lsn_shift = move->stored.identity.moved.shift;
    MR_TRY(mr_pg_move_look(move->conn, move->stream, move->source, &move->stored, &move->view,
                           ret_error));
    if (wish->fence) {
        return move_leave(move, ret_error);
    }
    if (wish->accept != NULL) {
        return enter(move, wish->accept, ret_error);
    }
    return is_at_home(move) ? look_at_old(move, ret_error) : look_at_new(move, ret_error);
}

mr_status mr_cli_move(struct mr_config *config, const struct mr_move_wish *wish, int stop_fd,
                      FILE *to, struct mr_error *ret_error)
{
    if (config->sink_kind != MR_SINK_KAFKA || config->kafka.state_topic == NULL) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "move changes the position that is stored in Kafka, and this configuration "
                       "stores none (sink.type, sink.kafka.state_topic)");
    }
    struct move move = {.config = config,
                        .source = &config->source,
                        .to = to,
                        .stop_fd = stop_fd,
                        .wake_fd = mr_wake_new(),
                        .begin_ns = mr_monotonic_ns()};
    mr_daemon_know_sections(config, move.sections);
    mr_status status = move_run(&move, wish, ret_error);
    if (status == MR_AGAIN) {
        status =
            mr_fail(ret_error, MR_ERR_TRANSIENT, "interrupted; millrace move says what was done");
    }
    if (move.sink != NULL) {
        move.sink->ops->free(move.sink);
    }
    mr_pg_close(move.stream);
    mr_pg_close(move.conn);
    mr_checkpoint_done(&move.stored);
    config->kafka.sections = NULL;
    close(move.wake_fd);
    return status;
}
