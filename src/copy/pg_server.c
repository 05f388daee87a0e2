#include "copy/pg_server.h"

#include "copy/pg_copy.h"
#include "postgres/server/pg_identity.h"
#include "postgres/server/pg_setup.h"
#include "stream/pg_source.h"

struct mr_pg_server {
    struct mr_copy_server functions;
    struct mr_chunk_ops chunks;
    struct mr_source *source;
    struct mr_pg_copy *copy; /* NULL: none at hand */
    struct mr_pg_copy_slot slot;
    mr_lsn left;               /* as in struct mr_copy */
    struct mr_pg_conn *keeper; /* whose transaction has the copy's snapshot */
};

/* Whether an earlier attempt was at this very copy. On another timeline rows may be at other
 * places. */
static bool pg_server_is_same(const struct mr_pg_server *server, const struct mr_checkpoint *known,
                              const struct mr_copy_stored *resumed,
                              const struct mr_identity *identity)
{
    return known != NULL && resumed != NULL && resumed->lsn == server->slot.lsn &&
           known->identity.timeline == identity->timeline &&
           strcmp(known->identity.system_id, identity->system_id) == 0;
}

/* Why the stream can't go on where it has come to; "": nothing is against it. Another cluster is a
 * wrong connection rather than a reason to copy all of it. */
static mr_status find_gap(const struct mr_pg_server *server, const struct mr_checkpoint *known,
                          struct mr_error *ret_gap, struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = mr_pg_source_options(server->source);
    struct mr_pg_conn *conn = mr_pg_source_conn(server->source);
    struct mr_server_position there;
    struct mr_error error = {0};
    mr_status status = mr_pg_source_identify(server->source, known, 0, &there, &error);
    if (status == MR_ERR_HISTORY) {
        struct mr_identity now;
        MR_TRY(mr_pg_identity(conn, options, &now, ret_error));
        if (strcmp(now.system_id, known->identity.system_id) == 0) {
            /* Without what to do, which is done now. */
            char *lead = strstr(error.text, MR_RECIPE_LEAD);
            mr_error_set(ret_gap, MR_ERR_HISTORY, "%.*s",
                         lead == NULL ? (int)strlen(error.text) : (int)(lead - error.text),
                         error.text);
            return MR_OK;
        }
    }
    if (status != MR_OK) {
        *ret_error = error;
    }
    return status;
}

static mr_status make_slot(struct mr_pg_server *server, const struct mr_checkpoint *known,
                           mr_lsn gap_stored, int stop_fd, struct mr_identity *ret_identity,
                           struct mr_error *ret_error)
{
    const struct mr_pg_source_options *options = mr_pg_source_options(server->source);
    struct mr_pg_conn *conn = mr_pg_source_conn(server->source);
    struct mr_pg_stream_state state = mr_pg_source_state(server->source, known);
    struct mr_error gap = {0};
    state.gap_stored = gap_stored;
    if (state.is_known && mr_pg_mends_gap(options->copies)) {
        MR_TRY(find_gap(server, known, &gap, ret_error));
        state.gap = gap.status == MR_OK ? NULL : gap.text;
    }
    server->left = 0;
    if (state.gap != NULL) {
        MR_TRY(mr_pg_left_at(conn, options, known, &server->left, ret_error));
    }
    MR_TRY(mr_pg_identity(conn, options, ret_identity, ret_error));
    MR_TRY(mr_pg_home_read(mr_pg_source_home(server->source), conn, options, ret_error));
    MR_PG_CLOSED struct mr_pg_conn *desk = NULL;
    MR_TRY(mr_pg_connect(&options->connection, false, stop_fd, &desk, ret_error));
    MR_TRY(mr_pg_setup(conn, desk, options, &state, &server->slot, NULL, ret_error));
    bool lacks_position = options->copies == MR_COPIES_WHEN_NEEDED && server->slot.confirmed != 0;
    const char *reason = state.gap != NULL ? state.gap
                         : lacks_position  ? "the slot exists, but no position is stored for it"
                                           : NULL;
    if (server->slot.attempt != 0 && reason != NULL) {
        mr_log(MR_LOG_WARN, "snapshot_needed", reason, MR_LOG_STR("slot", options->slot));
    }
    return MR_OK;
}

static mr_status server_begin(void *context, const struct mr_checkpoint *known,
                              const struct mr_copy_stored *resumed, mr_lsn gap_stored, int stop_fd,
                              struct mr_identity *ret_identity, const struct mr_copy **ret_copy,
                              struct mr_error *ret_error)
{
    struct mr_pg_server *server = context;
    const struct mr_pg_source_options *options = mr_pg_source_options(server->source);
    MR_ASSERT(mr_pg_source_conn(server->source) != NULL && server->keeper == NULL);
    MR_TRY(make_slot(server, known, gap_stored, stop_fd, ret_identity, ret_error));
    if (server->slot.attempt == 0) {
        *ret_copy = NULL;
        return MR_OK;
    }
    MR_TRY(mr_pg_copying_connect_home(options, mr_pg_source_home(server->source), stop_fd,
                                      &server->keeper, ret_error));
    MR_TRY(mr_pg_begin_in_snapshot(server->keeper, server->slot.snapshot, ret_error));
    struct mr_pg_catalog *catalog;
    MR_TRY(mr_pg_source_read_catalog(server->source, server->keeper, stop_fd, &catalog, ret_error));
    const struct mr_copy moment = {
        .lsn = server->slot.lsn,
        .attempt = server->slot.attempt,
        .leaves_out = server->slot.leaves_out && options->copies != MR_COPIES_ONLY,
        .confirmed = server->slot.confirmed,
        .left = server->left,
        .resumed = pg_server_is_same(server, known, resumed, ret_identity) ? resumed : NULL,
    };
    return mr_pg_copy_new(server->keeper, catalog, &moment, &server->copy, ret_copy, ret_error);
}

static mr_status server_let_go(void *context, struct mr_error *ret_error)
{
    const struct mr_pg_server *server = context;
    return mr_pg_drop_replaced(mr_pg_source_conn(server->source),
                               mr_pg_source_options(server->source), &server->slot, ret_error);
}

static mr_status server_look(void *context, struct mr_error *ret_error)
{
    struct mr_pg_server *server = context;
    return mr_pg_look_at_copy(mr_pg_source_conn(server->source),
                              mr_pg_source_options(server->source), &server->slot, ret_error);
}

static void server_close(void *context)
{
    struct mr_pg_server *server = context;
    mr_pg_copy_free(server->copy);
    server->copy = NULL;
    mr_pg_close(server->keeper);
    server->keeper = NULL;
}

static mr_status server_end(void *context, struct mr_error *ret_error)
{
    struct mr_pg_server *server = context;
    const struct mr_pg_source_options *options = mr_pg_source_options(server->source);
    mr_pg_copy_tell_attached(server->copy, server->keeper, options);
    server_close(server);
    MR_TRY(server_look(server, ret_error));
    return mr_pg_end_copy(mr_pg_source_conn(server->source), options, &server->slot, ret_error);
}

static mr_status server_reader_new(void *context, int stop_fd, struct mr_copy_reader **ret_reader,
                                   struct mr_error *ret_error)
{
    const struct mr_pg_server *server = context;
    return mr_pg_reader_new(server->copy, mr_pg_source_options(server->source),
                            mr_pg_source_home(server->source), stop_fd, ret_reader, ret_error);
}

static struct mr_chunk_reader *server_chunks_new(void *context, int stop_fd)
{
    const struct mr_pg_server *server = context;
    return mr_pg_chunks_new(mr_pg_source_options(server->source), mr_pg_source_home(server->source),
                            stop_fd);
}

const struct mr_copy_server *mr_pg_server_new(struct mr_source *source)
{
    static const struct mr_snapshot_ops snapshot = {.begin = server_begin,
                                                    .let_go = server_let_go,
                                                    .end = server_end,
                                                    .look = server_look,
                                                    .close = server_close,
                                                    .reader_new = server_reader_new,
                                                    .reader_begin = mr_pg_reader_begin,
                                                    .reader_next = mr_pg_reader_next,
                                                    .reader_rest = mr_pg_reader_rest,
                                                    .reader_free = mr_pg_reader_free};
    struct mr_pg_server *server = MR_NEW(struct mr_pg_server);
    server->source = source;
    server->chunks = mr_pg_chunk_ops;
    server->chunks.new = server_chunks_new;
    server->functions = (struct mr_copy_server){
        .snapshot = &snapshot, .chunks = &server->chunks, .context = server};
    return &server->functions;
}

void mr_pg_server_free(const struct mr_copy_server *functions)
{
    server_close(functions->context);
    free(functions->context);
}
